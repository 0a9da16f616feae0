//! Arenas of threads and streams over one global arena: the policy of RMM's arena.

mod space;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use self::space::{Bounds, SUPERBLOCK_BYTES, Space, Superblock};
use super::upstream::{Upstream, aligned};
use super::{ALIGNMENT, AllocError, Direct, FreeError, MakeError, Resource, Usage};
use crate::driver::{DevicePtr, Driver, DriverResult, Stream, StreamEpoch, StreamId};

/// How large an [`Arena`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaConfig {
    /// All it ever has, taken from upstream when it is made; at least 1 MiB. Default: half of what is free on the device.
    pub arena_bytes: Option<usize>,
}

/// The policy of RMM's `arena_memory_resource` (as of 2026).
///
/// One upstream block is the global arena. Every stream, and for the per-thread default stream every thread, has an arena of its own,
/// which takes superblocks of 1 MiB from the global one. Blocks of up to 1 MiB come from the stream's arena, larger ones from the
/// global arena; both are the first fit by address. A block freed on its arena's stream goes back there at once. One that is freed
/// elsewhere, or is larger, goes back after the host has waited for the stream that frees it. Arenas keep their superblocks until
/// memory is out: then the host waits for the device, all superblocks go back, and empty neighbours become one.
///
/// Other than the original: the first fit is found by going down a tree, where RMM walks a list of superblocks and a list in each; which
/// arena a block is in is found in hash tables; and the arena of a thread that ends keeps its superblocks until memory is out or
/// [`trim`](Resource::trim) is called, where RMM hands them on without waiting for what the thread has queued.
///
/// Promises: coalesces, where the arena is nearly all of the device; reuses across streams. Returns nothing upstream; not OOM-complete.
#[derive(Debug)]
pub struct Arena {
    upstream: Upstream,
    /// The upstream block.
    block: (DevicePtr, usize),
    global: Mutex<Space>,
    arenas: Mutex<Arenas>,
    tally: Tally,
    number: u64,
    /// While this stays, stream handles mean what they meant.
    epoch: Option<Arc<StreamEpoch>>,
}

/// The arena of one stream.
#[derive(Debug, Default)]
struct StreamArena {
    space: Space,
    superblocks: Vec<Bounds>,
}

/// The arenas of streams. Locks: this one first, then arenas in the order of this list, then the global arena.
#[derive(Debug, Default)]
struct Arenas {
    all: Vec<Arc<Mutex<StreamArena>>>,
    by_stream: HashMap<StreamId, Arc<Mutex<StreamArena>>>,
}

/// Sums over all arenas. Relaxed throughout: they order nothing.
#[derive(Debug, Default)]
struct Tally {
    live_bytes: AtomicUsize,
    peak_live_bytes: AtomicUsize,
}

/// The arena that a thread has used last.
struct LastArena {
    /// Of which [`Arena`], for which handle, and when that meant the arena's stream.
    of: (u64, Stream, u64),
    space: Arc<Mutex<StreamArena>>,
}

thread_local! {
    static LAST: RefCell<Option<LastArena>> = const { RefCell::new(None) };
}

impl Arena {
    /// Takes half of what is free on the device.
    ///
    /// # Errors
    /// If that cannot be had.
    pub fn new(driver: Arc<dyn Driver>) -> Result<Arena, MakeError> {
        Arena::with_config(Arc::new(Direct::new(driver)), ArenaConfig::default())
    }

