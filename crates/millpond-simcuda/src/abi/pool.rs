//! Stream-ordered memory.

use std::ffi::c_void;

use millpond::driver::{
    CaptureState, DevicePtr, Driver, DriverPool, PoolAttribute, PoolProperties, Stream,
};
use millpond_sim::{AllocationKind, GraphMark};

use crate::code_number::{Answer, Code};
use crate::context::Owned;
use crate::device::Device;
use crate::entry::entries;
use crate::layouts::{AccessDescription, Location, PoolProps, location};
use crate::raw_pointers::{In, Out, read_host, write_host};
use crate::world::{current, world};

const READ_WRITE: i32 = 3;

/// `CUmemPool_attribute`, and how many bytes each has.
fn attribute(number: i32) -> Answer<(PoolAttribute, usize)> {
    Ok(match number {
        1 => (PoolAttribute::ReuseFollowEventDependencies, 4),
        2 => (PoolAttribute::ReuseAllowOpportunistic, 4),
        3 => (PoolAttribute::ReuseAllowInternalDependencies, 4),
        4 => (PoolAttribute::ReleaseThreshold, 8),
        5 => (PoolAttribute::ReservedCurrent, 8),
        6 => (PoolAttribute::ReservedHigh, 8),
        7 => (PoolAttribute::UsedCurrent, 8),
        8 => (PoolAttribute::UsedHigh, 8),
        _ => return Err(Code::INVALID_VALUE),
    })
}

/// The device of a pool. A pool that there is not is an invalid value, not an invalid handle.
fn owner(pool: u64) -> Answer<&'static Device> {
    world()?.device_of(pool).map_err(|_| Code::INVALID_VALUE)
}

fn as_value(code: Code) -> Code {
    if code == Code::INVALID_HANDLE { Code::INVALID_VALUE } else { code }
}

fn allocate(out: Out<u64>, bytes: usize, pool: Option<u64>, stream: u64, null: Stream) -> Answer {
    out.check()?;
    let current = current()?;
    let (device, stream) = current.stream(stream, null)?;
    // The stream is looked at first: it is the only one that can be an invalid handle.
    device.gpu.stream_id(stream)?;
    let pool = match pool {
        Some(pool) => DriverPool(pool),
        None => device.current_pool()?,
    };
    let capture = device.gpu.capture_state(stream)?;
    // No bytes are no memory, and freed as such.
    if bytes == 0 {
        let reserved = PoolAttribute::ReservedCurrent;
        device.gpu.pool_attribute(pool, reserved).map_err(|error| as_value(error.into()))?;
        return out.set(0);
    }
    if let CaptureState::Active(capture) = capture {
        let ptr = current.world.graphs.allocate(capture, device, bytes)?;
        device.gpu.capture_mark(stream, GraphMark::Alloc)?;
        return out.set(ptr.0);
    }
    let ptr =
        device.gpu.alloc_async(bytes, pool, stream).map_err(|error| as_value(error.into()))?;
    out.set(ptr.0)
}

entries! {
    fn cuMemAllocAsync / cuMemAllocAsync_ptsz(ptr: Out<u64>, bytes: usize, stream: u64) {
        allocate(ptr, bytes, None, stream, NULL_STREAM)
    }

    fn cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz(ptr: Out<u64>, bytes: usize, pool: u64, stream: u64) {
        allocate(ptr, bytes, Some(pool), stream, NULL_STREAM)
    }

    fn cuMemFreeAsync / cuMemFreeAsync_ptsz(ptr: u64, stream: u64) {
        let current = current()?;
        let (device, stream) = current.stream(stream, NULL_STREAM)?;
        let graphs = &current.world.graphs;
        if let CaptureState::Active(capture) = device.gpu.capture_state(stream)?
            && graphs.free_in(capture, DevicePtr(ptr))
        {
            return Ok(device.gpu.capture_mark(stream, GraphMark::Free)?);
        }
        if graphs.have(DevicePtr(ptr)) {
            let freed = graphs.memory.free(DevicePtr(ptr));
            return if freed { Ok(()) } else { Err(Code::INVALID_VALUE) };
        }
        match current.world.allocation_at(ptr) {
            // Plain memory may be freed so, too: when the stream has come to it.
            Some((owner, memory)) if memory.kind == AllocationKind::Plain && memory.start.0 == ptr => {
                device.gpu.synchronize_stream(stream)?;
                owner.gpu.free(DevicePtr(ptr))?;
                current.world.disown(owner, Owned::Memory(DevicePtr(ptr)));
                Ok(())
            }
            _ => Ok(device.gpu.free_async(DevicePtr(ptr), stream)?),
        }
    }

    fn cuMemPoolCreate(pool: Out<u64>, properties: In<PoolProps>) {
        pool.check()?;
        let wanted = properties.get()?;
        if wanted.kind != 1 || wanted.location.kind != location::DEVICE {
            return Err(Code::INVALID_VALUE);
        }
        let gpu = &world()?.device(wanted.location.id)?.gpu;
        pool.set(gpu.create_pool(PoolProperties { max_bytes: wanted.max_bytes })?.0)
    }

    fn cuMemPoolDestroy(pool: u64) {
        let device = owner(pool)?;
        let current_one = device.current_pool()?.0 == pool;
        device.gpu.destroy_pool(DriverPool(pool)).map_err(|error| as_value(error.into()))?;
        if current_one {
            device.set_current_pool(None);
        }
        Ok(())
    }

    fn cuMemPoolTrimTo(pool: u64, keep: usize) {
        owner(pool)?.gpu.trim_pool(DriverPool(pool), keep).map_err(|error| as_value(error.into()))
    }

    fn cuMemPoolGetAttribute(pool: u64, number: i32, value: u64) {
        let (attribute, bytes) = attribute(number)?;
        let read = owner(pool)?.gpu.pool_attribute(DriverPool(pool), attribute);
        write_host(value, &read.map_err(|error| as_value(error.into()))?.to_le_bytes()[..bytes])
    }

    fn cuMemPoolSetAttribute(pool: u64, number: i32, value: u64) {
        let (attribute, bytes) = attribute(number)?;
        let device = owner(pool)?;
        let mut wide = [0; 8];
        wide[..bytes].copy_from_slice(&read_host(value, bytes)?);
        let set = device.gpu.set_pool_attribute(DriverPool(pool), attribute, u64::from_le_bytes(wide));
        set.map_err(|error| as_value(error.into()))
    }

    /// Every pool can be used on its own device; on another one none can.
    fn cuMemPoolSetAccess(pool: u64, descriptions: In<AccessDescription>, count: usize) {
        let device = owner(pool)?;
        for wanted in descriptions.get_all(count)? {
            let here = wanted.location.kind == location::DEVICE
                && wanted.location.id == device.ordinal as i32;
            if !here || wanted.flags != READ_WRITE {
                return Err(Code::INVALID_VALUE);
            }
        }
        Ok(())
    }

    fn cuMemPoolGetAccess(flags: Out<i32>, pool: u64, place: In<Location>) {
        flags.check()?;
        let device = owner(pool)?;
        let wanted = place.get()?;
        if wanted.kind != location::DEVICE {
            return Err(Code::INVALID_VALUE);
        }
        world()?.device(wanted.id)?;
        flags.set(if wanted.id == device.ordinal as i32 { READ_WRITE } else { 0 })
    }

    fn cuMemPoolExportPointer(_data: *mut c_void, ptr: u64) {
        current()?.world.allocation_at(ptr).ok_or(Code::INVALID_VALUE)?;
        Err(Code::NOT_SUPPORTED)
    }
}
