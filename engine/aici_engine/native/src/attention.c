/* Attention with an online softmax: block of keys by block of keys, with a running maximum, for several rows at once. A
   row is one query of one head. Invariant: the result of a row does not depend, to the last bit, on other rows or on
   the split of the prompt into chunks. Therefore blocks begin at fixed positions of the sequence, and every sum has a
   fixed order. */
#include "attention_rows.h"

/* Numbers per lane of four bytes. */
INLINE int in_lane(const int format) { return format == BF16 ? 2 : 1; }

/* Offset, in lanes, of a tile: sixteen keys (or values) of one head. */
static size_t tile_at(const kv_cache *c, int page, int offset, int head) {
  const size_t tile = (size_t)page * (size_t)(c->page_size / LANES) + (size_t)(offset / LANES);
  return (tile * (size_t)c->num_kv_heads + (size_t)head) * (size_t)(c->head_dim * LANES / in_lane(c->format));
}

/* Sixteen at once: `to_bf16` for one number would convert sixteen too. */
INLINE void store_bf16(uint16_t *to, f32x16 x) {
  const u16x16 v = to_bf16(x);
  memcpy(to, &v, sizeof v);
}

void kv_write(const kv_cache *c, int page, int offset, const float *keys, const float *values) {
  if (c->format == INT8) {
    kv_write_int8(c, page, offset, keys, values);
    return;
  }
  const int own = offset % LANES, head_dim = c->head_dim;
  for (int head = 0; head < c->num_kv_heads; head++) {
    const size_t at = tile_at(c, page, offset, head);
    if (c->format == F32) {
      float *key = (float *)c->keys + at + own, *value = (float *)c->values + at + own * head_dim;
      for (int d = 0; d < head_dim; d++) key[d * LANES] = *keys++;
      for (int d = 0; d < head_dim; d++) value[d] = *values++;
    } else {
      uint16_t *key = (uint16_t *)c->keys + 2 * (at + (size_t)own);
      uint16_t *value = (uint16_t *)c->values + 2 * (at + (size_t)(own / 2 * head_dim)) + own % 2;
      uint16_t rounded[2][MAX_HEAD_DIM];
      for (int d = 0; d < head_dim; d += LANES, keys += LANES, values += LANES) {
        store_bf16(rounded[0] + d, load(keys));
        store_bf16(rounded[1] + d, load(values));
      }
      for (int d = 0; d < head_dim; d++) key[d / 2 * 2 * LANES + d % 2] = rounded[0][d];
      for (int d = 0; d < head_dim; d++) value[2 * d] = rounded[1][d];
    }
  }
}

typedef struct { const uint32_t *keys[TILES], *values[TILES]; } block;

/* Find the block at position `at`. Tiles after the tile of `last` may not exist: the tile of `last` replaces them. */
INLINE block find(const work_item *p, int at, int last) {
  const kv_cache *c = p->cache;
  block b;
  for (int t = 0; t < TILES; t++, at += LANES) {
    const int position = at < last ? at : last;
    const size_t tile = tile_at(c, p->pages[position / c->page_size], position % c->page_size, p->head);
    b.keys[t] = (const uint32_t *)c->keys + tile;
    b.values[t] = (const uint32_t *)c->values + tile;
  }
  return b;
}

/* The left operand of a product with the cache: the query of a row, or the attention weights of a row. */
typedef union { float floats[MAX_HEAD_DIM]; narrow narrow[MAX_HEAD_DIM]; } operand;

INLINE void store_operand(operand *to, int index, f32x16 x, const int format) {
  if (format == F32) store(to->floats + index, x);
  else store_narrow(to->narrow + index, x);
}

/* Add to vector u of the sums of `count` rows: lanes of the cache times number (or pair) `index` of the rows' operands. */
INLINE void multiply(f32x16 (*sum)[MOST], int u, const int count, u32x16 lanes, const operand *a, int index,
                     const int format) {
#if !defined(__AVX512BF16__)
  if (format == BF16) { /* dot_bf16, with independent additions side by side */
    const f32x16 second = (f32x16)(lanes & 0xffff0000u), first = (f32x16)(lanes << 16);
    for (int i = 0; i < count; i++) sum[i][u] = fma16(second, splat(a[i].narrow[2 * index + 1]), sum[i][u]);
    for (int i = 0; i < count; i++) sum[i][u] = fma16(first, splat(a[i].narrow[2 * index]), sum[i][u]);
    return;
  }
#endif
  for (int i = 0; i < count; i++)
    sum[i][u] = format == F32 ? fma16((f32x16)lanes, splat(a[i].floats[index]), sum[i][u])
                              : dot_bf16(sum[i][u], lanes, a[i].narrow + 2 * index);
}

