// Allocators for containers, and a std::pmr::memory_resource.

#ifndef MILLPOND_ALLOCATOR_HPP
#define MILLPOND_ALLOCATOR_HPP

#include <millpond/pool.hpp>

#include <cstddef>
#include <type_traits>

#if __has_include(<memory_resource>)
#include <memory_resource>
#endif

namespace millpond {

namespace detail {

// What both allocators for containers have. Two are equal if one may free, at the same points of the same stream, what the other allocated.
template <class T>
class container_allocator {
    static_assert(alignof(T) <= alignment);

public:
    using value_type = T;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;
    using is_always_equal = std::false_type;

    explicit container_allocator(source from) noexcept : source_(from) {}

    T* allocate(std::size_t count) { return static_cast<T*>(source_.allocate(bytes_of(count, sizeof(T)))); }
    void deallocate(T* block, std::size_t count) noexcept { source_.free(block, count * sizeof(T)); }
    const source& from() const noexcept { return source_; }

private:
    source source_;
};

template <class T, class U>
bool operator==(const container_allocator<T>& one, const container_allocator<U>& other) noexcept {
    return one.from() == other.from();
}
template <class T, class U>
bool operator!=(const container_allocator<T>& one, const container_allocator<U>& other) noexcept {
    return !(one == other);
}

inline void check_host_reaches(const CudaMemoryPool& pool) {
    if (!pool.HostReaches())
        fail(error(MILLPOND_STATUS_NOT_SUPPORTED,
                   "the host cannot touch this pool's memory: open a stack of it, such as 'bestfit:upstream=pinned'"));
}

}  // namespace detail

// For containers as owners of device memory: std::vector<float, device_allocator<float>> v(n) allocates and touches nothing, and v.data()
// is for kernels. What would have the host write to the memory (push_back, resize, copies, a value to fill with) does not compile; v[i] does, and is wrong.
template <class T>
class device_allocator : public detail::container_allocator<T> {
    static_assert(std::is_trivially_copyable_v<T>, "device memory holds plain values");

public:
    device_allocator() : device_allocator(CudaMemoryPool::Instance()) {}
    explicit device_allocator(CudaMemoryPool& pool, stream_handle stream = default_stream) noexcept
        : detail::container_allocator<T>(detail::source{pool.get(), stream}) {}
    template <class U>
    device_allocator(const device_allocator<U>& other) noexcept : detail::container_allocator<T>(other.from()) {}

    template <class U, class... Values>
    void construct(U*, Values&&...) noexcept {
        static_assert(sizeof...(Values) == 0, "the host cannot write device memory: copy to data() with the device's means");
    }
    template <class U>
    void destroy(U*) noexcept {}
};

// For containers of memory that host and device reach: stacks of pinned or managed memory, any other is refused.
template <class T>
class host_allocator : public detail::container_allocator<T> {
public:
    explicit host_allocator(CudaMemoryPool& pool, stream_handle stream = default_stream)
        : detail::container_allocator<T>(detail::source{pool.get(), stream}) {
        detail::check_host_reaches(pool);
    }
    template <class U>
    host_allocator(const host_allocator<U>& other) noexcept : detail::container_allocator<T>(other.from()) {}
};

#ifdef __cpp_lib_memory_resource
// Who will touch what a memory_resource gives.
enum class touched_by { host, device_only };

// For std::pmr's containers, of memory that the host reaches. With touched_by::device_only any pool will do: for code that takes blocks from a
// memory_resource and leaves them to the device, which containers do not.
class memory_resource : public std::pmr::memory_resource {
public:
    explicit memory_resource(CudaMemoryPool& pool, stream_handle stream = default_stream,
                             touched_by who = touched_by::host)
        : source_{pool.get(), stream} {
        if (who == touched_by::host) detail::check_host_reaches(pool);
    }

private:
    void* do_allocate(std::size_t bytes, std::size_t wanted_alignment) override {
        detail::check_alignment(wanted_alignment);
        return source_.allocate(bytes);
    }
    void do_deallocate(void* block, std::size_t bytes, std::size_t) override { source_.free(block, bytes); }
    bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
#ifdef __cpp_rtti
        const auto* same = dynamic_cast<const memory_resource*>(&other);
        return same != nullptr && same->source_ == source_;
#else
        // Of which kind the other one is cannot be asked.
        return this == &other;
#endif
    }

    detail::source source_;
};
#endif

}  // namespace millpond

#endif  // MILLPOND_ALLOCATOR_HPP
