/* Plain loops of the instructions of the kernels, on numbers in registers and in the nearest cache: the speed that no
   product can exceed. */
#include "export.h"
#include "native.h"
#include "pool.h"
#include "simd.h"

/* Independent sums, as many as the register tile of a product has tokens. */
#if defined(__AVX512F__)
enum { TOKENS = 8 };
#else
enum { TOKENS = 4 };
#endif
enum { CALLS = 8 };

typedef struct { int format, rounds; } peak;

/* All numbers are 0: sums of 16 bits must not overflow. The compiler may not know. */
#define LOOP(type, weights, dot)                                                                                       \
  {                                                                                                                    \
    type sum[TOKENS] = {};                                                                                             \
    for (int round = 0; round < p->rounds; round++) {                                                                  \
      __asm__ volatile("" ::: "memory");                                                                               \
      for (int k = 0; k < CALLS; k++)                                                                                  \
        for (int i = 0; i < TOKENS; i++) sum[i] = dot(sum[i], *(const weights *)numbers[k], activations[i] + 4 * k);   \
    }                                                                                                                  \
    memcpy(results, sum, sizeof sum);                                                                                  \
  }

INLINE f32x16 dot_f32(f32x16 sum, f32x16 w, const narrow *a) {
  float x;
  memcpy(&x, a, sizeof x);
  return fma16(w, splat(x), sum);
}

static void run_loop(const void *context, pool_item *item) {
  (void)item;
  const peak *p = context;
  _Alignas(64) volatile char sink[TOKENS * 64];
  _Alignas(64) char results[TOKENS * 64], numbers[CALLS][64] = {};
  __asm__ volatile("" : : "r"(numbers) : "memory");
  if (p->format == F32 || p->format == BF16) {
    narrow activations[TOKENS][4 * CALLS] = {};
    __asm__ volatile("" : : "r"(activations) : "memory");
    if (p->format == F32) LOOP(f32x16, f32x16, dot_f32) else LOOP(f32x16, u32x16, dot_bf16)
  } else {
    int8_t activations[TOKENS][4 * CALLS] = {};
    __asm__ volatile("" : : "r"(activations) : "memory");
    if (p->format == INT8) LOOP(i32x16, u8x64, dot_wide) else LOOP(small_sums, u8x64, dot_small)
  }
  for (unsigned i = 0; i < sizeof sink; i++) sink[i] = results[i];
}

/* Operations of a round on all threads: a call multiplies and adds one, two or four numbers per lane. */
static double round_operations(const pool_thread *self, int format) {
  const int numbers = format == F32 ? 1 : format == BF16 ? 2 : 4;
  return 2.0 * numbers * LANES * TOKENS * CALLS * pool_size(self);
}

static void run(pool_thread *self, void *argument) {
  const peak *p = argument;
  pool_phase(self, pool_size(self), ONCE, run_loop, p);
  pool_lap(self, PRODUCTS, round_operations(self, p->format) * p->rounds);
}

/* Run the loop of a format `rounds` times on every thread. The profile of the pool takes time and operations. */
AICI_EXPORT void aici_peak(aici_pool *pool, int32_t format, int32_t rounds) {
  peak p = {format, rounds};
  pool_run(pool, run, &p);
}