INLINE u32x16 load_lanes(const uint32_t *p) { u32x16 v; memcpy(&v, p, sizeof v); return v; }

/* `score` and `add_values` prefetch the next block piece by piece: pages are scattered, so the processor cannot predict
   the addresses. The target is the second-level cache, since the first level accepts only few requests at a time. */

/* Scores of `count` queries with the keys of `tiles` tiles. */
INLINE void score(const uint32_t *const *keys, const uint32_t *const *next, const operand *query, int head_dim,
                  const int count, const int tiles, const int format, float (*scores)[BLOCK], int to) {
  f32x16 sum[ROWS][MOST] = {};
  for (int k = 0; k < head_dim / in_lane(format); k++) {
    for (int u = 0; u < tiles; u++) __builtin_prefetch(next[u] + k * LANES, 0, 2);
    for (int u = 0; u < tiles; u++) multiply(sum, u, count, load_lanes(keys[u] + k * LANES), query, k, format);
  }
  for (int i = 0; i < count; i++)
    for (int u = 0; u < tiles; u++) store(scores[i] + to + u * LANES, sum[i][u]);
}

/* Add the first `keys` values of the block, times their weights, to the sums: `vectors` vectors per row, from dimension
   d. */
INLINE void add_values(const block *now, const block *next, const operand *weights, int keys, int head_dim, const int count,
                       const int vectors, const int format, float (*sums)[MAX_HEAD_DIM], int d) {
  f32x16 sum[ROWS][MOST];
  for (int i = 0; i < count; i++)
    for (int u = 0; u < vectors; u++) sum[i][u] = load(sums[i] + d + u * LANES);
  for (int k = 0; k < keys; k += in_lane(format)) {
    const int at = k % LANES / in_lane(format) * head_dim + d;
    for (int u = 0; u < vectors; u++) {
      u32x16 value = load_lanes(now->values[k / LANES] + at + u * LANES);
      __builtin_prefetch(next->values[k / LANES] + at + u * LANES, 0, 2);
      /* Mask out the second value of the pair: memory that was never written can hold NaN. */
      if (format == BF16 && k + 1 == keys) value &= 0xffff;
      multiply(sum, u, count, value, weights, k / in_lane(format), format);
    }
  }
  for (int i = 0; i < count; i++)
    for (int u = 0; u < vectors; u++) store(sums[i] + d + u * LANES, sum[i][u]);
}

/* Convert scores to the weights of the values. */
INLINE void weigh(const work_item *p, int at, int tiles, float *scores, row_state *row, float *sums, operand *weights,
                  const int format) {
  soften(p, at, tiles, scores, row, sums);
  for (int t = 0; t < tiles; t++) store_operand(weights, t * LANES, load(scores + t * LANES), format);
}

/* Attention of rows `row` to `row + count - 1` of a chunk, for one key head. Row r is query r / queries_per_kv of the
   chunk and query head r % queries_per_kv of the key head. */
