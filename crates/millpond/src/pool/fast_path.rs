//! The fast path: a block from the cache that this thread used last, or back into it.
//!
//! Each thread remembers the pool, the stream and the cache of its last calls, so that the next call finds the cache by two comparisons, or by
//! a few more where the thread uses several streams in turn. Nothing is asked of the driver. Instead, a change
//! of the settings, or of what stream handles mean, closes the gate of each cache (`lock_free`). The next call then goes the slow way, on
//! which the thread learns anew.
//!
//! ```text
//!   remembered number = number of the pool  ∧  remembered stream = stream  ∧  gate of the cache open   ⇒   a hit may be tried
//!   number of a pool that is gone ≠ number of any pool
//! ```
//!
//! What is remembered is in memory of each thread's own that is found by an instruction or two, also by a library that was loaded while the
//! program ran. `thread_local!` calls a function of the system for it in such a library, which would be a tenth of an allocate and free. Here it
//! is part of what every thread has from its start (the *initial exec* model of the ELF handbook on thread-local storage), as in other
//! allocators. The system keeps some room for libraries that are loaded later; they must not want much.

use std::cell::Cell;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::caches;
use super::lock_free::{Kind, Tag};
use super::shelves::{Cached, RemoteFree};
use super::sizes::Shelf;
use super::statistics::Counters;
use super::thread_cache::ThreadCache;
use super::tiers::Tiers;
use crate::driver::{DevicePtr, Stream, StreamEpoch};
use crate::fork::{self, Process};
use crate::resource::{AllocError, FreeError};

/// The fast path. What it does not serve goes on by `allocate_slow` and `deallocate_slow`.
impl Tiers {
    #[inline]
    pub(super) fn allocate(
        self: &Arc<Tiers>,
        bytes: usize,
        stream: Stream,
    ) -> Result<DevicePtr, AllocError> {
        match self.allocate_fast(bytes, stream) {
            Some(ptr) => Ok(ptr),
            None => self.allocate_slow(bytes, stream),
        }
    }

    /// The fast path: the cache that this thread used last has such a block.
    #[inline]
    pub(super) fn allocate_fast(&self, bytes: usize, stream: Stream) -> Option<DevicePtr> {
        with_remembered(self.identity.number(), stream, |_, cache| {
            let ptr = cache.fast_take(bytes, || self.settings.shelf_of(bytes))?;
            cache.counters(self).allocated(bytes);
            Some(ptr)
        })
    }

    #[inline]
    pub(super) fn deallocate(
        self: &Arc<Tiers>,
        ptr: DevicePtr,
        bytes: Option<usize>,
        stream: Stream,
    ) -> Result<(), FreeError> {
        if bytes.is_some_and(|bytes| self.free_fast(ptr, bytes, stream)) {
            return Ok(());
        }
        self.deallocate_slow(ptr, bytes, stream)
    }

    /// The fast path: a right free of a block that the cache this thread used last has room for, on its shelves or among those that it
    /// sends home.
    #[inline]
    fn free_fast(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> bool {
        let freed = with_remembered(self.identity.number(), stream, |_, cache| {
            let guess = || self.likely_shelf(bytes);
            let put = cache.is_last(ptr) && cache.fast_put_back(bytes)
                || cache.fast_put_on(bytes, guess, || self.cached_at(ptr))
                || cache.is_known() && self.free_to_owner(cache, ptr, bytes);
            put.then(|| cache.counters(self).freed(bytes))
        });
        freed.is_some()
    }

    /// As [`free_fast`](Self::free_fast), by a thread whose cache is [known](ThreadCache::is_known). What is larger than asked for comes
    /// by here, and where one thread allocates and another frees, all frees do. Apart from the above, which then needs fewer registers.
    /// Never panics.
    #[inline(never)]
    pub(super) fn free_to_owner(&self, cache: &ThreadCache, ptr: DevicePtr, bytes: usize) -> bool {
        let Some(block) = self.find(ptr) else { return false };
        let now = block.word.now();
        if now.owner() == cache.tag {
            return cache.fast_put(bytes, || self.cached_at(ptr));
        }
        let is_right = now.kind() == Kind::Live && block.requested(now) == bytes;
        if !is_right || [Tag::NONE, Tag::NOTED].contains(&now.owner()) {
            return false;
        }
        // On its way home, if there is room for it beside others that go there.
        let freed = RemoteFree { offset: block.offset, stream: cache.stream() };
        // Others may be freeing it at this moment.
        let free = || block.word.free_as_other(now, now.with(Kind::Remote));
        cache.send_if(now.owner(), freed, free)
    }

    /// The shelf of most blocks that are asked for with so many bytes.
    #[inline]
    pub(super) fn likely_shelf(&self, bytes: usize) -> Shelf {
        self.settings.shelf_of(bytes).unwrap_or(Shelf::PENDING)
    }

    /// A block, as a cache keeps it; or something whose word is free.
    #[inline]
    pub(super) fn cached_at(&self, ptr: DevicePtr) -> Option<Cached> {
        // What is not in the span is beyond the page map. Where no block begins, the word is not that of a live one.
        let offset = self.back.distance_of(ptr);
        let header = self.page_map.get(offset)?;
        Some(Cached::new(ptr.0, header.word_at(offset)?, header.size_and_shelf()))
    }
}

/// Which pool it is, as threads know it.
#[derive(Debug)]
pub(super) struct Identity {
    /// Never given to another pool.
    pub(super) id: u64,
    /// What threads remember the pool by: another one when what they remember no longer holds.
    number: AtomicU64,
    /// While this stays, stream handles keep their meaning. Only if the driver can tell do threads remember anything by it.
    epoch: Arc<StreamEpoch>,
    pub(super) remembers: bool,
    process: Process,
}

impl Identity {
    /// A new one. `epoch`: `None`, if the driver cannot tell when handles change their meaning.
    pub(super) fn new(epoch: Option<Arc<StreamEpoch>>) -> Identity {
        let id = new_number();
        Identity {
            id,
            number: AtomicU64::new(id),
            remembers: epoch.is_some(),
            epoch: epoch.unwrap_or_default(),
            process: Process::this(),
        }
    }

