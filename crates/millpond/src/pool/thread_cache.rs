//! What one thread keeps for one stream: freed blocks, ready to be handed out again.
//!
//! The owner's thread takes and puts without a lock and without an atomic read-modify-write. Anybody else may take the
//! cache away from it for a moment, to reclaim what an idle thread holds; `handshake` is how.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{mem, ptr};

use super::bins::STEP_BYTES;
use super::counters::{Counters, Counting};
use super::handshake::Handshake;
use super::headers::{Block, BlockWord, HeaderId, Kind, Tag, Word};
use super::inbox::Inbox;
use super::points::StreamSlot;
use super::shelf::{SHELF_NUMBERS, SHELVES, Shelf};
use super::size_class::{CLASSES, Class, LARGEST_BYTES};
use super::thread_memory;
use crate::driver::Stream;

/// One free block of a slab, or of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) offset: u64,
    pub(super) header: HeaderId,
    pub(super) index: u32,
}

/// A free block in a cache, with its word and its size at hand.
#[derive(Clone, Copy, Debug)]
struct Cached {
    offset: u64,
    word: *const BlockWord,
    bytes: u64,
}

/// Free blocks of one shelf: the first `used` slots. As many as there are slots are kept without asking for the settings.
#[derive(Debug)]
struct Stack {
    slots: Box<[Cached]>,
    used: usize,
    /// How much more than was asked for the last block may have to be handed out at once.
    most_slack: u64,
    /// Which bits of its blocks' sizes count against the room that is left, and what must be less than what then is left: all and -1
    /// for blocks of their own, none that a size has and the least number for those of slabs, which have their slots.
    counted: i64,
}

impl Stack {
    const EMPTY_SLOT: Cached = Cached { offset: 0, word: ptr::null(), bytes: 0 };

    fn new(shelf: usize) -> Stack {
        let (most_slack, counted) = if shelf < CLASSES {
            // Every block of a class will do.
            (LARGEST_BYTES as u64, i64::MIN)
        } else {
            // Blocks of one bin differ by up to 3 %: one that fits exactly, or the best of several is looked for.
            (STEP_BYTES - 1, -1)
        };
        Stack { slots: Box::default(), used: 0, most_slack, counted }
    }

    fn blocks(&self) -> &[Cached] {
        &self.slots[..self.used]
    }

    /// Takes a block; the last takes its place.
    fn swap_remove(&mut self, index: usize) -> Cached {
        let cached = self.slots[index];
        self.used -= 1;
        self.slots[index] = self.slots[self.used];
        cached
    }

    /// Has so many slots from now on, or as many as are used.
    fn set_slots(&mut self, slots: usize) {
        let mut new = mem::take(&mut self.slots).into_vec();
        new.resize(slots.max(self.used), Self::EMPTY_SLOT);
        self.slots = new.into_boxed_slice();
    }

    /// Takes the oldest blocks.
    fn take_first(&mut self, count: usize) -> Vec<u64> {
        let offsets = self.slots[..count].iter().map(|cached| cached.offset).collect();
        self.slots.copy_within(count..self.used, 0);
        self.used -= count;
        offsets
    }
}

/// Blocks of a bin that are looked at for one that fits.
const LOOKED_AT: usize = 4;

/// The cache's bound is on `granted_bytes` and the bytes of blocks of their own together. What is in the outbox belongs to others.
#[derive(Debug)]
#[repr(C)]
struct Stacks {
    /// By shelf: classes, then bins of blocks of their own, which differ in size by at most 3 %.
    stacks: [Stack; SHELF_NUMBERS],
    /// The slots of classes, used or not.
    granted_bytes: u64,
    /// What blocks of their own may have in all, and how much more that is than they have. Either may be less than nothing: slabs
    /// may have been granted more than their quarter.
    large_most: i64,
    large_room: i64,
    /// Blocks of one other cache that this thread has freed.
    outbox: Vec<RemoteFree>,
    outbox_owner: Tag,
}

// SAFETY: the raw pointers point into headers, which are shared and live as long as the pool, and the pool keeps its caches
// no longer than that.
unsafe impl Send for Stacks {}

/// A block that another thread has freed, and on which stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct RemoteFree {
    pub(super) offset: u64,
    pub(super) stream: StreamSlot,
}

