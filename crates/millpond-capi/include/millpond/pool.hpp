// The pool, with its settings and statistics.

#ifndef MILLPOND_POOL_HPP
#define MILLPOND_POOL_HPP

#include <millpond.h>
#include <pthread.h>

#include <millpond/source.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

namespace millpond {

// How a pool behaves, with the defaults.
struct MemoryPoolConfig {
    std::size_t alignment = 256;                  // of every block's address: a power of two, 256 at least
    std::size_t thread_cache_max_blocks = 64;     // of one size, that a thread keeps for one stream
    std::size_t global_cache_max_blocks = 1024;   // of one size, that the global cache keeps for one stream
    std::size_t batch_alloc_count = 16;           // blocks that go to a thread cache at a time; a smaller thread cache lowers it
    double defrag_threshold = 0.3;                // share of what is reserved and not live above which caches are emptied
    std::size_t defrag_interval_ms = 5000;        // how often the background looks
    bool enable_stats = true;                     // whether the pool counts what it does
    bool enable_defrag = true;                    // whether the background looks at all
    std::size_t thread_cache_max_bytes = std::size_t{64} << 20;
    std::size_t global_cache_max_bytes = std::size_t{64} << 20;
    double slack = 0.08;                          // what may be reserved over the most that was live
    std::size_t direct_above_bytes = SIZE_MAX;    // larger blocks are the driver's own allocations
    bool strict_sizes = false;                    // whether Free takes the size that was asked for only; this object's own
};

// What a pool has done since its statistics were reset.
struct MemoryStats {
    std::size_t total_allocated = 0;      // bytes handed out, all together
    std::size_t total_freed = 0;          // bytes taken back, all together
    // The most that users held. Exact while one thread allocates and frees; with several never too low, and too high by what caches kept
    // at the time, at the most.
    std::size_t peak_usage = 0;
    std::size_t current_usage = 0;        // bytes that users hold
    std::size_t fragmentation_bytes = 0;  // bytes reserved and not held
    std::size_t allocation_count = 0;
    std::size_t free_count = 0;
    std::size_t cache_hits = 0;           // allocations that the thread's own cache served
    std::size_t cache_misses = 0;         // those that it did not, which are the next four
    std::size_t global_hits = 0;          // the global cache
    std::size_t reserve_hits = 0;         // preallocated blocks
    std::size_t reuse_hits = 0;           // slabs and free ranges with memory
    std::size_t device_allocations = 0;   // memory mapped, or taken from the driver
    std::size_t reserved_bytes = 0;       // physical bytes taken from the driver
    std::size_t page_moves = 0;
    std::size_t cross_stream_waits = 0;
    std::size_t driver_calls = 0;
    double fragmentation_rate = 0;        // what defrag_threshold is compared with; regions and captures left out
    double seconds = 0;                   // for how long this has been counted
};

// A device, and what allocates there. Any thread may call anything at any time, except that the end of a pool must be after all calls.
class CudaMemoryPool {
public:
    // The pool of the whole process, on the device that MILLPOND_DEVICE names. It is never closed; a forked child has its own.
    static CudaMemoryPool& Instance() {
        CudaMemoryPool* known = instance_.load(std::memory_order_acquire);
        return known != nullptr ? *known : OpenInstance();
    }

    // A pool of its own, or any stack: "cuda:0", "sim:a100-80g", "cuda:0/limit:4GiB/pool:slack=0.05". What is not named is as
    // MILLPOND_DEVICE and MILLPOND_CONF say.
    explicit CudaMemoryPool(const std::string& device_and_stack = "") {
        detail::check(millpond_pool_open(device_and_stack.c_str(), &handle_));
    }

    CudaMemoryPool(CudaMemoryPool&& other) noexcept
        : handle_(std::exchange(other.handle_, nullptr)),
          is_owned_(other.is_owned_),
          strict_sizes_(other.strict_sizes_.load(std::memory_order_relaxed)) {}
    CudaMemoryPool& operator=(CudaMemoryPool&& other) noexcept {
        CudaMemoryPool(std::move(other)).Swap(*this);
        return *this;
    }
    ~CudaMemoryPool() {
        if (handle_ != nullptr && is_owned_) millpond_pool_close(handle_);
    }

