/* A whole step of a decoder like Llama: everything between token ids and logits. What families differ in is data here;
   what can be folded into weights was, when they were packed. */
#include <math.h>
#include <stdlib.h>

#include "attention.h"
#include "linear.h"
#include "simd.h"

typedef struct {
  const float *before_attention, *after_attention, *before_mlp, *after_mlp; /* norms, or null */
  const float *query_norm, *key_norm;   /* (width), or (heads * width) with `joint_norms`; or null */
  aici_matrix qkv, out;                 /* rows: queries, keys, values */
  aici_matrix gate_up, down;            /* rows: 16 of the gate, the same 16 of up, and so on; or up alone */
  int32_t window;                       /* 0: none */
  int32_t rotation;                     /* which of the model's */
} aici_layer;

typedef struct {
  int32_t num_layers, hidden, inner, query_heads, key_heads, width;
  int32_t num_rotations, turned;        /* turned: how much of each head is */
  int32_t joint_norms;                  /* all heads of queries have one norm together, and all of keys */
  int32_t centered;                     /* norms take the mean away, and their weights are followed by what they add */
  int32_t gated;                        /* otherwise `gate_up` is up alone, and what the gate does is done to it */
  float epsilon, embedding_scale, query_scale;
  float gate_linear, gate_cubic;        /* x of the gate counts as x / (1 + exp(-(linear x + cubic x^3))) */
  float score_cap, logit_cap;           /* 0: none */
  const float *frequencies;             /* (num_rotations, turned / 2) */
  const float *rope_scales;             /* (num_rotations): what cosines and sines are multiplied by */
  const float *norm;                    /* (hidden), or (2, hidden) if centered, as all norms of that width */
  aici_matrix embedding, positions, head; /* positions: added to the embedding; without values, there are none */
  const aici_layer *layers;
} aici_llama;

typedef struct {
  void *const *keys, *const *values;    /* of each layer */
  int32_t format, page_size;
} aici_storage;

typedef struct {
  const aici_llama *model;
  const aici_storage *storage;
  const aici_batch *batch;
  float *logits;                        /* (num_logits, rows of the head) */
  int32_t *positions, *slots;           /* (tokens): where a token is, and where its keys go: page * page_size + offset */
  float *states, *qkv, *attended, *inner, *branch; /* branch: what goes through a norm before it is added */
  float *angles;                        /* (tokens, num_rotations, turned) */
  activations wide, narrow;             /* of `hidden` (and what attention gives), of `inner` */
} step;

static void normalize(const aici_llama *m, const float *x, const float *weight, int n, float *to) {
  f32x16 sum = {}, squares = {};
  for (int i = 0; m->centered && i < n; i += LANES) sum += load(x + i);
  const float mean = sum16(sum) / (float)n;
  for (int i = 0; i < n; i += LANES) squares = fma16(load(x + i) - mean, load(x + i) - mean, squares);
  const float by = 1.0f / sqrtf(sum16(squares) / (float)n + m->epsilon);
  for (int i = 0; i < n; i += LANES) {
    const f32x16 normal = (load(x + i) - mean) * by * load(weight + i);
    store(to + i, m->centered ? normal + load(weight + n + i) : normal);
  }
}

/* In place, two halves turned against each other. `angles`: cosines, then sines. */
static void rotate(float *x, const float *angles, int turned) {
  const int half = turned / 2;
  for (int i = 0; i < half; i++) {
    const float a = x[i], b = x[i + half], c = angles[i], s = angles[i + half];
    x[i] = a * c - b * s;
    x[i + half] = b * c + a * s;
  }
}

typedef struct { int first, last; } range;

static range share(int count, int thread, int threads) {
  return (range){(int)((int64_t)count * thread / threads), (int)((int64_t)count * (thread + 1) / threads)};
}

static void take_in(const step *s, const float *norm, int format, range tokens) {
  const aici_llama *m = s->model;
  float normal[m->hidden];
  for (int t = tokens.first; t < tokens.last; t++) {
    const float *state = s->states + (size_t)t * (size_t)m->hidden;
    if (norm) normalize(m, state, norm, m->hidden, normal);
    activate(&s->wide, t, norm ? normal : state, format);
  }
}

/* The states grow by what attention or the MLP gives, through its norm if it has one. */
static void project(aici_pool *pool, const step *s, const aici_matrix *w, const activations *x, const float *norm,
                    range tokens) {
  const int n = s->model->hidden;
  linear(pool, w, x, s->batch->num_tokens, norm ? s->branch : s->states, n, !norm);
  pool_barrier(pool);
  if (!norm) return;
  for (int t = tokens.first; t < tokens.last; t++) {
    float *state = s->states + (size_t)t * (size_t)n, *branch = s->branch + (size_t)t * (size_t)n;
    normalize(s->model, branch, norm, n, branch);
    for (int i = 0; i < n; i += LANES) store(state + i, load(state + i) + load(branch + i));
  }
}

