//! What the hook itself asks of the driver: the real one, past every function of ours.

use std::ffi::c_void;

use crate::code::{Answer, Code};
use crate::layouts::{AccessDescription, AllocationProperties};
use crate::libraries_ffi::{Behind, DRIVER};

/// Each is a call of the driver's function of that symbol. Handles and addresses are numbers; pointers are references, or of memory
/// that the caller answers for.
macro_rules! calls {
    ($($(#[$doc:meta])* fn $name:ident = $symbol:literal ($($argument:ident: $type:ty),* $(,)?);)*) => {
        $(
            $(#[$doc])*
            pub(crate) fn $name($($argument: $type),*) -> Answer {
                static BEHIND: Behind = Behind::new(&DRIVER, concat!($symbol, "\0"));
                let address = BEHIND.address().ok_or(Code::NOT_FOUND)?;
                // SAFETY: the public signature of this symbol. References are of values that are there; addresses of memory
                // that is moved are of the books, which keep it until it is freed.
                Code::check(unsafe {
                    std::mem::transmute::<*const c_void, unsafe extern "C" fn($($type),*) -> i32>(address)($($argument),*)
                })
            }
        )*
    };
}

/// `CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT`, the distance of rows in the driver's own allocations with a pitch.
pub(crate) const TEXTURE_ALIGNMENT: i32 = 14;
/// `CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS`.
pub(crate) const CONCURRENT_MANAGED_ACCESS: i32 = 89;
/// `CU_MEM_ATTACH_GLOBAL`.
pub(crate) const ATTACH_GLOBAL: u32 = 1;
/// `CU_DEVICE_CPU`.
pub(crate) const HOST: i32 = -1;
/// `CU_STREAM_NON_BLOCKING`.
pub(crate) const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`.
pub(crate) const DISABLE_TIMING: u32 = 2;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
pub(crate) const RELAXED: i32 = 2;

calls! {
    fn device_uuid = "cuDeviceGetUuid_v2" (id: &mut [u8; 16], device: i32);
    fn device_uuid_v1 = "cuDeviceGetUuid" (id: &mut [u8; 16], device: i32);
    fn device_total_bytes = "cuDeviceTotalMem_v2" (bytes: &mut usize, device: i32);
    fn device_attribute = "cuDeviceGetAttribute" (value: &mut i32, attribute: i32, device: i32);
    fn primary_context_state = "cuDevicePrimaryCtxGetState" (device: i32, flags: &mut u32, active: &mut i32);

    fn context_device = "cuCtxGetDevice" (device: &mut i32);
    fn context_current = "cuCtxGetCurrent" (context: &mut u64);
    fn context_push = "cuCtxPushCurrent_v2" (context: u64);
    fn context_pop = "cuCtxPopCurrent_v2" (context: &mut u64);
    fn context_synchronize = "cuCtxSynchronize" ();
    /// The thread's own mode, whose old value comes back.
    fn exchange_capture_mode = "cuThreadExchangeStreamCaptureMode" (mode: &mut i32);

    fn stream_create = "cuStreamCreate" (stream: &mut u64, flags: u32);
    fn stream_synchronize = "cuStreamSynchronize" (stream: u64);
    fn stream_capture_status = "cuStreamIsCapturing" (stream: u64, status: &mut i32);

    fn event_create = "cuEventCreate" (event: &mut u64, flags: u32);
    fn event_record = "cuEventRecord" (event: u64, stream: u64);
    fn event_query = "cuEventQuery" (event: u64);
    fn event_destroy = "cuEventDestroy_v2" (event: u64);

    fn memory_info = "cuMemGetInfo_v2" (free: &mut usize, total: &mut usize);
    fn allocate_managed = "cuMemAllocManaged" (ptr: &mut u64, bytes: usize, flags: u32);
    fn free = "cuMemFree_v2" (ptr: u64);
    fn prefetch = "cuMemPrefetchAsync" (ptr: u64, bytes: usize, device: i32, stream: u64);

    fn graph_memory_attribute = "cuDeviceGetGraphMemAttribute" (device: i32, attribute: i32, value: &mut u64);
    fn pool_attribute = "cuMemPoolGetAttribute" (pool: u64, attribute: i32, value: &mut u64);

    fn physical_create = "cuMemCreate" (handle: &mut u64, bytes: usize, properties: &AllocationProperties, flags: u64);
    fn physical_release = "cuMemRelease" (handle: u64);
    fn map = "cuMemMap" (ptr: u64, bytes: usize, offset: usize, handle: u64, flags: u64);
    fn unmap = "cuMemUnmap" (ptr: u64, bytes: usize);
    fn set_access = "cuMemSetAccess" (ptr: u64, bytes: usize, access: *const AccessDescription, count: usize);
    fn reserve = "cuMemAddressReserve" (ptr: &mut u64, bytes: usize, align: usize, wish: u64, flags: u64);
    fn unreserve = "cuMemAddressFree" (ptr: u64, bytes: usize);

    fn allocate_pinned = "cuMemHostAlloc" (ptr: &mut u64, bytes: usize, flags: u32);
    fn free_pinned = "cuMemFreeHost" (ptr: u64);
    fn copy_to_host = "cuMemcpyDtoHAsync_v2" (to: u64, from: u64, bytes: usize, stream: u64);
    fn copy_to_device = "cuMemcpyHtoDAsync_v2" (to: u64, from: u64, bytes: usize, stream: u64);

    fn function_parameter = "cuFuncGetParamInfo" (function: u64, index: usize, offset: &mut usize, bytes: &mut usize);
    fn kernel_parameter = "cuKernelGetParamInfo" (kernel: u64, index: usize, offset: &mut usize, bytes: &mut usize);
}

/// Makes calls with a context current, and leaves the thread's own as it was.
pub(crate) fn with_context<T>(context: u64, calls: impl FnOnce() -> Answer<T>) -> Answer<T> {
    context_push(context)?;
    let answer = calls();
    let mut popped = 0;
    // An error of the calls says more, and there is nothing to do about a stack that is empty.
    let _ = context_pop(&mut popped);
    answer
}

/// Makes calls that must not disturb captures of this thread, nor be refused because of them.
pub(crate) fn beside_captures<T>(calls: impl FnOnce() -> T) -> T {
    let mut mode = RELAXED;
    let exchanged = exchange_capture_mode(&mut mode);
    let answer = calls();
    if exchanged.is_ok() {
        let _ = exchange_capture_mode(&mut mode);
    }
    answer
}

/// What is taken of the current context's device, by any program.
pub(crate) fn taken_bytes() -> Answer<u64> {
    let (mut free, mut total) = (0, 0);
    memory_info(&mut free, &mut total)?;
    Ok(total.saturating_sub(free) as u64)
}

/// `CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT`.
const GRAPH_MEMORY_RESERVED: i32 = 2;

/// What graphs of this process have of a device. Drivers before 11.4 know of no such memory.
pub(crate) fn graph_bytes(device: i32) -> u64 {
    let mut bytes = 0;
    graph_memory_attribute(device, GRAPH_MEMORY_RESERVED, &mut bytes).map_or(0, |()| bytes)
}

/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`.
const RELEASE_THRESHOLD: i32 = 4;

/// Whether it is a pool that the driver knows.
pub(crate) fn is_pool(pool: u64) -> bool {
    let mut threshold = 0;
    pool_attribute(pool, RELEASE_THRESHOLD, &mut threshold).is_ok()
}

/// The device of the current context.
pub(crate) fn current_device() -> Option<i32> {
    let mut device = 0;
    context_device(&mut device).ok().map(|()| device)
}

/// The current context, 0 if there is none.
pub(crate) fn current_context() -> u64 {
    let mut context = 0;
    let _ = context_current(&mut context);
    context
}
