// Millpond as a resource of RMM: what takes an RMM resource allocates from a pool. Needs RMM's headers, of any version from 24.12 on.
//
//     CudaMemoryPool pool("cuda:0");
//     millpond::rmm_resource resource(pool);
//     rmm::device_buffer buffer(bytes, stream, resource);

#ifndef MILLPOND_RMM_HPP
#define MILLPOND_RMM_HPP

#include <rmm/cuda_stream_view.hpp>

#if __has_include(<rmm/error.hpp>)
#include <rmm/error.hpp>
#else
#include <rmm/detail/error.hpp>
#endif

// RMM had a class that all resources derive from until its resources became cuda::mr's.
#if __has_include(<rmm/mr/device_memory_resource.hpp>)
#include <rmm/mr/device_memory_resource.hpp>
#define MILLPOND_RMM_HAS_BASE 1
#elif __has_include(<rmm/mr/device/device_memory_resource.hpp>)
#include <rmm/mr/device/device_memory_resource.hpp>
#define MILLPOND_RMM_HAS_BASE 1
#endif

#include <millpond_cuda_mr.hpp>

namespace millpond {
namespace detail {

// RMM's users catch RMM's exceptions, and its adaptors act on them.
template <class Allocate>
void* with_exceptions_of_rmm(Allocate&& allocate) {
    try {
        return allocate();
    } catch (const out_of_memory& out) {
        throw rmm::out_of_memory(out.what());
    } catch (const error& other) {
        throw rmm::bad_alloc(other.what());
    }
}

}  // namespace detail

#ifdef MILLPOND_RMM_HAS_BASE

// Refers to a pool, which must outlive it. On a real device, open the pool of the device that is current where this is used.
class rmm_resource final : public rmm::mr::device_memory_resource {
public:
    explicit rmm_resource(CudaMemoryPool& pool) noexcept : pool_(pool.get()) {}

private:
    void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override {
        const detail::source from{pool_, stream.value()};
        return detail::with_exceptions_of_rmm([&] { return from.allocate(bytes); });
    }
    void do_deallocate(void* block, std::size_t bytes, rmm::cuda_stream_view stream) noexcept override {
        detail::source{pool_, stream.value()}.free(block, bytes);
    }
    bool do_is_equal(const rmm::mr::device_memory_resource& other) const noexcept override {
        const auto* same = dynamic_cast<const rmm_resource*>(&other);
        return same != nullptr && same->pool_ == pool_;
    }

    millpond_pool* pool_;
};

#else

// Refers to a pool, which must outlive it and its copies. On a real device, open the pool of the device that is current where this is used.
class rmm_resource final : public cuda_resource {
public:
    using cuda_resource::cuda_resource;

    void* allocate(::cuda::stream_ref stream, std::size_t bytes, std::size_t wanted_alignment = alignment) {
        return detail::with_exceptions_of_rmm([&] { return cuda_resource::allocate(stream, bytes, wanted_alignment); });
    }
    void* allocate_sync(std::size_t bytes, std::size_t wanted_alignment = alignment) {
        return detail::with_exceptions_of_rmm([&] { return cuda_resource::allocate_sync(bytes, wanted_alignment); });
    }

    friend constexpr void get_property(const rmm_resource&, ::cuda::mr::device_accessible) noexcept {}
};

#endif

}  // namespace millpond

#endif  // MILLPOND_RMM_HPP
