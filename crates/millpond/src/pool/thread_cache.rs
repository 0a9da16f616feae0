//! What one thread keeps for one stream: freed blocks, ready to be handed out again.
//!
//! The owner's thread takes and puts without a lock and without an atomic read-modify-write. Anybody else may take the
//! cache away from it for a moment, to reclaim what an idle thread holds; `handshake` is how.

use std::cell::Cell;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::bins::Bin;
use super::counters::{Counters, Counting};
use super::handshake::Handshake;
use super::headers::{Block, BlockWord, Header, HeaderId, Kind, Tag, Word};
use super::inbox::Inbox;
use super::points::StreamSlot;
use super::size_class::{CLASSES, Class, LARGEST_BYTES};
use crate::driver::Stream;

/// One free block of a slab, or of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) offset: u64,
    pub(super) header: HeaderId,
    pub(super) index: u32,
}

/// A free block of a slab in a cache, with its word at hand.
#[derive(Clone, Copy, Debug)]
struct Cached {
    offset: u64,
    word: *const BlockWord,
}

/// A free block of its own in a cache, with its header at hand.
#[derive(Clone, Copy, Debug)]
struct CachedLarge {
    bytes: u64,
    offset: u64,
    header: *const Header,
}

/// Free blocks of one class: the first `used` slots. As many as there are slots are kept without asking whether the cache may
/// keep so much.
#[derive(Debug, Default)]
struct Stack {
    slots: Vec<Cached>,
    used: usize,
}

impl Stack {
    const EMPTY_SLOT: Cached = Cached { offset: 0, word: ptr::null() };

    #[inline]
    fn pop(&mut self) -> Option<Cached> {
        let last = self.used.wrapping_sub(1);
        let cached = *self.slots.get(last)?;
        self.used = last;
        Some(cached)
    }

    /// Whether there was a slot, and something for it.
    #[inline]
    fn push(&mut self, cached: impl FnOnce() -> Option<Cached>) -> bool {
        let Some(slot) = self.slots.get_mut(self.used) else { return false };
        let Some(cached) = cached() else { return false };
        *slot = cached;
        self.used += 1;
        true
    }

    fn set_slots(&mut self, slots: usize) {
        self.slots.resize(slots.max(self.used), Self::EMPTY_SLOT);
    }

    /// Takes the oldest blocks.
    fn take_first(&mut self, count: usize) -> impl Iterator<Item = u64> + '_ {
        self.used -= count;
        let slots = self.slots.len();
        // The slots that are left over come after those that are used.
        self.slots.extend(std::iter::repeat_n(Self::EMPTY_SLOT, count));
        debug_assert!(self.slots.len() == slots + count);
        self.slots.drain(..count).map(|cached| cached.offset)
    }
}

/// The largest block that a cache keeps.
pub(super) const LARGEST_CACHED_BYTES: u64 = 1 << 20;

const FIRST_BIN: usize = Bin::of(LARGEST_BYTES as u64).index();
const LARGE_BINS: usize = Bin::of(LARGEST_CACHED_BYTES).index() - FIRST_BIN + 1;

/// Blocks of a bin that are looked at for one that fits.
const LOOKED_AT: usize = 4;

