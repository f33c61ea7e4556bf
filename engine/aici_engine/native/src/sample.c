/* Sampling: from a row of logits to a token. sample/pipeline.py is the reference, and runs where this library does not.
   Weights are floats; sums are doubles, except sums of a few hundred weights. All other steps are exact, so ties and
   edges are those of the reference. */
#include "export.h"
#include "simd.h"

enum { NOTHING_ALLOWED = -1, NOT_FINITE = -2, FEW_GROUPS = 32, MANY_GROUPS = 256, FEW = 256, CUTS = 4, ROUNDS = 4 };
typedef double f64x16 __attribute__((vector_size(128)));

/* Without `ids`, the candidates are the first `num` tokens. Weights after the last candidate are 0 to the end of its
   vector. */
typedef struct { int32_t *ids; float *weights; int64_t num; } candidates;

/* Bit i is lane i of the result of a comparison. */
INLINE uint32_t which(i32x16 v) {
  typedef _Bool bits __attribute__((ext_vector_type(LANES)));
  const bits b = __builtin_convertvector(v, bits);
  uint16_t all; memcpy(&all, &b, sizeof all);
  return all;
}
#define ANY(v) (which(v) != 0)
/* Loop over the lanes that are set in v. */
#define FOR_EACH(i, v) \
  for (uint32_t left_ = which(v), i; left_ && (i = (uint32_t)__builtin_ctz(left_), 1); left_ &= left_ - 1)
INLINE f32x16 pick(i32x16 if_, f32x16 then, f32x16 otherwise) {
  return (f32x16)(((i32x16)then & if_) | ((i32x16)otherwise & ~if_));
}
INLINE i32x16 lanes(int64_t from) {
  return (i32x16){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} + (int32_t)from;
}
/* Sixteen logits from `i`; -infinity after the end of the row. */
INLINE f32x16 part(const float *row, int64_t n, int64_t i) {
  if (i + LANES <= n) return load(row + i);
  f32x16 v = splat(-INFINITY);
  memcpy(&v, row + i, (size_t)(n - i) * sizeof *row);
  return v;
}


/* A mask: bit i of `bits` is 1 if token i is allowed, for `n` tokens; further tokens are not. No bits: no mask. */
typedef struct { const uint8_t *bits; int64_t n; } mask;

