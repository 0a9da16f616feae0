//! Graphs: what was captured is instantiated and launched. Of building graphs by hand there is what the driver does without
//! structures of its own.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use crate::abi::{Event, Graph, Handle, HostFunction, Stream};

entry_points! {
    context fn cudaGraphCreate(driver, out: *mut Graph, flags: c_uint) { driver.cuGraphCreate(out, flags) }
    context fn cudaGraphClone(driver, out: *mut Graph, graph: Graph) { driver.cuGraphClone(out, graph) }
    context fn cudaGraphDestroy(driver, graph: Graph) { driver.cuGraphDestroy(graph) }
    context fn cudaGraphDestroyNode(driver, node: Handle) { driver.cuGraphDestroyNode(node) }
    context fn cudaGraphGetNodes(driver, graph: Graph, nodes: *mut Handle, count: *mut usize) {
        driver.cuGraphGetNodes(graph, nodes, count)
    }
    context fn cudaGraphGetRootNodes(driver, graph: Graph, nodes: *mut Handle, count: *mut usize) {
        driver.cuGraphGetRootNodes(graph, nodes, count)
    }
    context fn cudaGraphGetEdges(driver, graph: Graph, from: *mut Handle, to: *mut Handle, count: *mut usize) {
        driver.cuGraphGetEdges(graph, from, to, count)
    }
    context fn cudaGraphNodeGetDependencies(driver, node: Handle, nodes: *mut Handle, count: *mut usize) {
        driver.cuGraphNodeGetDependencies(node, nodes, count)
    }
    context fn cudaGraphNodeGetDependentNodes(driver, node: Handle, nodes: *mut Handle, count: *mut usize) {
        driver.cuGraphNodeGetDependentNodes(node, nodes, count)
    }
    context fn cudaGraphNodeGetType(driver, node: Handle, out: *mut c_int) { driver.cuGraphNodeGetType(node, out) }
    context fn cudaGraphAddDependencies(driver, graph: Graph, from: *const Handle, to: *const Handle, count: usize) {
        driver.cuGraphAddDependencies(graph, from, to, count)
    }
    context fn cudaGraphAddEmptyNode(driver, out: *mut Handle, graph: Graph, nodes: *const Handle, count: usize) {
        driver.cuGraphAddEmptyNode(out, graph, nodes, count)
    }
    context fn cudaGraphAddChildGraphNode(
        driver, out: *mut Handle, graph: Graph, nodes: *const Handle, count: usize, child: Graph,
    ) { driver.cuGraphAddChildGraphNode(out, graph, nodes, count, child) }
    context fn cudaGraphAddEventRecordNode(
        driver, out: *mut Handle, graph: Graph, nodes: *const Handle, count: usize, event: Event,
    ) { driver.cuGraphAddEventRecordNode(out, graph, nodes, count, event) }
    context fn cudaGraphAddEventWaitNode(
        driver, out: *mut Handle, graph: Graph, nodes: *const Handle, count: usize, event: Event,
    ) { driver.cuGraphAddEventWaitNode(out, graph, nodes, count, event) }

    // The name had another signature in CUDA 11; programs of 12 mean this one.
    context fn cudaGraphInstantiate(driver, out: *mut Handle, graph: Graph, flags: c_ulonglong) {
        driver.cuGraphInstantiateWithFlags(out, graph, flags)
    }
    context fn cudaGraphInstantiateWithFlags(driver, out: *mut Handle, graph: Graph, flags: c_ulonglong) {
        driver.cuGraphInstantiateWithFlags(out, graph, flags)
    }
    context fn cudaGraphInstantiateWithParams | cudaGraphInstantiateWithParams_ptsz(
        driver, out: *mut Handle, graph: Graph, parameters: *mut c_void,
    ) { driver.cuGraphInstantiateWithParams(out, graph, parameters) }
    context fn cudaGraphExecGetFlags(driver, exec: Handle, out: *mut c_ulonglong) { driver.cuGraphExecGetFlags(exec, out) }
    context fn cudaGraphExecDestroy(driver, exec: Handle) { driver.cuGraphExecDestroy(exec) }
    context fn cudaGraphLaunch | cudaGraphLaunch_ptsz(driver, exec: Handle, stream: Stream) {
        driver.cuGraphLaunch(exec, stream)
    }
    context fn cudaGraphUpload | cudaGraphUpload_ptsz(driver, exec: Handle, stream: Stream) {
        driver.cuGraphUpload(exec, stream)
    }
    context fn cudaGraphDebugDotPrint(driver, graph: Graph, path: *const c_char, flags: c_uint) {
        driver.cuGraphDebugDotPrint(graph, path, flags)
    }

    context fn cudaUserObjectCreate(
        driver, out: *mut Handle, pointer: *mut c_void, destroy: HostFunction, count: c_uint, flags: c_uint,
    ) { driver.cuUserObjectCreate(out, pointer, destroy, count, flags) }
    context fn cudaUserObjectRetain(driver, object: Handle, count: c_uint) { driver.cuUserObjectRetain(object, count) }
    context fn cudaUserObjectRelease(driver, object: Handle, count: c_uint) { driver.cuUserObjectRelease(object, count) }
    context fn cudaGraphRetainUserObject(driver, graph: Graph, object: Handle, count: c_uint, flags: c_uint) {
        driver.cuGraphRetainUserObject(graph, object, count, flags)
    }
    context fn cudaGraphReleaseUserObject(driver, graph: Graph, object: Handle, count: c_uint) {
        driver.cuGraphReleaseUserObject(graph, object, count)
    }
}
