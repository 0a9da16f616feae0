//! Where an address points, and copies between any two places.

use std::collections::BTreeMap;

use millpond::driver::{DevicePtr, Driver, Stream};
use millpond_sim::AllocationKind;
use parking_lot::RwLock;

use crate::code_number::{Answer, Code};
use crate::device::Device;
use crate::raw_pointers::{read_host, write_host};
use crate::world::World;

/// Host memory that a program has registered, by its first address.
#[derive(Debug, Default)]
pub(crate) struct RegisteredMemory {
    ranges: RwLock<BTreeMap<u64, Registered>>,
}

/// A range of host memory that was registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registered {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) flags: u32,
    pub(crate) device: usize,
}

impl RegisteredMemory {
    pub(crate) fn add(&self, range: Registered) -> Answer {
        let end = range.start.checked_add(range.bytes).ok_or(Code::INVALID_VALUE)?;
        let mut ranges = self.ranges.write();
        let before = ranges.range(..end).next_back();
        if before.is_some_and(|(_, other)| other.start + other.bytes > range.start) {
            return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        ranges.insert(range.start, range);
        Ok(())
    }

    pub(crate) fn remove(&self, start: u64) -> Answer {
        let removed = self.ranges.write().remove(&start);
        removed.map(drop).ok_or(Code::HOST_MEMORY_NOT_REGISTERED)
    }

    /// The range that an address lies in.
    pub(crate) fn around(&self, address: u64) -> Option<Registered> {
        let ranges = self.ranges.read();
        let (_, range) = ranges.range(..=address).next_back()?;
        (address - range.start < range.bytes).then_some(*range)
    }
}

/// What an address is, to a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    /// Memory that a device knows.
    Known(&'a Device, DevicePtr),
    /// The program's own.
    Host(u64),
}

impl World {
    /// What an address is.
    pub(crate) fn place(&self, address: u64) -> Place<'_> {
        match self.allocation_at(address) {
            Some((device, _)) => Place::Known(device, DevicePtr(address)),
            None if is_device_address(address) => {
                // A device's address with nothing behind it: the device will say so.
                let owner = self.devices.first().expect("there is always one");
                Place::Known(owner, DevicePtr(address))
            }
            None => Place::Host(address),
        }
    }

    /// Device memory, whatever is there: work that finds nothing is work that fails.
    pub(crate) fn device_memory(&self, address: u64) -> Place<'_> {
        match self.allocation_at(address) {
            Some((device, _)) => Place::Known(device, DevicePtr(address)),
            None => Place::Known(&self.devices[0], DevicePtr(address)),
        }
    }

    /// Queues a copy. What the host has is read, or written, before this returns.
    pub(crate) fn copy(
        &self,
        to: Place<'_>,
        from: Place<'_>,
        bytes: usize,
        (device, stream): (&Device, Stream),
    ) -> Answer {
        if bytes == 0 {
            return Ok(());
        }
        self.check_extent(to, bytes)?;
        self.check_extent(from, bytes)?;
        match (to, from) {
            (Place::Known(a, to), Place::Known(b, from)) if std::ptr::eq(a, b) => {
                let (stream_device, stream) = on(a, device, stream)?;
                Ok(stream_device.gpu.copy(to, from, bytes, stream)?)
            }
            (Place::Known(a, to), Place::Known(b, from)) => {
                // Between devices: through the host.
                let mut through = buffer(bytes)?;
                device.gpu.synchronize_stream(stream)?;
                b.gpu.copy_to_host(&mut through, from, on(b, device, stream)?.1)?;
                Ok(a.gpu.copy_to_device(to, &through, on(a, device, stream)?.1)?)
            }
            (Place::Known(a, to), Place::Host(from)) => {
                let data = read_host(from, bytes)?;
                Ok(a.gpu.copy_to_device(to, &data, on(a, device, stream)?.1)?)
            }
            (Place::Host(to), Place::Known(b, from)) => {
                let mut data = buffer(bytes)?;
                b.gpu.copy_to_host(&mut data, from, on(b, device, stream)?.1)?;
                write_host(to, &data)
            }
            (Place::Host(to), Place::Host(from)) => {
                device.gpu.synchronize_stream(stream)?;
                write_host(to, &read_host(from, bytes)?)
            }
        }
    }

    /// A range that begins in an allocation and leaves it is refused at once; mappings may follow each other.
    fn check_extent(&self, place: Place<'_>, bytes: usize) -> Answer {
        let Place::Known(device, ptr) = place else { return Ok(()) };
        let end = ptr.0.checked_add(bytes as u64).ok_or(Code::INVALID_VALUE)?;
        let mut next = ptr.0;
        while next < end {
            let there = device.gpu.allocation_at(DevicePtr(next)).ok_or(Code::INVALID_VALUE)?;
            let is_mapped = there.kind == AllocationKind::Mapped;
            let is_first = next == ptr.0;
            next = there.start.0 + there.bytes as u64;
            if !is_mapped && (!is_first || next < end) {
                return Err(Code::INVALID_VALUE);
            }
        }
        Ok(())
    }
}

/// Room on the host for bytes on their way, if there is so much.
fn buffer(bytes: usize) -> Answer<Vec<u8>> {
    let mut room = Vec::new();
    room.try_reserve_exact(bytes).map_err(|_| Code::OUT_OF_MEMORY)?;
    room.resize(bytes, 0);
    Ok(room)
}

/// A copy runs on the stream it was given if that is a stream of its device, else on the device's own default stream.
fn on<'a>(owner: &'a Device, device: &'a Device, stream: Stream) -> Answer<(&'a Device, Stream)> {
    if std::ptr::eq(owner, device) {
        return Ok((device, stream));
    }
    device.gpu.synchronize_stream(stream)?;
    Ok((owner, Stream::LEGACY))
}

/// The simulated device's addresses lie above everything that a process can map.
fn is_device_address(address: u64) -> bool {
    address >= 1 << 48
}
