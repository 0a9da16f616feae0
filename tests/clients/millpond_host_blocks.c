/* Pinned and managed memory, in a process that may have few addresses: it is had, until there is no more, and then the reason is right.
   Its argument is a directory, which it does not use. */
#include <millpond.h>
#include <stdio.h>
#include <string.h>

static int of(const char *device_and_stack) {
  millpond_pool *pool;
  void *block, *more;
  if (millpond_pool_open(device_and_stack, &pool) || millpond_alloc(pool, 3 << 20, NULL, &block)) {
    printf("%s: %s\n", device_and_stack, millpond_last_error());
    return 1;
  }
  memset(block, 1, 3 << 20);
  if (millpond_alloc(pool, (size_t)1 << 45, NULL, &more) != MILLPOND_STATUS_OUT_OF_MEMORY) return 1;
  if (strstr(millpond_last_error(), "of the host") == NULL || strstr(millpond_last_error(), "larger device") != NULL) {
    printf("%s: %s\n", device_and_stack, millpond_last_error());
    return 1;
  }
  return millpond_free(pool, block, 3 << 20, NULL) || millpond_pool_close(pool);
}

int main(void) {
  if (of("sim:a100-80g/pinned") || of("sim:a100-80g/managed")) return 1;
  puts("all is well");
  return 0;
}
