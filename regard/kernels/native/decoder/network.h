/* A translation model, as regard/models/transformer.py computes it: embeddings, encoder, decoder and output matrix.

       V vocabulary   p model width
*/
#ifndef REGARD_NETWORK
#define REGARD_NETWORK
#include "attention.h"
#include "stack.h"

typedef struct {
  const float *rows;       /* (V, p), or NULL */
  const int8_t *numbers;   /* (V, p) with scales (V) */
  const float *scales;
  const float *positions;  /* (longest, p): added to the rows, or NULL */
  float factor;            /* of the rows */
} Embedding;

typedef struct { const float *cosines, *sines; } Angles;  /* of all positions, (longest, rotated / 2); or NULL */

typedef struct {
  Stack encoder, decoder;
  Embedding source, target;
  Angles source_angles, target_angles;
  Matrix output;
} Network;

/* x (p) = the vector of a token at a position. */
static void embed(const Embedding *e, int token, int position, float *x, int p) {
  const float *at = e->positions ? e->positions + (size_t)position * p : NULL;
  float scale = e->rows ? 1 : e->scales[token];
  for (int i = 0; i < p; i++) {
    float number = e->rows ? e->rows[(size_t)token * p + i] : e->numbers[(size_t)token * p + i] * scale;
    x[i] = number * e->factor + (at ? at[i] : 0.0f);
  }
}

/* Rotate the queries and keys of a row (H + 2 G) d to their position. */
static void rotate_row(const Stack *stack, Angles angles, float *row, int position) {
  int d = stack->dim / stack->heads, half = stack->rotated / 2;
  for (int h = 0; half && h < stack->heads + stack->kv_heads; h++)
    turn(row + h * d, angles.cosines + position * half, angles.sines + position * half, stack->rotated, stack->interleaved);
}

#endif
