/* Matrix products, panel by panel: sixteen outputs for up to MR tokens at once. The weights of a panel come from memory
   once, and from the nearest cache for further tokens. Invariant: the order of additions for a token depends only on
   the matrix. */
#include "linear.h"

#include "simd.h"

/* Tokens of a register tile. */
#if defined(__AVX512F__)
#define MR 8 /* two accumulators per token, weights and scales fill most of the 32 registers */
#elif defined(__AVX2__)
#define MR 4
#else
#define MR 2
#endif
enum { GROUP = 32 };
/* Prefetch distances in bytes. With these distances, weights arrive 10 to 25 % sooner. With many tokens, the target is
   the second-level cache: the first level accepts only few requests at a time. */
enum { AHEAD = 4096, FAR_AHEAD = 8192 };

INLINE void fetch(const void *weights, const int count) {
  if (count > MR / 2) __builtin_prefetch((const char *)weights + FAR_AHEAD, 0, 2);
  else __builtin_prefetch((const char *)weights + AHEAD);
}

static size_t rounded(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

size_t activations_size(int tokens, int columns) {
  const size_t numbers = (size_t)tokens * (size_t)columns;
  return rounded(numbers * 4) + rounded(numbers) + 2 * rounded(numbers / GROUP * 4);
}

activations activations_at(char *memory, int tokens, int columns) {
  const size_t numbers = (size_t)tokens * (size_t)columns;
  activations a = {.columns = columns};
  a.floats = (float *)memory;
  a.narrow = memory;
  memory += rounded(numbers * 4);
  a.bytes = (int8_t *)memory;
  memory += rounded(numbers);
  a.scales = (float *)memory;
  memory += rounded(numbers / GROUP * 4);
  a.sums = memory;
  return a;
}

/* Largest magnitude. The comparison of bit patterns ranks NaN above all numbers, so that NaN becomes the scale of the
   group and is not lost. */
INLINE float most16(f32x16 a, f32x16 b) {
  const i32x16 bits = __builtin_elementwise_max((i32x16)a & 0x7fffffff, (i32x16)b & 0x7fffffff);
  const int32_t most = imax16(bits);
  float x;
  memcpy(&x, &most, sizeof x);
  return x;
}

void activate(const activations *to, int token, const float *from, int format) {
  const size_t at = (size_t)token * (size_t)to->columns;
  if (format == F32) {
    memcpy(to->floats + at, from, (size_t)to->columns * 4);
    return;
  }
  if (format == BF16) {
    for (int k = 0; k < to->columns; k += LANES) store_narrow((narrow *)to->narrow + at + k, load(from + k));
    return;
  }
  for (int k = 0; k < to->columns; k += GROUP) {
    const f32x16 a = load(from + k), b = load(from + k + LANES);
    const float most = most16(a, b), inverse = most > 0x1p-119f ? 127.0f / most : 0.0f; /* below: 127 / most would overflow */
    const i32x16 x = __builtin_convertvector(__builtin_elementwise_roundeven(a * inverse), i32x16);
    const i32x16 y = __builtin_convertvector(__builtin_elementwise_roundeven(b * inverse), i32x16);
    const i8x16 low = __builtin_convertvector(x, i8x16), high = __builtin_convertvector(y, i8x16);
    memcpy(to->bytes + at + k, &low, LANES);
    memcpy(to->bytes + at + k + LANES, &high, LANES);
    const size_t group = (at + (size_t)k) / GROUP;
    const float scale = most / 127.0f;
    const int32_t sum = isum16(x + y);
    to->scales[group] = scale;
    if (format == INT8) ((int32_t *)to->sums)[group] = wide_start(sum);
    if (format == INT4) ((float *)to->sums)[group] = scale * (float)sum;
  }
}

/* The panel functions compute tokens t to t + count - 1. */

INLINE void panel_f32(const float *w, const activations *x, int t, const int count, f32x16 *out) {
  const float *in = x->floats + (size_t)t * (size_t)x->columns;
  for (int k = 0; k < x->columns; k++) {
    const f32x16 v = load(w + (size_t)k * LANES);
    fetch(w + (size_t)k * LANES, count);
    for (int i = 0; i < count; i++) out[i] = fma16(v, splat(in[(size_t)i * (size_t)x->columns + (size_t)k]), out[i]);
  }
}

INLINE void panel_bf16(const uint32_t *w, const activations *x, int t, const int count, f32x16 *out) {
  const narrow *in = (const narrow *)x->narrow + (size_t)t * (size_t)x->columns;
  for (int k = 0; k < x->columns; k += 2, w += LANES) {
    u32x16 pairs;
    memcpy(&pairs, w, sizeof pairs);
    fetch(w, count);
    for (int i = 0; i < count; i++) out[i] = dot_bf16(out[i], pairs, in + (size_t)i * (size_t)x->columns + k);
  }
}

INLINE void panel_int8(const uint8_t *w, const uint16_t *scales, const activations *x, int t, const int count,
                       f32x16 *out) {
  const int groups = x->columns / GROUP;
  const int8_t *bytes = x->bytes + (size_t)t * (size_t)x->columns;
  const float *by = x->scales + (size_t)t * (size_t)groups;
  const int32_t *starts = (const int32_t *)x->sums + (size_t)t * (size_t)groups;
  for (int g = 0; g < groups; g++, w += GROUP * LANES, scales += LANES) {
    i32x16 sum[MR];
    for (int i = 0; i < count; i++) sum[i] = (i32x16){} + starts[i * groups + g];
    for (int j = 0; j < 8; j++) {
      u8x64 v;
      memcpy(&v, w + 64 * j, sizeof v);
      fetch(w + 64 * j, count);
      for (int i = 0; i < count; i++) sum[i] = dot_wide(sum[i], v, bytes + i * x->columns + g * GROUP + 4 * j);
    }
    const f32x16 scale = load_f16(scales);
    for (int i = 0; i < count; i++)
      out[i] = fma16(__builtin_convertvector(sum[i], f32x16), scale * by[i * groups + g], out[i]);
  }
}

INLINE void panel_int4(const uint8_t *w, const uint16_t *scales, const uint16_t *minimums, const activations *x, int t,
                       const int count, f32x16 *out) {
  const int groups = x->columns / GROUP;
  const int8_t *bytes = x->bytes + (size_t)t * (size_t)x->columns;
  const float *by = x->scales + (size_t)t * (size_t)groups;
  const float *sums = (const float *)x->sums + (size_t)t * (size_t)groups;
  for (int g = 0; g < groups; g++, w += GROUP * LANES / 2, scales += LANES, minimums += LANES) {
    small_sums sum[MR] = {};
    for (int j = 0; j < 4; j++) {
      u8x64 packed;
      memcpy(&packed, w + 64 * j, sizeof packed);
      fetch(w + 64 * j, count);
      /* Vectors have no shift of bytes: shift words, then mask the bits of the neighbour byte. */
      const u8x64 even = packed & 15, odd = (u8x64)((u32x16)packed >> 4) & 15;
      for (int i = 0; i < count; i++) {
        const int8_t *own = bytes + i * x->columns + g * GROUP + 8 * j;
        sum[i] = dot_small(dot_small(sum[i], even, own), odd, own + 4);
      }
    }
    const f32x16 scale = load_f16(scales), minimum = load_f16(minimums);
    for (int i = 0; i < count; i++) {
      out[i] = fma16(__builtin_convertvector(lanes_of(sum[i]), f32x16), scale * by[i * groups + g], out[i]);
      out[i] = fma16(minimum, splat(sums[i * groups + g]), out[i]);
    }
  }
}

/* Sums of a product before they are added to the output: (panels, tokens, 16). The thread that computes them may lose
   them to a faster thread, see pool.h. */
enum { TILE_PANELS = 256, TILE_TOKENS = 64, TILE = TILE_PANELS * LANES };

typedef struct {
  const aici_matrix *w;
  const activations *x;
  int tokens;
  float *y;
  int stride, add;
  int panels, blocks; /* panels of an item, blocks of TILE_TOKENS tokens */
} product;

INLINE void panel(const aici_matrix *w, int index, const activations *x, int t, const int count, float *to,
                  const int format) {
  f32x16 out[MR] = {};
  const size_t k = (size_t)w->columns, numbers = (size_t)index * k * LANES, groups = numbers / GROUP;
  if (format == F32) panel_f32((const float *)w->values + numbers, x, t, count, out);
  if (format == BF16) panel_bf16((const uint32_t *)w->values + numbers / 2, x, t, count, out);
  if (format == INT8) panel_int8((const uint8_t *)w->values + numbers, w->scales + groups, x, t, count, out);
  if (format == INT4)
    panel_int4((const uint8_t *)w->values + numbers / 2, w->scales + groups, w->minimums + groups, x, t, count, out);
  for (int i = 0; i < count; i++) {
    if (w->bias) out[i] += load(w->bias + (size_t)index * LANES);
    store(to + i * LANES, out[i]);
  }
}

INLINE void panel_of_tokens(const aici_matrix *w, int index, const activations *x, int t, int last, float *to,
                            const int format) {
  for (; t + MR <= last; t += MR, to += MR * LANES) panel(w, index, x, t, MR, to, format);
  switch (last - t) {
#if MR > 4
    case 7: panel(w, index, x, t, 7, to, format); break;
    case 6: panel(w, index, x, t, 6, to, format); break;
    case 5: panel(w, index, x, t, 5, to, format); break;
    case 4: panel(w, index, x, t, 4, to, format); break;
#endif
#if MR > 3
    case 3: panel(w, index, x, t, 3, to, format); break;
#endif
#if MR > 2
    case 2: panel(w, index, x, t, 2, to, format); break;
#endif
    case 1: panel(w, index, x, t, 1, to, format); break;
  }
}

static void compute_panel(const aici_matrix *w, int index, const activations *x, int t, int last, float *to) {
  switch (w->format) {
    case F32: panel_of_tokens(w, index, x, t, last, to, F32); break;
    case BF16: panel_of_tokens(w, index, x, t, last, to, BF16); break;
    case INT8: panel_of_tokens(w, index, x, t, last, to, INT8); break;
    case INT4: panel_of_tokens(w, index, x, t, last, to, INT4); break;
  }
}

static int least(int a, int b) { return a < b ? a : b; }

/* An item: some panels of one block of tokens. */
static void multiply_item(const void *context, pool_item *item) {
  const product *p = context;
  const int first = item->number / p->blocks * p->panels, last = least(first + p->panels, p->w->rows / LANES);
  const int t = item->number % p->blocks * TILE_TOKENS, tokens = least(p->tokens - t, TILE_TOKENS);
  float tile[TILE];
  for (int i = first; i < last; i++) {
    if (pool_lost(item)) return;
    compute_panel(p->w, i, p->x, t, t + tokens, tile + (i - first) * tokens * LANES);
  }
  if (!pool_wins(item)) return;
  for (int k = 0; k < tokens; k++)
    for (int i = first; i < last; i++) {
      const float *sums = tile + ((i - first) * tokens + k) * LANES;
      float *to = p->y + (size_t)(t + k) * (size_t)p->stride + (size_t)i * LANES;
      store(to, p->add ? load(to) + load(sums) : load(sums));
    }
}

void linear(pool_thread *self, const aici_matrix *w, const activations *x, int tokens, float *y, int stride, int add) {
  if (!tokens) return;
  const int count = w->rows / LANES, block = least(tokens, TILE_TOKENS);
  product p = {.w = w, .x = x, .tokens = tokens, .y = y, .stride = stride, .add = add};
  /* Small items: a thread that loses its core for a moment must not delay the others for long. */
  p.panels = least(count / (pool_size(self) * 8) + 1, TILE_PANELS / block);
  p.blocks = (tokens + TILE_TOKENS - 1) / TILE_TOKENS;
  pool_phase(self, (count + p.panels - 1) / p.panels * p.blocks, p.blocks == 1 ? REPEAT : ONCE, multiply_item, &p);
}

static float f16_at(const uint16_t *p) {
  _Float16 v;
  memcpy(&v, p, sizeof v);
  return (float)v;
}

void matrix_row(const aici_matrix *w, int row, float *to) {
  const size_t lane = (size_t)row % LANES, numbers = (size_t)(row / LANES) * (size_t)w->columns * LANES;
  for (size_t k = 0; k < (size_t)w->columns; k++) {
    const size_t group = numbers / GROUP + k / GROUP * LANES + lane, four = k % GROUP / 4;
    const uint8_t *bytes = (const uint8_t *)w->values;
    if (w->format == F32) {
      to[k] = ((const float *)w->values)[numbers + k * LANES + lane];
    } else if (w->format == BF16) {
      const uint32_t bits = (uint32_t)((const uint16_t *)w->values)[numbers + k / 2 * 2 * LANES + 2 * lane + k % 2] << 16;
      memcpy(to + k, &bits, 4);
    } else if (w->format == INT8) {
      const uint8_t number = bytes[numbers + k / GROUP * GROUP * LANES + four * 4 * LANES + 4 * lane + k % 4];
      to[k] = f16_at(w->scales + group) * (float)(number - 128);
    } else {
      const uint8_t two = bytes[(numbers + k / GROUP * GROUP * LANES) / 2 + four / 2 * 4 * LANES + 4 * lane + k % 4];
      const int number = four % 2 ? two >> 4 : two & 15;
      to[k] = f16_at(w->scales + group) * (float)number + f16_at(w->minimums + group);
    }
  }
}

typedef struct {
  const aici_matrix *w;
  const float *x;
  activations in;
  int tokens;
  float *y;
} call;

static void activate_item(const void *context, pool_item *item) {
  const call *c = context;
  activate(&c->in, item->number, c->x + (size_t)item->number * (size_t)c->w->columns, c->w->format);
}

static void multiply(pool_thread *self, void *argument) {
  const call *c = argument;
  pool_phase(self, c->tokens, ONCE, activate_item, c);
  linear(self, c->w, &c->in, c->tokens, c->y, c->w->rows, 0);
}

AICI_EXPORT size_t aici_linear_memory(const aici_matrix *w, int32_t tokens) { return activations_size(tokens, w->columns); }

/* y (tokens, rows) = x (tokens, columns) w^T + bias. `memory`: aici_linear_memory bytes, aligned to 64. */
AICI_EXPORT void aici_linear(aici_pool *pool, const aici_matrix *w, const float *x, int32_t tokens, char *memory, float *y) {
  call c = {.w = w, .x = x, .in = activations_at(memory, tokens, w->columns), .tokens = tokens, .y = y};
  pool_run(pool, multiply, &c);
}