/// The blocks that one thread keeps for one stream.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct ThreadCache {
    stacks: Handshake<Stacks>,
    pub(super) tag: Tag,
    /// The word of a live block of this cache that was asked for whole.
    pub(super) live: Word,
    /// Changes only while the cache is nobody's and empty.
    stream: AtomicU32,
    /// Blocks of this cache that others have freed.
    pub(super) inbox: Inbox<RemoteFree>,
}

impl ThreadCache {
    pub(super) fn new(tag: Tag, stream: StreamSlot) -> ThreadCache {
        ThreadCache {
            tag,
            live: Word::live(0, tag),
            stream: AtomicU32::new(stream.0),
            stacks: Handshake::new(Stacks {
                stacks: std::array::from_fn(Stack::new),
                granted_bytes: 0,
                large_most: 0,
                large_room: 0,
                outbox: Vec::new(),
                outbox_owner: Tag::NONE,
            }),
            inbox: Inbox::new(),
        }
    }

    /// The stream that it keeps blocks for.
    #[inline]
    pub(super) fn stream(&self) -> StreamSlot {
        // Relaxed: written under the lock under which the cache changes hands.
        StreamSlot(self.stream.load(Ordering::Relaxed))
    }

    /// Keeps blocks for another stream from now on. Whoever calls this holds the pool's list of caches, and the cache is
    /// nobody's and empty.
    pub(super) fn set_stream(&self, stream: StreamSlot) {
        self.stream.store(stream.0, Ordering::Relaxed);
    }

    /// Runs something on the stacks, unless a reclaimer has them. Only the owner's thread may call this.
    #[inline]
    fn with<T>(&self, run: impl FnOnce(&mut Stacks) -> T) -> Option<T> {
        // SAFETY: we are the owner's thread, and `run` has the stacks only: it cannot come back here.
        unsafe { self.stacks.as_owner(run) }
    }

    /// Takes the last block of a shelf and makes it live, if it fits closely enough. One that another thread is freeing, too, at this
    /// moment is left to come back by the inbox, and none is taken. Only the owner's thread may call this.
    #[inline]
    pub(super) fn take(&self, shelf: Shelf, bytes: usize) -> Option<u64> {
        let live = self.live;
        self.with(|stacks| {
            let stack = &mut stacks.stacks[shelf.index()];
            let last = stack.used.wrapping_sub(1);
            let cached = *stack.slots.get(last)?;
            let slack = cached.bytes.wrapping_sub(bytes as u64);
            if slack > stack.most_slack {
                return None;
            }
            stack.used = last;
            stacks.large_room += cached.bytes as i64 & stack.counted;
            cached.hand_out(live.with_slack(slack as usize))
        })?
    }

    /// As [`take`](Self::take), for the best of several blocks of their own of at least `block_bytes`, and little more. The caller
    /// notes in its header what was requested, if its word cannot say it.
    pub(super) fn take_fitting(&self, block_bytes: u64, requested: usize) -> Option<(u64, Word)> {
        self.with(|stacks| {
            let cached = stacks.pop_fitting(block_bytes)?;
            stacks.large_room += cached.bytes as i64;
            let slack = (cached.bytes as usize - requested).min(Word::MOST_SLACK);
            let live = self.live.with_slack(slack);
            Some((cached.hand_out(live)?, live))
        })?
    }

    /// Puts a block back on its shelf, if its word is `now`: this cache's, and live or on its way here. `false`: it is not, or
    /// the cache is full or frozen; nothing has changed. Only the owner's thread may call this.
    #[inline]
    pub(super) fn put(&self, block: Block<'_>, now: Word) -> bool {
        self.with(|stacks| stacks.push(block, now)) == Some(true)
    }

    /// As [`put`](Self::put), and makes room within bounds if there is none.
    pub(super) fn put_within(&self, block: Block<'_>, now: Word, most: Bounds) -> bool {
        let shelf = block.header.shelf();
        let put = self.with(|stacks| {
            let has_room = stacks.has_room(shelf, block.block_bytes)
                || match shelf.class() {
                    Some(class) => stacks.grant(class, most),
                    None => stacks.admit(shelf, block.block_bytes, most),
                };
            has_room && stacks.push(block, now)
        });
        put == Some(true)
    }

