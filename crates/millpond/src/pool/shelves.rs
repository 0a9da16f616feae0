//! What one thread keeps for one stream, shelf by shelf, and how much that may be.
//!
//! Each shelf is a stack that is used by pointers: taking a block is a load, a comparison and a store.
//!
//! ```text
//!   floor │ block │ block │ block │       │       │
//!     ▲                       ▲               ▲
//!   never taken              top            limit
//! ```
//!
//! Below the first block is the floor, whose size fits no request: a thread that takes a block need not ask whether there is one.
//!
//! ```text
//!   floor ≤ top ≤ limit
//!   room + Σ blocks on the shelves, those pending left out: bytes = most_bytes
//!   the slot that a hit took from last has a live block  ⇒  it is the one above the top of its shelf
//! ```

use std::sync::atomic::AtomicU32;
use std::{mem, ptr, slice};

use super::lock_free::{BlockWord, Tag, Word};
use super::sizes::{
    CLASSES, LARGEST_CACHED_BYTES, LARGEST_PENDING_BYTES, MOST_PENDING, SHELF_NUMBERS, SHELVES,
    STACK_BYTES, Shelf, SizeAndShelf,
};
use super::streams::StreamSlot;

/// How much a cache may keep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Of one shelf.
    pub(super) blocks: usize,
    /// In all.
    pub(super) bytes: u64,
}

/// A block that another thread has freed, and on which stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct RemoteFree {
    pub(super) offset: u64,
    pub(super) stream: StreamSlot,
}

/// Blocks on their way to the cache that owns them.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) owner: Tag,
    pub(super) blocks: Vec<RemoteFree>,
}

/// Where free blocks begin that are to be given back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pending {
    offsets: [u64; MOST_PENDING],
    count: usize,
}

impl Pending {
    #[inline]
    pub(super) fn offsets(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.offsets.iter().copied().take(self.count)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Blocks that are sent to their owner at a time.
const OUTBOX_BLOCKS: usize = 64;

/// What a hit has handed out last.
#[derive(Debug)]
struct Last {
    /// From where.
    slot: TakenSlot,
}

impl Last {
    /// Nothing: what is in that slot is not live.
    fn none() -> Last {
        Last { slot: TakenSlot::none() }
    }
}

/// Bytes of all blocks on the shelves + `room` = `most_bytes`, but for those pending, which are few. What is in the outbox belongs to
/// others.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Shelves {
    /// How many more bytes may come. A block that [comes back](Self::put_back) may make it less than nothing.
    room: i64,
    /// None, if anything but hits has happened since.
    last: Last,
    /// What the settings allowed when somebody last asked for them.
    most_bytes: i64,
    outbox_owner: Tag,
    /// Blocks of one other cache that this thread has freed.
    outbox: Vec<RemoteFree>,
    /// By shelf: classes, then sizes of blocks of their own. Last, so that what every call uses is near the beginning.
    stacks: [PointerStack; SHELF_NUMBERS],
}

impl Shelves {
    pub(super) fn new() -> Shelves {
        let mut stacks = std::array::from_fn(|_| PointerStack::new());
        let pending: &mut PointerStack = &mut stacks[Shelf::PENDING.index()];
        (pending.least_room, pending.counted) = (i64::MIN, 0);
        Shelves {
            stacks,
            room: 0,
            last: Last::none(),
            most_bytes: 0,
            outbox: Vec::new(),
            outbox_owner: Tag::NONE,
        }
    }

    #[inline]
    fn stack(&mut self, shelf: Shelf) -> &mut PointerStack {
        // SAFETY: a shelf is the place of one of as many stacks.
        unsafe { &mut *self.stacks.as_mut_ptr().byte_add(shelf.place()) }
    }

    /// The last block of a shelf, if it fits closely enough, and the word that it has as a user's: `live`, with what was not asked for.
    #[inline]
    pub(super) fn pop(&mut self, shelf: Shelf, bytes: usize, live: Word) -> Option<(Cached, Word)> {
        let (slot, slack) = self.stack(shelf).pop_for(bytes)?;
        let live = live.with_slack(slack);
        self.last = Last { slot };
        // SAFETY: it was taken from there just now.
        let block = unsafe { slot.block() };
        self.room += block.bytes() as i64;
        Some((block, live))
    }

    /// The word of the block that was handed out last, if it was for so many bytes, and what it says while the block is that user's. If
    /// another has come to its place since, that one's word, which says something else; or none.
    ///
    /// # Safety
    /// The pool is there.
    #[inline]
    pub(super) unsafe fn last_handed_out(&self) -> Cached {
        // SAFETY: whatever takes slots away from stacks forgets `last` before; the rest is the caller's promise.
        unsafe { self.last.slot.block() }
    }

