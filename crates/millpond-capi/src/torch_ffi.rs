//! What PyTorch calls: the functions of its pluggable allocator.
//!
//! ```text
//!   torch.cuda.memory.CUDAPluggableAllocator(libmillpond.so, "millpond_torch_malloc", "millpond_torch_free")
//!        .allocator().set_…_fn(address of millpond_torch_…)
//! ```
//!
//! `millpond.torch.enable()` of the Python package does all of it. Each device has a pool of its own, made with the first block.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::Arc;

use millpond::driver::{DevicePtr, Stream};
use millpond::pool::Region;

use crate::boundary_ffi::{answer, failed, panicked, place, tell};
use crate::cxx_exception_ffi::{Thrown, throw};
use crate::cxx_function_ffi::{CxxFunction, StreamFilter};
use crate::host_memory_ffi;
use crate::last_error_ffi::millpond_last_error;
use crate::pool_ffi::millpond_pool;
use crate::status::{Failure, millpond_status};
use crate::torch_device::{TorchDevice, block_around, place_of, record_stream};
use crate::torch_private_pools::Filter;

/// `c10::MempoolId_t`, a `std::pair` of C++, which is passed as this is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct millpond_torch_private_pool {
    /// Of a graph.
    pub first: u64,
    /// Of a user.
    pub second: u64,
}

impl millpond_torch_private_pool {
    fn name(self) -> (u64, u64) {
        (self.first, self.second)
    }
}

#[inline]
fn stream_of(stream: *mut c_void) -> Stream {
    Stream::from_raw(stream as u64)
}

/// Runs what may fail, and then throws what went wrong into PyTorch. Answers `None` if there is no PyTorch to be thrown into.
///
/// # Safety
/// Whoever calls has nothing that must be dropped, and is called by C++.
#[inline]
unsafe fn thrown<T>(call: impl FnOnce() -> Result<T, Failure>) -> Option<T> {
    let thrown = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(answer)) => return Some(answer),
        Ok(Err(failure)) => {
            failed(&failure);
            match failure.status {
                millpond_status::OutOfMemory => Thrown::OutOfMemory,
                _ => Thrown::Other,
            }
        }
        Err(_) => {
            panicked();
            Thrown::Other
        }
    };
    // SAFETY: the text stays until this thread fails again; the caller's promise.
    unsafe { throw(thrown, millpond_last_error()) };
    None
}

/// What PyTorch's users know an exception by.
#[cold]
fn explained(failure: Failure, device: c_int) -> Failure {
    let begin = match failure.status {
        millpond_status::OutOfMemory => "CUDA out of memory. ",
        _ => "",
    };
    let reason = format!("{begin}Millpond on cuda:{device}: {}", failure.reason);
    Failure { reason, ..failure }
}

fn device_of(number: c_int) -> Result<&'static TorchDevice, Failure> {
    TorchDevice::of(number).map_err(|failure| explained(failure, number))
}

/// For PyTorch: a block. A failure is thrown as PyTorch's own exception (`torch.OutOfMemoryError` if memory is out), since PyTorch
/// takes null for memory; without PyTorch it is null, and `millpond_last_error()` says why.
///
/// # Safety
/// A stream of the device. Called by PyTorch, or by what can be unwound by a C++ exception if PyTorch is there.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn millpond_torch_malloc(
    size: isize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { allocate(size, device, stream) }.map_or(null_mut(), |block| block.0 as *mut c_void)
}

/// # Safety
/// As [`millpond_torch_malloc`].
#[inline]
unsafe fn allocate(size: isize, number: c_int, stream: *mut c_void) -> Option<DevicePtr> {
    if size == 0 {
        // PyTorch asks for it, and does not count it.
        return Some(DevicePtr::NULL);
    }
    let stream = stream_of(stream);
    // SAFETY: the caller's promise; nothing here has to be dropped.
    let device = unsafe { thrown(|| device_of(number)) }?;
    // Here and not below: it calls a function of PyTorch's, which may throw through it.
    let private = device.private_pools.find(stream);
    let allocate = |from: Option<Arc<Region>>| {
        host_memory_ffi::ensure()?;
        let bytes = usize::try_from(size)
            .map_err(|_| Failure::invalid(format!("{size} bytes asked for: that is no size")))?;
        device.allocate(bytes, stream, from.as_ref()).map_err(Failure::from)
    };
    // SAFETY: the caller's promise; the private pool has moved into the call.
    unsafe { thrown(move || allocate(private).map_err(|failure| explained(failure, number))) }
}

/// For PyTorch: takes a block back, at this point of the stream that it was allocated on. Never fails: what would be an error is
/// kept for `millpond_last_error()`. In a forked child it does nothing.
///
/// # Safety
/// A stream of the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_free(
    ptr: *mut c_void,
    size: isize,
    device: c_int,
    stream: *mut c_void,
) {
    let free = || {
        let block = DevicePtr(ptr as u64);
        TorchDevice::of(device)?.deallocate(block, size.max(0) as usize, stream_of(stream))?;
        Ok(())
    };
    match catch_unwind(AssertUnwindSafe(free)) {
        Ok(Ok(())) => {}
        Ok(Err(failure)) => drop(failed(&failure)),
        Err(_) => drop(panicked()),
    }
}

