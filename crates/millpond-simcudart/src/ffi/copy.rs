//! Copies and fills.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use crate::abi::{Copy2D, DevicePtr, Plane, Stream};
use crate::code::Code;
use crate::context_ffi;
use crate::driver_ffi::Driver;

/// `cudaMemcpyKind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    HostToHost,
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    /// Addresses say themselves what they are.
    ByAddress,
}

impl Direction {
    pub(super) fn of(kind: c_int) -> Result<Direction, Code> {
        Ok(match kind {
            0 => Direction::HostToHost,
            1 => Direction::HostToDevice,
            2 => Direction::DeviceToHost,
            3 => Direction::DeviceToDevice,
            4 => Direction::ByAddress,
            _ => return Err(Code::INVALID_COPY_DIRECTION),
        })
    }

    /// `CU_MEMORYTYPE_…` of the source and of the destination.
    fn memory_types(self) -> (c_uint, c_uint) {
        const HOST: c_uint = 1;
        const DEVICE: c_uint = 2;
        const UNIFIED: c_uint = 4;
        match self {
            Direction::HostToHost => (HOST, HOST),
            Direction::HostToDevice => (HOST, DEVICE),
            Direction::DeviceToHost => (DEVICE, HOST),
            Direction::DeviceToDevice => (DEVICE, DEVICE),
            Direction::ByAddress => (UNIFIED, UNIFIED),
        }
    }
}

entry_points! {
    context fn cudaMemcpy | cudaMemcpy_ptds(driver, to: DevicePtr, from: DevicePtr, bytes: usize, kind: c_int) {
        copy(driver, to, from, bytes, Direction::of(kind)?)
    }
    context fn cudaMemcpyAsync | cudaMemcpyAsync_ptsz(
        driver, to: DevicePtr, from: DevicePtr, bytes: usize, kind: c_int, stream: Stream,
    ) { copy_async(driver, to, from, bytes, Direction::of(kind)?, stream) }

    context fn cudaMemcpyPeer(driver, to: DevicePtr, to_device: c_int, from: DevicePtr, from_device: c_int, bytes: usize) {
        context_ffi::check_device(driver, to_device)?;
        context_ffi::check_device(driver, from_device)?;
        let (to_context, from_context) = (context_ffi::primary(driver, to_device)?, context_ffi::primary(driver, from_device)?);
        driver.cuMemcpyPeer(to, to_context, from, from_context, bytes)
    }
    context fn cudaMemcpyPeerAsync(
        driver, to: DevicePtr, to_device: c_int, from: DevicePtr, from_device: c_int, bytes: usize, stream: Stream,
    ) {
        context_ffi::check_device(driver, to_device)?;
        context_ffi::check_device(driver, from_device)?;
        let (to_context, from_context) = (context_ffi::primary(driver, to_device)?, context_ffi::primary(driver, from_device)?);
        driver.cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, stream)
    }

    context fn cudaMemcpy2D | cudaMemcpy2D_ptds(
        driver, to: DevicePtr, to_pitch: usize, from: DevicePtr, from_pitch: usize, width: usize, height: usize, kind: c_int,
    ) {
        match plan(to, to_pitch, from, from_pitch, width, height, Direction::of(kind)?)? {
            Some(copy) => driver.cuMemcpy2DUnaligned(&copy),
            None => Ok(()),
        }
    }
    context fn cudaMemcpy2DAsync | cudaMemcpy2DAsync_ptsz(
        driver, to: DevicePtr, to_pitch: usize, from: DevicePtr, from_pitch: usize, width: usize, height: usize, kind: c_int,
        stream: Stream,
    ) {
        match plan(to, to_pitch, from, from_pitch, width, height, Direction::of(kind)?)? {
            Some(copy) => driver.cuMemcpy2DAsync(&copy, stream),
            None => Ok(()),
        }
    }
    context fn cudaMemcpyBatchAsync | cudaMemcpyBatchAsync_ptsz(
        driver, to: *mut *mut c_void, from: *mut *mut c_void, sizes: *mut usize, count: usize, attributes: *mut c_void,
        indexes: *mut usize, attribute_count: usize, failed: *mut usize, stream: Stream,
    ) { driver.cuMemcpyBatchAsync(to, from, sizes, count, attributes, indexes, attribute_count, failed, stream) }

    context fn cudaMemset | cudaMemset_ptds(driver, pointer: DevicePtr, value: c_int, bytes: usize) {
        if bytes == 0 { Ok(()) } else { driver.cuMemsetD8(pointer, value as u8, bytes) }
    }
    context fn cudaMemsetAsync | cudaMemsetAsync_ptsz(
        driver, pointer: DevicePtr, value: c_int, bytes: usize, stream: Stream,
    ) { if bytes == 0 { Ok(()) } else { driver.cuMemsetD8Async(pointer, value as u8, bytes, stream) } }
    context fn cudaMemset2D | cudaMemset2D_ptds(
        driver, pointer: DevicePtr, pitch: usize, value: c_int, width: usize, height: usize,
    ) {
        if width == 0 || height == 0 { return Ok(()) }
        driver.cuMemsetD2D8(pointer, pitch, value as u8, width, height)
    }
    context fn cudaMemset2DAsync | cudaMemset2DAsync_ptsz(
        driver, pointer: DevicePtr, pitch: usize, value: c_int, width: usize, height: usize, stream: Stream,
    ) {
        if width == 0 || height == 0 { return Ok(()) }
        driver.cuMemsetD2D8Async(pointer, pitch, value as u8, width, height, stream)
    }
}

