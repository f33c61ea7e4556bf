/* What Python calls. The counterpart of every structure is in ../bindings.py. */
#pragma once
#include <stdint.h>

#include "export.h"

/* Number formats: of weights, or of keys and values. */
enum { F32 = 0, BF16 = 1, INT8 = 2, INT4 = 3 };

/* A weight matrix of `rows` (outputs, a multiple of 16 here: padded with zeros) by `columns` (inputs), in panels of
   sixteen rows:
     F32   values (rows/16, columns, 16)
     BF16  values (rows/16, columns/2, 16, 2)
     INT8  values (rows/16, columns/32, 8, 16, 4) bytes, each its number + 128;        scales (rows/16, columns/32, 16)
     INT4  values (rows/16, columns/32, 4, 16, 4) bytes, two numbers of 0 to 15 each: the low half belongs to the
           2i-th four columns of the 32, the high half to the next four;               scales, minimums likewise
   Scales and minimums are half precision; a number stands for scale * number (+ minimum).
   `bias`: (rows) or null. */
typedef struct {
  int32_t format, rows, columns;
  const void *values;
  const uint16_t *scales, *minimums;
  const float *bias;
} aici_matrix;
