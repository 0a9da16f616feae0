// Compiles only without TOUCHING: containers of device memory refuse whatever would have the host write there.
#include <millpond.hpp>

#include <vector>

int main() {
    CudaMemoryPool pool("sim:a100-80g");
    std::vector<float, millpond::device_allocator<float>> values(10, millpond::device_allocator<float>(pool));
#if TOUCHING == 1
    values.push_back(1.0F);
#elif TOUCHING == 2
    values.resize(20);
#elif TOUCHING == 3
    auto copy = values;
#elif TOUCHING == 4
    values.assign(10, 1.0F);
#endif
}
