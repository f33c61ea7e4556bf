/* Attention that reads keys and values from the pages of the KV cache, without a copy. */
#pragma once
#include "native.h"
#include "pool.h"

/* The tokens of a step. Chunk c has the tokens query_starts[c] to query_starts[c + 1] - 1, at the positions
   start_positions[c], start_positions[c] + 1, ... of its sequence. The sequence's pages begin at pages[page_starts[c]].
   */
typedef struct {
  int32_t num_tokens, num_chunks, num_logits;
  const int32_t *tokens;          /* (num_tokens) */
  const int32_t *query_starts;    /* (num_chunks + 1) */
  const int32_t *start_positions; /* (num_chunks) */
  const int32_t *page_starts;     /* (num_chunks) */
  const int32_t *pages;
  const int32_t *logit_rows;      /* (num_logits): tokens whose logits are requested */
  int32_t num_states;
  const int32_t *state_rows;      /* (num_states): tokens whose final states are requested */
  float *final_states;            /* (num_states, hidden_size), any address: takes the states after the final norm */
} aici_batch;

/* The KV cache of one layer. page_size (tokens) and head_dim are multiples of 16. Layout of a page, with H = num_kv_heads
   and D = head_dim:
     F32   keys (page_size / 16, H, D, 16): sixteen keys are scored at once;   values (page_size / 16, H, 16, D)
     BF16  keys (page_size / 16, H, D / 2, 16, 2);                             values (page_size / 16, H, 8, D, 2)
     INT8  tiles (page_size / 16, H) of (D + 4) * 16 bytes: keys (D / 4, 16, 4), values (4, D, 4), then sixteen scales in
           f32. A byte is code + 128; number = code * scale.
   BF16 stores pairs side by side because dot_bf16 multiplies two numbers per lane; INT8 stores fours for dot_wide. */
typedef struct {
  void *keys, *values;
  int32_t format, page_size, num_kv_heads, head_dim;
} kv_cache;

void kv_write(const kv_cache *cache, int page, int offset, const float *keys, const float *values);

/* `queries`, `out`: one row per token, `stride` (`out_stride`) floats apart, of (num_kv_heads * queries_per_kv,
   head_dim). queries_per_kv query heads share one key head. Queries are scaled already. `window`: tokens that a query
   sees, its own included; 0: all. `softcap`: score = softcap * tanh(score / softcap); 0: no cap. All threads of a job
   call this function, which is one phase. */
void attend(pool_thread *self, const kv_cache *cache, const aici_batch *batch, const float *queries, int stride,
            int queries_per_kv, int window, float softcap, float *out, int out_stride);
