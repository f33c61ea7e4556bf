/* A waiting thread spins for a few microseconds, because the end of a phase is usually near. Then the thread computes
   the items again that others have begun, and then sleeps. On a busy machine, a spinning thread would take the core from
   the thread that it waits for.

   Counters only grow, so that nothing must be reset while a late thread may still look: `finished` counts the items of
   all phases since the pool was made, and a word of a queue or of `winners` that names an older phase means "untouched
   in this phase". */
#include "pool.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "native.h"

/* SPINS: about 12 us. On free cores, more spins are not faster; beside a busy process, 12 us is twice as fast as long
   spinning. PATIENCE: spins before items are computed again. */
enum { SPINS = 500, PATIENCE = 120 };
enum { MOST_QUEUES = 8, MOST_REPEATABLE = 1024, ITEM_BITS = 20 };
static const uint64_t CLOSED = 1u << 31;

struct pool_thread {
  aici_pool *pool;
  int index;
  uint64_t phase;  /* the last phase that the thread began */
  uint32_t target; /* `finished` at the end of that phase */
};

/* The next item of a share of the items: phase << ITEM_BITS | items taken. Alone on its cache line, because its own
   threads take nearly all items. */
typedef struct { _Alignas(64) _Atomic uint64_t taken; } queue;

struct aici_pool {
  int num_threads, num_queues;
  pool_job *job;
  void *argument;
  uint64_t first_phase;  /* phase and target of a thread that enters the job */
  uint32_t first_target;
  pthread_t *threads;
  pool_thread caller;
  pool_profile *profile; /* null: nobody asked for a profile */
  double last_lap;
  _Atomic bool ending;
  _Alignas(64) _Atomic uint32_t generation; /* changes when a job begins or the pool ends */
  _Alignas(64) _Atomic uint64_t door;       /* generation << 32 | CLOSED | threads that entered the job */
  _Alignas(64) _Atomic uint32_t left;       /* threads that entered the job and have left it */
  _Alignas(64) _Atomic uint32_t finished;
  _Alignas(64) _Atomic int sleeping;
  queue queues[MOST_QUEUES];
  _Alignas(64) _Atomic uint64_t winners[MOST_REPEATABLE]; /* per item: the last phase whose results were written */
};

