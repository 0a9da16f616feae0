//! Which allocations the program's calls named, and in which turn: what is likely to be used in the next.
//!
//! Looked at for every word of every kernel's parameters, so it takes no lock: an address leads by two tables to the number of an
//! allocation, and the number to the turn in which it was last named. Numbers are used again; a mark that comes late is then
//! somebody else's, which costs a needless move and nothing more.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

/// A page of the map.
pub(crate) const PAGE_BYTES: u64 = 2 << 20;
const PAGE_BITS: u32 = PAGE_BYTES.trailing_zeros();
/// Addresses have at most so many bits; beyond nothing is known.
const ADDRESS_BITS: u32 = 50;
const LEAF_BITS: u32 = 15;
const LEAVES: usize = 1 << (ADDRESS_BITS - PAGE_BITS - LEAF_BITS);
const CHUNK: usize = 1 << 12;
const CHUNKS: usize = 1 << 10;

/// The number of an allocation that calls can name.
pub(crate) type Id = u32;
const NOBODY: Id = 0;
/// A page in which one allocation ends and another begins.
const SEVERAL: Id = Id::MAX;

/// Whose memory a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Nobody,
    One(Id),
    /// The books must say.
    Several,
}

/// A table of which only the parts in use have memory.
type Sparse = Box<[OnceLock<Box<[AtomicU32]>>]>;

fn sparse(parts: usize) -> Sparse {
    (0..parts).map(|_| OnceLock::new()).collect()
}

fn part(table: &Sparse, index: usize, size: usize) -> Option<&[AtomicU32]> {
    let zeros = || (0..size).map(|_| AtomicU32::new(0)).collect();
    Some(table.get(index)?.get_or_init(zeros))
}

/// See the module.
pub(crate) struct Touches {
    pages: Sparse,
    turns: Sparse,
    numbers: Mutex<Numbers>,
    /// The last turn in which something was launched of which nobody knows what it uses.
    everything: AtomicU32,
}

#[derive(Default)]
struct Numbers {
    given: u32,
    free: Vec<Id>,
}

impl Touches {
    pub(crate) fn new() -> Touches {
        let everything = AtomicU32::new(0);
        Touches {
            pages: sparse(LEAVES),
            turns: sparse(CHUNKS),
            numbers: Mutex::default(),
            everything,
        }
    }

    /// Whose memory an address is in.
    #[inline]
    pub(crate) fn owner(&self, address: u64) -> Owner {
        let page = (address >> PAGE_BITS) as usize;
        let leaf = self.pages.get(page >> LEAF_BITS).and_then(OnceLock::get);
        match leaf
            .map_or(NOBODY, |leaf| leaf[page & ((1 << LEAF_BITS) - 1)].load(Ordering::Relaxed))
        {
            NOBODY => Owner::Nobody,
            SEVERAL => Owner::Several,
            id => Owner::One(id),
        }
    }

    /// The allocation has been named in a turn. Written only when that is news, so that threads do not fight for it.
    #[inline]
    pub(crate) fn mark(&self, id: Id, turn: u32) {
        if let Some(slot) = self.slot(id)
            && slot.load(Ordering::Relaxed) != turn
        {
            slot.store(turn, Ordering::Relaxed);
        }
    }

    /// Anything may have been used in a turn.
    pub(crate) fn mark_everything(&self, turn: u32) {
        self.everything.store(turn, Ordering::Relaxed);
    }

    /// The last turn in which an allocation may have been used; 0 if it has not been.
    pub(crate) fn last(&self, id: Id) -> u32 {
        let own = self.slot(id).map_or(u32::MAX, |slot| slot.load(Ordering::Relaxed));
        own.max(self.everything.load(Ordering::Relaxed))
    }

    /// A number for a new allocation, if there is one left. Without, it counts as used all the time.
    pub(crate) fn number(&self) -> Option<Id> {
        let mut numbers = self.numbers.lock();
        let id = match numbers.free.pop() {
            Some(id) => id,
            None if (numbers.given as usize) < CHUNK * CHUNKS - 1 => {
                numbers.given += 1;
                numbers.given
            }
            None => return None,
        };
        part(&self.turns, id as usize / CHUNK, CHUNK)?[id as usize % CHUNK]
            .store(0, Ordering::Relaxed);
        Some(id)
    }

    /// The allocation is gone.
    pub(crate) fn give_back(&self, id: Id) {
        self.numbers.lock().free.push(id);
    }

    /// Addresses belong to an allocation from now on.
    pub(crate) fn add(&self, start: u64, bytes: u64, id: Id) {
        self.each_page(start, bytes, |page| {
            let before = page.load(Ordering::Relaxed);
            page.store(if before == NOBODY { id } else { SEVERAL }, Ordering::Relaxed);
        });
    }

    /// They do not any more. A page that was several's stays so: the books know better.
    pub(crate) fn remove(&self, start: u64, bytes: u64, id: Id) {
        self.each_page(start, bytes, |page| {
            let _ = page.compare_exchange(id, NOBODY, Ordering::Relaxed, Ordering::Relaxed);
        });
    }

    fn each_page(&self, start: u64, bytes: u64, change: impl Fn(&AtomicU32)) {
        let last = start.saturating_add(bytes.saturating_sub(1));
        for page in start >> PAGE_BITS..=last >> PAGE_BITS {
            let leaf = part(&self.pages, page as usize >> LEAF_BITS, 1 << LEAF_BITS);
            let Some(leaf) = leaf else { return };
            change(&leaf[page as usize & ((1 << LEAF_BITS) - 1)]);
        }
    }

    #[inline]
    fn slot(&self, id: Id) -> Option<&AtomicU32> {
        Some(&self.turns.get(id as usize / CHUNK)?.get()?[id as usize % CHUNK])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_inside_an_allocation_names_it() {
        let touches = Touches::new();
        let (a, b) = (touches.number().unwrap(), touches.number().unwrap());
        let start = 0x7f00_0020_0000;
        touches.add(start, 5 * PAGE_BYTES + 100, a);
        touches.add(start + 5 * PAGE_BYTES + 512, 3 * PAGE_BYTES, b);
        assert_eq!(touches.owner(start + 4 * PAGE_BYTES + 7), Owner::One(a));
        assert_eq!(touches.owner(start + 5 * PAGE_BYTES), Owner::Several);
        assert_eq!(touches.owner(start + 6 * PAGE_BYTES), Owner::One(b));
        assert_eq!(touches.owner(start - 1), Owner::Nobody);
        assert_eq!(touches.owner(u64::MAX), Owner::Nobody);
        touches.mark(a, 7);
        assert_eq!((touches.last(a), touches.last(b)), (7, 0));
        touches.mark_everything(9);
        assert_eq!((touches.last(a), touches.last(b)), (9, 9));
    }

    #[test]
    fn what_is_gone_is_forgotten_and_its_number_begins_anew() {
        let touches = Touches::new();
        let id = touches.number().unwrap();
        touches.add(1 << 40, PAGE_BYTES, id);
        touches.mark(id, 3);
        touches.remove(1 << 40, PAGE_BYTES, id);
        touches.give_back(id);
        assert_eq!(touches.owner(1 << 40), Owner::Nobody);
        assert_eq!(touches.number(), Some(id));
        assert_eq!(touches.last(id), 0);
    }
}
