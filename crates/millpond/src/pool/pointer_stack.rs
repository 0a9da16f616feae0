//! A stack that is used by pointers: taking a block is a load, a comparison and a store.
//!
//! ```text
//!   floor │ block │ block │ block │       │       │
//!     ▲                       ▲               ▲
//!   never taken              top            limit
//! ```
//!
//! Below the first block is the floor, whose size fits no request: so that whoever takes a block need not ask whether there is one.

use std::ptr;
use std::slice;
use std::sync::atomic::AtomicU32;

use super::headers::{BlockWord, Word};
use super::shelf::{Kept, LARGEST_CACHED_BYTES, STACK_BYTES, Shelf};

/// A free block in a cache, with its word and its size at hand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cached {
    pub(super) address: u64,
    word: *const BlockWord,
    kept: Kept,
}

// SAFETY: the pointer is to a word, which is shared by all threads.
unsafe impl Sync for Cached {}
// SAFETY: as above.
unsafe impl Send for Cached {}

impl Cached {
    /// A block. Its word is in a header, which lives as long as the pool.
    #[inline]
    pub(super) fn new(address: u64, word: &BlockWord, kept: Kept) -> Cached {
        Cached { address, word, kept }
    }

    /// Far from the size of every request that a cache could serve, and so from what any of them may be handed. At no address of a
    /// block's.
    const FLOOR: Cached = Cached {
        address: 1,
        word: (&raw const FLOOR_WORD).cast(),
        kept: Kept::new(1 << 31, Shelf::NONE),
    };

    #[inline]
    pub(super) fn bytes(self) -> u64 {
        self.kept.bytes()
    }

    #[inline]
    pub(super) fn shelf(self) -> Shelf {
        self.kept.shelf()
    }

    /// Its word.
    ///
    /// # Safety
    /// The pool is there.
    #[inline]
    pub(super) unsafe fn word<'a>(self) -> &'a BlockWord {
        // SAFETY: that of `new`, or the floor's, which stays for ever; the rest is the caller's promise.
        unsafe { &*self.word }
    }
}

/// Nobody writes to it: no floor is a block.
static FLOOR_WORD: AtomicU32 = AtomicU32::new(Word::FREE.0);

/// Of stacks that have no slots. Nobody writes to it: it is their top and their limit.
static FLOOR: Cached = Cached::FLOOR;

/// Free blocks of one shelf.
///
/// `floor ≤ top ≤ limit`, all within one box of slots that is this stack's alone; or all are [`FLOOR`]. The slots up to the top are
/// blocks, but for the first, the floor.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct PointerStack {
    top: *mut Cached,
    limit: *mut Cached,
    /// What must be left of the cache's room after a block has come here.
    pub(super) least_room: i64,
    /// Which bits of its blocks' sizes are taken of that room: all, or none.
    pub(super) counted: i64,
    floor: *mut Cached,
}

const _: () = assert!(size_of::<PointerStack>() == STACK_BYTES);

// SAFETY: the slots are this stack's alone, and what they hold may be sent.
unsafe impl Send for PointerStack {}

impl PointerStack {
    pub(super) fn new() -> PointerStack {
        let floor = ptr::from_ref(&FLOOR).cast_mut();
        PointerStack { top: floor, limit: floor, least_room: 0, counted: -1, floor }
    }

    /// Takes the last block, if it is large enough for a request and its word can say by how much. A request is at most [`LARGEST_CACHED_BYTES`].
    /// The block's slot keeps it until another comes.
    #[inline]
    pub(super) fn pop_for(&mut self, bytes: usize) -> Option<(TakenSlot, usize)> {
        debug_assert!(bytes <= LARGEST_CACHED_BYTES);
        // SAFETY: the top is always a slot, or `FLOOR`, and has been written.
        let slack = unsafe { &*self.top }.bytes().wrapping_sub(bytes as u64);
        if slack >= Word::MOST_SLACK as u64 {
            std::hint::cold_path();
            return None;
        }
        let taken = TakenSlot(self.top);
        // SAFETY: the floor is larger than any request by more than any slack, so this is a block, and there is a slot below it.
        self.top = unsafe { self.top.sub(1) };
        Some((taken, slack as usize))
    }

    /// Undoes [`pop_for`](Self::pop_for).
    ///
    /// # Safety
    /// The slot is the one that was taken from this stack last, and nothing else has been done with the stack since.
    #[inline]
    pub(super) unsafe fn put_back(&mut self, slot: TakenSlot) {
        debug_assert_eq!(slot.0, self.top.wrapping_add(1));
        self.top = slot.0;
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.top == self.limit
    }

    /// Adds a block. `false`: there is no slot for it.
    #[inline]
    pub(super) fn push(&mut self, block: Cached) -> bool {
        if self.is_full() {
            return false;
        }
        // SAFETY: the top is below the limit, so the slot above it is one of ours, and not `FLOOR`, which has none above it.
        unsafe {
            self.top = self.top.add(1);
            *self.top = block;
        }
        true
    }

    pub(super) fn used(&self) -> usize {
        // SAFETY: both are of one box, and the floor is the lower.
        unsafe { self.top.offset_from_unsigned(self.floor) }
    }

    /// How many blocks there are slots for.
    pub(super) fn slots(&self) -> usize {
        // SAFETY: as in `used`.
        unsafe { self.limit.offset_from_unsigned(self.floor) }
    }

    /// The oldest first.
    pub(super) fn blocks(&self) -> &[Cached] {
        // SAFETY: as many slots above the floor have been written, and stay while `self` is borrowed. With none of them, that is
        // one past the floor, where an empty slice may be.
        unsafe { slice::from_raw_parts(self.floor.add(1), self.used()) }
    }

