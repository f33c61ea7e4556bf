/* Vectors of sixteen lanes, in the vector extension of the compiler: one source for all processors. Only the dot
   products of bytes and of bf16 differ between processors. All arithmetic is explicit (no contraction), so that all CPU
   levels give the same bits. */
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define LANES 16
#define INLINE static inline __attribute__((always_inline))

typedef float f32x16 __attribute__((vector_size(64)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));
typedef uint16_t u16x16 __attribute__((vector_size(32)));
typedef int8_t i8x16 __attribute__((vector_size(16)));
typedef int16_t i16x32 __attribute__((vector_size(64)));
typedef uint8_t u8x64 __attribute__((vector_size(64)));
typedef _Float16 f16x16 __attribute__((vector_size(32)));

/* All lanes by name: the compiler would compute the addition of `{} + x`, because of -0. */
INLINE f32x16 splat(float x) { return (f32x16){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
INLINE f32x16 fma16(f32x16 a, f32x16 b, f32x16 c) { return __builtin_elementwise_fma(a, b, c); }
INLINE f32x16 max16(f32x16 a, f32x16 b) { return __builtin_elementwise_max(a, b); }

INLINE f32x16 load(const float *p) { f32x16 v; memcpy(&v, p, sizeof v); return v; }
INLINE void store(float *p, f32x16 v) { memcpy(p, &v, sizeof v); }

INLINE f32x16 load_f16(const void *p) {
  f16x16 v; memcpy(&v, p, sizeof v);
  return __builtin_convertvector(v, f32x16);
}
/* Round to bf16, to nearest, ties to even. The result is in the upper halves of the lanes; the lower halves are 0. NaN
   stays NaN. Subnormal results become 0, as in processors with bf16 instructions. */
INLINE u32x16 round_bf16(f32x16 x) {
  const u32x16 bits = (u32x16)x, rest = bits & 0x7fffffff;
  const u32x16 near = bits + 0x7fff + ((bits >> 16) & 1), sign = bits & 0x80000000u;
  const u32x16 tiny = (u32x16)(rest < 0x00800000), nan = (u32x16)(rest > 0x7f800000);
  return ((near & ~tiny & ~nan) | (sign & tiny) | ((bits | 0x400000) & nan)) & 0xffff0000u;
}
INLINE u16x16 to_bf16(f32x16 x) {
#if defined(__AVX512BF16__)
  return (u16x16)_mm512_cvtneps_pbh((__m512)x);
#else
  return __builtin_convertvector(round_bf16(x) >> 16, u16x16);
#endif
}

/* Dot product of two bf16 per lane (the first in the lower half): fma(w[0], a[0], fma(w[1], a[1], sum)). The pair of
   `a` is the same for all lanes and has the type `narrow`: bf16 on processors with bf16 instructions, rounded floats on
   others. The results are bit for bit equal, except that bf16 instructions flush sums below 2^-126 to 0. */
#if defined(__AVX512BF16__)
typedef uint16_t narrow;
INLINE void store_narrow(narrow *to, f32x16 x) {
  const u16x16 v = to_bf16(x);
  memcpy(to, &v, sizeof v);
}
INLINE f32x16 dot_bf16(f32x16 sum, u32x16 w, const narrow *a) {
  uint32_t two;
  memcpy(&two, a, sizeof two);
  return (f32x16)_mm512_dpbf16_ps((__m512)sum, (__m512bh)w, (__m512bh)((u32x16){} + two));
}
#else
typedef float narrow;
INLINE void store_narrow(narrow *to, f32x16 x) { store(to, (f32x16)round_bf16(x)); }
INLINE f32x16 dot_bf16(f32x16 sum, u32x16 w, const narrow *a) {
  sum = fma16((f32x16)(w & 0xffff0000u), splat(a[1]), sum);
  return fma16((f32x16)(w << 16), splat(a[0]), sum);
}
#endif

#define FOLD(v, op) /* reduce the sixteen lanes of v in a fixed order */                                \
  ({                                                                                                                   \
    __typeof__(v) v_ = (v);                                                                                            \
    v_ = op(v_, __builtin_shufflevector(v_, v_, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));                \
    v_ = op(v_, __builtin_shufflevector(v_, v_, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));                \
    v_ = op(v_, __builtin_shufflevector(v_, v_, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));                \
    v_ = op(v_, __builtin_shufflevector(v_, v_, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));                \
    v_[0];                                                                                                             \
  })
#define ADD_(a, b) ((a) + (b))
INLINE float sum16(f32x16 v) { return FOLD(v, ADD_); }
INLINE int32_t isum16(i32x16 v) { return FOLD(v, ADD_); }
INLINE float hmax16(f32x16 v) { return FOLD(v, max16); }
INLINE int32_t imax16(i32x16 v) { return FOLD(v, __builtin_elementwise_max); }

/* exp(x) within 2 units in the last place; 0 below -87 and for -infinity. Undefined for x > 88 and NaN. */
INLINE f32x16 exp16(f32x16 x) {
  const i32x16 gone = x < splat(-87.0f);
  x = max16(x, splat(-87.0f));
  const f32x16 n = __builtin_elementwise_roundeven(x * 1.44269504f);
  f32x16 r = fma16(n, splat(-0.693145752f), x);
  r = fma16(n, splat(-1.42860677e-6f), r);
  f32x16 p = splat(1.0f / 720);
  p = fma16(p, r, splat(1.0f / 120));
  p = fma16(p, r, splat(1.0f / 24));
  p = fma16(p, r, splat(1.0f / 6));
  p = fma16(p, r, splat(0.5f));
  p = fma16(p, r, splat(1.0f));
  p = fma16(p, r, splat(1.0f));
  const i32x16 scaled = (i32x16)p + (__builtin_convertvector(n, i32x16) << 23);
  return (f32x16)(scaled & ~gone);
}

/* tanh(x) within 1e-7 for all x. NaN stays NaN, so that sampling detects a broken model. */
INLINE f32x16 tanh16(f32x16 x) {
  const f32x16 e = exp16(__builtin_elementwise_min(max16(x, splat(-10.0f)), splat(10.0f)) * 2.0f);
  const i32x16 is_number = x == x;
  return (f32x16)(((i32x16)(1.0f - 2.0f / (e + 1.0f)) & is_number) | ((i32x16)x & ~is_number));
}

/* Dot product of four bytes per lane: sum + a . w. The four bytes of `a` are signed and the same for all lanes.
   dot_small: w from 0 to 15. The sums are `small_sums`, which hold eight calls; `lanes_of` makes 32 bits of them.
   dot_wide: w means w - 128; a sum starts with wide_start(sum of a). */
INLINE i32x16 bytes4(const int8_t *a) { int32_t v; memcpy(&v, a, sizeof v); return (i32x16){} + v; }

#if defined(__AVX512VNNI__)
INLINE i32x16 dot_u8(i32x16 sum, u8x64 w, const int8_t *a) {
  return (i32x16)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, (__m512i)bytes4(a));
}
#define dot_small dot_u8
#define dot_wide dot_u8
typedef i32x16 small_sums;
INLINE i32x16 lanes_of(small_sums sums) { return sums; }
INLINE int32_t wide_start(int32_t sum_of_a) { return -128 * sum_of_a; }

#elif defined(__AVX512BW__)
/* Sums of 16 bits, each of half a lane: eight calls add at most 8 * 2 * 15 * 127 < 2^15. */
typedef i16x32 small_sums;
INLINE small_sums dot_small(small_sums sum, u8x64 w, const int8_t *a) {
  return sum + (i16x32)_mm512_maddubs_epi16((__m512i)w, (__m512i)bytes4(a));
}
INLINE i32x16 lanes_of(small_sums sums) { return (i32x16)_mm512_madd_epi16((__m512i)sums, _mm512_set1_epi16(1)); }
/* Sums of two products would not fit 16 bits. Move the sign of w to `a` first; |w| <= 128 is unsigned. */
INLINE i32x16 dot_wide(i32x16 sum, u8x64 w, const int8_t *a) {
  const __m512i s = (__m512i)(w ^ 0x80), b = (__m512i)bytes4(a);
  const __m512i signed_b = _mm512_mask_sub_epi8(b, _mm512_movepi8_mask(s), _mm512_setzero_si512(), b);
  const __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(s), signed_b);
  return sum + (i32x16)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
}
INLINE int32_t wide_start(int32_t sum_of_a) { (void)sum_of_a; return 0; }

