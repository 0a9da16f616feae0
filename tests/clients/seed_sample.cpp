// The samples of the document that CudaMemoryPool comes from, as they stand there, in its order. Between them is only what they leave out: where
// size_in_bytes, stream, block_size and count come from, and the checks. One line there is no C++, for it gives the stream's type inside a call:
// `pool.Alloc(size_in_bytes, cudaStream_t stream)`; here `stream` is a variable of that type.
#include <millpond.hpp>

#include "check.hpp"

#ifndef __DRIVER_TYPES_H__
typedef struct CUstream_st* cudaStream_t;
#endif

static void basic_interface(std::size_t size_in_bytes) {
    CudaMemoryPool& pool = CudaMemoryPool::Instance();

    void* ptr = pool.Alloc(size_in_bytes);

    CHECK(ptr != nullptr);
    CHECK(reinterpret_cast<std::size_t>(ptr) % 256 == 0);
    CHECK(pool.GetStats().current_usage >= size_in_bytes);

    pool.Free(ptr, size_in_bytes);

    CHECK(pool.GetStats().free_count == 1);

    pool.ReleaseAll();

    CHECK(pool.GetStats().allocation_count == 0);
    CHECK(pool.GetStats().reserved_bytes == 0);
}

static void with_a_stream(CudaMemoryPool& pool, std::size_t size_in_bytes, cudaStream_t stream) {
    void* ptr = pool.Alloc(size_in_bytes, stream);
    pool.Free(ptr, size_in_bytes, stream);
}

static void configuration(CudaMemoryPool& pool) {
    MemoryPoolConfig config = pool.GetConfig();

    config.thread_cache_max_blocks = 128;
    config.global_cache_max_blocks = 2048;
    config.defrag_threshold = 0.2;
    config.defrag_interval_ms = 3000;
    pool.SetConfig(config);

    CHECK(pool.GetConfig().thread_cache_max_blocks == 128);
    CHECK(pool.GetConfig().global_cache_max_blocks == 2048);
    CHECK(pool.GetConfig().defrag_threshold == 0.2);
    CHECK(pool.GetConfig().defrag_interval_ms == 3000);
}

static void statistics(CudaMemoryPool& pool) {
    MemoryStats stats = pool.GetStats();

    CHECK(stats.allocation_count == stats.free_count);

    pool.ResetStats();

    CHECK(pool.GetStats().allocation_count == 0);

    pool.PrintStats();
}

static void management(CudaMemoryPool& pool, std::size_t block_size, std::size_t count) {
    pool.Defragment();

    pool.TrimCache();

    pool.Preallocate(block_size, count);

    void* ptr = pool.Alloc(block_size);
    CHECK(pool.GetStats().reserve_hits == 1);
    pool.Free(ptr, block_size);
}

static void tuning() {
    auto& pool = CudaMemoryPool::Instance();

    // 1.
    pool.Preallocate(4096, 20);
    pool.Preallocate(16384, 10);

    // 2.
    MemoryPoolConfig config = pool.GetConfig();
    config.thread_cache_max_blocks = 128;
    config.defrag_threshold = 0.2;
    pool.SetConfig(config);

    // 3.
    pool.PrintStats();
}

int main() {
    basic_interface(1000);
    basic_interface(std::size_t{3} << 20);
    CudaMemoryPool& pool = CudaMemoryPool::Instance();
    millpond::stream stream(pool);
    with_a_stream(pool, 5000, stream);
    configuration(pool);
    statistics(pool);
    management(pool, 8192, 4);
    tuning();
    std::puts("all is well");
}
