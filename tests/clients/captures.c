/* Captures and graphs as NVIDIA's own tests use them: what a capture tells of itself, captures side by side, memory that graphs
 * allocate, events that were captured, and what is refused by its number. It fails at the first surprise. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect(CUresult got, CUresult wanted, const char *what) {
    if (got == wanted) return;
    const char *name = "?", *right = "?";
    cuGetErrorName(got, &name);
    cuGetErrorName(wanted, &right);
    fprintf(stderr, "%s: %s, and not %s\n", what, name, right);
    exit(1);
}
#define OK(call) expect(call, CUDA_SUCCESS, #call)
#define REFUSED(call, code) expect(call, code, #call)
#define HOLDS(condition) do { if (!(condition)) { fprintf(stderr, "not so: %s\n", #condition); exit(1); } } while (0)

static CUstream new_stream(void) {
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static CUevent new_event(void) {
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

static CUgraph end(CUstream stream) {
    CUgraph graph;
    OK(cuStreamEndCapture(stream, &graph));
    return graph;
}

/* The graph and the nodes that the next one comes after. */
static CUgraph info(CUstream stream, const CUgraphNode **after, size_t *count) {
    CUstreamCaptureStatus status;
    cuuint64_t id = 0;
    CUgraph graph = NULL;
    OK(cuStreamGetCaptureInfo_v2(stream, &status, &id, &graph, after, count));
    HOLDS(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id != 0);
    return graph;
}

static void a_capture_tells_of_itself(void) {
    CUstream a = new_stream(), b = new_stream();
    CUevent fork = new_event(), join = new_event();
    CUdeviceptr memory;
    const CUgraphNode *after;
    size_t count;
    OK(cuMemAlloc(&memory, 4096));
    OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    CUgraph graph = info(a, &after, &count);
    HOLDS(graph != NULL && count == 0);
    OK(cuMemsetD8Async(memory, 1, 64, a));
    HOLDS(info(a, &after, &count) == graph && count == 1);
    CUgraphNode first = after[0];
    OK(cuEventRecord(fork, a));
    OK(cuStreamWaitEvent(b, fork, 0));
    HOLDS(info(b, &after, &count) == graph && count == 1 && after[0] == first);
    OK(cuMemsetD8Async(memory + 64, 2, 64, a));
    OK(cuMemsetD8Async(memory + 128, 3, 64, b));
    OK(cuEventRecord(join, b));
    OK(cuStreamWaitEvent(a, join, 0));
    HOLDS(info(a, &after, &count) == graph && count == 2 && after[0] != after[1]);
    OK(cuMemcpyDtoDAsync(memory + 256, memory, 192, a));
    HOLDS(info(a, &after, &count) == graph && count == 1);
    CUgraphNode last = after[0];
    HOLDS(end(a) == graph);

    CUgraphNode nodes[8], from[8], to[8];
    size_t room = 8;
    OK(cuGraphGetNodes(graph, nodes, &room));
    HOLDS(room == 4 && nodes[0] == first && nodes[3] == last);
    room = 8;
    OK(cuGraphGetRootNodes(graph, nodes, &room));
    HOLDS(room == 1 && nodes[0] == first);
    OK(cuGraphGetEdges(graph, NULL, NULL, &room));
    HOLDS(room == 4);
    OK(cuGraphGetEdges(graph, from, to, &room));
    HOLDS(room == 4 && from[0] == first && to[3] == last);
    CUgraphNodeType type;
    OK(cuGraphNodeGetType(first, &type));
    HOLDS(type == CU_GRAPH_NODE_TYPE_MEMSET);
    OK(cuGraphNodeGetType(last, &type));
    HOLDS(type == CU_GRAPH_NODE_TYPE_MEMCPY);
    OK(cuGraphNodeGetDependencies(last, NULL, &room));
    HOLDS(room == 2);
    OK(cuGraphNodeGetDependentNodes(first, NULL, &room));
    HOLDS(room == 2);

    /* Outside of a capture there is nothing to tell. */
    CUstreamCaptureStatus status;
    OK(cuStreamGetCaptureInfo_v2(a, &status, NULL, NULL, NULL, NULL));
    HOLDS(status == CU_STREAM_CAPTURE_STATUS_NONE);
    OK(cuGraphDestroy(graph));
    REFUSED(cuGraphNodeGetType(first, &type), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree(memory));
    OK(cuStreamDestroy(a));
    OK(cuStreamDestroy(b));
    OK(cuEventDestroy(fork));
    OK(cuEventDestroy(join));
}

