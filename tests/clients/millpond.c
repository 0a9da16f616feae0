/* Every function of millpond.h, rightly used and wrongly. */
#include <millpond.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                      \
  do {                                                                                   \
    if (!(what)) {                                                                       \
      fprintf(stderr, "%s:%d: %s does not hold; %s\n", __FILE__, __LINE__, #what,        \
              millpond_last_error());                                                    \
      exit(1);                                                                           \
    }                                                                                    \
  } while (0)
#define DONE(call) CHECK((call) == MILLPOND_STATUS_OK)
/* A call fails with this status, and the reason has this in it. */
#define FAILS(call, status, reason) \
  CHECK((call) == (status) && strstr(millpond_last_error(), reason) != NULL)

static char *scratch;

static void opening(void) {
  millpond_pool *pool = NULL;
  CHECK(strcmp(millpond_last_error(), "") == 0);
  CHECK(strlen(millpond_version()) >= 5);
  FAILS(millpond_pool_open(NULL, &pool), MILLPOND_STATUS_INVALID_ARGUMENT, "null");
  FAILS(millpond_pool_open("sim:a100-80g", NULL), MILLPOND_STATUS_INVALID_ARGUMENT, "null");
  FAILS(millpond_pool_open("gpu0", &pool), MILLPOND_STATUS_INVALID_ARGUMENT, "unknown allocator 'gpu0'");
  FAILS(millpond_pool_open("gpu:0", &pool), MILLPOND_STATUS_INVALID_ARGUMENT, "sim:PROFILE (such as sim:a100-80g) and cuda:N");
  FAILS(millpond_pool_open("a\nb", &pool), MILLPOND_STATUS_INVALID_ARGUMENT, "'a\\nb'");
  CHECK(strchr(millpond_last_error(), '\n') == NULL);
  FAILS(millpond_pool_open("sim:a100", &pool), MILLPOND_STATUS_INVALID_ARGUMENT, "did you mean");
  FAILS(millpond_pool_open("sim:a100-80g/pol", &pool), MILLPOND_STATUS_INVALID_ARGUMENT, "did you mean 'pool'");
  FAILS(millpond_pool_open("sim:a100-80g/pool:slack=-1", &pool), MILLPOND_STATUS_INVALID_ARGUMENT, "slack");
  FAILS(millpond_pool_open("cuda:99", &pool), MILLPOND_STATUS_DRIVER, "cuda:99");
  FAILS(millpond_pool_open("\xff", &pool), MILLPOND_STATUS_INVALID_ARGUMENT, "UTF-8: give it in that encoding");
  CHECK(pool == NULL);
  setenv("MILLPOND_CONF", "slak:0", 1);
  FAILS(millpond_pool_open("sim:a100-80g", &pool), MILLPOND_STATUS_INVALID_ARGUMENT, "in the environment variable MILLPOND_CONF");
  unsetenv("MILLPOND_CONF");
  CHECK(pool == NULL);
  const char *right[] = {"", "pool", "sim:v100-16g", "sim:h100-80g/limit:4GiB/pool:slack=0.05", "sim:a100-80g/direct"};
  for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
    DONE(millpond_pool_open(right[i], &pool));
    DONE(millpond_pool_close(pool));
    FAILS(millpond_pool_close(pool), MILLPOND_STATUS_CLOSED, "closed");
  }
  FAILS(millpond_pool_close(NULL), MILLPOND_STATUS_INVALID_ARGUMENT, "null");
  void *block = NULL;
  FAILS(millpond_alloc(pool, 1, NULL, &block), MILLPOND_STATUS_CLOSED, "closed");
  FAILS(millpond_free(pool, block, 1, NULL), MILLPOND_STATUS_CLOSED, "closed");
  FAILS(millpond_alloc(NULL, 1, NULL, &block), MILLPOND_STATUS_INVALID_ARGUMENT, "null");
  FAILS(millpond_trim(NULL, NULL), MILLPOND_STATUS_INVALID_ARGUMENT, "null");
}