    // A block for work queued on the stream from now on; no bytes give null. Throws out_of_memory, or error.
    void* Alloc(std::size_t bytes, stream_handle stream = default_stream) {
        return detail::source{handle_, stream}.allocate(bytes);
    }

    // As Alloc, but null if the block cannot be had without waiting for the driver or another stream.
    void* AllocNow(std::size_t bytes, stream_handle stream = default_stream) {
        void* block = nullptr;
        const int status = millpond_alloc_now(handle_, bytes, stream, &block);
        if (status != MILLPOND_STATUS_WOULD_WAIT) detail::check(status);
        return block;
    }

    // Takes a block back once the work has run that is queued on the stream by now. Throws bad_free, and has changed nothing then. The
    // size should be the one that was asked for; with strict_sizes it must be, and else may be any that the block holds.
    void Free(void* block, std::size_t bytes, stream_handle stream = default_stream) {
        int status = millpond_free(handle_, block, bytes, stream);
        if (status == MILLPOND_STATUS_WRONG_SIZE && !strict_sizes_.load(std::memory_order_relaxed))
            status = millpond_free_within(handle_, block, bytes, stream);
        detail::check(status);
    }
    void FreeUnsized(void* block, stream_handle stream = default_stream) {
        detail::check(millpond_free_unsized(handle_, block, stream));
    }

    // The block is used on this stream, too: once freed, it waits for what that stream has been given by then.
    void RecordStream(void* block, stream_handle stream) {
        detail::check(millpond_record_stream(handle_, block, stream));
    }

    MemoryPoolConfig GetConfig() const {
        millpond_config c{};
        c.struct_bytes = sizeof c;
        detail::check(millpond_get_config(handle_, &c));
        return {c.alignment, c.thread_cache_max_blocks, c.global_cache_max_blocks, c.batch_alloc_count, c.defrag_threshold,
                static_cast<std::size_t>(c.defrag_interval_ms), c.enable_stats != 0, c.enable_defrag != 0,
                c.thread_cache_max_bytes, c.global_cache_max_bytes, c.slack, c.direct_above_bytes,
                strict_sizes_.load(std::memory_order_relaxed)};
    }

    // From now on. If a setting makes no sense, throws an error that names it, and nothing has changed.
    void SetConfig(const MemoryPoolConfig& config) {
        millpond_config c{};
        c.struct_bytes = sizeof c;
        c.alignment = config.alignment;
        c.thread_cache_max_blocks = config.thread_cache_max_blocks;
        c.thread_cache_max_bytes = config.thread_cache_max_bytes;
        c.global_cache_max_blocks = config.global_cache_max_blocks;
        c.global_cache_max_bytes = config.global_cache_max_bytes;
        c.batch_alloc_count = config.batch_alloc_count;
        c.slack = config.slack;
        c.direct_above_bytes = config.direct_above_bytes;
        c.defrag_threshold = config.defrag_threshold;
        c.defrag_interval_ms = config.defrag_interval_ms;
        c.enable_stats = config.enable_stats;
        c.enable_defrag = config.enable_defrag;
        detail::check(millpond_set_config(handle_, &c));
        strict_sizes_.store(config.strict_sizes, std::memory_order_relaxed);
    }

    MemoryStats GetStats() const {
        millpond_stats s{};
        s.struct_bytes = sizeof s;
        detail::check(millpond_get_stats(handle_, &s));
        return {s.total_allocated, s.total_freed, s.peak_usage, s.current_usage, s.fragmentation_bytes,
                s.allocation_count, s.free_count, s.cache_hits, s.cache_misses,
                s.global_hits, s.reserve_hits, s.reuse_hits, s.device_allocations,
                s.reserved_bytes, s.page_moves, s.cross_stream_waits, s.driver_calls,
                s.fragmentation_rate, s.seconds};
    }

