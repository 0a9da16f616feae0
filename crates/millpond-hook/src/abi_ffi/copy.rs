//! Copies.

use crate::entry_ffi::entries;
use crate::layouts::{Copy2D, Copy3D};
use crate::passing::{NO_STREAM, gated, stream_of, unknown};

/// `CU_MEMORYTYPE_HOST`: then the address is another field.
const HOST: i32 = 1;

fn device_address(kind: i32, device: u64) -> u64 {
    if kind == HOST { 0 } else { device }
}

/// The device addresses of a copy of rows.
fn copy2d(wanted: *const Copy2D) -> [u64; 2] {
    // SAFETY: null, or a struct of the program's by the call's contract.
    let Some(wanted) = (unsafe { wanted.as_ref() }) else { return [0; 2] };
    [
        device_address(wanted.src_kind, wanted.src_device),
        device_address(wanted.dst_kind, wanted.dst_device),
    ]
}

/// The device addresses of a copy of boxes.
fn copy3d(wanted: *const Copy3D) -> [u64; 2] {
    // SAFETY: null, or a struct of the program's by the call's contract.
    let Some(wanted) = (unsafe { wanted.as_ref() }) else { return [0; 2] };
    [
        device_address(wanted.src_kind, wanted.src_device),
        device_address(wanted.dst_kind, wanted.dst_device),
    ]
}

entries! {
    fn cuMemcpy / cuMemcpy_ptds(dst: u64, src: u64, bytes: usize) {
        gated(NO_STREAM, [dst, src], || real(dst, src, bytes))
    }

    fn cuMemcpyAsync / cuMemcpyAsync_ptsz(dst: u64, src: u64, bytes: usize, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [dst, src], || real(dst, src, bytes, stream))
    }

    fn cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds(dst: u64, src: u64, bytes: usize) {
        gated(NO_STREAM, [dst], || real(dst, src, bytes))
    }

    fn cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz(dst: u64, src: u64, bytes: usize, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [dst], || real(dst, src, bytes, stream))
    }

    fn cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds(dst: u64, src: u64, bytes: usize) {
        gated(NO_STREAM, [src], || real(dst, src, bytes))
    }

    fn cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz(dst: u64, src: u64, bytes: usize, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [src], || real(dst, src, bytes, stream))
    }

    fn cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds(dst: u64, src: u64, bytes: usize) {
        gated(NO_STREAM, [dst, src], || real(dst, src, bytes))
    }

    fn cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz(dst: u64, src: u64, bytes: usize, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [dst, src], || real(dst, src, bytes, stream))
    }

    fn cuMemcpyPeer / cuMemcpyPeer_ptds(dst: u64, dst_context: u64, src: u64, src_context: u64, bytes: usize) {
        gated(NO_STREAM, [dst, src], || real(dst, dst_context, src, src_context, bytes))
    }

    fn cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz(dst: u64, dst_context: u64, src: u64, src_context: u64, bytes: usize, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [dst, src], || real(dst, dst_context, src, src_context, bytes, stream))
    }

    fn cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds(wanted: *const Copy2D) {
        gated(NO_STREAM, copy2d(wanted), || real(wanted))
    }

    fn cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds(wanted: *const Copy2D) {
        gated(NO_STREAM, copy2d(wanted), || real(wanted))
    }

    fn cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz(wanted: *const Copy2D, stream: u64) {
        gated(stream_of(stream, PER_THREAD), copy2d(wanted), || real(wanted, stream))
    }

    fn cuMemcpy3D_v2 / cuMemcpy3D_v2_ptds(wanted: *const Copy3D) {
        gated(NO_STREAM, copy3d(wanted), || real(wanted))
    }

    fn cuMemcpy3DAsync_v2 / cuMemcpy3DAsync_v2_ptsz(wanted: *const Copy3D, stream: u64) {
        gated(stream_of(stream, PER_THREAD), copy3d(wanted), || real(wanted, stream))
    }

    fn cuMemcpy3DPeer / cuMemcpy3DPeer_ptds(wanted: *const Copy3D) {
        gated(NO_STREAM, copy3d(wanted), || real(wanted))
    }

    fn cuMemcpy3DPeerAsync / cuMemcpy3DPeerAsync_ptsz(wanted: *const Copy3D, stream: u64) {
        gated(stream_of(stream, PER_THREAD), copy3d(wanted), || real(wanted, stream))
    }

    fn cuMemcpyBatchAsync / cuMemcpyBatchAsync_ptsz(to: u64, from: u64, sizes: u64, count: u64, attributes: u64, which: u64, kinds: u64, failed: u64, stream: u64) {
        unknown(stream_of(stream, PER_THREAD), || real(to, from, sizes, count, attributes, which, kinds, failed, stream))
    }

    fn cuMemcpyBatchAsync_v2 / cuMemcpyBatchAsync_v2_ptsz(to: u64, from: u64, sizes: u64, count: u64, attributes: u64, which: u64, kinds: u64, stream: u64) {
        unknown(stream_of(stream, PER_THREAD), || real(to, from, sizes, count, attributes, which, kinds, stream))
    }

    fn cuMemcpy3DBatchAsync / cuMemcpy3DBatchAsync_ptsz(count: u64, list: u64, failed: u64, flags: u64, stream: u64) {
        unknown(stream_of(stream, PER_THREAD), || real(count, list, failed, flags, stream))
    }

    fn cuMemcpy3DBatchAsync_v2 / cuMemcpy3DBatchAsync_v2_ptsz(count: u64, list: u64, flags: u64, stream: u64) {
        unknown(stream_of(stream, PER_THREAD), || real(count, list, flags, stream))
    }
}
