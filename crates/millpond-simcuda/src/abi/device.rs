//! Devices and what they are.

use millpond::driver::{Driver, DriverPool};

use crate::code_number::Code;
use crate::device::Device;
use crate::entry::entries;
use crate::layouts::Uuid;
use crate::raw_pointers::{Out, Room, Text};
use crate::visible_devices::uuid;
use crate::world::world;

/// Looks like a bus address, and says that it is none.
fn bus_id(device: &Device) -> String {
    format!("0000:{:02X}:00.0", device.number + 1)
}

entries! {
    fn cuDeviceGetCount(count: Out<i32>) {
        count.set(world()?.devices.len() as i32)
    }

    fn cuDeviceGet(device: Out<i32>, ordinal: i32) {
        device.check()?;
        world()?.device(ordinal)?;
        device.set(ordinal)
    }

    fn cuDeviceGetName(name: Room, room: i32, device: i32) {
        let device = world()?.device(device)?;
        name.write(&format!("{} (simulated)", device.profile.title), room)
    }

    fn cuDeviceGetUuid(id: Out<Uuid>, device: i32) {
        id.set(uuid(world()?.device(device)?.number))
    }

    fn cuDeviceGetUuid_v2(id: Out<Uuid>, device: i32) {
        id.set(uuid(world()?.device(device)?.number))
    }

    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) {
        bytes.set(world()?.device(device)?.gpu.device().capacity_bytes)
    }

    fn cuDeviceGetAttribute(value: Out<i32>, attribute: i32, device: i32) {
        value.check()?;
        value.set(world()?.device(device)?.attribute(attribute)?)
    }

    fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) {
        let capability = world()?.device(device)?.compute_capability();
        major.set(capability.0)?;
        minor.set(capability.1)
    }

    fn cuDeviceGetPCIBusId(name: Room, room: i32, device: i32) {
        name.write(&bus_id(world()?.device(device)?), room)
    }

    fn cuDeviceGetByPCIBusId(device: Out<i32>, name: Text) {
        device.check()?;
        let name = name.get(64)?;
        let world = world()?;
        let found = world.devices.iter().find(|device| bus_id(device) == name);
        device.set(found.ok_or(Code::INVALID_DEVICE)?.ordinal as i32)
    }

    fn cuDeviceGetDefaultMemPool(pool: Out<u64>, device: i32) {
        pool.check()?;
        pool.set(world()?.device(device)?.gpu.default_pool()?.0)
    }

    fn cuDeviceGetMemPool(pool: Out<u64>, device: i32) {
        pool.check()?;
        pool.set(world()?.device(device)?.current_pool()?.0)
    }

    fn cuDeviceSetMemPool(device: i32, pool: u64) {
        let world = world()?;
        let device = world.device(device)?;
        if !std::ptr::eq(world.device_of(pool).map_err(|_| Code::INVALID_VALUE)?, device) {
            return Err(Code::INVALID_VALUE);
        }
        // Whether there is such a pool shows when something is asked of it.
        let reserved = millpond::driver::PoolAttribute::ReservedCurrent;
        device.gpu.pool_attribute(DriverPool(pool), reserved).map_err(|_| Code::INVALID_VALUE)?;
        device.set_current_pool(Some(DriverPool(pool)));
        Ok(())
    }
}
