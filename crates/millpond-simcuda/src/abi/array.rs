//! Arrays, as far as they take memory: an array is plain memory, and its handle where that begins. Nothing is copied to or from one.

use millpond::driver::{DevicePtr, Driver};

use crate::code_number::{Answer, Code};
use crate::context::Owned;
use crate::entry::entries;
use crate::layouts::{ArrayDescription, ArrayDescription3D};
use crate::raw_pointers::{In, Out};
use crate::world::{current, world};

/// `CUDA_ARRAY3D_LAYERED` and `CUDA_ARRAY3D_CUBEMAP`: the depth is a number of layers.
const LAYERS: u32 = 0x01 | 0x04;

/// Bytes of a channel, by `CUarray_format`.
fn channel_bytes(format: i32) -> Answer<usize> {
    match format {
        0x01 | 0x08 => Ok(1),
        0x02 | 0x09 | 0x10 => Ok(2),
        0x03 | 0x0a | 0x20 => Ok(4),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn bytes(extent: [usize; 3], format: i32, channels: u32) -> Answer<usize> {
    if extent[0] == 0 || !matches!(channels, 1 | 2 | 4) {
        return Err(Code::INVALID_VALUE);
    }
    let element = channel_bytes(format)? * channels as usize;
    let all = extent.iter().try_fold(element, |bytes, length| bytes.checked_mul(*length.max(&1)));
    all.ok_or(Code::INVALID_VALUE)
}

fn create(out: Out<u64>, bytes: usize) -> Answer {
    let current = current()?;
    let ptr = current.gpu().alloc(bytes)?;
    current.context.own(Owned::Memory(ptr));
    out.set(ptr.0)
}

fn destroy(handle: u64) -> Answer {
    let world = world()?;
    let owner = match world.allocation_at(handle) {
        Some((owner, memory)) if memory.start.0 == handle => owner,
        _ => return Err(Code::INVALID_HANDLE),
    };
    owner.host_calls.wait_for_all(&owner.gpu);
    owner.gpu.free(DevicePtr(handle))?;
    world.disown(owner, Owned::Memory(DevicePtr(handle)));
    Ok(())
}

entries! {
    fn cuArrayCreate_v2(array: Out<u64>, description: In<ArrayDescription>) {
        array.check()?;
        let ArrayDescription { width, height, format, channels } = description.get()?;
        create(array, bytes([width, height, 0], format, channels)?)
    }

    fn cuArray3DCreate_v2(array: Out<u64>, description: In<ArrayDescription3D>) {
        array.check()?;
        let ArrayDescription3D { extent, format, channels, .. } = description.get()?;
        create(array, bytes(extent, format, channels)?)
    }

    fn cuMipmappedArrayCreate(array: Out<u64>, description: In<ArrayDescription3D>, levels: u32) {
        array.check()?;
        let ArrayDescription3D { extent, format, channels, flags } = description.get()?;
        let largest = extent.iter().max().copied().unwrap_or(0).max(1);
        if levels == 0 || levels > largest.ilog2() + 1 {
            return Err(Code::INVALID_VALUE);
        }
        let level = |level: u32| {
            let mut lengths = extent.map(|length| (length >> level).max(1));
            if flags & LAYERS != 0 {
                lengths[2] = extent[2];
            }
            bytes(lengths, format, channels)
        };
        let sizes = (0..levels).map(level).collect::<Answer<Vec<usize>>>()?;
        create(array, sizes.into_iter().fold(0, usize::saturating_add))
    }

    fn cuArrayDestroy(array: u64) {
        destroy(array)
    }

    fn cuMipmappedArrayDestroy(array: u64) {
        destroy(array)
    }
}
