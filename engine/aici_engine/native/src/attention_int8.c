/* Attention over keys and values in bytes. Sums of products are integers, so that all levels give the same bits: the
   query of a row is rounded to bytes for the scores, and the weights of a block for the values. A value's scale is
   multiplied into its weight first. The order of what is summed in floats is as in `attention.c`. */
#include "attention_rows.h"

enum { FOUR = 4 }; /* numbers that a lane multiplies at once */

/* Numbers rounded to -127 to 127. number = code * scale. */
typedef struct { int8_t codes[MAX_HEAD_DIM]; float scale; int32_t start; } bytes_row;

/* Round `count` numbers, a multiple of 16. NaN becomes the scale: the comparison of bit patterns ranks NaN above all
   numbers. `start`: the start of a sum of products with bytes of the cache. */
INLINE void to_bytes(const float *numbers, int count, bytes_row *to) {
  i32x16 high = {}, sum = {};
  for (int k = 0; k < count; k += LANES) high = __builtin_elementwise_max(high, (i32x16)load(numbers + k) & 0x7fffffff);
  const int32_t bits = imax16(high);
  float most;
  memcpy(&most, &bits, sizeof most);
  const float inverse = most > 0x1p-119f ? 127.0f / most : 0.0f; /* below, 127 / most would overflow */
  for (int k = 0; k < count; k += LANES) {
    const i32x16 code = __builtin_convertvector(__builtin_elementwise_roundeven(load(numbers + k) * inverse), i32x16);
    const i8x16 narrowed = __builtin_convertvector(code, i8x16);
    memcpy(to->codes + k, &narrowed, LANES);
    sum += code;
  }
  to->scale = most / 127.0f;
  to->start = wide_start(isum16(sum));
}

/* Offset, in bytes, of a tile: sixteen keys (or values) of one head, then their scales. */
static size_t tile_at(const kv_cache *c, int page, int offset, int head) {
  const size_t tile = (size_t)page * (size_t)(c->page_size / LANES) + (size_t)(offset / LANES);
  return (tile * (size_t)c->num_kv_heads + (size_t)head) * (size_t)((c->head_dim + (int)sizeof(float)) * LANES);
}

void kv_write_int8(const kv_cache *c, int page, int offset, const float *keys, const float *values) {
  const int own = offset % LANES, head_dim = c->head_dim;
  for (int head = 0; head < c->num_kv_heads; head++, keys += head_dim, values += head_dim) {
    const size_t at = tile_at(c, page, offset, head);
    uint8_t *key = (uint8_t *)c->keys + at, *value = (uint8_t *)c->values + at;
    bytes_row row;
    to_bytes(keys, head_dim, &row);
    memcpy(key + head_dim * LANES + own * (int)sizeof(float), &row.scale, sizeof row.scale);
    for (int d = 0; d < head_dim; d++) key[d / FOUR * FOUR * LANES + own * FOUR + d % FOUR] = (uint8_t)(row.codes[d] + 128);
    to_bytes(values, head_dim, &row);
    memcpy(value + head_dim * LANES + own * (int)sizeof(float), &row.scale, sizeof row.scale);
    for (int d = 0; d < head_dim; d++) value[(own / FOUR * head_dim + d) * FOUR + own % FOUR] = (uint8_t)(row.codes[d] + 128);
  }
}

INLINE u8x64 load_bytes(const uint8_t *p) { u8x64 v; memcpy(&v, p, sizeof v); return v; }
INLINE f32x16 load_scales(const uint8_t *p) { f32x16 v; memcpy(&v, p, sizeof v); return v; }

/* Multiply the weights of a block by the scales of the values, and round them. Hidden values have the weight 0: their
   scales may be anything. */
INLINE void round_weights(const float *weights, const uint8_t *const *values, int tiles, int head_dim, bytes_row *to) {
  float scaled[BLOCK];
  for (int t = 0; t < tiles; t++) {
    const f32x16 x = load(weights + t * LANES);
    const i32x16 counts = x != 0;
    store(scaled + t * LANES, (f32x16)((i32x16)(x * load_scales(values[t] + head_dim * LANES)) & counts));
  }
  to_bytes(scaled, tiles * LANES, to);
}

