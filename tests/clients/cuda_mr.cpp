// A pool as a resource of libcu++'s cuda::mr, of any version: the concept, and calls through its type-erased references. On the device that
// MILLPOND_DEVICE names.
#include <millpond_cuda_mr.hpp>

#include <cstdint>
#include <cstring>

#include "check.hpp"

using cuda::mr::device_accessible;
using cuda::mr::host_accessible;
using millpond::cuda_resource;
using millpond::host_cuda_resource;

#if CCCL_VERSION >= 3001000

static_assert(cuda::mr::resource_with<cuda_resource, device_accessible>);
static_assert(!cuda::mr::resource_with<cuda_resource, host_accessible>);
static_assert(cuda::mr::resource_with<host_cuda_resource, device_accessible, host_accessible>);

template <class... Properties>
using reference = cuda::mr::resource_ref<Properties...>;

template <class Reference>
void* allocate(Reference from, std::size_t bytes, cuda::stream_ref stream) {
    return from.allocate(stream, bytes, 256);
}
template <class Reference>
void deallocate(Reference to, void* block, std::size_t bytes, cuda::stream_ref stream) {
    to.deallocate(stream, block, bytes, 256);
}
template <class Reference>
void* allocate_for_all(Reference from, std::size_t bytes) {
    return from.allocate_sync(bytes, 256);
}
template <class Reference>
void deallocate_for_all(Reference to, void* block, std::size_t bytes) {
    to.deallocate_sync(block, bytes, 256);
}

#else

static_assert(cuda::mr::async_resource_with<cuda_resource, device_accessible>);
static_assert(!cuda::mr::async_resource_with<cuda_resource, host_accessible>);
static_assert(cuda::mr::async_resource_with<host_cuda_resource, device_accessible, host_accessible>);

template <class... Properties>
using reference = cuda::mr::async_resource_ref<Properties...>;

template <class Reference>
void* allocate(Reference from, std::size_t bytes, cuda::stream_ref stream) {
    return from.allocate_async(bytes, 256, stream);
}
template <class Reference>
void deallocate(Reference to, void* block, std::size_t bytes, cuda::stream_ref stream) {
    to.deallocate_async(block, bytes, 256, stream);
}
template <class Reference>
void* allocate_for_all(Reference from, std::size_t bytes) {
    return from.allocate(bytes, 256);
}
template <class Reference>
void deallocate_for_all(Reference to, void* block, std::size_t bytes) {
    to.deallocate(block, bytes, 256);
}

#endif

#if CCCL_VERSION >= 3002000

// It keeps a copy of what it is given, which refers to the same pool.
static void owned_by_another(CudaMemoryPool& pool, cuda::stream_ref stream) {
    cuda::mr::any_resource<device_accessible> any{cuda_resource(pool)};
    void* block = any.allocate(stream, 1000, 256);
    CHECK(pool.GetStats().current_usage == 1000);
    any.deallocate(stream, block, 1000, 256);
}

#else

static void owned_by_another(CudaMemoryPool&, cuda::stream_ref) {}

#endif

static void device_memory() {
    CudaMemoryPool pool("pool:enable_defrag=false"), other;
    millpond::stream own(pool);
    cuda::stream_ref stream(own.get());
    cuda_resource resource(pool), same(pool), different(other);
    CHECK(resource == same && resource != different);
    reference<device_accessible> through(resource);
    void* block = allocate(through, 1000, stream);
    CHECK(pool.GetStats().current_usage == 1000);
    CHECK(reinterpret_cast<std::uintptr_t>(block) % 256 == 0);
    deallocate(through, block, 1000, stream);
    // Freed on that stream: it has the block at once.
    CHECK(allocate(through, 1000, stream) == block);
    deallocate(through, block, 1000, stream);
    block = allocate_for_all(through, 2000);
    CHECK(pool.GetStats().current_usage == 2000);
    deallocate_for_all(through, block, 2000);
    owned_by_another(pool, stream);
    CHECK(pool.GetStats().current_usage == 0);
    throws<millpond::error>([&] { (void)resource.allocate(stream, 100, 512); });
    throws<std::bad_alloc>([&] { allocate(through, std::size_t{1} << 45, stream); });
}

static void memory_of_both() {
    CudaMemoryPool pool("bestfit:upstream=pinned");
    host_cuda_resource resource(pool);
    millpond::stream own(pool);
    reference<device_accessible, host_accessible> through(resource);
    void* block = allocate(through, 1000, cuda::stream_ref(own.get()));
    std::memset(block, 7, 1000);
    CHECK(static_cast<char*>(block)[999] == 7);
    deallocate(through, block, 1000, cuda::stream_ref(own.get()));
    CHECK(pool.Usage().live_bytes == 0);
    CudaMemoryPool device;
    throws<millpond::error>([&] { host_cuda_resource none(device); });
}

int main() {
    device_memory();
    memory_of_both();
    std::puts("all is well");
}
