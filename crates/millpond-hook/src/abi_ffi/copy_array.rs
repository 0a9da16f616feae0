//! Copies from and to arrays. Arrays themselves stay on the device.

use crate::entry_ffi::entries;
use crate::passing::{NO_STREAM, gated, stream_of};

entries! {
    fn cuMemcpyDtoA_v2 / cuMemcpyDtoA_v2_ptds(array: u64, offset: usize, src: u64, bytes: usize) {
        gated(NO_STREAM, [src], || real(array, offset, src, bytes))
    }

    fn cuMemcpyAtoD_v2 / cuMemcpyAtoD_v2_ptds(dst: u64, array: u64, offset: usize, bytes: usize) {
        gated(NO_STREAM, [dst], || real(dst, array, offset, bytes))
    }

    fn cuMemcpyHtoA_v2 / cuMemcpyHtoA_v2_ptds(array: u64, offset: usize, src: u64, bytes: usize) {
        gated(NO_STREAM, [], || real(array, offset, src, bytes))
    }

    fn cuMemcpyAtoH_v2 / cuMemcpyAtoH_v2_ptds(dst: u64, array: u64, offset: usize, bytes: usize) {
        gated(NO_STREAM, [], || real(dst, array, offset, bytes))
    }

    fn cuMemcpyAtoA_v2 / cuMemcpyAtoA_v2_ptds(to: u64, to_offset: usize, from: u64, from_offset: usize, bytes: usize) {
        gated(NO_STREAM, [], || real(to, to_offset, from, from_offset, bytes))
    }

    fn cuMemcpyHtoAAsync_v2 / cuMemcpyHtoAAsync_v2_ptsz(array: u64, offset: usize, src: u64, bytes: usize, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [], || real(array, offset, src, bytes, stream))
    }

    fn cuMemcpyAtoHAsync_v2 / cuMemcpyAtoHAsync_v2_ptsz(dst: u64, array: u64, offset: usize, bytes: usize, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [], || real(dst, array, offset, bytes, stream))
    }
}