INLINE void attend_bytes(const work_item *p, int row, const int count, pool_item *item) {
  const kv_cache *c = p->cache;
  const int head_dim = c->head_dim;
  float sums[ROWS][MAX_HEAD_DIM], scores[ROWS][BLOCK];
  bytes_row query[ROWS], weights[ROWS];
  row_state rows[ROWS];
  for (int i = 0; i < count; i++) {
    const int token = (row + i) / p->queries_per_kv, head = p->head * p->queries_per_kv + (row + i) % p->queries_per_kv;
    to_bytes(p->queries + (size_t)token * (size_t)p->stride + (size_t)head * (size_t)head_dim, head_dim, &query[i]);
    rows[i] = (row_state){.most = -INFINITY, .position = p->start + token};
    memset(sums[i], 0, (size_t)head_dim * sizeof(float));
  }
  const int first = rows[0].position, last = rows[count - 1].position;
  int at = p->window && first >= p->window ? (first - p->window + 1) / BLOCK * BLOCK : 0;
  for (; at <= last; at += BLOCK) {
    if (pool_lost(item)) return;
    const int keys = last - at + 1 < BLOCK ? last - at + 1 : BLOCK, tiles = (keys + LANES - 1) / LANES;
    const uint8_t *values[TILES];
    for (int t = 0; t < tiles; t++) {
      const int position = at + t * LANES;
      const size_t tile = tile_at(c, p->pages[position / c->page_size], position % c->page_size, p->head);
      const uint8_t *key = (const uint8_t *)c->keys + tile;
      values[t] = (const uint8_t *)c->values + tile;
      i32x16 dots[ROWS];
      for (int i = 0; i < count; i++) dots[i] = (i32x16){} + query[i].start;
      for (int d = 0; d < head_dim; d += FOUR) {
        const u8x64 bytes = load_bytes(key + d * LANES);
        __builtin_prefetch(values[t] + d * LANES, 0, 2);
        for (int i = 0; i < count; i++) dots[i] = dot_wide(dots[i], bytes, query[i].codes + d);
      }
      const f32x16 scales = load_scales(key + head_dim * LANES);
      for (int i = 0; i < count; i++)
        store(scores[i] + t * LANES, __builtin_convertvector(dots[i], f32x16) * (scales * query[i].scale));
    }
    for (int i = 0; i < count; i++) {
      soften(p, at, tiles, scores[i], &rows[i], sums[i]);
      round_weights(scores[i], values, tiles, head_dim, &weights[i]);
    }
    for (int d = 0; d < head_dim; d += LANES) {
      i32x16 dots[ROWS];
      for (int i = 0; i < count; i++) dots[i] = (i32x16){} + weights[i].start;
      for (int k = 0; k < tiles * LANES; k += FOUR) {
        const u8x64 bytes = load_bytes(values[k / LANES] + (k % LANES / FOUR * head_dim + d) * FOUR);
        for (int i = 0; i < count; i++) dots[i] = dot_wide(dots[i], bytes, weights[i].codes + k);
      }
      for (int i = 0; i < count; i++)
        store(sums[i] + d, fma16(__builtin_convertvector(dots[i], f32x16), splat(weights[i].scale), load(sums[i] + d)));
    }
  }
  if (!pool_wins(item)) return;
  for (int i = 0; i < count; i++) {
    const int token = (row + i) / p->queries_per_kv, head = p->head * p->queries_per_kv + (row + i) % p->queries_per_kv;
    float *out = p->out + (size_t)token * (size_t)p->out_stride + (size_t)head * (size_t)head_dim;
    const float total = sum16(rows[i].total);
    for (int d = 0; d < head_dim; d += LANES) store(out + d, load(sums[i] + d) / total);
  }
}

void attend_rows_int8(const work_item *p, int row, int count, pool_item *item) {
  switch (count) {
#define ROWS_CASE(count) case count: attend_bytes(p, row, count, item); break;
    ROWS_CASE(1) ROWS_CASE(2) ROWS_CASE(3) ROWS_CASE(4)
#if defined(__AVX2__)
    ROWS_CASE(5)
#endif
#if defined(__AVX512F__)
    ROWS_CASE(6) ROWS_CASE(7) ROWS_CASE(8)
#endif
  }
}
