/* A program of the CUDA runtime API, as a compiler would leave it: it registers a fat binary and launches a kernel of it.
 * With -DBY_DLOPEN it opens the library itself, else it is linked to it. The fat binary's file is its argument. Every check that
 * fails is printed; the exit code says whether any did. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#define FUNCTIONS(X) \
    X(cudaDeviceGetAttribute) X(cudaDeviceGetDefaultMemPool) X(cudaDeviceGetStreamPriorityRange) X(cudaDeviceReset) \
    X(cudaDeviceSynchronize) X(cudaDriverGetVersion) X(cudaEventCreate) X(cudaEventCreateWithFlags) X(cudaEventDestroy) \
    X(cudaEventElapsedTime) X(cudaEventQuery) X(cudaEventRecord) X(cudaEventSynchronize) X(cudaFree) X(cudaFreeAsync) \
    X(cudaFreeHost) X(cudaFuncGetAttributes) X(cudaGetDevice) X(cudaGetDeviceCount) X(cudaGetDeviceProperties_v2) \
    X(cudaGetDriverEntryPointByVersion) X(cudaGetErrorName) X(cudaGetErrorString) X(cudaGetLastError) X(cudaGetSymbolAddress) \
    X(cudaGraphDestroy) X(cudaGraphExecDestroy) X(cudaGraphGetNodes) X(cudaGraphInstantiate) X(cudaGraphLaunch) \
    X(cudaHostAlloc) X(cudaIpcGetMemHandle) X(cudaLaunchHostFunc) X(cudaLaunchKernel) X(cudaLaunchKernelExC) X(cudaMalloc) \
    X(cudaMalloc3DArray) X(cudaMallocAsync) X(cudaMallocHost) X(cudaMallocManaged) X(cudaMallocPitch) X(cudaMemGetInfo) \
    X(cudaMemPoolGetAttribute) X(cudaMemPoolTrimTo) X(cudaMemPrefetchAsync) X(cudaMemcpy) X(cudaMemcpy2D) \
    X(cudaMemcpyAsync) X(cudaMemcpyAsync_ptsz) X(cudaMemset) X(cudaMemsetAsync) \
    X(cudaOccupancyMaxActiveBlocksPerMultiprocessor) X(cudaPeekAtLastError) X(cudaPointerGetAttributes) \
    X(cudaRuntimeGetVersion) X(cudaSetDevice) X(cudaStreamAddCallback) X(cudaStreamBeginCapture) X(cudaStreamCreate) \
    X(cudaStreamCreateWithPriority) X(cudaStreamDestroy) X(cudaStreamEndCapture) X(cudaStreamGetId) \
    X(cudaStreamIsCapturing) X(cudaStreamQuery) X(cudaStreamSynchronize) X(cudaStreamSynchronize_ptsz) \
    X(cudaStreamWaitEvent) X(cudaThreadExchangeStreamCaptureMode) X(__cudaInitModule) X(__cudaPopCallConfiguration) \
    X(__cudaPushCallConfiguration) X(__cudaRegisterFatBinary) X(__cudaRegisterFatBinaryEnd) X(__cudaRegisterFunction) \
    X(__cudaUnregisterFatBinary)

/* What only compilers call, and the per-thread forms, are in no header under these names. */
void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFatBinaryEnd(void **);
void __cudaUnregisterFatBinary(void **);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
char __cudaInitModule(void **);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void *);
cudaError_t __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, void *);
cudaError_t cudaMemcpyAsync_ptsz(void *, const void *, size_t, enum cudaMemcpyKind, cudaStream_t);
cudaError_t cudaStreamSynchronize_ptsz(cudaStream_t);

