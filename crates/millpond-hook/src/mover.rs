//! Moves memory between the device and the host, a batch at a time.

use parking_lot::Mutex;

use crate::books::{Books, Mapping, PART_BYTES, Physical, Piece, Place, Planned, Whereabouts};
use crate::code::{Answer, Code};
use crate::contexts::Contexts;
use crate::driver_ffi as driver;
use crate::layouts::{AccessDescription, Location};
use crate::staging_ffi::Staging;

/// Moves the memory of one device. Only the link's thread has it.
pub(crate) struct Mover<'a> {
    pub(crate) device: i32,
    pub(crate) contexts: &'a Mutex<Contexts>,
    pub(crate) books: &'a Mutex<Books>,
    pub(crate) staging: Option<Staging>,
}

/// How a batch went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is more.
    Moved,
    /// The next piece does not fit into the room there is.
    NoRoom,
    /// It does, but the driver has no memory for it: the device is fuller than anybody said.
    Full,
    /// Nothing is left.
    Done,
}

impl Mover<'_> {
    /// Sends a batch of the pieces at the front out, until no more than so much is resident.
    pub(crate) fn out(&mut self, plan: &mut Vec<Planned>, resident_at_most: u64) -> Step {
        let mut contexts = self.contexts.lock();
        let mut books = self.books.lock();
        let excess = books.traffic.resident_bytes.saturating_sub(resident_at_most);
        let (batch, bytes) = front(plan, excess.min(PART_BYTES));
        if bytes == 0 {
            return Step::Done;
        }
        let (device, staging) = (self.device, &mut self.staging);
        // A piece that does not go stays where it is: the daemon sees by what is resident that it did.
        let _ = contexts.with_streams(|streams| {
            managed(&mut books, &batch, Place::Out, driver::HOST, streams[0])?;
            for handle in physical(&batch) {
                let _ = send_out(&mut books, handle, device, staging, streams);
            }
            Ok(())
        });
        Step::Moved
    }

    /// Brings a batch in, as far as the room goes.
    pub(crate) fn bring_in(&mut self, plan: &mut Vec<Planned>, room: u64) -> Step {
        let mut contexts = self.contexts.lock();
        let mut books = self.books.lock();
        let Some(first) = plan.first() else { return Step::Done };
        let space = room.saturating_sub(books.traffic.resident_bytes);
        if first.bytes > space {
            return Step::NoRoom;
        }
        // At least one piece, and no more than there is space for.
        let mut count = 0;
        let mut bytes = 0;
        for planned in plan.iter() {
            if count > 0 && bytes + planned.bytes > PART_BYTES.min(space) {
                break;
            }
            bytes += planned.bytes;
            count += 1;
        }
        let batch: Vec<Planned> = plan.drain(..count).collect();
        let (device, staging) = (self.device, &mut self.staging);
        let mut unmoved = Vec::new();
        let _ = contexts.with_streams(|streams| {
            for handle in physical(&batch) {
                let back = bring_back(&mut books, handle, device, staging, streams);
                // Of other errors, such as a device that is lost, the program hears from the driver.
                if back == Err(Code::OUT_OF_MEMORY) {
                    unmoved.push(handle);
                }
            }
            managed(&mut books, &batch, Place::In, device, streams[0])
        });
        if unmoved.is_empty() {
            return Step::Moved;
        }
        let again = |planned: &&Planned| matches!(planned.piece, Piece::Physical(handle) if unmoved.contains(&handle));
        let retry: Vec<Planned> = batch.iter().filter(again).copied().collect();
        plan.splice(0..0, retry);
        Step::Full
    }
}

/// Takes pieces from the front until they are so many bytes.
fn front(plan: &mut Vec<Planned>, wanted: u64) -> (Vec<Planned>, u64) {
    let mut bytes = 0;
    let mut count = 0;
    while bytes < wanted && count < plan.len() {
        bytes += plan[count].bytes;
        count += 1;
    }
    (plan.drain(..count).collect(), bytes)
}

fn physical(batch: &[Planned]) -> impl Iterator<Item = u64> {
    batch.iter().filter_map(|planned| match planned.piece {
        Piece::Physical(handle) => Some(handle),
        Piece::Managed(..) => None,
    })
}

/// Prefetches the managed pieces of a batch, waits, and writes down what has come or gone.
fn managed(books: &mut Books, batch: &[Planned], to: Place, device: i32, stream: u64) -> Answer {
    let mut moved = Vec::new();
    for planned in batch {
        let Piece::Managed(start, part) = planned.piece else { continue };
        // It may have been freed since the plan was made, and its address be another's.
        let known = books.managed.get(&start).filter(|managed| part < managed.parts.len());
        let Some(managed) = known else { continue };
        let from = start + part as u64 * PART_BYTES;
        let bytes = managed.part_bytes(part) as usize;
        if driver::prefetch(from, bytes, device, stream).is_ok() {
            moved.push((start, part));
        }
    }
    if moved.is_empty() {
        return Ok(());
    }
    driver::stream_synchronize(stream)?;
    for (start, part) in moved {
        books.moved(start, part, to);
    }
    Ok(())
}

