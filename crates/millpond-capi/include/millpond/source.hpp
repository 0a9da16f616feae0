// Where blocks come from, for all that holds some.

#ifndef MILLPOND_SOURCE_HPP
#define MILLPOND_SOURCE_HPP

#include <millpond.h>

#include <millpond/error.hpp>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <new>

// What CUDA's cudaStream_t and CUstream point to: they fit without a header of CUDA's.
struct CUstream_st;

namespace millpond {

using stream_handle = ::CUstream_st*;

// The stream of calls that name none: CUDA's default stream, as this file is compiled for. The one of each thread is known as 2.
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
static const stream_handle default_stream = reinterpret_cast<stream_handle>(0x2);
#else
static constexpr stream_handle default_stream = nullptr;
#endif

// What every block is aligned to.
inline constexpr std::size_t alignment = 256;

namespace detail {

inline void print_free_failure(const char* why) noexcept {
    std::fprintf(stderr, "millpond: a block was not freed: %s\n", why);
}

inline std::atomic<void (*)(const char*)> on_free_failure{print_free_failure};

// Of so many things.
inline std::size_t bytes_of(std::size_t count, std::size_t size) {
    if (count > std::numeric_limits<std::size_t>::max() / size) fail(std::bad_array_new_length());
    return count * size;
}

// Where blocks come from and go back to: a pool, at the points of a stream.
struct source {
    millpond_pool* pool = nullptr;
    stream_handle stream = nullptr;

    void* allocate(std::size_t bytes) const {
        void* block = nullptr;
        check(millpond_alloc(pool, bytes, stream, &block));
        return block;
    }

    // For destructors, which cannot throw.
    void free(void* block, std::size_t bytes) const noexcept {
        if (millpond_free(pool, block, bytes, stream) != MILLPOND_STATUS_OK)
            on_free_failure.load(std::memory_order_relaxed)(millpond_last_error());
    }

    bool operator==(const source& other) const noexcept {
        return pool == other.pool && stream == other.stream;
    }
};

inline void check_alignment(std::size_t wanted) {
    if (wanted > alignment) fail(error(MILLPOND_STATUS_INVALID_ARGUMENT, "blocks are aligned to 256 bytes: ask for no more"));
}

}  // namespace detail

// What is told of a block that a destructor or a container could not free: its pool was closed before, or it was freed already. Until
// then it is printed to standard error. Returns what was set before.
using free_failure_handler = void (*)(const char* why);
inline free_failure_handler set_free_failure_handler(free_failure_handler handler) noexcept {
    return detail::on_free_failure.exchange(handler == nullptr ? detail::print_free_failure : handler);
}

}  // namespace millpond

#endif  // MILLPOND_SOURCE_HPP
