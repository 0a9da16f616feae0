// Whichever malloc the process has: the system's, or one that is preloaded. Arguments: workload, repetitions.
#include "workloads.hpp"

namespace {

struct Malloc {
  void* allocate(size_t bytes, int) { return malloc(bytes); }
  void deallocate(void* ptr, size_t, int) { free(ptr); }
};

}  // namespace

int main(int, char** arguments) {
  Malloc malloc;
  return peers::measure(malloc, arguments[1], atoi(arguments[2]));
}
