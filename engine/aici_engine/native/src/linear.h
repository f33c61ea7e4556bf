/* Weights times activations. */
#pragma once
#include <stddef.h>

#include "native.h"
#include "pool.h"

/* Activations as a kernel reads them. For INT8 and INT4: signed bytes in groups of 32 with a scale, and each group's
   sum; for BF16: rounded to it; for F32: themselves. */
typedef struct {
  int columns;
  float *floats;    /* (tokens, columns) */
  void *narrow;     /* (tokens, columns), in the place of `floats`: as dot_bf16 reads them */
  int8_t *bytes;    /* (tokens, columns) */
  float *scales;    /* (tokens, columns / 32) */
  void *sums;       /* (tokens, columns / 32), 4 bytes each: what a group's sum is good for differs by format */
} activations;

/* Bytes that `tokens` tokens of at most `columns` need, of any format; `activations_at` lays them out there. */
size_t activations_size(int tokens, int columns);
activations activations_at(char *memory, int tokens, int columns);

/* Take in the floats of one token. */
void activate(const activations *to, int token, const float *from, int format);

/* y (tokens, stride) = x w^T + bias, or y += that. Called by all threads of a job, with a barrier after it. */
void linear(aici_pool *pool, const aici_matrix *w, const activations *x, int tokens, float *y, int stride, int add);

/* One row of the matrix, as floats: what an embedding is. */
void matrix_row(const aici_matrix *w, int row, float *to);
