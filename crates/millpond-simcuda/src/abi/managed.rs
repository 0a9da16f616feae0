//! Managed memory.

use millpond::driver::{Advice, DevicePtr, Driver, Location, Stream};

use crate::code_number::{Answer, Code};
use crate::context::Owned;
use crate::entry::entries;
use crate::layouts::{self, location};
use crate::raw_pointers::Out;
use crate::world::{World, current};

const ATTACH_GLOBAL: u32 = 1;
const ATTACH_HOST: u32 = 2;
/// What the first form of the calls takes for the host.
const HOST_DEVICE: i32 = -1;

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
    let to = place(current.world, to)?;
    Ok(device.gpu.prefetch(DevicePtr(ptr), bytes, to, stream)?)
}

fn advise(ptr: u64, bytes: usize, advice: i32, about: layouts::Location) -> Answer {
    let current = current()?;
    let on_device = || Ok::<_, Code>(place(current.world, about)? == Location::Device);
    let advice = match advice {
        1 | 2 => Advice::ReadMostly(advice == 1),
        3 => Advice::PreferredLocation(Some(place(current.world, about)?)),
        4 => Advice::PreferredLocation(None),
        // That the host reaches it needs no advice.
        5 | 6 if on_device()? => Advice::AccessedByDevice(advice == 5),
        5 | 6 => return Ok(()),
        _ => return Err(Code::INVALID_VALUE),
    };
    Ok(current.gpu().advise(DevicePtr(ptr), bytes, advice)?)
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

    /// All memory is attached to everything here.
    fn cuStreamAttachMemAsync / cuStreamAttachMemAsync_ptsz(stream: u64, ptr: u64, _bytes: usize, flags: u32) {
        let current = current()?;
        current.stream(stream, NULL_STREAM)?;
        let known = current.world.allocation_at(ptr).is_some();
        if known && matches!(flags, 1 | 2 | 4) { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }
}
