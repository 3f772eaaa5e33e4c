/* The encoder for sentences of any lengths: their tokens are rows one after the other, so nothing is padded.

       N tokens of all sentences   p model width   H heads   G key-value heads   d head width
*/
#ifndef REGARD_ENCODER
#define REGARD_ENCODER
#include "network.h"

typedef struct {
  Attention functions;
  const Stack *stack;
  Angles angles;
  const int32_t *starts, *ends;  /* (N): where the sentence of each row begins and ends */
  int rows;
} EncoderAttention;

/* Each token attends to all tokens of its sentence. */
static void encoder_self(Attention *attention, int l, const float *x, float *qkv, float *y, Thread t) {
  EncoderAttention *a = (EncoderAttention *)attention;
  const Stack *stack = a->stack;
  int H = stack->heads, G = stack->kv_heads, d = stack->dim / H, wide = (H + 2 * G) * d;
  HeadSizes sizes = {H, G, d};
  (void)l, (void)x;
  for (int r = share(a->rows, t, 0); r < share(a->rows, t, 1); r++)
    rotate_row(stack, a->angles, qkv + (size_t)r * wide, r - a->starts[r]);
  meet(t);
  for (int r = share(a->rows, t, 0); r < share(a->rows, t, 1); r++) {
    int n = a->ends[r] - a->starts[r];
    const float *k[n], *v[n];
    float weights[attention_room(sizes, n)];
    for (int i = 0; i < n; i++) {
      k[i] = qkv + (size_t)(a->starts[r] + i) * wide + H * d;
      v[i] = k[i] + G * d;
    }
    attend(qkv + (size_t)r * wide, (Tokens){k, v, d, n}, sizes, NULL, weights, y + (size_t)r * H * d);
  }
  meet(t);
}

/* Encode the tokens of sentences, and project them to the keys and values of each decoder layer's cross-attention:
   kv[l] (N, 2 G d). `x` (N, p) is room for the vectors. */
static void encode(const Network *network, const int32_t *tokens, const int32_t *starts, const int32_t *ends, int rows,
                   float *x, float *const *kv, Scratch s, Thread t) {
  int p = network->encoder.dim;
  for (int r = share(rows, t, 0); r < share(rows, t, 1); r++)
    embed(&network->source, tokens[r], r - starts[r], x + (size_t)r * p, p);
  meet(t);
  EncoderAttention attention = {{encoder_self, NULL}, &network->encoder, network->source_angles, starts, ends, rows};
  const float *states = run_stack(&network->encoder, x, s, rows, &attention.functions, t);
  for (int l = 0; l < network->decoder.layers; l++)
    product(&network->decoder.blocks[l].cross_kv, states, kv[l], s.quantized, rows, t);
}

#endif
