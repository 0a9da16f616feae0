//! The books of tracked blocks.

use std::collections::{HashMap, VecDeque};
use std::fmt::{self, Write};
use std::sync::Arc;

use parking_lot::Mutex;

use super::callers::Callers;
use crate::driver::{DevicePtr, Stream};

/// Blocks that are remembered after they were freed, so that a second free can be told from a foreign address.
const MOST_FREED: usize = 4096;
/// Double frees of which the story is kept. More are only counted.
const MOST_DOUBLE_FREES: usize = 256;
/// Leaks that a report shows one by one.
const MOST_SHOWN: usize = 32;

/// What a [`Track`](super::Track) has seen. Clones are the same ledger, also after the resource is gone.
#[derive(Clone, Debug)]
pub struct Ledger {
    books: Arc<Mutex<Books>>,
    with_callers: bool,
}

/// A block that is live; a leak if nobody will free it.
#[derive(Clone, Debug)]
pub struct Leak {
    /// Where it is.
    pub ptr: DevicePtr,
    /// What was asked for.
    pub bytes: usize,
    /// Where it was allocated.
    pub stream: Stream,
    /// Blocks count from 0 in the order of their allocation.
    pub number: u64,
    callers: Callers,
}

/// A block that was freed when it was free.
#[derive(Clone, Debug)]
pub struct DoubleFree {
    /// Where it was.
    pub ptr: DevicePtr,
    /// The size that the second free gave.
    pub bytes: usize,
    /// The stream of the second free.
    pub stream: Stream,
    allocated: Callers,
    freed: Callers,
    freed_again: Callers,
}

/// A block that was freed, or is about to be.
#[derive(Clone, Debug)]
pub(super) struct Freed {
    block: Leak,
    freed: Callers,
}

#[derive(Debug, Default)]
struct Books {
    live: HashMap<DevicePtr, Leak>,
    /// The latest free of an address where no tracked block is live, by address.
    freed: HashMap<DevicePtr, Freed>,
    /// The same addresses with their blocks' numbers, the oldest first, and some that have become live again.
    freed_in_order: VecDeque<(DevicePtr, u64)>,
    allocations: u64,
    double_frees: Vec<DoubleFree>,
    double_free_count: u64,
}

impl Books {
    fn remember(&mut self, ptr: DevicePtr, freed: Freed) {
        self.freed_in_order.push_back((ptr, freed.block.number));
        self.freed.insert(ptr, freed);
        if self.freed_in_order.len() > MOST_FREED
            && let Some((oldest, number)) = self.freed_in_order.pop_front()
            && self.freed.get(&oldest).is_some_and(|freed| freed.block.number == number)
        {
            self.freed.remove(&oldest);
        }
    }
}

impl Ledger {
    pub(super) fn new(with_callers: bool) -> Ledger {
        Ledger { books: Arc::default(), with_callers }
    }

    /// The blocks that are live, in the order of their allocation: leaks, once everything should be freed.
    pub fn leaks(&self) -> Vec<Leak> {
        let mut leaks: Vec<Leak> = self.books.lock().live.values().cloned().collect();
        leaks.sort_unstable_by_key(|leak| leak.number);
        leaks
    }

    /// Blocks that were freed twice, the first 256 of them.
    pub fn double_frees(&self) -> Vec<DoubleFree> {
        self.books.lock().double_frees.clone()
    }

    /// How often a block was freed twice.
    pub fn double_free_count(&self) -> u64 {
        self.books.lock().double_free_count
    }

    /// What is live and what was freed twice, with the callers, for people. Empty if there is nothing to tell.
    pub fn report(&self) -> String {
        let (leaks, double_frees) = (self.leaks(), self.double_frees());
        let mut text = String::new();
        if !leaks.is_empty() {
            let bytes: usize = leaks.iter().map(|leak| leak.bytes).sum();
            text += &format!("{} blocks of {bytes} bytes together were not freed\n", leaks.len());
        }
        for leak in leaks.iter().take(MOST_SHOWN) {
            write!(text, "{leak}").expect("a string takes everything");
        }
        if leaks.len() > MOST_SHOWN {
            text += &format!("and {} more blocks\n", leaks.len() - MOST_SHOWN);
        }
        for double_free in double_frees.iter().take(MOST_SHOWN) {
            write!(text, "{double_free}").expect("a string takes everything");
        }
        text
    }

    pub(super) fn allocated(&self, ptr: DevicePtr, bytes: usize, stream: Stream) {
        let callers = Callers::here(self.with_callers);
        let mut books = self.books.lock();
        let number = books.allocations;
        books.allocations += 1;
        books.freed.remove(&ptr);
        books.live.insert(ptr, Leak { ptr, bytes, stream, number, callers });
    }

    /// Enters a block as freed; what it was, if it was live.
    pub(super) fn being_freed(&self, ptr: DevicePtr) -> Option<Freed> {
        let freed = Callers::here(self.with_callers);
        let mut books = self.books.lock();
        let block = books.live.remove(&ptr)?;
        let freed = Freed { block, freed };
        books.remember(ptr, freed.clone());
        Some(freed)
    }

    /// The resource refused to free it, and the block is still its owner's.
    pub(super) fn not_freed(&self, ptr: DevicePtr, was_live: Option<Freed>) {
        if let Some(freed) = was_live {
            let mut books = self.books.lock();
            books.freed.remove(&ptr);
            books.live.insert(ptr, freed.block);
        }
    }

    /// The resource says that there is no such block.
    pub(super) fn was_free(
        &self,
        ptr: DevicePtr,
        bytes: usize,
        stream: Stream,
        was_live: Option<Freed>,
    ) {
        let freed_again = Callers::here(self.with_callers);
        let mut books = self.books.lock();
        // What nobody has seen freed is a foreign address, and the resource's error says enough.
        let Some(freed) = was_live.or_else(|| books.freed.get(&ptr).cloned()) else { return };
        books.double_free_count += 1;
        if books.double_frees.len() < MOST_DOUBLE_FREES {
            books.double_frees.push(DoubleFree {
                ptr,
                bytes,
                stream,
                allocated: freed.block.callers,
                freed: freed.freed,
                freed_again,
            });
        }
    }
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "  {} bytes at {} on stream {:#x}, allocated by",
            self.bytes, self.ptr, self.stream.0
        )?;
        write!(f, "{}", self.callers)
    }
}

impl fmt::Display for DoubleFree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {} was freed twice; it was allocated by", self.ptr)?;
        writeln!(f, "{}  freed by\n{}  and freed again by", self.allocated, self.freed)?;
        write!(f, "{}", self.freed_again)
    }
}
