// Everything of millpond.hpp but what is for containers. Is given a directory to write in.
#include <millpond.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "check.hpp"

static const char* const DEVICE = "sim:v100-16g";
// The background does what it does when it likes.
static const char* const QUIET = "sim:v100-16g/pool:enable_defrag=false";

static_assert(std::is_copy_constructible_v<MemoryStats> && std::is_copy_assignable_v<MemoryStats>);
static_assert(std::is_same_v<decltype(MemoryPoolConfig::defrag_threshold), double>);
static_assert(std::is_base_of_v<std::bad_alloc, millpond::out_of_memory>);
static_assert(!std::is_copy_constructible_v<CudaMemoryPool> && std::is_nothrow_move_constructible_v<CudaMemoryPool>);
static_assert(!std::is_copy_constructible_v<millpond::buffer<>> && std::is_nothrow_move_assignable_v<millpond::buffer<>>);

static bool operator==(const MemoryPoolConfig& a, const MemoryPoolConfig& b) {
    return a.alignment == b.alignment && a.thread_cache_max_blocks == b.thread_cache_max_blocks &&
           a.global_cache_max_blocks == b.global_cache_max_blocks && a.batch_alloc_count == b.batch_alloc_count &&
           a.defrag_threshold == b.defrag_threshold && a.defrag_interval_ms == b.defrag_interval_ms &&
           a.enable_stats == b.enable_stats && a.enable_defrag == b.enable_defrag &&
           a.thread_cache_max_bytes == b.thread_cache_max_bytes && a.global_cache_max_bytes == b.global_cache_max_bytes &&
           a.slack == b.slack && a.direct_above_bytes == b.direct_above_bytes && a.strict_sizes == b.strict_sizes;
}

// Each field goes there and back by its own name, none in another's place.
static void settings() {
    CudaMemoryPool pool(DEVICE);
    CHECK(pool.GetConfig() == MemoryPoolConfig{});
    MemoryPoolConfig changed;
    changed.alignment = 512;
    changed.thread_cache_max_blocks = 11;
    changed.global_cache_max_blocks = 12;
    changed.batch_alloc_count = 5;
    changed.defrag_threshold = 0.25;
    changed.defrag_interval_ms = 15;
    changed.enable_stats = false;
    changed.enable_defrag = true;
    changed.thread_cache_max_bytes = 16 << 20;
    changed.global_cache_max_bytes = 17 << 20;
    changed.slack = 0.5;
    changed.direct_above_bytes = 18 << 20;
    changed.strict_sizes = true;
    pool.SetConfig(changed);
    CHECK(pool.GetConfig() == changed);
    changed.enable_stats = true;
    changed.enable_defrag = false;
    pool.SetConfig(changed);
    CHECK(pool.GetConfig() == changed);

    MemoryPoolConfig wrong = changed;
    wrong.slack = 0.75;
    wrong.alignment = 300;
    throws<millpond::error>([&] { pool.SetConfig(wrong); }, [](const millpond::error& why) {
        CHECK(why.status() == MILLPOND_STATUS_INVALID_ARGUMENT);
        CHECK(std::strstr(why.what(), "alignment = 300") != nullptr);
    });
    CHECK(pool.GetConfig() == changed);
}

static void statistics() {
    CudaMemoryPool pool(QUIET);
    void* one = pool.Alloc(1000);
    void* other = pool.Alloc(3000);
    pool.Free(one, 1000);
    void* again = pool.Alloc(1000);
    MemoryStats stats = pool.GetStats();
    CHECK(stats.total_allocated == 5000);
    CHECK(stats.total_freed == 1000);
    CHECK(stats.current_usage == 4000);
    CHECK(stats.peak_usage == 4000);
    CHECK(stats.allocation_count == 3);
    CHECK(stats.free_count == 1);
    CHECK(stats.cache_hits + stats.cache_misses == 3);
    CHECK(stats.cache_hits == 1);
    CHECK(stats.cache_misses == stats.global_hits + stats.reserve_hits + stats.reuse_hits + stats.device_allocations);
    CHECK(stats.reserved_bytes > 0 && stats.fragmentation_bytes == stats.reserved_bytes - 4000);
    CHECK(stats.driver_calls > 0);
    CHECK(stats.page_moves == 0 && stats.cross_stream_waits == 0);
    const millpond_usage usage = pool.Usage();
    CHECK(usage.live_bytes == 4000 && usage.live_blocks == 2 && usage.reserved_bytes == stats.reserved_bytes);
    CHECK(pool.StatsText().find("allocations") != std::string::npos);
    pool.FreeUnsized(other);
    pool.Free(again, 1000);
    CHECK(pool.Trim() == stats.reserved_bytes);
    CHECK(pool.GetStats().reserved_bytes == 0);
    pool.ResetStats();
    CHECK(pool.GetStats().allocation_count == 0);
    // A copy is a value of its own.
    CHECK(stats.allocation_count == 3);
}

