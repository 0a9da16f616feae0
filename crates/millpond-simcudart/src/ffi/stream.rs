//! Streams, and capturing them.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::ptr::null_mut;

use crate::abi::{DevicePtr, Event, Graph, Handle, HostFunction, Stream, StreamCallback};
use crate::code::Code;
use crate::context_ffi;
use crate::program_memory_ffi::answer;

entry_points! {
    context fn cudaStreamCreate(driver, out: *mut Stream) { driver.cuStreamCreate(out, 0) }
    context fn cudaStreamCreateWithFlags(driver, out: *mut Stream, flags: c_uint) { driver.cuStreamCreate(out, flags) }
    context fn cudaStreamCreateWithPriority(driver, out: *mut Stream, flags: c_uint, priority: c_int) {
        driver.cuStreamCreateWithPriority(out, flags, priority)
    }
    context fn cudaStreamDestroy(driver, stream: Stream) { driver.cuStreamDestroy(stream) }
    context fn cudaStreamSynchronize | cudaStreamSynchronize_ptsz(driver, stream: Stream) { driver.cuStreamSynchronize(stream) }
    context fn cudaStreamQuery | cudaStreamQuery_ptsz(driver, stream: Stream) { driver.cuStreamQuery(stream) }
    context fn cudaStreamWaitEvent | cudaStreamWaitEvent_ptsz(driver, stream: Stream, event: Event, flags: c_uint) {
        driver.cuStreamWaitEvent(stream, event, flags)
    }
    context fn cudaStreamAddCallback | cudaStreamAddCallback_ptsz(
        driver, stream: Stream, callback: StreamCallback, data: *mut c_void, flags: c_uint,
    ) { driver.cuStreamAddCallback(stream, callback, data, flags) }
    context fn cudaLaunchHostFunc | cudaLaunchHostFunc_ptsz(
        driver, stream: Stream, function: HostFunction, data: *mut c_void,
    ) { driver.cuLaunchHostFunc(stream, function, data) }
    context fn cudaStreamAttachMemAsync | cudaStreamAttachMemAsync_ptsz(
        driver, stream: Stream, pointer: DevicePtr, bytes: usize, flags: c_uint,
    ) { driver.cuStreamAttachMemAsync(stream, pointer, bytes, flags) }

    context fn cudaStreamGetPriority | cudaStreamGetPriority_ptsz(driver, stream: Stream, out: *mut c_int) {
        driver.cuStreamGetPriority(stream, out)
    }
    context fn cudaStreamGetFlags | cudaStreamGetFlags_ptsz(driver, stream: Stream, out: *mut c_uint) {
        driver.cuStreamGetFlags(stream, out)
    }
    context fn cudaStreamGetId | cudaStreamGetId_ptsz(driver, stream: Stream, out: *mut c_ulonglong) {
        driver.cuStreamGetId(stream, out)
    }
    context fn cudaStreamGetDevice | cudaStreamGetDevice_ptsz(driver, stream: Stream, out: *mut c_int) {
        match driver.cuStreamGetDevice(stream, out) {
            // A driver before 12.8, or one that has not got it: the streams of a thread's context are of its device.
            Err(Code::NOT_SUPPORTED) => answer(out, context_ffi::device(driver)?),
            result => result,
        }
    }
    context fn cudaStreamCopyAttributes | cudaStreamCopyAttributes_ptsz(driver, to: Stream, from: Stream) {
        driver.cuStreamCopyAttributes(to, from)
    }
    context fn cudaStreamGetAttribute | cudaStreamGetAttribute_ptsz(
        driver, stream: Stream, attribute: c_int, value: *mut c_void,
    ) { driver.cuStreamGetAttribute(stream, attribute, value) }
    context fn cudaStreamSetAttribute | cudaStreamSetAttribute_ptsz(
        driver, stream: Stream, attribute: c_int, value: *const c_void,
    ) { driver.cuStreamSetAttribute(stream, attribute, value) }

    context fn cudaStreamBeginCapture | cudaStreamBeginCapture_ptsz(driver, stream: Stream, mode: c_int) {
        driver.cuStreamBeginCapture(stream, mode)
    }
    context fn cudaStreamBeginCaptureToGraph | cudaStreamBeginCaptureToGraph_ptsz(
        driver, stream: Stream, graph: Graph, nodes: *const Handle, edges: *const c_void, count: usize, mode: c_int,
    ) { driver.cuStreamBeginCaptureToGraph(stream, graph, nodes, edges, count, mode) }
    context fn cudaStreamEndCapture | cudaStreamEndCapture_ptsz(driver, stream: Stream, out: *mut Graph) {
        driver.cuStreamEndCapture(stream, out)
    }
    context fn cudaStreamIsCapturing | cudaStreamIsCapturing_ptsz(driver, stream: Stream, out: *mut c_int) {
        driver.cuStreamIsCapturing(stream, out)
    }
    context fn cudaThreadExchangeStreamCaptureMode(driver, mode: *mut c_int) {
        driver.cuThreadExchangeStreamCaptureMode(mode)
    }
    // Three forms: the first is what programs of CUDA 11 call, which knew of status and id only.
    context fn cudaStreamGetCaptureInfo | cudaStreamGetCaptureInfo_ptsz(
        driver, stream: Stream, status: *mut c_int, id: *mut c_ulonglong,
    ) { driver.cuStreamGetCaptureInfo(stream, status, id, null_mut(), null_mut(), null_mut()) }
    context fn cudaStreamGetCaptureInfo_v2 | cudaStreamGetCaptureInfo_v2_ptsz(
        driver, stream: Stream, status: *mut c_int, id: *mut c_ulonglong, graph: *mut Graph, nodes: *mut *const Handle,
        count: *mut usize,
    ) { driver.cuStreamGetCaptureInfo(stream, status, id, graph, nodes, count) }
    context fn cudaStreamGetCaptureInfo_v3 | cudaStreamGetCaptureInfo_v3_ptsz(
        driver, stream: Stream, status: *mut c_int, id: *mut c_ulonglong, graph: *mut Graph, nodes: *mut *const Handle,
        edges: *mut *const c_void, count: *mut usize,
    ) { driver.cuStreamGetCaptureInfo_v3(stream, status, id, graph, nodes, edges, count) }
    context fn cudaStreamUpdateCaptureDependencies | cudaStreamUpdateCaptureDependencies_ptsz(
        driver, stream: Stream, nodes: *mut Handle, count: usize, flags: c_uint,
    ) { driver.cuStreamUpdateCaptureDependencies(stream, nodes, count, flags) }
    context fn cudaStreamUpdateCaptureDependencies_v2 | cudaStreamUpdateCaptureDependencies_v2_ptsz(
        driver, stream: Stream, nodes: *mut Handle, edges: *const c_void, count: usize, flags: c_uint,
    ) { driver.cuStreamUpdateCaptureDependencies_v2(stream, nodes, edges, count, flags) }
}
