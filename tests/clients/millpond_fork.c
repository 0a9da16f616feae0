/* A process that forks while its other threads use pools, and open and close them. Its children close their parent's pools, are refused
   what they may not have, have a pool of their own, and end. The argument is a directory to write in; a second one is how many. */
#include <millpond.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static millpond_pool *pool, *stacked;
static void *stream;
static volatile int stop;

static void *uses_pools(void *argument) {
  unsigned seed = (unsigned)(size_t)argument;
  while (!stop) {
    millpond_pool *of = rand_r(&seed) % 2 ? pool : stacked, *another;
    size_t bytes = 1 + (unsigned)rand_r(&seed) % 20000000;
    void *block;
    if (millpond_alloc(of, bytes, NULL, &block) == 0) millpond_free(of, block, bytes, NULL);
    if (rand_r(&seed) % 10 == 0) millpond_trim(of, NULL);
    if (rand_r(&seed) % 20 == 0 && millpond_pool_open("sim:a100-80g", &another) == 0) millpond_pool_close(another);
  }
  return NULL;
}

/* The line of what is not as it should be, or 0. */
static int child(const char *trace, int ends_by_exit) {
#define SHOULD(that) \
  if (!(that)) return __LINE__
  millpond_stats stats = {.struct_bytes = sizeof stats};
  millpond_pool *both[] = {pool, stacked}, *own;
  void *block;
  for (int i = 0; i < 2; i++) {
    SHOULD(millpond_alloc(both[i], 100, NULL, &block) == MILLPOND_STATUS_FORKED);
    SHOULD(strstr(millpond_last_error(), "fork") != NULL);
    SHOULD(millpond_free(both[i], (void *)4096, 100, NULL) == 0);
    SHOULD(millpond_free_unsized(both[i], (void *)4096, NULL) == 0);
    SHOULD(millpond_stream_create(both[i], &block) == MILLPOND_STATUS_FORKED);
    SHOULD(millpond_stream_destroy(both[i], stream) == MILLPOND_STATUS_FORKED);
    SHOULD(millpond_stream_synchronize(both[i], stream) == MILLPOND_STATUS_FORKED);
    SHOULD(millpond_trace_start(both[i], trace) == MILLPOND_STATUS_FORKED);
    SHOULD(millpond_trace_stop(both[i]) == MILLPOND_STATUS_FORKED);
    SHOULD(millpond_get_stats(both[i], &stats) == MILLPOND_STATUS_FORKED);
    SHOULD(millpond_trim(both[i], NULL) == MILLPOND_STATUS_FORKED);
  }
  SHOULD(millpond_pool_instance(&own) == 0);
  SHOULD(millpond_alloc(own, 100, NULL, &block) == 0);
  SHOULD(millpond_free(own, block, 100, NULL) == 0);
  SHOULD(millpond_pool_open("sim:a100-80g", &own) == 0);
  SHOULD(millpond_alloc(own, 5000000, NULL, &block) == 0);
  SHOULD(millpond_trim(own, NULL) == 0);
  SHOULD(millpond_pool_close(own) == 0);
  for (int i = 0; i < 2; i++) {
    SHOULD(millpond_pool_close(both[i]) == 0);
    SHOULD(millpond_pool_close(both[i]) == MILLPOND_STATUS_CLOSED);
    SHOULD(millpond_alloc(both[i], 100, NULL, &block) == MILLPOND_STATUS_CLOSED);
  }
  if (ends_by_exit) exit(0);
  return 0;
}

int main(int count, char **arguments) {
  char trace[4096];
  snprintf(trace, sizeof trace, "%s/trace.csv", arguments[1]);
  int forks = count > 2 ? atoi(arguments[2]) : 300, wrong = 0;
  pthread_t threads[2];
  if (millpond_pool_open("sim:a100-80g", &pool) || millpond_pool_open("sim:a100-80g/limit:60GiB/bestfit", &stacked) ||
      millpond_stream_create(pool, &stream))
    return 1;
  for (size_t i = 0; i < 2; i++)
    if (pthread_create(&threads[i], NULL, uses_pools, (void *)(i + 1))) return 1;
  for (int i = 0; i < forks; i++) {
    usleep(300);
    pid_t pid = fork();
    if (pid == 0) {
      alarm(60);
      int line = child(trace, i % 2);
      if (line) printf("line %d: %s\n", line, millpond_last_error());
      fflush(stdout);
      _exit(line != 0);
    }
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return 1;
    if (status != 0 && ++wrong < 6) printf("fork %d: status %#x\n", i, (unsigned)status);
  }
  stop = 1;
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  if (wrong) printf("%d of %d children\n", wrong, forks);
  else puts("all is well");
  return wrong != 0;
}
