//! What a call must have before it begins: nothing, the driver, or a context that is current in its thread.
//!
//! A thread that has no context gets the primary one of its chosen device with its first call that needs one. A context that
//! the program made current itself, through the driver, is left alone and used.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::abi::Context;
use crate::code::Code;
use crate::driver_ffi::{DefaultStream, Driver, loaded};
use crate::thread;

/// The primary contexts that were retained, by device. A handle stays listed when its device is reset: threads may still have
/// it as their current one.
static PRIMARY: Mutex<BTreeMap<c_int, Primary>> = Mutex::new(BTreeMap::new());
/// Whether any device was ever reset, which the common path must know without a lock.
static ANY_RESET: AtomicBool = AtomicBool::new(false);

struct Primary {
    handle: usize,
    retained: bool,
}

pub(crate) fn nothing(_: DefaultStream) -> Result<(), Code> {
    Ok(())
}

pub(crate) fn driver(default_stream: DefaultStream) -> Result<&'static Driver, Code> {
    loaded(default_stream)
}

pub(crate) fn context(default_stream: DefaultStream) -> Result<&'static Driver, Code> {
    let driver = loaded(default_stream)?;
    let current = current(driver)?;
    if current.is_null() {
        make_current(driver, thread::device())?;
    } else if ANY_RESET.load(Ordering::Relaxed)
        && let Some(device) = reset_device_of(current)
    {
        make_current(driver, device)?;
    }
    Ok(driver)
}

/// Whether the thread has a context already.
pub(crate) fn is_there(driver: &Driver) -> Result<bool, Code> {
    current(driver).map(|context| !context.is_null())
}

/// The device of the thread's context, or of the one that it would get.
pub(crate) fn device(driver: &Driver) -> Result<c_int, Code> {
    if current(driver)?.is_null() {
        return Ok(thread::device());
    }
    let mut device = 0;
    // SAFETY: the pointer is to a local.
    match unsafe { driver.cuCtxGetDevice(&mut device) } {
        Ok(()) => Ok(device),
        // The context is one whose device was reset.
        Err(_) => Ok(thread::device()),
    }
}

/// Refuses a device that there is not.
pub(crate) fn check_device(driver: &Driver, device: c_int) -> Result<(), Code> {
    let mut count = 0;
    // SAFETY: the pointer is to a local.
    unsafe { driver.cuDeviceGetCount(&mut count) }?;
    if (0..count).contains(&device) { Ok(()) } else { Err(Code::INVALID_DEVICE) }
}

/// The primary context of a device, made if need be.
pub(crate) fn primary(driver: &Driver, device: c_int) -> Result<Context, Code> {
    let mut contexts = PRIMARY.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(primary) = contexts.get(&device).filter(|primary| primary.retained) {
        return Ok(primary.handle as Context);
    }
    let mut handle = null_mut();
    // SAFETY: the pointer is to a local.
    unsafe { driver.cuDevicePrimaryCtxRetain(&mut handle, device) }?;
    contexts.insert(device, Primary { handle: handle as usize, retained: true });
    Ok(handle)
}

pub(crate) fn make_current(driver: &Driver, device: c_int) -> Result<(), Code> {
    let context = primary(driver, device)?;
    // SAFETY: the context is one that the driver gave.
    unsafe { driver.cuCtxSetCurrent(context) }
}

/// Resets the device of the calling thread. Whoever uses it next gets a new context.
pub(crate) fn reset(driver: &Driver) -> Result<(), Code> {
    let device = device(driver)?;
    let mut contexts = PRIMARY.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // SAFETY: takes no pointers.
    unsafe { driver.cuDevicePrimaryCtxReset(device) }?;
    if let Some(primary) = contexts.get_mut(&device) {
        primary.retained = false;
        ANY_RESET.store(true, Ordering::Relaxed);
    }
    Ok(())
}

fn current(driver: &Driver) -> Result<Context, Code> {
    let mut current = null_mut();
    // SAFETY: the pointer is to a local.
    unsafe { driver.cuCtxGetCurrent(&mut current) }?;
    Ok(current)
}

fn reset_device_of(context: Context) -> Option<c_int> {
    let contexts = PRIMARY.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let found = contexts
        .iter()
        .find(|(_, primary)| primary.handle == context as usize && !primary.retained);
    found.map(|(&device, _)| device)
}
