/* One step of a decoder (Llama and its relatives, GPT-2): from token ids to logits, or the part of a stage. Differences
   between model families are data in `aici_decoder` and `aici_layer`. Constant factors were folded into the weights when
   the weights were packed (`../from_transformers.py`). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
#include "linear.h"
#include "simd.h"

typedef struct {
  const float *before_attention, *after_attention, *before_mlp, *after_mlp; /* norm weights; null: no norm here */
  const float *query_norm, *key_norm;   /* (head_dim), or (heads * head_dim) with `joint_qk_norms`; null: no norm */
  aici_matrix qkv, out;                 /* rows of qkv: queries, keys, values */
  aici_matrix gate_up, down;            /* rows of gate_up: 16 of gate, the same 16 of up, and so on; or up alone */
  int32_t window;                       /* sliding window in tokens, the query included; 0: no window */
  int32_t rope;                         /* index into `inv_freqs` and `rope_scales` */
} aici_layer;

typedef struct {
  int32_t num_layers, hidden_size, intermediate_size, num_heads, num_kv_heads, head_dim;
  int32_t num_ropes;                    /* different rotary embeddings in the model */
  int32_t rotary_dim;                   /* how many of the head_dim numbers RoPE rotates */
  int32_t joint_qk_norms;               /* 1: one norm over all query heads, one over all key heads; 0: one per head */
  int32_t layer_norm;                   /* 1: LayerNorm, weights followed by biases; 0: RMSNorm */
  int32_t gated_mlp;                    /* 1: down(activation(gate) * up); 0: down(activation(up)), gate_up holds up */
  float norm_eps, embedding_scale, query_scale;
  float activation_linear, activation_cubic; /* activation(x) = x / (1 + exp(-(linear x + cubic x^3))) */
  float attention_softcap, logit_softcap; /* 0: no cap */
  const float *inv_freqs;               /* (num_ropes, rotary_dim / 2) */
  const float *rope_scales;             /* (num_ropes): factor of cosines and sines */
  const float *norm;                    /* (hidden_size), or (2, hidden_size) with layer_norm, as in every layer */
  aici_matrix embedding, positions, head; /* positions: learned, added to the embedding; null values: none */
  const aici_layer *layers;             /* those of the stage */
} aici_decoder;

typedef struct {
  void *const *keys, *const *values;    /* one pointer per layer */
  int32_t format, page_size;
} aici_storage;

typedef struct {
  const aici_decoder *model;
  const aici_storage *storage;
  const aici_batch *batch;
  const char *before;                   /* states of the layers before, or null */
  int has_head;
  float *logits;                        /* (num_logits, rows of the head) */
  int32_t *positions;                   /* (tokens): position of each token in its sequence */
  int32_t *kv_rows;                  /* (tokens): where the token's keys go: page * page_size + offset */
  float *states, *qkv, *attended, *mlp;
  float *branch;                        /* output of attention or MLP that passes a norm before the residual sum */
  float *angles;                        /* (tokens, num_ropes, rotary_dim) */
  activations hidden_input;             /* input of matrices from hidden_size, and of `out` */
  activations mlp_input;                /* input of `down`, from intermediate_size */
} step;

static void normalize(const aici_decoder *m, const float *x, const float *weight, int n, float *to) {
  f32x16 sum = {}, squares = {};
  for (int i = 0; m->layer_norm && i < n; i += LANES) sum += load(x + i);
  const float mean = sum16(sum) / (float)n;
  for (int i = 0; i < n; i += LANES) squares = fma16(load(x + i) - mean, load(x + i) - mean, squares);
  const float by = 1.0f / sqrtf(sum16(squares) / (float)n + m->norm_eps);
  for (int i = 0; i < n; i += LANES) {
    const f32x16 normal = (load(x + i) - mean) * by * load(weight + i);
    store(to + i, m->layer_norm ? normal + load(weight + n + i) : normal);
  }
}

