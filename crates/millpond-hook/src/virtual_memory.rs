//! Physical memory of the program under handles of ours.
//!
//! All of this happens inside the gate: there everything is on the device, so each call can go on to the driver with the driver's
//! handle, and the driver's answer is the program's.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::books::{Books, HANDLE_TAG, Mapping, Physical, Whereabouts, new_handle};
use crate::claims::Kind;
use crate::client::Client;
use crate::code::{Answer, Code};
use crate::driver_ffi as driver;
use crate::gate::Inside;
use crate::layouts::{AccessDescription, AllocationProperties, Location};
use crate::link::Event;
use crate::process::{clients, enter_all};

/// Between attempts to create memory while others make room.
const RETRY: Duration = Duration::from_millis(5);
/// So many of them, all while the device is ours: ten seconds.
const ATTEMPTS: u32 = 2000;

/// Whose handle it is.
pub(crate) fn owner_of_handle(handle: u64) -> Option<&'static Client> {
    if handle & HANDLE_TAG != HANDLE_TAG {
        return None;
    }
    clients().find(|client| client.books.lock().physical.contains_key(&handle))
}

/// Who has something mapped in a range: on several devices there may be several.
pub(crate) fn owners_of_range(start: u64, bytes: u64) -> Vec<&'static Client> {
    clients().filter(|client| !mapped(&client.books.lock(), start, bytes).is_empty()).collect()
}

/// Where the mappings begin that have something in a range.
fn mapped(books: &Books, start: u64, bytes: u64) -> Vec<u64> {
    let end = start.saturating_add(bytes.max(1));
    // The last that begins before may reach into it.
    let before = books.mappings.range(..start).next_back();
    let reaches = before.filter(|(at, mapping)| *at + mapping.bytes > start);
    let inside = books.mappings.range(start..end);
    reaches.into_iter().chain(inside).map(|(at, _)| *at).collect()
}

/// New memory. `create` asks the driver for it. What has been promised may still be others': they are asked to make room.
pub(crate) fn create(
    client: &Client,
    bytes: u64,
    properties: AllocationProperties,
    create: impl Fn(&mut u64) -> i32,
) -> Answer<u64> {
    client.claim(Kind::Device, bytes)?;
    client.pending.fetch_add(bytes, Ordering::SeqCst);
    let created = create_in_turn(client, create);
    client.pending.fetch_sub(bytes, Ordering::SeqCst);
    let (real, _inside) = created.inspect_err(|_| client.unclaim(Kind::Device, bytes))?;
    let mut books = client.books.lock();
    let handle = new_handle();
    let (whereabouts, id) = (Whereabouts::In(real), client.touches.number());
    let mapped_at = BTreeSet::new();
    let memory = Physical { bytes, properties, whereabouts, mapped_at, holds: 1, stays: false, id };
    books.physical.insert(handle, memory);
    books.traffic.resident_bytes += bytes;
    Ok(handle)
}

/// The driver's handle, still inside the gate.
pub(crate) fn create_in_turn<'a>(
    client: &'a Client,
    create: impl Fn(&mut u64) -> i32,
) -> Answer<(u64, Inside<'a>)> {
    let mut attempts = 0;
    loop {
        let inside = client.enter()?;
        let mut real = 0;
        match Code::check(create(&mut real)) {
            Ok(()) => return Ok((real, inside)),
            Err(Code::OUT_OF_MEMORY) if attempts < ATTEMPTS => {
                drop(inside);
                attempts += 1;
                client.tell_link(Event::NeedsRoom);
                std::thread::sleep(RETRY);
            }
            Err(code) => return Err(code),
        }
    }
}

/// Makes a call with the driver's handle for one of ours.
pub(crate) fn with_real(client: &Client, handle: u64, call: impl FnOnce(u64) -> i32) -> Answer {
    let _inside = client.enter()?;
    let real = real(&client.books.lock(), handle)?;
    Code::check(call(real))
}

fn real(books: &Books, handle: u64) -> Answer<u64> {
    match books.physical.get(&handle).ok_or(Code::INVALID_VALUE)?.whereabouts {
        Whereabouts::In(real) => Ok(real),
        Whereabouts::Out(_) => Err(Code::INVALID_VALUE),
    }
}

/// The program gives a handle back. The memory stays as long as it is mapped.
pub(crate) fn release(client: &Client, handle: u64) -> Answer {
    let _inside = client.enter()?;
    let mut books = client.books.lock();
    let memory = books.physical.get_mut(&handle).filter(|memory| memory.holds > 0);
    memory.ok_or(Code::INVALID_VALUE)?.holds -= 1;
    end_if_unused(client, &mut books, handle)
}

