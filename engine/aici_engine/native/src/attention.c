/* A block of keys after the other with a running maximum, several rows at once (a row: one query of one head). Where a
   block begins depends on the sequence alone, and each row's sums are added up in the order of the numbers and of the keys:
   a row's result depends neither on its company nor on how the prompt was cut. */
#include "attention.h"

#include "simd.h"

enum { MAX_WIDTH = 256, BLOCK = 64, TILES = BLOCK / LANES };
/* Accumulators: of so many rows, by two vectors, or by four where the rows are few. */
#if defined(__AVX512F__)
enum { ROWS = 8, FEW = 4, WIDE = 4, NARROW = 2 };
#else
enum { ROWS = 4, FEW = 2, WIDE = 2, NARROW = 1 };
#endif

INLINE size_t size_of(const int format) { return format == F32 ? 4 : 2; }

INLINE f32x16 load_as(const char *p, const int format) {
  return format == F32 ? load((const float *)(const void *)p) : load_f16(p);
}

/* A tile: sixteen keys or values of a head. */
static size_t tile_at(const kv_cache *c, int page, int offset, int head) {
  const size_t tile = (size_t)page * (size_t)(c->page_size / LANES) + (size_t)(offset / LANES);
  return (tile * (size_t)c->heads + (size_t)head) * (size_t)c->width * LANES;
}