/* Rotate x in place: number i with number i + rotary_dim / 2. `angles`: cosines, then sines. */
static void rotate(float *x, const float *angles, int rotary_dim) {
  const int half = rotary_dim / 2;
  for (int i = 0; i < half; i++) {
    const float a = x[i], b = x[i + half], c = angles[i], s = angles[i + half];
    x[i] = a * c - b * s;
    x[i + half] = b * c + a * s;
  }
}

/* A step in one layer: what the phases of the layer need. */
typedef struct {
  const step *s;
  const aici_layer *layer;
  kv_cache cache;
  activations from_attention;           /* input of `out` */
} layer_pass;

typedef void token_work(const layer_pass *p, pool_range tokens);

typedef struct {
  const layer_pass *p;
  token_work *work;
  int count;
} token_phase;

static void work_on_share(const void *context, pool_item *item) {
  const token_phase *phase = context;
  phase->work(phase->p, pool_share(item, phase->count));
}

/* One phase: `work` for `count` tokens, or for other things that are counted from 0. */
static void for_tokens(pool_thread *self, const layer_pass *p, token_work *work, int count) {
  const token_phase phase = {p, work, count};
  pool_phase(self, pool_shares(self, count), ONCE, work_on_share, &phase);
}

static void prepare_input(const step *s, const float *norm, int format, pool_range tokens) {
  const aici_decoder *m = s->model;
  float normal[m->hidden_size];
  for (int t = tokens.first; t < tokens.last; t++) {
    const float *state = s->states + (size_t)t * (size_t)m->hidden_size;
    if (norm) normalize(m, state, norm, m->hidden_size, normal);
    activate(&s->hidden_input, t, norm ? normal : state, format);
  }
}

static void prepare_attention(const layer_pass *p, pool_range tokens) {
  prepare_input(p->s, p->layer->before_attention, p->layer->qkv.format, tokens);
}

static void prepare_mlp(const layer_pass *p, pool_range tokens) {
  prepare_input(p->s, p->layer->before_mlp, p->layer->gate_up.format, tokens);
}

/* states += norm(branch) */
static void add_branch(const step *s, const float *norm, pool_range tokens) {
  const int n = s->model->hidden_size;
  for (int t = tokens.first; t < tokens.last; t++) {
    float *state = s->states + (size_t)t * (size_t)n, *branch = s->branch + (size_t)t * (size_t)n;
    normalize(s->model, branch, norm, n, branch);
    for (int i = 0; i < n; i += LANES) store(state + i, load(state + i) + load(branch + i));
  }
}

static void add_attention(const layer_pass *p, pool_range tokens) { add_branch(p->s, p->layer->after_attention, tokens); }
static void add_mlp(const layer_pass *p, pool_range tokens) { add_branch(p->s, p->layer->after_mlp, tokens); }

/* Residual sum: states += norm(w x), or states += w x without a norm. */
static void add_projection(pool_thread *self, const layer_pass *p, const aici_matrix *w, const activations *x,
                           const float *norm, token_work *add) {
  const step *s = p->s;
  const int count = s->batch->num_tokens;
  linear(self, w, x, count, norm ? s->branch : s->states, s->model->hidden_size, !norm);
  if (norm) for_tokens(self, p, add, count);
}

static void norm_heads(const aici_decoder *m, const float *weight, float *heads, int count) {
  const int n = m->joint_qk_norms ? count * m->head_dim : m->head_dim;
  for (int i = 0; weight && i < count * m->head_dim; i += n) normalize(m, heads + i, weight, n, heads + i);
}

static int qkv_size(const aici_decoder *m) { return (m->num_heads + 2 * m->num_kv_heads) * m->head_dim; }

