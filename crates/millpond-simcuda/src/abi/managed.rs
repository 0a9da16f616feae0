//! Managed memory.

use millpond::driver::{Advice, DevicePtr, Driver, Location, Stream};
use millpond_sim::AllocationKind;

use crate::code_number::{Answer, Code};
use crate::context::Owned;
use crate::entry::entries;
use crate::layouts::{self, location};
use crate::managed_ranges::RangeAttributes;
use crate::raw_pointers::{In, Out, write_host};
use crate::world::{Current, World, current, world};

const ATTACH_GLOBAL: u32 = 1;
const ATTACH_HOST: u32 = 2;
/// What the first form of the calls takes for the host, and for no device at all.
const HOST_DEVICE: i32 = -1;
const NO_DEVICE: i32 = -2;

/// `CUmem_advise`.
const SET_READ_MOSTLY: i32 = 1;
const UNSET_READ_MOSTLY: i32 = 2;
const SET_PREFERRED: i32 = 3;
const UNSET_PREFERRED: i32 = 4;
const SET_ACCESSED_BY: i32 = 5;
const UNSET_ACCESSED_BY: i32 = 6;

/// `CUmem_range_attribute`.
const READ_MOSTLY: i32 = 1;
const PREFERRED_LOCATION: i32 = 2;
const ACCESSED_BY: i32 = 3;
const LAST_PREFETCH_LOCATION: i32 = 4;
const PREFERRED_LOCATION_TYPE: i32 = 5;
const PREFERRED_LOCATION_ID: i32 = 6;
const LAST_PREFETCH_LOCATION_TYPE: i32 = 7;
const LAST_PREFETCH_LOCATION_ID: i32 = 8;
const MOST_ATTRIBUTES: usize = 64;
const MOST_DATA_BYTES: usize = 4096;

