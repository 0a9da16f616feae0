//! What is known of an address.

use std::ffi::c_void;

use millpond_sim::AllocationKind;

use crate::code_number::{Answer, Code};
use crate::entry::entries;
use crate::layouts::memory_type;
use crate::raw_pointers::{In, write_host};
use crate::world::{World, current, world};

/// `CUpointer_attribute`.
mod attribute {
    pub(super) const CONTEXT: i32 = 1;
    pub(super) const MEMORY_TYPE: i32 = 2;
    pub(super) const DEVICE_POINTER: i32 = 3;
    pub(super) const HOST_POINTER: i32 = 4;
    pub(super) const SYNC_MEMOPS: i32 = 6;
    pub(super) const BUFFER_ID: i32 = 7;
    pub(super) const IS_MANAGED: i32 = 8;
    pub(super) const DEVICE_ORDINAL: i32 = 9;
    pub(super) const IS_LEGACY_IPC_CAPABLE: i32 = 10;
    pub(super) const RANGE_START: i32 = 11;
    pub(super) const RANGE_SIZE: i32 = 12;
    pub(super) const MAPPED: i32 = 13;
    pub(super) const ALLOWED_HANDLE_TYPES: i32 = 14;
    pub(super) const IS_GPU_DIRECT_RDMA_CAPABLE: i32 = 15;
    pub(super) const ACCESS_FLAGS: i32 = 16;
    pub(super) const MEMPOOL_HANDLE: i32 = 17;
    pub(super) const LAST: i32 = 21;
}

/// The ordinal of what is no memory that a device knows.
const NO_DEVICE: i32 = -2;
const READ_WRITE: u64 = 3;

/// What an attribute says: a number, and in how many bytes.
struct Said(u64, usize);

/// Of an address that is not known nothing can be said, and `None` is that.
fn attribute_of(world: &World, which: i32, ptr: u64) -> Answer<Option<Said>> {
    if !(1..=attribute::LAST).contains(&which) {
        return Err(Code::INVALID_VALUE);
    }
    let Some((device, memory)) = world.allocation_at(ptr) else {
        return Ok(of_registered(world, which, ptr));
    };
    let on_host = memory.kind == AllocationKind::Pinned;
    let managed = memory.kind == AllocationKind::Managed;
    let said = match which {
        attribute::CONTEXT => Said(device.primary_handle().unwrap_or(0), 8),
        attribute::MEMORY_TYPE if on_host => Said(memory_type::HOST as u64, 4),
        attribute::MEMORY_TYPE => Said(memory_type::DEVICE as u64, 4),
        attribute::DEVICE_POINTER => Said(ptr, 8),
        attribute::HOST_POINTER if on_host || managed => Said(ptr, 8),
        attribute::HOST_POINTER => return Err(Code::INVALID_VALUE),
        attribute::SYNC_MEMOPS => Said(0, 4),
        attribute::BUFFER_ID => Said(memory.start.0, 8),
        attribute::IS_MANAGED => Said(u64::from(managed), 4),
        attribute::DEVICE_ORDINAL => Said(device.ordinal as u64, 4),
        attribute::IS_LEGACY_IPC_CAPABLE => Said(0, 4),
        attribute::RANGE_START => Said(memory.start.0, 8),
        attribute::RANGE_SIZE => Said(memory.bytes as u64, 8),
        attribute::MAPPED => Said(1, 4),
        attribute::ALLOWED_HANDLE_TYPES => Said(0, 8),
        attribute::IS_GPU_DIRECT_RDMA_CAPABLE => Said(0, 4),
        attribute::ACCESS_FLAGS => Said(READ_WRITE, 4),
        attribute::MEMPOOL_HANDLE => Said(0, 8),
        _ => return Err(Code::NOT_SUPPORTED),
    };
    Ok(Some(said))
}

/// Host memory that was registered is known, too.
fn of_registered(world: &World, which: i32, ptr: u64) -> Option<Said> {
    let range = world.registered.around(ptr)?;
    Some(match which {
        attribute::MEMORY_TYPE => Said(memory_type::HOST as u64, 4),
        attribute::DEVICE_POINTER | attribute::HOST_POINTER => Said(ptr, 8),
        attribute::DEVICE_ORDINAL => Said(range.device as u64, 4),
        attribute::RANGE_START => Said(range.start, 8),
        attribute::RANGE_SIZE => Said(range.bytes, 8),
        attribute::MAPPED => Said(1, 4),
        attribute::CONTEXT => Said(world.devices[range.device].primary_handle().unwrap_or(0), 8),
        _ => Said(0, 4),
    })
}

/// What the attributes of unknown memory are, where several are asked for at once.
fn of_unknown(which: i32) -> Said {
    match which {
        attribute::DEVICE_ORDINAL => Said(NO_DEVICE as u32 as u64, 4),
        attribute::MEMORY_TYPE
        | attribute::SYNC_MEMOPS
        | attribute::IS_MANAGED
        | attribute::IS_LEGACY_IPC_CAPABLE
        | attribute::MAPPED
        | attribute::IS_GPU_DIRECT_RDMA_CAPABLE
        | attribute::ACCESS_FLAGS => Said(0, 4),
        _ => Said(0, 8),
    }
}

fn hand_over(Said(number, bytes): Said, to: u64) -> Answer {
    if to == 0 {
        return Err(Code::INVALID_VALUE);
    }
    write_host(to, &number.to_le_bytes()[..bytes])
}

entries! {
    fn cuPointerGetAttribute(data: u64, which: i32, ptr: u64) {
        let world = world()?;
        hand_over(attribute_of(world, which, ptr)?.ok_or(Code::INVALID_VALUE)?, data)
    }

    /// What does not apply is 0, and an address that nobody knows is no mistake here.
    fn cuPointerGetAttributes(count: u32, which: In<i32>, data: In<u64>, ptr: u64) {
        let world = world()?;
        let which = which.get_all(count as usize)?;
        let data = data.get_all(count as usize)?;
        for (which, to) in which.into_iter().zip(data) {
            let said = match attribute_of(world, which, ptr) {
                Ok(said) => said.unwrap_or_else(|| of_unknown(which)),
                Err(_) if (1..=attribute::LAST).contains(&which) => of_unknown(which),
                Err(code) => return Err(code),
            };
            hand_over(said, to)?;
        }
        Ok(())
    }

    /// Copies are in order anyhow.
    fn cuPointerSetAttribute(value: *const c_void, which: i32, ptr: u64) {
        let world = current()?.world;
        let known = world.allocation_at(ptr).is_some();
        if value.is_null() || which != attribute::SYNC_MEMOPS || !known {
            return Err(Code::INVALID_VALUE);
        }
        Ok(())
    }
}