    /// Puts the [last](Self::last_handed_out) block back where it was, even if others have used up the room: it is one block, and had it before.
    ///
    /// # Safety
    /// It is live, so not on its shelf.
    #[inline]
    pub(super) unsafe fn put_back(&mut self) {
        let slot = self.last.slot;
        // SAFETY: as in `last_handed_out`.
        let block = unsafe { slot.block() };
        self.room -= block.bytes() as i64;
        // SAFETY: the block was taken from there, and is not there. If another had been taken from that shelf since, that would
        // be `last`; had one come, it would be in the slot; whatever else is done forgets `last`.
        unsafe { self.stack(block.shelf()).put_back(slot) };
    }

    /// From now on nothing is known of the block that was handed out last.
    pub(super) fn forget_last(&mut self) {
        self.last = Last::none();
    }

    /// Adds a block, if there is a slot for it and room.
    #[inline]
    pub(super) fn push(&mut self, block: Cached) -> bool {
        self.push_on(block.shelf(), block)
    }

    /// As [`push`](Self::push), of a block whose shelf this is.
    #[inline]
    pub(super) fn push_on(&mut self, shelf: Shelf, block: Cached) -> bool {
        let room = self.room;
        let stack = self.stack(shelf);
        let room = room - (block.bytes() as i64 & stack.counted);
        if room < stack.least_room || !stack.push(block) {
            return false;
        }
        self.room = room;
        true
    }

    /// As [`push`](Self::push), and makes a slot within bounds if there is none.
    pub(super) fn push_making_room(&mut self, block: Cached, most: Bounds) -> bool {
        const FIRST_SLOTS: usize = 4;
        self.set_bounds(most);
        let most_blocks = match block.shelf() {
            Shelf::NONE => 0,
            Shelf::PENDING => {
                let of_bytes = most.bytes / LARGEST_PENDING_BYTES as u64;
                MOST_PENDING.min(most.blocks).min(of_bytes as usize)
            }
            _ => most.blocks,
        };
        let stack = self.stack(block.shelf());
        if stack.is_full() {
            stack.set_slots((2 * stack.used()).max(FIRST_SLOTS).min(most_blocks));
        }
        self.push(block)
    }

    /// Adds free blocks of a shelf, as far as there is room for them; says how many.
    pub(super) fn fill<'a>(
        &mut self,
        shelf: Shelf,
        blocks: impl ExactSizeIterator<Item = (u64, &'a BlockWord)>,
        most: Bounds,
    ) -> usize {
        self.set_bounds(most);
        let size_and_shelf = SizeAndShelf::new(shelf.block_bytes(), shelf);
        let stack = self.stack(shelf);
        let used = stack.used();
        let wanted = used + blocks.len();
        if wanted > stack.slots() {
            stack.set_slots(wanted.min(most.blocks));
        }
        let mut cached = blocks.map(|(address, word)| Cached::new(address, word, size_and_shelf));
        while let Some(block) = cached.next()
            && self.push(block)
        {}
        self.stack(shelf).used() - used
    }

    /// The last block of a shelf, whatever it is for.
    pub(super) fn pop_any(&mut self, shelf: Shelf) -> Option<Cached> {
        let stack = self.stack(shelf);
        let taken = stack.swap_remove(stack.used().checked_sub(1)?);
        self.room += taken.bytes() as i64;
        Some(taken)
    }

    /// Takes the older half of a shelf's blocks. None of a shelf of large blocks that has only a few: others fill the cache then.
    pub(super) fn take_older_half(&mut self, shelf: Shelf) -> Vec<Cached> {
        const FEW: usize = 8;
        let stack = self.stack(shelf);
        if shelf.class().is_none() && stack.used() < FEW && !stack.is_full() {
            return Vec::new();
        }
        let half = stack.take_first(stack.used().div_ceil(2));
        self.room += bytes_of(&half);
        half
    }

    /// Takes what is pending, of a pool whose span begins at `base`. Into what the caller has: whatever is put together here and copied in
    /// one piece the machine has to wait for.
    #[inline]
    pub(super) fn take_pending(&mut self, base: u64, pending: &mut Pending) {
        let stack = self.stack(Shelf::PENDING);
        pending.count = stack.used();
        for (offset, block) in pending.offsets.iter_mut().zip(stack.blocks()) {
            *offset = block.address - base;
        }
        stack.clear();
    }

