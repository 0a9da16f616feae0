// Millpond through its C ABI. Arguments: workload, repetitions.
#include <millpond.h>

#include "workloads.hpp"

namespace {

void done(int answer) {
  if (answer == MILLPOND_STATUS_OK) return;
  fprintf(stderr, "%s\n", millpond_last_error());
  exit(1);
}

struct Millpond {
  millpond_pool* pool;
  void* streams[2];

  void* allocate(size_t bytes, int stream) {
    void* ptr;
    done(millpond_alloc(pool, bytes, streams[stream], &ptr));
    return ptr;
  }
  void deallocate(void* ptr, size_t bytes, int stream) { done(millpond_free(pool, ptr, bytes, streams[stream])); }
};

}  // namespace

int main(int, char** arguments) {
  Millpond millpond;
  done(millpond_pool_open("sim:a100-80g", &millpond.pool));
  for (void*& stream : millpond.streams) done(millpond_stream_create(millpond.pool, &stream));
  peers::measure(millpond, arguments[1], atoi(arguments[2]));
  done(millpond_pool_close(millpond.pool));
}