static void failures() {
    CudaMemoryPool pool(std::string(DEVICE) + "/limit:1MiB/pool");
    throws<std::bad_alloc>([&] { pool.Alloc(2 << 20); }, [](const std::bad_alloc& why) {
        CHECK(std::strstr(why.what(), "limit") != nullptr);
        const auto* ours = dynamic_cast<const millpond::out_of_memory*>(&why);
        CHECK(ours != nullptr);
        const millpond::out_of_memory copy = *ours;
        CHECK(std::strcmp(copy.what(), why.what()) == 0);
    });
    CHECK(pool.Alloc(0) == nullptr);
    pool.Free(nullptr, 0);
    void* block = pool.Alloc(1000);
    const auto is = [](millpond_status status) {
        return [status](const millpond::bad_free& why) { CHECK(why.status() == status && *why.what() != 0); };
    };
    throws<millpond::bad_free>([&] { pool.Free(block, 1025); }, is(MILLPOND_STATUS_WRONG_SIZE));
    // Any size that the block holds will do, unless told otherwise.
    for (std::size_t held : {std::size_t{0}, std::size_t{999}, std::size_t{1024}}) {
        pool.Free(block, held);
        throws<millpond::bad_free>([&] { pool.Free(block, held); }, is(MILLPOND_STATUS_ALREADY_FREE));
        block = pool.Alloc(1000);
    }
    MemoryPoolConfig strict = pool.GetConfig();
    strict.strict_sizes = true;
    pool.SetConfig(strict);
    throws<millpond::bad_free>([&] { pool.Free(block, 999); }, is(MILLPOND_STATUS_WRONG_SIZE));
    throws<millpond::bad_free>([&] { pool.Free(static_cast<char*>(block) + 256, 744); }, is(MILLPOND_STATUS_INTERIOR));
    throws<millpond::bad_free>([&] { pool.Free(&pool, 1000); }, is(MILLPOND_STATUS_FOREIGN));
    pool.Free(block, 1000);
    throws<millpond::bad_free>([&] { pool.Free(block, 1000); }, is(MILLPOND_STATUS_ALREADY_FREE));
    throws<millpond::error>([&] { CudaMemoryPool("sim:a100-80g/pol"); }, [](const millpond::error& why) {
        CHECK(std::strstr(why.what(), "did you mean 'pool'?") != nullptr);
    });
    CudaMemoryPool direct(std::string(DEVICE) + "/direct");
    throws<millpond::error>([&] { direct.GetStats(); }, [](const millpond::error& why) {
        CHECK(why.status() == MILLPOND_STATUS_NOT_SUPPORTED);
    });
}

static void without_waiting() {
    CudaMemoryPool pool(QUIET);
    // Nothing has been taken from the driver yet, and taking it would be a wait.
    CHECK(pool.AllocNow(1000) == nullptr);
    pool.Free(pool.Alloc(1000), 1000);
    void* block = pool.AllocNow(1000);
    CHECK(block != nullptr);
    pool.Free(block, 1000);
}

static void moving_pools() {
    CudaMemoryPool one(DEVICE), other(DEVICE);
    CHECK(one.get() != other.get());
    void* block = one.Alloc(512);
    throws<millpond::bad_free>([&] { other.Free(block, 512); });
    CudaMemoryPool moved(std::move(one));
    moved.Free(block, 512);
    const millpond_pool* handle = moved.get();
    other = std::move(moved);
    CHECK(other.get() == handle);
    other.Free(other.Alloc(512), 512);
}

static int failures_told = 0;

