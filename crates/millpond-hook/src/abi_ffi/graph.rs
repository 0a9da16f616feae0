//! Graphs: what a launch of one uses is what was named while it was recorded.

use crate::entry_ffi::entries;
use crate::passing::{gated, graph_launched, stream_of};
use crate::process::current_client;

fn instantiated(answer: i32, executable: *const u64, graph: u64) -> i32 {
    if answer == 0
        && !executable.is_null()
        && let Some(client) = current_client()
    {
        // SAFETY: the driver has just written there.
        client.captures.instantiate(graph, unsafe { *executable });
    }
    answer
}

entries! {
    fn cuGraphInstantiate(executable: *mut u64, graph: u64, error: u64, log: u64, log_bytes: usize) {
        instantiated(real(executable, graph, error, log, log_bytes), executable, graph)
    }

    fn cuGraphInstantiate_v2(executable: *mut u64, graph: u64, error: u64, log: u64, log_bytes: usize) {
        instantiated(real(executable, graph, error, log, log_bytes), executable, graph)
    }

    fn cuGraphInstantiateWithFlags(executable: *mut u64, graph: u64, flags: u64) {
        instantiated(real(executable, graph, flags), executable, graph)
    }

    fn cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz(executable: *mut u64, graph: u64, parameters: u64) {
        instantiated(real(executable, graph, parameters), executable, graph)
    }

    fn cuGraphUpload / cuGraphUpload_ptsz(executable: u64, stream: u64) {
        gated(stream_of(stream, PER_THREAD), [], || real(executable, stream))
    }

    fn cuGraphLaunch / cuGraphLaunch_ptsz(executable: u64, stream: u64) {
        graph_launched(stream_of(stream, PER_THREAD), executable, || real(executable, stream))
    }

    fn cuGraphDestroy(graph: u64) {
        if let Some(client) = current_client() {
            client.captures.forget_graph(graph);
        }
        real(graph)
    }

    fn cuGraphExecDestroy(executable: u64) {
        if let Some(client) = current_client() {
            client.captures.forget_executable(executable);
        }
        real(executable)
    }
}
