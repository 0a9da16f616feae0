//! The first forms of copies and memsets, whose addresses have 32 bits. No memory of ours has such an address; they pass the gate like
//! all others, with their arguments in whatever registers they came.

use crate::entry_ffi::entries;
use crate::passing::{NO_STREAM, gated, stream_of};

entries! {
    fn cuMemcpyHtoD(a: u64, b: u64, c: u64) {
        gated(NO_STREAM, [], || real(a, b, c))
    }

    fn cuMemcpyDtoH(a: u64, b: u64, c: u64) {
        gated(NO_STREAM, [], || real(a, b, c))
    }

    fn cuMemcpyDtoD(a: u64, b: u64, c: u64) {
        gated(NO_STREAM, [], || real(a, b, c))
    }

    fn cuMemcpyDtoA(a: u64, b: u64, c: u64, d: u64) {
        gated(NO_STREAM, [], || real(a, b, c, d))
    }

    fn cuMemcpyAtoD(a: u64, b: u64, c: u64, d: u64) {
        gated(NO_STREAM, [], || real(a, b, c, d))
    }

    fn cuMemcpyHtoA(a: u64, b: u64, c: u64, d: u64) {
        gated(NO_STREAM, [], || real(a, b, c, d))
    }

    fn cuMemcpyAtoH(a: u64, b: u64, c: u64, d: u64) {
        gated(NO_STREAM, [], || real(a, b, c, d))
    }

    fn cuMemcpyAtoA(a: u64, b: u64, c: u64, d: u64, e: u64) {
        gated(NO_STREAM, [], || real(a, b, c, d, e))
    }

    fn cuMemcpy2D(a: u64) {
        gated(NO_STREAM, [], || real(a))
    }

    fn cuMemcpy2DUnaligned(a: u64) {
        gated(NO_STREAM, [], || real(a))
    }

    fn cuMemcpy3D(a: u64) {
        gated(NO_STREAM, [], || real(a))
    }

    fn cuMemsetD8(a: u64, b: u64, c: u64) {
        gated(NO_STREAM, [], || real(a, b, c))
    }

    fn cuMemsetD16(a: u64, b: u64, c: u64) {
        gated(NO_STREAM, [], || real(a, b, c))
    }

    fn cuMemsetD32(a: u64, b: u64, c: u64) {
        gated(NO_STREAM, [], || real(a, b, c))
    }

    fn cuMemsetD2D8(a: u64, b: u64, c: u64, d: u64, e: u64) {
        gated(NO_STREAM, [], || real(a, b, c, d, e))
    }

    fn cuMemsetD2D16(a: u64, b: u64, c: u64, d: u64, e: u64) {
        gated(NO_STREAM, [], || real(a, b, c, d, e))
    }

    fn cuMemsetD2D32(a: u64, b: u64, c: u64, d: u64, e: u64) {
        gated(NO_STREAM, [], || real(a, b, c, d, e))
    }

    fn cuMemcpyHtoDAsync(a: u64, b: u64, c: u64, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [], || real(a, b, c, stream))
    }

    fn cuMemcpyDtoHAsync(a: u64, b: u64, c: u64, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [], || real(a, b, c, stream))
    }

    fn cuMemcpyDtoDAsync(a: u64, b: u64, c: u64, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [], || real(a, b, c, stream))
    }

    fn cuMemcpyHtoAAsync(a: u64, b: u64, c: u64, d: u64, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [], || real(a, b, c, d, stream))
    }

    fn cuMemcpyAtoHAsync(a: u64, b: u64, c: u64, d: u64, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [], || real(a, b, c, d, stream))
    }

    fn cuMemcpy2DAsync(a: u64, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [], || real(a, stream))
    }

    fn cuMemcpy3DAsync(a: u64, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [], || real(a, stream))
    }
}