/// A place that managed memory can be in, of what programs may name: a device (by number) or the host.
fn place(world: &World, wanted: layouts::Location) -> Answer<Location> {
    match wanted.kind {
        location::DEVICE => world.device(wanted.id).map(|_| Location::Device),
        location::HOST | location::HOST_NUMA | location::HOST_NUMA_CURRENT => Ok(Location::Host),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// The second form of a place, from the first.
fn location_of(device: i32) -> layouts::Location {
    match device {
        HOST_DEVICE => layouts::Location { kind: location::HOST, id: 0 },
        id => layouts::Location { kind: location::DEVICE, id },
    }
}

fn prefetch(ptr: u64, bytes: usize, to: layouts::Location, stream: u64, null: Stream) -> Answer {
    let current = current()?;
    let (device, stream) = current.stream(stream, null)?;
    let place = place(current.world, to)?;
    device.gpu.prefetch(DevicePtr(ptr), bytes, place, stream)?;
    let note = |range: &mut RangeAttributes| range.last_prefetch = Some(to);
    current.world.managed_ranges.change(ptr, bytes as u64, note);
    Ok(())
}

fn advise(ptr: u64, bytes: usize, advice: i32, about: layouts::Location) -> Answer {
    let current = current()?;
    let told = match advice {
        SET_READ_MOSTLY | UNSET_READ_MOSTLY => Advice::ReadMostly(advice == SET_READ_MOSTLY),
        SET_PREFERRED => Advice::PreferredLocation(Some(place(current.world, about)?)),
        UNSET_PREFERRED => Advice::PreferredLocation(None),
        SET_ACCESSED_BY | UNSET_ACCESSED_BY => match place(current.world, about)? {
            Location::Device => Advice::AccessedByDevice(advice == SET_ACCESSED_BY),
            // That the host reaches it needs no advice; that it is managed memory is checked all the same.
            Location::Host => return note_host(&current, ptr, bytes, advice, about),
        },
        _ => return Err(Code::INVALID_VALUE),
    };
    current.gpu().advise(DevicePtr(ptr), bytes, told)?;
    note(current.world, ptr, bytes, advice, about);
    Ok(())
}

fn note_host(
    current: &Current,
    ptr: u64,
    bytes: usize,
    advice: i32,
    about: layouts::Location,
) -> Answer {
    check_managed(current.world, ptr, bytes)?;
    note(current.world, ptr, bytes, advice, about);
    Ok(())
}

/// Keeps advice for a program that asks.
fn note(world: &World, ptr: u64, bytes: usize, advice: i32, about: layouts::Location) {
    world.managed_ranges.change(ptr, bytes as u64, |range| match advice {
        SET_READ_MOSTLY | UNSET_READ_MOSTLY => range.read_mostly = advice == SET_READ_MOSTLY,
        SET_PREFERRED => range.preferred = Some(about),
        UNSET_PREFERRED => range.preferred = None,
        SET_ACCESSED_BY if !range.accessed_by.contains(&about) => range.accessed_by.push(about),
        UNSET_ACCESSED_BY => range.accessed_by.retain(|one| *one != about),
        _ => {}
    });
}

fn check_managed(world: &World, ptr: u64, bytes: usize) -> Answer {
    let (_, memory) = world.allocation_at(ptr).ok_or(Code::INVALID_VALUE)?;
    let room = memory.bytes - (ptr - memory.start.0) as usize;
    let is_managed = memory.kind == AllocationKind::Managed && (1..=room).contains(&bytes);
    if is_managed { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

/// What all parts of a range agree on, or nothing.
fn agreed<T: PartialEq>(
    parts: &[RangeAttributes],
    of: impl Fn(&RangeAttributes) -> Option<T>,
) -> Option<T> {
    let first = parts.first().and_then(&of)?;
    parts.iter().all(|part| of(part).as_ref() == Some(&first)).then_some(first)
}

/// One attribute of a range, as so many bytes of numbers.
fn range_attribute(parts: &[RangeAttributes], attribute: i32, bytes: usize) -> Answer<Vec<u8>> {
    let preferred = agreed(parts, |part| part.preferred);
    let prefetched = agreed(parts, |part| part.last_prefetch);
    let kind = |place: Option<layouts::Location>| place.map_or(location::INVALID, |at| at.kind);
    let id = |place: Option<layouts::Location>| place.map_or(0, |at| at.id);
    let number = match attribute {
        READ_MOSTLY => i32::from(parts.iter().all(|part| part.read_mostly)),
        PREFERRED_LOCATION => preferred.map_or(NO_DEVICE, device_of),
        ACCESSED_BY => return accessed_by(parts, bytes),
        LAST_PREFETCH_LOCATION => prefetched.map_or(NO_DEVICE, device_of),
        PREFERRED_LOCATION_TYPE => kind(preferred),
        PREFERRED_LOCATION_ID => id(preferred),
        LAST_PREFETCH_LOCATION_TYPE => kind(prefetched),
        LAST_PREFETCH_LOCATION_ID => id(prefetched),
        _ => return Err(Code::INVALID_VALUE),
    };
    if bytes == 4 { Ok(number.to_le_bytes().to_vec()) } else { Err(Code::INVALID_VALUE) }
}

/// As many devices as there is room for; what is left over says that there are no more.
fn accessed_by(parts: &[RangeAttributes], bytes: usize) -> Answer<Vec<u8>> {
    if bytes == 0 || !bytes.is_multiple_of(4) {
        return Err(Code::INVALID_VALUE);
    }
    let first = parts.first().map(|part| part.accessed_by.clone()).unwrap_or_default();
    let by_all =
        |place: &layouts::Location| parts.iter().all(|part| part.accessed_by.contains(place));
    let devices = first.into_iter().filter(by_all).map(device_of);
    let devices = devices.chain(std::iter::repeat(NO_DEVICE)).take(bytes / 4);
    Ok(devices.flat_map(i32::to_le_bytes).collect())
}

/// The first form of a place, from the second.
fn device_of(place: layouts::Location) -> i32 {
    if place.kind == location::DEVICE { place.id } else { HOST_DEVICE }
}

fn range_attributes(parts_of: (u64, usize), wanted: &[(u64, usize, i32)]) -> Answer {
    let (ptr, bytes) = parts_of;
    let world = world()?;
    check_managed(world, ptr, bytes)?;
    let parts = world.managed_ranges.parts(ptr, bytes as u64);
    for (data, data_bytes, attribute) in wanted {
        // More than there can be devices is a mistake, and not to be filled.
        if *data == 0 || *data_bytes > MOST_DATA_BYTES {
            return Err(Code::INVALID_VALUE);
        }
        write_host(*data, &range_attribute(&parts, *attribute, *data_bytes)?)?;
    }
    Ok(())
}

entries! {
    fn cuMemAllocManaged(ptr: Out<u64>, bytes: usize, flags: u32) {
        ptr.check()?;
        if !matches!(flags, ATTACH_GLOBAL | ATTACH_HOST) {
            return Err(Code::INVALID_VALUE);
        }
        let current = current()?;
        let memory = current.gpu().alloc_managed(bytes)?;
        current.context.own(Owned::Memory(memory));
        ptr.set(memory.0)
    }

    fn cuMemPrefetchAsync / cuMemPrefetchAsync_ptsz(ptr: u64, bytes: usize, device: i32, stream: u64) {
        prefetch(ptr, bytes, location_of(device), stream, NULL_STREAM)
    }

    fn cuMemPrefetchAsync_v2 / cuMemPrefetchAsync_v2_ptsz(
        ptr: u64,
        bytes: usize,
        to: layouts::Location,
        flags: u32,
        stream: u64,
    ) {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        prefetch(ptr, bytes, to, stream, NULL_STREAM)
    }

    fn cuMemAdvise(ptr: u64, bytes: usize, advice: i32, device: i32) {
        advise(ptr, bytes, advice, location_of(device))
    }

    fn cuMemAdvise_v2(ptr: u64, bytes: usize, advice: i32, about: layouts::Location) {
        advise(ptr, bytes, advice, about)
    }

    fn cuMemRangeGetAttribute(data: u64, data_bytes: usize, attribute: i32, ptr: u64, bytes: usize) {
        range_attributes((ptr, bytes), &[(data, data_bytes, attribute)])
    }

    fn cuMemRangeGetAttributes(
        data: In<u64>,
        data_bytes: In<usize>,
        attributes: In<i32>,
        count: usize,
        ptr: u64,
        bytes: usize,
    ) {
        if !(1..=MOST_ATTRIBUTES).contains(&count) {
            return Err(Code::INVALID_VALUE);
        }
        let data = data.get_all(count)?;
        let sizes = data_bytes.get_all(count)?;
        let attributes = attributes.get_all(count)?;
        let each = data.into_iter().zip(sizes).zip(attributes);
        let wanted: Vec<_> = each.map(|((data, bytes), attribute)| (data, bytes, attribute)).collect();
        range_attributes((ptr, bytes), &wanted)
    }

    /// All memory is attached to everything here.
    fn cuStreamAttachMemAsync / cuStreamAttachMemAsync_ptsz(stream: u64, ptr: u64, _bytes: usize, flags: u32) {
        let current = current()?;
        current.stream(stream, NULL_STREAM)?;
        let known = current.world.allocation_at(ptr).is_some();
        if known && matches!(flags, 1 | 2 | 4) { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }
}