    /// Leaves a block that another cache owns in the outbox. Returns what has to be sent now. `Err`: frozen.
    #[inline]
    pub(super) fn send(&self, owner: Tag, freed: RemoteFree) -> Result<Option<Parcel>, RemoteFree> {
        let sent = self.with(|stacks| {
            let full = stacks.outbox.len() == stacks.outbox.capacity();
            let parcel =
                if full || stacks.outbox_owner != owner { stacks.take_outbox() } else { None };
            stacks.outbox_owner = owner;
            stacks.outbox.push(freed);
            parcel
        });
        sent.ok_or(freed)
    }

    /// Adds free blocks that nobody else knows of, as far as there is room for them; says how many. Only the owner's thread
    /// may call this.
    pub(super) fn fill<'a>(
        &self,
        class: Class,
        blocks: impl ExactSizeIterator<Item = (u64, &'a BlockWord)>,
        most: Bounds,
    ) -> usize {
        let word_in_cache = self.live.with(Kind::Cached);
        let bytes = class.block_bytes();
        let filled = self.with(|stacks| {
            let kept = stacks.granted_bytes + stacks.large_bytes();
            let stack = &mut stacks.stacks[class.index()];
            let (used, slots) = (stack.used, stack.slots.len());
            let more = (most.bytes.saturating_sub(kept) / bytes) as usize;
            let room = most.blocks.saturating_sub(used).min(slots - used + more);
            let blocks = blocks.take(room);
            if blocks.len() > slots - used {
                stack.set_slots(used + blocks.len());
            }
            for (offset, word) in blocks {
                word.set(word_in_cache);
                stack.slots[stack.used] = Cached { offset, word, bytes };
                stack.used += 1;
            }
            let filled = stack.used - used;
            stacks.granted_bytes += bytes * (stack.slots.len() - slots) as u64;
            stacks.bound_large(most);
            filled
        });
        filled.unwrap_or(0)
    }

    /// Takes the older half of a class's blocks. Only the owner's thread may call this.
    pub(super) fn take_half(&self, class: Class) -> Vec<u64> {
        let half = self.with(|stacks| {
            let stack = &mut stacks.stacks[class.index()];
            stack.take_first(stack.used.div_ceil(2))
        });
        half.unwrap_or_default()
    }

    /// Takes everything, whoever the caller is, and does something more before the owner may come back. One reclaimer
    /// at a time: the caller holds the pool's list of caches.
    pub(super) fn take_all<T>(
        &self,
        before_thaw: impl FnOnce() -> T,
    ) -> (Vec<u64>, Option<Parcel>, T) {
        let take = |stacks: &mut Stacks| {
            let mut offsets = Vec::new();
            for stack in &mut stacks.stacks[..SHELVES] {
                offsets.extend(stack.take_first(stack.used));
                stack.set_slots(0);
            }
            (stacks.granted_bytes, stacks.large_most, stacks.large_room) = (0, 0, 0);
            (offsets, stacks.take_outbox(), before_thaw())
        };
        // SAFETY: the caller holds the pool's list of caches, so there is one reclaimer at a time; it is not inside `with`,
        // which runs nothing but what is in this file.
        unsafe { self.stacks.as_reclaimer(take) }
    }

    /// Takes blocks of their own, the largest first, whoever the caller is: they are few, and most of the bytes. As
    /// [`take_all`](Self::take_all), the caller holds the pool's list of caches.
    pub(super) fn take_some_large(&self, most: usize) -> Vec<u64> {
        let take = |stacks: &mut Stacks| {
            let mut offsets = Vec::with_capacity(most);
            for stack in stacks.stacks[CLASSES..SHELVES].iter_mut().rev() {
                let staying = stack.used.saturating_sub(most - offsets.len());
                for cached in &stack.slots[staying..stack.used] {
                    stacks.large_room += cached.bytes as i64;
                    offsets.push(cached.offset);
                }
                stack.used = staying;
            }
            offsets
        };
        // SAFETY: as in `take_all`.
        unsafe { self.stacks.as_reclaimer(take) }
    }

    /// Does something while the owner is kept out. As [`take_all`](Self::take_all), the caller holds the pool's list of
    /// caches.
    pub(super) fn while_frozen<T>(&self, run: impl FnOnce() -> T) -> T {
        // SAFETY: as in `take_all`.
        unsafe { self.stacks.as_reclaimer(|_| run()) }
    }
}

impl Cached {
    /// Makes the block a user's. `None`: another thread's free of it is under way.
    #[inline]
    fn hand_out(self, live: Word) -> Option<u64> {
        // SAFETY: a slot that is used has a block's word, which is in a header and lives as long as the pool; see `Stacks`.
        let word = unsafe { &*self.word };
        word.take_as_owner(live).then_some(self.offset)
    }
}

