// A program whose host memory runs out: calls that need some are refused, nothing ends, and all goes on once there is memory again.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "millpond.h"

#define CHECK(what)                                                        \
  do {                                                                     \
    if (!(what)) {                                                         \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #what, millpond_last_error()); \
      exit(1);                                                             \
    }                                                                      \
  } while (0)

enum { MOST = 2000000 };

static void *blocks[MOST];
static void *hoard[1 << 16];

static size_t address_space_bytes(void) {
  unsigned long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  CHECK(file && fscanf(file, "%lu", &pages) == 1);
  fclose(file);
  return pages * 4096;
}

// Takes all that malloc has, down to the smallest stretches; returns how many there were.
static size_t take_all_of_malloc(void) {
  size_t taken = 0;
  for (size_t bytes = 1 << 20; bytes >= 16; bytes /= 2) {
    while (taken < sizeof hoard / sizeof *hoard && (hoard[taken] = malloc(bytes))) taken++;
  }
  return taken;
}

// The C library ends a process in which a thread begins without memory. So the pool's thread is there before any of this begins: it
// gives back what nobody needs.
static void await_background(millpond_pool *pool) {
  CHECK(millpond_alloc(pool, 1 << 20, NULL, &blocks[0]) == 0);
  CHECK(millpond_free(pool, blocks[0], 1 << 20, NULL) == 0);
  millpond_usage usage = {.struct_bytes = sizeof usage};
  for (int tries = 0; tries < 20000; tries++) {
    CHECK(millpond_get_usage(pool, &usage) == 0);
    if (usage.reserved_bytes == 0) break;
    usleep(1000);
  }
  CHECK(usage.reserved_bytes == 0);
  CHECK(millpond_configure(pool, "enable_defrag:false,defrag_interval_ms:3600000") == 0);
}

// Blocks of one size until the host has no memory, and again when it has some; returns how many there were.
static size_t run_out(millpond_pool *pool, size_t bytes, size_t left_bytes) {
  CHECK(millpond_alloc(pool, bytes, NULL, &blocks[0]) == 0);
  struct rlimit before, limited;
  CHECK(getrlimit(RLIMIT_AS, &before) == 0);
  limited = before;
  limited.rlim_cur = address_space_bytes() + (4 << 20);
  CHECK(setrlimit(RLIMIT_AS, &limited) == 0);
  void *left = malloc(left_bytes);
  size_t hoarded = take_all_of_malloc();
  CHECK(left && hoarded > 0 && !malloc(1 << 16));
  free(left);

  size_t live = 1;
  int answer = 0;
  while (live < MOST && (answer = millpond_alloc(pool, bytes, NULL, &blocks[live])) == 0) live++;
  CHECK(answer == MILLPOND_STATUS_HOST_OUT_OF_MEMORY);
  CHECK(strstr(millpond_last_error(), "host has no memory left"));
  // Others are refused as well, and what gives memory back is not.
  millpond_pool *another;
  CHECK(millpond_pool_open("sim:a100-80g", &another) == MILLPOND_STATUS_HOST_OUT_OF_MEMORY);
  CHECK(millpond_preallocate(pool, 1 << 20, 100) == MILLPOND_STATUS_HOST_OUT_OF_MEMORY);
  for (size_t block = 0; block < live; block++) CHECK(millpond_free(pool, blocks[block], bytes, NULL) == 0);
  CHECK(millpond_free(pool, blocks[0], bytes, NULL) == MILLPOND_STATUS_ALREADY_FREE);
  CHECK(millpond_trim(pool, NULL) == 0);

  CHECK(setrlimit(RLIMIT_AS, &before) == 0);
  while (hoarded > 0) free(hoard[--hoarded]);
  for (size_t block = 0; block < 2 * live; block++) CHECK(millpond_alloc(pool, bytes, NULL, &blocks[block]) == 0);
  for (size_t block = 0; block < 2 * live; block++) CHECK(millpond_free(pool, blocks[block], bytes, NULL) == 0);
  CHECK(millpond_pool_open("sim:a100-80g/pool:enable_defrag=false", &another) == 0);
  CHECK(millpond_pool_close(another) == 0);
  return live;
}

int main(void) {
  // Nothing here may need memory later.
  static char out[1 << 12], error[1 << 12];
  setvbuf(stdout, out, _IOFBF, sizeof out);
  setvbuf(stderr, error, _IOLBF, sizeof error);

  millpond_pool *pool;
  CHECK(millpond_pool_open("sim:a100-80g/pool:defrag_interval_ms=1", &pool) == 0);
  await_background(pool);
  static const size_t sizes[] = {500, 5000, 40000, 700000, 3 << 20};
  for (size_t left_bytes = 100; left_bytes <= 1 << 20; left_bytes *= 10)
    for (size_t size = 0; size < sizeof sizes / sizeof *sizes; size++)
      printf("%zu blocks of %zu bytes with %zu left\n", run_out(pool, sizes[size], left_bytes), sizes[size], left_bytes);
  CHECK(millpond_pool_close(pool) == 0);
  puts("all is well");
  return 0;
}
