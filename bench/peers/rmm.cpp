// RMM's resources. Arguments: workload, repetitions, resource.
#include <rmm/mr/device/arena_memory_resource.hpp>
#include <rmm/mr/device/binning_memory_resource.hpp>
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>

#include <memory>

#include "workloads.hpp"

namespace {

using Device = rmm::mr::cuda_memory_resource;
using Pool = rmm::mr::pool_memory_resource<Device>;

struct Rmm {
  rmm::mr::device_memory_resource* resource;
  rmm::cuda_stream_view streams[2];

  void* allocate(size_t bytes, int stream) { return resource->allocate(bytes, streams[stream]); }
  void deallocate(void* ptr, size_t bytes, int stream) { resource->deallocate(ptr, bytes, streams[stream]); }
};

}  // namespace

int main(int, char** arguments) {
  constexpr size_t GIB = size_t(1) << 30;
  Device device;
  Pool pool(&device, 8 * GIB, 16 * GIB);
  std::unique_ptr<rmm::mr::device_memory_resource> other;
  rmm::mr::device_memory_resource* resource = &pool;
  std::string name = arguments[3];
  if (name == "arena") other = std::make_unique<rmm::mr::arena_memory_resource<Device>>(&device, 8 * GIB);
  // A bin for every power of two from 256 B to 1 MiB; larger blocks are the pool's.
  if (name == "binning") other = std::make_unique<rmm::mr::binning_memory_resource<Pool>>(&pool, 8, 20);
  if (other) resource = other.get();
  cudaStream_t streams[2];
  for (cudaStream_t& stream : streams) cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  Rmm rmm{resource, {streams[0], streams[1]}};
  return peers::measure(rmm, arguments[1], atoi(arguments[2]));
}
