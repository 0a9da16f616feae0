// PyTorch's caching allocator. Arguments: workload, repetitions.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include "workloads.hpp"

// What the rest of PyTorch, which is not here, tells this part of it.
namespace c10::cuda::_internal {
void setHasPrimaryContext(bool (*has)(c10::DeviceIndex));
}

namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

struct Torch {
  c10::cuda::CUDAStream streams[2];

  void* allocate(size_t bytes, int stream) { return caching::raw_alloc_with_stream(bytes, streams[stream].stream()); }
  // A block goes back to the stream that it was allocated on; another that has used it must be named.
  void deallocate(void* ptr, size_t, int stream) {
    if (handed_over && stream == 1) {
      c10::DataPtr block(ptr, ptr, caching::get()->raw_deleter(), c10::Device(c10::kCUDA, 0));
      caching::recordStream(block, streams[1]);
    } else {
      caching::raw_delete(ptr);
    }
  }
  bool handed_over;
};

}  // namespace

int main(int, char** arguments) {
  c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
  caching::init(1);
  std::string workload = arguments[1];
  auto stream = [] { return c10::cuda::getStreamFromPool(false, 0); };
  Torch torch{{stream(), stream()}, workload == "W5x"};
  return peers::measure(torch, workload, atoi(arguments[2]));
}
