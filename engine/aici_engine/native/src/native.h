/* Types of the interface to Python. ../bindings.py has the counterpart of every structure. */
#pragma once
#include <stdint.h>

#include "export.h"

/* Number formats of weights; keys and values use F32, BF16 or INT8. */
enum { F32 = 0, BF16 = 1, INT8 = 2, INT4 = 3 };

/* A weight matrix of `rows` outputs (padded with zeros to a multiple of 16) by `columns` inputs, in panels of 16 rows:
     F32   values (rows/16, columns, 16)
     BF16  values (rows/16, columns/2, 16, 2)
     INT8  values (rows/16, columns/32, 8, 16, 4): a byte is code + 128;       scales (rows/16, columns/32, 16)
     INT4  values (rows/16, columns/32, 4, 16, 4): a byte is two codes from 0 to 15. Of the 32 columns of a group, byte
           row i has columns 8i to 8i + 3 in the low halves and 8i + 4 to 8i + 7 in the high halves;
           scales and minimums (rows/16, columns/32, 16)
   Scales and minimums are f16. weight = scale * code (+ minimum). `bias`: (rows), or null. */
typedef struct {
  int32_t format, rows, columns;
  const void *values;
  const uint16_t *scales, *minimums;
  const float *bias;
} aici_matrix;
