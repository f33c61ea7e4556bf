/* A whole step of a decoder of the Llama family: everything between token ids and logits. */
#include <math.h>
#include <stdlib.h>

#include "attention.h"
#include "linear.h"
#include "simd.h"

typedef struct {
  const float *input_norm, *post_norm;  /* (hidden) */
  const float *query_norm, *key_norm;   /* (width), or null */
  aici_matrix qkv, out;                 /* rows: queries, keys, values */
  aici_matrix gate_up, down;            /* rows: 16 of the gate, the same 16 of up, and so on */
  int32_t window;                       /* 0: none */
} aici_layer;

typedef struct {
  int32_t num_layers, hidden, inner, query_heads, key_heads, width;
  float epsilon, rope_scale;            /* rope_scale: what cosines and sines are multiplied by */
  const float *frequencies;             /* (width / 2) */
  const float *norm;                    /* (hidden) */
  aici_matrix embedding, head;
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
  float *states, *qkv, *attended, *inner, *angles;
  activations wide, narrow;             /* of `hidden` (and what attention gives), of `inner` */
} step;

static void rms_norm(const float *x, const float *weight, int n, float epsilon, float *to) {
  f32x16 squares = {};
  for (int i = 0; i < n; i += LANES) squares = fma16(load(x + i), load(x + i), squares);
  const float by = 1.0f / sqrtf(sum16(squares) / (float)n + epsilon);
  for (int i = 0; i < n; i += LANES) store(to + i, load(x + i) * by * load(weight + i));
}

/* In place, halves of a head turned against each other. `angles`: cosines, then sines. */
static void rotate(float *x, const float *angles, int width) {
  const int half = width / 2;
  for (int i = 0; i < half; i++) {
    const float a = x[i], b = x[i + half], c = angles[i], s = angles[i + half];
    x[i] = a * c - b * s;
    x[i + half] = b * c + a * s;
  }
}

typedef struct { int first, last; } range;

static range share(int count, int thread, int threads) {
  return (range){count * thread / threads, count * (thread + 1) / threads};
}

static void normalize(const step *s, const float *weight, int format, range tokens) {
  const aici_llama *m = s->model;
  float normal[m->hidden];
  for (int t = tokens.first; t < tokens.last; t++) {
    rms_norm(s->states + (size_t)t * (size_t)m->hidden, weight, m->hidden, m->epsilon, normal);
    activate(&s->wide, t, normal, format);
  }
}

static int qkv_width(const aici_llama *m) { return (m->query_heads + 2 * m->key_heads) * m->width; }

static void rotate_and_write(const step *s, const aici_layer *layer, const kv_cache *cache, range tokens) {
  const aici_llama *m = s->model;
  const float scale = 1.0f / sqrtf((float)m->width);
  for (int t = tokens.first; t < tokens.last; t++) {
    const float *angles = s->angles + (size_t)t * (size_t)m->width;
    float *head = s->qkv + (size_t)t * (size_t)qkv_width(m);
    for (int i = 0; i < m->query_heads + m->key_heads; i++, head += m->width) {
      const float *norm = i < m->query_heads ? layer->query_norm : layer->key_norm;
      if (norm) rms_norm(head, norm, m->width, m->epsilon, head);
      rotate(head, angles, m->width);
      if (i < m->query_heads)
        for (int d = 0; d < m->width; d++) head[d] *= scale;
    }
    const int slot = s->slots[t];
    kv_write(cache, slot / cache->page_size, slot % cache->page_size, head - m->key_heads * m->width, head);
  }
}

static void gate(const step *s, int format, range tokens) {
  const int n = s->model->inner;
  float gated[n];
  for (int t = tokens.first; t < tokens.last; t++) {
    const float *pairs = s->inner + (size_t)t * 2 * (size_t)n;
    for (int i = 0; i < n; i += LANES, pairs += 2 * LANES) {
      const f32x16 x = load(pairs), up = load(pairs + LANES);
      /* Beyond 87 the exponential would leave its range; the quotient is 0 long before. */
      const f32x16 e = exp16(__builtin_elementwise_min(-x, splat(87.0f)));
      store(gated + i, x / (e + 1.0f) * up);
    }
    activate(&s->narrow, t, gated, format);
  }
}