static void rotate_and_write(const layer_pass *p, pool_range tokens) {
  const step *s = p->s;
  const aici_layer *layer = p->layer;
  const kv_cache *cache = &p->cache;
  const aici_decoder *m = s->model;
  for (int t = tokens.first; t < tokens.last; t++) {
    const float *angles = s->angles + ((size_t)t * (size_t)m->num_ropes + (size_t)layer->rope) * (size_t)m->rotary_dim;
    float *queries = s->qkv + (size_t)t * (size_t)qkv_size(m), *keys = queries + m->num_heads * m->head_dim;
    norm_heads(m, layer->query_norm, queries, m->num_heads);
    norm_heads(m, layer->key_norm, keys, m->num_kv_heads);
    for (int i = 0; i < m->num_heads + m->num_kv_heads; i++) rotate(queries + i * m->head_dim, angles, m->rotary_dim);
    for (int i = 0; i < m->num_heads * m->head_dim; i++) queries[i] *= m->query_scale;
    const int row = s->kv_rows[t];
    kv_write(cache, row / cache->page_size, row % cache->page_size, keys, keys + m->num_kv_heads * m->head_dim);
  }
}

static int gate_up_size(const aici_decoder *m) { return m->gated_mlp ? 2 * m->intermediate_size : m->intermediate_size; }

static void activate_attended(const layer_pass *p, pool_range tokens) {
  const size_t n = (size_t)p->from_attention.columns;
  for (int t = tokens.first; t < tokens.last; t++)
    activate(&p->from_attention, t, p->s->attended + (size_t)t * n, p->layer->out.format);
}

static void gate(const layer_pass *p, pool_range tokens) {
  const step *s = p->s;
  const int n = s->model->intermediate_size, parts = s->model->gated_mlp ? 2 : 1;
  const f32x16 slope = splat(s->model->activation_linear), cubic = splat(s->model->activation_cubic);
  float gated[n];
  for (int t = tokens.first; t < tokens.last; t++) {
    const float *from = s->mlp + (size_t)t * (size_t)gate_up_size(s->model);
    for (int i = 0; i < n; i += LANES, from += parts * LANES) {
      const f32x16 x = load(from), up = parts == 2 ? load(from + LANES) : splat(1.0f);
      /* exp16 is defined up to 88. Beyond 87 the quotient rounds to 0 anyway. */
      const f32x16 e = exp16(__builtin_elementwise_min(-x * fma16(cubic, x * x, slope), splat(87.0f)));
      store(gated + i, x / (e + 1.0f) * up);
    }
    activate(&s->mlp_input, t, gated, p->layer->down.format);
  }
}

static void angles(const step *s, pool_range tokens) {
  const aici_decoder *m = s->model;
  const int half = m->rotary_dim / 2;
  float *to = s->angles + (size_t)tokens.first * (size_t)m->num_ropes * (size_t)m->rotary_dim;
  for (int t = tokens.first; t < tokens.last; t++)
    for (int r = 0; r < m->num_ropes; r++, to += m->rotary_dim)
      for (int i = 0; i < half; i++) {
        const float angle = (float)s->positions[t] * m->inv_freqs[r * half + i];
        to[i] = cosf(angle) * m->rope_scales[r];
        to[half + i] = sinf(angle) * m->rope_scales[r];
      }
}

static void embed(const step *s, pool_range tokens) {
  const aici_decoder *m = s->model;
  for (int t = tokens.first; t < tokens.last; t++) {
    float *state = s->states + (size_t)t * (size_t)m->hidden_size;
    matrix_row(&m->embedding, s->batch->tokens[t], state);
    for (int i = 0; i < m->hidden_size; i++) state[i] *= m->embedding_scale;
    if (!m->positions.values) continue;
    float position[m->hidden_size];
    matrix_row(&m->positions, s->positions[t], position);
    for (int i = 0; i < m->hidden_size; i++) state[i] += position[i];
  }
}

static void take_states(const step *s, pool_range tokens) {
  const size_t row = (size_t)s->model->hidden_size, first = (size_t)tokens.first * row;
  memcpy(s->states + first, s->before + first * sizeof(float), (size_t)(tokens.last - tokens.first) * row * sizeof(float));
}

static void begin(const layer_pass *p, pool_range tokens) {
  if (p->s->before) take_states(p->s, tokens);
  else embed(p->s, tokens);
  if (p->s->model->num_layers) angles(p->s, tokens);
}

