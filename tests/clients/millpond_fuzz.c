/* Sequences of right and wrong calls from several threads: a right one is answered rightly, a wrong one with its error, and nothing
 * is lost. Arguments: calls of each thread, seed. */
#include <millpond.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4, SLOTS = 200 };

static millpond_pool *pool;
static uint64_t calls, first_seed;

typedef struct {
  void *ptr;
  size_t bytes;
  void *stream;
} Block;

static uint64_t next(uint64_t *state) { /* xorshift64 */
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

static void expect(int answer, int wanted, const char *what) {
  if (answer == wanted) return;
  fprintf(stderr, "seed %llu: %s answered %d, not %d: %s\n", (unsigned long long)first_seed, what, answer, wanted,
          millpond_last_error());
  exit(1);
}

static size_t any_size(uint64_t *rng) {
  switch (next(rng) % 20) {
    case 0: return 0;
    case 1: return 1 + next(rng) % (24u << 20);
    case 2: return (size_t)1 << (next(rng) % 24);
    default: return 1 + next(rng) % (1u << (1 + next(rng) % 20));
  }
}

static void settle(Block *block) {
  expect(millpond_free(pool, block->ptr, block->bytes, block->stream), MILLPOND_STATUS_OK, "a right free");
  *block = (Block){0};
}

static void wrong(Block *block, void *stream, uint64_t *rng) {
  void *ptr = (void *)next(rng);
  millpond_stats stats = {.struct_bytes = next(rng) % sizeof(size_t)};
  millpond_config config = {.struct_bytes = sizeof config};
  switch (next(rng) % 12) {
    case 0: expect(millpond_alloc(NULL, 1, stream, &ptr), MILLPOND_STATUS_INVALID_ARGUMENT, "no pool"); break;
    case 1: expect(millpond_alloc(pool, any_size(rng), stream, NULL), MILLPOND_STATUS_INVALID_ARGUMENT, "no place"); break;
    case 2: expect(millpond_alloc(pool, SIZE_MAX - next(rng) % 5000, stream, &ptr), MILLPOND_STATUS_OUT_OF_MEMORY, "far too much"); break;
    case 3: expect(millpond_get_stats(pool, &stats), MILLPOND_STATUS_INVALID_ARGUMENT, "no size"); break;
    case 4: expect(millpond_configure(pool, "slack:-1"), MILLPOND_STATUS_INVALID_ARGUMENT, "a bad setting"); break;
    case 5: expect(millpond_pool_open("sim:a100-80g/pol", &pool), MILLPOND_STATUS_INVALID_ARGUMENT, "a bad name"); break;
    case 6: expect(millpond_free(pool, (void *)(1 + next(rng) % 4096), 1, stream), MILLPOND_STATUS_FOREIGN, "a made-up address"); break;
    case 7:
      if (block->bytes) expect(millpond_free(pool, block->ptr, block->bytes + 1, stream), MILLPOND_STATUS_WRONG_SIZE, "a wrong size");
      break;
    case 8:
      if (block->bytes > 1)
        expect(millpond_free_unsized(pool, (char *)block->ptr + 1 + next(rng) % (block->bytes - 1), stream), MILLPOND_STATUS_INTERIOR,
               "an address inside");
      break;
    case 9: expect(millpond_trace_stop(pool), MILLPOND_STATUS_INVALID_ARGUMENT, "no trace"); break;
    case 10: expect(millpond_stream_destroy(pool, (void *)0xdead), MILLPOND_STATUS_DRIVER, "no stream"); break;
    default:
      expect(millpond_get_config(pool, &config), MILLPOND_STATUS_OK, "the settings");
      config.alignment = 3;
      expect(millpond_set_config(pool, &config), MILLPOND_STATUS_INVALID_ARGUMENT, "a bad alignment");
  }
}

static void right(void *stream, uint64_t *rng) {
  millpond_stats stats = {.struct_bytes = sizeof stats};
  size_t bytes;
  switch (next(rng) % 8) {
    case 0: expect(millpond_trim(pool, &bytes), MILLPOND_STATUS_OK, "trim"); break;
    case 1: expect(millpond_trim_cache(pool), MILLPOND_STATUS_OK, "trim_cache"); break;
    case 2: expect(millpond_defragment(pool, NULL), MILLPOND_STATUS_OK, "defragment"); break;
    case 3: expect(millpond_get_stats(pool, &stats), MILLPOND_STATUS_OK, "stats"); break;
    case 4: expect(millpond_configure(pool, next(rng) % 2 ? "slack:0,enable_stats:true" : "slack:0.2"), MILLPOND_STATUS_OK, "configure"); break;
    case 5: expect(millpond_preallocate(pool, 1 + next(rng) % 100000, next(rng) % 5), MILLPOND_STATUS_OK, "preallocate"); break;
    case 6: expect(millpond_stream_synchronize(pool, stream), MILLPOND_STATUS_OK, "synchronize"); break;
    default: expect(millpond_free(pool, NULL, next(rng), stream), MILLPOND_STATUS_OK, "nothing freed");
  }
}

static void *work(void *number) {
  uint64_t rng = first_seed * 2654435761u + (uint64_t)(uintptr_t)number + 1;
  void *streams[2];
  Block blocks[SLOTS] = {{0}};
  for (int i = 0; i < 2; i++) expect(millpond_stream_create(pool, &streams[i]), MILLPOND_STATUS_OK, "a stream");
  for (uint64_t call = 0; call < calls; call++) {
    Block *block = &blocks[next(&rng) % SLOTS];
    void *stream = streams[next(&rng) % 2];
    uint64_t kind = next(&rng) % 1000;
    if (kind < 100) {
      wrong(block, stream, &rng);
    } else if (kind < 110) {
      right(stream, &rng);
    } else if (block->bytes == 0) {
      block->bytes = any_size(&rng);
      block->stream = stream;
      expect(millpond_alloc(pool, block->bytes, stream, &block->ptr), MILLPOND_STATUS_OK, "a right request");
      if (block->bytes && (uintptr_t)block->ptr % 256) expect(-1, 0, "an aligned block");
    } else if (kind < 150) {
      expect(millpond_record_stream(pool, block->ptr, streams[0]), MILLPOND_STATUS_OK, "record_stream");
    } else if (kind < 300) {
      expect(millpond_free_unsized(pool, block->ptr, block->stream), MILLPOND_STATUS_OK, "a free without size");
      *block = (Block){0};
    } else {
      settle(block);
    }
  }
  for (int i = 0; i < SLOTS; i++)
    if (blocks[i].bytes) settle(&blocks[i]);
  for (int i = 0; i < 2; i++) expect(millpond_stream_destroy(pool, streams[i]), MILLPOND_STATUS_OK, "a stream's end");
  return NULL;
}

int main(int count, char **arguments) {
  if (count != 3) return 2;
  calls = strtoull(arguments[1], NULL, 10);
  first_seed = strtoull(arguments[2], NULL, 10);
  expect(millpond_pool_open("sim:a100-80g", &pool), MILLPOND_STATUS_OK, "opening");
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++)
    if (pthread_create(&threads[i], NULL, work, (void *)i)) return 2;
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  expect(millpond_release_all(pool, NULL), MILLPOND_STATUS_OK, "release_all");
  millpond_usage usage = {.struct_bytes = sizeof usage};
  expect(millpond_get_usage(pool, &usage), MILLPOND_STATUS_OK, "usage");
  if (usage.live_blocks || usage.live_bytes || usage.reserved_bytes) {
    fprintf(stderr, "seed %llu: %zu blocks of %zu bytes are left, %zu reserved\n", (unsigned long long)first_seed,
            usage.live_blocks, usage.live_bytes, usage.reserved_bytes);
    return 1;
  }
  expect(millpond_pool_close(pool), MILLPOND_STATUS_OK, "closing");
  puts("all is well");
  return 0;
}