static void norm_heads(const aici_llama *m, const float *weight, float *heads, int count) {
  const int n = m->joint_norms ? count * m->width : m->width;
  for (int i = 0; weight && i < count * m->width; i += n) normalize(m, heads + i, weight, n, heads + i);
}

static int qkv_width(const aici_llama *m) { return (m->query_heads + 2 * m->key_heads) * m->width; }

static void rotate_and_write(const step *s, const aici_layer *layer, const kv_cache *cache, range tokens) {
  const aici_llama *m = s->model;
  for (int t = tokens.first; t < tokens.last; t++) {
    const float *angles = s->angles + ((size_t)t * (size_t)m->num_rotations + (size_t)layer->rotation) * (size_t)m->turned;
    float *queries = s->qkv + (size_t)t * (size_t)qkv_width(m), *keys = queries + m->query_heads * m->width;
    norm_heads(m, layer->query_norm, queries, m->query_heads);
    norm_heads(m, layer->key_norm, keys, m->key_heads);
    for (int i = 0; i < m->query_heads + m->key_heads; i++) rotate(queries + i * m->width, angles, m->turned);
    for (int i = 0; i < m->query_heads * m->width; i++) queries[i] *= m->query_scale;
    const int slot = s->slots[t];
    kv_write(cache, slot / cache->page_size, slot % cache->page_size, keys, keys + m->key_heads * m->width);
  }
}

static int up_width(const aici_llama *m) { return m->gated ? 2 * m->inner : m->inner; }

static void gate(const step *s, int format, range tokens) {
  const int n = s->model->inner, parts = s->model->gated ? 2 : 1;
  const f32x16 slope = splat(s->model->gate_linear), cubic = splat(s->model->gate_cubic);
  float gated[n];
  for (int t = tokens.first; t < tokens.last; t++) {
    const float *from = s->inner + (size_t)t * (size_t)up_width(s->model);
    for (int i = 0; i < n; i += LANES, from += parts * LANES) {
      const f32x16 x = load(from), up = parts == 2 ? load(from + LANES) : splat(1.0f);
      /* Beyond 87 the exponential would leave its range; the quotient is 0 long before. */
      const f32x16 e = exp16(__builtin_elementwise_min(-x * fma16(cubic, x * x, slope), splat(87.0f)));
      store(gated + i, x / (e + 1.0f) * up);
    }
    activate(&s->narrow, t, gated, format);
  }
}

static void angles(const step *s, range tokens) {
  const aici_llama *m = s->model;
  const int half = m->turned / 2;
  float *to = s->angles + (size_t)tokens.first * (size_t)m->num_rotations * (size_t)m->turned;
  for (int t = tokens.first; t < tokens.last; t++)
    for (int r = 0; r < m->num_rotations; r++, to += m->turned)
      for (int i = 0; i < half; i++) {
        const float angle = (float)s->positions[t] * m->frequencies[r * half + i];
        to[i] = cosf(angle) * m->rope_scales[r];
        to[half + i] = sinf(angle) * m->rope_scales[r];
      }
}

static void embed(const step *s, range tokens) {
  const aici_llama *m = s->model;
  for (int t = tokens.first; t < tokens.last; t++) {
    float *state = s->states + (size_t)t * (size_t)m->hidden;
    matrix_row(&m->embedding, s->batch->tokens[t], state);
    for (int i = 0; i < m->hidden; i++) state[i] *= m->embedding_scale;
    if (!m->positions.values) continue;
    float position[m->hidden];
    matrix_row(&m->positions, s->positions[t], position);
    for (int i = 0; i < m->hidden; i++) state[i] += position[i];
  }
}

static void cap_logits(const step *s, range lanes) {
  const float cap = s->model->logit_cap;
  float *logits = s->logits + (size_t)lanes.first * LANES;
  for (int i = lanes.first; i < lanes.last; i++, logits += LANES) store(logits, tanh16(load(logits) / cap) * cap);
}