    /// Takes all it will ever have from `upstream`.
    ///
    /// # Errors
    /// If that is less than a superblock, or cannot be had.
    pub fn with_config(
        upstream: Arc<dyn Resource>,
        config: ArenaConfig,
    ) -> Result<Arena, MakeError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let upstream = Upstream::new(upstream);
        let bytes = match config.arena_bytes {
            Some(bytes) => bytes,
            None => upstream.driver.memory_info()?.free_bytes / 2,
        };
        let bytes = bytes / ALIGNMENT * ALIGNMENT;
        if (bytes as u64) < SUPERBLOCK_BYTES {
            return Err(MakeError::setting("arena_bytes", "must be 1MiB at least"));
        }
        let ptr = upstream.take(bytes, Stream::LEGACY)?;
        // Whatever orders the memory upstream is over before any stream uses it.
        if let Err(error) = upstream.driver.synchronize_stream(Stream::LEGACY) {
            let _ = upstream.give(ptr, bytes, Stream::LEGACY);
            return Err(error.into());
        }
        let mut global = Space::default();
        global.insert(Superblock::from((ptr, bytes)));
        let epoch = upstream.driver.stream_epoch();
        Ok(Arena {
            upstream,
            block: (ptr, bytes),
            global: Mutex::new(global),
            arenas: Mutex::default(),
            tally: Tally::default(),
            // Relaxed: only that it is a new one matters.
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            epoch,
        })
    }

    /// Does something with the arena of a stream.
    #[inline]
    fn with_arena<T>(
        &self,
        stream: Stream,
        work: impl FnOnce(&Mutex<StreamArena>) -> T,
    ) -> DriverResult<T> {
        let epoch = self.epoch.as_ref().map(|epoch| epoch.now());
        let Some(epoch) = epoch else {
            return Ok(work(&*self.find_arena(stream)?));
        };
        let of = (self.number, stream, epoch);
        let mut work = Some(work);
        let answer = LAST.try_with(|last| {
            let last = &mut *last.borrow_mut();
            let space = match last {
                Some(last) if last.of == of => &last.space,
                _ => &last.insert(LastArena { of, space: self.find_arena(stream)? }).space,
            };
            Ok(work.take().expect("not done yet")(space))
        });
        // A thread that is ending has forgotten.
        answer
            .unwrap_or_else(|_| Ok(work.take().expect("not done yet")(&*self.find_arena(stream)?)))
    }

    #[cold]
    fn find_arena(&self, stream: Stream) -> DriverResult<Arc<Mutex<StreamArena>>> {
        let id = self.upstream.driver.stream_id(stream)?;
        let Arenas { all, by_stream } = &mut *self.arenas.lock();
        let arena = by_stream.entry(id).or_insert_with(|| {
            let arena = Arc::new(Mutex::default());
            all.push(Arc::clone(&arena));
            arena
        });
        Ok(Arc::clone(arena))
    }

    /// A block from what there is.
    fn try_allocate(
        &self,
        bytes: u64,
        asked_bytes: usize,
        stream: Stream,
    ) -> DriverResult<Option<DevicePtr>> {
        if bytes > SUPERBLOCK_BYTES {
            return Ok(self.global.lock().allocate_large(bytes, asked_bytes));
        }
        self.with_arena(stream, |arena| {
            let StreamArena { space, superblocks } = &mut *arena.lock();
            space.allocate(bytes, asked_bytes).or_else(|| {
                let superblock = self.global.lock().acquire(bytes)?;
                superblocks.push(superblock.bounds);
                space.insert(superblock);
                space.allocate(bytes, asked_bytes)
            })
        })
    }

    /// The host waits for the device, and all superblocks go back to the global arena.
    #[cold]
    fn defragment(&self) -> DriverResult<()> {
        let mut arenas = self.arenas.lock();
        let mut locked: Vec<_> = arenas.all.iter().map(|arena| arena.lock()).collect();
        self.upstream.driver.synchronize_device()?;
        let mut global = self.global.lock();
        for arena in &mut locked {
            for bounds in std::mem::take(&mut arena.superblocks) {
                global.release(arena.space.remove(bounds));
            }
        }
        drop((global, locked));
        // Whoever still uses one finds it again by its stream, and it is empty.
        let Arenas { all, by_stream } = &mut *arenas;
        by_stream.retain(|_, arena| Arc::strong_count(arena) > 2);
        all.retain(|arena| Arc::strong_count(arena) > 1);
        Ok(())
    }

    /// Frees a block that is not of the stream's own arena.
    fn free_elsewhere(
        &self,
        ptr: DevicePtr,
        bytes: usize,
        stream: Stream,
    ) -> Result<(), FreeError> {
        self.with_block(ptr, bytes, |_| ())?;
        // Whoever gets it next may be on any stream.
        self.upstream.driver.synchronize_stream(stream)?;
        // Looked for anew: it may have moved, and may move again, or somebody else has freed it meanwhile.
        while !self.free_in_global(ptr, bytes) {
            let freed = self.with_block(ptr, bytes, |space| {
                space.free(ptr, bytes);
            });
            if freed?.is_some() {
                break;
            }
        }
        Ok(())
    }

    fn free_in_global(&self, ptr: DevicePtr, bytes: usize) -> bool {
        let mut global = self.global.lock();
        let is_there = global.live.is_block(ptr, bytes);
        if is_there && let Some(emptied) = global.free_large(ptr) {
            global.coalesce(emptied);
        }
        is_there
    }

    /// Does something with the stream's arena that a block is in. `None`: it is in the global one.
    #[cold]
    fn with_block<T>(
        &self,
        ptr: DevicePtr,
        bytes: usize,
        work: impl FnOnce(&mut Space) -> T,
    ) -> Result<Option<T>, FreeError> {
        // While this is locked no superblock gets back to the global arena.
        let arenas = self.arenas.lock();
        if self.global.lock().live.is_block(ptr, bytes) {
            return Ok(None);
        }
        for arena in &arenas.all {
            let StreamArena { space, .. } = &mut *arena.lock();
            if space.live.is_block(ptr, bytes) {
                return Ok(Some(work(space)));
            }
        }
        let wrong_there =
            arenas.all.iter().map(|arena| arena.lock().space.live.check(ptr, bytes).err());
        let wrong_here = || std::iter::once(self.global.lock().live.check(ptr, bytes).err());
        let wrong = wrong_there.chain(wrong_here()).flatten();
        let mut known = wrong.filter(|error| !matches!(error, FreeError::Foreign { .. }));
        Err(known.next().unwrap_or(FreeError::Foreign { ptr }))
    }
}

