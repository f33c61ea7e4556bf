/* Attention over pages, where they lie. */
#pragma once
#include "native.h"
#include "pool.h"

/* Which tokens a step computes: those of chunk c are `first[c]` to `first[c + 1] - 1`, at positions `start[c]`, ... of
   its sequence, whose pages are `pages[page_at[c]]`, ... */
typedef struct {
  int32_t num_tokens, num_chunks, num_logits;
  const int32_t *tokens;      /* (num_tokens) */
  const int32_t *first;       /* (num_chunks + 1) */
  const int32_t *start;       /* (num_chunks) */
  const int32_t *page_at;     /* (num_chunks) */
  const int32_t *pages;
  const int32_t *logit_rows;  /* (num_logits): tokens whose logits are wanted */
} aici_batch;

/* One layer's cache. A page has `page_size` tokens, a multiple of 16, and `heads` heads of `width` numbers, a multiple
   of 16. In it, keys lie as (page_size / 16, heads, width, 16), so that sixteen of them are scored at once, and values
   as (page_size / 16, heads, 16, width). `format`: F32; or BF16, in pairs that are multiplied at once: keys as
   (page_size / 16, heads, width / 2, 16, 2), values as (page_size / 16, heads, 8, width, 2). */
typedef struct {
  void *keys, *values;
  int32_t format, page_size, heads, width;
} kv_cache;

void kv_write(const kv_cache *cache, int page, int offset, const float *keys, const float *values);

/* `queries`, `out`: rows of a token, `stride` apart, (heads * group, width): `group` query heads share a head of keys;
   queries are scaled already. `window`: how many tokens each sees, itself too; 0 for all. `cap`: scores come no further
   than this from 0, through tanh; 0 for no such limit. Called by all threads of a job, with a barrier after it. */
void attend(aici_pool *pool, const kv_cache *cache, const aici_batch *batch, const float *queries, int stride, int group,
            int window, float cap, float *out, int out_stride);
