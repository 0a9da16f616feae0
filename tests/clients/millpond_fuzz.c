/* Sequences of right and wrong calls from several threads: a right one is answered rightly, a wrong one with its error, and nothing
 * is lost. Arguments: calls of each thread, seed. */
#include <millpond.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4, SLOTS = 200 };

/* All threads' own, one that was closed, and what each thread has beside: pools with something around them, and others than pools. */
static millpond_pool *pool, *closed;
static const char *const STACKS[THREADS] = {"sim:a100-80g/pool:slack=0", "sim:v100-16g/stats/limit:4GiB/pool", "sim:a100-80g/limit:1GiB/bestfit",
                                            "sim:h100-80g/aligned:4KiB/torch"};
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

/* Blocks that one thread has allocated and another frees. */
static pthread_mutex_t board = PTHREAD_MUTEX_INITIALIZER;
static Block left[SLOTS];

static Block exchange(Block block, uint64_t *rng) {
  pthread_mutex_lock(&board);
  Block *place = &left[next(rng) % SLOTS], found = *place;
  *place = block;
  pthread_mutex_unlock(&board);
  return found;
}

/* One that a thread alone has, so that what is free stays so until it asks again. */
static void alone(millpond_pool *own, Block *block, uint64_t *rng) {
  void *ptr = NULL;
  size_t bytes = 0;
  if (!block->bytes) {
    bytes = 1 + any_size(rng) % (4u << 20);
    expect(millpond_alloc(own, bytes, NULL, &ptr), MILLPOND_STATUS_OK, "a request of one's own");
    *block = (Block){ptr, bytes, NULL};
    return;
  }
  expect(millpond_free(pool, block->ptr, block->bytes, NULL), MILLPOND_STATUS_FOREIGN, "another pool's block");
  expect(millpond_free(own, block->ptr, block->bytes + 1, NULL), MILLPOND_STATUS_WRONG_SIZE, "another size");
  if (millpond_block_bytes(own, block->ptr, &bytes) == MILLPOND_STATUS_OK && bytes != block->bytes) expect(-1, 0, "its own size");
  expect(millpond_free(own, block->ptr, block->bytes, NULL), MILLPOND_STATUS_OK, "a free of one's own");
  int again = millpond_free(own, block->ptr, block->bytes, NULL);
  if (again != MILLPOND_STATUS_FOREIGN && again != MILLPOND_STATUS_INTERIOR) expect(again, MILLPOND_STATUS_ALREADY_FREE, "a second free");
  *block = (Block){0};
}

static void wrong(Block *block, void *stream, uint64_t *rng) {
  void *ptr = (void *)next(rng);
  millpond_stats stats = {.struct_bytes = next(rng) % sizeof(size_t)};
  millpond_config config = {.struct_bytes = sizeof config};
  switch (next(rng) % 16) {
    case 12: expect(millpond_alloc(closed, 1, stream, &ptr), MILLPOND_STATUS_CLOSED, "a closed pool"); break;
    case 13: expect(millpond_free(closed, block->ptr, 1, stream), MILLPOND_STATUS_CLOSED, "a free into a closed pool"); break;
    case 14: expect(millpond_pool_close(closed), MILLPOND_STATUS_CLOSED, "closing again"); break;
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
  Block blocks[SLOTS] = {{0}}, owns[SLOTS] = {{0}};
  millpond_pool *own;
  expect(millpond_pool_open(STACKS[(uintptr_t)number], &own), MILLPOND_STATUS_OK, "a pool of one's own");
  for (int i = 0; i < 2; i++) expect(millpond_stream_create(pool, &streams[i]), MILLPOND_STATUS_OK, "a stream");
  for (uint64_t call = 0; call < calls; call++) {
    Block *block = &blocks[next(&rng) % SLOTS];
    void *stream = streams[next(&rng) % 2];
    uint64_t kind = next(&rng) % 1000;
    if (kind < 100) {
      wrong(block, stream, &rng);
    } else if (kind < 110) {
      right(stream, &rng);
    } else if (kind < 200) {
      alone(own, &owns[next(&rng) % SLOTS], &rng);
    } else if (kind < 260) {
      /* Used here from now on: its old stream may go before it does. */
      *block = exchange(*block, &rng);
      block->stream = stream;
    } else if (kind < 270 && block->bytes == 0) {
      size_t bytes = any_size(&rng);
      int now = millpond_alloc_now(pool, bytes, stream, &block->ptr);
      if (now != MILLPOND_STATUS_WOULD_WAIT) {
        expect(now, MILLPOND_STATUS_OK, "a request that must not wait");
        *block = (Block){block->ptr, bytes, stream};
      }
    } else if (block->bytes == 0) {
      block->bytes = any_size(&rng);
      block->stream = stream;
      expect(millpond_alloc(pool, block->bytes, stream, &block->ptr), MILLPOND_STATUS_OK, "a right request");
      if (block->bytes && (uintptr_t)block->ptr % 256) expect(-1, 0, "an aligned block");
    } else if (kind < 310) {
      expect(millpond_record_stream(pool, block->ptr, streams[0]), MILLPOND_STATUS_OK, "record_stream");
    } else if (kind < 400) {
      expect(millpond_free_unsized(pool, block->ptr, block->stream), MILLPOND_STATUS_OK, "a free without size");
      *block = (Block){0};
    } else {
      settle(block);
    }
  }
  for (int i = 0; i < SLOTS; i++)
    if (blocks[i].bytes) settle(&blocks[i]);
  for (int i = 0; i < SLOTS; i++)
    if (owns[i].bytes) expect(millpond_free(own, owns[i].ptr, owns[i].bytes, NULL), MILLPOND_STATUS_OK, "the last of one's own");
  expect(millpond_pool_close(own), MILLPOND_STATUS_OK, "the end of one's own");
  for (int i = 0; i < 2; i++) expect(millpond_stream_destroy(pool, streams[i]), MILLPOND_STATUS_OK, "a stream's end");
  return NULL;
}

int main(int count, char **arguments) {
  if (count != 3) return 2;
  calls = strtoull(arguments[1], NULL, 10);
  first_seed = strtoull(arguments[2], NULL, 10);
  expect(millpond_pool_open("sim:a100-80g", &pool), MILLPOND_STATUS_OK, "opening");
  expect(millpond_pool_open("sim:a100-80g", &closed), MILLPOND_STATUS_OK, "opening another");
  expect(millpond_pool_close(closed), MILLPOND_STATUS_OK, "closing it");
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++)
    if (pthread_create(&threads[i], NULL, work, (void *)i)) return 2;
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  /* On the default stream, which comes after all others: theirs are gone. */
  for (int i = 0; i < SLOTS; i++)
    if (left[i].bytes) expect(millpond_free(pool, left[i].ptr, left[i].bytes, NULL), MILLPOND_STATUS_OK, "what was left");
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
