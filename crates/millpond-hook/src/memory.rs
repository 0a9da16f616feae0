//! Allocations of the program that become managed memory, and their end.

use crate::arrays;
use crate::books::{Managed, Place};
use crate::claims::Kind;
use crate::client::Client;
use crate::code::{Answer, Code};
use crate::driver_ffi as driver;
use crate::process::clients;
use crate::stripe::stripe;
use crate::waiting_frees::MANY;

/// New memory in the current context. `disguised`: the program asked for device memory.
pub(crate) fn allocate(client: &Client, bytes: usize, flags: u32, disguised: bool) -> Answer<u64> {
    let kind = kind(disguised);
    claim(client, kind, bytes as u64)?;
    let mut start = 0;
    if let Err(code) = driver::allocate_managed(&mut start, bytes, flags) {
        client.unclaim(kind, bytes as u64);
        return Err(code);
    }
    let context = driver::current_context();
    let managed = Managed::new(start, bytes as u64, context, disguised, &client.touches);
    client.books.lock().managed.insert(start, managed);
    client.contexts.lock().add(context);
    place_on_device(client, start, bytes, context);
    Ok(start)
}

/// What the program asked for.
fn kind(disguised: bool) -> Kind {
    if disguised { Kind::Device } else { Kind::Managed }
}

/// What was freed in the order of streams counts until it really is.
fn claim(client: &Client, kind: Kind, bytes: u64) -> Answer {
    if client.frees.count() > MANY {
        drain_frees(client);
    }
    client.claim(kind, bytes).or_else(|code| {
        if client.frees.count() == 0 {
            return Err(code);
        }
        drain_frees(client);
        client.claim(kind, bytes)
    })
}

/// Device memory is on the device from the beginning; managed memory would be faulted in where it is first used. Only if the device
/// is ours and has room.
fn place_on_device(client: &Client, start: u64, bytes: usize, context: u64) {
    if !client.prefetches() {
        return;
    }
    let Some(_inside) = client.gate.try_enter(stripe()) else { return };
    let resident = client.books.lock().traffic.resident_bytes;
    if resident + bytes as u64 > client.room.load(std::sync::atomic::Ordering::Relaxed) {
        return;
    }
    let placed = driver::beside_captures(|| {
        let stream = client.contexts.lock().stream_in(context)?;
        driver::prefetch(start, bytes, client.device.ordinal, stream)
    });
    if placed.is_ok() {
        let mut books = client.books.lock();
        let parts = books.managed.get(&start).map_or(0, |managed| managed.parts.len());
        (0..parts).for_each(|part| books.moved(start, part, Place::In));
    }
}

/// The client whose managed memory begins at an address.
fn owner(start: u64) -> Option<&'static Client> {
    clients().find(|client| client.books.lock().managed.contains_key(&start))
}

/// Memory that the program frees now. It leaves the books first, for then its address may be another's, and comes back if the driver
/// refuses.
pub(crate) fn free(start: u64, call: impl FnOnce() -> i32) -> i32 {
    let Some(client) = owner(start) else { return call() };
    if client.frees.has(start) {
        return Code::INVALID_VALUE.0;
    }
    let Some(managed) = take(client, start) else { return call() };
    let answer = call();
    if answer == Code::SUCCESS.0 {
        forgotten(client, start, &managed);
    } else {
        let mut books = client.books.lock();
        books.traffic.resident_bytes += managed.resident_bytes();
        books.managed.insert(start, managed);
    }
    answer
}

fn take(client: &Client, start: u64) -> Option<Managed> {
    let mut books = client.books.lock();
    let managed = books.managed.remove(&start)?;
    books.traffic.resident_bytes -= managed.resident_bytes();
    Some(managed)
}

fn forgotten(client: &Client, start: u64, managed: &Managed) {
    managed.forget(start, &client.touches);
    client.unclaim(kind(managed.disguised), managed.bytes);
}

/// New memory in the order of a stream of the current context: what that stream has freed, or else new.
pub(crate) fn allocate_on(client: &Client, bytes: usize, stream: u64) -> Answer<u64> {
    driver::beside_captures(|| match client.frees.reuse(bytes as u64, stream) {
        Some(start) => Ok(start),
        None => allocate(client, bytes, driver::ATTACH_GLOBAL, true),
    })
}

/// Memory that the program frees in the order of a stream. `None`: it is none of ours.
pub(crate) fn free_on(start: u64, stream: u64) -> Option<Answer> {
    let client = owner(start)?;
    if client.frees.has(start) || client.captures.has(stream) {
        // A capture may free only what it allocated.
        return Some(Err(Code::INVALID_VALUE));
    }
    let bytes = client.books.lock().managed.get(&start)?.bytes;
    Some(driver::beside_captures(|| client.frees.add(start, bytes, stream)))
}

/// Really frees what was freed on streams that have come so far.
pub(crate) fn drain_frees(client: &Client) {
    // A free would be waited for by the device; while a stream captures nothing is.
    if client.frees.count() == 0 || client.captures.any() {
        return;
    }
    for start in driver::beside_captures(|| client.frees.passed()) {
        if let Some(managed) = take(client, start) {
            // The thread that drains may have no context of its own.
            let free = || driver::with_context(managed.context, || driver::free(start));
            let _ = driver::beside_captures(free);
            forgotten(client, start, &managed);
        }
    }
}

/// A context is gone, and what was allocated in it.
pub(crate) fn forget_context(client: &Client, context: u64) {
    client.frees.forget_context(context);
    arrays::forget_context(client, context);
    let books = client.books.lock();
    let of_it = books.managed.iter().filter(|(_, managed)| managed.context == context);
    let gone: Vec<u64> = of_it.map(|(start, _)| *start).collect();
    drop(books);
    for start in gone {
        if let Some(managed) = take(client, start) {
            forgotten(client, start, &managed);
        }
    }
}

/// Whether an address is in memory that the program takes for device memory.
pub(crate) fn is_disguised(address: u64) -> bool {
    clients().any(|client| {
        let books = client.books.lock();
        books.managed_around(address).is_some_and(|(_, managed)| managed.disguised)
    })
}
