/* Attention alone, for models whose other parts run elsewhere. */
#include <stddef.h>

#include "attention.h"
#include "export.h"

typedef struct {
  const kv_cache *cache;
  const aici_batch *batch;
  const float *queries, *keys, *values;
  int32_t queries_per_kv, window;
  float softcap;
  float *out;
} aici_attention;

/* Write keys and values of a share of the tokens to the cache. */
static void write_item(const void *context, pool_item *item) {
  const aici_attention *a = context;
  const kv_cache *cache = a->cache;
  const aici_batch *batch = a->batch;
  const size_t row = (size_t)(cache->num_kv_heads * cache->head_dim);
  const pool_range own = pool_share(item, batch->num_tokens);
  for (int chunk = 0; chunk < batch->num_chunks; chunk++) {
    const int begin = batch->query_starts[chunk], end = batch->query_starts[chunk + 1];
    for (int t = begin > own.first ? begin : own.first; t < (end < own.last ? end : own.last); t++) {
      const int position = batch->start_positions[chunk] + t - begin;
      kv_write(cache, batch->pages[batch->page_starts[chunk] + position / cache->page_size], position % cache->page_size,
               a->keys + (size_t)t * row, a->values + (size_t)t * row);
    }
  }
}

static void run(pool_thread *self, void *argument) {
  const aici_attention *a = argument;
  const int stride = a->cache->num_kv_heads * a->queries_per_kv * a->cache->head_dim;
  pool_phase(self, pool_shares(self, a->batch->num_tokens), ONCE, write_item, a);
  attend(self, a->cache, a->batch, a->queries, stride, a->queries_per_kv, a->window, a->softcap, a->out, stride);
}

/* Attention of one layer. Dense arrays: scaled queries and `out` (tokens, num_kv_heads * queries_per_kv, head_dim),
   keys and values (tokens, num_kv_heads, head_dim). Arguments are not checked. `tokens` and `logit_rows` of the batch
   are not used. */
AICI_EXPORT void aici_attend(aici_pool *pool, aici_attention *attention) { pool_run(pool, run, attention); }