static void buffers() {
    CudaMemoryPool pool(QUIET);
    millpond::stream first(pool), second(pool);
    const void* address = nullptr;
    {
        millpond::buffer<float> floats(pool, 1000, first);
        address = floats.data();
        CHECK(floats.size() == 1000 && floats.size_bytes() == 4000 && !floats.empty() && floats.stream() == first.get());
        CHECK(pool.GetStats().current_usage == 4000);
        millpond::buffer<float> moved(std::move(floats));
        CHECK(floats.empty() && floats.data() == nullptr && moved.data() == address);
        millpond::buffer<float> assigned(pool, 10, second);
        assigned = std::move(moved);
        CHECK(assigned.data() == address && pool.GetStats().current_usage == 4000);
        assigned.record_stream(second);
    }
    CHECK(pool.GetStats().current_usage == 0);
    // Freed where its stream stood, so that the same stream has it at once.
    {
        millpond::buffer<float> again(pool, 1000, first);
        const void* once = again.data();
        again.reset();
        CHECK(again.empty());
        again = millpond::buffer<float>(pool, 1000, first);
        CHECK(again.data() == once);
        again.set_stream(second);
        float* given_away = again.release();
        pool.Free(given_away, 4000, second);
    }
    CHECK(pool.GetStats().current_usage == 0);
    millpond::buffer<> none(pool, 0);
    CHECK(none.data() == nullptr && none.empty());
    throws<std::bad_array_new_length>([&] { millpond::buffer<double>(pool, SIZE_MAX / 4); });
    throws<millpond::out_of_memory>([&] { millpond::buffer<double>(pool, std::size_t{1} << 40); });
    first.synchronize();

    // What outlives its pool is told, and not followed.
    millpond::set_free_failure_handler([](const char* why) {
        failures_told += std::strstr(why, "closed") != nullptr;
    });
    {
        millpond::buffer<> late;
        {
            CudaMemoryPool brief(DEVICE);
            late = millpond::buffer<>(brief, 100);
        }
        throws<millpond::error>([&] { late.reset(); });
    }
    CHECK(failures_told == 1);
    millpond::set_free_failure_handler(nullptr);
}

static void many_threads() {
    CudaMemoryPool pool(DEVICE);
    std::vector<std::thread> threads;
    for (std::size_t number = 0; number < 4; ++number) {
        threads.emplace_back([&pool, number] {
            millpond::stream stream(pool);
            std::vector<millpond::buffer<>> held;
            for (std::size_t round = 0; round < 2000; ++round) {
                held.emplace_back(pool, 1 + (round * 37 + number * 101) % 5000, stream);
                if (held.size() > 50) held.erase(held.begin(), held.begin() + 25);
            }
            held.clear();
            stream.synchronize();
        });
    }
    for (std::thread& thread : threads) thread.join();
    const MemoryStats stats = pool.GetStats();
    CHECK(stats.allocation_count == 8000 && stats.free_count == 8000 && stats.current_usage == 0);
}

static void traces(const std::string& directory) {
    CudaMemoryPool pool(DEVICE);
    const std::string path = directory + "/trace.csv";
    pool.StartTrace(path);
    pool.Free(pool.Alloc(777), 777);
    pool.StopTrace();
    std::FILE* file = std::fopen(path.c_str(), "r");
    CHECK(file != nullptr);
    char line[256];
    int events = 0;
    while (std::fgets(line, sizeof line, file) != nullptr) events += std::strstr(line, ",777,") != nullptr;
    std::fclose(file);
    CHECK(events == 2);
}

static void the_process_wide_one() {
    setenv("MILLPOND_DEVICE", "sim:p100-16g", 1);
    CudaMemoryPool& pool = CudaMemoryPool::Instance();
    CHECK(&pool == &CudaMemoryPool::Instance());
    std::thread([&pool] { CHECK(&pool == &CudaMemoryPool::Instance()); }).join();
    void* block = pool.Alloc(100);
    // It has 16 GiB.
    throws<millpond::out_of_memory>([&] { pool.Alloc(std::size_t{20} << 30); });
    const pid_t child = fork();
    if (child == 0) {
        // The parent's is of no use here, and does no harm.
        bool refused = false;
        try {
            pool.Alloc(100);
        } catch (const millpond::error& why) {
            refused = why.status() == MILLPOND_STATUS_FORKED;
        }
        CudaMemoryPool& own = CudaMemoryPool::Instance();
        own.Free(own.Alloc(100), 100);
        _exit(refused && &own != &pool && own.GetStats().allocation_count == 1 ? 0 : 1);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(&pool == &CudaMemoryPool::Instance());
    pool.Free(block, 100);
}

int main(int count, char** arguments) {
    CHECK(count == 2);
    settings();
    statistics();
    failures();
    without_waiting();
    moving_pools();
    buffers();
    many_threads();
    traces(arguments[1]);
    the_process_wide_one();
    std::puts("all is well");
}
