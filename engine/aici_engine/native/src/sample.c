/* From a row of logits to a token, as sample/pipeline.py defines it: that is the reference, and serves where this does
   not run. Sums are taken in double, weights in float; all else is exact, so ties and edges are those of the reference. */
#include "export.h"
#include "simd.h"

enum { NOTHING_ALLOWED = -1, NOT_FINITE = -2, FEW_GROUPS = 32, MANY_GROUPS = 256, BLOCK = 1024 };
typedef double f64x16 __attribute__((vector_size(128)));

/* `num` candidates. Behind them lie sixteen of weight 0, which never win. */
typedef struct { int32_t *ids; float *weights; int64_t num; } candidates;

#define ANY(v) (__builtin_reduce_or((u32x16)(v)) != 0)
INLINE f32x16 pick(i32x16 if_, f32x16 then, f32x16 otherwise) {
  return (f32x16)(((i32x16)then & if_) | ((i32x16)otherwise & ~if_));
}
INLINE i32x16 lanes(int64_t from) {
  return (i32x16){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} + (int32_t)from;
}
/* The part of a row that begins at `i`; -infinity beyond its end. */
INLINE f32x16 part(const float *row, int64_t n, int64_t i) {
  if (i + LANES <= n) return load(row + i);
  f32x16 v = splat(-INFINITY);
  memcpy(&v, row + i, (size_t)(n - i) * sizeof *row);
  return v;
}

static void end(candidates *c) { memset(c->weights + c->num, 0, LANES * sizeof *c->weights); }

/* The k-th largest of `num` values, which are left in another order. */
static float kth(float *values, int64_t num, int64_t k) {
  int64_t low = 0, high = num - 1;
  while (low < high) {
    const float pivot = values[low + (high - low) / 2];
    int64_t i = low, j = high;
    while (i <= j) {
      while (values[i] > pivot) i++;
      while (values[j] < pivot) j--;
      if (i > j) break;
      const float x = values[i]; values[i++] = values[j]; values[j--] = x;
    }
    if (k - 1 <= j) high = j;
    else if (k - 1 >= i) low = i;
    else break;
  }
  return values[k - 1];
}

/* The largest logit; that of each of num * LANES groups goes to `groups`. NaN if there is one. */
static float top_of(const float *row, int64_t n, f32x16 *groups, int num) {
  i32x16 bad = {};
  for (int g = 0; g < num; g++) groups[g] = splat(-INFINITY);
  for (int64_t i = 0, g = 0; i < n; i += LANES, g = g + 1 < num ? g + 1 : 0) {
    const f32x16 v = part(row, n, i);
    bad |= v != v;
    groups[g] = pick(v > groups[g], v, groups[g]);
  }
  f32x16 top = groups[0];
  for (int g = 1; g < num; g++) top = pick(groups[g] > top, groups[g], top);
  return ANY(bad) ? NAN : hmax16(top);
}

/* All whose logit is at least `least`, and not -infinity. Their logits stand where their weights will. */
static void collect(const float *row, int64_t n, float least, candidates *c) {
  c->num = 0;
  for (int64_t i = 0; i < n; i += LANES) {
    const f32x16 v = part(row, n, i);
    if (!ANY(v >= splat(least))) continue;
    for (int64_t j = i; j < i + LANES && j < n; j++)
      if (row[j] >= least && row[j] > -INFINITY) c->ids[c->num] = (int32_t)j, c->weights[c->num++] = row[j];
  }
}

/* The k likeliest, and those that equal the last of them. Of disjoint groups k have a maximum of at least the k-th
   largest of such maxima, so that many logits are at least that: few more are looked at. */
static void top_k(const float *row, int64_t n, int64_t k, f32x16 *groups, int num_groups, candidates *c) {
  collect(row, n, k <= num_groups * LANES / 2 ? kth((float *)groups, num_groups * LANES, k) : -INFINITY, c);
  if (c->num <= k) return;
  float *values = c->weights + c->num; /* there is room for as many again */
  memcpy(values, c->weights, (size_t)c->num * sizeof *values);
  const float least = kth(values, c->num, k);
  int64_t num = 0;
  for (int64_t j = 0; j < c->num; j++)
    if (c->weights[j] >= least) c->ids[num] = c->ids[j], c->weights[num++] = c->weights[j];
  c->num = num;
}

/* `num` of the row from `from` on. */
static void take(const float *row, int64_t n, int64_t from, int64_t num, candidates *c) {
  for (int64_t j = 0; j < num; j += LANES) {
    const i32x16 ids = lanes(from + j);
    memcpy(c->ids + j, &ids, sizeof ids);
    store(c->weights + j, part(row, n, from + j));
  }
  c->num = num;
}

/* From logits. */
static void weigh(candidates *c, float top, float temperature) {
  for (int64_t j = 0; j < c->num; j += LANES)
    store(c->weights + j, exp16((load(c->weights + j) - splat(top)) / splat(temperature)));
  end(c);
}

static void keep(candidates *c, float least) {
  int64_t num = 0;
  for (int64_t j = 0; j < c->num; j += LANES) {
    if (!ANY(load(c->weights + j) >= splat(least))) continue;
    for (int64_t i = j; i < j + LANES && i < c->num; i++)
      if (c->weights[i] >= least) c->ids[num] = c->ids[i], c->weights[num++] = c->weights[i];
  }
  c->num = num;
  end(c);
}