impl Stacks {
    #[inline]
    fn push(&mut self, block: Block<'_>, now: Word) -> bool {
        let Block { header, offset, block_bytes: bytes, word, .. } = block;
        word.free_as_owner(now, || {
            let stack = &mut self.stacks[header.shelf().index()];
            let room = self.large_room - (bytes as i64 & stack.counted);
            if room <= stack.counted {
                return false;
            }
            let Some(slot) = stack.slots.get_mut(stack.used) else { return false };
            self.large_room = room;
            stack.used += 1;
            *slot = Cached { offset, word, bytes };
            true
        })
    }

    fn has_room(&self, shelf: Shelf, bytes: u64) -> bool {
        let stack = &self.stacks[shelf.index()];
        let room = self.large_room - (bytes as i64 & stack.counted);
        stack.used < stack.slots.len() && room > stack.counted
    }

    /// A block of a bin or the next that is large enough.
    fn pop_fitting(&mut self, block_bytes: u64) -> Option<Cached> {
        let bin = Shelf::of_own(block_bytes).index();
        let stack = &mut self.stacks[bin];
        let blocks = stack.blocks();
        let last = blocks.len().saturating_sub(LOOKED_AT)..blocks.len();
        let fitting = last.filter(|index| blocks[*index].bytes >= block_bytes);
        if let Some(best) = fitting.min_by_key(|index| blocks[*index].bytes) {
            return Some(stack.swap_remove(best));
        }
        let next = self.stacks.get_mut(bin + 1)?;
        let last = next.used.checked_sub(1)?;
        Some(next.swap_remove(last))
    }

    /// What blocks of their own have.
    fn large_bytes(&self) -> u64 {
        (self.large_most - self.large_room) as u64
    }

    /// Says anew what blocks of their own may have.
    fn bound_large(&mut self, most: Bounds) {
        let large_bytes = self.large_bytes();
        // A quarter is left to blocks of slabs: they are many, and small. Nobody has so many bytes that a sign has no place.
        let most_bytes = (most.bytes - most.bytes / 4).min(1 << 60);
        self.large_most = most_bytes as i64 - self.granted_bytes as i64;
        self.large_room = self.large_most - large_bytes as i64;
    }

    /// Lets a shelf keep more blocks of their own, as far as the bounds allow.
    #[cold]
    fn admit(&mut self, shelf: Shelf, bytes: u64, most: Bounds) -> bool {
        const FIRST_SLOTS: usize = 4;
        self.bound_large(most);
        let stack = &mut self.stacks[shelf.index()];
        if shelf == Shelf::NONE || bytes as i64 > self.large_room {
            return false;
        }
        if stack.used == stack.slots.len() {
            stack.set_slots((2 * stack.used).max(FIRST_SLOTS).min(most.blocks));
        }
        stack.used < stack.slots.len()
    }

    /// Lets a class keep more blocks: twice as many as it has, as far as the bounds allow.
    #[cold]
    fn grant(&mut self, class: Class, most: Bounds) -> bool {
        const FIRST_GRANT: usize = 8;
        let used = self.stacks[class.index()].used;
        let slots = (2 * used).max(FIRST_GRANT).min(most.blocks);
        if slots <= used {
            return false;
        }
        let large_bytes = self.large_bytes();
        let more = |slots: usize| class.block_bytes() * (slots - used) as u64;
        if self.granted_bytes + large_bytes + more(slots) > most.bytes {
            // What others were granted and do not use they may ask for again.
            self.stacks[..CLASSES].iter_mut().for_each(|stack| stack.set_slots(0));
            self.count_granted();
        }
        let room = most.bytes.saturating_sub(self.granted_bytes + large_bytes);
        let slots = slots.min(used + (room / class.block_bytes()) as usize);
        self.stacks[class.index()].set_slots(slots);
        self.count_granted();
        self.bound_large(most);
        slots > used
    }

    fn count_granted(&mut self) {
        let bytes =
            |(class, stack): (u8, &Stack)| Class(class).block_bytes() * stack.slots.len() as u64;
        self.granted_bytes = (0..).zip(&self.stacks[..CLASSES]).map(bytes).sum();
    }

    fn take_outbox(&mut self) -> Option<Parcel> {
        let blocks = mem::replace(&mut self.outbox, Vec::with_capacity(OUTBOX_BLOCKS));
        (!blocks.is_empty()).then_some(Parcel { owner: self.outbox_owner, blocks })
    }
}