/// For PyTorch: a block is used on another stream, too.
///
/// # Safety
/// A stream of the block's device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_record_stream(ptr: *mut c_void, stream: *mut c_void) {
    answer(|| {
        let recorded = record_stream(DevicePtr(ptr as u64), stream_of(stream));
        recorded.map_err(|error| Failure::no_block("record_stream", error))
    });
}

/// For PyTorch: the block around an address, and its size. The address itself, if it is in no block.
///
/// # Safety
/// Memory for the size, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_base_alloc(
    ptr: *mut c_void,
    size: *mut usize,
) -> *mut c_void {
    let mut base = ptr;
    answer(|| {
        let (block, bytes) =
            block_around(DevicePtr(ptr as u64)).unwrap_or((DevicePtr(ptr as u64), 0));
        base = block.0 as *mut c_void;
        // SAFETY: the caller's promise.
        unsafe { tell(size, bytes) };
        Ok(())
    });
    base
}

/// For PyTorch: how much of the device's memory may be reserved, from 0 to 1; with 1 there is no limit but the device. A failure is
/// thrown as from `millpond_torch_malloc`.
///
/// # Safety
/// As [`millpond_torch_malloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn millpond_torch_memory_fraction(fraction: f64, device: c_int) {
    // SAFETY: the caller's promise.
    unsafe { thrown(|| device_of(device)?.limit_to(fraction)) };
}

/// For PyTorch: `torch.cuda.empty_cache()`. Gives everything back that nobody holds, on every device.
#[unsafe(no_mangle)]
pub extern "C" fn millpond_torch_reset() {
    answer(|| {
        TorchDevice::opened().for_each(TorchDevice::give_back);
        Ok(())
    });
}

/// For PyTorch: it is about to use CUDA. Pools are made with their first blocks; what is said here is that `MILLPOND_CONF` makes no sense,
/// by an exception as from `millpond_torch_malloc`.
///
/// # Safety
/// As [`millpond_torch_malloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn millpond_torch_init(_device_count: c_int) {
    // SAFETY: the caller's promise.
    unsafe { thrown(|| place_of(0).map(drop)) };
}

/// For PyTorch: from now on what a filter (a `std::function<bool(cudaStream_t)>` of libstdc++) accepts comes from a private pool: that of a
/// graph which is about to be captured. A failure is thrown as from `millpond_torch_malloc`.
///
/// # Safety
/// As [`millpond_torch_malloc`]. The filter is null, or such a function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn millpond_torch_begin_allocate_to_pool(
    device: c_int,
    pool: millpond_torch_private_pool,
    filter: *const c_void,
) {
    let begin = || {
        // SAFETY: the caller's promise.
        let filter = unsafe { StreamFilter::copy_of(filter.cast::<CxxFunction>()) };
        let filter: Filter = match filter {
            Some(filter) => Arc::new(move |stream| filter.accepts(stream.0 as *mut c_void)),
            None => Arc::new(|_| true),
        };
        let device = device_of(device)?;
        Ok(device.private_pools.begin(device.pool(), pool.name(), filter)?)
    };
    // SAFETY: the caller's promise.
    unsafe { thrown(begin) };
}

/// For PyTorch: no more comes from the private pool; the capture has ended.
#[unsafe(no_mangle)]
pub extern "C" fn millpond_torch_end_allocate_to_pool(
    device: c_int,
    pool: millpond_torch_private_pool,
) {
    answer(|| {
        TorchDevice::of(device)?.private_pools.end(pool.name());
        Ok(())
    });
}

/// For PyTorch: a graph of the private pool is gone. The memory goes to all when the last one is, and memory is needed or
/// `torch.cuda.empty_cache()` called.
#[unsafe(no_mangle)]
pub extern "C" fn millpond_torch_release_pool(device: c_int, pool: millpond_torch_private_pool) {
    answer(|| {
        TorchDevice::of(device)?.private_pools.release(pool.name());
        Ok(())
    });
}

/// The pool that PyTorch has on a device, for all other functions; made now if there is none. It is not closed.
///
/// # Safety
/// Memory for a pointer, or null, which is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_pool(device: c_int, out: *mut *mut millpond_pool) -> c_int {
    answer(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { place(out, "out") }?;
        *out = std::ptr::from_ref(TorchDevice::of(device)?.handle()).cast_mut();
        Ok(())
    })
}

/// Whether PyTorch has a pool on a device yet: 1 or 0. Asking makes none.
#[unsafe(no_mangle)]
pub extern "C" fn millpond_torch_has_pool(device: c_int) -> c_int {
    c_int::from(TorchDevice::if_opened(device).is_some())
}

/// The most bytes that PyTorch's tensors on a device held since the last `millpond_torch_reset_peak`. Exact, where that of
/// `millpond_get_stats` is a sum over threads.
///
/// # Safety
/// Memory for the answer, or null, which is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_peak_bytes(device: c_int, out: *mut usize) -> c_int {
    answer(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { place(out, "out") }?;
        *out = TorchDevice::of(device)?.live().peak();
        Ok(())
    })
}

/// Forgets that peak.
#[unsafe(no_mangle)]
pub extern "C" fn millpond_torch_reset_peak(device: c_int) -> c_int {
    answer(|| {
        TorchDevice::of(device)?.live().forget_peak();
        Ok(())
    })
}