static void blocks(millpond_pool *pool) {
  void *stream, *other, *block = NULL;
  DONE(millpond_stream_create(pool, &stream));
  DONE(millpond_stream_create(pool, &other));
  FAILS(millpond_stream_create(pool, NULL), MILLPOND_STATUS_INVALID_ARGUMENT, "null");
  DONE(millpond_alloc(pool, 0, stream, &block));
  CHECK(block == NULL);
  DONE(millpond_free(pool, NULL, 123, stream));
  DONE(millpond_free_unsized(pool, NULL, stream));
  DONE(millpond_alloc(pool, 3000, stream, &block));
  CHECK(block != NULL && (size_t)block % 256 == 0);
  size_t bytes = 0;
  DONE(millpond_block_bytes(pool, block, &bytes));
  CHECK(bytes == 3000);
  FAILS(millpond_free(pool, block, 4000, stream), MILLPOND_STATUS_WRONG_SIZE, "allocated with 3000");
  FAILS(millpond_free(pool, (char *)block + 256, 3000, stream), MILLPOND_STATUS_INTERIOR, "inside the block");
  FAILS(millpond_free(pool, (void *)16, 3000, stream), MILLPOND_STATUS_FOREIGN, "not from this");
  FAILS(millpond_free(pool, block, 3000, (void *)0x1234), MILLPOND_STATUS_DRIVER, "stream");
  DONE(millpond_record_stream(pool, block, other));
  DONE(millpond_free(pool, block, 3000, stream));
  FAILS(millpond_free(pool, block, 3000, stream), MILLPOND_STATUS_ALREADY_FREE, "free already");
  FAILS(millpond_record_stream(pool, block, other), MILLPOND_STATUS_ALREADY_FREE, "free already");
  FAILS(millpond_record_stream(pool, (void *)16, other), MILLPOND_STATUS_FOREIGN, "record_stream of 0x10");
  FAILS(millpond_block_bytes(pool, (void *)16, &bytes), MILLPOND_STATUS_FOREIGN, "block_bytes of 0x10");
  FAILS(millpond_alloc(pool, 100, (void *)0x770, &block), MILLPOND_STATUS_DRIVER, "give a stream of the pool's device");
  FAILS(millpond_alloc(pool, (size_t)-1, stream, &block), MILLPOND_STATUS_OUT_OF_MEMORY, "check the size");
  FAILS(millpond_alloc(pool, (size_t)1 << 40, stream, &block), MILLPOND_STATUS_OUT_OF_MEMORY, "out of memory");
  FAILS(millpond_alloc(pool, 1, stream, NULL), MILLPOND_STATUS_INVALID_ARGUMENT, "null");
  DONE(millpond_alloc(pool, 64 << 20, stream, &block));
  DONE(millpond_free_unsized(pool, block, stream));
  DONE(millpond_trim(pool, &bytes));
  CHECK(bytes >= 64 << 20);
  FAILS(millpond_alloc_now(pool, 64 << 20, stream, &block), MILLPOND_STATUS_WOULD_WAIT, "without waiting");
  DONE(millpond_preallocate(pool, 64 << 20, 2));
  DONE(millpond_alloc_now(pool, 64 << 20, stream, &block));
  DONE(millpond_free(pool, block, 64 << 20, stream));
  FAILS(millpond_preallocate(pool, (size_t)1 << 40, 1), MILLPOND_STATUS_OUT_OF_MEMORY, "out of memory");
  DONE(millpond_stream_synchronize(pool, stream));
  DONE(millpond_stream_destroy(pool, other));
  FAILS(millpond_stream_destroy(pool, other), MILLPOND_STATUS_DRIVER, "handle");
  DONE(millpond_stream_destroy(pool, stream));
}

static void settings(millpond_pool *pool) {
  millpond_config config = {.struct_bytes = sizeof config};
  DONE(millpond_get_config(pool, &config));
  CHECK(config.alignment == 256 && config.thread_cache_max_blocks == 64 && config.batch_alloc_count == 16);
  CHECK(config.defrag_interval_ms == 5000 && config.enable_stats && config.enable_defrag);
  config.slack = 0.5;
  config.enable_defrag = 0;
  DONE(millpond_set_config(pool, &config));
  config.batch_alloc_count = 1000;
  FAILS(millpond_set_config(pool, &config), MILLPOND_STATUS_INVALID_ARGUMENT, "batch_alloc_count");
  DONE(millpond_get_config(pool, &config));
  CHECK(config.slack == 0.5 && config.batch_alloc_count == 16 && !config.enable_defrag);
  DONE(millpond_configure(pool, "slack:0.15,enable_defrag:true"));
  DONE(millpond_configure(pool, "enable_stats:True,enable_defrag:1,thread_cache_max_bytes:64MiB"));
  FAILS(millpond_configure(pool, "slak:0"), MILLPOND_STATUS_INVALID_ARGUMENT, "did you mean slack");
  FAILS(millpond_configure(pool, NULL), MILLPOND_STATUS_INVALID_ARGUMENT, "null");
  config.struct_bytes = 0;
  FAILS(millpond_get_config(pool, &config), MILLPOND_STATUS_INVALID_ARGUMENT, "struct_bytes");
  FAILS(millpond_set_config(pool, NULL), MILLPOND_STATUS_INVALID_ARGUMENT, "null");
  /* A program that knows only the first two fields. */
  millpond_config older = {.struct_bytes = 2 * sizeof(size_t), .thread_cache_max_blocks = 77};
  DONE(millpond_get_config(pool, &older));
  CHECK(older.alignment == 256 && older.thread_cache_max_blocks == 77);
  DONE(millpond_set_config(pool, &older));
  config.struct_bytes = sizeof config;
  DONE(millpond_get_config(pool, &config));
  CHECK(config.thread_cache_max_blocks == 64 && config.slack == 0.15);
}