static void angles(const step *s, range tokens) {
  const aici_llama *m = s->model;
  const int half = m->width / 2;
  for (int t = tokens.first; t < tokens.last; t++) {
    float *to = s->angles + (size_t)t * (size_t)m->width;
    for (int i = 0; i < half; i++) {
      const float angle = (float)s->positions[t] * m->frequencies[i];
      to[i] = cosf(angle) * m->rope_scale;
      to[half + i] = sinf(angle) * m->rope_scale;
    }
  }
}

static void run(aici_pool *pool, int thread, void *argument) {
  const step *s = argument;
  const aici_llama *m = s->model;
  const aici_batch *batch = s->batch;
  const int count = batch->num_tokens, threads = pool_size(pool);
  const range own = share(count, thread, threads);
  for (int t = own.first; t < own.last; t++)
    matrix_row(&m->embedding, batch->tokens[t], s->states + (size_t)t * (size_t)m->hidden);
  angles(s, own);
  const int attended = m->query_heads * m->width;
  activations from_attention = s->wide;
  from_attention.columns = attended;
  for (int i = 0; i < m->num_layers; i++) {
    const aici_layer *layer = &m->layers[i];
    const kv_cache cache = {s->storage->keys[i], s->storage->values[i], s->storage->format, s->storage->page_size,
                            m->key_heads, m->width};
    normalize(s, layer->input_norm, layer->qkv.format, own);
    pool_barrier(pool);
    linear(pool, &layer->qkv, &s->wide, count, s->qkv, qkv_width(m), 0);
    pool_barrier(pool);
    rotate_and_write(s, layer, &cache, own);
    pool_barrier(pool);
    attend(pool, &cache, batch, s->qkv, qkv_width(m), m->query_heads / m->key_heads, layer->window, 0, s->attended,
           attended);
    pool_barrier(pool);
    for (int t = own.first; t < own.last; t++)
      activate(&from_attention, t, s->attended + (size_t)t * (size_t)attended, layer->out.format);
    pool_barrier(pool);
    linear(pool, &layer->out, &from_attention, count, s->states, m->hidden, 1);
    pool_barrier(pool);
    normalize(s, layer->post_norm, layer->gate_up.format, own);
    pool_barrier(pool);
    linear(pool, &layer->gate_up, &s->wide, count, s->inner, 2 * m->inner, 0);
    pool_barrier(pool);
    gate(s, layer->down.format, own);
    pool_barrier(pool);
    linear(pool, &layer->down, &s->narrow, count, s->states, m->hidden, 1);
    pool_barrier(pool);
  }
  /* The rows that are wanted, and no others. */
  float normal[m->hidden];
  const range rows = share(batch->num_logits, thread, threads);
  for (int r = rows.first; r < rows.last; r++) {
    const float *state = s->states + (size_t)batch->logit_rows[r] * (size_t)m->hidden;
    rms_norm(state, m->norm, m->hidden, m->epsilon, normal);
    activate(&s->wide, r, normal, m->head.format);
  }
  pool_barrier(pool);
  linear(pool, &m->head, &s->wide, batch->num_logits, s->logits, m->head.rows, 0);
}

static void *cut(char **memory, size_t bytes) {
  void *at = *memory;
  *memory += (bytes + 63) & ~(size_t)63;
  return at;
}

/* Bytes of `memory` that a step of so many tokens needs. */
AICI_EXPORT size_t aici_llama_memory(const aici_llama *m, int32_t num_tokens) {
  const int attended = m->query_heads * m->width, wide = attended > m->hidden ? attended : m->hidden;
  const size_t floats = (size_t)(m->hidden + qkv_width(m) + attended + 2 * m->inner + m->width);
  return (size_t)num_tokens * (floats * 4 + 8) + 8 * 64 + activations_size(num_tokens, wide) +
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
  s.inner = cut(&memory, n * 2 * (size_t)m->inner * 4);
  s.angles = cut(&memory, n * (size_t)m->width * 4);
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
