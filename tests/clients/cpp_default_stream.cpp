// Compiled twice into one program: once for CUDA's legacy default stream, with main(), and once for the one of each thread.
#include <millpond.hpp>

#include "check.hpp"

void* allocated_per_thread(CudaMemoryPool& pool);
void freed_per_thread(CudaMemoryPool& pool, void* block);

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM

void* allocated_per_thread(CudaMemoryPool& pool) { return pool.Alloc(1000); }
void freed_per_thread(CudaMemoryPool& pool, void* block) { pool.Free(block, 1000); }

#else

int main() {
    CudaMemoryPool pool("sim:a100-80g/pool:enable_defrag=false");
    void* legacy = pool.Alloc(1000);
    void* of_thread = allocated_per_thread(pool);
    pool.Free(legacy, 1000);
    freed_per_thread(pool, of_thread);
    // Each stream has at once what was freed on it, and caches are kept apart.
    CHECK(pool.Alloc(1000) == legacy);
    CHECK(pool.GetStats().cache_hits == 1);
    CHECK(allocated_per_thread(pool) == of_thread);
    CHECK(pool.GetStats().cache_hits == 2);
    std::puts("all is well");
}

#endif
