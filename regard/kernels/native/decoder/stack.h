/* A stack of Transformer blocks, as regard/models/stack.py computes it, for any number of rows. What rows attend to
   differs between an encoder and a decoder, so the caller brings functions for attention.

       R rows   p model width   H heads   G key-value heads   d head width   n keys
*/
#ifndef REGARD_STACK
#define REGARD_STACK
#include "sparse_product.h"

enum { RELU, GELU, GELU_TANH, SWIGLU, SILU };
enum { FEED_ROWS = 96 };  /* rows whose hidden layer is computed at once, so that it stays in the cache */

typedef struct { const float *weight, *bias; float eps; int rms; } Norm;

typedef struct {
  Matrix qkv, out, cross_q, cross_kv, cross_out, up, down;
  Norm self_norm, cross_norm, feed_norm;
} Block;

typedef struct {
  int layers, dim, heads, kv_heads, pre, crosses, activation;
  int rotated;         /* numbers of a head that rotary positions rotate; 0: none */
  int interleaved;     /* the rotated pairs are neighbours, not halves */
  int recurrent;       /* an SSRU instead of self-attention: qkv is W, and out is W_f */
  Norm final_norm;     /* of pre-norm models */
  const Block *blocks;
} Stack;

typedef struct {  /* room for the rows of a call */
  float *y, *normed, *a, *b;  /* (R, p), (R, p), (R, widest), (R, widest) */
  Quantized quantized;
} Scratch;

/* What the rows of a call attend to. `self` gets the stacked queries, keys and values (R, (H + 2 G) d) of layer l and
   the input x (R, p) that they come from; `cross` gets queries (R, p). Both write y (R, p). */
typedef struct Attention {
  void (*self)(struct Attention *, int l, const float *x, float *qkv, float *y, Thread t);
  void (*cross)(struct Attention *, int l, const float *q, float *y, Thread t);
} Attention;

static int widest_row(const Stack *s) {
  int widest = (s->heads + 2 * s->kv_heads) * (s->dim / s->heads);
  for (int l = 0; l < s->layers; l++) widest = s->blocks[l].up.out > widest ? s->blocks[l].up.out : widest;
  return widest;
}

static size_t scratch_bytes(const Stack *s, int rows) {
  size_t widest = widest_row(s), row = 2 * s->dim + 2 * widest + quantized_size(widest);
  return (rows * row + LINE) * sizeof(float);
}

static Scratch cut_scratch(const Stack *s, void *bytes, int rows) {
  size_t widest = widest_row(s), p = s->dim;
  float *y = bytes, *normed = y + rows * p, *a = normed + rows * p, *b = a + rows * widest, *scales = b + rows * widest;
  return (Scratch){y, normed, a, b, {scales, (int32_t *)(scales + round_up(rows, LINE / sizeof(float)))}};
}

/* x += y, unless y is NULL, then z = norm(x); z may be x. */
static void add_norm(float *x, const float *y, Norm n, float *z, int rows, int p, Thread t) {
  for (int r = share(rows, t, 0); r < share(rows, t, 1); r++) {
    float *in = x + (size_t)r * p, *out = z + (size_t)r * p, mean = 0, squares = 0;
    for (int i = 0; y && i < p; i++) in[i] += y[(size_t)r * p + i];
    if (!n.rms) {
      for (int i = 0; i < p; i++) mean += in[i];
      mean /= p;
    }
    for (int i = 0; i < p; i++) squares += (in[i] - mean) * (in[i] - mean);
    float factor = 1.0f / sqrtf(squares / p + n.eps);
    if (n.bias)
      for (int i = 0; i < p; i++) out[i] = (in[i] - mean) * factor * n.weight[i] + n.bias[i];
    else
      for (int i = 0; i < p; i++) out[i] = (in[i] - mean) * factor * n.weight[i];
  }
  meet(t);
}

/* 1 / (1 + e^-x). Unlike library functions, loops over it are vectorised. */
static inline float sigmoid(float x) { return 1.0f / (1.0f + exponential(x > -87.0f ? -x : 87.0f)); }

/* erf(x), with an error of at most 2e-7 (Abramowitz & Stegun 1964, 7.1.26). Loops over it are vectorised, too. */
static inline float error_function(float x) {
  float size = fabsf(x), t = 1.0f / (1.0f + 0.3275911f * size), p = 1.061405429f;
  p = p * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  return copysignf(1.0f - p * t * exponential(size < 9.0f ? -size * size : -81.0f), x);
}

