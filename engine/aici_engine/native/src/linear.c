/* Matrix products, panel by panel: sixteen outputs for up to MR tokens at once. The weights of a panel come from memory
   once, and from the nearest cache for further tokens. Invariant: the order of additions for a token depends only on
   the matrix. */
#include "linear.h"

#include "simd.h"

#if defined(__AVX512F__)
enum { MR = 8 }; /* two accumulators per token, weights and scales fill most of the 32 registers */
#else
enum { MR = 2 };
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
    i32x16 sum[MR] = {};
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
      out[i] = fma16(__builtin_convertvector(sum[i], f32x16), scale * by[i * groups + g], out[i]);
      out[i] = fma16(minimum, splat(sums[i * groups + g]), out[i]);
    }
  }
}

INLINE void panel(const aici_matrix *w, int index, const activations *x, int t, const int count, float *y, int stride,
                  int add, const int format) {
  f32x16 out[MR] = {};
  const size_t k = (size_t)w->columns, numbers = (size_t)index * k * LANES, groups = numbers / GROUP;
  if (format == F32) panel_f32((const float *)w->values + numbers, x, t, count, out);
  if (format == BF16) panel_bf16((const uint32_t *)w->values + numbers / 2, x, t, count, out);
  if (format == INT8) panel_int8((const uint8_t *)w->values + numbers, w->scales + groups, x, t, count, out);
  if (format == INT4)
    panel_int4((const uint8_t *)w->values + numbers / 2, w->scales + groups, w->minimums + groups, x, t, count, out);
  for (int i = 0; i < count; i++) {
    float *to = y + (size_t)(t + i) * (size_t)stride + (size_t)index * LANES;
    if (w->bias) out[i] += load(w->bias + (size_t)index * LANES);
    store(to, add ? load(to) + out[i] : out[i]);
  }
}

INLINE void panels(const aici_matrix *w, int first, int last, const activations *x, int tokens, float *y, int stride,
                   int add, const int format) {
  for (int index = first; index < last; index++) {
    int t = 0;
    for (; t + MR <= tokens; t += MR) panel(w, index, x, t, MR, y, stride, add, format);
    switch (tokens - t) {
#if defined(__AVX512F__)
      case 7: panel(w, index, x, t, 7, y, stride, add, format); break;
      case 6: panel(w, index, x, t, 6, y, stride, add, format); break;
      case 5: panel(w, index, x, t, 5, y, stride, add, format); break;
      case 4: panel(w, index, x, t, 4, y, stride, add, format); break;
      case 3: panel(w, index, x, t, 3, y, stride, add, format); break;
      case 2: panel(w, index, x, t, 2, y, stride, add, format); break;
#endif
      case 1: panel(w, index, x, t, 1, y, stride, add, format); break;
    }
  }
}

void linear(aici_pool *pool, const aici_matrix *w, const activations *x, int tokens, float *y, int stride, int add) {
  const int count = w->rows / LANES;
  /* Small pieces: a thread that loses its core for a moment must not delay the others for long. */
  const int piece = count / (pool_size(pool) * 8) + 1;
  for (int first; (first = pool_take(pool, piece)) < count;) {
    const int last = first + piece < count ? first + piece : count;
    switch (w->format) {
      case F32: panels(w, first, last, x, tokens, y, stride, add, F32); break;
      case BF16: panels(w, first, last, x, tokens, y, stride, add, BF16); break;
      case INT8: panels(w, first, last, x, tokens, y, stride, add, INT8); break;
      case INT4: panels(w, first, last, x, tokens, y, stride, add, INT4); break;
    }
  }
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
} product;

static void multiply(aici_pool *pool, int thread, void *argument) {
  const product *p = argument;
  const int threads = pool_size(pool);
  for (int t = p->tokens * thread / threads; t < p->tokens * (thread + 1) / threads; t++)
    activate(&p->in, t, p->x + (size_t)t * (size_t)p->w->columns, p->w->format);
  pool_barrier(pool);
  linear(pool, p->w, &p->in, p->tokens, p->y, p->w->rows, 0);
}

AICI_EXPORT size_t aici_linear_memory(const aici_matrix *w, int32_t tokens) { return activations_size(tokens, w->columns); }

/* y (tokens, rows) = x (tokens, columns) w^T + bias. `memory`: aici_linear_memory bytes, aligned to 64. */
AICI_EXPORT void aici_linear(aici_pool *pool, const aici_matrix *w, const float *x, int32_t tokens, char *memory, float *y) {
  product p = {.w = w, .x = x, .in = activations_at(memory, tokens, w->columns), .tokens = tokens, .y = y};
  pool_run(pool, multiply, &p);
}