/* Only the requested rows pass the head. */
static void prepare_head(const layer_pass *p, pool_range rows) {
  const step *s = p->s;
  const aici_decoder *m = s->model;
  float normal[m->hidden_size];
  for (int r = rows.first; r < rows.last; r++) {
    const float *state = s->states + (size_t)s->batch->logit_rows[r] * (size_t)m->hidden_size;
    normalize(m, state, m->norm, m->hidden_size, normal);
    activate(&s->hidden_input, r, normal, m->head.format);
  }
}

static void keep_states(const layer_pass *p, pool_range rows) {
  const aici_batch *batch = p->s->batch;
  const aici_decoder *m = p->s->model;
  for (int r = rows.first; r < rows.last; r++)
    normalize(m, p->s->states + (size_t)batch->state_rows[r] * (size_t)m->hidden_size, m->norm, m->hidden_size,
              batch->final_states + (size_t)r * (size_t)m->hidden_size);
}

static void softcap_logits(const layer_pass *p, pool_range lanes) {
  const float softcap = p->s->model->logit_softcap;
  float *logits = p->s->logits + (size_t)lanes.first * LANES;
  for (int i = lanes.first; i < lanes.last; i++, logits += LANES) store(logits, tanh16(load(logits) / softcap) * softcap);
}

/* A product with a matrix takes two operations per weight and token. */
static double weigh_product(const aici_matrix *w, int tokens) { return 2.0 * w->rows * w->columns * tokens; }

/* A key takes 4 operations per number of a query head: two for the score, two for the sum of the values. */
static double weigh_attention(const step *s, const aici_layer *layer) {
  double keys = 0;
  for (int t = 0; t < s->batch->num_tokens; t++) {
    const int seen = s->positions[t] + 1;
    keys += layer->window && layer->window < seen ? layer->window : seen;
  }
  return 4.0 * keys * s->model->num_heads * s->model->head_dim;
}

static void run_layer(pool_thread *self, const layer_pass *p) {
  const step *s = p->s;
  const aici_decoder *m = s->model;
  const aici_layer *layer = p->layer;
  const int count = s->batch->num_tokens, queries_per_kv = m->num_heads / m->num_kv_heads;
  for_tokens(self, p, prepare_attention, count);
  pool_lap(self, REST, 0);
  linear(self, &layer->qkv, &s->hidden_input, count, s->qkv, qkv_size(m), 0);
  pool_lap(self, PRODUCTS, weigh_product(&layer->qkv, count));
  for_tokens(self, p, rotate_and_write, count);
  pool_lap(self, REST, 0);
  attend(self, &p->cache, s->batch, s->qkv, qkv_size(m), queries_per_kv, layer->window, m->attention_softcap, s->attended,
         p->from_attention.columns);
  if (pool_profiles(self)) pool_lap(self, ATTENTION, weigh_attention(s, layer));
  for_tokens(self, p, activate_attended, count);
  pool_lap(self, REST, 0);
  add_projection(self, p, &layer->out, &p->from_attention, layer->after_attention, add_attention);
  pool_lap(self, PRODUCTS, weigh_product(&layer->out, count));
  for_tokens(self, p, prepare_mlp, count);
  pool_lap(self, REST, 0);
  linear(self, &layer->gate_up, &s->hidden_input, count, s->mlp, gate_up_size(m), 0);
  pool_lap(self, PRODUCTS, weigh_product(&layer->gate_up, count));
  for_tokens(self, p, gate, count);
  pool_lap(self, REST, 0);
  add_projection(self, p, &layer->down, &s->mlp_input, layer->after_mlp, add_mlp);
  pool_lap(self, PRODUCTS, weigh_product(&layer->down, count));
}

