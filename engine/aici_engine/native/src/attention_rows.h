/* What attention over floats and attention over bytes share: the rows of an item, and the softmax. */
#pragma once
#include "attention.h"
#include "simd.h"

enum { MAX_HEAD_DIM = 256, BLOCK = 64, TILES = BLOCK / LANES };
/* Accumulators that fit the registers: FEWEST vectors for ROWS rows, MOST vectors for half as many rows. */
#if defined(__AVX512F__)
enum { ROWS = 8, FEWEST = 2, MOST = 4 };
#elif defined(__AVX2__)
enum { ROWS = 5, FEWEST = 1, MOST = 2 }; /* four rows would wait for their own additions, six rows would not fit */
#else
enum { ROWS = 4, FEWEST = 1, MOST = 2 };
#endif

/* Some rows of a chunk, for one key head. */
typedef struct {
  const kv_cache *cache;
  const int32_t *pages;
  int head, queries_per_kv, window, start;
  float softcap;
  const float *queries;
  int stride;
  float *out;
  int out_stride;
} work_item;

typedef struct { f32x16 total; float most; int position; } row_state;

/* Convert the scores of a block to weights, in place. A new maximum scales down the earlier sums. */
INLINE void soften(const work_item *p, int at, int tiles, float *scores, row_state *row, float *sums) {
  const i32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const int from = p->window && row->position >= p->window ? row->position - p->window + 1 : 0;
  f32x16 high = splat(-INFINITY);
  for (int t = 0; t < tiles; t++) {
    f32x16 x = load(scores + t * LANES);
    if (p->softcap > 0) x = tanh16(x / p->softcap) * p->softcap;
    /* Replace hidden scores instead of adding -infinity: memory that was never written can hold NaN. */
    const int first = at + t * LANES;
    if (first < from || first + LANES > row->position + 1) {
      const i32x16 seen = (first + lane <= row->position) & (first + lane >= from);
      x = (f32x16)(((i32x16)x & seen) | ((i32x16)splat(-INFINITY) & ~seen));
    }
    store(scores + t * LANES, x);
    high = max16(high, x);
  }
  const float most = hmax16(high);
  if (most > row->most) {
    const float shrink = exp16(splat(row->most - most))[0];
    row->most = most;
    row->total *= shrink;
    for (int d = 0; d < p->cache->head_dim; d += LANES) store(sums + d, load(sums + d) * shrink);
  }
  f32x16 total = row->total;
  for (int t = 0; t < tiles; t++) {
    /* No visible key yet: avoid -infinity minus -infinity. */
    const f32x16 x = row->most == -INFINITY ? (f32x16){} : exp16(load(scores + t * LANES) - row->most);
    total += x;
    store(scores + t * LANES, x);
  }
  row->total = total;
}

/* The forms for a cache of bytes. */
void kv_write_int8(const kv_cache *cache, int page, int offset, const float *keys, const float *values);
void attend_rows_int8(const work_item *p, int row, int count, pool_item *item);