impl Tally {
    #[inline]
    fn allocated(&self, bytes: usize) {
        let live = self.live_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if live > self.peak_live_bytes.load(Ordering::Relaxed) {
            self.peak_live_bytes.fetch_max(live, Ordering::Relaxed);
        }
    }

    #[inline]
    fn freed(&self, bytes: usize) {
        self.live_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Resource for Arena {
    fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        if bytes == 0 {
            return Ok(DevicePtr::NULL);
        }
        let rounded = aligned(bytes)? as u64;
        let mut ptr = self.try_allocate(rounded, bytes, stream)?;
        if ptr.is_none() {
            self.defragment()?;
            ptr = self.try_allocate(rounded, bytes, stream)?;
        }
        let Some(ptr) = ptr else {
            let (live, largest) = (self.live(), self.largest_free());
            return Err(self.upstream.out_of_memory(bytes, live, largest, 0));
        };
        self.tally.allocated(bytes);
        Ok(ptr)
    }

    fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
        if ptr.is_null() {
            return Ok(());
        }
        let is_mine = bytes as u64 <= SUPERBLOCK_BYTES
            && self.with_arena(stream, |arena| arena.lock().space.free(ptr, bytes))?;
        if !is_mine {
            self.free_elsewhere(ptr, bytes, stream)?;
        }
        self.tally.freed(bytes);
        Ok(())
    }

    fn usage(&self) -> Usage {
        self.upstream.usage(self.live(), self.largest_free())
    }

    /// Waits for the device, and makes all superblocks the global arena's; gives nothing back upstream, as the original.
    fn trim(&self) -> usize {
        // If the device cannot be waited for, everything stays as it is.
        let _ = self.defragment();
        0
    }

    fn reserved_bytes(&self) -> usize {
        self.upstream.reserved_bytes()
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.upstream.driver()
    }
}

impl Arena {
    fn largest_free(&self) -> usize {
        let arenas = self.arenas.lock();
        let largest = arenas.all.iter().map(|arena| arena.lock().space.largest_free()).max();
        largest.unwrap_or(0).max(self.global.lock().largest_free()) as usize
    }

    fn live(&self) -> Usage {
        let arenas = self.arenas.lock();
        let blocks = arenas.all.iter().map(|arena| arena.lock().space.live.usage().live_blocks);
        Usage {
            live_bytes: self.tally.live_bytes.load(Ordering::Relaxed),
            live_blocks: blocks.sum::<usize>() + self.global.lock().live.usage().live_blocks,
            peak_live_bytes: self.tally.peak_live_bytes.load(Ordering::Relaxed),
            ..Usage::default()
        }
    }
}

impl Drop for Arena {
    /// Everything goes back upstream: nobody can free what is still held.
    fn drop(&mut self) {
        let (ptr, bytes) = self.block;
        // Which streams still use it nobody knows. Who refuses has lost the memory; there is nobody left to tell.
        let _ = self.upstream.driver.synchronize_device();
        let _ = self.upstream.give(ptr, bytes, Stream::LEGACY);
    }
}