static void pause_core(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Sleep while the word is `old`; a sleeper may wake up early. */
static void sleep_on(aici_pool *pool, _Atomic uint32_t *word, uint32_t old) {
  /* Count the sleeper before the last check of the word: a later change of the word then sees `sleeping`. */
  atomic_fetch_add(&pool->sleeping, 1);
  if (atomic_load(word) == old) syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
  atomic_fetch_sub(&pool->sleeping, 1);
}

static void wake(aici_pool *pool, _Atomic uint32_t *word) {
  if (atomic_load(&pool->sleeping)) syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Wait until the word has changed. */
static void await_change(aici_pool *pool, _Atomic uint32_t *word, uint32_t old) {
  for (int i = 0; i < SPINS; i++, pause_core())
    if (atomic_load_explicit(word, memory_order_acquire) != old) return;
  while (atomic_load_explicit(word, memory_order_acquire) == old) sleep_on(pool, word, old);
}

int pool_size(const pool_thread *self) { return self->pool->num_threads; }

int pool_shares(const pool_thread *self, int count) {
  const int most = 4 * self->pool->num_threads;
  return count < most ? count : most;
}

pool_range pool_share(const pool_item *item, int count) {
  const int64_t items = pool_shares(item->self, count);
  return (pool_range){(int)(count * item->number / items), (int)(count * (item->number + 1) / items)};
}

/* Whether all items of the thread's phase are finished. The difference is right beyond 2^32 items too. */
static bool is_over(const pool_thread *self) {
  return (int32_t)(atomic_load_explicit(&self->pool->finished, memory_order_acquire) - self->target) >= 0;
}

static bool spin_until_over(const pool_thread *self, int spins) {
  for (int i = 0; i < spins; i++, pause_core())
    if (is_over(self)) return true;
  return false;
}

bool pool_wins(pool_item *item) {
  if (item->repeatable) {
    _Atomic uint64_t *winner = &item->self->pool->winners[item->number];
    uint64_t old = atomic_load_explicit(winner, memory_order_relaxed);
    item->won = old < item->self->phase &&
                atomic_compare_exchange_strong_explicit(winner, &old, item->self->phase, memory_order_relaxed,
                                                        memory_order_relaxed);
  }
  return item->won;
}

bool pool_lost(const pool_item *item) {
  return item->repeatable && atomic_load_explicit(&item->self->pool->winners[item->number], memory_order_relaxed) >=
                                 item->self->phase;
}

static void run_item(pool_thread *self, int number, pool_kind kind, pool_work *work, const void *context) {
  pool_item item = {self, number, kind == REPEAT, kind == ONCE};
  work(context, &item);
  if (!item.won) return;
  aici_pool *pool = self->pool;
  if (atomic_fetch_add(&pool->finished, 1) + 1 == self->target) wake(pool, &pool->finished);
}

/* Take an item of the queue whose items are `first` to `last` - 1; -1 if there is none. */
static int take(queue *from, uint64_t phase, int first, int last) {
  uint64_t old = atomic_load_explicit(&from->taken, memory_order_relaxed);
  for (;;) {
    if (old >> ITEM_BITS > phase) return -1;
    const int number = old >> ITEM_BITS == phase ? first + (int)(old & ((1 << ITEM_BITS) - 1)) : first;
    if (number >= last) return -1;
    const uint64_t new = phase << ITEM_BITS | (uint64_t)(number + 1 - first);
    if (atomic_compare_exchange_weak_explicit(&from->taken, &old, new, memory_order_relaxed, memory_order_relaxed))
      return number;
  }
}

void pool_phase(pool_thread *self, int count, pool_kind kind, pool_work *work, const void *context) {
  aici_pool *pool = self->pool;
  if (pool->num_threads == 1) {
    for (int i = 0; i < count; i++) work(context, &(pool_item){self, i, false, true});
    return;
  }
  if (count > MOST_REPEATABLE) kind = ONCE;
  self->phase++;
  self->target += (uint32_t)count;
  for (int i = 0; i < pool->num_queues && !is_over(self); i++) {
    const int own = (self->index + i) % pool->num_queues;
    const int first = (int)((int64_t)count * own / pool->num_queues);
    const int last = (int)((int64_t)count * (own + 1) / pool->num_queues);
    for (int item; (item = take(&pool->queues[own], self->phase, first, last)) >= 0;)
      run_item(self, item, kind, work, context);
  }
  if (kind == REPEAT && !spin_until_over(self, PATIENCE)) {
    for (int i = 0; i < count && !is_over(self); i++) {
      const pool_item item = {self, (i + count * self->index / pool->num_threads) % count, true, false};
      if (!pool_lost(&item)) run_item(self, item.number, kind, work, context);
    }
  }
  if (spin_until_over(self, SPINS)) return;
  while (!is_over(self)) {
    const uint32_t seen = atomic_load(&pool->finished);
    if ((int32_t)(seen - self->target) < 0) sleep_on(pool, &pool->finished, seen);
  }
}

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

bool pool_profiles(const pool_thread *self) { return self->index == 0 && self->pool->profile; }

void pool_lap(pool_thread *self, int kind, double operations) {
  if (!pool_profiles(self)) return;
  aici_pool *pool = self->pool;
  const double at = now();
  pool->profile->seconds[kind] += at - pool->last_lap;
  pool->profile->operations[kind] += operations;
  pool->last_lap = at;
}

/* Enter the job of this moment. Returns whether its door was open. */
static bool enter(pool_thread *self, uint32_t *seen) {
  aici_pool *pool = self->pool;
  uint64_t door = atomic_load(&pool->door);
  while ((uint32_t)(door >> 32) != *seen && !(door & CLOSED)) {
    if (!atomic_compare_exchange_weak(&pool->door, &door, door + 1)) continue;
    *seen = (uint32_t)(door >> 32);
    self->phase = pool->first_phase;
    self->target = pool->first_target;
    return true;
  }
  return false;
}

static void *worker(void *argument) {
  pool_thread self = *(pool_thread *)argument;
  aici_pool *pool = self.pool;
  free(argument);
  uint32_t entered = 0; /* generation of the last job that the thread entered */
  for (uint32_t seen = 0;;) {
    await_change(pool, &pool->generation, seen);
    seen = atomic_load(&pool->generation);
    if (atomic_load(&pool->ending)) return NULL;
    if (!enter(&self, &entered)) continue;
    pool->job(&self, pool->argument);
    atomic_fetch_add(&pool->left, 1);
    wake(pool, &pool->left);
  }
}

static void announce(aici_pool *pool) {
  atomic_fetch_add(&pool->generation, 1);
  wake(pool, &pool->generation);
}

void pool_run(aici_pool *pool, pool_job *job, void *argument) {
  pool_thread *self = &pool->caller;
  if (pool->profile) pool->last_lap = now();
  if (pool->num_threads == 1) {
    job(self, argument);
    return;
  }
  pool->job = job;
  pool->argument = argument;
  pool->first_phase = self->phase;
  pool->first_target = self->target;
  atomic_store(&pool->left, 0);
  atomic_store(&pool->door, (uint64_t)(atomic_load(&pool->generation) + 1) << 32);
  announce(pool);
  job(self, argument);
  const uint32_t entered = (uint32_t)(atomic_fetch_or(&pool->door, CLOSED) & (CLOSED - 1));
  for (uint32_t left; (left = atomic_load(&pool->left)) != entered;) await_change(pool, &pool->left, left);
}

/* Add the work of later jobs to `to`, until the next call. Null: no profile. */
AICI_EXPORT void aici_pool_profile(aici_pool *pool, pool_profile *to) { pool->profile = to; }

AICI_EXPORT void aici_pool_free(aici_pool *pool) {
  atomic_store(&pool->ending, true);
  announce(pool);
  for (int i = 1; i < pool->num_threads; i++) pthread_join(pool->threads[i], NULL);
  free(pool->threads);
  free(pool);
}

AICI_EXPORT aici_pool *aici_pool_new(int num_threads) {
  aici_pool *pool = aligned_alloc(64, sizeof *pool);
  if (!pool) return NULL;
  *pool = (aici_pool){.num_threads = 1, .threads = calloc((size_t)num_threads, sizeof(pthread_t)), .door = CLOSED};
  pool->caller.pool = pool;
  if (!pool->threads) {
    free(pool);
    return NULL;
  }
  /* Threads wait for the first job, so num_threads is final before a thread reads it. */
  int count = 1;
  for (; count < num_threads; count++) {
    pool_thread *own = malloc(sizeof *own);
    if (!own) break;
    *own = (pool_thread){.pool = pool, .index = count};
    if (pthread_create(&pool->threads[count], NULL, worker, own)) {
      free(own);
      break;
    }
  }
  pool->num_threads = count;
  pool->num_queues = count < MOST_QUEUES ? count : MOST_QUEUES;
  return pool;
}
