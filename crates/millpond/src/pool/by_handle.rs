//! A pool that is known by the address of something which stays for ever: what a program in another language has for a pool.
//!
//! On the fast path that address is compared with what the thread remembers and is otherwise not used, so that whatever a program gives
//! for a handle is safe there, and the pool need not be looked for.

use super::Pool;
use super::fast_path::{LastUse, new_number, with_remembered};
use super::thread_cache::ThreadCache;
use crate::driver::{DevicePtr, Stream};

impl Pool {
    /// Lets threads know the pool by a handle's address, which nothing else ever has, and by no other. Settings may change meanwhile.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use millpond::driver::{Driver, Stream};
    /// # use millpond::pool::{Pool, PoolConfig};
    /// # use millpond::Resource;
    /// # use millpond_sim::{Profile, SimGpu};
    /// # let pool = Pool::new(Arc::new(SimGpu::new(Profile::named("a100-80g")?)))?;
    /// static HANDLE: u64 = 0;
    /// // SAFETY: no other pool has this handle.
    /// unsafe { pool.set_handle(&HANDLE) };
    /// for enable_stats in [true, false, true] {
    ///     pool.set_config(PoolConfig { enable_stats, ..pool.config() })?;
    ///     let block = pool.allocate(4096, Stream::LEGACY)?;
    ///     pool.deallocate(block, 4096, Stream::LEGACY)?;
    ///     // SAFETY: the pool stays.
    ///     let again = unsafe { Pool::allocate_by_handle(&raw const HANDLE, 4096, Stream::LEGACY) };
    ///     assert_eq!(again, Some(block), "found by the handle");
    ///     pool.deallocate(block, 4096, Stream::LEGACY)?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Safety
    /// No other pool is ever known by this address.
    pub unsafe fn set_handle<T>(&self, handle: &'static T) {
        const { assert!(size_of::<T>() > 0 && align_of::<T>() > 1, "odd numbers are pools' own") };
        self.set_number(std::ptr::from_ref(handle) as u64);
    }

    /// Lets threads know the pool by no handle.
    pub fn forget_handle(&self) {
        self.set_number(new_number());
    }

    fn set_number(&self, number: u64) {
        // A forked child remembers nothing, and locks may be held for ever there.
        if !self.tiers.has_forked() {
            self.tiers.set_number(number);
        }
    }

    /// A block that the calling thread's own cache of the pool with this handle has, or nothing. The first thing that
    /// [`allocate`](crate::Resource::allocate) tries. Never panics.
    ///
    /// # Safety
    /// If a pool has this handle, it is not dropped while this runs. The address may be any.
    #[inline]
    pub unsafe fn allocate_by_handle<T>(
        handle: *const T,
        bytes: usize,
        stream: Stream,
    ) -> Option<DevicePtr> {
        with_handle(handle, stream, |last, cache| {
            // SAFETY: asked for where what is remembered holds; the rest is the caller's promise.
            let pool = || unsafe { &*last.pool() };
            let ptr = cache.fast_take(bytes, || pool().settings.shelf_of(bytes))?;
            cache.counters(pool()).allocated(bytes);
            Some(ptr)
        })
    }

    /// As [`allocate_by_handle`](Self::allocate_by_handle), of what is free behind the thread's cache and has memory. The next thing that is
    /// tried.
    ///
    /// # Safety
    /// As [`allocate_by_handle`](Self::allocate_by_handle).
    ///
    /// # Panics
    /// If the pool is broken.
    #[inline]
    pub unsafe fn place_by_handle<T>(
        handle: *const T,
        bytes: usize,
        stream: Stream,
    ) -> Option<DevicePtr> {
        with_handle(handle, stream, |last, cache| {
            if !cache.is_known() {
                return None;
            }
            // SAFETY: as in `allocate_by_handle`; nothing else is asked of the pool.
            unsafe { &*last.pool() }.allocate_own_at_once(cache, bytes, stream)
        })
    }