void kv_write(const kv_cache *c, int page, int offset, const float *keys, const float *values) {
  const int lane = offset % LANES, width = c->width;
  for (int head = 0; head < c->heads; head++, keys += width, values += width) {
    const size_t at = tile_at(c, page, offset, head);
    for (int d = 0; d < width; d++) {
      if (c->format == F32) {
        ((float *)c->keys)[at + (size_t)(d * LANES + lane)] = keys[d];
        ((float *)c->values)[at + (size_t)(lane * width + d)] = values[d];
      } else if (c->format == BF16) {
        ((uint16_t *)c->keys)[at + (size_t)((d & ~1) * LANES + 2 * lane + d % 2)] = to_bf16(splat(keys[d]))[0];
        ((uint16_t *)c->values)[at + (size_t)((lane & ~1) * width + 2 * d + lane % 2)] = to_bf16(splat(values[d]))[0];
      } else {
        ((_Float16 *)c->keys)[at + (size_t)(d * LANES + lane)] = (_Float16)keys[d];
        ((_Float16 *)c->values)[at + (size_t)(lane * width + d)] = (_Float16)values[d];
      }
    }
  }
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

typedef struct { const char *keys[TILES], *values[TILES]; } block;

/* The block that begins at position `at`. Tiles behind that of `last` are that one: they may not be there. */
INLINE block find(const piece *p, int at, int last, const int format) {
  block b;
  for (int t = 0; t < TILES; t++, at += LANES) {
    const int position = at < last ? at : last;
    const size_t tile = tile_at(p->cache, p->pages[position / p->cache->page_size], position % p->cache->page_size, p->head);
    b.keys[t] = (const char *)p->cache->keys + tile * size_of(format);
    b.values[t] = (const char *)p->cache->values + tile * size_of(format);
  }
  return b;
}

/* What a row needs of its query and weights: floats, or for bf16 what dot_bf16 reads. */
typedef union { float floats[MAX_WIDTH]; narrow narrow[MAX_WIDTH]; } operand;

INLINE void take_in(operand *to, const float *from, int n, const int format) {
  for (int i = 0; i < n; i += LANES) {
    if (format == BF16) store_narrow(to->narrow + i, load(from + i));
    else store(to->floats + i, load(from + i));
  }
}

/* The block that comes next is asked for bit by bit: pages lie anywhere, so the processor does not guess it. Whole rows of
   a prompt's queries compute for so long that it comes in time by itself. */

/* Scores of the block's tiles t to t + tiles - 1. */
INLINE void score(const block *now, const block *next, int t, const operand *query, int width, const int count,
                  const int tiles, const int format, float scores[][BLOCK]) {
  f32x16 sum[ROWS][WIDE] = {};
  for (int d = 0; d < width; d += format == BF16 ? 2 : 1) {
    const size_t at = (size_t)(d * LANES) * size_of(format);
    for (int u = 0; u < tiles; u++) {
      if (count < ROWS) __builtin_prefetch(next->keys[t + u] + at);
    }
    if (format == BF16) {
      u32x16 key[WIDE];
      for (int u = 0; u < tiles; u++) memcpy(&key[u], now->keys[t + u] + at, sizeof key[u]);
      for (int i = 0; i < count; i++)
        for (int u = 0; u < tiles; u++) sum[i][u] = dot_bf16(sum[i][u], key[u], query[i].narrow + d);
    } else {
      f32x16 key[WIDE];
      for (int u = 0; u < tiles; u++) key[u] = load_as(now->keys[t + u] + at, format);
      for (int i = 0; i < count; i++)
        for (int u = 0; u < tiles; u++) sum[i][u] = fma16(key[u], splat(query[i].floats[d]), sum[i][u]);
    }
  }
  for (int i = 0; i < count; i++)
    for (int u = 0; u < tiles; u++) store(scores[i] + (t + u) * LANES, sum[i][u]);
}

/* Adds the block's first `keys` values, each by its weight, to `vectors` vectors of each row's sums. */
INLINE void add_values(const block *now, const block *next, int d, const operand *weights, int keys, int width,
                       const int count, const int vectors, const int format, float sums[][MAX_WIDTH]) {
  f32x16 sum[ROWS][WIDE];
  for (int i = 0; i < count; i++)
    for (int u = 0; u < vectors; u++) sum[i][u] = load(sums[i] + d + u * LANES);
  for (int t = 0; t * LANES < keys; t++) {
    const int left = keys - t * LANES < LANES ? keys - t * LANES : LANES;
    for (int j = 0; j < left; j += format == BF16 ? 2 : 1) {
      const int step = format == BF16 ? 2 : 1;
      for (int u = 0; u < vectors; u++) {
        const size_t at = (size_t)(j * width + (d + u * LANES) * step) * size_of(format);
        if (count < ROWS) __builtin_prefetch(next->values[t] + at);
        if (format == BF16) {
          u32x16 value;
          memcpy(&value, now->values[t] + at, sizeof value);
          /* What was never written may be anything, NaN too. */
          if (j + 1 == left) value &= 0xffff;
          for (int i = 0; i < count; i++) sum[i][u] = dot_bf16(sum[i][u], value, weights[i].narrow + t * LANES + j);
        } else {
          const f32x16 value = load_as(now->values[t] + at, format);
          for (int i = 0; i < count; i++) sum[i][u] = fma16(value, splat(weights[i].floats[t * LANES + j]), sum[i][u]);
        }
      }
    }
  }
  for (int i = 0; i < count; i++)
    for (int u = 0; u < vectors; u++) store(sums[i] + d + u * LANES, sum[i][u]);
}

typedef struct { f32x16 total; float most; int position; } row_state;

/* Scores become weights; what was summed up so far shrinks when there is a new maximum. */
INLINE void weigh(const piece *p, int at, int tiles, float *scores, row_state *row, float *sums) {
  const i32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const int from = p->window && row->position >= p->window ? row->position - p->window + 1 : 0;
  f32x16 high = splat(-INFINITY);
  for (int t = 0; t < tiles; t++) {
    f32x16 x = load(scores + t * LANES);
    if (p->cap > 0) x = tanh16(x / p->cap) * p->cap;
    /* What was never written may be anything, NaN too: it is replaced, not added to. */
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
    for (int d = 0; d < p->cache->width; d += LANES) store(sums + d, load(sums + d) * shrink);
  }
  for (int t = 0; t < tiles; t++) {
    /* Nothing was seen yet: -infinity less -infinity is no number. */
    const f32x16 x = row->most == -INFINITY ? (f32x16){} : exp16(load(scores + t * LANES) - row->most);
    row->total += x;
    store(scores + t * LANES, x);
  }
}

/* Rows `row` to `row + count - 1` of a chunk and a head of keys; row r is query r / group, head r % group. */
INLINE void attend_rows(const piece *p, int row, const int count, const int format) {
  const int width = p->cache->width, vectors = count <= FEW ? WIDE : NARROW;
  float sums[ROWS][MAX_WIDTH], scores[ROWS][BLOCK];
  operand query[ROWS], weights[ROWS];
  row_state rows[ROWS];
  for (int i = 0; i < count; i++) {
    const int token = (row + i) / p->group, head = p->head * p->group + (row + i) % p->group;
    take_in(&query[i], p->queries + (size_t)token * (size_t)p->stride + (size_t)head * (size_t)width, width, format);
    rows[i] = (row_state){.most = -INFINITY, .position = p->start + token};
    memset(sums[i], 0, (size_t)width * 4);
  }
  const int first = rows[0].position, last = rows[count - 1].position;
  int at = p->window && first >= p->window ? (first - p->window + 1) / BLOCK * BLOCK : 0;
  block now, next = find(p, at, last, format);
  for (; at <= last; at += BLOCK) {
    now = next;
    if (at + BLOCK <= last) next = find(p, at + BLOCK, last, format);
    const int keys = last - at + 1 < BLOCK ? last - at + 1 : BLOCK, tiles = (keys + LANES - 1) / LANES;
    for (int t = 0; t < tiles; t += vectors) score(&now, &next, t, query, width, count, vectors, format, scores);
    for (int i = 0; i < count; i++) {
      weigh(p, at, tiles, scores[i], &rows[i], sums[i]);
      take_in(&weights[i], scores[i], tiles * LANES, format);
    }
    int d = 0;
    for (; d + vectors * LANES <= width; d += vectors * LANES)
      add_values(&now, &next, d, weights, keys, width, count, vectors, format, sums);
    for (; d < width; d += LANES) add_values(&now, &next, d, weights, keys, width, count, 1, format, sums);
  }
  for (int i = 0; i < count; i++) {
    const int token = (row + i) / p->group, head = p->head * p->group + (row + i) % p->group;
    float *out = p->out + (size_t)token * (size_t)p->out_stride + (size_t)head * (size_t)width;
    const float total = sum16(rows[i].total);
    for (int d = 0; d < width; d += LANES) store(out + d, load(sums[i] + d) / total);
  }
}

static void attend_some(const piece *p, int row, int count) {
  switch (p->cache->format * 16 + count) {
#define CASE(format, count) case format * 16 + count: attend_rows(p, row, count, format); break;
#define CASES(format)                                                                                                  \
  CASE(format, 1) CASE(format, 2) CASE(format, 3) CASE(format, 4)
    CASES(F32) CASES(BF16) CASES(F16)
#if defined(__AVX512F__)
#define MORE(format) CASE(format, 5) CASE(format, 6) CASE(format, 7) CASE(format, 8)
    MORE(F32) MORE(BF16) MORE(F16)
#endif
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