    /// What threads remember the pool by.
    #[inline]
    pub(super) fn number(&self) -> u64 {
        // Acquire: whoever knows it knows the settings that came before.
        self.number.load(Ordering::Acquire)
    }

    /// Changes the number. Caches must be made unknown under the same lock.
    pub(super) fn set_number(&self, number: u64) {
        // Release: whoever knows the new number knows the new settings.
        self.number.store(number, Ordering::Release);
    }

    /// The epoch of streams by which threads remember their handles.
    #[inline]
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.now()
    }

    /// For those who watch it.
    pub(super) fn epoch_of_streams(&self) -> &StreamEpoch {
        &self.epoch
    }

    /// The process that made the pool.
    pub(super) fn process(&self) -> &Process {
        &self.process
    }
}

/// A number that no pool was ever known by. It is odd: [handles](super::by_handle) are even.
pub(super) fn new_number() -> u64 {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    // Relaxed: the number only has to be different each time.
    NUMBERS.fetch_add(2, Ordering::Relaxed)
}

/// What a call of a thread used lately. Nothing, if all is zeros.
///
/// The cache is one that the thread has [attached](super::caches), so it is there. The pool is, too, while somebody may enter the
/// cache by what is remembered: a pool sees to that when it goes.
#[derive(Debug)]
pub(super) struct LastUse {
    stream: Cell<Stream>,
    number: Cell<u64>,
    cache: Cell<*const ThreadCache>,
    pool: Cell<*const Tiers>,
}

impl LastUse {
    /// Whether it was for this stream of the pool that is known by this number.
    #[inline]
    fn is_of(&self, number: u64, stream: Stream) -> bool {
        self.stream.get() == stream && self.number.get() == number
    }

    fn set(&self, other: &LastUse) {
        self.stream.set(other.stream.get());
        self.number.set(other.number.get());
        self.cache.set(other.cache.get());
        self.pool.set(other.pool.get());
    }

    #[inline]
    pub(super) fn stream(&self) -> Stream {
        self.stream.get()
    }

    /// The number that the pool is or was known by.
    #[inline]
    pub(super) fn number(&self) -> u64 {
        self.number.get()
    }

    /// # Safety
    /// Something is remembered here, and by this thread.
    #[inline]
    pub(super) unsafe fn cache(&self) -> &ThreadCache {
        // SAFETY: a cache that this thread has attached, as `remember` was promised; whoever detaches one forgets it before.
        unsafe { &*self.cache.get() }
    }

    /// The pool that is or was known by its number. To be used where what is remembered has been found to hold.
    #[inline]
    pub(super) fn pool(&self) -> *const Tiers {
        self.pool.get()
    }
}

/// Streams that a thread may use in turn without looking its caches up, at the most.
const REMEMBERED: usize = 8;

/// What a thread used lately: first what it came to know last, which most threads never leave, then others by [place](place_of).
type Lately = [LastUse; REMEMBERED];
const _: () = assert!(size_of::<Lately>() <= BYTES);
const _: () = assert!(align_of::<Lately>() <= ALIGN);

/// What this thread used lately.
#[inline(always)]
fn lately<T>(run: impl FnOnce(&Lately) -> T) -> T {
    // SAFETY: memory of this thread's own, large enough and aligned, that nothing else uses. It begins as zeros, which are numbers and
    // null pointers, and the reference does not leave the thread.
    run(unsafe { &*address().cast::<Lately>() })
}

/// Where a stream is remembered that is not the first. Handles are addresses of something, or small numbers.
#[inline]
fn place_of(stream: Stream) -> usize {
    // Of 32 bits: such a factor is part of an instruction.
    const GOLDEN: u32 = 0x9e37_79b9;
    let mixed = u64::from((stream.0 as u32).wrapping_mul(GOLDEN));
    1 + ((mixed * (REMEMBERED as u64 - 1)) >> u32::BITS) as usize
}

