// Streams, and buffers that free themselves.

#ifndef MILLPOND_BUFFER_HPP
#define MILLPOND_BUFFER_HPP

#include <millpond/pool.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>

namespace millpond {

// A stream of a pool's device, for programs that have no CUDA to make one with.
class stream {
public:
    explicit stream(CudaMemoryPool& pool) : pool_(pool.get()) {
        void* made = nullptr;
        detail::check(millpond_stream_create(pool_, &made));
        handle_ = static_cast<stream_handle>(made);
    }
    stream(const stream&) = delete;
    stream& operator=(const stream&) = delete;
    ~stream() { millpond_stream_destroy(pool_, handle_); }

    void synchronize() { detail::check(millpond_stream_synchronize(pool_, handle_)); }
    stream_handle get() const noexcept { return handle_; }
    operator stream_handle() const noexcept { return handle_; }

private:
    millpond_pool* pool_;
    stream_handle handle_ = nullptr;
};

// Memory for `size()` values of T, freed where its stream stands when the buffer ends. The values are the device's: data() is for
// kernels and copies, and is not read by the host unless the pool's HostReaches() says so.
template <class T = std::byte>
class buffer {
    static_assert(std::is_trivially_copyable_v<T>, "device memory holds plain values");
    static_assert(alignof(T) <= alignment);

public:
    buffer() noexcept = default;
    buffer(CudaMemoryPool& pool, std::size_t count, stream_handle stream = default_stream)
        : source_{pool.get(), stream}, size_(count) {
        data_ = static_cast<T*>(source_.allocate(detail::bytes_of(count, sizeof(T))));
    }
    buffer(buffer&& other) noexcept
        : source_(other.source_), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    buffer& operator=(buffer&& other) noexcept {
        buffer(std::move(other)).swap(*this);
        return *this;
    }
    ~buffer() {
        if (data_ != nullptr) source_.free(data_, size_bytes());
    }

    T* data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
    bool empty() const noexcept { return size_ == 0; }

    stream_handle stream() const noexcept { return source_.stream; }
    // Where it will be freed instead: the caller orders that stream after the work that uses it.
    void set_stream(stream_handle stream) noexcept { source_.stream = stream; }
    // It is used on this stream, too. For stacks that end in a pool.
    void record_stream(stream_handle stream) {
        if (data_ != nullptr) detail::check(millpond_record_stream(source_.pool, data_, stream));
    }

    // Frees it now, and throws if that fails.
    void reset() {
        if (data_ == nullptr) return;
        detail::check(millpond_free(source_.pool, data_, size_bytes(), source_.stream));
        release();
    }
    // Gives it away: who called frees it.
    T* release() noexcept {
        size_ = 0;
        return std::exchange(data_, nullptr);
    }
    void swap(buffer& other) noexcept {
        std::swap(source_, other.source_);
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
    }

private:
    detail::source source_;
    T* data_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace millpond

#endif  // MILLPOND_BUFFER_HPP