    /// Takes a block; the last takes its place.
    pub(super) fn swap_remove(&mut self, index: usize) -> Cached {
        let (taken, last) = (self.blocks()[index], self.blocks()[self.used() - 1]);
        // SAFETY: as indexing has shown, there is such a block, so that slot and the one below the top are ours.
        unsafe {
            *self.floor.add(1 + index) = last;
            self.top = self.top.sub(1);
        }
        taken
    }

    /// Takes all blocks.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.top = self.floor;
    }

    /// Takes the oldest blocks, as many as there are at most.
    pub(super) fn take_first(&mut self, count: usize) -> Vec<Cached> {
        let (taken, left) = self.blocks().split_at(count);
        let (taken, left) = (taken.to_vec(), left.len());
        // SAFETY: `left` blocks end at the top; they move down to the floor, within the slots in use.
        unsafe {
            ptr::copy(self.floor.add(1 + count), self.floor.add(1), left);
            self.top = self.floor.add(left);
        }
        taken
    }

    /// Has slots for so many blocks from now on, or for as many as there are.
    pub(super) fn set_slots(&mut self, slots: usize) {
        let used = self.used();
        let slots = slots.max(used);
        if slots == self.slots() {
            return;
        }
        let mut new = PointerStack::new();
        if slots > 0 {
            let mut all = vec![Cached::FLOOR; slots + 1].into_boxed_slice();
            all[1..=used].copy_from_slice(self.blocks());
            new.floor = Box::into_raw(all).cast();
            // SAFETY: the box has `slots + 1` slots, and `used` are no more than `slots`.
            unsafe {
                new.top = new.floor.add(used);
                new.limit = new.floor.add(slots);
            }
        }
        (new.least_room, new.counted) = (self.least_room, self.counted);
        *self = new;
    }
}

/// A slot whose block was taken out last.
#[derive(Clone, Copy, Debug)]
pub(super) struct TakenSlot(*mut Cached);

// SAFETY: as for `PointerStack`, whose slot it is.
unsafe impl Send for TakenSlot {}

impl TakenSlot {
    /// None: what is in it is no block.
    pub(super) fn none() -> TakenSlot {
        TakenSlot(ptr::from_ref(&FLOOR).cast_mut())
    }

    /// What was taken, or whatever has come there since.
    ///
    /// # Safety
    /// The stack still has the slot.
    #[inline]
    pub(super) unsafe fn block(self) -> Cached {
        // SAFETY: the caller's promise; a slot that a block was taken from has been written, and so has `FLOOR`.
        unsafe { *self.0 }
    }
}

impl Drop for PointerStack {
    fn drop(&mut self) {
        let slots = self.slots();
        if slots > 0 {
            // SAFETY: from `into_raw` in `set_slots`, of one slot more than there are blocks' slots, and nobody has it any more.
            drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(self.floor, slots + 1)) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(bytes: u64) -> Cached {
        Cached { address: bytes << 8, word: ptr::null(), kept: Kept::new(256 * bytes, Shelf::NONE) }
    }

    fn sizes(stack: &PointerStack) -> Vec<u64> {
        stack.blocks().iter().map(|block| block.bytes() / 256).collect()
    }

    #[test]
    fn nothing_comes_from_an_empty_stack_and_nothing_goes_into_a_full_one() {
        let mut stack = PointerStack::new();
        assert!(stack.pop_for(0).is_none() && stack.pop_for(1).is_none() && !stack.push(block(7)));
        stack.set_slots(2);
        assert!(stack.pop_for(0).is_none() && stack.pop_for(1 << 20).is_none());
        assert!(stack.push(block(3)) && stack.push(block(4)) && !stack.push(block(8)));
        assert!(stack.pop_for(1025).is_none(), "more than the last has");
        let pop = |stack: &mut PointerStack, bytes| {
            let (slot, slack) = stack.pop_for(bytes)?;
            // SAFETY: the stack is there and has its slots.
            Some((slot, unsafe { slot.block() }.bytes(), slack))
        };
        let (slot, bytes, slack) = pop(&mut stack, 513).expect("the last");
        assert_eq!((bytes, slack), (1024, 511));
        // SAFETY: nothing else has been done since.
        unsafe { stack.put_back(slot) };
        assert_eq!(sizes(&stack), [3, 4]);
        assert_eq!(pop(&mut stack, 513).map(|(_, bytes, slack)| (bytes, slack)), Some((1024, 511)));
        assert_eq!(pop(&mut stack, 768).map(|(_, bytes, slack)| (bytes, slack)), Some((768, 0)));
        assert!(stack.pop_for(768).is_none() && stack.used() == 0 && stack.slots() == 2);
    }

    #[test]
    fn blocks_stay_in_order_while_slots_come_and_go() {
        let mut stack = PointerStack::new();
        stack.set_slots(5);
        assert!((1..=5).all(|bytes| stack.push(block(bytes))) && stack.is_full());
        stack.set_slots(0);
        assert_eq!((sizes(&stack), stack.slots()), (vec![1, 2, 3, 4, 5], 5));
        stack.set_slots(8);
        assert_eq!((stack.swap_remove(1).bytes() / 256, sizes(&stack)), (2, vec![1, 5, 3, 4]));
        assert_eq!((stack.swap_remove(3).bytes() / 256, sizes(&stack)), (4, vec![1, 5, 3]));
        let first: Vec<u64> = stack.take_first(2).iter().map(|block| block.bytes() / 256).collect();
        assert_eq!((first, sizes(&stack), stack.slots()), (vec![1, 5], vec![3], 8));
        stack.take_first(1);
        stack.set_slots(0);
        assert!(stack.is_full() && stack.slots() == 0 && stack.pop_for(768).is_none());
    }
}
