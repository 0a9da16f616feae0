//! Calls that give the device work: what they name is noted, and they pass the gate.
//!
//! A call of a process on several devices passes the gate of each whose memory it names, for that memory may be anywhere while the gate
//! is closed.

use crate::captures::THREADS_OWN;
use crate::client::Client;
use crate::parameters_ffi::Passed;
use crate::process::{clients, current_client, enter_all, is_on_one_device};
use crate::touches::Owner;

/// Of calls without a stream: they wait for what they do, and cannot be captured.
pub(crate) const NO_STREAM: u64 = u64::MAX;

/// The stream that a handle means.
#[inline]
pub(crate) fn stream_of(handle: u64, per_thread: bool) -> u64 {
    if handle == 0 && per_thread { THREADS_OWN } else { handle }
}

#[inline]
fn is_captured(client: &Client, stream: u64) -> bool {
    stream != NO_STREAM && client.captures.has(stream)
}

/// A call on a stream that names addresses.
#[inline]
pub(crate) fn gated<const N: usize>(
    stream: u64,
    named: [u64; N],
    call: impl FnOnce() -> i32,
) -> i32 {
    let owns = |client: &Client| named.iter().any(|address| client.owns(*address));
    let name = |client: &Client, is_captured| {
        named.iter().for_each(|address| client.touch(*address, is_captured));
    };
    pass(stream, owns, name, call)
}

/// A launch of a kernel.
#[inline]
pub(crate) fn launched(
    stream: u64,
    function: u64,
    passed: Passed,
    call: impl FnOnce() -> i32,
) -> i32 {
    let owns = |client: &Client| {
        let mut owns = false;
        let known =
            passed.each_word(function, |word| owns |= client.touches.owner(word) != Owner::Nobody);
        // Of parameters that nobody knows, memory may be meant that other devices can reach.
        owns || !known && client.is_reachable_by_others()
    };
    let name = |client: &Client, is_captured| {
        let known = passed.each_word(function, |word| client.touch(word, is_captured));
        if !known {
            client.touch_everything(is_captured);
        }
    };
    pass(stream, owns, name, call)
}

/// A call that may use anything.
pub(crate) fn unknown(stream: u64, call: impl FnOnce() -> i32) -> i32 {
    pass(stream, |_| true, Client::touch_everything, call)
}

/// A launch of a graph. Launched into a capture it becomes part of what is captured.
pub(crate) fn graph_launched(stream: u64, executable: u64, call: impl FnOnce() -> i32) -> i32 {
    let Some(current) = current_client() else { return call() };
    let uses = current.captures.used_by(executable);
    let name = |client: &Client, is_captured| match &uses.allocations {
        Some(used) if std::ptr::eq(client, current) => {
            used.iter().for_each(|id| client.touch_allocation(*id, is_captured));
        }
        _ => client.touch_everything(is_captured),
    };
    pass(stream, |client| uses.has_memory_of(client.device.ordinal), name, call)
}

/// Passes the gate of the current context's device, and of every other that a call concerns.
#[inline]
fn pass(
    stream: u64,
    concerns: impl Fn(&Client) -> bool,
    name: impl Fn(&Client, bool),
    call: impl FnOnce() -> i32,
) -> i32 {
    let current = current_client();
    if !is_on_one_device() {
        return pass_several(current, stream, concerns, name, call);
    }
    match current {
        Some(client) => pass_one(client, stream, name, call),
        None => call(),
    }
}

#[inline]
fn pass_one(
    client: &Client,
    stream: u64,
    name: impl Fn(&Client, bool),
    call: impl FnOnce() -> i32,
) -> i32 {
    let is_captured = is_captured(client, stream);
    client.pass(is_captured, || name(client, is_captured), call)
}

#[cold]
fn pass_several(
    current: Option<&'static Client>,
    stream: u64,
    concerns: impl Fn(&Client) -> bool,
    name: impl Fn(&Client, bool),
    call: impl FnOnce() -> i32,
) -> i32 {
    let is_current = |client: &Client| current.is_some_and(|current| std::ptr::eq(current, client));
    let all: Vec<_> = clients().filter(|client| is_current(client) || concerns(client)).collect();
    match (all.as_slice(), current) {
        ([], _) => return call(),
        ([client], _) => return pass_one(client, stream, name, call),
        (_, Some(current)) if is_captured(current, stream) => {
            for client in &all {
                name(client, is_current(client));
                current.captures.record_device(client.device.ordinal);
            }
            return call();
        }
        _ => {}
    }
    all.iter().for_each(|client| name(client, false));
    match enter_all(&all) {
        Ok(_inside) => {
            // They may be turns later.
            all.iter().for_each(|client| name(client, false));
            call()
        }
        Err(code) => code.0,
    }
}
