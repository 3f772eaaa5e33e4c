/* Attention of the rows of a Run: to the tokens of their hypotheses, and to the sources of their texts.

       H heads   G heads with keys and values   d head width   T tokens that a row has room for
*/
#ifndef REGARD_RUN_ATTENTION
#define REGARD_RUN_ATTENTION
#include "run.h"

/* Fetch numbers into the cache, while others are used. */
static inline void fetch_numbers(const float *x, int count) {
  for (int i = 0; i < count; i += 16) __builtin_prefetch(x + i, 0, 2);
}

/* An SSRU: the state of each row takes the place of keys and values, and follows that of the position before. */
static void run_ssru(Run *run, int l, const float *brings, float *y, Thread t) {
  const Stack *stack = &run->batch.network->decoder;
  int p = stack->dim, kv = 2 * stack->kv_heads * (p / stack->heads), T = run->batch.T, before = run->position - 1;
  const float *gates = brings + (size_t)run->live * p, *states = before < 0 ? NULL : own_kv_at(run, l, before);
  float *next = own_kv_at(run, l, run->position);
  for (int r = share(run->live, t, 0); r < share(run->live, t, 1); r++) {
    const float *state = states ? states + (size_t)run->origins[(size_t)r * T + before] * kv : NULL;
    size_t at = (size_t)r * p;
    step_ssru(brings + at, gates + at, state, next + (size_t)r * kv, y + at, p);
  }
  meet(t);
}

/* Each row attends to the tokens of its hypothesis, the new one included, while the next row's keys and values come. */
static void run_self(Attention *attention, int l, const float *x, float *qkv, float *y, Thread t) {
  Run *run = (Run *)attention;
  const Stack *stack = &run->batch.network->decoder;
  int H = stack->heads, G = stack->kv_heads, d = stack->dim / H, wide = (H + 2 * G) * d, kv = 2 * G * d;
  int T = run->batch.T, n = run->position + 1;
  (void)x;
  if (stack->recurrent) {
    run_ssru(run, l, qkv, y, t);
    return;
  }
  float *cache = own_kv_at(run, l, run->position);
  for (int r = share(run->live, t, 0); r < share(run->live, t, 1); r++) {
    float *row = qkv + (size_t)r * wide;
    rotate_row(stack, run->batch.network->target_angles, row, run->position);
    memcpy(cache + (size_t)r * kv, row + H * d, kv * sizeof(float));
  }
  meet(t);
  HeadSizes sizes = {H, G, d};
  const float *caches[n], *k[n], *v[n];
  for (int i = 0; i < n; i++) caches[i] = own_kv_at(run, l, i);
  float weights[attention_room(sizes, n)];
  int last = share(run->live, t, 1);
  for (int r = share(run->live, t, 0); r < last; r++) {
    for (int i = 0; i < n; i++) {
      k[i] = caches[i] + (size_t)run->origins[(size_t)r * T + i] * kv;
      v[i] = k[i] + G * d;
      if (r + 1 < last) fetch_numbers(caches[i] + (size_t)run->origins[(size_t)(r + 1) * T + i] * kv, kv);
    }
    attend(qkv + (size_t)r * wide, (Tokens){k, v, d, n}, sizes, NULL, weights, y + (size_t)r * H * d);
  }
  meet(t);
}

/* Each row attends to the source of its text. */
static void run_cross(Attention *attention, int l, const float *q, float *y, Thread t) {
  Run *run = (Run *)attention;
  const Stack *stack = &run->batch.network->decoder;
  int H = stack->heads, G = stack->kv_heads, d = stack->dim / H, kv = 2 * G * d;
  HeadSizes sizes = {H, G, d};
  int last = share(run->live, t, 1);
  for (int r = share(run->live, t, 0); r < last; r++) {
    const Text *text = run->texts + run->rows[r].text;
    const float *k[text->length], *v[text->length];
    float weights[attention_room(sizes, text->length)];
    for (int i = 0; i < text->length; i++) {
      k[i] = run->source_kv[l] + (size_t)(text->source + i) * kv;
      v[i] = k[i] + G * d;
    }
    if (r + 1 < last && run->rows[r + 1].text != run->rows[r].text) {
      const Text *next = run->texts + run->rows[r + 1].text;
      fetch_numbers(run->source_kv[l] + (size_t)next->source * kv, next->length * kv);
    }
    attend(q + (size_t)r * H * d, (Tokens){k, v, d, text->length}, sizes, NULL, weights, y + (size_t)r * H * d);
  }
  meet(t);
}

#endif
