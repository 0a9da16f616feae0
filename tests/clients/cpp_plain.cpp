// A program without exceptions and without run-time type information.

#include <millpond.hpp>

#include <cstdio>
#include <cstring>
#include <memory_resource>
#include <vector>

int main(int count, char** arguments) {
    CudaMemoryPool pool("sim:a100-80g");
    {
        millpond::buffer<float> buffer(pool, 1000);
        if (buffer.data() == nullptr || buffer.size() != 1000) return 1;
    }
    CudaMemoryPool pinned("sim:a100-80g/pinned");
    millpond::memory_resource resource(pinned), other(pinned);
    if (!resource.is_equal(resource)) return 1;
    std::pmr::vector<int> numbers({1, 2, 3}, &resource);
    numbers.resize(1000);
    if (pool.GetStats().current_usage != 0 || numbers[2] != 3) return 1;
    // A failure says why, and ends the program.
    if (count > 2 && std::strcmp(arguments[2], "fail") == 0) CudaMemoryPool("sim:nope");
    std::puts("all is well");
}