static CUgraphExec ready(CUgraph graph, unsigned long long flags) {
    CUgraphExec executable;
    OK(cuGraphInstantiateWithFlags(&executable, graph, flags));
    return executable;
}

static unsigned char byte_at(CUdeviceptr memory) {
    unsigned char byte;
    OK(cuMemcpyDtoH(&byte, memory, 1));
    return byte;
}

/* Two captures at once, each with memory of its own: one graph's end is not the other's. */
static void memory_of_two_captures_is_not_mixed_up(void) {
    CUstream streams[2] = {new_stream(), new_stream()};
    CUdeviceptr memory[2];
    CUgraph graphs[2];
    CUgraphExec executables[2];
    for (int i = 0; i < 2; i++) OK(cuStreamBeginCapture(streams[i], CU_STREAM_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < 2; i++) {
        OK(cuMemAllocAsync(&memory[i], 1 << 20, streams[i]));
        OK(cuMemsetD8Async(memory[i], 7 + i, 1 << 20, streams[i]));
    }
    HOLDS(memory[0] != memory[1]);
    for (int i = 0; i < 2; i++) graphs[i] = end(streams[i]);
    for (int i = 0; i < 2; i++) executables[i] = ready(graphs[i], 0);
    OK(cuGraphExecDestroy(executables[0]));
    OK(cuGraphDestroy(graphs[0]));
    OK(cuGraphLaunch(executables[1], streams[1]));
    OK(cuStreamSynchronize(streams[1]));
    HOLDS(byte_at(memory[1]) == 8);
    OK(cuGraphExecDestroy(executables[1]));
    OK(cuGraphDestroy(graphs[1]));
    /* What a launch allocated outlives its graph, until it is freed. */
    HOLDS(byte_at(memory[1]) == 8);
    OK(cuMemFreeAsync(memory[1], streams[1]));
    REFUSED(cuMemFreeAsync(memory[1], streams[1]), CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; i < 2; i++) OK(cuStreamDestroy(streams[i]));
}

static void what_a_launch_allocates_is_there_until_it_is_freed(void) {
    CUstream stream = new_stream();
    CUdeviceptr kept, freed;
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(&kept, 4096, stream));
    OK(cuMemAllocAsync(&freed, 4096, stream));
    OK(cuMemsetD8Async(kept, 5, 4096, stream));
    OK(cuMemFreeAsync(freed, stream));
    CUgraph graph = end(stream);
    CUgraphExec once = ready(graph, 0), again = ready(graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    size_t count;
    OK(cuGraphGetNodes(graph, NULL, &count));
    HOLDS(count == 4);
    OK(cuGraphLaunch(once, stream));
    REFUSED(cuGraphLaunch(once, stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphLaunch(again, stream));
    OK(cuMemFreeAsync(kept, stream));
    OK(cuGraphLaunch(once, stream));
    OK(cuMemFree(kept));
    REFUSED(cuMemFreeAsync(freed, stream), CUDA_ERROR_INVALID_VALUE);

    /* One graph frees what another allocated. */
    OK(cuGraphLaunch(once, stream));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemFreeAsync(kept, stream));
    CUgraph freeing = end(stream);
    CUgraphExec frees = ready(freeing, 0);
    OK(cuGraphLaunch(frees, stream));
    REFUSED(cuGraphLaunch(frees, stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphLaunch(once, stream));
    OK(cuGraphLaunch(frees, stream));

    CUdevice device;
    cuuint64_t bytes, most, zero = 0;
    OK(cuDeviceGet(&device, 0));
    OK(cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &bytes));
    OK(cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &most));
    HOLDS(bytes > 0 && most >= bytes);
    OK(cuGraphExecDestroy(once));
    OK(cuGraphExecDestroy(again));
    OK(cuGraphExecDestroy(frees));
    OK(cuGraphDestroy(freeing));
    OK(cuGraphDestroy(graph));
    OK(cuStreamSynchronize(stream));
    OK(cuDeviceGraphMemTrim(device));
    OK(cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes));
    OK(cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &most));
    HOLDS(bytes == 0 && most >= 8192);
    OK(cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &zero));
    OK(cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &most));
    HOLDS(most == 0);
    REFUSED(cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &zero), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamDestroy(stream));
}

