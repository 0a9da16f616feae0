//! A pool's handle: how it is opened and closed, and what makes sure that it is one.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use millpond::AllocError;
use millpond::fork::{PerProcess, Process};
use millpond::pool::Pool;
use parking_lot::Mutex;

use crate::boundary_ffi::{answer, place, text};
use crate::host_memory_ffi;
use crate::open::Open;
use crate::place::Place;
use crate::status::{Failure, millpond_status};

/// A device, and what allocates there. Only by its address.
///
/// A handle that was closed stays behind, some two hundred bytes, so that its use is an error and no crash.
pub struct millpond_pool {
    state: AtomicU32,
    /// Changed by whoever closes the pool, and then no other call may be under way.
    parts: UnsafeCell<Parts>,
    /// The pool of the whole process is not closed, nor are PyTorch's.
    is_instance: bool,
    /// That opened it. In a child of it nothing behind the handle is looked at.
    process: Process,
    /// The handle that was made before this one.
    before: AtomicPtr<millpond_pool>,
}

/// Nothing, once it is closed.
#[derive(Default)]
struct Parts {
    /// The pool that calls go to directly, if there is nothing around it.
    direct: Option<Pool>,
    open: Option<Open>,
}

// The states are numbers that nothing else has, so that most of what is no pool is told from one.

/// Open; calls go to a pool directly.
const DIRECT: u32 = 0x6d70_6f6c;
/// Open; calls go through a stack, or a trace.
const STACKED: u32 = DIRECT + 1;
const CLOSED: u32 = DIRECT + 2;

// SAFETY: what is not atomic in a handle changes only while nobody else uses it.
unsafe impl Sync for millpond_pool {}

/// The latest of all handles that ever were. No lock: a child that is forked while another thread opens a pool must not wait for it.
static LATEST: AtomicPtr<millpond_pool> = AtomicPtr::new(ptr::null_mut());

impl millpond_pool {
    fn leak(open: Open, is_instance: bool) -> &'static millpond_pool {
        let state = if open.bare_pool().is_some() { DIRECT } else { STACKED };
        let parts = Parts { direct: open.bare_pool().cloned(), open: Some(open) };
        let (state, parts) = (AtomicU32::new(state), UnsafeCell::new(parts));
        let (process, before) = (Process::this(), AtomicPtr::default());
        let handle: &'static millpond_pool =
            Box::leak(Box::new(millpond_pool { state, parts, is_instance, process, before }));
        handle.keep();
        handle.know_pool(true);
        handle
    }

    /// Puts the handle among all others, where those find it who look for memory that is lost.
    fn keep(&'static self) {
        let this = ptr::from_ref(self).cast_mut();
        // Relaxed: nobody looks at one by way of another.
        let _ = LATEST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |latest| {
            self.before.store(latest, Ordering::Relaxed);
            Some(this)
        });
    }

    /// A handle that is never closed, and what it stands for.
    pub(crate) fn for_ever(open: Open) -> (&'static millpond_pool, &'static Open) {
        let handle = millpond_pool::leak(open, true);
        // SAFETY: nobody closes it, and nobody else changes it.
        let parts = unsafe { &*handle.parts.get() };
        (handle, parts.open.as_ref().expect("it was given just now"))
    }

    /// Whether calls may go to the pool itself.
    #[inline]
    pub(crate) fn is_direct(&self) -> bool {
        // Relaxed, as in `direct`.
        self.state.load(Ordering::Relaxed) == DIRECT
    }

    /// Calls go through what is around the pool from now on, or no longer.
    pub(crate) fn set_stacked(&'static self, stacked: bool, open: &Open) {
        let direct = !stacked && open.bare_pool().is_some();
        // Relaxed: a call that is under way in another thread, or begins at this moment, is before or after.
        self.state.store(if direct { DIRECT } else { STACKED }, Ordering::Relaxed);
        self.know_pool(direct);
    }

    /// Lets calls find the pool by the handle's address alone, or no longer. Nobody closes it at this moment.
    fn know_pool(&'static self, known: bool) {
        // SAFETY: only whoever closes the pool changes it.
        match unsafe { &(*self.parts.get()).direct } {
            // SAFETY: a handle stays for ever, and is one pool's.
            Some(pool) if known => unsafe { pool.set_handle(self) },
            Some(pool) => pool.forget_handle(),
            None => {}
        }
    }
}

/// The pool that calls go to, if there is nothing around it.
///
/// # Safety
/// Null, or a handle that [`millpond_pool_open`] gave out. It is not being closed.
#[inline]
pub(crate) unsafe fn direct<'a>(pool: *const millpond_pool) -> Option<&'a Pool> {
    // SAFETY: a handle stays for ever.
    let handle = unsafe { pool.as_ref() }?;
    // Relaxed: whoever has the handle has it from whoever opened it.
    if handle.state.load(Ordering::Relaxed) != DIRECT {
        return None;
    }
    // SAFETY: it is open, and as the caller promises nobody closes it at this moment.
    unsafe { &*handle.parts.get() }.direct.as_ref()
}