fn end_if_unused(client: &Client, books: &mut Books, handle: u64) -> Answer {
    let unused = |memory: &&Physical| memory.holds == 0 && memory.mapped_at.is_empty();
    let Some(memory) = books.physical.get(&handle).filter(unused) else { return Ok(()) };
    let Whereabouts::In(real) = memory.whereabouts else { return Ok(()) };
    let (bytes, id) = (memory.bytes, memory.id);
    books.physical.remove(&handle);
    books.traffic.resident_bytes -= bytes;
    id.into_iter().for_each(|id| client.touches.give_back(id));
    client.unclaim(Kind::Device, bytes);
    driver::physical_release(real)
}

pub(crate) fn map(
    client: &Client,
    start: u64,
    bytes: u64,
    handle: u64,
    call: impl FnOnce(u64) -> i32,
) -> Answer {
    let _inside = client.enter()?;
    let mut books = client.books.lock();
    Code::check(call(real(&books, handle)?))?;
    books.mappings.insert(start, Mapping { handle, bytes, access: Vec::new() });
    let Some(memory) = books.physical.get_mut(&handle) else { return Ok(()) };
    memory.mapped_at.insert(start);
    if let Some(id) = memory.id {
        client.touches.add(start, bytes, id);
        client.touch_allocation(id, false);
    }
    Ok(())
}

/// Makes a call inside the gates of all whose memory is in a range, and then writes down for each what has become of it. Nobody else
/// writes in between.
fn in_range(
    owners: &[&'static Client],
    call: impl FnOnce() -> i32,
    write: impl Fn(&Client, &mut Books),
) -> Answer {
    let _inside = enter_all(owners)?;
    let mut books: Vec<_> = owners.iter().map(|client| client.books.lock()).collect();
    Code::check(call())?;
    owners.iter().zip(&mut books).for_each(|(client, books)| write(client, books));
    Ok(())
}

/// Makes a call about a range that changes nothing in the books.
pub(crate) fn about_range(owners: &[&'static Client], call: impl FnOnce() -> i32) -> Answer {
    let _inside = enter_all(owners)?;
    Code::check(call())
}

pub(crate) fn unmap(
    owners: &[&'static Client],
    start: u64,
    bytes: u64,
    call: impl FnOnce() -> i32,
) -> Answer {
    in_range(owners, call, |client, books| {
        for at in mapped(books, start, bytes) {
            let Some(mapping) = books.mappings.remove(&at) else { continue };
            if let Some(memory) = books.physical.get_mut(&mapping.handle) {
                memory.mapped_at.remove(&at);
                memory.id.into_iter().for_each(|id| client.touches.remove(at, mapping.bytes, id));
            }
            // The program's call has succeeded; what is left over is the driver's to keep.
            let _ = end_if_unused(client, books, mapping.handle);
        }
    })
}

pub(crate) fn set_access(
    owners: &[&'static Client],
    start: u64,
    bytes: u64,
    access: &[AccessDescription],
    call: impl FnOnce() -> i32,
) -> Answer {
    in_range(owners, call, |client, books| {
        let is_other = |location: Location| location != Location::device(client.device.ordinal);
        books.is_reachable_by_others |= access.iter().any(|access| is_other(access.location));
        for at in mapped(books, start, bytes) {
            books.mappings.get_mut(&at).into_iter().for_each(|mapping| mapping.allow(access));
        }
    })
}

/// The handle of what is mapped at an address, which the program then holds once more.
pub(crate) fn retain(client: &Client, address: u64) -> Answer<u64> {
    let _inside = client.enter()?;
    let mut books = client.books.lock();
    let at = *mapped(&books, address, 1).first().ok_or(Code::INVALID_VALUE)?;
    let handle = books.mappings[&at].handle;
    books.physical.get_mut(&handle).ok_or(Code::INVALID_VALUE)?.holds += 1;
    Ok(handle)
}

/// Makes a call that tells others where the memory is: from then on it stays.
pub(crate) fn give_away(client: &Client, handle: u64, call: impl FnOnce(u64) -> i32) -> Answer {
    let _inside = client.enter()?;
    let mut books = client.books.lock();
    Code::check(call(real(&books, handle)?))?;
    books.physical.get_mut(&handle).into_iter().for_each(|memory| memory.stays = true);
    Ok(())
}

/// The same, for whatever is mapped in a range.
pub(crate) fn give_away_range(
    owners: &[&'static Client],
    start: u64,
    bytes: u64,
    call: impl FnOnce() -> i32,
) -> Answer {
    in_range(owners, call, |_, books| {
        for at in mapped(books, start, bytes) {
            let handle = books.mappings[&at].handle;
            books.physical.get_mut(&handle).into_iter().for_each(|memory| memory.stays = true);
        }
    })
}
