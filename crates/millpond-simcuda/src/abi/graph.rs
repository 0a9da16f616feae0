//! Graphs. They come of captures only; nodes are not added by hand.

use std::ffi::{c_char, c_void};

use millpond::driver::{Driver, Stream};

use crate::code_number::{Answer, Code};
use crate::entry::entries;
use crate::raw_pointers::{Out, write_host};
use crate::world::{current, world};

fn instantiate(out: Out<u64>, graph: u64) -> Answer {
    out.check()?;
    out.set(world()?.graphs.instantiate(graph)?)
}

fn launch(executable: u64, handle: u64, null: Stream) -> Answer {
    let current = current()?;
    let (device, stream) = current.stream(handle, null)?;
    let recorded = current.world.graphs.executable(executable)?;
    if !std::sync::Arc::ptr_eq(&recorded.gpu, &device.gpu) {
        return Err(Code::INVALID_VALUE);
    }
    Ok(device.gpu.launch_graph(recorded.graph, stream)?)
}

entries! {
    fn cuGraphInstantiate_v2(
        executable: Out<u64>,
        graph: u64,
        _error_node: *mut c_void,
        _log: *mut c_char,
        _log_bytes: usize,
    ) {
        instantiate(executable, graph)
    }

    fn cuGraphInstantiateWithFlags(executable: Out<u64>, graph: u64, _flags: u64) {
        instantiate(executable, graph)
    }

    fn cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz(
        executable: Out<u64>,
        graph: u64,
        parameters: *mut c_void,
    ) {
        if parameters.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        instantiate(executable, graph)
    }

    fn cuGraphUpload / cuGraphUpload_ptsz(executable: u64, stream: u64) {
        let current = current()?;
        current.stream(stream, NULL_STREAM)?;
        current.world.graphs.executable(executable).map(drop)
    }

    fn cuGraphLaunch / cuGraphLaunch_ptsz(executable: u64, stream: u64) {
        launch(executable, stream, NULL_STREAM)
    }

    /// A node is known by its graph and its number.
    fn cuGraphGetNodes(graph: u64, nodes: u64, count: Out<usize>) {
        count.check()?;
        let recorded = world()?.graphs.graph(graph)?;
        let all = recorded.gpu.graph_nodes(recorded.graph).unwrap_or(0);
        if nodes == 0 {
            return count.set(all);
        }
        let wanted = count.get()?.min(all);
        let handles: Vec<u8> =
            (0..wanted as u64).flat_map(|number| (graph + 1 + number).to_le_bytes()).collect();
        write_host(nodes, &handles)?;
        count.set(wanted)
    }

    /// What graphs have, and no high-water marks. All that they have is in use.
    fn cuDeviceGetGraphMemAttribute(device: i32, attribute: i32, value: Out<u64>) {
        value.check()?;
        let world = world()?;
        let ordinal = world.device(device)?.ordinal;
        match attribute {
            0 | 2 => value.set(world.graphs.reserved_bytes(ordinal)),
            1 | 3 => Err(Code::NOT_SUPPORTED),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuGraphDestroy(graph: u64) {
        world()?.graphs.destroy(graph)
    }

    fn cuGraphExecDestroy(executable: u64) {
        world()?.graphs.destroy_executable(executable)
    }
}
