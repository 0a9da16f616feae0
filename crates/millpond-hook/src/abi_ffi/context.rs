//! Contexts: all of them have to be waited for before the device is another's.

use crate::client::Client;
use crate::driver_ffi as driver;
use crate::entry_ffi::entries;
use crate::memory;
use crate::parameters_ffi::forget_functions;
use crate::process::{self, know_context};

/// A context that the driver has made.
fn made(answer: i32, context: *const u64) -> i32 {
    if answer == 0 && !context.is_null() {
        // SAFETY: the driver has just written there.
        know_context(unsafe { *context });
    }
    answer
}

fn owner(context: u64) -> Option<&'static Client> {
    process::clients().find(|client| client.contexts.lock().knows(context))
}

/// Ends a context while nobody is moving memory in it. What was allocated in it is gone with it.
fn ended(context: u64, end: impl FnOnce() -> i32) -> i32 {
    let Some(client) = owner(context) else { return end() };
    let mut contexts = client.contexts.lock();
    let answer = end();
    if answer != 0 {
        return answer;
    }
    contexts.remove(context);
    drop(contexts);
    gone(client, context);
    answer
}

fn gone(client: &Client, context: u64) {
    memory::forget_context(client, context);
    forget_functions();
    if client.captures.gone(None, Some(context)) {
        client.tell_link(crate::link::Event::CapturesEnded);
    }
}

/// What may end a device's primary context: it has, if the driver says that it is not active.
fn perhaps_ended(device: i32, end: impl FnOnce() -> i32) -> i32 {
    let Some(client) = process::clients().find(|client| client.device.ordinal == device) else {
        return end();
    };
    let mut contexts = client.contexts.lock();
    let answer = end();
    let (mut flags, mut active) = (0, 0);
    let is_known = driver::primary_context_state(device, &mut flags, &mut active).is_ok();
    if answer != 0 || !is_known || active != 0 {
        return answer;
    }
    let Some(context) = contexts.primary() else { return answer };
    contexts.remove(context);
    drop(contexts);
    gone(client, context);
    answer
}

entries! {
    fn cuDevicePrimaryCtxRetain(context: *mut u64, device: i32) {
        let answer = made(real(context, device), context);
        if answer == 0 && let Some(client) = process::client(device) {
            // SAFETY: the driver has just written there.
            client.contexts.lock().set_primary(unsafe { *context });
        }
        answer
    }

    fn cuDevicePrimaryCtxRelease(device: i32) {
        perhaps_ended(device, || real(device))
    }

    fn cuDevicePrimaryCtxRelease_v2(device: i32) {
        perhaps_ended(device, || real(device))
    }

    fn cuDevicePrimaryCtxReset(device: i32) {
        perhaps_ended(device, || real(device))
    }

    fn cuDevicePrimaryCtxReset_v2(device: i32) {
        perhaps_ended(device, || real(device))
    }

    fn cuCtxCreate(context: *mut u64, flags: u32, device: i32) {
        made(real(context, flags, device), context)
    }

    fn cuCtxCreate_v2(context: *mut u64, flags: u32, device: i32) {
        made(real(context, flags, device), context)
    }

    fn cuCtxCreate_v3(context: *mut u64, affinity: u64, count: i32, flags: u32, device: i32) {
        made(real(context, affinity, count, flags, device), context)
    }

    fn cuCtxCreate_v4(context: *mut u64, parameters: u64, flags: u32, device: i32) {
        made(real(context, parameters, flags, device), context)
    }

    fn cuCtxDestroy(context: u64) {
        ended(context, || real(context))
    }

    fn cuCtxDestroy_v2(context: u64) {
        ended(context, || real(context))
    }

    fn cuCtxFromGreenCtx(context: *mut u64, green: u64) {
        made(real(context, green), context)
    }

    fn cuCtxSetCurrent(context: u64) {
        let answer = real(context);
        if answer == 0 {
            know_context(context);
        }
        answer
    }

    fn cuCtxPushCurrent_v2(context: u64) {
        let answer = real(context);
        if answer == 0 {
            know_context(context);
        }
        answer
    }

    fn cuModuleUnload(module: u64) {
        forget_functions();
        real(module)
    }

    fn cuLibraryUnload(library: u64) {
        forget_functions();
        real(library)
    }
}
