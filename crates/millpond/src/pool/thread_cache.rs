//! What one thread keeps for one stream: freed blocks, ready to be handed out again.
//!
//! The owner's thread takes and puts without a lock and without an atomic read-modify-write. Anybody else may take the
//! cache away from it for a moment, to reclaim what an idle thread holds; a handshake (`lock_free`) is how.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::blocks::Block;
use super::lock_free::{BlockWord, Kind, Tag, Word};
use super::lock_free::{Handshake, Inbox};
pub(super) use super::shelves::{Bounds, Parcel, Pending, RemoteFree};
use super::shelves::{Cached, Shelves};
use super::sizes::Shelf;
use super::statistics::Counters;
use super::streams::StreamSlot;
use super::tiers::Tiers;
use crate::driver::{DevicePtr, StreamWatcher};

/// The blocks that one thread keeps for one stream.
///
/// The words of the blocks on its shelves are in headers, which live as long as the pool, and the pool keeps its caches no longer
/// than that.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct ThreadCache {
    /// The word of a live block of this cache that was asked for whole.
    pub(super) live: Word,
    pub(super) tag: Tag,
    /// Whether blocks may be pending, since somebody else last looked: there are slots for them. Written by whoever has the shelves.
    may_pend: AtomicBool,
    /// The address of the block that a hit handed out last.
    last_address: AtomicU64,
    /// Where the owner's thread counts while it remembers this cache. The pool's.
    counters: AtomicPtr<Counters>,
    /// Where the pool's span begins: shelves hold addresses, and all else knows blocks by their offsets.
    base: u64,
    /// Changes only while the cache is nobody's and empty.
    stream: AtomicU32,
    shelves: Handshake<Shelves>,
    /// Blocks of this cache that others have freed.
    pub(super) inbox: Inbox<RemoteFree>,
}

impl ThreadCache {
    pub(super) fn new(tag: Tag, stream: StreamSlot, base: DevicePtr) -> ThreadCache {
        ThreadCache {
            shelves: Handshake::new(Shelves::new()),
            live: Word::live(0, tag),
            tag,
            stream: AtomicU32::new(stream.0),
            base: base.0,
            last_address: AtomicU64::new(0),
            counters: AtomicPtr::new(ptr::null_mut()),
            may_pend: AtomicBool::new(false),
            inbox: Inbox::new(),
        }
    }

    /// Takes the last block of a shelf and makes it live, if it fits closely enough and what the thread remembers still holds;
    /// `find` says which shelf, and knows that it does. The fast path. Only the owner's thread may call this.
    #[inline]
    pub(super) fn fast_take(
        &self,
        bytes: usize,
        find: impl FnOnce() -> Option<Shelf>,
    ) -> Option<DevicePtr> {
        let take = |shelves: &mut Shelves| self.pop(shelves, find()?, bytes);
        // SAFETY: we are the owner's thread, and `take` has the shelves only: it cannot come back here.
        unsafe { self.shelves.as_owner_if_known(take) }?
    }

    /// Whether an address is that of the block that was handed out last.
    #[inline]
    pub(super) fn is_last(&self, ptr: DevicePtr) -> bool {
        // Relaxed: written by the owner's thread, which is the caller.
        self.last_address.load(Ordering::Relaxed) == ptr.0
    }

    /// Puts the block at the [last](Self::is_last) address back on its shelf, if it is live and was asked for with so many bytes, and if what
    /// the thread remembers still holds. `false`: not so; nothing has changed. The fast path of what is freed as soon as it is no longer
    /// needed. Only the owner's thread may call this.
    #[inline]
    pub(super) fn fast_put_back(&self, bytes: usize) -> bool {
        let put = |shelves: &mut Shelves| {
            // Where it has not been forgotten, it is at the last address.
            // SAFETY: the pool is there as long as its caches are used; see `ThreadCache`.
            let block = unsafe { shelves.last_handed_out() };
            self.free_word(block, bytes, || true)?;
            // SAFETY: as its word has said.
            unsafe { shelves.put_back() };
            Some(())
        };
        // SAFETY: as in `fast_take`.
        unsafe { self.shelves.as_owner_if_known(put) }.flatten().is_some()
    }

    /// Puts a block back on its shelf, if it is this cache's, live, and was asked for with so many bytes, and if what the thread remembers
    /// still holds; `guess` says on which shelf such a block usually is, `find` which block it is, and both know that it does. `false`: not
    /// so, or the shelf is another or full; nothing has changed. The fast path. Only the owner's thread may call this.
    ///
    /// The guess is there so that the machine knows where the block goes long before it is found. Else all that the thread does next waits
    /// for that, since it might read what is written here.
    #[inline]
    pub(super) fn fast_put_on(
        &self,
        bytes: usize,
        guess: impl FnOnce() -> Shelf,
        find: impl FnOnce() -> Option<Cached>,
    ) -> bool {
        let put = |shelves: &mut Shelves| {
            let shelf = guess();
            let block = find().filter(|block| block.shelf() == shelf)?;
            self.free_word(block, bytes, || shelves.push_on(shelf, block))
        };
        // SAFETY: as in `fast_take`.
        unsafe { self.shelves.as_owner_if_known(put) }.flatten().is_some()
    }