/// Runs something with this thread's cache for a stream of a pool, if it was used lately: the fast path, which makes sure itself that
/// the stream's handle has kept its meaning.
#[inline]
pub(super) fn with_remembered<T>(
    number: u64,
    stream: Stream,
    run: impl FnOnce(&LastUse, &ThreadCache) -> Option<T>,
) -> Option<T> {
    lately(|lately| {
        // Looked at where it is: a copy would want more registers than there are.
        let mut last = &lately[0];
        if !last.is_of(number, stream) {
            std::hint::cold_path();
            last = &lately[place_of(stream)];
            if !last.is_of(number, stream) {
                return None;
            }
        }
        // SAFETY: no pool has the number of a place where nothing is remembered.
        run(last, unsafe { last.cache() })
    })
}

fn is_remembered(number: u64, stream: Stream) -> bool {
    with_remembered(number, stream, |_, _| Some(())).is_some()
}

/// As [`with_remembered`], if the stream's handle has kept its meaning; also of a stream that was used before others.
pub(super) fn with_recalled<T>(
    pool: &Tiers,
    stream: Stream,
    run: impl FnOnce(&ThreadCache, &Counters) -> Option<T>,
) -> Option<T> {
    if !is_remembered(pool.identity.number(), stream) && !caches::recall(pool, stream) {
        return None;
    }
    with_remembered(pool.identity.number(), stream, |_, cache| {
        if cache.is_known() { run(cache, cache.counters(pool)) } else { None }
    })
}

/// What [`with_remembered`] is to use from now on in this thread, while the pool is known by this number and the cache is known.
///
/// # Safety
/// This thread has the cache attached, and [forgets](forget) this before it no longer has.
pub(super) unsafe fn remember(pool: &Tiers, number: u64, stream: Stream, cache: &Arc<ThreadCache>) {
    lately(|lately| {
        let last = &lately[0];
        if !last.is_of(number, stream) {
            // What was at its place is forgotten.
            lately[place_of(last.stream.get())].set(last);
        }
        last.stream.set(stream);
        last.number.set(number);
        last.cache.set(Arc::as_ptr(cache));
        last.pool.set(pool);
    });
}

/// A forked child's thread has none of its parent's caches. In place before there is a cache.
pub(super) fn forget_in_children() {
    static IS_KNOWN: AtomicBool = AtomicBool::new(false);
    fork::in_children(forget, &IS_KNOWN);
}

/// This thread has no caches any more.
pub(super) extern "C" fn forget() {
    lately(|lately| {
        for last in lately {
            // No pool has this number.
            last.number.set(0);
            last.cache.set(ptr::null());
            last.pool.set(ptr::null());
        }
    });
}

/// How much there is. All zeros when a thread begins.
pub(super) const BYTES: usize = 256;
/// How its address is aligned.
pub(super) const ALIGN: usize = 64;

// The library's own unit tests have the library in them twice, and a name may be there once.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(test), not(miri)))]
mod memory {
    use std::arch::{asm, global_asm};

    /// The name, with the version: a program may have two of them.
    macro_rules! name {
        () => {
            concat!(
                "millpond_thread_memory_",
                env!("CARGO_PKG_VERSION_MAJOR"),
                "_",
                env!("CARGO_PKG_VERSION_MINOR"),
                "_",
                env!("CARGO_PKG_VERSION_PATCH")
            )
        };
    }

    global_asm!(
        concat!(".pushsection .tbss.", name!(), ",\"awT\",@nobits"),
        concat!(".globl ", name!()),
        concat!(".hidden ", name!()),
        concat!(".type ", name!(), ",@object"),
        concat!(".size ", name!(), ",{bytes}"),
        ".balign {align}",
        concat!(name!(), ":"),
        ".zero {bytes}",
        ".popsection",
        bytes = const super::BYTES,
        align = const super::ALIGN,
    );

    #[inline(always)]
    pub(super) fn address() -> *mut u8 {
        let address: *mut u8;
        // SAFETY: reads where this thread's memory is, as the linker and the system have laid it down.
        unsafe {
            asm!(
                concat!("mov {address}, qword ptr [rip + ", name!(), "@GOTTPOFF]"),
                "add {address}, qword ptr fs:[0]",
                address = out(reg) address,
                options(pure, nomem, nostack),
            );
        }
        address
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(test), not(miri))))]
mod memory {
    use std::cell::UnsafeCell;

    #[repr(align(64))]
    struct Memory(UnsafeCell<[u8; super::BYTES]>);

    thread_local! {
        static MEMORY: Memory = const { Memory(UnsafeCell::new([0; super::BYTES])) };
    }

    #[inline(always)]
    pub(super) fn address() -> *mut u8 {
        MEMORY.with(|memory| memory.0.get().cast())
    }
}

/// Where this thread's is. It stays there until the thread ends, and nobody else has it.
#[inline(always)]
pub(super) fn address() -> *mut u8 {
    memory::address()
}