static void run(aici_pool *pool, int thread, void *argument) {
  const step *s = argument;
  const aici_llama *m = s->model;
  const aici_batch *batch = s->batch;
  const int count = batch->num_tokens, threads = pool_size(pool);
  const range own = share(count, thread, threads);
  embed(s, own);
  angles(s, own);
  const int attended = m->query_heads * m->width;
  activations from_attention = s->wide;
  from_attention.columns = attended;
  for (int i = 0; i < m->num_layers; i++) {
    const aici_layer *layer = &m->layers[i];
    const kv_cache cache = {s->storage->keys[i], s->storage->values[i], s->storage->format, s->storage->page_size,
                            m->key_heads, m->width};
    take_in(s, layer->before_attention, layer->qkv.format, own);
    pool_barrier(pool);
    linear(pool, &layer->qkv, &s->wide, count, s->qkv, qkv_width(m), 0);
    pool_barrier(pool);
    rotate_and_write(s, layer, &cache, own);
    pool_barrier(pool);
    attend(pool, &cache, batch, s->qkv, qkv_width(m), m->query_heads / m->key_heads, layer->window,
           m->score_cap, s->attended, attended);
    pool_barrier(pool);
    for (int t = own.first; t < own.last; t++)
      activate(&from_attention, t, s->attended + (size_t)t * (size_t)attended, layer->out.format);
    pool_barrier(pool);
    project(pool, s, &layer->out, &from_attention, layer->after_attention, own);
    take_in(s, layer->before_mlp, layer->gate_up.format, own);
    pool_barrier(pool);
    linear(pool, &layer->gate_up, &s->wide, count, s->inner, up_width(m), 0);
    pool_barrier(pool);
    gate(s, layer->down.format, own);
    pool_barrier(pool);
    project(pool, s, &layer->down, &s->narrow, layer->after_mlp, own);
  }
  pool_barrier(pool);
  /* The rows that are wanted, and no others. */
  float normal[m->hidden];
  const range rows = share(batch->num_logits, thread, threads);
  for (int r = rows.first; r < rows.last; r++) {
    const float *state = s->states + (size_t)batch->logit_rows[r] * (size_t)m->hidden;
    normalize(m, state, m->norm, m->hidden, normal);
    activate(&s->wide, r, normal, m->head.format);
  }
  pool_barrier(pool);
  linear(pool, &m->head, &s->wide, batch->num_logits, s->logits, m->head.rows, 0);
  if (!m->logit_cap) return;
  pool_barrier(pool);
  cap_logits(s, share(batch->num_logits * (m->head.rows / LANES), thread, threads));
}

static void *cut(char **memory, size_t bytes) {
  void *at = *memory;
  *memory += (bytes + 63) & ~(size_t)63;
  return at;
}

/* Bytes of `memory` that a step of so many tokens needs. */
AICI_EXPORT size_t aici_llama_memory(const aici_llama *m, int32_t num_tokens) {
  const int attended = m->query_heads * m->width, wide = attended > m->hidden ? attended : m->hidden;
  const size_t floats = (size_t)(2 * m->hidden + qkv_width(m) + attended + up_width(m) + m->num_rotations * m->turned);
  return (size_t)num_tokens * (floats * 4 + 8) + 9 * 64 + activations_size(num_tokens, wide) +
         activations_size(num_tokens, m->inner);
}

/* `memory`: as aici_llama_memory says, aligned to 64 bytes; nothing in it outlives the call. Nothing is checked: ids are
   rows of the embedding, pages are there and enough for all positions, logit_rows no more than tokens. */
AICI_EXPORT void aici_llama_step(aici_pool *pool, const aici_llama *m, const aici_storage *storage, const aici_batch *batch,
                            char *memory, float *logits) {
  const size_t n = (size_t)batch->num_tokens;
  const int attended = m->query_heads * m->width, wide = attended > m->hidden ? attended : m->hidden;
  step s = {.model = m, .storage = storage, .batch = batch, .logits = logits};
  s.positions = cut(&memory, n * 4);
  s.slots = cut(&memory, n * 4);
  s.states = cut(&memory, n * (size_t)m->hidden * 4);
  s.qkv = cut(&memory, n * (size_t)qkv_width(m) * 4);
  s.attended = cut(&memory, n * (size_t)attended * 4);
  s.inner = cut(&memory, n * (size_t)up_width(m) * 4);
  s.branch = cut(&memory, n * (size_t)m->hidden * 4);
  s.angles = cut(&memory, n * (size_t)(m->num_rotations * m->turned) * 4);
  s.wide = activations_at(cut(&memory, activations_size(batch->num_tokens, wide)), batch->num_tokens, wide);
  s.wide.columns = m->hidden;
  s.narrow = activations_at(memory, batch->num_tokens, m->inner);
  for (int chunk = 0; chunk < batch->num_chunks; chunk++)
    for (int t = batch->first[chunk]; t < batch->first[chunk + 1]; t++) {
      const int position = batch->start[chunk] + t - batch->first[chunk];
      s.positions[t] = position;
      s.slots[t] = batch->pages[batch->page_at[chunk] + position / storage->page_size] * storage->page_size +
                   position % storage->page_size;
    }
  pool_run(pool, run, &s);
}
