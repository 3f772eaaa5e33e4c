/* Exact attention of one query row to keys and values anywhere in memory; Vaswani et al. 2017, equation 1.

       H heads   G key-value heads   d head width   n keys
*/
#ifndef REGARD_ATTENTION
#define REGARD_ATTENTION
#include "../common.h"

typedef struct {  /* keys and values of tokens: token t of head g is at k[t] + g · stride and v[t] + g · stride */
  const float **k, **v;
  long stride;
  int n;
} Tokens;

typedef struct { int heads, kv_heads, d; } HeadSizes;

typedef float Eight __attribute__((vector_size(32)));  /* numbers of eight heads */
static inline Eight eight_at(const float *x) { Eight y; memcpy(&y, x, sizeof y); return y; }

/* How many heads attend at once: all, but in long texts one after the other, since the weights are on the stack. */
static inline int heads_at_once(HeadSizes sizes, int n) { return n <= 4096 ? sizes.heads : 1; }

/* Numbers that `attend` needs room for: weights in the order (n, heads at once), and the rest of a vector. */
static inline size_t attention_room(HeadSizes sizes, int n) { return (size_t)n * heads_at_once(sizes, n) + LANES; }

/* scores (n, H) = q k_t / sqrt(d) of H heads from `first`. The sums of LANES products are finished together. */
INLINE void dot_products(const float *q, Tokens s, HeadSizes sizes, int first, int H, int d, float *scores) {
  int sharing = sizes.heads / sizes.kv_heads, count = s.n * H;
  float scale = 1.0f / sqrtf((float)d);
  for (int i = 0, t = 0, h = first; i < count; i += LANES) {
    Floats parts[LANES] = {0};
    for (int j = 0; j < LANES && t < s.n; j++) {
      parts[j] = partial_dot(q + h * d, s.k[t] + (sharing == 1 ? h : h / sharing) * s.stride, d);
      if (++h == first + H) h = first, t++;
    }
    Floats sums = totals_of(parts) * scale;
    memcpy(scores + i, &sums, sizeof sums);
  }
}

/* For `width` heads from x: subtract from the scores (n, H) the largest one of their head. */
static void subtract_largest(float *x, int n, int H, int width) {
  if (width == 8) {
    Eight top = eight_at(x);
    for (int t = 1; t < n; t++) {
      Eight y = eight_at(x + t * H);
      __typeof__(y > top) more = y > top;
      top = (Eight)((more & (__typeof__(more))y) | (~more & (__typeof__(more))top));
    }
    for (int h = 0; h < 8; h++) top[h] = top[h] == -INFINITY ? 0 : top[h];
    for (int t = 0; t < n; t++) {
      Eight y = eight_at(x + t * H) - top;
      memcpy(x + t * H, &y, sizeof y);
    }
  } else {
    for (int h = 0; h < width; h++) {
      float top = -INFINITY;
      for (int t = 0; t < n; t++) top = x[t * H + h] > top ? x[t * H + h] : top;
      for (int t = 0; t < n; t++) x[t * H + h] -= top == -INFINITY ? 0 : top;
    }
  }
}

/* For `width` heads from x: divide the exponentials (n, H) by their sums; 0 stays 0. */
static void normalize(float *x, int n, int H, int width) {
  if (width == 8) {
    Eight total = {0};
    for (int t = 0; t < n; t++) total += eight_at(x + t * H);
    for (int h = 0; h < 8; h++) total[h] = total[h] == 0 ? 0 : 1.0f / total[h];
    for (int t = 0; t < n; t++) {
      Eight y = eight_at(x + t * H) * total;
      memcpy(x + t * H, &y, sizeof y);
    }
  } else {
    for (int h = 0; h < width; h++) {
      float total = 0;
      for (int t = 0; t < n; t++) total += x[t * H + h];
      for (int t = 0; t < n; t++) x[t * H + h] *= total == 0 ? 0 : 1.0f / total;
    }
  }
}

/* The softmax over the tokens, for each head, of scores (n, H); 0 for all if there is nothing to attend to. */
static void softmax(float *scores, int n, int H) {
  for (int h = 0; h < H; h += 8) subtract_largest(scores + h, n, H, least(8, H - h));
  for (int i = 0; i < n * H; i += LANES) {
    Floats y = exponential_of_negative(floats_at(scores + i));
    memcpy(scores + i, &y, sizeof y);
  }
  for (int h = 0; h < H; h += 8) normalize(scores + h, n, H, least(8, H - h));
}

/* out (d) = the sum of the values of a head, weighted by weights (n, H); the sums stay in registers. */
INLINE void weighted_sum(const float *weights, int H, Tokens s, long head, int d, float *out) {
  int i = 0;
  for (; i + 2 * LANES <= d; i += 2 * LANES) {
    Floats first = {0}, second = {0};
    for (int t = 0; t < s.n; t++) {
      const float *v = s.v[t] + head + i;
      first += weights[t * H] * floats_at(v), second += weights[t * H] * floats_at(v + LANES);
    }
    memcpy(out + i, &first, sizeof first), memcpy(out + i + LANES, &second, sizeof second);
  }
  if (i < d) memset(out + i, 0, (d - i) * sizeof(float));
  for (int t = 0; i < d && t < s.n; t++)
    for (int rest = i; rest < d; rest++) out[rest] += weights[t * H] * s.v[t][head + rest];
}

/* `attend` for the H heads from `first`. */
INLINE void attend_heads(const float *q, Tokens s, HeadSizes sizes, int first, int H, int d, const uint8_t *keep,
                         float *weights, float *out) {
  dot_products(q, s, sizes, first, H, d, weights);
  for (int t = 0; keep && t < s.n; t++)
    for (int h = 0; !keep[t] && h < H; h++) weights[t * H + h] = -INFINITY;
  softmax(weights, s.n, H);
  for (int h = first; h < first + H; h++)
    weighted_sum(weights + h - first, H, s, h / (sizes.heads / sizes.kv_heads) * s.stride, d, out + h * d);
}

/* out (H d): head h of the query q (H d) attends to the tokens, of which `keep` (n) may exclude some. `weights` has
   attention_room. The usual head widths are constants for the compiler. */
static void attend(const float *q, Tokens s, HeadSizes sizes, const uint8_t *keep, float *weights, float *out) {
  int H = heads_at_once(sizes, s.n);
  for (int first = 0; first < sizes.heads; first += H) {
    if (sizes.d == 32) attend_heads(q, s, sizes, first, H, 32, keep, weights, out);
    else if (sizes.d == 64) attend_heads(q, s, sizes, first, H, 64, keep, weights, out);
    else attend_heads(q, s, sizes, first, H, sizes.d, keep, weights, out);
  }
}

#endif
