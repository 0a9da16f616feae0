// Millpond as a resource of libcu++'s cuda::mr, under the names of all its versions: `async_resource` until CCCL 3.0, `resource` from 3.1 on.
// Needs <cuda/memory_resource>; before CCCL 3.2 that wants LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE defined.

#ifndef MILLPOND_CUDA_MR_HPP
#define MILLPOND_CUDA_MR_HPP

#include <cuda/memory_resource>
#include <cuda/stream_ref>

#include <millpond.hpp>

namespace millpond {

// Refers to a pool, which must outlive it and its copies.
class cuda_resource {
public:
    explicit cuda_resource(CudaMemoryPool& pool) noexcept : pool_(pool.get()) {}

    void* allocate(::cuda::stream_ref stream, std::size_t bytes, std::size_t wanted_alignment = alignment) {
        detail::check_alignment(wanted_alignment);
        return on(stream.get()).allocate(bytes);
    }
    void deallocate(::cuda::stream_ref stream, void* block, std::size_t bytes, std::size_t = alignment) noexcept {
        on(stream.get()).free(block, bytes);
    }

    // For any stream at once, which costs a wait for the default stream: only what is queued there may still use the memory.
    void* allocate_sync(std::size_t bytes, std::size_t wanted_alignment = alignment) {
        detail::check_alignment(wanted_alignment);
        void* block = on(default_stream).allocate(bytes);
        const int status = millpond_stream_synchronize(pool_, default_stream);
        if (status == MILLPOND_STATUS_OK) return block;
        on(default_stream).free(block, bytes);
        detail::raise(status);
    }
    // When nothing uses the block any longer.
    void deallocate_sync(void* block, std::size_t bytes, std::size_t = alignment) noexcept {
        on(default_stream).free(block, bytes);
    }

    // The same, as they were called before.
    void* allocate_async(std::size_t bytes, std::size_t wanted_alignment, ::cuda::stream_ref stream) {
        return allocate(stream, bytes, wanted_alignment);
    }
    void* allocate_async(std::size_t bytes, ::cuda::stream_ref stream) { return allocate(stream, bytes); }
    void deallocate_async(void* block, std::size_t bytes, std::size_t, ::cuda::stream_ref stream) noexcept {
        deallocate(stream, block, bytes);
    }
    void deallocate_async(void* block, std::size_t bytes, ::cuda::stream_ref stream) noexcept {
        deallocate(stream, block, bytes);
    }
    void* allocate(std::size_t bytes, std::size_t wanted_alignment = alignment) {
        return allocate_sync(bytes, wanted_alignment);
    }
    void deallocate(void* block, std::size_t bytes, std::size_t = alignment) noexcept { deallocate_sync(block, bytes); }

    friend bool operator==(const cuda_resource& one, const cuda_resource& other) noexcept {
        return one.pool_ == other.pool_;
    }
    friend bool operator!=(const cuda_resource& one, const cuda_resource& other) noexcept { return !(one == other); }
    friend constexpr void get_property(const cuda_resource&, ::cuda::mr::device_accessible) noexcept {}

private:
    detail::source on(stream_handle stream) const noexcept { return {pool_, stream}; }

    millpond_pool* pool_;
};

// The same for stacks of pinned or managed memory, which the host reaches, too. Any other is refused.
class host_cuda_resource : public cuda_resource {
public:
    explicit host_cuda_resource(CudaMemoryPool& pool) : cuda_resource(pool) { detail::check_host_reaches(pool); }

    friend constexpr void get_property(const host_cuda_resource&, ::cuda::mr::device_accessible) noexcept {}
    friend constexpr void get_property(const host_cuda_resource&, ::cuda::mr::host_accessible) noexcept {}
};

}  // namespace millpond

#endif  // MILLPOND_CUDA_MR_HPP
