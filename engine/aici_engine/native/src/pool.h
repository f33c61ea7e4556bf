/* A pool of threads that run one job together. A job is a list of phases, the same list for every thread. A phase is a
   number of items. The next phase begins when all items are finished, not when all threads are there: a thread that the
   operating system has stopped between two items delays nobody, and its items are done by others. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

typedef struct aici_pool aici_pool;
typedef struct pool_thread pool_thread; /* one thread of a job */
typedef void pool_job(pool_thread *self, void *argument);

/* Run `job` on all threads. Returns when no thread is in the job any more. One caller at a time. A thread that comes too
   late takes no part. */
void pool_run(aici_pool *pool, pool_job *job, void *argument);

/* Threads of the pool. */
int pool_size(const pool_thread *self);

typedef struct {
  pool_thread *self;
  int number;     /* from 0 */
  bool repeatable; /* the item may run on two threads at once */
  bool won;
} pool_item;

typedef void pool_work(const void *context, pool_item *item);

/* ONCE: every item runs once. REPEAT: when the thread of an item seems to have been stopped, a waiting thread computes
   the item again. Then `work` may write shared memory only after `pool_wins`, and its inputs may change while `work`
   computes what nobody will use. */
typedef enum { ONCE, REPEAT } pool_kind;

/* Inside a job: run `work` for the items 0 to `count` - 1, which are divided among the threads. Returns when all items
   are finished. `count` is below 2^20. */
void pool_phase(pool_thread *self, int count, pool_kind kind, pool_work *work, const void *context);

/* Whether this thread may write the results of the item; true for one thread only. That thread must write at once. */
bool pool_wins(pool_item *item);

/* Whether another thread has written the results, so that this thread may give up. */
bool pool_lost(const pool_item *item);

/* Division of `count` small pieces of work, such as tokens, into items: the number of items, and the pieces of an item. */
typedef struct { int first, last; } pool_range;
int pool_shares(const pool_thread *self, int count);
pool_range pool_share(const pool_item *item, int count);

/* A profile of jobs, by kind of work: PRODUCTS of the layers, HEAD: the product of the head. An operation is an addition
   or a multiplication. */
enum { PRODUCTS, HEAD, ATTENTION, REST, KINDS };
typedef struct { double seconds[KINDS], operations[KINDS]; } pool_profile;

/* Whether this thread writes the profile: no thread, or the caller's. */
bool pool_profiles(const pool_thread *self);

/* Inside a job: the time since the last call, or since the job began, was work of this kind. */
void pool_lap(pool_thread *self, int kind, double operations);
