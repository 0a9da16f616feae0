//! Filling memory.

use millpond::driver::{DevicePtr, Driver, Kernel, Stream};
use millpond_sim::AllocationKind;

use crate::code_number::{Answer, Code};
use crate::entry::entries;
use crate::world::current;

/// A value that is repeated: 1, 2 or 4 bytes.
#[derive(Clone, Copy)]
struct Pattern {
    value: u32,
    bytes: usize,
}

impl Pattern {
    const fn of_byte(value: u8) -> Pattern {
        Pattern { value: value as u32, bytes: 1 }
    }

    const fn of_half(value: u16) -> Pattern {
        Pattern { value: value as u32, bytes: 2 }
    }

    const fn of_word(value: u32) -> Pattern {
        Pattern { value, bytes: 4 }
    }

    /// The byte that it consists of, if it is only one.
    fn byte(self) -> Option<u8> {
        let bytes = self.value.to_le_bytes();
        bytes[..self.bytes].iter().all(|byte| *byte == bytes[0]).then_some(bytes[0])
    }

    /// As a word, and how much of it an odd end takes.
    fn word(self) -> u32 {
        if self.bytes == 2 { self.value | self.value << 16 } else { self.value }
    }
}

fn fill(ptr: u64, pattern: Pattern, count: usize, handle: u64, null: Stream) -> Answer {
    let bytes = count.checked_mul(pattern.bytes).ok_or(Code::INVALID_VALUE)?;
    let current = current()?;
    let (device, stream) = current.stream(handle, null)?;
    if bytes == 0 {
        return Ok(());
    }
    if !ptr.is_multiple_of(pattern.bytes as u64) {
        return Err(Code::INVALID_VALUE);
    }
    let (owner, memory) = current.world.allocation_at(ptr).ok_or(Code::INVALID_VALUE)?;
    let room = memory.bytes - (ptr - memory.start.0) as usize;
    if !std::ptr::eq(owner, device) || (bytes > room && memory.kind != AllocationKind::Mapped) {
        return Err(Code::INVALID_VALUE);
    }
    let dst = DevicePtr(ptr);
    if let Some(byte) = pattern.byte() {
        return Ok(device.gpu.memset(dst, byte, bytes, stream)?);
    }
    let (words, rest) = (bytes / 4, bytes % 4);
    if words > 0 {
        device.gpu.launch(&Kernel::Fill { dst, value: pattern.word(), count: words }, stream)?;
    }
    let end = &pattern.word().to_le_bytes()[..rest];
    Ok(device.gpu.copy_to_device(dst.offset(words * 4), end, stream)?)
}

/// On the default stream. As NVIDIA documents, device memory is not waited for.
fn fill_now(ptr: u64, pattern: Pattern, count: usize, null: Stream) -> Answer {
    fill(ptr, pattern, count, 0, null)
}

fn fill_rows(
    ptr: u64,
    pitch: usize,
    pattern: Pattern,
    (width, height): (usize, usize),
    handle: u64,
    null: Stream,
) -> Answer {
    let row = width.checked_mul(pattern.bytes).ok_or(Code::INVALID_VALUE)?;
    if height > 1 && pitch < row {
        return Err(Code::INVALID_VALUE);
    }
    if row == 0 {
        return Ok(());
    }
    for index in 0..height {
        let skipped = index.checked_mul(pitch).and_then(|skip| ptr.checked_add(skip as u64));
        fill(skipped.ok_or(Code::INVALID_VALUE)?, pattern, width, handle, null)?;
    }
    Ok(())
}

entries! {
    fn cuMemsetD8_v2 / cuMemsetD8_v2_ptds(dst: u64, value: u8, count: usize) {
        fill_now(dst, Pattern::of_byte(value), count, NULL_STREAM)
    }

    fn cuMemsetD16_v2 / cuMemsetD16_v2_ptds(dst: u64, value: u16, count: usize) {
        fill_now(dst, Pattern::of_half(value), count, NULL_STREAM)
    }

    fn cuMemsetD32_v2 / cuMemsetD32_v2_ptds(dst: u64, value: u32, count: usize) {
        fill_now(dst, Pattern::of_word(value), count, NULL_STREAM)
    }

    fn cuMemsetD8Async / cuMemsetD8Async_ptsz(dst: u64, value: u8, count: usize, stream: u64) {
        fill(dst, Pattern::of_byte(value), count, stream, NULL_STREAM)
    }

    fn cuMemsetD16Async / cuMemsetD16Async_ptsz(dst: u64, value: u16, count: usize, stream: u64) {
        fill(dst, Pattern::of_half(value), count, stream, NULL_STREAM)
    }

    fn cuMemsetD32Async / cuMemsetD32Async_ptsz(dst: u64, value: u32, count: usize, stream: u64) {
        fill(dst, Pattern::of_word(value), count, stream, NULL_STREAM)
    }

    fn cuMemsetD2D8_v2 / cuMemsetD2D8_v2_ptds(dst: u64, pitch: usize, value: u8, width: usize, height: usize) {
        fill_rows(dst, pitch, Pattern::of_byte(value), (width, height), 0, NULL_STREAM)
    }

    fn cuMemsetD2D16_v2 / cuMemsetD2D16_v2_ptds(dst: u64, pitch: usize, value: u16, width: usize, height: usize) {
        fill_rows(dst, pitch, Pattern::of_half(value), (width, height), 0, NULL_STREAM)
    }

    fn cuMemsetD2D32_v2 / cuMemsetD2D32_v2_ptds(dst: u64, pitch: usize, value: u32, width: usize, height: usize) {
        fill_rows(dst, pitch, Pattern::of_word(value), (width, height), 0, NULL_STREAM)
    }

    fn cuMemsetD2D8Async / cuMemsetD2D8Async_ptsz(
        dst: u64,
        pitch: usize,
        value: u8,
        width: usize,
        height: usize,
        stream: u64,
    ) {
        fill_rows(dst, pitch, Pattern::of_byte(value), (width, height), stream, NULL_STREAM)
    }

    fn cuMemsetD2D16Async / cuMemsetD2D16Async_ptsz(
        dst: u64,
        pitch: usize,
        value: u16,
        width: usize,
        height: usize,
        stream: u64,
    ) {
        fill_rows(dst, pitch, Pattern::of_half(value), (width, height), stream, NULL_STREAM)
    }

    fn cuMemsetD2D32Async / cuMemsetD2D32Async_ptsz(
        dst: u64,
        pitch: usize,
        value: u32,
        width: usize,
        height: usize,
        stream: u64,
    ) {
        fill_rows(dst, pitch, Pattern::of_word(value), (width, height), stream, NULL_STREAM)
    }
}