impl Block<'_> {
    #[inline]
    pub(super) fn entry(&self) -> Entry {
        Entry { offset: self.offset, header: self.header.id, index: self.index as u32 }
    }
}

/// Blocks on their way to the cache that owns them.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) owner: Tag,
    pub(super) blocks: Vec<RemoteFree>,
}

/// Blocks that are sent to their owner at a time.
const OUTBOX_BLOCKS: usize = 64;

/// What a call of a thread used lately. The pointers are of the pool with that number. Nothing, if all is zeros.
struct Last {
    pool: Cell<u64>,
    stream: Cell<Stream>,
    epoch: Cell<u64>,
    cache: Cell<*const ThreadCache>,
    counters: Cell<*const Counters>,
}

/// Streams that a thread may use in turn without looking its caches up: two to the power of this.
const REMEMBERED_BITS: u32 = 3;
const REMEMBERED: usize = 1 << REMEMBERED_BITS;

/// What a thread used lately, by [place](place_of).
type Lately = [Last; REMEMBERED];
const _: () = assert!(size_of::<Lately>() <= thread_memory::BYTES);
const _: () = assert!(align_of::<Lately>() <= thread_memory::ALIGN);

/// What this thread used lately.
#[inline(always)]
fn with_lately<T>(run: impl FnOnce(&Lately) -> T) -> T {
    // SAFETY: memory of this thread's own, large enough and aligned, that nothing else uses. It begins as zeros, which are numbers and
    // null pointers, and the reference does not leave the thread.
    run(unsafe { &*thread_memory::address().cast::<Lately>() })
}

/// Where a stream is remembered. Handles are addresses of something, or small numbers.
#[inline]
fn place_of(stream: Stream) -> usize {
    // Of 32 bits: such a factor is part of an instruction.
    const GOLDEN: u32 = 0x9e37_79b9;
    ((stream.0 as u32).wrapping_mul(GOLDEN) >> (u32::BITS - REMEMBERED_BITS)) as usize
}

/// Runs something with this thread's cache for a stream of a pool, if it was used lately and the stream's handle has kept
/// its meaning.
#[inline]
pub(super) fn with_last<T>(
    pool: &impl HoldsCaches,
    stream: Stream,
    epoch: u64,
    run: impl FnOnce(&ThreadCache, Counting<'_>) -> Option<T>,
) -> Option<T> {
    with_lately(|lately| {
        // Looked at where it is: a copy would want more registers than there are.
        let last = &lately[place_of(stream)];
        let is_this = last.stream.get() == stream
            && last.pool.get() == pool.number()
            && last.epoch.get() == epoch;
        if !is_this {
            return None;
        }
        // SAFETY: numbers are never another pool's: this one is or was that of the pool that `pool` borrows, so `set_last` was called with
        // a cache and counters that this pool holds, and keeps until it is dropped.
        let (cache, counters) = unsafe { (&*last.cache.get(), last.counters.get().as_ref()) };
        run(cache, Counting(counters))
    })
}

/// What `with_last` is to use from now on in this thread, while the pool is known by this number.
pub(super) fn set_last(
    pool: &impl HoldsCaches,
    number: u64,
    stream: Stream,
    epoch: u64,
    cache: &Arc<ThreadCache>,
    counters: Option<&Arc<Counters>>,
) {
    assert!(pool.holds(cache, counters), "a pool's caches are its own");
    let (cache, counters) = (Arc::as_ptr(cache), counters.map_or(ptr::null(), Arc::as_ptr));
    with_lately(|lately| {
        let last = &lately[place_of(stream)];
        last.pool.set(number);
        last.stream.set(stream);
        last.epoch.set(epoch);
        last.cache.set(cache);
        last.counters.set(counters);
    });
}

/// This thread has no caches any more.
pub(super) fn forget_last() {
    // No pool has this number.
    with_lately(|lately| lately.iter().for_each(|last| last.pool.set(0)));
}

/// A pool: it has a number that no other ever has, and keeps every cache and counter it holds until it is dropped.
pub(super) trait HoldsCaches {
    fn number(&self) -> u64;
    fn holds(&self, cache: &Arc<ThreadCache>, counters: Option<&Arc<Counters>>) -> bool;
}

/// How much a cache may keep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) blocks: usize,
    pub(super) bytes: u64,
}
