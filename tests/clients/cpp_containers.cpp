// Containers: of memory that the host reaches, and as owners of memory that it does not.
#include <millpond.hpp>

#include <algorithm>
#include <cstdint>
#include <list>
#include <map>
#include <memory_resource>
#include <numeric>
#include <string>
#include <vector>

#include "check.hpp"

// Blocks of driver's memory, each its own, and blocks cut from large ones of it.
static const char* const REACHED[] = {"pinned", "managed", "bestfit:upstream=pinned", "limit:1GiB/bfc:upstream=managed"};
static const char* const NOT_REACHED[] = {"pool", "direct", "async", "limit:1GiB/bestfit"};

static std::string on_device(const char* stack) { return std::string("sim:a100-80g/") + stack; }

static void standard_containers(CudaMemoryPool& pool) {
    {
        const millpond::host_allocator<int> from(pool);
        std::vector<int, millpond::host_allocator<int>> numbers(from);
        for (int number = 0; number < 10000; ++number) numbers.push_back(number);
        CHECK(std::accumulate(numbers.begin(), numbers.end(), 0) == 49995000);
        CHECK(pool.Usage().live_bytes >= 40000);
        auto copy = numbers;
        auto moved = std::move(copy);
        CHECK(moved == numbers && moved.get_allocator() == from);

        std::list<std::string, millpond::host_allocator<std::string>> words(from);
        for (int number = 0; number < 100; ++number) words.push_back(std::string(50, 'a') + std::to_string(number));
        CHECK(words.back() == std::string(50, 'a') + "99");

        using Pair = std::pair<const int, double>;
        std::map<int, double, std::less<>, millpond::host_allocator<Pair>> halves(from);
        for (int number = 0; number < 100; ++number) halves[number] = number / 2.0;
        CHECK(halves.at(99) == 49.5);
    }
    CHECK(pool.Usage().live_bytes == 0);
}

static void pmr_containers(CudaMemoryPool& pool) {
    {
        millpond::memory_resource resource(pool), same(pool);
        CHECK(resource == same && resource != *std::pmr::new_delete_resource());
        std::pmr::vector<std::pmr::string> words(&resource);
        for (int number = 0; number < 100; ++number) words.emplace_back(std::string(100, 'x') + std::to_string(number));
        CHECK(words[42] == std::pmr::string(std::string(100, 'x') + "42"));
        CHECK(pool.Usage().live_blocks >= 101);
        std::pmr::monotonic_buffer_resource monotonic(&resource);
        std::pmr::vector<std::uint64_t> numbers(1000, 7, &monotonic);
        CHECK(std::count(numbers.begin(), numbers.end(), 7) == 1000);
        throws<millpond::error>([&] { (void)resource.allocate(100, 512); });
        void* aligned = resource.allocate(100, 256);
        CHECK(reinterpret_cast<std::uintptr_t>(aligned) % 256 == 0);
        resource.deallocate(aligned, 100, 256);
    }
    CHECK(pool.Usage().live_bytes == 0);
}

// The addresses are the device's, where no host memory can be: had the vector touched them, the program had ended.
static void owners_of_device_memory(CudaMemoryPool& pool) {
    using Floats = std::vector<float, millpond::device_allocator<float>>;
    millpond::stream stream(pool);
    {
        Floats values(std::size_t{1} << 20, millpond::device_allocator<float>(pool, stream));
        CHECK(pool.Usage().live_bytes == std::size_t{4} << 20);
        CHECK(reinterpret_cast<std::uintptr_t>(values.data()) >= std::uintptr_t{1} << 47);
        const float* address = values.data();
        Floats moved = std::move(values);
        CHECK(moved.data() == address && moved.size() == std::size_t{1} << 20);
        Floats swapped(10, millpond::device_allocator<float>(pool));
        swapped.swap(moved);
        CHECK(swapped.data() == address && moved.size() == 10);
        CHECK(swapped.get_allocator() != moved.get_allocator());
        moved = std::move(swapped);
        CHECK(moved.data() == address);
        // Smaller is just a number.
        moved.clear();
    }
    CHECK(pool.Usage().live_bytes == 0);
    throws<std::bad_alloc>([&] { Floats(std::size_t{1} << 40, millpond::device_allocator<float>(pool)); });
    const std::size_t before = CudaMemoryPool::Instance().Usage().live_bytes;
    {
        Floats of_the_process(1000);
        CHECK(CudaMemoryPool::Instance().Usage().live_bytes == before + 4000);
    }
    CHECK(CudaMemoryPool::Instance().Usage().live_bytes == before);
}

static void the_host_is_kept_from_device_memory(CudaMemoryPool& pool) {
    const auto is_about_that = [](const millpond::error& why) {
        CHECK(why.status() == MILLPOND_STATUS_NOT_SUPPORTED);
        CHECK(std::string(why.what()).find("upstream=pinned") != std::string::npos);
    };
    throws<millpond::error>([&] { millpond::host_allocator<int> allocator(pool); }, is_about_that);
    throws<millpond::error>([&] { millpond::memory_resource resource(pool); }, is_about_that);
    millpond::memory_resource resource(pool, millpond::default_stream, millpond::touched_by::device_only);
    void* block = resource.allocate(1000);
    CHECK(pool.Usage().live_bytes == 1000);
    resource.deallocate(block, 1000);
    CHECK(pool.Usage().live_bytes == 0);
}

int main() {
    for (const char* stack : REACHED) {
        CudaMemoryPool pool(on_device(stack));
        CHECK(pool.HostReaches());
        standard_containers(pool);
        pmr_containers(pool);
    }
    for (const char* stack : NOT_REACHED) {
        CudaMemoryPool pool(on_device(stack));
        CHECK(!pool.HostReaches());
        owners_of_device_memory(pool);
        the_host_is_kept_from_device_memory(pool);
    }
    std::puts("all is well");
}
