//! Contexts.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use millpond::driver::Driver;

use crate::code_number::{Answer, Code};
use crate::context::{self, ContextKind};
use crate::entry::entries;
use crate::raw_pointers::Out;
use crate::world::{Current, current, world};

/// What `cuCtxGetApiVersion` says of contexts.
const API_VERSION: u32 = 3020;
/// CUDA's priorities go from 0, the least, to this.
const GREATEST_PRIORITY: i32 = -5;

fn create(out: Out<u64>, flags: u32, device: i32) -> Answer {
    out.check()?;
    let world = world()?;
    let context = world.device(device)?.create_context(flags);
    let handle = world.know(&context);
    context::push(context);
    out.set(handle)
}

fn synchronize(current: &Current) -> Answer {
    current.device.host_calls.wait_for_all(current.gpu());
    Ok(current.gpu().synchronize_device()?)
}

entries! {
    fn cuCtxCreate_v2(context: Out<u64>, flags: u32, device: i32) {
        create(context, flags, device)
    }

    /// Execution affinity has no meaning here, and none may be asked for.
    fn cuCtxCreate_v3(context: Out<u64>, _affinity: *const c_void, count: i32, flags: u32, device: i32) {
        if count != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        create(context, flags, device)
    }

    fn cuCtxCreate_v4(context: Out<u64>, parameters: *const c_void, flags: u32, device: i32) {
        if !parameters.is_null() {
            return Err(Code::NOT_SUPPORTED);
        }
        create(context, flags, device)
    }

    fn cuCtxDestroy_v2(handle: u64) {
        let world = world()?;
        let ended = world.context(handle)?;
        if ended.kind == ContextKind::Primary {
            return Err(Code::INVALID_CONTEXT);
        }
        if context::current().is_some_and(|current| current.handle == handle) {
            context::pop();
        }
        world.devices[ended.device].destroy_context(&ended);
        world.contexts.write().remove(&handle);
        Ok(())
    }

    fn cuCtxGetCurrent(out: Out<u64>) {
        world()?;
        out.set(context::current().map_or(0, |current| current.handle))
    }

    fn cuCtxSetCurrent(handle: u64) {
        let world = world()?;
        let new = if handle == 0 { None } else { Some(world.context(handle)?) };
        context::set(new);
        Ok(())
    }

    fn cuCtxPushCurrent_v2(handle: u64) {
        context::push(world()?.context(handle)?);
        Ok(())
    }

    fn cuCtxPopCurrent_v2(out: Out<u64>) {
        world()?;
        let popped = context::pop().ok_or(Code::INVALID_CONTEXT)?;
        out.set_if_wanted(popped.handle)
    }

    fn cuCtxGetDevice(device: Out<i32>) {
        device.check()?;
        device.set(current()?.device.ordinal as i32)
    }

    fn cuCtxGetDevice_v2(device: Out<i32>, handle: u64) {
        device.check()?;
        if handle == 0 {
            return device.set(current()?.device.ordinal as i32);
        }
        device.set(world()?.context(handle)?.device as i32)
    }

    fn cuCtxGetFlags(flags: Out<u32>) {
        flags.check()?;
        flags.set(current()?.context.flags.load(Ordering::Relaxed))
    }

    fn cuCtxSetFlags(flags: u32) {
        current()?.context.flags.store(flags, Ordering::Relaxed);
        Ok(())
    }

    fn cuCtxGetId(handle: u64, id: Out<u64>) {
        id.check()?;
        let handle = if handle == 0 { current()?.context.handle } else { handle };
        id.set(world()?.context(handle)?.handle)
    }

    fn cuCtxSynchronize() {
        synchronize(&current()?)
    }

    fn cuCtxSynchronize_v2(handle: u64) {
        if handle == 0 {
            return synchronize(&current()?);
        }
        let world = world()?;
        let device = &world.devices[world.context(handle)?.device];
        device.host_calls.wait_for_all(&device.gpu);
        Ok(device.gpu.synchronize_device()?)
    }

    fn cuCtxGetLimit(value: Out<usize>, limit: i32) {
        value.check()?;
        value.set(current()?.context.limit(limit)?.load(Ordering::Relaxed) as usize)
    }

    fn cuCtxSetLimit(limit: i32, value: usize) {
        current()?.context.limit(limit)?.store(value as u64, Ordering::Relaxed);
        Ok(())
    }

    fn cuCtxGetApiVersion(handle: u64, version: Out<u32>) {
        version.check()?;
        if handle == 0 {
            current()?;
        } else {
            world()?.context(handle)?;
        }
        version.set(API_VERSION)
    }

    fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) {
        current()?;
        least.set_if_wanted(0)?;
        greatest.set_if_wanted(GREATEST_PRIORITY)
    }

    fn cuCtxGetCacheConfig(config: Out<i32>) {
        config.check()?;
        current()?;
        config.set(0)
    }

    fn cuCtxSetCacheConfig(config: i32) {
        current()?;
        if (0..=3).contains(&config) { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }

    fn cuCtxGetSharedMemConfig(config: Out<i32>) {
        config.check()?;
        current()?;
        config.set(1)
    }

    fn cuCtxSetSharedMemConfig(config: i32) {
        current()?;
        if (0..=2).contains(&config) { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }

    fn cuCtxResetPersistingL2Cache() {
        current().map(drop)
    }
}