INLINE int before(const candidates *c, int64_t a, int64_t b) {
  return c->weights[a] > c->weights[b] || (c->weights[a] == c->weights[b] && c->ids[a] < c->ids[b]);
}
INLINE void swap(candidates *c, int64_t a, int64_t b) {
  const int32_t id = c->ids[a]; c->ids[a] = c->ids[b]; c->ids[b] = id;
  const float weight = c->weights[a]; c->weights[a] = c->weights[b]; c->weights[b] = weight;
}
/* The fewest likeliest that together have `share` of the weight. Mostly those at least this likely, against the
   likeliest, suffice: only they are looked at. They are cut in two at one of them, again and again, where the wanted
   weight is reached: those before `low` are in, those from `high` on are out. */
static void top_p(candidates *c, double share) {
  static const float heads[] = {1e-2f, 1e-4f};
  f64x16 all = {}, head[2] = {};
  for (int64_t j = 0; j < c->num; j += LANES) {
    const f32x16 w = load(c->weights + j);
    all += __builtin_convertvector(w, f64x16);
    for (int h = 0; h < 2; h++)
      head[h] += __builtin_convertvector(pick(w >= splat(heads[h]), w, splat(0)), f64x16);
  }
  double sum = 0, sums[2] = {};
  for (int i = 0; i < LANES; i++) sum += all[i], sums[0] += head[0][i], sums[1] += head[1][i];
  const double wanted = share * sum;
  for (int h = 0; h < 2; h++)
    if (sums[h] >= wanted) { keep(c, heads[h]); break; }
  int64_t low = 0, high = c->num;
  for (double had = 0; low < high;) {
    swap(c, low + (high - low) / 2, high - 1);
    int64_t at = low;
    double more = 0;
    for (int64_t j = low; j < high - 1; j++)
      if (before(c, j, high - 1)) more += c->weights[j], swap(c, j, at++);
    swap(c, at, high - 1);
    if (had + more >= wanted) { high = at; continue; }
    had += more + c->weights[at];
    low = at + 1;
    if (had >= wanted) high = low;
  }
  c->num = low;
  end(c);
}

typedef struct { float at; int64_t id; } winner;

/* Candidates race with each other and with the winner so far; see `choose` of the reference. Waiting times are at least
   the number that they are made of, so that few logarithms are taken. */
static winner race(const candidates *c, uint64_t draw, winner best) {
  for (int64_t j = 0; j < c->num; j += LANES) {
    u32x16 bits; memcpy(&bits, c->ids + j, sizeof bits);
    bits = bits * 0x9E3779B9u + (uint32_t)draw;
    bits ^= bits >> 16;
    bits *= 0x7FEB352Du;
    bits ^= (uint32_t)(draw >> 32);
    bits ^= bits >> 15;
    bits *= 0x846CA68Bu;
    bits ^= bits >> 16;
    const f32x16 uniform = (__builtin_convertvector(bits, f32x16) + 0.5f) * (float)((0x1p-24 - 1) * 0x1p-32);
    const f32x16 weights = load(c->weights + j);
    const i32x16 early = (-uniform < weights * best.at) & (weights > splat(0));
    if (!ANY(early)) continue;
    for (int i = 0; i < LANES; i++) {
      if (!early[i] || j + i >= c->num) continue;
      const float arrives = -log1pf(uniform[i]) / weights[i];
      if (arrives < best.at) best = (winner){arrives, c->ids[j + i]};
    }
  }
  return best;
}

/* Closes the first `n` tokens of `row` whose bits are 0. */
AICI_EXPORT void aici_mask(float *row, const uint8_t *bits, int64_t n) {
  const u32x16 one = (u32x16){} + 1, at = one << (u32x16)lanes(0);
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    uint16_t open; memcpy(&open, bits + i / 8, sizeof open);
    const i32x16 is_open = (((u32x16){} + open) & at) != 0;
    store(row + i, pick(is_open, load(row + i), splat(-INFINITY)));
  }
  for (; i < n; i++)
    if (!(bits[i / 8] >> (i % 8) & 1)) row[i] = -INFINITY;
}

/* `temperature` 0 is greedy; `k` 0, `p` 1 and `min_p` 0 switch those steps off. `ids`, `weights`: memory for 2 n + 32. */
AICI_EXPORT int64_t aici_choose(const float *row, int64_t n, float temperature, int64_t k, double p, double min_p,
                                uint64_t draw, int32_t *ids, float *weights) {
  f32x16 groups[MANY_GROUPS];
  const int num_groups = k <= FEW_GROUPS * LANES / 2 ? FEW_GROUPS : MANY_GROUPS;
  const float top = top_of(row, n, groups, num_groups);
  if (top != top || top == INFINITY) return NOT_FINITE;
  if (top == -INFINITY) return NOTHING_ALLOWED;
  if (temperature == 0)
    for (int64_t i = 0;; i += LANES)
      if (ANY(part(row, n, i) == splat(top)))
        for (;; i++)
          if (row[i] == top) return i;
  candidates c = {ids, weights, 0};
  const int few = k > 0 && k < n;
  winner best = {INFINITY, NOTHING_ALLOWED};
  if (!few && p == 1 && min_p == 0) {
    for (int64_t i = 0; i < n; i += BLOCK) {
      take(row, n, i, n - i < BLOCK ? n - i : BLOCK, &c);
      weigh(&c, top, temperature);
      best = race(&c, draw, best);
    }
    return best.id;
  }
  if (few) top_k(row, n, k, groups, num_groups, &c);
  else take(row, n, 0, n, &c);
  weigh(&c, top, temperature);
  if (p < 1) top_p(&c, p);
  if (min_p > 0) keep(&c, (float)min_p);
  return race(&c, draw, best).id;
}