/// # Safety
/// The addresses are as the direction says, or are the driver's to refuse.
pub(super) unsafe fn copy(
    driver: &Driver,
    to: DevicePtr,
    from: DevicePtr,
    bytes: usize,
    direction: Direction,
) -> Result<(), Code> {
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe {
        match direction {
            Direction::HostToDevice => driver.cuMemcpyHtoD(to, from as *const c_void, bytes),
            Direction::DeviceToHost => driver.cuMemcpyDtoH(to as *mut c_void, from, bytes),
            Direction::DeviceToDevice => driver.cuMemcpyDtoD(to, from, bytes),
            Direction::HostToHost | Direction::ByAddress => driver.cuMemcpy(to, from, bytes),
        }
    }
}

/// # Safety
/// As for [`copy`], until the stream has done it.
pub(super) unsafe fn copy_async(
    driver: &Driver,
    to: DevicePtr,
    from: DevicePtr,
    bytes: usize,
    direction: Direction,
    stream: Stream,
) -> Result<(), Code> {
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe {
        match direction {
            Direction::HostToDevice => {
                driver.cuMemcpyHtoDAsync(to, from as *const c_void, bytes, stream)
            }
            Direction::DeviceToHost => {
                driver.cuMemcpyDtoHAsync(to as *mut c_void, from, bytes, stream)
            }
            Direction::DeviceToDevice => driver.cuMemcpyDtoDAsync(to, from, bytes, stream),
            Direction::HostToHost | Direction::ByAddress => {
                driver.cuMemcpyAsync(to, from, bytes, stream)
            }
        }
    }
}

/// What the driver is to do for a two-dimensional copy: nothing, if it has no area.
fn plan(
    to: DevicePtr,
    to_pitch: usize,
    from: DevicePtr,
    from_pitch: usize,
    width: usize,
    height: usize,
    direction: Direction,
) -> Result<Option<Copy2D>, Code> {
    if width == 0 || height == 0 {
        return Ok(None);
    }
    if width > to_pitch || width > from_pitch {
        return Err(Code::INVALID_PITCH);
    }
    let plane = |kind, address: DevicePtr, pitch_bytes| Plane {
        x_bytes: 0,
        y: 0,
        kind,
        host: address as *mut c_void,
        device: address,
        array: null_mut(),
        pitch_bytes,
    };
    let (from_kind, to_kind) = direction.memory_types();
    Ok(Some(Copy2D {
        from: plane(from_kind, from, from_pitch),
        to: plane(to_kind, to, to_pitch),
        width_bytes: width,
        height,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plane_that_is_wider_than_its_pitch_is_refused() {
        let plan = |to_pitch, from_pitch, width| {
            plan(1, to_pitch, 2, from_pitch, width, 3, Direction::HostToDevice)
        };
        assert_eq!(plan(64, 63, 64).err(), Some(Code::INVALID_PITCH));
        assert_eq!(plan(63, 64, 64).err(), Some(Code::INVALID_PITCH));
        assert!(plan(0, 0, 0).unwrap().is_none());
        let copy = plan(80, 64, 64).unwrap().unwrap();
        assert_eq!(
            (copy.from.kind, copy.to.kind, copy.from.pitch_bytes, copy.to.pitch_bytes),
            (1, 2, 64, 80)
        );
        assert_eq!(Direction::of(5), Err(Code::INVALID_COPY_DIRECTION));
    }
}