static inline float activation(float x, int kind) {
  if (kind == GELU) return 0.5f * x * (1.0f + error_function(x * 0.70710678f));
  if (kind == GELU_TANH) return x * sigmoid(1.59576912f * (x + 0.044715f * x * x * x));  /* (1 + tanh t) / 2 = sigmoid(2 t) */
  return x * sigmoid(x);  /* SiLU, also for SwiGLU */
}

/* y = the activation of x, times the gates if there are any. */
INLINE void activate_row(const float *x, const float *gates, float *y, int count, int kind) {
  for (int i = 0; i < count; i++) y[i] = activation(x[i], kind) * (gates ? gates[i] : 1.0f);
}

static void activate(const float *x, float *y, int rows, int hidden, int kind, Thread t) {
  int wide = kind == SWIGLU ? 2 * hidden : hidden;
  for (int r = share(rows, t, 0); r < share(rows, t, 1); r++) {
    const float *row = x + (size_t)r * wide;
    float *to = y + (size_t)r * hidden;
    if (kind == SWIGLU) activate_row(row, row + hidden, to, hidden, SILU);
    else if (kind == GELU_TANH) activate_row(row, NULL, to, hidden, GELU_TANH);
    else if (kind == GELU) activate_row(row, NULL, to, hidden, GELU);
    else activate_row(row, NULL, to, hidden, SILU);
  }
  meet(t);
}

/* The feed-forward layer of the rows x (R, p), to y (R, p). */
static void feed_forward(const Stack *stack, const Block *m, const float *x, float *y, Scratch s, int rows, Thread t) {
  for (int r = 0; r < rows; r += FEED_ROWS) {
    int count = least(FEED_ROWS, rows - r);
    const float *in = x + (size_t)r * stack->dim;
    float *out = y + (size_t)r * stack->dim;
    product(&m->up, in, s.a, s.quantized, count, t);
    if (stack->activation == RELU) {
      sparse_product(&m->down, s.a, out, s.quantized, (int32_t *)s.b, count, t);
    } else {
      activate(s.a, s.b, count, m->down.in, stack->activation, t);
      product(&m->down, s.b, out, s.quantized, count, t);
    }
  }
}

/* A step of the SSRU of regard/layers/ssru.py for one row: from what the token brings, the gate before its sigmoid, and
   the state before (NULL: 0) to the new state, and y = relu(state). */
static void step_ssru(const float *brings, const float *gate, const float *before, float *state, float *y, int p) {
  for (int i = 0; i < p; i++) {
    float keep = 1.0f / (1.0f + expf(-gate[i]));
    float next = keep * (before ? before[i] : 0.0f) + (1.0f - keep) * brings[i];
    state[i] = next;
    y[i] = next > 0 ? next : 0.0f;
  }
}

/* All blocks for the rows x (R, p), which are overwritten; returns the output: x, or s.normed in pre-norm models. */
static const float *run_stack(const Stack *stack, float *x, Scratch s, int rows, Attention *attention, Thread t) {
  int p = stack->dim, pre = stack->pre;
  float *in = pre ? s.normed : x;  /* the input of the next sublayer */
  if (pre) add_norm(x, NULL, stack->blocks->self_norm, in, rows, p, t);
  for (int l = 0; l < stack->layers; l++) {
    const Block *m = stack->blocks + l;
    Norm next_norm = l + 1 < stack->layers ? m[1].self_norm : stack->final_norm;
    product(&m->qkv, in, s.a, s.quantized, rows, t);
    if (stack->recurrent) product(&m->out, in, s.a + (size_t)rows * p, s.quantized, rows, t);
    attention->self(attention, l, in, s.a, s.b, t);
    if (!stack->recurrent) product(&m->out, s.b, s.y, s.quantized, rows, t);
    add_norm(x, stack->recurrent ? s.b : s.y, !pre ? m->self_norm : stack->crosses ? m->cross_norm : m->feed_norm, in, rows, p, t);
    if (stack->crosses) {
      product(&m->cross_q, in, s.a, s.quantized, rows, t);
      attention->cross(attention, l, s.a, s.b, t);
      product(&m->cross_out, s.b, s.y, s.quantized, rows, t);
      add_norm(x, s.y, pre ? m->feed_norm : m->cross_norm, in, rows, p, t);
    }
    feed_forward(stack, m, in, s.y, s, rows, t);
    add_norm(x, s.y, pre ? next_norm : m->feed_norm, in, rows, p, t);
  }
  return in;
}

#endif
