/* Threads that compute one job together. */
#pragma once
#include <stdatomic.h>
#include <stdint.h>

typedef struct aici_pool aici_pool;
typedef void pool_job(aici_pool *pool, int thread, void *argument);

/* Run `job` on all threads, the caller's as number 0; returns when all have done it. One caller at a time. */
void pool_run(aici_pool *pool, pool_job *job, void *argument);
int pool_size(const aici_pool *pool);

/* Inside a job: wait until every thread has come here. Work is handed out anew afterwards. */
void pool_barrier(aici_pool *pool);

/* Inside a job, between two barriers: the number of a piece of work that nobody else has. */
int pool_take(aici_pool *pool, int count);
