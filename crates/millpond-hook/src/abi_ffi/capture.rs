//! Captures: they begin inside the gate, and the device is not waited for until they end.

use crate::entry_ffi::entries;
use crate::link::Event;
use crate::passing::stream_of;
use crate::process::{clients, current_client};

fn begun(stream: u64, begin: impl FnOnce() -> i32) -> i32 {
    let Some(client) = current_client() else { return begin() };
    let _inside = match client.enter() {
        Ok(inside) => inside,
        Err(code) => return code.0,
    };
    let answer = begin();
    if answer == 0 {
        client.captures.begin(stream);
    }
    answer
}

entries! {
    fn cuStreamBeginCapture / cuStreamBeginCapture_ptsz(handle: u64) {
        begun(stream_of(handle, PER_THREAD), || real(handle))
    }

    fn cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz(handle: u64, mode: i32) {
        begun(stream_of(handle, PER_THREAD), || real(handle, mode))
    }

    fn cuStreamBeginCaptureToGraph / cuStreamBeginCaptureToGraph_ptsz(
        handle: u64,
        graph: u64,
        dependencies: u64,
        edges: u64,
        count: usize,
        mode: i32,
    ) {
        begun(stream_of(handle, PER_THREAD), || real(handle, graph, dependencies, edges, count, mode))
    }

    fn cuStreamEndCapture / cuStreamEndCapture_ptsz(handle: u64, graph: *mut u64) {
        let answer = real(handle, graph);
        if let Some(client) = current_client().filter(|client| client.captures.any()) {
            // SAFETY: the driver has just written there.
            let made = (answer == 0 && !graph.is_null()).then(|| unsafe { *graph });
            if client.captures.end(stream_of(handle, PER_THREAD), made) {
                client.tell_link(Event::CapturesEnded);
            }
        }
        answer
    }

    fn cuStreamDestroy(stream: u64) {
        destroyed(stream, real(stream))
    }

    fn cuStreamDestroy_v2(stream: u64) {
        destroyed(stream, real(stream))
    }
}

/// What a stream recorded goes with it, and another one may have its handle.
fn destroyed(stream: u64, answer: i32) -> i32 {
    for client in clients().filter(|_| answer == 0) {
        client.frees.forget_stream(stream);
        if client.captures.any() && client.captures.gone(Some(stream), None) {
            client.tell_link(Event::CapturesEnded);
        }
    }
    answer
}
