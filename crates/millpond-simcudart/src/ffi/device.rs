//! Devices: which there are, what they can do, which one a thread uses.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::code::Code;
use crate::driver_ffi::{DefaultStream, Driver};
use crate::program_memory_ffi::answer;
use crate::properties::{BYTES, BYTES_OF_11, NAME_BYTES, Properties, UUID_OFFSET};
use crate::{context_ffi, thread};

const SCHEDULING_FLAGS: c_uint = 0x07;
const MAP_HOST_FLAG: c_uint = 0x08;
const KNOWN_FLAGS: c_uint = SCHEDULING_FLAGS | MAP_HOST_FLAG | 0x10 | 0x80;

entry_points! {
    nothing fn cudaGetDeviceCount(_nothing, out: *mut c_int) {
        let mut count = 0;
        // That there is none is an answer, too.
        match context_ffi::driver(DefaultStream::Legacy) {
            Ok(driver) => driver.cuDeviceGetCount(&mut count)?,
            Err(Code::NO_DEVICE) => {}
            Err(code) => return Err(code),
        }
        answer(out, count)?;
        if count == 0 { Err(Code::NO_DEVICE) } else { Ok(()) }
    }

    driver fn cudaGetDevice(driver, out: *mut c_int) {
        // Programs ask all the time: the driver answers by itself where it can.
        if context_ffi::is_there(driver)? && driver.cuCtxGetDevice(out).is_ok() {
            return Ok(());
        }
        answer(out, context_ffi::device(driver)?)
    }

    driver fn cudaSetDevice(driver, device: c_int) {
        context_ffi::check_device(driver, device)?;
        thread::choose_device(device);
        context_ffi::make_current(driver, device)
    }

    driver fn cudaInitDevice(driver, device: c_int, device_flags: c_uint, flags: c_uint) {
        context_ffi::check_device(driver, device)?;
        // Bit 0 says that the device's flags count; there are no others.
        if flags & !1 != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if flags == 1 {
            driver.cuDevicePrimaryCtxSetFlags(device, device_flags)?;
        }
        context_ffi::primary(driver, device).map(drop)
    }

    driver fn cudaSetDeviceFlags(driver, flags: c_uint) {
        if flags & !KNOWN_FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        // The driver always maps host memory and does not take that flag.
        driver.cuDevicePrimaryCtxSetFlags(context_ffi::device(driver)?, flags & !MAP_HOST_FLAG)
    }

    driver fn cudaGetDeviceFlags(driver, out: *mut c_uint) {
        let mut active = 0;
        let mut flags = 0;
        driver.cuDevicePrimaryCtxGetState(context_ffi::device(driver)?, &mut flags, &mut active)?;
        answer(out, flags | MAP_HOST_FLAG)
    }

    nothing fn cudaSetValidDevices(_driver, devices: *mut c_int, count: c_int) {
        // A preference between devices when none was chosen. The first one is taken anyway.
        if count > 0 && devices.is_null() { Err(Code::INVALID_VALUE) } else { Ok(()) }
    }

    driver fn cudaChooseDevice(driver, out: *mut c_int, properties: *const c_void) {
        if properties.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        context_ffi::check_device(driver, 0)?;
        answer(out, 0)
    }

    driver fn cudaGetDeviceProperties_v2(driver, out: *mut u8, device: c_int) { properties(driver, out, device, BYTES) }
    driver fn cudaGetDeviceProperties(driver, out: *mut u8, device: c_int) { properties(driver, out, device, BYTES_OF_11) }

    driver fn cudaDeviceGetAttribute(driver, out: *mut c_int, attribute: c_int, device: c_int) {
        context_ffi::check_device(driver, device)?;
        driver.cuDeviceGetAttribute(out, attribute, device)
    }
    driver fn cudaDeviceGetPCIBusId(driver, out: *mut c_char, length: c_int, device: c_int) {
        context_ffi::check_device(driver, device)?;
        driver.cuDeviceGetPCIBusId(out, length, device)
    }
    driver fn cudaDeviceGetByPCIBusId(driver, out: *mut c_int, id: *const c_char) { driver.cuDeviceGetByPCIBusId(out, id) }
    driver fn cudaDeviceGetP2PAttribute(driver, out: *mut c_int, attribute: c_int, from: c_int, to: c_int) {
        driver.cuDeviceGetP2PAttribute(out, attribute, from, to)
    }
    driver fn cudaDeviceCanAccessPeer(driver, out: *mut c_int, device: c_int, peer: c_int) {
        context_ffi::check_device(driver, device)?;
        context_ffi::check_device(driver, peer)?;
        driver.cuDeviceCanAccessPeer(out, device, peer)
    }
    context fn cudaDeviceEnablePeerAccess(driver, peer: c_int, flags: c_uint) {
        context_ffi::check_device(driver, peer)?;
        driver.cuCtxEnablePeerAccess(context_ffi::primary(driver, peer)?, flags)
    }
    context fn cudaDeviceDisablePeerAccess(driver, peer: c_int) {
        context_ffi::check_device(driver, peer)?;
        driver.cuCtxDisablePeerAccess(context_ffi::primary(driver, peer)?)
    }

    context fn cudaDeviceSynchronize(driver) { driver.cuCtxSynchronize() }
    context fn cudaThreadSynchronize(driver) { driver.cuCtxSynchronize() }
    driver fn cudaDeviceReset(driver) { context_ffi::reset(driver) }
    driver fn cudaThreadExit(driver) { context_ffi::reset(driver) }
    context fn cudaDeviceSetLimit(driver, limit: c_int, value: usize) { driver.cuCtxSetLimit(limit, value) }
    context fn cudaThreadSetLimit(driver, limit: c_int, value: usize) { driver.cuCtxSetLimit(limit, value) }
    context fn cudaDeviceGetLimit(driver, out: *mut usize, limit: c_int) { driver.cuCtxGetLimit(out, limit) }
    context fn cudaThreadGetLimit(driver, out: *mut usize, limit: c_int) { driver.cuCtxGetLimit(out, limit) }
    context fn cudaDeviceGetCacheConfig(driver, out: *mut c_int) { driver.cuCtxGetCacheConfig(out) }
    context fn cudaThreadGetCacheConfig(driver, out: *mut c_int) { driver.cuCtxGetCacheConfig(out) }
    context fn cudaDeviceSetCacheConfig(driver, config: c_int) { driver.cuCtxSetCacheConfig(config) }
    context fn cudaThreadSetCacheConfig(driver, config: c_int) { driver.cuCtxSetCacheConfig(config) }
    context fn cudaDeviceGetSharedMemConfig(driver, out: *mut c_int) { driver.cuCtxGetSharedMemConfig(out) }
    context fn cudaDeviceSetSharedMemConfig(driver, config: c_int) { driver.cuCtxSetSharedMemConfig(config) }
    context fn cudaDeviceGetStreamPriorityRange(driver, least: *mut c_int, greatest: *mut c_int) {
        driver.cuCtxGetStreamPriorityRange(least, greatest)
    }
    context fn cudaCtxResetPersistingL2Cache(driver) { driver.cuCtxResetPersistingL2Cache() }
}

fn properties(driver: &Driver, out: *mut u8, device: c_int, bytes: usize) -> Result<(), Code> {
    context_ffi::check_device(driver, device)?;
    let mut total = 0;
    // SAFETY: the pointer is to a local.
    unsafe { driver.cuDeviceTotalMem(&mut total, device) }?;
    let mut properties = Properties::new(total);
    properties.fill(|attribute| {
        let mut value = 0;
        // SAFETY: the pointer is to a local.
        unsafe { driver.cuDeviceGetAttribute(&mut value, attribute, device) }.ok()?;
        Some(value)
    });
    let name = properties.0.as_mut_ptr();
    // SAFETY: the name's field has that many bytes.
    unsafe { driver.cuDeviceGetName(name.cast(), NAME_BYTES as c_int, device) }?;
    let uuid = properties.0[UUID_OFFSET..].as_mut_ptr();
    // SAFETY: the field has the 16 bytes of a UUID. A driver without it leaves zeros.
    let _ = unsafe { driver.cuDeviceGetUuid(uuid.cast(), device) };
    match bytes {
        BYTES => answer(out.cast(), properties.0),
        _ => answer(out.cast(), *properties.0.first_chunk::<BYTES_OF_11>().expect("it is shorter")),
    }
}
