// RMM's containers and adaptors on a pool, over CUDA's runtime: bytes go to the device and back. The program is the same for RMM's older versions,
// whose resources derive from a class, and newer ones, whose resources are cuda::mr's. Sizes are such that RMM does not round them.
#include <millpond_rmm.hpp>

#ifdef MILLPOND_RMM_HAS_BASE
#include <rmm/mr/device/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/device/per_device_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>
#include <rmm/mr/device/statistics_resource_adaptor.hpp>
#else
#include <rmm/mr/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#endif
#include <rmm/cuda_stream.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/device_uvector.hpp>

#include <cuda_runtime_api.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "check.hpp"

using millpond::rmm_resource;

// How each kind of version wants a resource, and what it calls those that stand on another.
#ifdef MILLPOND_RMM_HAS_BASE
static rmm_resource* given(rmm_resource& resource) { return &resource; }
using rmm_pool = rmm::mr::pool_memory_resource<rmm_resource>;
using statistics = rmm::mr::statistics_resource_adaptor<rmm_resource>;
using on_failure = rmm::mr::failure_callback_resource_adaptor<rmm_resource>;
#else
static rmm_resource given(rmm_resource& resource) { return resource; }
using rmm_pool = rmm::mr::pool_memory_resource;
using statistics = rmm::mr::statistics_resource_adaptor;
using on_failure = rmm::mr::failure_callback_resource_adaptor<>;
#endif

static void containers(CudaMemoryPool& pool) {
    rmm_resource resource(pool);
    rmm::cuda_stream stream;
    std::vector<int> numbers(100000), back(100000);
    std::iota(numbers.begin(), numbers.end(), 0);
    {
        rmm::device_buffer bytes(numbers.data(), numbers.size() * sizeof(int), stream, resource);
        CHECK(pool.GetStats().current_usage == 400000);
        rmm::device_buffer copy(bytes, stream, resource);
        copy.resize(800000, stream);
        CHECK(cudaMemcpyAsync(back.data(), copy.data(), 400000, cudaMemcpyDeviceToHost, stream.value()) == cudaSuccess);
        stream.synchronize();
        CHECK(back == numbers);

        rmm::device_uvector<int> values(1000, stream, resource);
        values.set_element_async(7, numbers[42], stream);
        CHECK(values.element(7, stream) == 42);
        const double half = 0.5;
        rmm::device_scalar<double> scalar(half, stream, resource);
        CHECK(scalar.value(stream) == half);
        CHECK(pool.GetStats().current_usage >= 400000 + 800000 + 4000 + 8);
    }
    stream.synchronize();
    CHECK(pool.GetStats().current_usage == 0);
}

static void equality(CudaMemoryPool& pool) {
    CudaMemoryPool other("cuda:0");
    rmm_resource resource(pool), same(pool), different(other);
    CHECK(resource == same && resource != different);
}

static void the_devices_resource(CudaMemoryPool& pool) {
    rmm_resource resource(pool);
    rmm::mr::set_current_device_resource(given(resource));
    {
        rmm::cuda_stream stream;
        rmm::device_buffer bytes(12288, stream);
        CHECK(pool.GetStats().current_usage == 12288);
    }
    CHECK(pool.GetStats().current_usage == 0);
#ifdef MILLPOND_RMM_HAS_BASE
    rmm::mr::set_current_device_resource(nullptr);
#else
    rmm::mr::reset_current_device_resource();
#endif
}

static void under_resources_of_rmm(CudaMemoryPool& pool) {
    rmm_resource resource(pool);
    rmm::cuda_stream stream;
    {
        statistics counted(given(resource));
        rmm::device_buffer bytes(5120, stream, counted);
        CHECK(counted.get_bytes_counter().value == 5120);
        rmm_pool cut(given(resource), std::size_t{1} << 20, std::size_t{4} << 20);
        CHECK(pool.GetStats().current_usage == (std::size_t{1} << 20) + 5120);
        rmm::device_buffer more(3072, stream, cut);
        CHECK(pool.GetStats().current_usage == (std::size_t{1} << 20) + 5120);
    }
    stream.synchronize();
    CHECK(pool.GetStats().current_usage == 0);
}

// RMM's adaptors act on RMM's exceptions: one that frees something and tries again gets what it wants.
static void out_of_memory() {
    CudaMemoryPool pool("cuda:0/limit:1MiB/pool");
    rmm_resource resource(pool);
    rmm::cuda_stream stream;
    throws<rmm::out_of_memory>([&] { rmm::device_buffer(std::size_t{2} << 20, stream, resource); },
                               [](const rmm::out_of_memory& why) { CHECK(std::strstr(why.what(), "limit") != nullptr); });
    struct Hoard {
        rmm::device_buffer bytes;
        int calls;
    } hoard{rmm::device_buffer(900000, stream, resource), 0};
    const auto give_up = [](std::size_t, void* of) {
        auto* all = static_cast<Hoard*>(of);
        all->bytes = rmm::device_buffer();
        return ++all->calls == 1;
    };
    on_failure patient(given(resource), give_up, &hoard);
    rmm::device_buffer wanted(512000, stream, patient);
    CHECK(hoard.calls == 1 && pool.GetStats().current_usage == 512000);
    throws<rmm::out_of_memory>([&] { rmm::device_buffer(900000, stream, patient); });
}

int main() {
    CudaMemoryPool pool("cuda:0");
    containers(pool);
    equality(pool);
    the_devices_resource(pool);
    under_resources_of_rmm(pool);
    out_of_memory();
    std::puts("all is well");
}
