/* A waiting thread spins for a few microseconds, because the next barrier is usually near, and then sleeps. On a busy
   machine, a spinning thread would take the core from the thread that it waits for. */
#include "pool.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "native.h"

/* About 12 us. On free cores, more spins are not faster; beside a busy process, 12 us is twice as fast as long
   spinning. */
enum { SPINS = 500 };

struct aici_pool {
  int num_threads;
  pool_job *job;
  void *argument;
  pthread_t *threads;
  _Alignas(64) _Atomic uint32_t generation; /* changes when a job begins or the pool ends */
  _Alignas(64) _Atomic uint32_t round;      /* changes when a barrier opens */
  _Alignas(64) _Atomic int arrived;
  _Alignas(64) _Atomic int taken;
  _Alignas(64) _Atomic int sleeping;
};

static void await_change(aici_pool *pool, _Atomic uint32_t *word, uint32_t old) {
  for (int i = 0; i < SPINS; i++) {
    if (atomic_load_explicit(word, memory_order_acquire) != old) return;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
  }
  /* Count the sleeper before the last check of the word: a later change of the word then sees `sleeping`. */
  atomic_fetch_add(&pool->sleeping, 1);
  while (atomic_load(word) == old) syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
  atomic_fetch_sub(&pool->sleeping, 1);
}

static void change(aici_pool *pool, _Atomic uint32_t *word) {
  atomic_fetch_add(word, 1);
  if (atomic_load(&pool->sleeping)) syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

int pool_size(const aici_pool *pool) { return pool->num_threads; }

void pool_barrier(aici_pool *pool) {
  if (pool->num_threads == 1) {
    atomic_store_explicit(&pool->taken, 0, memory_order_relaxed);
    return;
  }
  const uint32_t round = atomic_load_explicit(&pool->round, memory_order_relaxed);
  if (atomic_fetch_add_explicit(&pool->arrived, 1, memory_order_acq_rel) + 1 < pool->num_threads) {
    await_change(pool, &pool->round, round);
    return;
  }
  atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
  atomic_store_explicit(&pool->taken, 0, memory_order_relaxed);
  change(pool, &pool->round);
}

int pool_take(aici_pool *pool, int count) {
  return atomic_fetch_add_explicit(&pool->taken, count, memory_order_relaxed);
}

typedef struct { aici_pool *pool; int thread; } start;

static void *worker(void *argument) {
  const start own = *(start *)argument;
  aici_pool *pool = own.pool;
  free(argument);
  for (uint32_t seen = 0;; seen++) {
    await_change(pool, &pool->generation, seen);
    if (!pool->job) return NULL;
    pool->job(pool, own.thread, pool->argument);
    pool_barrier(pool);
  }
}

void pool_run(aici_pool *pool, pool_job *job, void *argument) {
  atomic_store_explicit(&pool->taken, 0, memory_order_relaxed);
  if (pool->num_threads > 1) {
    pool->job = job;
    pool->argument = argument;
    change(pool, &pool->generation);
  }
  job(pool, 0, argument);
  pool_barrier(pool);
}

AICI_EXPORT void aici_pool_free(aici_pool *pool) {
  pool->job = NULL;
  change(pool, &pool->generation);
  for (int i = 1; i < pool->num_threads; i++) pthread_join(pool->threads[i], NULL);
  free(pool->threads);
  free(pool);
}

AICI_EXPORT aici_pool *aici_pool_new(int num_threads) {
  aici_pool *pool = aligned_alloc(64, sizeof *pool);
  if (!pool) return NULL;
  *pool = (aici_pool){.num_threads = 1, .threads = calloc((size_t)num_threads, sizeof(pthread_t))};
  if (!pool->threads) {
    free(pool);
    return NULL;
  }
  /* Threads wait for the first job, so num_threads is final before a thread reaches a barrier. */
  int count = 1;
  for (; count < num_threads; count++) {
    start *own = malloc(sizeof *own);
    if (!own) break;
    *own = (start){pool, count};
    if (pthread_create(&pool->threads[count], NULL, worker, own)) {
      free(own);
      break;
    }
  }
  pool->num_threads = count;
  return pool;
}
