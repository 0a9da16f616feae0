//! What one thread keeps for one stream, shelf by shelf, and how much that may be.

use std::mem;

use super::headers::{BlockWord, Tag, Word};
use super::pointer_stack::{Cached, PointerStack, TakenSlot};
use super::points::StreamSlot;
use super::shelf::{Kept, LARGEST_PENDING_BYTES, MOST_PENDING, SHELF_NUMBERS, SHELVES, Shelf};
use super::size_class::CLASSES;

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
pub(super) struct Stacks {
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

impl Stacks {
    pub(super) fn new() -> Stacks {
        let mut stacks = std::array::from_fn(|_| PointerStack::new());
        let pending: &mut PointerStack = &mut stacks[Shelf::PENDING.index()];
        (pending.least_room, pending.counted) = (i64::MIN, 0);
        Stacks {
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
    pub(super) unsafe fn last_of(&self) -> Cached {
        // SAFETY: whatever takes slots away from stacks forgets `last` before; the rest is the caller's promise.
        unsafe { self.last.slot.block() }
    }

    /// Puts the [last](Self::last_of) block back where it was, even if others have used up the room: it is one block, and had it before.
    ///
    /// # Safety
    /// It is live, so not on its shelf.
    #[inline]
    pub(super) unsafe fn put_back(&mut self) {
        let slot = self.last.slot;
        // SAFETY: as in `last_of`.
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
    pub(super) fn push_within(&mut self, block: Cached, most: Bounds) -> bool {
        const FIRST_SLOTS: usize = 4;
        self.bound(most);
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
        self.bound(most);
        let kept = Kept::new(shelf.block_bytes(), shelf);
        let stack = self.stack(shelf);
        let used = stack.used();
        let wanted = used + blocks.len();
        if wanted > stack.slots() {
            stack.set_slots(wanted.min(most.blocks));
        }
        let mut cached = blocks.map(|(address, word)| Cached::new(address, word, kept));
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
    pub(super) fn take_half(&mut self, shelf: Shelf) -> Vec<Cached> {
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
    pub(super) fn take_some_large(&mut self, most: usize) -> Vec<Cached> {
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
    fn bound(&mut self, most: Bounds) {
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
