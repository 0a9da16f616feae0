//! Virtual memory management.

use millpond::driver::{Access, DevicePtr, Driver, PhysicalHandle, PhysicalProperties};

use crate::code_number::{Answer, Code};
use crate::device::Device;
use crate::entry::entries;
use crate::layouts::{
    AccessDescription, AllocationProperties, HANDLE_IS_DESCRIPTOR, Location, location,
};
use crate::raw_pointers::{In, Out, write_host};
use crate::shareable_descriptor::Shareable;
use crate::world::{World, world};

const PINNED: i32 = 1;
const ACCESS: [Access; 4] = [Access::None, Access::Read, Access::None, Access::ReadWrite];
const READ_WRITE: i32 = 3;

/// The device that physical memory is to be on. Such memory on the host is not simulated.
fn place(world: &World, wanted: AllocationProperties) -> Answer<&Device> {
    if wanted.kind != PINNED {
        return Err(Code::INVALID_VALUE);
    }
    match wanted.location.kind {
        location::DEVICE => world.device(wanted.location.id),
        location::HOST..=location::HOST_NUMA_CURRENT => Err(Code::NOT_SUPPORTED),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// The device whose reservation or mapping an address is in.
fn owner_of(world: &World, ptr: u64) -> Answer<&Device> {
    let owner = world.devices.iter().find(|device| {
        let ptr = DevicePtr(ptr);
        device.gpu.allocation_at(ptr).is_some() || device.gpu.is_dangling(ptr)
    });
    owner.ok_or(Code::INVALID_VALUE)
}

fn physical(handle: u64) -> Answer<(&'static Device, PhysicalHandle)> {
    let device = world()?.device_of(handle).map_err(|_| Code::INVALID_VALUE)?;
    Ok((device, PhysicalHandle(handle)))
}

/// The process in which a device's memory is kept.
fn owner(device: &Device) -> u32 {
    device.gpu.joined().map_or_else(std::process::id, |joined| joined.broker_pid)
}

/// Of a handle that there is not CUDA says invalid value.
fn as_value<T>(result: millpond::driver::DriverResult<T>) -> Answer<T> {
    result.map_err(|error| match Code::from(error) {
        Code::INVALID_HANDLE => Code::INVALID_VALUE,
        code => code,
    })
}

entries! {
    fn cuMemGetAllocationGranularity(bytes: Out<usize>, properties: In<AllocationProperties>, option: i32) {
        bytes.check()?;
        let world = world()?;
        let device = place(world, properties.get()?)?;
        if !(0..=1).contains(&option) {
            return Err(Code::INVALID_VALUE);
        }
        if !device.gpu.device().virtual_memory {
            return Err(Code::NOT_SUPPORTED);
        }
        bytes.set(device.gpu.device().granularity_bytes)
    }

    /// The wished address is a wish. Addresses belong to the device that comes to be mapped there; until something is, to
    /// the current context's, or the first.
    fn cuMemAddressReserve(ptr: Out<u64>, bytes: usize, align: usize, _wish: u64, flags: u64) {
        ptr.check()?;
        let world = world()?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let ordinal = crate::context::current().map_or(0, |context| context.device);
        ptr.set(as_value(world.devices[ordinal].gpu.reserve(bytes, align))?.0)
    }

    fn cuMemAddressFree(ptr: u64, bytes: usize) {
        let world = world()?;
        as_value(owner_of(world, ptr)?.gpu.unreserve(DevicePtr(ptr), bytes))
    }

    fn cuMemCreate(handle: Out<u64>, bytes: usize, properties: In<AllocationProperties>, flags: u64) {
        handle.check()?;
        let world = world()?;
        let wanted = properties.get()?;
        if flags != 0 || wanted.handle_types & !15 != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let device = place(world, wanted)?;
        let properties = PhysicalProperties {
            exportable: wanted.handle_types & HANDLE_IS_DESCRIPTOR != 0,
            rdma: wanted.rdma != 0,
        };
        handle.set(device.gpu.create(bytes, properties)?.0)
    }

    fn cuMemRelease(handle: u64) {
        let (device, handle) = physical(handle)?;
        as_value(device.gpu.release(handle))
    }

    fn cuMemMap(ptr: u64, bytes: usize, offset: usize, handle: u64, flags: u64) {
        let (device, handle) = physical(handle)?;
        if offset != 0 || flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        as_value(device.gpu.map(DevicePtr(ptr), bytes, handle))
    }

    fn cuMemUnmap(ptr: u64, bytes: usize) {
        as_value(owner_of(world()?, ptr)?.gpu.unmap(DevicePtr(ptr), bytes))
    }

    fn cuMemSetAccess(ptr: u64, bytes: usize, descriptions: In<AccessDescription>, count: usize) {
        let world = world()?;
        let device = owner_of(world, ptr)?;
        if count == 0 {
            return Err(Code::INVALID_VALUE);
        }
        for wanted in descriptions.get_all(count)? {
            let flags = usize::try_from(wanted.flags).map_err(|_| Code::INVALID_VALUE)?;
            let access = *ACCESS.get(flags).filter(|_| flags != 2).ok_or(Code::INVALID_VALUE)?;
            match wanted.location.kind {
                location::DEVICE => {
                    let here = world.device(wanted.location.id)?.ordinal == device.ordinal;
                    // There are no peers, so nothing is given to one.
                    if here {
                        as_value(device.gpu.set_access(DevicePtr(ptr), bytes, access))?;
                    }
                }
                _ => return Err(Code::INVALID_VALUE),
            }
        }
        Ok(())
    }

    fn cuMemGetAccess(flags: Out<u64>, place: In<Location>, ptr: u64) {
        flags.check()?;
        let world = world()?;
        let wanted = place.get()?;
        let device = owner_of(world, ptr)?;
        let (_, access) = device.gpu.mapping(DevicePtr(ptr)).ok_or(Code::INVALID_VALUE)?;
        let here = wanted.kind == location::DEVICE && wanted.id == device.ordinal as i32;
        flags.set(match access {
            _ if !here => 0,
            Access::None => 0,
            Access::Read => 1,
            Access::ReadWrite | Access::ReadWriteWithPeers => READ_WRITE as u64,
        })
    }

    fn cuMemRetainAllocationHandle(handle: Out<u64>, ptr: u64) {
        handle.check()?;
        let device = owner_of(world()?, ptr)?;
        let found = device.gpu.physical_at(DevicePtr(ptr)).ok_or(Code::INVALID_VALUE)?;
        device.gpu.retain(found)?;
        handle.set(found.0)
    }

    fn cuMemGetAllocationPropertiesFromHandle(properties: Out<AllocationProperties>, handle: u64) {
        properties.check()?;
        let (device, handle) = physical(handle)?;
        let (known, _) = device.gpu.physical(handle).ok_or(Code::INVALID_VALUE)?;
        properties.set(AllocationProperties {
            kind: PINNED,
            handle_types: if known.exportable { HANDLE_IS_DESCRIPTOR } else { 0 },
            location: Location { kind: location::DEVICE, id: device.ordinal as i32 },
            win32_metadata: std::ptr::null_mut(),
            compression: 0,
            rdma: u8::from(known.rdma),
            usage: 0,
            reserved: [0; 4],
        })
    }

    fn cuMemExportToShareableHandle(shareable: u64, handle: u64, kind: i32, flags: u64) {
        let (device, handle) = physical(handle)?;
        if kind != HANDLE_IS_DESCRIPTOR {
            return Err(Code::NOT_SUPPORTED);
        }
        if flags != 0 || shareable == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let token = as_value(device.gpu.export(handle))?;
        let meant = Shareable { owner: owner(device), device: device.number as u32, token };
        write_host(shareable, &meant.to_descriptor()?.to_le_bytes())
    }

    /// What another process has exported can be had if both share the device.
    fn cuMemImportFromShareableHandle(handle: Out<u64>, shareable: u64, kind: i32) {
        handle.check()?;
        let world = world()?;
        if kind != HANDLE_IS_DESCRIPTOR {
            return Err(Code::NOT_SUPPORTED);
        }
        let descriptor = i32::try_from(shareable).map_err(|_| Code::INVALID_VALUE)?;
        let meant = Shareable::from_descriptor(descriptor)?;
        let is_meant = |device: &&Device| device.number == meant.device as usize;
        let device = world.devices.iter().find(is_meant).ok_or(Code::INVALID_VALUE)?;
        if meant.owner != owner(device) {
            return Err(Code::NOT_SUPPORTED);
        }
        handle.set(as_value(device.gpu.import(meant.token))?.0)
    }
}
