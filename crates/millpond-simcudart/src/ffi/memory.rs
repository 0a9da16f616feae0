//! Memory: plain, pitched, pinned, managed; what a pointer is; handles for other processes.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use crate::abi::{DevicePtr, Event, IpcHandle, Location, PointerAttributes, Stream};
use crate::code::Code;
use crate::context_ffi;
use crate::driver_ffi::Driver;
use crate::program_memory_ffi::answer;

// CU_POINTER_ATTRIBUTE_…
const MEMORY_TYPE: c_int = 2;
const DEVICE_POINTER: c_int = 3;
const HOST_POINTER: c_int = 4;
const IS_MANAGED: c_int = 8;
const DEVICE_ORDINAL: c_int = 9;

// CU_MEMORYTYPE_…
const HOST: c_uint = 1;
const DEVICE: c_uint = 2;

// cudaMemoryType…
const KIND_UNREGISTERED: c_int = 0;
const KIND_HOST: c_int = 1;
const KIND_DEVICE: c_int = 2;
const KIND_MANAGED: c_int = 3;

entry_points! {
    context fn cudaMalloc(driver, out: *mut DevicePtr, bytes: usize) {
        // No bytes are no memory here, where the driver says that it is an error.
        if bytes == 0 { answer(out, 0) } else { driver.cuMemAlloc(out, bytes) }
    }
    context fn cudaMallocPitch(driver, out: *mut DevicePtr, pitch: *mut usize, width: usize, height: usize) {
        if width == 0 || height == 0 {
            answer(pitch, 0)?;
            return answer(out, 0);
        }
        // The element's size only decides the alignment of the pitch: four is the least that there is.
        driver.cuMemAllocPitch(out, pitch, width, height, 4)
    }
    context fn cudaMallocManaged(driver, out: *mut DevicePtr, bytes: usize, flags: c_uint) {
        driver.cuMemAllocManaged(out, bytes, flags)
    }
    context fn cudaFree(driver, pointer: DevicePtr) { if pointer == 0 { Ok(()) } else { driver.cuMemFree(pointer) } }
    context fn cudaMemGetInfo(driver, free: *mut usize, total: *mut usize) { driver.cuMemGetInfo(free, total) }

    context fn cudaMallocHost(driver, out: *mut *mut c_void, bytes: usize) { host_alloc(driver, out, bytes, 0) }
    context fn cudaHostAlloc(driver, out: *mut *mut c_void, bytes: usize, flags: c_uint) {
        host_alloc(driver, out, bytes, flags)
    }
    context fn cudaFreeHost(driver, pointer: *mut c_void) {
        if pointer.is_null() { Ok(()) } else { driver.cuMemFreeHost(pointer) }
    }
    context fn cudaHostRegister(driver, pointer: *mut c_void, bytes: usize, flags: c_uint) {
        driver.cuMemHostRegister(pointer, bytes, flags)
    }
    context fn cudaHostUnregister(driver, pointer: *mut c_void) { driver.cuMemHostUnregister(pointer) }
    context fn cudaHostGetDevicePointer(driver, out: *mut DevicePtr, pointer: *mut c_void, flags: c_uint) {
        driver.cuMemHostGetDevicePointer(out, pointer, flags)
    }
    context fn cudaHostGetFlags(driver, out: *mut c_uint, pointer: *mut c_void) { driver.cuMemHostGetFlags(out, pointer) }

    context fn cudaMemPrefetchAsync | cudaMemPrefetchAsync_ptsz(
        driver, pointer: DevicePtr, bytes: usize, device: c_int, stream: Stream,
    ) { driver.cuMemPrefetchAsync(pointer, bytes, device, stream) }
    context fn cudaMemPrefetchAsync_v2 | cudaMemPrefetchAsync_v2_ptsz(
        driver, pointer: DevicePtr, bytes: usize, location: Location, flags: c_uint, stream: Stream,
    ) { driver.cuMemPrefetchAsync_v2(pointer, bytes, location, flags, stream) }
    context fn cudaMemAdvise(driver, pointer: DevicePtr, bytes: usize, advice: c_int, device: c_int) {
        driver.cuMemAdvise(pointer, bytes, advice, device)
    }
    context fn cudaMemAdvise_v2(driver, pointer: DevicePtr, bytes: usize, advice: c_int, location: Location) {
        driver.cuMemAdvise_v2(pointer, bytes, advice, location)
    }
    context fn cudaMemRangeGetAttribute(
        driver, out: *mut c_void, out_bytes: usize, attribute: c_int, pointer: DevicePtr, bytes: usize,
    ) { driver.cuMemRangeGetAttribute(out, out_bytes, attribute, pointer, bytes) }
    context fn cudaMemRangeGetAttributes(
        driver, outs: *mut *mut c_void, sizes: *mut usize, attributes: *mut c_int, count: usize, pointer: DevicePtr, bytes: usize,
    ) { driver.cuMemRangeGetAttributes(outs, sizes, attributes, count, pointer, bytes) }

    context fn cudaPointerGetAttributes(driver, out: *mut PointerAttributes, pointer: DevicePtr) {
        answer(out, pointer_attributes(driver, pointer)?)
    }

    context fn cudaIpcGetMemHandle(driver, out: *mut IpcHandle, pointer: DevicePtr) { driver.cuIpcGetMemHandle(out, pointer) }
    context fn cudaIpcOpenMemHandle(driver, out: *mut DevicePtr, handle: IpcHandle, flags: c_uint) {
        driver.cuIpcOpenMemHandle(out, handle, flags)
    }
    context fn cudaIpcCloseMemHandle(driver, pointer: DevicePtr) { driver.cuIpcCloseMemHandle(pointer) }
    context fn cudaIpcGetEventHandle(driver, out: *mut IpcHandle, event: Event) { driver.cuIpcGetEventHandle(out, event) }
    context fn cudaIpcOpenEventHandle(driver, out: *mut Event, handle: IpcHandle) { driver.cuIpcOpenEventHandle(out, handle) }
}

