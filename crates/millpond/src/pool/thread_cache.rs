//! What one thread keeps for one stream: freed blocks, ready to be handed out again.
//!
//! The owner's thread takes and puts without a lock and without an atomic read-modify-write. Anybody else may take the
//! cache away from it for a moment, to reclaim what an idle thread holds:
//!
//! ```text
//!   owner                               reclaimer (one at a time, under the pool's lock)
//!   busy = true        (plain store)    frozen = true
//!   ── compiler fence ──                membarrier: every thread passes a full fence
//!   frozen?  yes: busy = false, leave   wait until busy = false; the cache is ours
//!   take or put                         take everything
//!   busy = false       (release)        frozen = false        (release)
//! ```
//!
//! Either the owner's `busy` is visible to the reclaimer after the barrier, or the owner's look at `frozen` comes after
//! it and sees it.

use std::cell::{Cell, UnsafeCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering, compiler_fence};

use parking_lot::Mutex;

use super::headers::{HeaderId, Kind, Tag, Word};
use super::membarrier;
use super::points::StreamSlot;
use super::size_class::{CLASSES, Class};
use crate::driver::Stream;

/// One free block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) offset: u64,
    pub(super) header: HeaderId,
    pub(super) index: u32,
}

/// A free block in a cache, with its word at hand.
#[derive(Clone, Copy, Debug)]
struct Cached {
    entry: Entry,
    word: *const AtomicU32,
}

/// Blocks of one size that are not of a class.
#[derive(Debug, Default)]
struct QuickList {
    bytes: u64,
    blocks: Vec<Cached>,
}

const QUICK_LISTS: usize = 64;

/// The largest block that a cache keeps.
pub(super) const LARGEST_CACHED_BYTES: u64 = 1 << 20;

/// `bytes = Σ classes + Σ quick`. What is in the outbox belongs to others.
#[derive(Debug)]
struct Stacks {
    classes: [Vec<Cached>; CLASSES],
    quick: Vec<QuickList>,
    bytes: u64,
    /// Blocks of one other cache that this thread has freed.
    outbox: Vec<RemoteFree>,
    outbox_owner: Tag,
}

/// A block that another thread has freed, and on which stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct RemoteFree {
    pub(super) entry: Entry,
    pub(super) stream: StreamSlot,
}

/// What one thread has allocated and freed. Written by that thread alone, read by all.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) allocated_bytes: AtomicU64,
    pub(super) freed_bytes: AtomicU64,
    pub(super) allocations: AtomicU64,
    pub(super) frees: AtomicU64,
    pub(super) misses: AtomicU64,
    peak_live_bytes: AtomicI64,
}

/// Adds to a counter that has one writer: a load and a store, no read-modify-write.
#[inline]
fn add(counter: &AtomicU64, by: u64) -> u64 {
    let sum = counter.load(Ordering::Relaxed).wrapping_add(by);
    counter.store(sum, Ordering::Relaxed);
    sum
}

impl Counters {
    // Relaxed: counts order nothing.