/* As `part`, with -infinity for tokens that are not allowed. NaN stays NaN, for whole vectors of the mask. */
INLINE f32x16 open_part(const float *row, int64_t n, mask m, int64_t i) {
  const u32x16 one = (u32x16){} + 1, at = one << (u32x16){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  f32x16 v = part(row, n, i);
  if (!m.bits) return v;
  if (i + LANES <= m.n) {
    uint16_t open; memcpy(&open, m.bits + i / 8, sizeof open);
    return v + pick((((u32x16){} + open) & at) != 0, splat(0), splat(-INFINITY));
  }
  for (int64_t j = i; j < i + LANES; j++)
    if (j >= m.n || !(m.bits[j / 8] >> (j % 8) & 1)) v[j - i] = -INFINITY;
  return v;
}

/* The k-th largest of `num` values. Reorders the values. */
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

/* The largest allowed logit, or NaN if the row has a NaN. The maxima of num * LANES disjoint groups go to `groups`. */
INLINE float top_open(const float *row, int64_t n, mask m, f32x16 *groups, int num) {
  i32x16 bad = {};
  for (int g = 0; g < num; g++) groups[g] = splat(-INFINITY);
  for (int64_t i = 0, g = 0; i < n; i += LANES, g = g + 1 < num ? g + 1 : 0) {
    const f32x16 v = open_part(row, n, m, i);
    bad |= v != v;
    groups[g] = pick(v > groups[g], v, groups[g]) + splat(0); /* + 0: without it, the compiler emits a slow masked store */
  }
  f32x16 top = groups[0];
  for (int g = 1; g < num; g++) top = max16(groups[g], top);
  return ANY(bad) ? NAN : hmax16(top);
}
static float top_of(const float *row, int64_t n, f32x16 *groups, int num) {
  return top_open(row, n, (mask){}, groups, num);
}

/* Collect the tokens with a logit of at least `least`, except -infinity. Logits go to `weights`. */
static void collect(const float *row, int64_t n, float least, candidates *c) {
  c->num = 0;
  for (int64_t i = 0; i < n; i += LANES) {
    const f32x16 v = part(row, n, i);
    FOR_EACH(j, (v >= splat(least)) & (v > splat(-INFINITY)))
      c->ids[c->num] = (int32_t)(i + j), c->weights[c->num++] = row[i + j];
  }
}

/* The k most likely tokens, with ties of the last. The k-th largest maximum of disjoint groups is a lower bound of the
   k-th largest logit, because k groups have a logit of at least the bound. Few tokens above the bound are not in the
   result. */
static void top_k(const float *row, int64_t n, int64_t k, f32x16 *groups, int num_groups, candidates *c) {
  collect(row, n, k <= num_groups * LANES / 2 ? kth((float *)groups, num_groups * LANES, k) : -INFINITY, c);
  if (c->num <= k) return;
  float *values = c->weights + c->num; /* the memory has room for 2 num */
  memcpy(values, c->weights, (size_t)c->num * sizeof *values);
  const float least = kth(values, c->num, k);
  int64_t num = 0;
  for (int64_t j = 0; j < c->num; j++)
    if (c->weights[j] >= least) c->ids[num] = c->ids[j], c->weights[num++] = c->weights[j];
  c->num = num;
}

/* Convert logits to weights. `from`: logits of the candidates; may be the whole row. */
static void weigh(candidates *c, const float *from, float top, float temperature) {
  for (int64_t j = 0; j < c->num; j += LANES)
    store(c->weights + j, exp16((part(from, c->num, j) - splat(top)) / splat(temperature)));
}

static void drop_below(candidates *c, float least) {
  for (int64_t j = 0; j < c->num; j += LANES) {
    const f32x16 w = load(c->weights + j);
    store(c->weights + j, w * pick(w >= splat(least), splat(1), splat(0)));
  }
}

/* For every cut, the sum of the weights of at least the cut. Partial sums of FEW weights are floats. */
static void sums_above(const candidates *c, const float least[CUTS], double sums[CUTS]) {
  f64x16 all[CUTS] = {};
  for (int64_t j = 0; j < c->num;) {
    f32x16 some[CUTS] = {};
    for (const int64_t stop = j + FEW < c->num ? j + FEW : c->num; j < stop; j += LANES) {
      const f32x16 w = load(c->weights + j);
      for (int i = 0; i < CUTS; i++) some[i] += pick(w >= splat(least[i]), w, splat(0));
    }
    for (int i = 0; i < CUTS; i++) all[i] += __builtin_convertvector(some[i], f64x16);
  }
  for (int i = 0; i < CUTS; i++) {
    sums[i] = 0;
    for (int lane = 0; lane < LANES; lane++) sums[i] += all[i][lane];
  }
}

INLINE int before(const candidates *c, int64_t a, int64_t b) {
  return c->weights[a] > c->weights[b] || (c->weights[a] == c->weights[b] && c->ids[a] < c->ids[b]);
}
INLINE void swap(candidates *c, int64_t a, int64_t b) {
  const int32_t id = c->ids[a]; c->ids[a] = c->ids[b]; c->ids[b] = id;
  const float weight = c->weights[a]; c->weights[a] = c->weights[b]; c->weights[b] = weight;
}
/* Move the fewest most likely candidates whose weights, plus `had`, reach `wanted` to the front, and return their
   number. Quickselect by weight: candidates before `low` are in the result, candidates from `high` are not. */
static int64_t likeliest(candidates *c, double had, double wanted) {
  int64_t low = 0, high = c->num;
  while (low < high) {
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
  return low;
}

/* Top-p: the fewest most likely candidates with `share` of the total weight keep their weights; the others become 0.
   Sums above closer and closer cuts bracket the weight of the last kept candidate. Only candidates between the last two
   cuts are ordered, in the memory of `edge`. */
static void top_p(candidates *c, double share, candidates edge) {
  float cuts[CUTS] = {0, 0x1p-16f, 0x1p-10f, 0x1p-5f}, low = 0, high = INFINITY;
  double sums[CUTS], had = 0, wanted = 0;
  for (int round = 0; round < ROUNDS; round++) {
    sums_above(c, cuts, sums);
    if (round == 0) wanted = share * sums[0];
    int i = CUTS - 1;
    while (i > 0 && sums[i] < wanted) high = cuts[i], had = sums[i--];
    low = cuts[i];
    if (sums[i] - had <= FEW * low) break; /* few candidates can be between the cuts */
    const float from = low > 0 ? low : 0x1p-40f, ratio = sqrtf(sqrtf((high < 1 ? high : 1) / from));
    cuts[0] = low;
    for (i = 1; i < CUTS; i++) cuts[i] = (i > 1 ? cuts[i - 1] : from) * ratio;
  }
  for (int64_t j = 0; j < c->num; j += LANES) {
    const f32x16 w = load(c->weights + j);
    store(c->weights + j, w * pick(w >= splat(low), splat(1), splat(0)));
    FOR_EACH(i, (w >= splat(low)) & (w < splat(high)) & (w > splat(0)))
      edge.ids[edge.num] = (int32_t)(j + i), edge.weights[edge.num++] = c->weights[j + i];
  }
  for (int64_t j = likeliest(&edge, had, wanted); j < edge.num; j++) c->weights[edge.ids[j]] = 0;
}

typedef struct { float at; int64_t id; } winner;

/* Minus a uniform random number in (0, 1) for each of sixteen ids; see `_exponentials` of the reference. */
INLINE f32x16 luck(u32x16 bits, uint64_t draw) {
  bits = bits * 0x9E3779B9u + (uint32_t)draw;
  bits ^= bits >> 16;
  bits *= 0x7FEB352Du;
  bits ^= (uint32_t)(draw >> 32);
  bits ^= bits >> 15;
  bits *= 0x846CA68Bu;
  bits ^= bits >> 16;
  return (__builtin_convertvector(bits, f32x16) + 0.5f) * (float)((0x1p-24 - 1) * 0x1p-32);
}

/* Race sixteen candidates against the winner so far. A candidate arrives at -log(1 - u) / weight, u uniform. Since
   -log(1 - u) >= u, most candidates are ruled out without a logarithm. */
INLINE winner race16(u32x16 ids, f32x16 weights, uint64_t draw, winner best) {
  const f32x16 uniform = luck(ids, draw);
  FOR_EACH(i, (-uniform < weights * best.at) & (weights > splat(0))) {
    const float arrives = -log1pf(uniform[i]) / weights[i];
    if (arrives < best.at) best = (winner){arrives, ids[i]};
  }
  return best;
}

static int64_t race(const candidates *c, uint64_t draw) {
  winner best = {INFINITY, NOTHING_ALLOWED};
  for (int64_t j = 0; j < c->num; j += LANES) {
    const f32x16 weights = load(c->weights + j);
    if (!ANY(weights > splat(0))) continue;
    u32x16 ids = (u32x16)lanes(j);
    if (c->ids) memcpy(&ids, c->ids + j, sizeof ids);
    best = race16(ids, weights, draw, best);
  }
  return best.id;
}

/* Race of the whole row. The most likely token sets the time to beat. Most tokens cannot beat that time, by an upper
   bound of their weight: a float with the bits of x * 2^23 + bias is exp2(x) interpolated linearly between powers of
   two, and the line lies above the convex curve. */
static int64_t race_all(const float *row, int64_t n, int64_t likeliest, float temperature, uint64_t draw) {
  const f32x16 top = splat(row[likeliest]), one = splat(0x1p23f * 127);
  const f32x16 scale = splat(0x1p23f * 1.44269504f) / splat(temperature);
  winner best = race16((u32x16)lanes(likeliest), (f32x16){1}, draw, (winner){INFINITY, 0});
  /* The loop meets this token again; among equal times, the first token wins. */
  best = (winner){nextafterf(best.at, INFINITY), likeliest};
  for (int64_t i = 0; i < n; i += LANES) {
    const f32x16 v = part(row, n, i) - top;
    const f32x16 most = (f32x16)__builtin_convertvector(max16(v * scale + one, splat(0)), i32x16);
    if (!ANY(-luck((u32x16)lanes(i), draw) < most * (best.at * 1.001f))) continue;
    best = race16((u32x16)lanes(i), exp16(v / splat(temperature)), draw, best);
  }
  return best.id;
}

/* Set the logits of tokens with bit 0 to -infinity, for the first `n` tokens of `row`. */
AICI_EXPORT void aici_mask(float *row, const uint8_t *bits, int64_t n) {
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) store(row + i, open_part(row, n, (mask){bits, n}, i));
  for (; i < n; i++)
    if (!(bits[i / 8] >> (i % 8) & 1)) row[i] = -INFINITY;
}

/* The first allowed token with the largest logit, `top`; see `top_open`. */
INLINE int64_t first_open(const float *row, int64_t n, mask m, float top, const f32x16 *groups, int num) {
  int64_t first = n;
  for (int g = 0; g < num; g++) {
    if (!ANY(groups[g] == splat(top))) continue;
    for (int64_t i = g * LANES; i < first; i += num * LANES) {
      const uint32_t equal = which(open_part(row, n, m, i) == splat(top));
      if (!equal) continue;
      const int64_t token = i + (int64_t)__builtin_ctz(equal);
      if (token < first) first = token;
      break;
    }
  }
  return first;
}
static int64_t first_of(const float *row, int64_t n, float top, const f32x16 *groups, int num) {
  return first_open(row, n, (mask){}, top, groups, num);
}

/* Sample a token. `temperature` 0: greedy. `k` 0, `p` 1 and `min_p` 0 disable these steps. `ids`, `weights`: memory for
   2 n + 32 entries. Returns NOTHING_ALLOWED or NOT_FINITE on failure. */
AICI_EXPORT int64_t aici_choose(const float *row, int64_t n, float temperature, int64_t k, double p, double min_p,
                                uint64_t draw, int32_t *ids, float *weights) {
  f32x16 groups[MANY_GROUPS];
  const int num_groups = k <= FEW_GROUPS * LANES / 2 ? FEW_GROUPS : MANY_GROUPS;
  const float top = top_of(row, n, groups, num_groups);
  if (top != top || top == INFINITY) return NOT_FINITE;
  if (top == -INFINITY) return NOTHING_ALLOWED;
  const int few = k > 0 && k < n;
  if (temperature == 0 || (!few && p == 1 && min_p == 0)) {
    const int64_t first = first_of(row, n, top, groups, num_groups);
    return temperature == 0 ? first : race_all(row, n, first, temperature, draw);
  }
  candidates c = {few || p == 1 ? ids : NULL, weights, n};
  if (few) top_k(row, n, k, groups, num_groups, &c);
  /* A bound slightly below min_p, to allow for rounding. */
  else if (p == 1) collect(row, n, top - fabsf(top) * 1e-6f + temperature * (logf((float)min_p) - 0.01f), &c);
  weigh(&c, c.ids ? weights : row, top, temperature);
  if (p < 1) top_p(&c, p, (candidates){ids + n + LANES, weights + n + LANES, 0});
  if (min_p > 0) drop_below(&c, (float)min_p);
  return race(&c, draw);
}

/* The greedy token of a masked row, which is read once and stays as it is. `more`: `num` tokens with their logits, to
   consider whatever the mask says. */
static int64_t greedy(const float *row, int64_t n, mask m, const int64_t *more, const float *logits, int64_t num) {
  f32x16 groups[FEW_GROUPS];
  float top = top_open(row, n, m, groups, FEW_GROUPS);
  if (top != top || top == INFINITY) return NOT_FINITE;
  int64_t first = top == -INFINITY ? n : first_open(row, n, m, top, groups, FEW_GROUPS);
  for (int64_t i = 0; i < num; i++) {
    if (logits[i] != logits[i] || logits[i] == INFINITY) return NOT_FINITE;
    if (logits[i] > top || (logits[i] == top && more[i] < first)) top = logits[i], first = more[i];
  }
  return top == -INFINITY ? NOTHING_ALLOWED : first;
}

/* A row to sample, and the token (out). `bits`: the mask, or NULL. The rest: see `aici_choose`. */
typedef struct {
  float *row; const uint8_t *bits;
  double p, min_p; uint64_t draw; int64_t k; double temperature; int64_t token;
} sampled_row;

/* Sample `num` rows of `n` tokens. Masks describe `described` tokens; tokens beyond are closed. The bit of token `eos`
   opens or closes the `num_eos` tokens `other_eos` too. Rows are overwritten. */
AICI_EXPORT void aici_sample_rows(sampled_row *rows, int64_t num, int64_t n, int64_t described, int64_t eos,
                                  const int64_t *other_eos, int64_t num_eos, int32_t *ids, float *weights) {
  for (sampled_row *r = rows; r < rows + num; r++) {
    float *row = r->row;
    if (!r->bits) {
      r->token = aici_choose(row, n, (float)r->temperature, r->k, r->p, r->min_p, r->draw, ids, weights);
      continue;
    }
    const int is_open = eos < described && r->bits[eos / 8] >> (eos % 8) & 1;
    for (int64_t i = 0; i < num_eos; i++) weights[i] = is_open ? row[other_eos[i]] : -INFINITY;
    if (r->temperature == 0) {
      for (int64_t i = 0; i < num_eos; i++) row[other_eos[i]] = -INFINITY;
      r->token = greedy(row, n, (mask){r->bits, described}, other_eos, weights, num_eos);
      continue;
    }
    aici_mask(row, r->bits, described);
    for (int64_t i = described; i < n; i++) row[i] = -INFINITY;
    for (int64_t i = 0; i < num_eos; i++) row[other_eos[i]] = weights[i];
    r->token = aici_choose(row, n, (float)r->temperature, r->k, r->p, r->min_p, r->draw, ids, weights);
  }
}

/* For log-probabilities: log(sum(exp(row))) goes to `total`; the k most likely tokens and their logits go to `ids` and
   `logits` (memory for 2 n + 32 entries). Among equal logits, the first tokens win. Returns the number of tokens, or
   NOT_FINITE. */
AICI_EXPORT int64_t aici_scores(const float *row, int64_t n, int64_t k, double *total, int32_t *ids, float *logits) {
  f32x16 groups[FEW_GROUPS];
  const float top = top_of(row, n, groups, FEW_GROUPS);
  if (!isfinite(top)) return NOT_FINITE;
  f64x16 all = {};
  for (int64_t i = 0; i < n;) {
    f32x16 some = {};
    for (const int64_t stop = i + FEW < n ? i + FEW : n; i < stop; i += LANES) some += exp16(part(row, n, i) - splat(top));
    all += __builtin_convertvector(some, f64x16);
  }
  double sum = 0;
  for (int lane = 0; lane < LANES; lane++) sum += all[lane];
  *total = (double)top + log(sum);
  candidates c = {ids, logits, 0};
  if (k > 0) top_k(row, n, k, groups, FEW_GROUPS, &c);
  for (int64_t i = 1; i < c.num; i++)
    for (int64_t j = i; j > 0 && before(&c, j, j - 1); j--) swap(&c, j, j - 1);
  return c.num < k ? c.num : k;
}
