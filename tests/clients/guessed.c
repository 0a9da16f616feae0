/* Addresses among a kernel's parameters that the kernel never uses: a field that was not set, a pointer past an end, an argument that a flag
 * switches off. Memory lies there at the launch and is gone at the kernel's turn, and nothing happens. What is certain to be used is found.
 * MILLPOND_SIM gives every kernel a time (kernel=), so that turns come late. It fails at the first surprise. */
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

static const char CODE[] =
    ".version 7.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry many_tensors(.param .align 8 .b8 list[32])\n{ ret; }\n"
    ".visible .entry two_ends(.param .u64 begin, .param .u64 end)\n{ ret; }\n"
    ".visible .entry millpond_fill(.param .u64 dst, .param .u32 value, .param .u64 count)\n{ ret; }\n";

#define PAGE ((size_t)2 << 20)

static CUstream stream;
static CUfunction many_tensors, two_ends, fill;
static CUdeviceptr range;
static CUmemGenericAllocationHandle pages[2];

/* Two pages that follow each other. */
static void map(void) {
    CUmemAllocationProp property = {0};
    property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    property.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAccessDesc access = {0};
    access.location = property.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    OK(cuMemAddressReserve(&range, 2 * PAGE, 0, 0, 0));
    for (int i = 0; i < 2; i++) {
        OK(cuMemCreate(&pages[i], PAGE, &property, 0));
        OK(cuMemMap(range + i * PAGE, PAGE, 0, pages[i], 0));
    }
    OK(cuMemSetAccess(range, 2 * PAGE, &access, 1));
}

static void unmap(int page) {
    OK(cuMemUnmap(range + page * PAGE, PAGE));
    OK(cuMemRelease(pages[page]));
}

static void end(void) { OK(cuMemAddressFree(range, 2 * PAGE)); }

static void launch(CUfunction function, void **parameters) {
    OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
}

/* A list with room for three addresses, of which one is set. */
struct list {
    CUdeviceptr addresses[3];
    unsigned count;
};

static void a_field_that_was_not_set(int runs_already) {
    map();
    struct list list = {{range, 0x1234, range + PAGE + 512}, 1};
    if (!runs_already) launch(many_tensors, (void *[]){&list});
    launch(many_tensors, (void *[]){&list});
    unmap(1);
    OK(cuStreamSynchronize(stream));
    unmap(0);
    end();
    puts(runs_already ? "a field, while it runs" : "a field, before its turn");
}

static void one_past_the_end(void) {
    map();
    CUdeviceptr past = range + PAGE;
    launch(two_ends, (void *[]){&range, &past});
    launch(two_ends, (void *[]){&range, &past});
    unmap(1);
    OK(cuStreamSynchronize(stream));
    /* Gone at the launch already. */
    launch(two_ends, (void *[]){&range, &past});
    OK(cuStreamSynchronize(stream));
    unmap(0);
    end();
    puts("one past the end");
}

static void in_a_graph(void) {
    map();
    struct list list = {{range, 0, range + PAGE}, 1};
    CUgraph graph;
    CUgraphExec ready;
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    launch(many_tensors, (void *[]){&list});
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&ready, graph, 0));
    OK(cuGraphLaunch(ready, stream));
    OK(cuStreamSynchronize(stream));
    unmap(1);
    OK(cuGraphLaunch(ready, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuGraphExecDestroy(ready));
    OK(cuGraphDestroy(graph));
    unmap(0);
    end();
    puts("in a graph");
}

static void what_is_certain(const char *which) {
    map();
    unsigned value = 1;
    size_t count = 4;
    CUdeviceptr there = range + PAGE;
    launch(many_tensors, (void *[]){&(struct list){{0, 0, 0}, 0}});
    if (strcmp(which, "memset") == 0) OK(cuMemsetD8Async(there, 1, 16, stream));
    else if (strcmp(which, "copy") == 0) OK(cuMemcpyDtoDAsync(range, there, 16, stream));
    else launch(fill, (void *[]){&there, &value, &count});
    unmap(1);
    REFUSED(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    puts(which);
}

int main(int argc, char **argv) {
    CUcontext context;
    CUmodule module;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuModuleLoadData(&module, CODE));
    OK(cuModuleGetFunction(&many_tensors, module, "many_tensors"));
    OK(cuModuleGetFunction(&two_ends, module, "two_ends"));
    OK(cuModuleGetFunction(&fill, module, "millpond_fill"));
    if (argc > 1) {
        what_is_certain(argv[1]);
        return 0;
    }
    a_field_that_was_not_set(0);
    a_field_that_was_not_set(1);
    in_a_graph();
    one_past_the_end();
    puts("all is well");
    return 0;
}