    /// Nothing may pend until somebody makes slots for it again.
    pub(super) fn stop_pending(&mut self) {
        self.stack(Shelf::PENDING).set_slots(0);
    }

    /// Takes everything. Nothing may come until the settings have been asked for.
    pub(super) fn take_all(&mut self) -> Vec<Cached> {
        let mut blocks = Vec::new();
        for stack in &mut self.stacks[..=Shelf::PENDING.index()] {
            blocks.extend(stack.take_first(stack.used()));
            stack.set_slots(0);
        }
        (self.room, self.most_bytes) = (0, 0);
        blocks
    }

    /// Takes up to so many blocks of their own, the largest first.
    pub(super) fn take_largest(&mut self, most: usize) -> Vec<Cached> {
        let pending = self.stack(Shelf::PENDING);
        let mut blocks = pending.take_first(pending.used());
        let pending = blocks.len();
        for stack in self.stacks[CLASSES..SHELVES].iter_mut().rev() {
            while blocks.len() < most
                && let Some(last) = stack.used().checked_sub(1)
            {
                blocks.push(stack.swap_remove(last));
            }
        }
        self.room += bytes_of(&blocks[pending..]);
        blocks
    }

    /// Says anew how much may be kept.
    fn set_bounds(&mut self, most: Bounds) {
        // Nobody has so many bytes that a sign has no place.
        let most_bytes = most.bytes.min(1 << 60) as i64;
        if most_bytes == self.most_bytes {
            return;
        }
        self.room += most_bytes - self.most_bytes;
        self.most_bytes = most_bytes;
        // A quarter is left to blocks of slabs: they are many, and small.
        self.stacks[CLASSES..SHELVES]
            .iter_mut()
            .for_each(|stack| stack.least_room = most_bytes / 4);
    }

    /// Leaves a block of another cache in the outbox. Returns what has to be sent now.
    pub(super) fn send(&mut self, owner: Tag, freed: RemoteFree) -> Option<Parcel> {
        let parcel = if self.may_send_to(owner) { None } else { self.take_outbox() };
        self.outbox_owner = owner;
        self.outbox.push(freed);
        parcel
    }

    /// As [`send`](Self::send), if nothing has to be sent now, and then if `free` says so.
    #[inline]
    pub(super) fn send_if(
        &mut self,
        owner: Tag,
        freed: RemoteFree,
        free: impl FnOnce() -> bool,
    ) -> bool {
        let is_sent = self.may_send_to(owner) && free();
        if is_sent {
            self.outbox.push(freed);
        }
        is_sent
    }

    /// Whether the outbox has room beside others for the same cache.
    #[inline]
    fn may_send_to(&self, owner: Tag) -> bool {
        self.outbox_owner == owner && self.outbox.len() < self.outbox.capacity()
    }

    pub(super) fn take_outbox(&mut self) -> Option<Parcel> {
        let blocks = mem::replace(&mut self.outbox, Vec::with_capacity(OUTBOX_BLOCKS));
        (!blocks.is_empty()).then_some(Parcel { owner: self.outbox_owner, blocks })
    }
}

fn bytes_of(blocks: &[Cached]) -> i64 {
    blocks.iter().map(|block| block.bytes() as i64).sum()
}

/// A free block in a cache, with its word and its size at hand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cached {
    pub(super) address: u64,
    word: *const BlockWord,
    size_and_shelf: SizeAndShelf,
}

// SAFETY: the pointer is to a word, which is shared by all threads.
unsafe impl Sync for Cached {}
// SAFETY: as above.
unsafe impl Send for Cached {}

impl Cached {
    /// A block. Its word is in a header, which lives as long as the pool.
    #[inline]
    pub(super) fn new(address: u64, word: &BlockWord, size_and_shelf: SizeAndShelf) -> Cached {
        Cached { address, word, size_and_shelf }
    }

    /// Far from the size of every request that a cache could serve, and so from what any of them may be handed. At no address of a
    /// block's.
    const FLOOR: Cached = Cached {
        address: 1,
        word: (&raw const FLOOR_WORD).cast(),
        size_and_shelf: SizeAndShelf::new(1 << 31, Shelf::NONE),
    };

    #[inline]
    pub(super) fn bytes(self) -> u64 {
        self.size_and_shelf.bytes()
    }

    #[inline]
    pub(super) fn shelf(self) -> Shelf {
        self.size_and_shelf.shelf()
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
        Cached {
            address: bytes << 8,
            word: ptr::null(),
            size_and_shelf: SizeAndShelf::new(256 * bytes, Shelf::NONE),
        }
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