static void statistics(millpond_pool *pool) {
  DONE(millpond_release_all(pool, NULL));
  millpond_stats stats = {.struct_bytes = sizeof stats};
  void *block;
  DONE(millpond_alloc(pool, 1000, NULL, &block));
  DONE(millpond_get_stats(pool, &stats));
  CHECK(stats.current_usage == 1000 && stats.allocation_count == 1 && stats.reserved_bytes >= 1000);
  millpond_usage usage = {.struct_bytes = sizeof usage};
  DONE(millpond_get_usage(pool, &usage));
  CHECK(usage.live_bytes == 1000 && usage.live_blocks == 1 && usage.reserved_bytes == stats.reserved_bytes);
  char text[4096], little[8];
  size_t needed = 0;
  DONE(millpond_stats_text(pool, text, sizeof text, &needed));
  CHECK(needed == strlen(text) + 1 && strstr(text, "allocations") != NULL);
  DONE(millpond_stats_text(pool, little, sizeof little, NULL));
  CHECK(strlen(little) == 7 && strncmp(little, text, 7) == 0);
  DONE(millpond_stats_text(pool, NULL, 0, &needed));
  FAILS(millpond_stats_text(pool, NULL, 10, &needed), MILLPOND_STATUS_INVALID_ARGUMENT, "buffer");
  DONE(millpond_print_stats(pool));
  DONE(millpond_reset_stats(pool));
  DONE(millpond_get_stats(pool, &stats));
  CHECK(stats.allocation_count == 0 && stats.current_usage == 1000);
  DONE(millpond_free(pool, block, 1000, NULL));
  DONE(millpond_trim_cache(pool));
  size_t released;
  DONE(millpond_defragment(pool, &released));
}

static void writing_down(millpond_pool *pool) {
  char path[4096], line[256];
  snprintf(path, sizeof path, "%s/trace.csv", scratch);
  void *block, *unsized_block;
  FAILS(millpond_trace_stop(pool), MILLPOND_STATUS_INVALID_ARGUMENT, "start one");
  FAILS(millpond_trace_start(pool, "/no/such/directory/x"), MILLPOND_STATUS_IO, "/no/such/directory/x");
  DONE(millpond_trace_start(pool, path));
  FAILS(millpond_trace_start(pool, path), MILLPOND_STATUS_INVALID_ARGUMENT, "already");
  DONE(millpond_alloc(pool, 5000, NULL, &block));
  DONE(millpond_alloc(pool, 6000, NULL, &unsized_block));
  DONE(millpond_free(pool, block, 5000, NULL));
  DONE(millpond_free_unsized(pool, unsized_block, NULL));
  DONE(millpond_trace_stop(pool));
  DONE(millpond_alloc(pool, 7000, NULL, &block));
  DONE(millpond_free(pool, block, 7000, NULL));
  FILE *file = fopen(path, "r");
  CHECK(file != NULL);
  int allocates = 0, frees = 0;
  while (fgets(line, sizeof line, file)) {
    allocates += strstr(line, ",allocate,") != NULL;
    frees += strstr(line, ",free,") != NULL;
    CHECK(strstr(line, "7000") == NULL);
  }
  fclose(file);
  CHECK(allocates == 2 && frees == 2);
  snprintf(path, sizeof path, "%s/snapshot.pickle", scratch);
  DONE(millpond_snapshot(pool, path));
  FAILS(millpond_snapshot(pool, "/no/such/directory/x"), MILLPOND_STATUS_IO, "/no/such/directory/x");
  CHECK(strstr(strstr(millpond_last_error(), "/no/such/directory/x") + 1, "/no/such/directory/x") == NULL);
  CHECK(access(path, R_OK) == 0);
}

