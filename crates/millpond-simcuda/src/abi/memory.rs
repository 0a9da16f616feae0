//! Plain and host memory.

use millpond::driver::{DevicePtr, Driver};
use millpond_sim::AllocationKind;

use crate::code_number::{Answer, Code};
use crate::context::Owned;
use crate::entry::entries;
use crate::mapped_pages::are_readable;
use crate::memory::Registered;
use crate::raw_pointers::Out;
use crate::world::{current, world};

/// Rows begin at multiples of this.
const PITCH_ALIGN: usize = 512;
/// Flags of `cuMemHostAlloc` and `cuMemHostRegister`.
const HOST_ALLOC_FLAGS: u32 = 7;
const HOST_REGISTER_FLAGS: u32 = 15;

fn allocate(out: Out<u64>, bytes: usize) -> Answer {
    out.check()?;
    let current = current()?;
    let ptr = current.gpu().alloc(bytes)?;
    current.context.own(Owned::Memory(ptr));
    out.set(ptr.0)
}

fn allocate_host(out: Out<u64>, bytes: usize, flags: u32) -> Answer {
    out.check()?;
    if flags & !HOST_ALLOC_FLAGS != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let current = current()?;
    let ptr = current.gpu().alloc_pinned(bytes)?;
    current.context.own(Owned::Pinned(ptr));
    out.set(ptr.0)
}

entries! {
    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        free.check()?;
        total.check()?;
        let info = current()?.gpu().memory_info()?;
        free.set(info.free_bytes)?;
        total.set(info.total_bytes)
    }

    fn cuMemAlloc_v2(ptr: Out<u64>, bytes: usize) {
        allocate(ptr, bytes)
    }

    fn cuMemAllocPitch_v2(ptr: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: u32) {
        pitch.check()?;
        if !matches!(element, 4 | 8 | 16) {
            return Err(Code::INVALID_VALUE);
        }
        let row = width.checked_next_multiple_of(PITCH_ALIGN).ok_or(Code::INVALID_VALUE)?;
        let bytes = row.checked_mul(height).ok_or(Code::INVALID_VALUE)?;
        allocate(ptr, bytes)?;
        pitch.set(row)
    }

    /// Without a current context, too: who frees at its end may have none any more.
    fn cuMemFree_v2(ptr: u64) {
        let world = world()?;
        if ptr == 0 {
            return Ok(());
        }
        let (owner, memory) = match world.allocation_at(ptr) {
            Some((owner, memory)) if memory.start.0 == ptr => (owner, memory),
            _ => return Err(Code::INVALID_VALUE),
        };
        owner.host_calls.wait_for_all(&owner.gpu);
        if world.graphs.have(DevicePtr(ptr)) {
            owner.gpu.synchronize_device()?;
            let freed = world.graphs.memory.free(DevicePtr(ptr));
            return if freed { Ok(()) } else { Err(Code::INVALID_VALUE) };
        }
        owner.gpu.free(DevicePtr(ptr))?;
        if memory.kind == AllocationKind::Managed {
            world.managed_ranges.forget(ptr, memory.bytes as u64);
        }
        world.disown(owner, Owned::Memory(DevicePtr(ptr)));
        Ok(())
    }

    fn cuMemGetAddressRange_v2(base: Out<u64>, size: Out<usize>, ptr: u64) {
        let current = current()?;
        let (_, memory) = current.world.allocation_at(ptr).ok_or(Code::NOT_FOUND)?;
        base.set_if_wanted(memory.start.0)?;
        size.set_if_wanted(memory.bytes)
    }

    fn cuMemAllocHost_v2(ptr: Out<u64>, bytes: usize) {
        allocate_host(ptr, bytes, 0)
    }

    fn cuMemHostAlloc(ptr: Out<u64>, bytes: usize, flags: u32) {
        allocate_host(ptr, bytes, flags)
    }

    fn cuMemFreeHost(ptr: u64) {
        let world = world()?;
        if ptr == 0 {
            return Ok(());
        }
        let (owner, memory) = world.allocation_at(ptr).ok_or(Code::INVALID_VALUE)?;
        if memory.kind != AllocationKind::Pinned {
            return Err(Code::INVALID_VALUE);
        }
        owner.host_calls.wait_for_all(&owner.gpu);
        owner.gpu.free_pinned(DevicePtr(ptr))?;
        world.disown(owner, Owned::Pinned(DevicePtr(ptr)));
        Ok(())
    }

    fn cuMemHostGetDevicePointer_v2(device: Out<u64>, host: u64, flags: u32) {
        device.check()?;
        let world = current()?.world;
        let pinned = world.allocation_at(host).is_some_and(|(_, memory)| memory.kind == AllocationKind::Pinned);
        if flags != 0 || !(pinned || world.registered.around(host).is_some()) {
            return Err(Code::INVALID_VALUE);
        }
        device.set(host)
    }

    fn cuMemHostGetFlags(flags: Out<u32>, host: u64) {
        flags.check()?;
        let world = current()?.world;
        match world.allocation_at(host) {
            Some((_, memory)) if memory.kind == AllocationKind::Pinned => flags.set(2),
            _ => flags.set(world.registered.around(host).ok_or(Code::INVALID_VALUE)?.flags),
        }
    }

    /// The range is noted. Kernels cannot touch it here; copies can, as any host memory.
    fn cuMemHostRegister_v2(host: u64, bytes: usize, flags: u32) {
        let current = current()?;
        let last = (host as usize).checked_add(bytes.saturating_sub(1)).ok_or(Code::INVALID_VALUE)?;
        let there = are_readable(host as usize, 1) && are_readable(last, 1);
        if bytes == 0 || flags & !HOST_REGISTER_FLAGS != 0 || !there {
            return Err(Code::INVALID_VALUE);
        }
        let device = current.device.ordinal;
        current.world.registered.add(Registered { start: host, bytes: bytes as u64, flags, device })
    }

    fn cuMemHostUnregister(host: u64) {
        world()?;
        current()?.world.registered.remove(host)
    }
}