    /// As [`fast_put_on`](Self::fast_put_on), whichever shelf it is.
    #[inline]
    pub(super) fn fast_put(&self, bytes: usize, find: impl FnOnce() -> Option<Cached>) -> bool {
        let put = |shelves: &mut Shelves| {
            let block = find()?;
            self.free_word(block, bytes, || shelves.push(block))
        };
        // SAFETY: as in `fast_take`.
        unsafe { self.shelves.as_owner_if_known(put) }.flatten().is_some()
    }

    /// Makes a user's block one of this cache, if it is live, was asked for with so many bytes, and the cache keeps it.
    #[inline]
    fn free_word(&self, block: Cached, bytes: usize, keep: impl FnOnce() -> bool) -> Option<()> {
        let slack = block.bytes().wrapping_sub(bytes as u64) as usize;
        if slack >= Word::MOST_SLACK {
            return None;
        }
        // SAFETY: the pool is there as long as its caches are used; see `ThreadCache`.
        let word = unsafe { block.word() };
        word.free_as_owner(self.live.with_slack(slack), keep).then_some(())
    }

    #[inline]
    fn pop(&self, shelves: &mut Shelves, shelf: Shelf, bytes: usize) -> Option<DevicePtr> {
        let (block, live) = shelves.pop(shelf, bytes, self.live)?;
        hand_out(block, live);
        self.last_address.store(block.address, Ordering::Relaxed);
        Some(DevicePtr(block.address))
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

    /// Whether what the owner's thread remembers of the cache holds.
    #[inline]
    pub(super) fn is_known(&self) -> bool {
        self.shelves.is_known()
    }

    /// Where the owner's thread counts. For whoever knows that what it remembers holds, and has the pool.
    #[inline]
    pub(super) fn counters<'a>(&'a self, _of: &'a Tiers) -> &'a Counters {
        // SAFETY: set when the cache became known, to what the pool holds until it is dropped.
        unsafe { &*self.counters.load(Ordering::Relaxed) }
    }

    /// Lets the owner's thread remember the cache, and count where it is told. The pool holds the counters.
    pub(super) fn set_known(&self, counters: &Counters) {
        // Relaxed: the owner's thread is the caller.
        self.counters.store(ptr::from_ref(counters).cast_mut(), Ordering::Relaxed);
        self.shelves.set_known();
    }

    /// What the owner's thread remembers of the cache no longer holds.
    pub(super) fn set_unknown(&self) {
        self.shelves.set_unknown();
    }

    /// Runs something on the shelves, unless a reclaimer has them. Only the owner's thread may call this.
    #[inline]
    fn with<T>(&self, run: impl FnOnce(&mut Shelves) -> T) -> Option<T> {
        let run = |shelves: &mut Shelves| {
            shelves.forget_last();
            run(shelves)
        };
        // SAFETY: we are the owner's thread, and `run` has the shelves only: it cannot come back here.
        unsafe { self.shelves.as_owner(run) }
    }

    /// Whoever hands out a block in the name of this cache without taking it from here says so before: [`fast_put_back`](Self::fast_put_back) must not
    /// take it for the one that was handed out last, of which it may have the word. Only the owner's thread may call this.
    pub(super) fn forget_last(&self) {
        // Whoever has the shelves at this moment forgets it, too.
        self.with(|_| {});
    }

    fn offset_of(&self, block: Cached) -> u64 {
        block.address - self.base
    }

    fn offsets_of(&self, blocks: Vec<Cached>) -> Vec<u64> {
        blocks.into_iter().map(|block| self.offset_of(block)).collect()
    }

    /// As [`fast_take`](Self::fast_take), whatever the thread remembers.
    pub(super) fn take(&self, shelf: Shelf, bytes: usize) -> Option<u64> {
        let ptr = self.with(|shelves| self.pop(shelves, shelf, bytes))??;
        Some(ptr.0 - self.base)
    }

    /// As [`take`](Self::take), also if more is left over than a word can say: the caller notes in the block's header what was requested
    /// then.
    pub(super) fn take_oversized(&self, shelf: Shelf, requested: usize) -> Option<(u64, Word)> {
        let take = |shelves: &mut Shelves| {
            let block = shelves.pop_any(shelf)?;
            let slack = (block.bytes() as usize - requested).min(Word::MOST_SLACK);
            let live = self.live.with_slack(slack);
            hand_out(block, live);
            Some((self.offset_of(block), live))
        };
        self.with(take)?
    }

    /// Puts a block back on its shelf, if its word is `now`: this cache's, and live or on its way here. `false`: it is not, or there is no
    /// room for it within bounds, or the cache is frozen; nothing has changed. Only the owner's thread may call this.
    pub(super) fn put(&self, block: Block<'_>, now: Word, most: Bounds) -> bool {
        let address = self.base + block.offset;
        let cached = Cached::new(address, block.word, block.header.size_and_shelf());
        let keep = |shelves: &mut Shelves| shelves.push_making_room(cached, most);
        let put =
            self.with(|shelves| block.word.free_as_owner(now, || keep(shelves))) == Some(true);
        if put && cached.shelf() == Shelf::PENDING {
            self.may_pend.store(true, Ordering::Relaxed);
        }
        put
    }

    /// Takes what is pending. Only the owner's thread may call this.
    #[inline]
    pub(super) fn take_pending(&self, pending: &mut Pending) {
        self.with(|shelves| shelves.take_pending(self.base, pending));
    }

    /// Whether others may find something pending here. Relaxed: who frees at this moment has not freed yet.
    pub(super) fn may_pend(&self) -> bool {
        self.may_pend.load(Ordering::Relaxed)
    }

    /// As [`take_pending`](Self::take_pending), whoever the caller is, and lets nothing pend until the owner asks for slots again. As
    /// [`take_all`](Self::take_all), the caller holds the pool's list of caches.
    pub(super) fn reclaim_pending(&self) -> Pending {
        let take = |shelves: &mut Shelves| {
            shelves.forget_last();
            let mut pending = Pending::default();
            shelves.take_pending(self.base, &mut pending);
            shelves.stop_pending();
            self.may_pend.store(false, Ordering::Relaxed);
            pending
        };
        // SAFETY: as in `take_all`.
        unsafe { self.shelves.as_reclaimer(take) }
    }

    /// Leaves a block that another cache owns in the outbox, if there is room beside others for the same cache, and then if `free` says
    /// so. Only the owner's thread may call this.
    #[inline]
    pub(super) fn send_if(
        &self,
        owner: Tag,
        freed: RemoteFree,
        free: impl FnOnce() -> bool,
    ) -> bool {
        self.with(|shelves| shelves.send_if(owner, freed, free)) == Some(true)
    }

    /// Leaves a block that another cache owns in the outbox. Returns what has to be sent now. `Err`: frozen.
    #[inline]
    pub(super) fn send(&self, owner: Tag, freed: RemoteFree) -> Result<Option<Parcel>, RemoteFree> {
        self.with(|shelves| shelves.send(owner, freed)).ok_or(freed)
    }

    /// Adds free blocks that nobody else knows of, as far as there is room for them; says how many. Only the owner's thread
    /// may call this.
    pub(super) fn fill<'a>(
        &self,
        shelf: Shelf,
        blocks: impl ExactSizeIterator<Item = (u64, &'a BlockWord)>,
        most: Bounds,
    ) -> usize {
        let word_in_cache = self.live.with(Kind::Cached);
        let cached = blocks.map(|(offset, word)| {
            word.set(word_in_cache);
            (self.base + offset, word)
        });
        self.with(|shelves| shelves.fill(shelf, cached, most)).unwrap_or(0)
    }

    /// Takes the older half of a shelf's blocks. Only the owner's thread may call this.
    pub(super) fn take_older_half(&self, shelf: Shelf) -> Vec<u64> {
        self.offsets_of(self.with(|shelves| shelves.take_older_half(shelf)).unwrap_or_default())
    }

    /// Takes everything, whoever the caller is, and does something more before the owner may come back. One reclaimer
    /// at a time: the caller holds the pool's list of caches.
    pub(super) fn take_all<T>(
        &self,
        before_thaw: impl FnOnce() -> T,
    ) -> (Vec<u64>, Option<Parcel>, T) {
        let take = |shelves: &mut Shelves| {
            shelves.forget_last();
            self.may_pend.store(false, Ordering::Relaxed);
            (shelves.take_all(), shelves.take_outbox(), before_thaw())
        };
        // SAFETY: the caller holds the pool's list of caches, so there is one reclaimer at a time; it is not inside `with`,
        // which runs nothing but what is in this file.
        let (blocks, parcel, more) = unsafe { self.shelves.as_reclaimer(take) };
        (self.offsets_of(blocks), parcel, more)
    }

    /// Takes blocks of their own, the largest first, whoever the caller is: they are few, and most of the bytes. As
    /// [`take_all`](Self::take_all), the caller holds the pool's list of caches.
    pub(super) fn take_largest(&self, most: usize) -> Vec<u64> {
        let take = |shelves: &mut Shelves| {
            shelves.forget_last();
            shelves.take_largest(most)
        };
        // SAFETY: as in `take_all`.
        self.offsets_of(unsafe { self.shelves.as_reclaimer(take) })
    }

    /// Does something while the owner is kept out. As [`take_all`](Self::take_all), the caller holds the pool's list of
    /// caches.
    pub(super) fn while_frozen<T>(&self, run: impl FnOnce() -> T) -> T {
        // SAFETY: as in `take_all`.
        unsafe {
            self.shelves.as_reclaimer(|shelves| {
                shelves.forget_last();
                run()
            })
        }
    }
}

impl StreamWatcher for ThreadCache {
    fn streams_have_changed(&self) {
        self.set_unknown();
    }
}

/// Makes a block of a cache a user's.
#[inline]
fn hand_out(block: Cached, live: Word) {
    // SAFETY: the pool is there as long as its caches are used; see `ThreadCache`.
    unsafe { block.word() }.take_as_owner(live);
}