/// A handle that is open, perhaps in the parent of this process.
///
/// # Safety
/// As [`direct`].
unsafe fn not_closed<'a>(pool: *const millpond_pool) -> Result<&'a millpond_pool, Failure> {
    // SAFETY: a handle stays for ever.
    let handle = unsafe { pool.as_ref() };
    let handle = handle
        .ok_or_else(|| Failure::invalid("the pool is null: open one with millpond_pool_open"))?;
    match handle.state.load(Ordering::Relaxed) {
        DIRECT | STACKED => Ok(handle),
        _ => Err(closed()),
    }
}

fn closed() -> Failure {
    let reason = "the pool is closed, or never was one: open one with millpond_pool_open";
    Failure::new(millpond_status::Closed, reason)
}

/// What a handle stands for, if it is open, and opened by this process.
///
/// # Safety
/// As [`direct`].
pub(crate) unsafe fn opened<'a>(
    pool: *const millpond_pool,
) -> Result<(&'a millpond_pool, &'a Open), Failure> {
    // SAFETY: the caller's promise.
    let handle = unsafe { not_closed(pool) }?;
    if handle.process.has_forked() {
        return Err(AllocError::Forked.into());
    }
    // SAFETY: as in `direct`.
    let parts = unsafe { &*handle.parts.get() };
    Ok((handle, parts.open.as_ref().ok_or_else(closed)?))
}

/// Whether a pool is open in the parent of this process. What a child frees stays there.
///
/// # Safety
/// As [`direct`].
pub(crate) unsafe fn is_parents(pool: *const millpond_pool) -> bool {
    // SAFETY: the caller's promise.
    unsafe { not_closed(pool) }.is_ok_and(|handle| handle.process.has_forked())
}

/// Runs a call on an open pool.
///
/// # Safety
/// As [`direct`].
pub(crate) unsafe fn with_pool(
    pool: *const millpond_pool,
    call: impl FnOnce(&Open) -> Result<(), Failure>,
) -> c_int {
    // SAFETY: the caller's promise.
    answer(|| call(unsafe { opened(pool) }?.1))
}

/// Opens a device and an allocator on it: `"sim:a100-80g"`, `"cuda:0"`, `"cuda:0/limit:4GiB/pool:slack=0.05"`. Without a device, or
/// with an empty text, the one that `MILLPOND_DEVICE` names; without an allocator, a pool. What is not said of a pool is as
/// `MILLPOND_CONF` says, or the default.
///
/// On a real device every stream given to a call must be a default stream, or one of the device's primary context that is alive, and
/// stay so until what was freed on it has passed.
///
/// # Safety
/// A string that ends with a zero, and memory for a pointer; either may be null, which is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_pool_open(
    device_and_stack: *const c_char,
    out: *mut *mut millpond_pool,
) -> c_int {
    answer(|| {
        host_memory_ffi::ensure()?;
        // SAFETY: the caller's promise.
        let (text, out) =
            unsafe { (text(device_and_stack, "device_and_stack")?, place(out, "out")?) };
        let open = Place::read(text)?.open()?;
        *out = std::ptr::from_ref(millpond_pool::leak(open, false)).cast_mut();
        Ok(())
    })
}

/// The pool of the whole process, opened by whoever asks first on the device that `MILLPOND_DEVICE` names, with the settings of
/// `MILLPOND_CONF`. It cannot be closed. A forked child has its own.
///
/// # Safety
/// Memory for a pointer, or null, which is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_pool_instance(out: *mut *mut millpond_pool) -> c_int {
    static INSTANCE: PerProcess<Mutex<Option<&millpond_pool>>> = PerProcess::new();
    answer(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { place(out, "out") }?;
        let mut instance = INSTANCE.get().lock();
        let handle = match *instance {
            Some(handle) => handle,
            None => {
                host_memory_ffi::ensure()?;
                let pool = Pool::instance(|| Place::read("")?.open_pool())?;
                instance.insert(millpond_pool::leak(Open::of_pool(pool), true))
            }
        };
        *out = std::ptr::from_ref(handle).cast_mut();
        Ok(())
    })
}

/// Closes a pool. Its memory goes back to the device, also under blocks that are still held; no other call with this pool may be under way.
/// Using it later is an error. In a forked child of the process that opened it, what is behind the handle stays as it is.
///
/// # Safety
/// Null, or a handle that [`millpond_pool_open`] gave out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_pool_close(pool: *mut millpond_pool) -> c_int {
    answer(|| {
        // SAFETY: the caller's promise.
        let handle = unsafe { not_closed(pool) }?;
        if handle.is_instance {
            return Err(Failure::invalid(
                "the process-wide pool is not closed: it ends with the process",
            ));
        }
        // Of two who close it at once, which they must not, one does.
        if handle.state.swap(CLOSED, Ordering::AcqRel) == CLOSED {
            return Ok(());
        }
        handle.know_pool(false);
        // SAFETY: the caller promises that no other call is under way, and none that comes later gets here.
        let parts = std::mem::take(unsafe { &mut *handle.parts.get() });
        if handle.process.has_forked() {
            // Other threads may have been changing them when the process was forked.
            std::mem::forget(parts);
        }
        Ok(())
    })
}