static void *of_another_thread(void *pool) {
  void *block;
  CHECK(strcmp(millpond_last_error(), "") == 0);
  FAILS(millpond_configure(pool, "slak:0"), MILLPOND_STATUS_INVALID_ARGUMENT, "slak");
  DONE(millpond_alloc(pool, 100, NULL, &block));
  return block;
}

static void threads_and_processes(millpond_pool *pool) {
  pthread_t thread;
  void *block;
  FAILS(millpond_free(pool, (void *)16, 1, NULL), MILLPOND_STATUS_FOREIGN, "0x10");
  CHECK(pthread_create(&thread, NULL, of_another_thread, pool) == 0);
  CHECK(pthread_join(thread, &block) == 0);
  CHECK(strstr(millpond_last_error(), "0x10") != NULL);
  pid_t child = fork();
  if (child == 0) {
    void *childs = NULL;
    int answer = millpond_alloc(pool, 100, NULL, &childs);
    int freed = millpond_free(pool, block, 100, NULL);
    const char *outcome = answer == MILLPOND_STATUS_FORKED && freed == MILLPOND_STATUS_OK ? "true" : "false";
    /* Another program in its place: a child has not the threads that hold its parent's memory, which valgrind takes for lost. */
    execlp(outcome, outcome, (char *)NULL);
    _exit(1);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  DONE(millpond_free(pool, block, 100, NULL));
}

static void stacks(void) {
  millpond_pool *pool;
  void *block;
  DONE(millpond_pool_open("sim:v100-16g/limit:1MiB/pool", &pool));
  FAILS(millpond_alloc(pool, 2 << 20, NULL, &block), MILLPOND_STATUS_OUT_OF_MEMORY, "limit");
  DONE(millpond_alloc(pool, 1 << 20, NULL, &block));
  FAILS(millpond_alloc(pool, 1, NULL, &block), MILLPOND_STATUS_OUT_OF_MEMORY, "limit");
  DONE(millpond_free_unsized(pool, block, NULL));
  DONE(millpond_alloc(pool, 1 << 20, NULL, &block));
  DONE(millpond_free(pool, block, 1 << 20, NULL));
  FAILS(millpond_alloc_now(pool, 1, NULL, &block), MILLPOND_STATUS_NOT_SUPPORTED, "must not wait");
  DONE(millpond_pool_close(pool));
  DONE(millpond_pool_open("sim:v100-16g/direct", &pool));
  DONE(millpond_alloc(pool, 100, NULL, &block));
  FAILS(millpond_free_unsized(pool, block, NULL), MILLPOND_STATUS_NOT_SUPPORTED, "ends in 'pool'");
  FAILS(millpond_preallocate(pool, 1, 1), MILLPOND_STATUS_NOT_SUPPORTED, "ends in 'pool'");
  DONE(millpond_free(pool, block, 100, NULL));
  DONE(millpond_pool_close(pool));
}

static void the_instance(void) {
  millpond_pool *pool, *again;
  FAILS(millpond_pool_instance(NULL), MILLPOND_STATUS_INVALID_ARGUMENT, "null");
  DONE(millpond_pool_instance(&pool));
  DONE(millpond_pool_instance(&again));
  CHECK(pool == again);
  millpond_config config = {.struct_bytes = sizeof config};
  DONE(millpond_get_config(pool, &config));
  CHECK(config.slack == 0.25); /* MILLPOND_CONF */
  FAILS(millpond_pool_close(pool), MILLPOND_STATUS_INVALID_ARGUMENT, "process-wide");
  blocks(pool);
}

int main(int count, char **arguments) {
  if (count != 2) return 2;
  scratch = arguments[1];
  opening();
  unsetenv("MILLPOND_CONF");
  millpond_pool *pool;
  DONE(millpond_pool_open("sim:a100-80g", &pool));
  blocks(pool);
  settings(pool);
  statistics(pool);
  writing_down(pool);
  threads_and_processes(pool);
  DONE(millpond_pool_close(pool));
  stacks();
  setenv("MILLPOND_CONF", "slack:0.25", 1);
  the_instance();
  setenv("MILLPOND_CONF", "slak:0.25", 1);
  FAILS(millpond_pool_open("", &pool), MILLPOND_STATUS_INVALID_ARGUMENT, "slak");
  puts("all is well");
  return 0;
}