/// `granted_bytes = Σ slots × size`, over classes; `large_bytes = Σ large`; the cache's bound is on their
/// sum. What is in the outbox belongs to others.
#[derive(Debug)]
struct Stacks {
    classes: [Stack; CLASSES],
    granted_bytes: u64,
    /// Blocks of their own, by bin: those of one bin differ in size by at most 3 %.
    large: Box<[Vec<CachedLarge>]>,
    large_bytes: u64,
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
#[repr(align(128))]
pub(super) struct ThreadCache {
    pub(super) tag: Tag,
    /// Changes only while the cache is nobody's and empty.
    stream: AtomicU32,
    stacks: Handshake<Stacks>,
    /// Blocks of this cache that others have freed.
    pub(super) inbox: Inbox<RemoteFree>,
}

impl ThreadCache {
    pub(super) fn new(tag: Tag, stream: StreamSlot) -> ThreadCache {
        ThreadCache {
            tag,
            stream: AtomicU32::new(stream.0),
            stacks: Handshake::new(Stacks {
                classes: std::array::from_fn(|_| Stack::default()),
                granted_bytes: 0,
                large: (0..LARGE_BINS).map(|_| Vec::new()).collect(),
                large_bytes: 0,
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

    /// Takes a block of a class and makes it live. One that another thread is freeing, too, at this moment is left to come back by
    /// the inbox, and none is taken. Only the owner's thread may call this.
    #[inline]
    pub(super) fn take_small(&self, class: Class, bytes: usize) -> Option<u64> {
        let (tag, live) = (self.tag, Word::live(bytes, self.tag));
        self.with(|stacks| {
            let cached = stacks.classes[class.index()].pop()?;
            // SAFETY: a slot that is used has a block's word, which is in a header and lives as long as the pool; see
            // `Stacks`.
            let word = unsafe { &*cached.word };
            word.take_as_owner(tag, live).then_some(cached.offset)
        })?
    }

    /// As [`take_small`](Self::take_small), for a block of its own of at least `block_bytes`, and little more. Only the owner's thread may call this.
    #[inline]
    pub(super) fn take_large(&self, block_bytes: u64, requested: usize) -> Option<u64> {
        let (tag, live) = (self.tag, Word::live(Word::OWN_BLOCK, self.tag));
        self.with(|stacks| {
            let CachedLarge { bytes, offset, header } = stacks.pop_large(block_bytes)?;
            stacks.large_bytes -= bytes;
            // SAFETY: headers live as long as the pool; see `Stacks`.
            let header = unsafe { &*header };
            if !header.own_word().take_as_owner(tag, live) {
                return None;
            }
            header.set_requested(requested);
            Some(offset)
        })?
    }

    /// Puts a block of a slab back, if its word is `now`: this cache's, and live or on its way here. `false`: it is not, or
    /// the cache is full or frozen; nothing has changed. Only the owner's thread may call this.
    #[inline]
    pub(super) fn put_small(&self, block: Block<'_>, class: Class, now: Word) -> bool {
        let put = self.with(|stacks| stacks.push_small(block, class, now));
        put == Some(true)
    }

    /// As [`put_small`](Self::put_small), and makes room within bounds if there is none.
    pub(super) fn put_small_within(
        &self,
        block: Block<'_>,
        class: Class,
        now: Word,
        most: Bounds,
    ) -> bool {
        let put = self.with(|stacks| {
            stacks.push_small(block, class, now)
                || stacks.grant(class, most) && stacks.push_small(block, class, now)
        });
        put == Some(true)
    }

    /// As [`put_small_within`](Self::put_small_within), for a block of its own.
    #[inline]
    pub(super) fn put_large(&self, block: Block<'_>, now: Word, most: Bounds) -> bool {
        let bytes = block.header.bytes();
        if bytes > LARGEST_CACHED_BYTES {
            return false;
        }
        let bin = block.header.bin().wrapping_sub(FIRST_BIN);
        let put = self.with(|stacks| {
            let Some(list) = stacks.large.get_mut(bin) else { return false };
            let kept = stacks.granted_bytes + stacks.large_bytes;
            // A quarter is left to blocks of slabs: they are many, and small.
            if list.len() >= most.blocks
                || kept + bytes > most.bytes - most.bytes / 4
                || !block.word.free_as_owner(now)
            {
                return false;
            }
            list.push(CachedLarge { bytes, offset: block.offset, header: block.header });
            stacks.large_bytes += bytes;
            true
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
        blocks: impl Iterator<Item = (u64, &'a BlockWord)>,
        most: Bounds,
    ) -> usize {
        let cached = Word::live(1, self.tag).with(Kind::Cached);
        let filled = self.with(|stacks| {
            let kept = stacks.granted_bytes + stacks.large_bytes;
            let stack = &mut stacks.classes[class.index()];
            let (used, slots) = (stack.used, stack.slots.len());
            let more = (most.bytes.saturating_sub(kept) / class.block_bytes()) as usize;
            let room = most.blocks.saturating_sub(used).min(slots - used + more);
            for (offset, word) in blocks.take(room) {
                if stack.used == stack.slots.len() {
                    stack.slots.push(Stack::EMPTY_SLOT);
                }
                word.set(cached);
                stack.push(|| Some(Cached { offset, word }));
            }
            stacks.granted_bytes += class.block_bytes() * (stack.slots.len() - slots) as u64;
            stack.used - used
        });
        filled.unwrap_or(0)
    }

    /// Takes the older half of a class's blocks. Only the owner's thread may call this.
    pub(super) fn take_half(&self, class: Class) -> Vec<u64> {
        let half = self.with(|stacks| {
            let stack = &mut stacks.classes[class.index()];
            stack.take_first(stack.used.div_ceil(2)).collect()
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
            for stack in &mut stacks.classes {
                offsets.extend(stack.slots.drain(..).take(stack.used).map(|cached| cached.offset));
                stack.used = 0;
            }
            for list in &mut stacks.large {
                offsets.extend(list.drain(..).map(|cached| cached.offset));
            }
            (stacks.granted_bytes, stacks.large_bytes) = (0, 0);
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
            for list in stacks.large.iter_mut().rev() {
                let staying = list.len().saturating_sub(most - offsets.len());
                for cached in list.drain(staying..) {
                    stacks.large_bytes -= cached.bytes;
                    offsets.push(cached.offset);
                }
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

impl Stacks {
    #[inline]
    fn push_small(&mut self, block: Block<'_>, class: Class, now: Word) -> bool {
        let word = block.word;
        let cached = || word.free_as_owner(now).then_some(Cached { offset: block.offset, word });
        self.classes[class.index()].push(cached)
    }

    /// A block of at least `block_bytes` from its bin, an exact one if there is, or else from the next bin.
    #[inline]
    fn pop_large(&mut self, block_bytes: u64) -> Option<CachedLarge> {
        let bin = Bin::of(block_bytes).index().wrapping_sub(FIRST_BIN);
        let list = self.large.get_mut(bin)?;
        if let Some(last) = list.last()
            && last.bytes == block_bytes
        {
            return list.pop();
        }
        self.pop_fitting(bin, block_bytes)
    }

    /// A block of a bin or the next that is large enough.
    #[inline(never)]
    fn pop_fitting(&mut self, bin: usize, block_bytes: u64) -> Option<CachedLarge> {
        let list = self.large.get_mut(bin)?;
        let first = list.len().saturating_sub(LOOKED_AT);
        let fitting = (first..list.len()).filter(|index| list[*index].bytes >= block_bytes);
        if let Some(best) = fitting.min_by_key(|index| list[*index].bytes) {
            return Some(list.swap_remove(best));
        }
        self.large.get_mut(bin + 1)?.pop()
    }

    /// Lets a class keep more blocks: twice as many as it has, as far as the bounds allow.
    #[cold]
    fn grant(&mut self, class: Class, most: Bounds) -> bool {
        const FIRST_GRANT: usize = 8;
        let used = self.classes[class.index()].used;
        let slots = (2 * used).max(FIRST_GRANT).min(most.blocks);
        if slots <= used {
            return false;
        }
        let more = |slots: usize| class.block_bytes() * (slots - used) as u64;
        if self.granted_bytes + self.large_bytes + more(slots) > most.bytes {
            // What others were granted and do not use they may ask for again.
            self.classes.iter_mut().for_each(|stack| stack.set_slots(0));
            self.count_granted();
        }
        let room = most.bytes.saturating_sub(self.granted_bytes + self.large_bytes);
        let slots = slots.min(used + (room / class.block_bytes()) as usize);
        self.classes[class.index()].set_slots(slots);
        self.count_granted();
        slots > used
    }

    fn count_granted(&mut self) {
        let bytes =
            |(class, stack): (u8, &Stack)| Class(class).block_bytes() * stack.slots.len() as u64;
        self.granted_bytes = (0..).zip(&self.classes).map(bytes).sum();
    }

    fn take_outbox(&mut self) -> Option<Parcel> {
        let blocks = std::mem::replace(&mut self.outbox, Vec::with_capacity(OUTBOX_BLOCKS));
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

/// What a call of a thread used lately. The pointers are of the pool with that number.
#[derive(Clone, Copy)]
struct Last {
    pool: u64,
    stream: Stream,
    epoch: u64,
    cache: *const ThreadCache,
    counters: *const Counters,
}

impl Last {
    const NOTHING: Last = Last {
        pool: 0,
        stream: Stream::LEGACY,
        epoch: 0,
        cache: ptr::null(),
        counters: ptr::null(),
    };
}

/// Streams that a thread may use in turn without looking its caches up: two to the power of this.
const REMEMBERED_BITS: u32 = 3;
const REMEMBERED: usize = 1 << REMEMBERED_BITS;

thread_local! {
    static LAST: [Cell<Last>; REMEMBERED] = const { [const { Cell::new(Last::NOTHING) }; REMEMBERED] };
}

/// Where a stream is remembered. Handles are addresses of something, or small numbers.
#[inline]
fn place_of(stream: Stream) -> usize {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    (stream.0.wrapping_mul(GOLDEN) >> (64 - REMEMBERED_BITS)) as usize
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
    let last = LAST.with(|last| last[place_of(stream)].get());
    let differs = (last.pool ^ pool.number()) | (last.stream.0 ^ stream.0) | (last.epoch ^ epoch);
    if differs != 0 {
        return None;
    }
    // SAFETY: numbers are never another pool's: this one is or was that of the pool that `pool` borrows, so `set_last` was called with a
    // cache and counters that this pool holds, and keeps until it is dropped.
    let (cache, counters) = unsafe { (&*last.cache, last.counters.as_ref()) };
    run(cache, Counting(counters))
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
    let used = Last { pool: number, stream, epoch, cache, counters };
    LAST.with(|last| last[place_of(stream)].set(used));
}

/// This thread has no caches any more.
pub(super) fn forget_last() {
    LAST.with(|last| last.iter().for_each(|place| place.set(Last::NOTHING)));
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
