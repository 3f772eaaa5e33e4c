/* Exact attention of one query row to keys and values anywhere in memory; Vaswani et al. 2017, equation 1.

       H heads   G key-value heads   d head width   n keys
*/
#ifndef REGARD_ATTENTION
#define REGARD_ATTENTION
#include "common.h"

typedef struct {  /* keys and values of tokens: token t of head g is at k[t] + g · stride and v[t] + g · stride */
  const float **k, **v;
  long stride;
  int n;
} Tokens;

typedef struct { int heads, kv_heads, d; } HeadSizes;

/* weights[t] = softmax(q k_t / sqrt(d)); 0 for all if there is nothing to attend to. `keep` is NULL or (n). */
static void softmax_weights(const float *q, Tokens s, long head, int d, const uint8_t *keep, float *weights) {
  float scale = 1.0f / sqrtf((float)d), top = -INFINITY, total = 0;
  for (int t = 0; t < s.n; t++) {
    weights[t] = keep && !keep[t] ? -INFINITY : dot(q, s.k[t] + head, d) * scale;
    top = weights[t] > top ? weights[t] : top;
  }
  if (top == -INFINITY) {
    memset(weights, 0, s.n * sizeof(float));
    return;
  }
  exponentials(weights, s.n, top);
  for (int t = 0; t < s.n; t++) total += weights[t];
  for (int t = 0; t < s.n; t++) weights[t] /= total;
}

/* out (d) = the weighted sum of the values; some of the d numbers at a time, so that the sums stay in registers. */
static void weighted_sum(const float *weights, Tokens s, long head, int d, float *out) {
  enum { PART = 4 * LANES };
  int i = 0;
  for (; i + PART <= d; i += PART) {
    Floats sums[4] = {0};
    for (int t = 0; t < s.n; t++)
      for (int j = 0; j < 4; j++) sums[j] += weights[t] * floats_at(s.v[t] + head + i + j * LANES);
    memcpy(out + i, sums, sizeof sums);
  }
  memset(out + i, 0, (d - i) * sizeof(float));
  for (int t = 0; i < d && t < s.n; t++)
    for (int rest = i; rest < d; rest++) out[rest] += weights[t] * s.v[t][head + rest];
}

/* out (H d): head h of the query q (H d) attends to the tokens; `weights` has room for n numbers. */
static void attend(const float *q, Tokens s, HeadSizes sizes, const uint8_t *keep, float *weights, float *out) {
  for (int h = 0; h < sizes.heads; h++) {
    long head = h / (sizes.heads / sizes.kv_heads) * s.stride;
    softmax_weights(q + h * sizes.d, s, head, sizes.d, keep, weights);
    weighted_sum(weights, s, head, sizes.d, out + h * sizes.d);
  }
}

#endif
