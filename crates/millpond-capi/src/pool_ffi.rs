//! A pool's handle: how it is opened and closed, and what makes sure that it is one.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicU32, Ordering};

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

/// All handles that ever were.
static HANDLES: Mutex<Vec<&millpond_pool>> = Mutex::new(Vec::new());

impl millpond_pool {
    fn leak(open: Open, is_instance: bool) -> &'static millpond_pool {
        let state = if open.bare_pool().is_some() { DIRECT } else { STACKED };
        let parts = Parts { direct: open.bare_pool().cloned(), open: Some(open) };
        let (state, parts) = (AtomicU32::new(state), UnsafeCell::new(parts));
        let handle = Box::leak(Box::new(millpond_pool { state, parts, is_instance }));
        HANDLES.lock().push(handle);
        handle.know_pool(true);
        handle
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

/// What a handle stands for, if it is open.
///
/// # Safety
/// As [`direct`].
pub(crate) unsafe fn opened<'a>(
    pool: *const millpond_pool,
) -> Result<(&'a millpond_pool, &'a Open), Failure> {
    // SAFETY: a handle stays for ever.
    let handle = unsafe { pool.as_ref() };
    let handle = handle
        .ok_or_else(|| Failure::invalid("the pool is null: open one with millpond_pool_open"))?;
    let closed = || {
        let reason = "the pool is closed, or never was one: open one with millpond_pool_open";
        Failure::new(millpond_status::Closed, reason)
    };
    if !matches!(handle.state.load(Ordering::Relaxed), DIRECT | STACKED) {
        return Err(closed());
    }
    // SAFETY: as in `direct`.
    let parts = unsafe { &*handle.parts.get() };
    Ok((handle, parts.open.as_ref().ok_or_else(closed)?))
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
/// `MILLPOND_CONF`. It cannot be closed.
///
/// # Safety
/// Memory for a pointer, or null, which is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_pool_instance(out: *mut *mut millpond_pool) -> c_int {
    static INSTANCE: Mutex<Option<(u32, &millpond_pool)>> = Mutex::new(None);
    answer(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { place(out, "out") }?;
        let mut instance = INSTANCE.lock();
        // A forked child has a pool of its own.
        let process = std::process::id();
        let handle = match *instance {
            Some((of, handle)) if of == process => handle,
            _ => {
                host_memory_ffi::ensure()?;
                let pool = Pool::instance(|| Place::read("")?.open_pool())?;
                millpond_pool::leak(Open::of_pool(pool), true)
            }
        };
        *instance = Some((process, handle));
        *out = std::ptr::from_ref(handle).cast_mut();
        Ok(())
    })
}

/// Closes a pool. Its memory goes back to the device, also under blocks that are still held; no other call with this pool may be under way.
/// Using it later is an error.
///
/// # Safety
/// Null, or a handle that [`millpond_pool_open`] gave out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_pool_close(pool: *mut millpond_pool) -> c_int {
    answer(|| {
        // SAFETY: the caller's promise.
        let (handle, _) = unsafe { opened(pool) }?;
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
        drop(std::mem::take(unsafe { &mut *handle.parts.get() }));
        Ok(())
    })
}