#elif defined(__AVX2__)
typedef union { u8x64 v; i32x16 i; __m256i half[2]; } halves;
INLINE __m256i dot_half(__m256i w, __m256i a) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(w, a), _mm256_set1_epi16(1));
}
/* Sums of 16 bits, each of half a lane: eight calls add at most 8 * 2 * 15 * 127 < 2^15. */
typedef struct { __m256i half[2]; } small_sums;
INLINE small_sums dot_small(small_sums sum, u8x64 w, const int8_t *a) {
  const halves x = {.v = w};
  int32_t four;
  memcpy(&four, a, sizeof four);
  for (int i = 0; i < 2; i++)
    sum.half[i] = _mm256_add_epi16(sum.half[i], _mm256_maddubs_epi16(x.half[i], _mm256_set1_epi32(four)));
  return sum;
}
INLINE i32x16 lanes_of(small_sums sums) {
  halves y;
  for (int i = 0; i < 2; i++) y.half[i] = _mm256_madd_epi16(sums.half[i], _mm256_set1_epi16(1));
  return y.i;
}
INLINE i32x16 dot_wide(i32x16 sum, u8x64 w, const int8_t *a) {
  const halves x = {.v = w ^ 0x80}, b = {.i = bytes4(a)};
  halves y;
  for (int i = 0; i < 2; i++)
    y.half[i] = dot_half(_mm256_abs_epi8(x.half[i]), _mm256_sign_epi8(b.half[0], x.half[i]));
  return sum + y.i;
}
INLINE int32_t wide_start(int32_t sum_of_a) { (void)sum_of_a; return 0; }

#elif defined(__aarch64__)
typedef union { u8x64 v; i32x16 i; int8x16_t part[4]; int32x4_t sums[4]; } quarters;
INLINE i32x16 dot_i8(i32x16 sum, u8x64 w, const int8_t *a) {
  const quarters x = {.v = w}, b = {.i = bytes4(a)};
  quarters y = {.i = sum};
  for (int i = 0; i < 4; i++) {
#if defined(__ARM_FEATURE_DOTPROD)
    y.sums[i] = vdotq_s32(y.sums[i], x.part[i], b.part[0]);
#else
    const int16x8_t low = vmull_s8(vget_low_s8(x.part[i]), vget_low_s8(b.part[0]));
    const int16x8_t high = vmull_s8(vget_high_s8(x.part[i]), vget_high_s8(b.part[0]));
    y.sums[i] = vaddq_s32(y.sums[i], vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
#endif
  }
  return y.i;
}
#define dot_small dot_i8
typedef i32x16 small_sums;
INLINE i32x16 lanes_of(small_sums sums) { return sums; }
INLINE i32x16 dot_wide(i32x16 sum, u8x64 w, const int8_t *a) { return dot_i8(sum, w ^ 0x80, a); }
INLINE int32_t wide_start(int32_t sum_of_a) { (void)sum_of_a; return 0; }
#else
#error "a processor without a dot product of bytes: leave the library out"
#endif