    #[inline]
    pub(super) fn allocated(&self, bytes: usize) {
        add(&self.allocations, 1);
        let allocated = add(&self.allocated_bytes, bytes as u64);
        let live = allocated.wrapping_sub(self.freed_bytes.load(Ordering::Relaxed)) as i64;
        if live > self.peak_live_bytes.load(Ordering::Relaxed) {
            self.peak_live_bytes.store(live, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn freed(&self, bytes: usize) {
        add(&self.frees, 1);
        add(&self.freed_bytes, bytes as u64);
    }

    /// An allocation that the thread's cache could not serve.
    pub(super) fn missed(&self) {
        add(&self.misses, 1);
    }

    /// Lets the peak begin anew. A peak that its thread reaches at this moment may stay.
    pub(super) fn reset_peak(&self) {
        self.peak_live_bytes.store(self.live_bytes(), Ordering::Relaxed);
    }

    /// Blocks allocated here less blocks freed here, wherever they were allocated.
    pub(super) fn live_blocks(&self) -> i64 {
        let frees = self.frees.load(Ordering::Relaxed);
        self.allocations.load(Ordering::Relaxed).wrapping_sub(frees) as i64
    }

    /// Bytes allocated here less bytes freed here, wherever they were allocated.
    pub(super) fn live_bytes(&self) -> i64 {
        let freed = self.freed_bytes.load(Ordering::Relaxed);
        self.allocated_bytes.load(Ordering::Relaxed).wrapping_sub(freed) as i64
    }

    pub(super) fn peak_live_bytes(&self) -> i64 {
        self.peak_live_bytes.load(Ordering::Relaxed)
    }
}

/// The blocks that one thread keeps for one stream.
#[derive(Debug)]
pub(super) struct ThreadCache {
    pub(super) tag: Tag,
    pub(super) stream: StreamSlot,
    /// Blocks of this cache that others have freed.
    pub(super) inbox: Mutex<Vec<RemoteFree>>,
    /// Its thread has gone: nobody will look into the inbox.
    pub(super) orphaned: AtomicBool,
    busy: AtomicBool,
    frozen: AtomicBool,
    stacks: UnsafeCell<Stacks>,
}

// SAFETY: `stacks` is touched only by the owner's thread while `busy` is set and `frozen` was not, or by a reclaimer
// that has set `frozen`, passed the barrier and seen `busy` clear; see the module's text. The raw pointers in it point
// into headers, which live as long as the pool, and the pool keeps its caches no longer than that.
unsafe impl Sync for ThreadCache {}
// SAFETY: as for `Sync`; nothing in a cache belongs to a particular thread but the right to call the owner's methods.
unsafe impl Send for ThreadCache {}

impl ThreadCache {
    pub(super) fn new(tag: Tag, stream: StreamSlot) -> ThreadCache {
        ThreadCache {
            tag,
            stream,
            inbox: Mutex::default(),
            orphaned: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            frozen: AtomicBool::new(false),
            stacks: UnsafeCell::new(Stacks {
                classes: std::array::from_fn(|_| Vec::new()),
                quick: (0..QUICK_LISTS).map(|_| QuickList::default()).collect(),
                bytes: 0,
                outbox: Vec::new(),
                outbox_owner: Tag::NONE,
            }),
        }
    }

    /// Runs something on the stacks, unless a reclaimer has them. Only the owner's thread may call this.
    #[inline]
    fn with<T>(&self, run: impl FnOnce(&mut Stacks) -> T) -> Option<T> {
        self.busy.store(true, Ordering::Relaxed);
        // The store comes first for a reclaimer's membarrier to find it; see the module's text.
        compiler_fence(Ordering::SeqCst);
        // Acquire: what a reclaimer did before it let go is done.
        if self.frozen.load(Ordering::Acquire) {
            self.busy.store(false, Ordering::Release);
            return None;
        }
        // SAFETY: we are the owner's thread, `busy` is set and nobody had frozen the cache, so a reclaimer that
        // freezes it now waits until `busy` is clear. `run` cannot come back here: it has the stacks only.
        let answer = run(unsafe { &mut *self.stacks.get() });
        // Release: a reclaimer that sees this sees what `run` did.
        self.busy.store(false, Ordering::Release);
        Some(answer)
    }

    /// Takes a block of a class and makes it live. Only the owner's thread may call this.
    #[inline]
    pub(super) fn take_small(&self, class: Class, bytes: usize) -> Option<u64> {
        let (tag, live) = (self.tag, Word::live(bytes, self.tag));
        self.with(|stacks| {
            loop {
                let cached = stacks.classes[class.index()].pop()?;
                stacks.bytes -= class.block_bytes();
                if cached.become_live(tag, live) {
                    return Some(cached.entry.offset);
                }
            }
        })?
    }

    /// Takes a block of exactly `block_bytes` and makes it live. Only the owner's thread may call this.
    #[inline]
    pub(super) fn take_large(&self, block_bytes: u64) -> Option<Entry> {
        let (tag, live) = (self.tag, Word::live(1, self.tag));
        self.with(|stacks| {
            let list = &mut stacks.quick[quick_list_of(block_bytes)];
            if list.bytes != block_bytes {
                return None;
            }
            loop {
                let cached = list.blocks.pop()?;
                stacks.bytes -= block_bytes;
                if cached.become_live(tag, live) {
                    return Some(cached.entry);
                }
            }
        })?
    }

    /// Puts a block of a class back that the caller has seen to be live, ours and of the right size. `false`: the
    /// cache is full, or frozen, and the block is live as before. Only the owner's thread may call this.
    #[inline]
    pub(super) fn put_small(
        &self,
        class: Class,
        entry: Entry,
        word: &AtomicU32,
        now: Word,
        most: Bounds,
    ) -> bool {
        let put = self.with(|stacks| {
            let stack = &mut stacks.classes[class.index()];
            if stack.len() >= most.blocks || stacks.bytes + class.block_bytes() > most.bytes {
                return false;
            }
            stacks.bytes += class.block_bytes();
            stack.push(Cached::new(entry, word, now));
            true
        });
        put == Some(true)
    }

    /// As [`put_small`](Self::put_small), for a block of its own. Says whether it was put, and which block of another
    /// size has to go, one at a time, until its list can serve this size.
    #[inline]
    pub(super) fn put_large(
        &self,
        block_bytes: u64,
        entry: Entry,
        word: &AtomicU32,
        now: Word,
        most: Bounds,
    ) -> (bool, Option<Entry>) {
        let put = self.with(|stacks| {
            let list = &mut stacks.quick[quick_list_of(block_bytes)];
            if list.bytes != block_bytes {
                if let Some(other) = list.blocks.pop() {
                    stacks.bytes -= list.bytes;
                    return (false, Some(other.entry));
                }
                list.bytes = block_bytes;
            }
            let fits = list.blocks.len() < most.blocks && stacks.bytes + block_bytes <= most.bytes;
            if fits {
                stacks.bytes += block_bytes;
                list.blocks.push(Cached::new(entry, word, now));
            }
            (fits, None)
        });
        put.unwrap_or_default()
    }

    /// Leaves a block that another cache owns in the outbox. Returns what has to be sent now. `Err`: frozen.
    pub(super) fn send(&self, owner: Tag, freed: RemoteFree) -> Result<Option<Parcel>, RemoteFree> {
        let sent = self.with(|stacks| {
            let full = stacks.outbox.len() >= OUTBOX_BLOCKS;
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
    pub(super) fn fill(
        &self,
        class: Class,
        entries: &[(Entry, &AtomicU32)],
        most: Bounds,
    ) -> usize {
        let tag = self.tag;
        let filled = self.with(|stacks| {
            let stack = &mut stacks.classes[class.index()];
            let room_bytes = most.bytes.saturating_sub(stacks.bytes) / class.block_bytes();
            let room = most.blocks.saturating_sub(stack.len()).min(room_bytes as usize);
            let filled = &entries[..room.min(entries.len())];
            for (entry, word) in filled {
                word.store(Word::live(1, tag).with(Kind::Cached).0, Ordering::Relaxed);
                stack.push(Cached { entry: *entry, word: *word });
            }
            stacks.bytes += class.block_bytes() * filled.len() as u64;
            filled.len()
        });
        filled.unwrap_or(0)
    }

    /// Takes the older half of a class's blocks. Only the owner's thread may call this.
    pub(super) fn take_half(&self, class: Class) -> Vec<Entry> {
        let half = self.with(|stacks| {
            let stack = &mut stacks.classes[class.index()];
            let count = stack.len().div_ceil(2);
            stacks.bytes -= class.block_bytes() * count as u64;
            stack.drain(..count).map(|cached| cached.entry).collect()
        });
        half.unwrap_or_default()
    }

    /// Takes everything, whoever the caller is, and does something more before the owner may come back. One reclaimer
    /// at a time: the caller holds the pool's list of caches.
    pub(super) fn take_all<T>(
        &self,
        before_thaw: impl FnOnce() -> T,
    ) -> (Vec<Entry>, Option<Parcel>, T) {
        self.frozen.store(true, Ordering::Relaxed);
        membarrier::all_threads();
        while self.busy.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        // SAFETY: `frozen` is set, the barrier has passed and `busy` is clear: the owner stays away until `frozen`
        // is cleared, and there is no other reclaimer.
        let stacks = unsafe { &mut *self.stacks.get() };
        let mut entries: Vec<Entry> = Vec::new();
        for stack in &mut stacks.classes {
            entries.extend(stack.drain(..).map(|cached| cached.entry));
        }
        for list in &mut stacks.quick {
            entries.extend(list.blocks.drain(..).map(|cached| cached.entry));
        }
        stacks.bytes = 0;
        let parcel = stacks.take_outbox();
        let more = before_thaw();
        self.frozen.store(false, Ordering::Release);
        (entries, parcel, more)
    }
}

impl Stacks {
    fn take_outbox(&mut self) -> Option<Parcel> {
        let blocks = std::mem::take(&mut self.outbox);
        (!blocks.is_empty()).then_some(Parcel { owner: self.outbox_owner, blocks })
    }
}

/// Blocks on their way to the cache that owns them.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) owner: Tag,
    pub(super) blocks: Vec<RemoteFree>,
}

/// Blocks that are sent to their owner at a time.
const OUTBOX_BLOCKS: usize = 32;

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
        cache: std::ptr::null(),
        counters: std::ptr::null(),
    };
}

/// Streams that a thread may use in turn without looking its caches up.
const REMEMBERED: usize = 8;

thread_local! {
    static LAST: [Cell<Last>; REMEMBERED] = const { [const { Cell::new(Last::NOTHING) }; REMEMBERED] };
}

/// Where a stream is remembered. Handles are addresses of something, or small numbers.
#[inline]
fn place_of(stream: Stream) -> usize {
    (stream.0 >> 4 ^ stream.0 >> 9 ^ stream.0) as usize % REMEMBERED
}

/// Runs something with this thread's cache for a stream of a pool, if it was used lately and the stream's handle has kept
/// its meaning.
#[inline]
pub(super) fn with_last<T>(
    pool: &impl HoldsCaches,
    stream: Stream,
    epoch: u64,
    run: impl FnOnce(&ThreadCache, &Counters) -> Option<T>,
) -> Option<T> {
    let last = LAST.with(|last| last[place_of(stream)].get());
    if last.pool != pool.number() || last.stream != stream || last.epoch != epoch {
        return None;
    }
    // SAFETY: the number is of the pool that `pool` borrows and was never another's, so `set_last` was called with a
    // cache and counters that this pool holds, and keeps until it is dropped.
    let (cache, counters) = unsafe { (&*last.cache, &*last.counters) };
    run(cache, counters)
}

/// What `with_last` is to use from now on in this thread.
pub(super) fn set_last(
    pool: &impl HoldsCaches,
    stream: Stream,
    epoch: u64,
    cache: &Arc<ThreadCache>,
    counters: &Arc<Counters>,
) {
    assert!(pool.holds(cache, counters), "a pool's caches are its own");
    let (cache, counters) = (Arc::as_ptr(cache), Arc::as_ptr(counters));
    let used = Last { pool: pool.number(), stream, epoch, cache, counters };
    LAST.with(|last| last[place_of(stream)].set(used));
}

/// This thread has no caches any more.
pub(super) fn forget_last() {
    LAST.with(|last| last.iter().for_each(|place| place.set(Last::NOTHING)));
}

/// A pool: it has a number that no other ever has, and keeps every cache and counter it holds until it is dropped.
pub(super) trait HoldsCaches {
    fn number(&self) -> u64;
    fn holds(&self, cache: &Arc<ThreadCache>, counters: &Arc<Counters>) -> bool;
}

/// How much a cache may keep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) blocks: usize,
    pub(super) bytes: u64,
}

impl Cached {
    #[inline]
    fn new(entry: Entry, word: &AtomicU32, now: Word) -> Cached {
        word.store(now.with(Kind::Cached).0, Ordering::Relaxed);
        Cached { entry, word }
    }

    /// Makes the block live, unless another thread has freed it too, meanwhile: then it comes back by the inbox.
    #[inline]
    fn become_live(&self, tag: Tag, live: Word) -> bool {
        // SAFETY: words are in headers, which live as long as the pool; see `Sync`.
        let word = unsafe { &*self.word };
        let now = Word(word.load(Ordering::Relaxed));
        if !now.is_cached_by(tag) {
            return false;
        }
        word.store(live.0, Ordering::Relaxed);
        true
    }
}

#[inline]
fn quick_list_of(block_bytes: u64) -> usize {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    ((block_bytes / 512).wrapping_mul(GOLDEN) >> (64 - QUICK_LISTS.trailing_zeros())) as usize
}
