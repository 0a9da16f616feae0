//! Graphs that captures have made. Nodes are not added, changed or removed by hand: those functions answer that they are not
//! supported.

use std::ffi::{c_char, c_void};
use std::ops::Range;

use millpond::driver::{CaptureState, Driver, Stream};
use millpond_sim::NodeKind;

use crate::code_number::{Answer, Code};
use crate::device::Device;
use crate::entry::entries;
use crate::graphs::{AUTO_FREE_ON_LAUNCH, GraphHostCall, Recorded, node_handle};
use crate::layouts::InstantiateParameters;
use crate::raw_pointers::{Out, write_host};
use crate::world::{current, world};

/// `CUgraphInstantiate_flags`.
const UPLOAD: u64 = 2;
const DEVICE_LAUNCH: u64 = 4;
const USE_NODE_PRIORITY: u64 = 8;
const KNOWN_FLAGS: u64 = AUTO_FREE_ON_LAUNCH | UPLOAD | DEVICE_LAUNCH | USE_NODE_PRIORITY;

/// `CUgraphInstantiateResult`.
const INSTANTIATED: i32 = 0;
const INSTANTIATION_FAILED: i32 = 1;

fn instantiate(out: Out<u64>, graph: u64, flags: u64) -> Answer {
    out.check()?;
    let is_contradiction = flags & DEVICE_LAUNCH != 0 && flags & AUTO_FREE_ON_LAUNCH != 0;
    if flags & !KNOWN_FLAGS != 0 || is_contradiction {
        return Err(Code::INVALID_VALUE);
    }
    let world = world()?;
    world.graphs.graph(graph)?;
    // Kernels would have to launch it, and they are not executed.
    if flags & DEVICE_LAUNCH != 0 {
        return Err(Code::NOT_SUPPORTED);
    }
    out.set(world.graphs.instantiate(graph, flags)?)
}

fn instantiate_as_told(
    out: Out<u64>,
    graph: u64,
    parameters: Out<InstantiateParameters>,
    null: Stream,
) -> Answer {
    let wanted = parameters.get()?;
    let answer = match wanted.flags & UPLOAD {
        0 => Ok(()),
        _ => current().and_then(|current| current.stream(wanted.upload_stream, null).map(drop)),
    };
    let answer = answer.and_then(|()| instantiate(out, graph, wanted.flags));
    let result = if answer.is_ok() { INSTANTIATED } else { INSTANTIATION_FAILED };
    parameters.set(InstantiateParameters { error_node: 0, result, ..wanted })?;
    answer
}

fn launch(executable: u64, handle: u64, null: Stream) -> Answer {
    let current = current()?;
    let (device, stream) = current.stream(handle, null)?;
    let graphs = &current.world.graphs;
    let executable = graphs.executable(executable)?;
    let recorded = &executable.recorded;
    if !std::sync::Arc::ptr_eq(&recorded.gpu, &device.gpu) {
        return Err(Code::INVALID_VALUE);
    }
    graphs.check_memory(&executable)?;
    match recorded.host_calls() {
        [] => device.gpu.launch_graph(recorded.graph, stream)?,
        calls => launch_with_calls(recorded, calls, device, stream)?,
    }
    graphs.launched(recorded);
    Ok(())
}

/// What comes after a function of the host is queued once that has returned, as on any stream.
fn launch_with_calls(
    recorded: &Recorded,
    calls: &[GraphHostCall],
    device: &Device,
    stream: Stream,
) -> Answer {
    if device.gpu.capture_state(stream)? != CaptureState::None {
        return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
    }
    let nodes = recorded.nodes();
    let mut next = 0;
    let calling = nodes.iter().enumerate().filter(|(_, node)| node.kind == NodeKind::HostCall);
    for ((number, _), call) in calling.zip(calls) {
        launch_part(recorded, next..number, device, stream)?;
        call.queue(device, stream)?;
        next = number + 1;
    }
    launch_part(recorded, next..nodes.len(), device, stream)
}

fn launch_part(
    recorded: &Recorded,
    nodes: Range<usize>,
    device: &Device,
    stream: Stream,
) -> Answer {
    if nodes.is_empty() {
        return Ok(());
    }
    device.host_calls.wait_for(&device.gpu, stream);
    Ok(device.gpu.launch_graph_part(recorded.graph, nodes, stream)?)
}

/// `CUgraphNodeType`. What CUDA has no type for is shown as a node that does nothing.
fn type_of(kind: NodeKind) -> i32 {
    match kind {
        NodeKind::Kernel => 0,
        NodeKind::Copy => 1,
        NodeKind::Memset => 2,
        NodeKind::HostCall => 3,
        NodeKind::Graph => 4,
        NodeKind::Other => 5,
        NodeKind::Alloc => 10,
        NodeKind::Free => 11,
    }
}

/// Hands over as many handles as there is room for. Where a list is not wanted, it is only counted; what room is left over is
/// filled with zeros.
fn hand_over(lists: &[(u64, Vec<u64>)], count: Out<usize>) -> Answer {
    count.check()?;
    let there = lists[0].1.len();
    if lists.iter().all(|(to, _)| *to == 0) {
        return count.set(there);
    }
    let room = count.get()?;
    for (to, handles) in lists.iter().filter(|(to, _)| *to != 0) {
        let bytes: Vec<u8> =
            handles.iter().take(room).flat_map(|handle| handle.to_le_bytes()).collect();
        write_host(*to, &bytes)?;
    }
    count.set(there.min(room))
}

/// Which nodes of a graph have this in common.
fn nodes(graph: u64, wanted: impl Fn(usize, &[usize]) -> bool) -> Answer<Vec<u64>> {
    let nodes = world()?.graphs.graph(graph)?.nodes();
    let chosen = nodes.iter().enumerate().filter(|(number, node)| wanted(*number, &node.after));
    Ok(chosen.map(|(number, _)| node_handle(graph, number)).collect())
}