static void run(pool_thread *self, void *argument) {
  const step *s = argument;
  const aici_decoder *m = s->model;
  const aici_batch *batch = s->batch;
  layer_pass p = {.s = s, .from_attention = s->hidden_input};
  p.from_attention.columns = m->num_heads * m->head_dim;
  for_tokens(self, &p, begin, batch->num_tokens);
  for (int i = 0; i < m->num_layers; i++) {
    p.layer = &m->layers[i];
    p.cache = (kv_cache){s->storage->keys[i], s->storage->values[i], s->storage->format, s->storage->page_size,
                         m->num_kv_heads, m->head_dim};
    run_layer(self, &p);
  }
  if (!s->has_head) return;
  for_tokens(self, &p, prepare_head, batch->num_logits);
  if (batch->num_states) for_tokens(self, &p, keep_states, batch->num_states);
  pool_lap(self, REST, 0);
  linear(self, &m->head, &s->hidden_input, batch->num_logits, s->logits, m->head.rows, 0);
  pool_lap(self, HEAD, weigh_product(&m->head, batch->num_logits));
  if (m->logit_softcap) for_tokens(self, &p, softcap_logits, batch->num_logits * (m->head.rows / LANES));
}

static void *carve(char **memory, size_t bytes) {
  void *at = *memory;
  *memory += (bytes + 63) & ~(size_t)63;
  return at;
}

/* Bytes of scratch `memory` for a step of `num_tokens` tokens. */
AICI_EXPORT size_t aici_decoder_memory(const aici_decoder *m, int32_t num_tokens) {
  const int attended = m->num_heads * m->head_dim, wide = attended > m->hidden_size ? attended : m->hidden_size;
  const size_t floats = (size_t)(2 * m->hidden_size + qkv_size(m) + attended + gate_up_size(m) + m->num_ropes * m->rotary_dim);
  return (size_t)num_tokens * (floats * 4 + 8) + 9 * 64 + activations_size(num_tokens, wide) +
         activations_size(num_tokens, m->intermediate_size);
}

/* One step of a stage: all layers of a model, or a part of them, perhaps none.
   `before`: (tokens, hidden_size) floats at any address, the states of the layers before; null: tokens are embedded.
   `after`: (tokens, hidden_size), takes the states of the last layer, and the head is left out; null: `logits` are
   computed. `memory`: aici_decoder_memory bytes, aligned to 64; scratch, free to reuse after the call. The caller
   guarantees: token ids are rows of the embedding; each chunk has pages for all positions; num_logits is at most
   num_tokens; num_states is 0 where the head is left out. Without layers, a batch with `before` needs no chunks. */
AICI_EXPORT void aici_decoder_stage(aici_pool *pool, const aici_decoder *m, const aici_storage *storage,
                                    const aici_batch *batch, char *memory, const void *before, float *after,
                                    float *logits) {
  const size_t n = (size_t)batch->num_tokens;
  const int attended = m->num_heads * m->head_dim, wide = attended > m->hidden_size ? attended : m->hidden_size;
  step s = {.model = m, .storage = storage, .batch = batch, .before = before, .has_head = !after, .logits = logits};
  s.positions = carve(&memory, n * 4);
  s.kv_rows = carve(&memory, n * 4);
  s.states = carve(&memory, n * (size_t)m->hidden_size * 4);
  if (after) s.states = after;
  s.qkv = carve(&memory, n * (size_t)qkv_size(m) * 4);
  s.attended = carve(&memory, n * (size_t)attended * 4);
  s.mlp = carve(&memory, n * (size_t)gate_up_size(m) * 4);
  s.branch = carve(&memory, n * (size_t)m->hidden_size * 4);
  s.angles = carve(&memory, n * (size_t)(m->num_ropes * m->rotary_dim) * 4);
  s.hidden_input = activations_at(carve(&memory, activations_size(batch->num_tokens, wide)), batch->num_tokens, wide);
  s.hidden_input.columns = m->hidden_size;
  s.mlp_input = activations_at(memory, batch->num_tokens, m->intermediate_size);
  for (int chunk = 0; chunk < batch->num_chunks; chunk++)
    for (int t = batch->query_starts[chunk]; t < batch->query_starts[chunk + 1]; t++) {
      const int position = batch->start_positions[chunk] + t - batch->query_starts[chunk];
      s.positions[t] = position;
      s.kv_rows[t] = batch->pages[batch->page_starts[chunk] + position / storage->page_size] * storage->page_size +
                   position % storage->page_size;
    }
  pool_run(pool, run, &s);
}