/* Graphs that come and go give their memory back, or to the next one. */
static void graphs_come_and_go(void) {
    CUstream stream = new_stream();
    size_t before, after, total;
    OK(cuMemGetInfo(&before, &total));
    for (int i = 0; i < 2000; i++) {
        CUdeviceptr memory;
        OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        OK(cuMemAllocAsync(&memory, 64 << 20, stream));
        CUgraph graph = end(stream);
        CUgraphExec executable = ready(graph, 0);
        if (i % 2) {
            OK(cuGraphLaunch(executable, stream));
            OK(cuMemFreeAsync(memory, stream));
        }
        OK(cuGraphExecDestroy(executable));
        OK(cuGraphDestroy(graph));
    }
    OK(cuDeviceGraphMemTrim(0));
    OK(cuMemGetInfo(&after, &total));
    HOLDS(after == before);
    OK(cuStreamDestroy(stream));
}

static void captured_events_stand_for_nothing(void) {
    CUstream a = new_stream(), b = new_stream(), legacy_like;
    CUevent event = new_event(), outside = new_event();
    OK(cuStreamCreate(&legacy_like, CU_STREAM_DEFAULT));
    OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(event, a));
    for (int ended = 0; ended < 2; ended++) {
        REFUSED(cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
        REFUSED(cuEventSynchronize(event), CUDA_ERROR_CAPTURED_EVENT);
        if (!ended) OK(cuGraphDestroy(end(a)));
    }
    REFUSED(cuStreamWaitEvent(b, event, 0), CUDA_ERROR_CAPTURED_EVENT);
    OK(cuEventRecord(event, b));
    OK(cuEventSynchronize(event));
    OK(cuStreamWaitEvent(a, event, 0));

    /* What a capture cannot wait for is told by the number. */
    CUgraph none;
    OK(cuEventRecord(outside, b));
    OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    REFUSED(cuStreamWaitEvent(a, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    REFUSED(cuStreamEndCapture(a, &none), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuStreamBeginCapture(b, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(event, b));
    REFUSED(cuStreamWaitEvent(a, event, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    REFUSED(cuStreamEndCapture(a, &none), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    REFUSED(cuStreamEndCapture(b, &none), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    HOLDS(none == NULL);
    OK(cuStreamDestroy(a));
    OK(cuStreamDestroy(b));
    OK(cuStreamDestroy(legacy_like));
    OK(cuEventDestroy(event));
    OK(cuEventDestroy(outside));
}

static void add_one(void *data) { *(int *)data += 1; }

/* Functions of the host are called by every launch, in their places. */
static void host_functions_are_called_by_every_launch(void) {
    CUstream stream = new_stream();
    CUdeviceptr memory;
    int calls = 0;
    unsigned char bytes[2];
    OK(cuMemAlloc(&memory, 2));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemsetD8Async(memory, 1, 1, stream));
    OK(cuLaunchHostFunc(stream, add_one, &calls));
    OK(cuMemsetD8Async(memory + 1, 2, 1, stream));
    OK(cuLaunchHostFunc(stream, add_one, &calls));
    CUgraph graph = end(stream);
    CUgraphNode nodes[4];
    CUgraphNodeType type;
    size_t room = 4;
    OK(cuGraphGetNodes(graph, nodes, &room));
    OK(cuGraphNodeGetType(nodes[1], &type));
    HOLDS(room == 4 && type == CU_GRAPH_NODE_TYPE_HOST && calls == 0);
    CUgraphExec executable = ready(graph, 0);
    for (int i = 1; i <= 3; i++) {
        OK(cuMemsetD8(memory, 0, 2));
        OK(cuGraphLaunch(executable, stream));
        OK(cuStreamSynchronize(stream));
        OK(cuMemcpyDtoH(bytes, memory, 2));
        HOLDS(calls == 2 * i && bytes[0] == 1 && bytes[1] == 2);
    }
    OK(cuGraphExecDestroy(executable));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree(memory));
    OK(cuStreamDestroy(stream));
}

/* What keeps a capture from ending in a graph is told by the number. */
static void why_a_capture_does_not_end(void) {
    CUstream a = new_stream(), b = new_stream();
    CUevent event = new_event();
    CUdeviceptr memory;
    CUgraph none;
    OK(cuMemAlloc(&memory, 64));
    OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(event, a));
    OK(cuStreamWaitEvent(b, event, 0));
    OK(cuMemsetD8Async(memory, 1, 64, b));
    REFUSED(cuStreamEndCapture(b, &none), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    REFUSED(cuStreamEndCapture(a, &none), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    OK(cuMemFree(memory));
    OK(cuStreamDestroy(a));
    OK(cuStreamDestroy(b));
    OK(cuEventDestroy(event));
}

static void flags_are_checked_and_results_written(void) {
    CUstream stream = new_stream();
    CUgraphExec executable;
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUgraph graph = end(stream);
    REFUSED(cuGraphInstantiateWithFlags(&executable, graph, 1 << 20), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuGraphInstantiateWithFlags(&executable, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH), CUDA_ERROR_NOT_SUPPORTED);
    CUDA_GRAPH_INSTANTIATE_PARAMS parameters;
    memset(&parameters, 0x5a, sizeof parameters);
    parameters.flags = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    parameters.hUploadStream = stream;
    OK(cuGraphInstantiateWithParams(&executable, graph, &parameters));
    HOLDS(parameters.result_out == CUDA_GRAPH_INSTANTIATE_SUCCESS && parameters.hErrNode_out == NULL);
    cuuint64_t flags;
    OK(cuGraphExecGetFlags(executable, &flags));
    HOLDS(flags == CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    OK(cuGraphExecDestroy(executable));
    parameters.flags = 1 << 20;
    REFUSED(cuGraphInstantiateWithParams(&executable, graph, &parameters), CUDA_ERROR_INVALID_VALUE);
    HOLDS(parameters.result_out == CUDA_GRAPH_INSTANTIATE_ERROR);
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy(stream));
}

/* Graphs made by hand are not there, and every function says so. */
static void what_is_made_by_hand_is_not_supported(void) {
    CUgraph graph = NULL;
    CUgraphNode node = NULL;
    CUDA_KERNEL_NODE_PARAMS kernel = {0};
    REFUSED(cuGraphCreate(&graph, 0), CUDA_ERROR_NOT_SUPPORTED);
    REFUSED(cuGraphAddEmptyNode(&node, graph, NULL, 0), CUDA_ERROR_NOT_SUPPORTED);
    REFUSED(cuGraphAddKernelNode(&node, graph, NULL, 0, &kernel), CUDA_ERROR_NOT_SUPPORTED);
    REFUSED(cuGraphClone(&graph, graph), CUDA_ERROR_NOT_SUPPORTED);
    REFUSED(cuGraphDestroyNode(node), CUDA_ERROR_NOT_SUPPORTED);
    REFUSED(cuStreamBeginCaptureToGraph(NULL, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_NOT_SUPPORTED);
}

int main(void) {
    CUdevice device;
    CUcontext context;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    a_capture_tells_of_itself();
    memory_of_two_captures_is_not_mixed_up();
    what_a_launch_allocates_is_there_until_it_is_freed();
    graphs_come_and_go();
    captured_events_stand_for_nothing();
    host_functions_are_called_by_every_launch();
    why_a_capture_does_not_end();
    flags_are_checked_and_results_written();
    what_is_made_by_hand_is_not_supported();
    OK(cuDevicePrimaryCtxRelease(device));
    puts("all is well");
    return 0;
}
