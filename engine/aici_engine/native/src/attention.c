/* Sixteen keys after the other with a running maximum, eight rows at once (a row: one query of one head). Where a block of
   keys begins depends on the sequence alone, so a row's result does not depend on how the prompt was cut. */
#include "attention.h"

#include "simd.h"

enum { ROWS = 8, MAX_WIDTH = 256, BLOCK = LANES };

INLINE f32x16 load_as(const void *base, size_t at, const int format) {
  if (format == F32) return load((const float *)base + at);
  if (format == BF16) return load_bf16((const uint16_t *)base + at);
  return load_f16((const uint16_t *)base + at);
}

static void put(void *base, size_t at, int format, float x) {
  if (format == F32) {
    ((float *)base)[at] = x;
  } else if (format == BF16) {
    ((uint16_t *)base)[at] = to_bf16(splat(x))[0];
  } else {
    const _Float16 half = (_Float16)x;
    memcpy((uint16_t *)base + at, &half, sizeof half);
  }
}

static size_t keys_at(const kv_cache *c, int page, int offset, int head) {
  const size_t block = (size_t)page * (size_t)(c->page_size / BLOCK) + (size_t)(offset / BLOCK);
  return (block * (size_t)c->heads + (size_t)head) * (size_t)c->width * BLOCK;
}

static size_t values_at(const kv_cache *c, int page, int offset, int head) {
  return keys_at(c, page, offset, head) + (size_t)(offset % BLOCK * c->width);
}

void kv_write(const kv_cache *c, int page, int offset, const float *keys, const float *values) {
  for (int head = 0; head < c->heads; head++) {
    const size_t key = keys_at(c, page, offset, head) + (size_t)(offset % BLOCK), value = values_at(c, page, offset, head);
    for (int d = 0; d < c->width; d++) {
      put(c->keys, key + (size_t)d * BLOCK, c->format, *keys++);
      put(c->values, value + (size_t)d, c->format, *values++);
    }
  }
}

INLINE void fetch(const void *base, size_t at, const int format) {
  __builtin_prefetch((const char *)base + at * (format == F32 ? 4 : 2));
}

typedef struct {
  const kv_cache *cache;
  const int32_t *pages;
  int head, group, window, start;
  float cap;
  const float *queries;
  int stride;
  float *out;
  int out_stride;
} piece;

