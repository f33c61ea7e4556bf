/* A pool of threads that run one job together. */
#pragma once
#include <stdatomic.h>
#include <stdint.h>

typedef struct aici_pool aici_pool;
typedef void pool_job(aici_pool *pool, int thread, void *argument);

/* Run `job` on all threads; the caller is thread 0. Returns after all threads have finished. One caller at a time. */
void pool_run(aici_pool *pool, pool_job *job, void *argument);
int pool_size(const aici_pool *pool);

/* Inside a job: wait for all threads, then reset the counter of `pool_take`. */
void pool_barrier(aici_pool *pool);

/* Inside a job, between two barriers: take `count` work items; returns the number of the first item. */
int pool_take(aici_pool *pool, int count);