INLINE void attend_rows(const work_item *p, int row, const int count, const int format, pool_item *item) {
  const int head_dim = p->cache->head_dim, vectors = 2 * count <= ROWS ? MOST : FEWEST;
  float sums[ROWS][MAX_HEAD_DIM], scores[ROWS][BLOCK];
  operand query[ROWS], weights[ROWS];
  row_state rows[ROWS];
  for (int i = 0; i < count; i++) {
    const int token = (row + i) / p->queries_per_kv, head = p->head * p->queries_per_kv + (row + i) % p->queries_per_kv;
    const float *own = p->queries + (size_t)token * (size_t)p->stride + (size_t)head * (size_t)head_dim;
    for (int d = 0; d < head_dim; d += LANES) store_operand(&query[i], d, load(own + d), format);
    rows[i] = (row_state){.most = -INFINITY, .position = p->start + token};
    memset(sums[i], 0, (size_t)head_dim * 4);
  }
  const int first = rows[0].position, last = rows[count - 1].position;
  int at = p->window && first >= p->window ? (first - p->window + 1) / BLOCK * BLOCK : 0;
  block now, next = find(p, at, last);
  for (; at <= last; at += BLOCK) {
    if (pool_lost(item)) return;
    now = next;
    if (at + BLOCK <= last) next = find(p, at + BLOCK, last);
    const int keys = last - at + 1 < BLOCK ? last - at + 1 : BLOCK, tiles = (keys + LANES - 1) / LANES;
    for (int t = 0; t < tiles; t += vectors)
      score(now.keys + t, next.keys + t, query, head_dim, count, vectors, format, scores, t * LANES);
    for (int i = 0; i < count; i++) weigh(p, at, tiles, scores[i], &rows[i], sums[i], &weights[i], format);
    int d = 0;
    for (; d + vectors * LANES <= head_dim; d += vectors * LANES)
      add_values(&now, &next, weights, keys, head_dim, count, vectors, format, sums, d);
    for (; d < head_dim; d += LANES) add_values(&now, &next, weights, keys, head_dim, count, 1, format, sums, d);
  }
  if (!pool_wins(item)) return;
  for (int i = 0; i < count; i++) {
    const int token = (row + i) / p->queries_per_kv, head = p->head * p->queries_per_kv + (row + i) % p->queries_per_kv;
    float *out = p->out + (size_t)token * (size_t)p->out_stride + (size_t)head * (size_t)head_dim;
    const float total = sum16(rows[i].total);
    for (int d = 0; d < head_dim; d += LANES) store(out + d, load(sums[i] + d) / total);
  }
}

static void attend_some(const work_item *p, int row, int count, pool_item *item) {
  if (p->cache->format == INT8) {
    attend_rows_int8(p, row, count, item);
    return;
  }
  switch (p->cache->format * 16 + count) {
#define CASE(format, count) case format * 16 + count: attend_rows(p, row, count, format, item); break;
#define CASES(format)                                                                                                  \
  CASE(format, 1) CASE(format, 2) CASE(format, 3) CASE(format, 4)
    CASES(F32) CASES(BF16)
#if defined(__AVX2__)
    CASE(F32, 5) CASE(BF16, 5)
#endif
#if defined(__AVX512F__)
#define MORE(format) CASE(format, 6) CASE(format, 7) CASE(format, 8)
    MORE(F32) MORE(BF16)
#endif
  }
}

typedef struct {
  const kv_cache *cache;
  const aici_batch *batch;
  work_item all; /* what all items share */
} layer_attention;

/* Items of a chunk: up to ROWS rows, for one key head. */
static int chunk_items(const layer_attention *a, int chunk) {
  const int rows = (a->batch->query_starts[chunk + 1] - a->batch->query_starts[chunk]) * a->all.queries_per_kv;
  return (rows + ROWS - 1) / ROWS * a->cache->num_kv_heads;
}

static void attend_item(const void *context, pool_item *item) {
  const layer_attention *a = context;
  const aici_batch *batch = a->batch;
  int chunk = batch->num_chunks - 1, number = item->number; /* prompts are last and take longest: they are first here */
  for (int items; number >= (items = chunk_items(a, chunk)); chunk--) number -= items;
  const int first = batch->query_starts[chunk], rows = (batch->query_starts[chunk + 1] - first) * a->all.queries_per_kv;
  const int row = number / a->cache->num_kv_heads * ROWS;
  work_item p = a->all;
  p.pages = batch->pages + batch->page_starts[chunk];
  p.head = number % a->cache->num_kv_heads;
  p.start = batch->start_positions[chunk];
  p.queries += (size_t)first * (size_t)p.stride;
  p.out += (size_t)first * (size_t)p.out_stride;
  attend_some(&p, row, rows - row < ROWS ? rows - row : ROWS, item);
}

void attend(pool_thread *self, const kv_cache *cache, const aici_batch *batch, const float *queries, int stride,
            int queries_per_kv, int window, float softcap, float *out, int out_stride) {
  const layer_attention a = {
      cache, batch,
      {.cache = cache, .queries_per_kv = queries_per_kv, .window = window, .softcap = softcap, .queries = queries,
       .stride = stride, .out = out, .out_stride = out_stride}};
  int items = 0;
  for (int chunk = 0; chunk < batch->num_chunks; chunk++) items += chunk_items(&a, chunk);
  pool_phase(self, items, batch->num_tokens <= 4 * batch->num_chunks ? REPEAT : ONCE, attend_item, &a);
}