    // Counts anew from here. What is held still is.
    void ResetStats() { detail::check(millpond_reset_stats(handle_)); }

    std::string StatsText() const {
        std::size_t needed = 0;
        std::string text;
        // Numbers may have grown longer since the size was asked.
        do {
            text.resize(needed);
            detail::check(millpond_stats_text(handle_, text.data(), text.size(), &needed));
        } while (needed > text.size());
        text.resize(needed - 1);
        return text;
    }
    void PrintStats(std::FILE* to = stdout) const { std::fprintf(to, "%s\n", StatsText().c_str()); }

    // What is held, of any stack.
    millpond_usage Usage() const {
        millpond_usage usage{};
        usage.struct_bytes = sizeof usage;
        detail::check(millpond_get_usage(handle_, &usage));
        return usage;
    }

    // Merges what caches keep, and gives back what nobody has needed for a while. Returns the bytes given back, as the next two do.
    std::size_t Defragment() { return Released(millpond_defragment); }
    // Gives everything back that nobody holds.
    std::size_t Trim() { return Released(millpond_trim); }
    // So too, preallocated blocks included, and counts anew.
    std::size_t ReleaseAll() { return Released(millpond_release_all); }
    // Empties caches. Their memory stays with the pool, where it can merge.
    void TrimCache() { detail::check(millpond_trim_cache(handle_)); }
    // Sets blocks aside, for any stream: all of them, or none.
    void Preallocate(std::size_t bytes, std::size_t count) { detail::check(millpond_preallocate(handle_, bytes, count)); }

    // Every allocation and free, in RMM's CSV format, which `millpond replay` reads.
    void StartTrace(const std::string& path) { detail::check(millpond_trace_start(handle_, path.c_str())); }
    void StopTrace() { detail::check(millpond_trace_stop(handle_)); }

    // Whether the host may read and write the blocks itself: stacks of pinned or managed memory.
    bool HostReaches() const {
        int reaches = 0;
        detail::check(millpond_host_reaches(handle_, &reaches));
        return reaches != 0;
    }

    // For functions of millpond.h.
    millpond_pool* get() const noexcept { return handle_; }

private:
    CudaMemoryPool(millpond_pool* handle, bool is_owned) noexcept : handle_(handle), is_owned_(is_owned) {}

    void Swap(CudaMemoryPool& other) noexcept {
        std::swap(handle_, other.handle_);
        std::swap(is_owned_, other.is_owned_);
        const bool strict = other.strict_sizes_.exchange(strict_sizes_.load(std::memory_order_relaxed), std::memory_order_relaxed);
        strict_sizes_.store(strict, std::memory_order_relaxed);
    }

    std::size_t Released(int (*call)(millpond_pool*, std::size_t*)) {
        std::size_t bytes = 0;
        detail::check(call(handle_, &bytes));
        return bytes;
    }

    static CudaMemoryPool& OpenInstance() {
        if (at_fork_ != 0) detail::fail(std::bad_alloc());
        millpond_pool* handle = nullptr;
        detail::check(millpond_pool_instance(&handle));
        // Stays: what runs at the end of the process may still use it.
        auto* made = new CudaMemoryPool(handle, false);
        CudaMemoryPool* known = nullptr;
        if (instance_.compare_exchange_strong(known, made)) return *made;
        delete made;
        return *known;
    }

    static inline std::atomic<CudaMemoryPool*> instance_{nullptr};
    // A forked child asks again.
    static inline const int at_fork_ =
        pthread_atfork(nullptr, nullptr, [] { instance_.store(nullptr, std::memory_order_relaxed); });

    millpond_pool* handle_ = nullptr;
    bool is_owned_ = true;
    std::atomic<bool> strict_sizes_{false};
};

}  // namespace millpond

#endif  // MILLPOND_POOL_HPP