/* Rows `row` to `row + count - 1` of a chunk and a head of keys; row r is query r / group, head r % group. */
INLINE void attend_rows(const piece *p, int row, const int count, const int format) {
  const kv_cache *c = p->cache;
  const int width = c->width;
  float sums[ROWS][MAX_WIDTH], weights[ROWS][BLOCK], most[ROWS], total[ROWS];
  const float *query[ROWS];
  int position[ROWS];
  for (int i = 0; i < count; i++) {
    const int token = (row + i) / p->group, head = p->head * p->group + (row + i) % p->group;
    query[i] = p->queries + (size_t)token * (size_t)p->stride + (size_t)head * (size_t)width;
    position[i] = p->start + token;
    most[i] = -INFINITY;
    total[i] = 0;
    memset(sums[i], 0, (size_t)width * 4);
  }
  const int last = position[count - 1];
  const int begin = p->window && position[0] >= p->window ? (position[0] - p->window + 1) / BLOCK * BLOCK : 0;
  const i32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  for (int at = begin; at <= last; at += BLOCK) {
    const int page = p->pages[at / c->page_size], offset = at % c->page_size;
    const size_t keys = keys_at(c, page, offset, p->head);
    /* The block that comes next is asked for bit by bit: pages lie anywhere, so the processor does not guess it. Whole
       rows of a prompt's queries compute for so long that it comes in time by itself. */
    const int later = at + BLOCK <= last ? at + BLOCK : at;
    const size_t next_keys = keys_at(c, p->pages[later / c->page_size], later % c->page_size, p->head);
    /* Two sums each: one alone would wait for itself. */
    f32x16 score[ROWS] = {}, odd[ROWS] = {};
    for (int d = 0; d < width; d += 2) {
      const f32x16 key = load_as(c->keys, keys + (size_t)d * BLOCK, format);
      const f32x16 next = load_as(c->keys, keys + (size_t)(d + 1) * BLOCK, format);
      if (count < ROWS) fetch(c->keys, next_keys + (size_t)d * BLOCK, format);
      for (int i = 0; i < count; i++) score[i] = fma16(key, splat(query[i][d]), score[i]);
      for (int i = 0; i < count; i++) odd[i] = fma16(next, splat(query[i][d + 1]), odd[i]);
    }
    for (int i = 0; i < count; i++) {
      score[i] += odd[i];
      if (p->cap > 0) score[i] = tanh16(score[i] / p->cap) * p->cap;
      /* What was never written may be anything, NaN too: it is replaced, not added to. */
      i32x16 seen = at + lane <= position[i];
      if (p->window) seen &= at + lane > position[i] - p->window;
      score[i] = (f32x16)(((i32x16)score[i] & seen) | ((i32x16)splat(-INFINITY) & ~seen));
      const float high = hmax16(score[i]);
      if (high > most[i]) {
        const float shrink = exp16(splat(most[i] - high))[0];
        most[i] = high;
        total[i] *= shrink;
        for (int d = 0; d < width; d += LANES) store(sums[i] + d, load(sums[i] + d) * shrink);
      }
      /* Nothing was seen yet: -infinity less -infinity is no number. */
      const f32x16 weight = most[i] == -INFINITY ? (f32x16){} : exp16(score[i] - most[i]);
      total[i] += sum16(weight);
      store(weights[i], weight);
    }
    const int count_keys = last - at + 1 < BLOCK ? last - at + 1 : BLOCK;
    
    for (int d = 0; d < width; d += LANES) {
      f32x16 sum[ROWS];
      for (int i = 0; i < count; i++) sum[i] = load(sums[i] + d);
      for (int j = 0; j < count_keys; j++) {
        const f32x16 value = load_as(c->values, keys + (size_t)(j * width + d), format);
        if (count < ROWS) fetch(c->values, next_keys + (size_t)(j * width + d), format);
        for (int i = 0; i < count; i++) sum[i] = fma16(value, splat(weights[i][j]), sum[i]);
      }
      for (int i = 0; i < count; i++) store(sums[i] + d, sum[i]);
    }
  }
  for (int i = 0; i < count; i++) {
    const int token = (row + i) / p->group, head = p->head * p->group + (row + i) % p->group;
    float *out = p->out + (size_t)token * (size_t)p->out_stride + (size_t)head * (size_t)width;
    for (int d = 0; d < width; d += LANES) store(out + d, load(sums[i] + d) / total[i]);
  }
}

static void attend_some(const piece *p, int row, int count) {
  switch (p->cache->format * 16 + count) {
#define CASE(format, count) case format * 16 + count: attend_rows(p, row, count, format); break;
#define CASES(format)                                                                                                  \
  CASE(format, 1) CASE(format, 2) CASE(format, 3) CASE(format, 4)                                                      \
  CASE(format, 5) CASE(format, 6) CASE(format, 7) CASE(format, 8)
    CASES(F32) CASES(BF16) CASES(F16)
  }
}

void attend(aici_pool *pool, const kv_cache *cache, const aici_batch *batch, const float *queries, int stride, int group,
            int window, float cap, float *out, int out_stride) {
  /* A piece: up to ROWS rows of a chunk and a head of keys. All threads count them in the same order. */
  int mine = pool_take(pool, 1), number = 0;
  for (int chunk = batch->num_chunks - 1; chunk >= 0; chunk--) { /* prompts stand last, and take longest */
    const int first = batch->first[chunk], rows = (batch->first[chunk + 1] - first) * group;
    const int pieces = (rows + ROWS - 1) / ROWS * cache->heads;
    for (; mine < number + pieces; mine = pool_take(pool, 1)) {
      const int row = (mine - number) / cache->heads * ROWS;
      const piece p = {
          .cache = cache, .pages = batch->pages + batch->page_at[chunk], .head = (mine - number) % cache->heads,
          .group = group, .window = window, .cap = cap, .start = batch->start[chunk],
          .queries = queries + (size_t)first * (size_t)stride, .stride = stride,
          .out = out + (size_t)first * (size_t)out_stride, .out_stride = out_stride};
      attend_some(&p, row, rows - row < ROWS ? rows - row : ROWS);
    }
    number += pieces;
  }
}