    /// Takes the block back that the calling thread's own cache of the pool with this handle handed out last. The first thing that
    /// [`deallocate`](crate::Resource::deallocate) tries; unless it is [`Freed`](ByHandle::Freed), nothing has changed. Never panics.
    ///
    /// # Safety
    /// As [`allocate_by_handle`](Self::allocate_by_handle).
    #[inline]
    pub unsafe fn deallocate_last_by_handle<T>(
        handle: *const T,
        ptr: DevicePtr,
        bytes: usize,
        stream: Stream,
    ) -> ByHandle {
        let freed = with_handle(handle, stream, |last, cache| {
            if !cache.is_last(ptr) || !cache.fast_put_back(bytes) {
                return Some(ByHandle::Remembered(Remembered { last }));
            }
            // SAFETY: as in `allocate_by_handle`.
            cache.counters(unsafe { &*last.pool() }).freed(bytes);
            Some(ByHandle::Freed)
        });
        freed.unwrap_or(ByHandle::Unknown)
    }
}

/// As [`with_remembered`], for a pool that is known by a handle.
#[inline]
fn with_handle<T, R>(
    handle: *const T,
    stream: Stream,
    run: impl FnOnce(&LastUse, &ThreadCache) -> Option<R>,
) -> Option<R> {
    // Where nothing is remembered, the number is zero, too.
    if handle.is_null() {
        return None;
    }
    with_remembered(handle as u64, stream, run)
}

/// What came of [`Pool::deallocate_last_by_handle`].
#[derive(Clone, Copy, Debug)]
pub enum ByHandle {
    /// It is free.
    Freed,
    /// It is another block, if any, or others have come to its shelf since; this may know it.
    Remembered(Remembered),
    /// Nothing is remembered of the pool or the stream.
    Unknown,
}

/// What the calling thread remembers of a pool and a stream. For the same call: it goes with the thread's next one.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Remembered {
    last: *const LastUse,
}

// So that whoever has this needs nothing else of what was asked.
impl Remembered {
    /// Takes a block back that the thread's own cache owns and has room for; says whether that was so. If not, nothing has changed. Never
    /// panics.
    ///
    /// # Safety
    /// This is from [`Pool::deallocate_last_by_handle`], which this thread called last, and its promise still holds.
    #[inline(always)]
    pub unsafe fn deallocate(self, ptr: DevicePtr, bytes: usize) -> bool {
        // SAFETY: the caller's promise.
        let last = unsafe { &*self.last };
        // SAFETY: as in `with_remembered`: nothing was detached since.
        let cache = unsafe { last.cache() };
        // SAFETY: as in `Pool::allocate_by_handle`.
        let pool = || unsafe { &*last.pool() };
        let guess = || pool().likely_shelf(bytes);
        let put = cache.fast_put_on(bytes, guess, || pool().cached_at(ptr));
        if put {
            cache.counters(pool()).freed(bytes);
        }
        put
    }

    /// As [`deallocate`](Self::deallocate), also of a block that is larger than such blocks usually are, or that another thread's cache owns.
    ///
    /// # Safety
    /// As [`deallocate`](Self::deallocate).
    #[inline]
    pub unsafe fn deallocate_unguessed(self, ptr: DevicePtr, bytes: usize) -> bool {
        // SAFETY: as in `deallocate`.
        let last = unsafe { &*self.last };
        // SAFETY: as in `deallocate`.
        let cache = unsafe { last.cache() };
        if !cache.is_known() {
            return false;
        }
        // SAFETY: as in `Pool::allocate_by_handle`.
        let pool = unsafe { &*last.pool() };
        let freed = pool.free_to_owner(cache, ptr, bytes);
        if freed {
            cache.counters(pool).freed(bytes);
        }
        freed
    }

    /// The handle and the stream that were asked for.
    ///
    /// # Safety
    /// As [`deallocate`](Self::deallocate).
    #[inline]
    pub unsafe fn asked_for<T>(self) -> (*mut T, Stream) {
        // SAFETY: the caller's promise.
        let last = unsafe { &*self.last };
        (last.number() as *mut T, last.stream())
    }
}
