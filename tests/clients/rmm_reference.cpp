// A pool through the reference that all of RMM's containers take, and under those of RMM's adaptors that do not call CUDA's runtime: RMM's library has
// NVIDIA's inside from 25.4 on, which takes no stand-in for a driver. The program is the same for all versions.
#include <millpond_rmm.hpp>

#ifdef MILLPOND_RMM_HAS_BASE
#include <rmm/mr/device/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/device/statistics_resource_adaptor.hpp>
#else
#include <rmm/mr/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#endif
#include <rmm/resource_ref.hpp>

#include <cstring>

#include "check.hpp"

using millpond::rmm_resource;
using reference = rmm::device_async_resource_ref;

// How each kind of version wants a resource, and what it calls those that stand on another.
#ifdef MILLPOND_RMM_HAS_BASE
static rmm_resource* given(rmm_resource& resource) { return &resource; }
using statistics = rmm::mr::statistics_resource_adaptor<rmm_resource>;
using on_failure = rmm::mr::failure_callback_resource_adaptor<rmm_resource>;
#else
static rmm_resource given(rmm_resource& resource) { return resource; }
using statistics = rmm::mr::statistics_resource_adaptor;
using on_failure = rmm::mr::failure_callback_resource_adaptor<>;
#endif

#if CCCL_VERSION >= 3001000
static_assert(cuda::mr::resource_with<rmm_resource, cuda::mr::device_accessible>);
static void* allocate(reference from, std::size_t bytes, cuda::stream_ref stream) { return from.allocate(stream, bytes, 256); }
static void deallocate(reference to, void* block, std::size_t bytes, cuda::stream_ref stream) {
    to.deallocate(stream, block, bytes, 256);
}
#else
static_assert(cuda::mr::async_resource_with<rmm_resource, cuda::mr::device_accessible>);
static void* allocate(reference from, std::size_t bytes, cuda::stream_ref stream) {
    return from.allocate_async(bytes, 256, stream);
}
static void deallocate(reference to, void* block, std::size_t bytes, cuda::stream_ref stream) {
    to.deallocate_async(block, bytes, 256, stream);
}
#endif

static void is_about_the_limit(const rmm::out_of_memory& why) { CHECK(std::strstr(why.what(), "limit") != nullptr); }

static void references(CudaMemoryPool& pool, cuda::stream_ref stream) {
    CudaMemoryPool other;
    rmm_resource resource(pool), same(pool), different(other);
    CHECK(resource == same && resource != different);
    reference through(resource);
    void* block = allocate(through, 1024, stream);
    CHECK(pool.GetStats().current_usage == 1024);
    throws<rmm::out_of_memory>([&] { allocate(through, 1 << 20, stream); }, is_about_the_limit);
    deallocate(through, block, 1024, stream);
    CHECK(pool.GetStats().current_usage == 0);
}

// One that gives something up and tries again gets what it wants: adaptors act on RMM's exceptions.
static void adaptors(CudaMemoryPool& pool, cuda::stream_ref stream) {
    rmm_resource resource(pool);
    statistics counted(given(resource));
    void* block = allocate(counted, 5120, stream);
    CHECK(counted.get_bytes_counter().value == 5120 && pool.GetStats().current_usage == 5120);
    deallocate(counted, block, 5120, stream);
    CHECK(counted.get_bytes_counter().value == 0);

    void* hoard = pool.Alloc(900096);
    struct Giving {
        CudaMemoryPool& pool;
        void* hoard;
        int calls;
    } giving{pool, hoard, 0};
    const auto give_up = [](std::size_t, void* what) {
        auto* all = static_cast<Giving*>(what);
        if (++all->calls > 1) return false;
        all->pool.Free(all->hoard, 900096);
        return true;
    };
    on_failure patient(given(resource), give_up, &giving);
    block = allocate(patient, 500224, stream);
    CHECK(giving.calls == 1 && pool.GetStats().current_usage == 500224);
    throws<rmm::out_of_memory>([&] { allocate(patient, 900096, stream); }, is_about_the_limit);
    deallocate(patient, block, 500224, stream);
}

int main() {
    CudaMemoryPool pool("limit:1MiB/pool");
    millpond::stream own(pool);
    const cuda::stream_ref stream(own.get());
    references(pool, stream);
    adaptors(pool, stream);
    CHECK(pool.GetStats().current_usage == 0);
    std::puts("all is well");
}