/// # Safety
/// `out` is the program's, which the driver looks at.
unsafe fn host_alloc(
    driver: &Driver,
    out: *mut *mut c_void,
    bytes: usize,
    flags: c_uint,
) -> Result<(), Code> {
    if bytes == 0 {
        return answer(out, null_mut());
    }
    // SAFETY: the caller's promise.
    unsafe { driver.cuMemHostAlloc(out, bytes, flags) }
}

fn pointer_attributes(driver: &Driver, pointer: DevicePtr) -> Result<PointerAttributes, Code> {
    let (mut memory_type, mut managed, mut ordinal): (c_uint, c_uint, c_int) = (0, 0, 0);
    let (mut device_pointer, mut host_pointer): (DevicePtr, *mut c_void) = (0, null_mut());
    let mut asked = [MEMORY_TYPE, IS_MANAGED, DEVICE_ORDINAL, DEVICE_POINTER, HOST_POINTER];
    let mut outs: [*mut c_void; 5] = [
        (&raw mut memory_type).cast(),
        (&raw mut managed).cast(),
        (&raw mut ordinal).cast(),
        (&raw mut device_pointer).cast(),
        (&raw mut host_pointer).cast(),
    ];
    // SAFETY: five attributes, and a local of the right size for each.
    unsafe { driver.cuPointerGetAttributes(5, asked.as_mut_ptr(), outs.as_mut_ptr(), pointer) }?;
    let kind = match memory_type {
        _ if managed & 0xff != 0 => KIND_MANAGED,
        HOST => KIND_HOST,
        DEVICE => KIND_DEVICE,
        _ => KIND_UNREGISTERED,
    };
    if kind == KIND_UNREGISTERED {
        return Ok(PointerAttributes {
            kind,
            device: -2,
            device_pointer: null_mut(),
            host_pointer: pointer as *mut c_void,
        });
    }
    let device = if ordinal < 0 { context_ffi::device(driver)? } else { ordinal };
    Ok(PointerAttributes {
        kind,
        device,
        device_pointer: device_pointer as *mut c_void,
        host_pointer,
    })
}
