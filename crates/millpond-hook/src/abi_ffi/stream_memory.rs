//! Work in the order of a stream that is neither a launch, a copy nor a memset: prefetches, words written and waited for, what other
//! programs of the device's are told and wait for.

use crate::entry_ffi::entries;
use crate::passing::{gated, stream_of, unknown};

entries! {
    fn cuMemPrefetchAsync / cuMemPrefetchAsync_ptsz(ptr: u64, bytes: usize, device: i32, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [ptr], || real(ptr, bytes, device, stream))
    }

    fn cuMemPrefetchAsync_v2 / cuMemPrefetchAsync_v2_ptsz(ptr: u64, bytes: usize, location: u64, flags: u32, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [ptr], || real(ptr, bytes, location, flags, stream))
    }

    fn cuMemPrefetchBatchAsync / cuMemPrefetchBatchAsync_ptsz(list: u64, sizes: u64, count: u64, locations: u64, which: u64, kinds: u64, flags: u64, stream: u64) {
        unknown(stream_of(stream, PER_THREAD), || real(list, sizes, count, locations, which, kinds, flags, stream))
    }

    fn cuMemDiscardAndPrefetchBatchAsync / cuMemDiscardAndPrefetchBatchAsync_ptsz(list: u64, sizes: u64, count: u64, locations: u64, which: u64, kinds: u64, flags: u64, stream: u64) {
        unknown(stream_of(stream, PER_THREAD), || real(list, sizes, count, locations, which, kinds, flags, stream))
    }

    fn cuMemDiscardBatchAsync / cuMemDiscardBatchAsync_ptsz(list: u64, sizes: u64, count: u64, flags: u64, stream: u64) {
        unknown(stream_of(stream, PER_THREAD), || real(list, sizes, count, flags, stream))
    }

    fn cuStreamAttachMemAsync / cuStreamAttachMemAsync_ptsz(stream: u64, ptr: u64, bytes: usize, flags: u32) {
        gated(stream_of(stream, PER_THREAD), [ptr], || real(stream, ptr, bytes, flags))
    }

    fn cuSignalExternalSemaphoresAsync / cuSignalExternalSemaphoresAsync_ptsz(list: u64, parameters: u64, count: u32, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [], || real(list, parameters, count, stream))
    }

    fn cuWaitExternalSemaphoresAsync / cuWaitExternalSemaphoresAsync_ptsz(list: u64, parameters: u64, count: u32, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [], || real(list, parameters, count, stream))
    }

    fn cuGraphicsMapResources / cuGraphicsMapResources_ptsz(count: u32, list: u64, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [], || real(count, list, stream))
    }

    fn cuGraphicsUnmapResources / cuGraphicsUnmapResources_ptsz(count: u32, list: u64, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [], || real(count, list, stream))
    }

    fn cuMemBatchDecompressAsync / cuMemBatchDecompressAsync_ptsz(list: u64, count: u64, flags: u64, failed: u64, stream: u64) {
        unknown(stream_of(stream, PER_THREAD), || real(list, count, flags, failed, stream))
    }

    fn cuStreamWriteValue32 / cuStreamWriteValue32_ptsz(stream: u64, ptr: u64, value: u64, flags: u32) {
        gated(stream_of(stream, PER_THREAD), [ptr], || real(stream, ptr, value, flags))
    }

    fn cuStreamWriteValue32_v2 / cuStreamWriteValue32_v2_ptsz(stream: u64, ptr: u64, value: u64, flags: u32) {
        gated(stream_of(stream, PER_THREAD), [ptr], || real(stream, ptr, value, flags))
    }

    fn cuStreamWriteValue64 / cuStreamWriteValue64_ptsz(stream: u64, ptr: u64, value: u64, flags: u32) {
        gated(stream_of(stream, PER_THREAD), [ptr], || real(stream, ptr, value, flags))
    }

    fn cuStreamWriteValue64_v2 / cuStreamWriteValue64_v2_ptsz(stream: u64, ptr: u64, value: u64, flags: u32) {
        gated(stream_of(stream, PER_THREAD), [ptr], || real(stream, ptr, value, flags))
    }

    fn cuStreamWaitValue32 / cuStreamWaitValue32_ptsz(stream: u64, ptr: u64, value: u64, flags: u32) {
        gated(stream_of(stream, PER_THREAD), [ptr], || real(stream, ptr, value, flags))
    }

    fn cuStreamWaitValue32_v2 / cuStreamWaitValue32_v2_ptsz(stream: u64, ptr: u64, value: u64, flags: u32) {
        gated(stream_of(stream, PER_THREAD), [ptr], || real(stream, ptr, value, flags))
    }

    fn cuStreamWaitValue64 / cuStreamWaitValue64_ptsz(stream: u64, ptr: u64, value: u64, flags: u32) {
        gated(stream_of(stream, PER_THREAD), [ptr], || real(stream, ptr, value, flags))
    }

    fn cuStreamWaitValue64_v2 / cuStreamWaitValue64_v2_ptsz(stream: u64, ptr: u64, value: u64, flags: u32) {
        gated(stream_of(stream, PER_THREAD), [ptr], || real(stream, ptr, value, flags))
    }

    fn cuStreamBatchMemOp / cuStreamBatchMemOp_ptsz(stream: u64, count: u32, list: u64, flags: u32) {
        unknown(stream_of(stream, PER_THREAD), || real(stream, count, list, flags))
    }

    fn cuStreamBatchMemOp_v2 / cuStreamBatchMemOp_v2_ptsz(stream: u64, count: u32, list: u64, flags: u32) {
        unknown(stream_of(stream, PER_THREAD), || real(stream, count, list, flags))
    }
}
