//! Memory in stream order, and the pools that it comes from.

use std::ffi::{c_int, c_uint, c_void};

use crate::abi::{DevicePtr, Location, Pool, Stream};
use crate::context_ffi;
use crate::program_memory_ffi::answer;

entry_points! {
    context fn cudaMallocAsync | cudaMallocAsync_ptsz(driver, out: *mut DevicePtr, bytes: usize, stream: Stream) {
        if bytes == 0 { answer(out, 0) } else { driver.cuMemAllocAsync(out, bytes, stream) }
    }
    context fn cudaFreeAsync | cudaFreeAsync_ptsz(driver, pointer: DevicePtr, stream: Stream) {
        if pointer == 0 { Ok(()) } else { driver.cuMemFreeAsync(pointer, stream) }
    }
    context fn cudaMallocFromPoolAsync | cudaMallocFromPoolAsync_ptsz(
        driver, out: *mut DevicePtr, bytes: usize, pool: Pool, stream: Stream,
    ) { if bytes == 0 { answer(out, 0) } else { driver.cuMemAllocFromPoolAsync(out, bytes, pool, stream) } }

    context fn cudaDeviceGetDefaultMemPool(driver, out: *mut Pool, device: c_int) {
        context_ffi::check_device(driver, device)?;
        driver.cuDeviceGetDefaultMemPool(out, device)
    }
    context fn cudaDeviceGetMemPool(driver, out: *mut Pool, device: c_int) {
        context_ffi::check_device(driver, device)?;
        driver.cuDeviceGetMemPool(out, device)
    }
    context fn cudaDeviceSetMemPool(driver, device: c_int, pool: Pool) {
        context_ffi::check_device(driver, device)?;
        driver.cuDeviceSetMemPool(device, pool)
    }
    context fn cudaMemPoolCreate(driver, out: *mut Pool, properties: *const c_void) { driver.cuMemPoolCreate(out, properties) }
    context fn cudaMemPoolDestroy(driver, pool: Pool) { driver.cuMemPoolDestroy(pool) }
    context fn cudaMemPoolTrimTo(driver, pool: Pool, keep_bytes: usize) { driver.cuMemPoolTrimTo(pool, keep_bytes) }
    context fn cudaMemPoolSetAttribute(driver, pool: Pool, attribute: c_int, value: *mut c_void) {
        driver.cuMemPoolSetAttribute(pool, attribute, value)
    }
    context fn cudaMemPoolGetAttribute(driver, pool: Pool, attribute: c_int, value: *mut c_void) {
        driver.cuMemPoolGetAttribute(pool, attribute, value)
    }
    context fn cudaMemPoolSetAccess(driver, pool: Pool, access: *const c_void, count: usize) {
        driver.cuMemPoolSetAccess(pool, access, count)
    }
    context fn cudaMemPoolGetAccess(driver, flags: *mut c_int, pool: Pool, location: *mut Location) {
        driver.cuMemPoolGetAccess(flags, pool, location)
    }
    context fn cudaMemPoolExportToShareableHandle(driver, out: *mut c_void, pool: Pool, kind: c_int, flags: c_uint) {
        driver.cuMemPoolExportToShareableHandle(out, pool, kind, flags.into())
    }
    context fn cudaMemPoolImportFromShareableHandle(driver, out: *mut Pool, handle: *mut c_void, kind: c_int, flags: c_uint) {
        driver.cuMemPoolImportFromShareableHandle(out, handle, kind, flags.into())
    }
    context fn cudaMemPoolExportPointer(driver, out: *mut c_void, pointer: DevicePtr) {
        driver.cuMemPoolExportPointer(out, pointer)
    }
    context fn cudaMemPoolImportPointer(driver, out: *mut DevicePtr, pool: Pool, data: *mut c_void) {
        driver.cuMemPoolImportPointer(out, pool, data)
    }
    context fn cudaDeviceGraphMemTrim(driver, device: c_int) { driver.cuDeviceGraphMemTrim(device) }
    context fn cudaDeviceGetGraphMemAttribute(driver, device: c_int, attribute: c_int, value: *mut c_void) {
        driver.cuDeviceGetGraphMemAttribute(device, attribute, value)
    }
    context fn cudaDeviceSetGraphMemAttribute(driver, device: c_int, attribute: c_int, value: *mut c_void) {
        driver.cuDeviceSetGraphMemAttribute(device, attribute, value)
    }
}