#define DECLARE(name) static __typeof__(name) *call_##name;
FUNCTIONS(DECLARE)
#ifdef BY_DLOPEN
#define FIND(name) \
    if (!(call_##name = (__typeof__(name) *)dlsym(library, #name))) { fprintf(stderr, "no " #name "\n"); exit(2); }
#else
#define FIND(name) call_##name = name;
#endif
#define CALL(name) (*call_##name)

static int failures;
static void check(int ok, int line, const char *what) {
    if (!ok) {
        failures++;
        printf("line %d: %s\n", line, what);
    }
}
#define CHECK(condition) check((condition) != 0, __LINE__, #condition)
static void check_answer(cudaError_t got, cudaError_t expected, int line, const char *what) {
    if (got != expected) {
        failures++;
        printf("line %d: %s is %s, not %s\n", line, what, CALL(cudaGetErrorName)(got), CALL(cudaGetErrorName)(expected));
    }
}
#define ANSWERS(call, expected) check_answer(call, expected, __LINE__, #call)
#define WORKS(call) ANSWERS(call, cudaSuccess)

static void devices(void) {
    int count = 0, device = -1, version = 0, multiprocessors = 0;
    ANSWERS(CALL(cudaGetDeviceCount)(NULL), cudaErrorInvalidValue);
    WORKS(CALL(cudaGetDeviceCount)(&count));
    CHECK(count >= 1);
    WORKS(CALL(cudaGetDevice)(&device));
    CHECK(device == 0);
    ANSWERS(CALL(cudaSetDevice)(count), cudaErrorInvalidDevice);
    ANSWERS(CALL(cudaSetDevice)(-1), cudaErrorInvalidDevice);
    WORKS(CALL(cudaSetDevice)(0));
    WORKS(CALL(cudaRuntimeGetVersion)(&version));
    CHECK(version / 1000 == 12);
    WORKS(CALL(cudaDriverGetVersion)(&version));
    CHECK(version >= 12000);

    struct cudaDeviceProp properties;
    memset(&properties, 0xee, sizeof properties);
    WORKS(CALL(cudaGetDeviceProperties_v2)(&properties, 0));
    size_t free_bytes = 0, total_bytes = 0;
    WORKS(CALL(cudaMemGetInfo)(&free_bytes, &total_bytes));
    CHECK(properties.totalGlobalMem == total_bytes && free_bytes <= total_bytes && free_bytes > 0);
    WORKS(CALL(cudaDeviceGetAttribute)(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    CHECK(properties.multiProcessorCount == multiprocessors && multiprocessors > 0);
    CHECK(properties.major >= 5 && properties.warpSize == 32 && properties.maxThreadsPerBlock == 1024);
    CHECK(properties.unifiedAddressing == 1 && strlen(properties.name) > 0 && strlen(properties.name) < 256);
    ANSWERS(CALL(cudaGetDeviceProperties_v2)(&properties, 99), cudaErrorInvalidDevice);
}

static void errors(void) {
    CALL(cudaGetLastError)();
    ANSWERS(CALL(cudaMalloc)(NULL, 16), cudaErrorInvalidValue);
    ANSWERS(CALL(cudaPeekAtLastError)(), cudaErrorInvalidValue);
    ANSWERS(CALL(cudaGetLastError)(), cudaErrorInvalidValue);
    ANSWERS(CALL(cudaGetLastError)(), cudaSuccess);
    CHECK(!strcmp(CALL(cudaGetErrorName)(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation"));
    CHECK(!strcmp(CALL(cudaGetErrorString)(cudaErrorMemoryAllocation), "out of memory"));
    CHECK(!strcmp(CALL(cudaGetErrorString)(cudaSuccess), "no error"));
    CHECK(!strcmp(CALL(cudaGetErrorName)((cudaError_t)12345), "unrecognized error code"));
    /* What there is not, says so. */
    cudaArray_t array;
    struct cudaChannelFormatDesc format = {8, 0, 0, 0, cudaChannelFormatKindUnsigned};
    struct cudaExtent extent = {1, 1, 1};
    ANSWERS(CALL(cudaMalloc3DArray)(&array, &format, extent, 0), cudaErrorNotSupported);
    ANSWERS(CALL(cudaGetLastError)(), cudaErrorNotSupported);
}

static unsigned char sent[1 << 20], received[1 << 20];

static void copies(void) {
    void *a = NULL, *b = NULL, *zero = &zero;
    for (size_t i = 0; i < sizeof sent; i++) sent[i] = (unsigned char)(i * 7 + (i >> 8));
    WORKS(CALL(cudaMalloc)(&zero, 0));
    CHECK(zero == NULL);
    WORKS(CALL(cudaFree)(NULL));
    WORKS(CALL(cudaMalloc)(&a, sizeof sent));
    WORKS(CALL(cudaMalloc)(&b, sizeof sent));
    WORKS(CALL(cudaMemcpy)(a, sent, sizeof sent, cudaMemcpyHostToDevice));
    WORKS(CALL(cudaMemcpy)(b, a, sizeof sent, cudaMemcpyDeviceToDevice));
    WORKS(CALL(cudaMemcpy)(received, b, sizeof sent, cudaMemcpyDeviceToHost));
    CHECK(!memcmp(sent, received, sizeof sent));
    memset(received, 0, sizeof received);
    WORKS(CALL(cudaMemcpy)(received, sent, sizeof sent, cudaMemcpyHostToHost));
    CHECK(!memcmp(sent, received, sizeof sent));
    memset(received, 0, sizeof received);
    WORKS(CALL(cudaMemcpy)(received, a, sizeof sent, cudaMemcpyDefault));
    CHECK(!memcmp(sent, received, sizeof sent));
    ANSWERS(CALL(cudaMemcpy)(received, a, 16, (enum cudaMemcpyKind)9), cudaErrorInvalidMemcpyDirection);
    ANSWERS(CALL(cudaMemcpy)(NULL, a, 16, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    WORKS(CALL(cudaMemcpy)(NULL, NULL, 0, cudaMemcpyDeviceToHost));
    WORKS(CALL(cudaMemset)(a, 0x5a, 1000));
    WORKS(CALL(cudaMemcpy)(received, a, 1001, cudaMemcpyDeviceToHost));
    CHECK(received[0] == 0x5a && received[999] == 0x5a && received[1000] == sent[1000]);

    /* Rows of 100 bytes, 128 apart on the host, as wide as the device likes there. */
    void *plane = NULL;
    size_t pitch = 0;
    WORKS(CALL(cudaMallocPitch)(&plane, &pitch, 100, 50));
    CHECK(pitch >= 100 && plane != NULL);
    WORKS(CALL(cudaMemcpy2D)(plane, pitch, sent, 128, 100, 50, cudaMemcpyHostToDevice));
    memset(received, 0, sizeof received);
    WORKS(CALL(cudaMemcpy2D)(received, 128, plane, pitch, 100, 50, cudaMemcpyDeviceToHost));
    for (int row = 0; row < 50; row++) {
        CHECK(!memcmp(sent + row * 128, received + row * 128, 100));
        CHECK(received[row * 128 + 100] == 0);
    }
    ANSWERS(CALL(cudaMemcpy2D)(received, 99, plane, pitch, 100, 50, cudaMemcpyDeviceToHost), cudaErrorInvalidPitchValue);
    WORKS(CALL(cudaFree)(plane));
    WORKS(CALL(cudaFree)(a));
    ANSWERS(CALL(cudaFree)(a), cudaErrorInvalidValue);
    WORKS(CALL(cudaFree)(b));
    size_t free_bytes, total_bytes;
    WORKS(CALL(cudaMemGetInfo)(&free_bytes, &total_bytes));
    ANSWERS(CALL(cudaMalloc)(&a, total_bytes * 2), cudaErrorMemoryAllocation);
    ANSWERS(CALL(cudaGetLastError)(), cudaErrorMemoryAllocation);
}

static void pointers(void) {
    void *device = NULL, *pinned = NULL, *managed = NULL;
    struct cudaPointerAttributes attributes;
    WORKS(CALL(cudaMalloc)(&device, 4096));
    WORKS(CALL(cudaMallocHost)(&pinned, 4096));
    WORKS(CALL(cudaMallocManaged)(&managed, 4096, cudaMemAttachGlobal));
    WORKS(CALL(cudaPointerGetAttributes)(&attributes, device));
    CHECK(attributes.type == cudaMemoryTypeDevice && attributes.device == 0 && attributes.devicePointer == device);
    WORKS(CALL(cudaPointerGetAttributes)(&attributes, pinned));
    CHECK(attributes.type == cudaMemoryTypeHost && attributes.hostPointer == pinned);
    WORKS(CALL(cudaPointerGetAttributes)(&attributes, managed));
    CHECK(attributes.type == cudaMemoryTypeManaged);
    WORKS(CALL(cudaPointerGetAttributes)(&attributes, sent));
    CHECK(attributes.type == cudaMemoryTypeUnregistered);
    ANSWERS(CALL(cudaPointerGetAttributes)(NULL, device), cudaErrorInvalidValue);
    memset(managed, 0x11, 4096);
    WORKS(CALL(cudaMemPrefetchAsync)(managed, 4096, 0, NULL));
    WORKS(CALL(cudaDeviceSynchronize)());
    CHECK(((unsigned char *)managed)[4095] == 0x11);
    memset(pinned, 0x22, 4096);
    WORKS(CALL(cudaMemcpy)(device, pinned, 4096, cudaMemcpyDefault));
    WORKS(CALL(cudaFree)(device));
    WORKS(CALL(cudaFree)(managed));
    WORKS(CALL(cudaFreeHost)(pinned));
    WORKS(CALL(cudaFreeHost)(NULL));
}

static int called;
static void host_function(void *data) { called += *(int *)data; }
static void callback(cudaStream_t stream, cudaError_t status, void *data) {
    (void)stream;
    if (status == cudaSuccess) called += *(int *)data;
}

static void streams(void) {
    cudaStream_t first, second;
    cudaEvent_t start, end;
    int least = 0, greatest = 0, ten = 10, hundred = 100;
    void *memory = NULL, *pinned = NULL;
    unsigned long long id = 0, other_id = 0;
    WORKS(CALL(cudaDeviceGetStreamPriorityRange)(&least, &greatest));
    CHECK(greatest <= least);
    WORKS(CALL(cudaStreamCreate)(&first));
    WORKS(CALL(cudaStreamCreateWithPriority)(&second, cudaStreamNonBlocking, greatest));
    WORKS(CALL(cudaStreamGetId)(first, &id));
    WORKS(CALL(cudaStreamGetId)(second, &other_id));
    CHECK(id != other_id);
    WORKS(CALL(cudaEventCreate)(&start));
    WORKS(CALL(cudaEventCreate)(&end));
    WORKS(CALL(cudaMallocAsync)(&memory, sizeof sent, first));
    WORKS(CALL(cudaHostAlloc)(&pinned, sizeof sent, cudaHostAllocDefault));
    memcpy(pinned, sent, sizeof sent);
    WORKS(CALL(cudaEventRecord)(start, first));
    WORKS(CALL(cudaMemcpyAsync)(memory, pinned, sizeof sent, cudaMemcpyHostToDevice, first));
    WORKS(CALL(cudaEventRecord)(end, first));
    WORKS(CALL(cudaStreamWaitEvent)(second, end, 0));
    memset(received, 0, sizeof received);
    WORKS(CALL(cudaMemcpyAsync)(received, memory, sizeof sent, cudaMemcpyDeviceToHost, second));
    WORKS(CALL(cudaLaunchHostFunc)(second, host_function, &ten));
    WORKS(CALL(cudaStreamAddCallback)(second, callback, &hundred, 0));
    WORKS(CALL(cudaStreamSynchronize)(second));
    CHECK(called == 110);
    CHECK(!memcmp(sent, received, sizeof sent));
    WORKS(CALL(cudaEventSynchronize)(end));
    WORKS(CALL(cudaEventQuery)(end));
    WORKS(CALL(cudaStreamQuery)(first));
    float milliseconds = -1;
    WORKS(CALL(cudaEventElapsedTime)(&milliseconds, start, end));
    CHECK(milliseconds > 0);
    WORKS(CALL(cudaFreeAsync)(memory, first));
    WORKS(CALL(cudaStreamSynchronize)(first));
    cudaMemPool_t pool;
    unsigned long long used = 1;
    WORKS(CALL(cudaDeviceGetDefaultMemPool)(&pool, 0));
    WORKS(CALL(cudaMemPoolTrimTo)(pool, 0));
    WORKS(CALL(cudaMemPoolGetAttribute)(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    CHECK(used == 0);
    WORKS(CALL(cudaFreeHost)(pinned));
    WORKS(CALL(cudaEventDestroy)(start));
    WORKS(CALL(cudaEventDestroy)(end));
    ANSWERS(CALL(cudaEventQuery)(end), cudaErrorInvalidResourceHandle);
    WORKS(CALL(cudaStreamDestroy)(first));
    WORKS(CALL(cudaStreamDestroy)(second));
    ANSWERS(CALL(cudaStreamSynchronize)(second), cudaErrorInvalidResourceHandle);
}

static void capture(void) {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    enum cudaStreamCaptureStatus status;
    void *memory;
    size_t nodes = 0;
    WORKS(CALL(cudaStreamCreate)(&stream));
    WORKS(CALL(cudaMalloc)(&memory, 4096));
    WORKS(CALL(cudaMemset)(memory, 0, 4096));
    WORKS(CALL(cudaStreamBeginCapture)(stream, cudaStreamCaptureModeGlobal));
    WORKS(CALL(cudaStreamIsCapturing)(stream, &status));
    CHECK(status == cudaStreamCaptureStatusActive);
    WORKS(CALL(cudaMemsetAsync)(memory, 0x77, 4096, stream));
    WORKS(CALL(cudaStreamEndCapture)(stream, &graph));
    WORKS(CALL(cudaGraphGetNodes)(graph, NULL, &nodes));
    CHECK(nodes == 1);
    WORKS(CALL(cudaMemcpy)(received, memory, 4096, cudaMemcpyDeviceToHost));
    CHECK(received[0] == 0);
    WORKS(CALL(cudaGraphInstantiate)(&exec, graph, 0));
    WORKS(CALL(cudaGraphLaunch)(exec, stream));
    WORKS(CALL(cudaStreamSynchronize)(stream));
    WORKS(CALL(cudaMemcpy)(received, memory, 4096, cudaMemcpyDeviceToHost));
    CHECK(received[0] == 0x77 && received[4095] == 0x77);
    WORKS(CALL(cudaGraphExecDestroy)(exec));
    WORKS(CALL(cudaGraphDestroy)(graph));
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    WORKS(CALL(cudaThreadExchangeStreamCaptureMode)(&mode));
    CHECK(mode == cudaStreamCaptureModeGlobal);
    WORKS(CALL(cudaThreadExchangeStreamCaptureMode)(&mode));
    WORKS(CALL(cudaStreamDestroy)(stream));
    WORKS(CALL(cudaFree)(memory));
}

/* The host's stand-ins for two kernels: their addresses are what is launched. */
static void fill(void) {}
static void unknown(void) {}
static int variable;

static void kernels(const char *path) {
    static struct {
        int magic, version;
        const void *data;
        void *more;
    } note = {0x466243b1, 1, NULL, NULL};
    FILE *file = fopen(path, "rb");
    static char image[1 << 16];
    if (!file || fread(image, 1, sizeof image, file) == 0) {
        printf("cannot read %s\n", path);
        exit(2);
    }
    fclose(file);
    note.data = image;
    void **binary = CALL(__cudaRegisterFatBinary)(&note);
    CHECK(binary != NULL);
    CALL(__cudaRegisterFunction)(binary, (const char *)fill, "millpond_fill", "millpond_fill", -1, 0, 0, 0, 0, 0);
    CALL(__cudaRegisterFunction)(binary, (const char *)unknown, "no_such", "no_such", -1, 0, 0, 0, 0, 0);
    CALL(__cudaRegisterFatBinaryEnd)(binary);
    CHECK(CALL(__cudaInitModule)(binary) != 0);

    unsigned *memory, value = 0xc0ffee;
    unsigned long long count = 1000;
    WORKS(CALL(cudaMalloc)((void **)&memory, 4096));
    WORKS(CALL(cudaMemset)(memory, 0, 4096));
    dim3 grid = {4, 1, 1}, block = {256, 1, 1}, popped_grid, popped_block;
    size_t shared = 99;
    cudaStream_t stream = (cudaStream_t)&stream;
    CHECK(CALL(__cudaPushCallConfiguration)(grid, block, 0, NULL) == 0);
    WORKS(CALL(__cudaPopCallConfiguration)(&popped_grid, &popped_block, &shared, &stream));
    CHECK(popped_grid.x == 4 && popped_block.x == 256 && shared == 0 && stream == NULL);
    ANSWERS(CALL(__cudaPopCallConfiguration)(&popped_grid, &popped_block, &shared, &stream), cudaErrorMissingConfiguration);
    void *arguments[] = {&memory, &value, &count};
    WORKS(CALL(cudaLaunchKernel)((const void *)fill, popped_grid, popped_block, arguments, shared, stream));
    WORKS(CALL(cudaDeviceSynchronize)());
    WORKS(CALL(cudaMemcpy)(received, memory, 4096, cudaMemcpyDeviceToHost));
    CHECK(((unsigned *)received)[0] == 0xc0ffee && ((unsigned *)received)[999] == 0xc0ffee && ((unsigned *)received)[1000] == 0);

    cudaLaunchConfig_t config = {.gridDim = grid, .blockDim = block};
    value = 7;
    WORKS(CALL(cudaLaunchKernelExC)(&config, (const void *)fill, arguments));
    WORKS(CALL(cudaDeviceSynchronize)());
    WORKS(CALL(cudaMemcpy)(received, memory, 4096, cudaMemcpyDeviceToHost));
    CHECK(((unsigned *)received)[500] == 7);
    ANSWERS(CALL(cudaLaunchKernel)((const void *)unknown, grid, block, arguments, 0, 0), cudaErrorInvalidDeviceFunction);
    ANSWERS(CALL(cudaLaunchKernel)((const void *)kernels, grid, block, arguments, 0, 0), cudaErrorInvalidDeviceFunction);
    ANSWERS(CALL(cudaLaunchKernelExC)(NULL, (const void *)fill, arguments), cudaErrorInvalidValue);
    struct cudaFuncAttributes attributes;
    WORKS(CALL(cudaFuncGetAttributes)(&attributes, (const void *)fill));
    CHECK(attributes.maxThreadsPerBlock == 1024 && attributes.binaryVersion >= 50);
    int blocks = 0;
    WORKS(CALL(cudaOccupancyMaxActiveBlocksPerMultiprocessor)(&blocks, (const void *)fill, 256, 0));
    CHECK(blocks > 0);
    void *address;
    ANSWERS(CALL(cudaGetSymbolAddress)(&address, &variable), cudaErrorInvalidSymbol);
    WORKS(CALL(cudaFree)(memory));
    CALL(__cudaUnregisterFatBinary)(binary);
    ANSWERS(CALL(cudaLaunchKernel)((const void *)fill, grid, block, arguments, 0, 0), cudaErrorInvalidDeviceFunction);
    CALL(cudaGetLastError)();
}

static void *in_thread(void *nothing) {
    void *memory;
    int device = -1;
    /* A thread that never chose a device has the first. */
    WORKS(CALL(cudaGetDevice)(&device));
    CHECK(device == 0);
    ANSWERS(CALL(cudaGetLastError)(), cudaSuccess);
    WORKS(CALL(cudaMalloc)(&memory, 4096));
    WORKS(CALL(cudaMemcpyAsync_ptsz)(memory, sent, 4096, cudaMemcpyHostToDevice, NULL));
    WORKS(CALL(cudaStreamSynchronize_ptsz)(NULL));
    WORKS(CALL(cudaFree)(memory));
    return nothing;
}

static void threads_and_driver(void) {
    pthread_t thread;
    ANSWERS(CALL(cudaSetDevice)(99), cudaErrorInvalidDevice);
    CHECK(!pthread_create(&thread, NULL, in_thread, NULL));
    pthread_join(thread, NULL);
    ANSWERS(CALL(cudaGetLastError)(), cudaErrorInvalidDevice);
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult status;
    WORKS(CALL(cudaGetDriverEntryPointByVersion)("cuMemAlloc", &function, 3020, cudaEnableDefault, &status));
    CHECK(function != NULL && status == cudaDriverEntryPointSuccess);
    WORKS(CALL(cudaGetDriverEntryPointByVersion)("cuNoSuchThing", &function, 12000, cudaEnableDefault, &status));
    CHECK(function == NULL && status == cudaDriverEntryPointSymbolNotFound);
}

static void reset(void) {
    void *memory = NULL;
    WORKS(CALL(cudaMalloc)(&memory, 4096));
    WORKS(CALL(cudaDeviceReset)());
    WORKS(CALL(cudaMalloc)(&memory, 4096));
    WORKS(CALL(cudaMemset)(memory, 1, 4096));
    WORKS(CALL(cudaFree)(memory));
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
#ifdef BY_DLOPEN
    void *library = dlopen("libcudart.so.12", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
#endif
    FUNCTIONS(FIND)
    devices();
    /* Without a device nothing else makes sense. */
    if (failures) return 1;
    errors();
    copies();
    pointers();
    streams();
    capture();
    kernels(arguments[1]);
    threads_and_driver();
    reset();
    if (failures) printf("%d checks failed\n", failures);
    else printf("all is well\n");
    return failures != 0;
}
