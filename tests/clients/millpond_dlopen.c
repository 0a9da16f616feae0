/* A program that loads the library, lets a thread fail, and unloads it before the thread ends. Its argument is the library. */
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>

typedef int open_function(const char *, void **);

static sem_t has_failed, is_unloaded;
static open_function *open_pool;

static void *fails(void *argument) {
  void *pool;
  (void)argument;
  if (open_pool("sim:nope", &pool) == 0) puts("there is no such device");
  sem_post(&has_failed);
  sem_wait(&is_unloaded);
  return NULL;
}

int main(int count, char **arguments) {
  void *library = count > 1 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (library == NULL) return 1;
  /* The one way to have a function of a pointer that C allows. */
  *(void **)&open_pool = dlsym(library, "millpond_pool_open");
  if (open_pool == NULL || sem_init(&has_failed, 0, 0) || sem_init(&is_unloaded, 0, 0)) return 1;
  pthread_t thread;
  if (pthread_create(&thread, NULL, fails, NULL)) return 1;
  sem_wait(&has_failed);
  if (dlclose(library)) return 1;
  sem_post(&is_unloaded);
  if (pthread_join(thread, NULL)) return 1;
  puts("all is well");
  return 0;
}
