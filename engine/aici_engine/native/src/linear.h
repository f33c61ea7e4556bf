/* Products of weight matrices and activations. */
#pragma once
#include <stddef.h>

#include "native.h"
#include "pool.h"

/* Activations in the form of a kernel. INT8 and INT4: signed bytes in groups of 32, with a scale and a sum per group.
   BF16: rounded to bf16. F32: unchanged. */
typedef struct {
  int columns;
  float *floats;    /* (tokens, columns) */
  void *narrow;     /* (tokens, columns), same memory as `floats`: operands of dot_bf16 */
  int8_t *bytes;    /* (tokens, columns) */
  float *scales;    /* (tokens, columns / 32) */
  void *sums;       /* (tokens, columns / 32), 4 bytes per group; the meaning depends on the format, see `activate` */
} activations;

/* Bytes for `tokens` tokens of at most `columns` numbers in any format. `activations_at` lays out that memory. */
size_t activations_size(int tokens, int columns);
activations activations_at(char *memory, int tokens, int columns);

/* Convert the floats of one token. */
void activate(const activations *to, int token, const float *from, int format);

/* y = x w^T + bias, or with `add` y += x w^T + bias. y: (tokens, stride). All threads of a job call this function, which
   is one phase. */
void linear(pool_thread *self, const aici_matrix *w, const activations *x, int tokens, float *y, int stride, int add);

/* One row of the matrix as floats, for embeddings. */
void matrix_row(const aici_matrix *w, int row, float *to);