fn edges(graph: u64, from: u64, to: u64, data: u64, count: Out<usize>) -> Answer {
    let nodes = world()?.graphs.graph(graph)?.nodes();
    let edge =
        |(number, after): (usize, &usize)| (node_handle(graph, *after), node_handle(graph, number));
    let all = nodes.iter().enumerate();
    let (starts, ends): (Vec<u64>, Vec<u64>) = all
        .flat_map(|(number, node)| node.after.iter().map(move |after| edge((number, after))))
        .unzip();
    // Edges have no data of their own.
    let zeros = vec![0; starts.len()];
    hand_over(&[(from, starts), (to, ends), (data, zeros)], count)
}

fn dependencies(node: u64, list: u64, data: u64, count: Out<usize>) -> Answer {
    let (recorded, graph, number) = world()?.graphs.node(node)?;
    let before = recorded.nodes()[number].after.clone();
    let before: Vec<u64> = before.into_iter().map(|after| node_handle(graph, after)).collect();
    let zeros = vec![0; before.len()];
    hand_over(&[(list, before), (data, zeros)], count)
}

fn dependents(node: u64, list: u64, data: u64, count: Out<usize>) -> Answer {
    let (_, graph, number) = world()?.graphs.node(node)?;
    let behind = nodes(graph, |_, after| after.contains(&number))?;
    let zeros = vec![0; behind.len()];
    hand_over(&[(list, behind), (data, zeros)], count)
}

entries! {
    fn cuGraphInstantiate(
        executable: Out<u64>,
        graph: u64,
        _error_node: *mut c_void,
        _log: *mut c_char,
        _log_bytes: usize,
    ) {
        instantiate(executable, graph, 0)
    }

    fn cuGraphInstantiate_v2(
        executable: Out<u64>,
        graph: u64,
        _error_node: *mut c_void,
        _log: *mut c_char,
        _log_bytes: usize,
    ) {
        instantiate(executable, graph, 0)
    }

    fn cuGraphInstantiateWithFlags(executable: Out<u64>, graph: u64, flags: u64) {
        instantiate(executable, graph, flags)
    }

    fn cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz(
        executable: Out<u64>,
        graph: u64,
        parameters: Out<InstantiateParameters>,
    ) {
        instantiate_as_told(executable, graph, parameters, NULL_STREAM)
    }

    fn cuGraphExecGetFlags(executable: u64, flags: Out<u64>) {
        flags.check()?;
        // That it was uploaded is done with.
        flags.set(world()?.graphs.executable(executable)?.flags & !UPLOAD)
    }

    fn cuGraphUpload / cuGraphUpload_ptsz(executable: u64, stream: u64) {
        let current = current()?;
        current.stream(stream, NULL_STREAM)?;
        current.world.graphs.executable(executable).map(drop)
    }

    fn cuGraphLaunch / cuGraphLaunch_ptsz(executable: u64, stream: u64) {
        launch(executable, stream, NULL_STREAM)
    }

    fn cuGraphGetNodes(graph: u64, list: u64, count: Out<usize>) {
        hand_over(&[(list, nodes(graph, |_, _| true)?)], count)
    }

    fn cuGraphGetRootNodes(graph: u64, list: u64, count: Out<usize>) {
        hand_over(&[(list, nodes(graph, |_, after| after.is_empty())?)], count)
    }

    fn cuGraphGetEdges(graph: u64, from: u64, to: u64, count: Out<usize>) {
        edges(graph, from, to, 0, count)
    }

    fn cuGraphGetEdges_v2(graph: u64, from: u64, to: u64, data: u64, count: Out<usize>) {
        edges(graph, from, to, data, count)
    }

    fn cuGraphNodeGetDependencies(node: u64, list: u64, count: Out<usize>) {
        dependencies(node, list, 0, count)
    }

    fn cuGraphNodeGetDependencies_v2(node: u64, list: u64, data: u64, count: Out<usize>) {
        dependencies(node, list, data, count)
    }

    fn cuGraphNodeGetDependentNodes(node: u64, list: u64, count: Out<usize>) {
        dependents(node, list, 0, count)
    }

    fn cuGraphNodeGetDependentNodes_v2(node: u64, list: u64, data: u64, count: Out<usize>) {
        dependents(node, list, data, count)
    }

    fn cuGraphNodeGetType(node: u64, kind: Out<i32>) {
        kind.check()?;
        let (recorded, _, number) = world()?.graphs.node(node)?;
        kind.set(type_of(recorded.nodes()[number].kind))
    }

    fn cuDeviceGetGraphMemAttribute(device: i32, attribute: i32, value: Out<u64>) {
        value.check()?;
        let world = world()?;
        let ordinal = world.device(device)?.ordinal;
        value.set(world.graphs.memory.figures(ordinal).get(attribute)?)
    }

    /// High-water marks can be reset; nothing else can be set.
    fn cuDeviceSetGraphMemAttribute(device: i32, attribute: i32, value: Out<u64>) {
        let world = world()?;
        let ordinal = world.device(device)?.ordinal;
        if value.get()? != 0 {
            return Err(Code::INVALID_VALUE);
        }
        world.graphs.memory.figures(ordinal).reset_mark(attribute)
    }

    fn cuDeviceGraphMemTrim(device: i32) {
        let world = world()?;
        world.graphs.memory.trim(world.device(device)?.ordinal);
        Ok(())
    }

    fn cuGraphDestroy(graph: u64) {
        world()?.graphs.destroy(graph)
    }

    fn cuGraphExecDestroy(executable: u64) {
        world()?.graphs.destroy_executable(executable)
    }
}
