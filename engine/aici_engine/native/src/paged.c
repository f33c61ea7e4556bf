/* Attention alone, for models whose other parts run elsewhere. */
#include "attention.h"
#include "export.h"

typedef struct {
  const kv_cache *cache;
  const aici_batch *batch;
  const float *queries, *keys, *values;
  int32_t group, window;
  float cap;
  float *out;
} aici_attention;

/* Every thread writes the keys and values of its share of the tokens. */
static void write_keys(const aici_attention *a, int first, int last) {
  const kv_cache *cache = a->cache;
  const aici_batch *batch = a->batch;
  const size_t row = (size_t)(cache->heads * cache->width);
  for (int chunk = 0; chunk < batch->num_chunks; chunk++) {
    const int begin = batch->first[chunk], end = batch->first[chunk + 1];
    for (int t = begin > first ? begin : first; t < (end < last ? end : last); t++) {
      const int position = batch->start[chunk] + t - begin;
      kv_write(cache, batch->pages[batch->page_at[chunk] + position / cache->page_size], position % cache->page_size,
               a->keys + (size_t)t * row, a->values + (size_t)t * row);
    }
  }
}

static void run(aici_pool *pool, int thread, void *argument) {
  const aici_attention *a = argument;
  const int count = a->batch->num_tokens, threads = pool_size(pool);
  const int stride = a->cache->heads * a->group * a->cache->width;
  write_keys(a, count * thread / threads, count * (thread + 1) / threads);
  pool_barrier(pool);
  attend(pool, a->cache, a->batch, a->queries, stride, a->group, a->window, a->cap, a->out, stride);
}

/* Rows of a token stand without gaps: queries, scaled, and `out` (tokens, heads * group, width), keys and values
   (tokens, heads, width). Nothing is checked; of the batch, tokens and logit_rows are not used. */
AICI_EXPORT void aici_attend(aici_pool *pool, aici_attention *attention) { pool_run(pool, run, attention); }