/// The mappings of physical memory.
fn mappings(books: &Books, handle: u64) -> Vec<(u64, Mapping)> {
    let Some(memory) = books.physical.get(&handle) else { return Vec::new() };
    let mapped = |start: &u64| Some((*start, books.mappings.get(start)?.clone()));
    memory.mapped_at.iter().filter_map(mapped).collect()
}

fn staging_of(staging: &mut Option<Staging>) -> Answer<&mut Staging> {
    match staging {
        Some(staging) => Ok(staging),
        None => Ok(staging.insert(Staging::new()?)),
    }
}

/// The bytes go to the host, the mappings and the memory go away. The program is not using it: the gate is closed.
fn send_out(
    books: &mut Books,
    handle: u64,
    device: i32,
    staging: &mut Option<Staging>,
    streams: [u64; 2],
) -> Answer {
    let mappings = mappings(books, handle);
    let Some(memory) = books.physical.get_mut(&handle).filter(|memory| memory.can_leave()) else {
        return Ok(());
    };
    let Whereabouts::In(real) = memory.whereabouts else { return Ok(()) };
    let mut kept = Staging::room(memory.bytes as usize)?;
    let staging = staging_of(staging)?;
    readable(&mappings, memory, real, device, |at| {
        staging.copy_out(at, memory.bytes as usize, &mut kept, streams)
    })?;
    for (index, (start, mapping)) in mappings.iter().enumerate() {
        if let Err(code) = driver::unmap(*start, mapping.bytes as usize) {
            // It stays as it was.
            for (start, mapping) in &mappings[..index] {
                let _ = map(*start, mapping, real);
            }
            return Err(code);
        }
    }
    driver::physical_release(real)?;
    memory.whereabouts = Whereabouts::Out(kept);
    books.traffic.resident_bytes -= memory.bytes;
    books.traffic.moved_out_bytes += memory.bytes;
    Ok(())
}

/// The same bytes at the same addresses, in memory that is new.
fn bring_back(
    books: &mut Books,
    handle: u64,
    device: i32,
    staging: &mut Option<Staging>,
    streams: [u64; 2],
) -> Answer {
    let mappings = mappings(books, handle);
    let Some(memory) = books.physical.get_mut(&handle) else { return Ok(()) };
    let Whereabouts::Out(kept) = &memory.whereabouts else { return Ok(()) };
    let staging = staging_of(staging)?;
    let mut real = 0;
    driver::physical_create(&mut real, memory.bytes as usize, &memory.properties, 0)?;
    let restored = mappings.iter().try_for_each(|(start, mapping)| map(*start, mapping, real));
    let restored = restored.and_then(|()| {
        readable(&mappings, memory, real, device, |at| staging.copy_in(at, kept, streams))
    });
    if let Err(code) = restored {
        for (start, mapping) in &mappings {
            let _ = driver::unmap(*start, mapping.bytes as usize);
        }
        let _ = driver::physical_release(real);
        return Err(code);
    }
    memory.whereabouts = Whereabouts::In(real);
    books.traffic.resident_bytes += memory.bytes;
    books.traffic.moved_in_bytes += memory.bytes;
    Ok(())
}

fn map(start: u64, mapping: &Mapping, real: u64) -> Answer {
    driver::map(start, mapping.bytes as usize, 0, real, 0)?;
    if mapping.access.is_empty() {
        return Ok(());
    }
    driver::set_access(start, mapping.bytes as usize, mapping.access.as_ptr(), mapping.access.len())
}

/// Makes a copy at an address where the device can reach the memory: one of the program's, else one of our own.
fn readable(
    mappings: &[(u64, Mapping)],
    memory: &Physical,
    real: u64,
    device: i32,
    copy: impl FnOnce(u64) -> Answer,
) -> Answer {
    let usable = |(_, mapping): &&(u64, Mapping)| {
        mapping.is_usable_by(device) && mapping.bytes == memory.bytes
    };
    if let Some((start, _)) = mappings.iter().find(usable) {
        return copy(*start);
    }
    let bytes = memory.bytes as usize;
    let mut own = 0;
    driver::reserve(&mut own, bytes, 0, 0, 0)?;
    let location = Location::device(device);
    let access = vec![AccessDescription { location, flags: AccessDescription::READ_WRITE }];
    let mapping = Mapping { handle: 0, bytes: memory.bytes, access };
    let copied = map(own, &mapping, real).and_then(|()| copy(own));
    let _ = driver::unmap(own, bytes);
    let _ = driver::unreserve(own, bytes);
    copied
}
