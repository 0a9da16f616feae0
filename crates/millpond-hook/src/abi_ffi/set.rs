//! Filling memory.

use crate::entry_ffi::entries;
use crate::passing::{NO_STREAM, gated, stream_of};

entries! {
    fn cuMemsetD8_v2 / cuMemsetD8_v2_ptds(dst: u64, value: u8, count: usize) {
        gated(NO_STREAM, [dst], || real(dst, value, count))
    }

    fn cuMemsetD8Async / cuMemsetD8Async_ptsz(dst: u64, value: u8, count: usize, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [dst], || real(dst, value, count, stream))
    }

    fn cuMemsetD2D8_v2 / cuMemsetD2D8_v2_ptds(dst: u64, pitch: usize, value: u8, width: usize, height: usize) {
        gated(NO_STREAM, [dst], || real(dst, pitch, value, width, height))
    }

    fn cuMemsetD2D8Async / cuMemsetD2D8Async_ptsz(dst: u64, pitch: usize, value: u8, width: usize, height: usize, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [dst], || real(dst, pitch, value, width, height, stream))
    }

    fn cuMemsetD16_v2 / cuMemsetD16_v2_ptds(dst: u64, value: u16, count: usize) {
        gated(NO_STREAM, [dst], || real(dst, value, count))
    }

    fn cuMemsetD16Async / cuMemsetD16Async_ptsz(dst: u64, value: u16, count: usize, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [dst], || real(dst, value, count, stream))
    }

    fn cuMemsetD2D16_v2 / cuMemsetD2D16_v2_ptds(dst: u64, pitch: usize, value: u16, width: usize, height: usize) {
        gated(NO_STREAM, [dst], || real(dst, pitch, value, width, height))
    }

    fn cuMemsetD2D16Async / cuMemsetD2D16Async_ptsz(dst: u64, pitch: usize, value: u16, width: usize, height: usize, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [dst], || real(dst, pitch, value, width, height, stream))
    }

    fn cuMemsetD32_v2 / cuMemsetD32_v2_ptds(dst: u64, value: u32, count: usize) {
        gated(NO_STREAM, [dst], || real(dst, value, count))
    }

    fn cuMemsetD32Async / cuMemsetD32Async_ptsz(dst: u64, value: u32, count: usize, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [dst], || real(dst, value, count, stream))
    }

    fn cuMemsetD2D32_v2 / cuMemsetD2D32_v2_ptds(dst: u64, pitch: usize, value: u32, width: usize, height: usize) {
        gated(NO_STREAM, [dst], || real(dst, pitch, value, width, height))
    }

    fn cuMemsetD2D32Async / cuMemsetD2D32Async_ptsz(dst: u64, pitch: usize, value: u32, width: usize, height: usize, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [dst], || real(dst, pitch, value, width, height, stream))
    }
}
