/* From the scores of a row to its most probable tokens: log softmax, the rule of placeholders, and selection.

       V vocabulary   K candidates
*/
#ifndef REGARD_CANDIDATES
#define REGARD_CANDIDATES
#include "common.h"

enum { SECTION = 64 };  /* scores of which the largest is known, so that selection can skip them */

typedef struct { float logp; int32_t token; } Candidate;

typedef struct {           /* a text contains each of `tokens` exactly once and none of `barred`: EachOnce in logit_rules.py */
  const int32_t *tokens, *barred;
  int32_t count, barred_count;
} Rule;

typedef struct { int end, barred_count, barred[4]; } Special;  /* END, and the tokens that are never written */

/* The largest score of each section; returns the largest of all. */
static float section_maxima(const float *x, int V, float *maxima) {
  float top = -INFINITY;
  for (int i = 0; i < V; i += SECTION) {
    float most = -INFINITY;
    int count = least(SECTION, V - i);
    if (count == SECTION)
      for (int j = 0; j < SECTION; j++) most = x[i + j] > most ? x[i + j] : most;
    else
      for (int j = 0; j < count; j++) most = x[i + j] > most ? x[i + j] : most;
    maxima[i / SECTION] = most;
    top = most > top ? most : top;
  }
  return top;
}

/* log(sum of e^(x - top)), where top is the largest x; NaN if a score is NaN or infinite. */
static float log_sum(const float *x, int V, float top) {
  float total = 0;
  for (int i = 0; i < V; i++) total += exponential(x[i] - top);
  return logf(total);
}

static int first_largest(const float *x, int V, float top) {
  for (int i = 0; i < V; i++)
    if (x[i] == top) return i;
  return -1;
}

/* Set what the rule excludes to -inf, for a text that contains the tokens in the bits of `used`. Where the model would
   end the text while tokens are missing, only these may follow. Where all is excluded, END may follow. */
static void apply_rule(const Rule *rule, uint64_t used, float *x, int V, int end) {
  uint64_t every = rule->count < 64 ? ((uint64_t)1 << rule->count) - 1 : ~(uint64_t)0;
  int missing = used != every, allowed = 0;
  float end_score = x[end], top = -INFINITY, saved[64];
  for (int i = 0; i < V; i++) top = x[i] > top ? x[i] : top;
  int ends = missing && first_largest(x, V, top) == end;
  for (int i = 0; i < rule->barred_count; i++) x[rule->barred[i]] = -INFINITY;
  for (int i = 0; i < rule->count; i++) saved[i] = used >> i & 1 ? -INFINITY : x[rule->tokens[i]];
  for (int i = 0; ends && i < V; i++) x[i] = -INFINITY;
  if (missing) x[end] = -INFINITY;
  for (int i = 0; i < rule->count; i++) x[rule->tokens[i]] = saved[i];
  for (int i = 0; i < V; i++) allowed |= x[i] > -INFINITY;
  if (!allowed) x[end] = end_score;
}

/* The K largest of the scores, best first, among equals the lower token first; a token of -1 where there are fewer. */
static void select_largest(const float *x, int V, const float *maxima, Candidate *best, int K) {
  for (int i = 0; i < K; i++) best[i] = (Candidate){-INFINITY, -1};
  for (int section = 0; section * SECTION < V; section++) {
    if (!(maxima[section] > best[K - 1].logp)) continue;
    for (int token = section * SECTION; token < least(V, (section + 1) * SECTION); token++) {
      if (!(x[token] > best[K - 1].logp)) continue;
      int at = K - 1;
      for (; at > 0 && x[token] > best[at - 1].logp; at--) best[at] = best[at - 1];
      best[at] = (Candidate){x[token], token};
    }
  }
}

/* The K most probable tokens of a row with scores x (V), which are overwritten. Returns 1, or 0 if a score is NaN or
   infinite. `maxima` has room for the sections. */
static int choose_candidates(float *x, int V, const Special *special, const Rule *rule, uint64_t used, float *maxima,
                             Candidate *best, int K) {
  float top = section_maxima(x, V, maxima), log_total = log_sum(x, V, top);
  for (int i = 0; i < special->barred_count; i++) x[special->barred[i]] = -INFINITY;
  if (rule->count + rule->barred_count) {
    apply_rule(rule, used, x, V, special->end);
    section_maxima(x, V, maxima);
  }
  select_largest(x, V, maxima, best, K);
  for (int i = 0; i < K; i++) best[i].logp = best[i].logp - top - log_total;
  return isfinite(log_total);
}

#endif
