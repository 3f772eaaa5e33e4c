/* From the scores of a row to its most probable tokens: log softmax, the rule of placeholders, and selection.

   The scores come in pieces of the vocabulary, so that they are read while they are in the cache, and not stored. Pieces
   have the same size in every batch: the log-probabilities of a row have the same bits beside any other rows.

       V vocabulary   K candidates
*/
#ifndef REGARD_CANDIDATES
#define REGARD_CANDIDATES
#include "../common.h"

enum { PIECE = 512 };   /* scores of a row that come at once */
enum { SECTION = 64 };  /* scores of which the largest is known, so that selection can skip them */
enum { MAX_RULE_TOKENS = 64 };  /* bits of `used` */

typedef struct { float logp; int32_t token; } Candidate;

typedef struct {           /* a text contains each of `tokens` exactly once and none of `barred`: EachOnce in logit_rules.py */
  const int32_t *tokens, *barred;
  int32_t count, barred_count;
} Rule;

typedef struct {  /* END, and the tokens that are never written: some, and those from `size` on */
  int end, barred_count, barred[4], size;
} Special;

typedef struct {  /* what is known of a row after some pieces */
  float top, total;                /* the largest score, and the sum of e^(score - top) */
  float allowed_top, end_score;    /* the largest score of a token that may be written; the score of END */
  int32_t allowed_token;           /* the first token with allowed_top */
  float rule_scores[MAX_RULE_TOKENS];  /* of the rule's tokens: -inf for those in the text */
} Choice;

typedef struct { const Special *special; const Rule *rule; uint64_t used; } Limits;  /* `used`: bits of the rule's tokens */

static inline int has_rule(const Limits *limits) { return limits->rule->count + limits->rule->barred_count > 0; }

/* Whether the text lacks tokens that the rule asks for. */
static inline int is_incomplete(const Limits *limits) {
  int count = limits->rule->count;
  return limits->used != (count < 64 ? ((uint64_t)1 << count) - 1 : ~(uint64_t)0);
}

static void begin_choice(Choice *choice, Candidate *best, int K) {
  *choice = (Choice){-INFINITY, 0, -INFINITY, -INFINITY, -1, {0}};
  for (int i = 0; i < K; i++) best[i] = (Candidate){-INFINITY, -1};
}

/* The larger numbers of two vectors; those of a where b has NaN. */
INLINE Floats larger(Floats a, Floats b) {
  Ints more = b > a;
  return (Floats)((more & (Ints)b) | (~more & (Ints)a));
}

/* The largest score of each section; returns the largest of all. */
static float section_maxima(const float *x, int count, float *maxima) {
  float top = -INFINITY;
  for (int i = 0; i < count; i += SECTION) {
    int j = i, last = least(count, i + SECTION);
    Floats tops = (Floats){0} - INFINITY;
    for (; j + LANES <= last; j += LANES) tops = larger(tops, floats_at(x + j));
    float most = tops[0];
    for (int lane = 1; lane < LANES; lane++) most = tops[lane] > most ? tops[lane] : most;
    for (; j < last; j++) most = x[j] > most ? x[j] : most;
    maxima[i / SECTION] = most;
    top = most > top ? most : top;
  }
  return top;
}

/* The sum of e^(x - top), where top is at least the largest x; NaN if a score is NaN or infinite. */
static float sum_of_exponentials(const float *x, int count, float top) {
  Floats sums = {0};
  int i = 0;
  for (; i + LANES <= count; i += LANES) sums += exponential_of_negative(floats_at(x + i) - top);
  float total = total_of(sums);
  for (; i < count; i++) total += exponential(x[i] - top);
  return total;
}

/* Insert a token into the best ones, unless its score is too low; among equals the earlier one comes first. */
static inline void insert_candidate(Candidate *best, int K, float score, int token) {
  if (!(score > best[K - 1].logp)) return;
  int at = K - 1;
  for (; at > 0 && score > best[at - 1].logp; at--) best[at] = best[at - 1];
  best[at] = (Candidate){score, token};
}

/* Set what the rule excludes to -inf in the scores of tokens [first, first + count), and note the scores of its tokens. */
static void apply_rule(Choice *choice, const Limits *limits, float *x, int first, int count) {
  const Rule *rule = limits->rule;
  int end = limits->special->end - first;
  for (int i = 0; i < count; i++)
    if (x[i] > choice->allowed_top) choice->allowed_top = x[i], choice->allowed_token = first + i;
  if (end >= 0 && end < count) {
    choice->end_score = x[end];
    if (is_incomplete(limits)) x[end] = -INFINITY;
  }
  for (int i = 0; i < rule->barred_count; i++)
    if (rule->barred[i] >= first && rule->barred[i] < first + count) x[rule->barred[i] - first] = -INFINITY;
  for (int i = 0; i < rule->count; i++) {
    int token = rule->tokens[i] - first;
    if (token < 0 || token >= count) continue;
    if (limits->used >> i & 1) x[token] = -INFINITY;
    choice->rule_scores[i] = x[token];
  }
}

/* The scores x of tokens [first, first + count), which are overwritten; at most a piece. */
static void choose_among(Choice *choice, const Limits *limits, float *x, int first, int count, Candidate *best, int K) {
  float maxima[PIECE / SECTION], top = section_maxima(x, count, maxima);
  if (top > choice->top) choice->total *= expf(choice->top - top), choice->top = top;
  choice->total += sum_of_exponentials(x, count, choice->top);
  for (int i = 0; i < limits->special->barred_count; i++) {
    int token = limits->special->barred[i] - first;
    if (token >= 0 && token < count) x[token] = -INFINITY;
  }
  for (int i = limits->special->size > first ? limits->special->size - first : 0; i < count; i++) x[i] = -INFINITY;
  if (has_rule(limits)) apply_rule(choice, limits, x, first, count);
  for (int section = 0; section * SECTION < count; section++)
    if (maxima[section] > best[K - 1].logp)
      for (int i = section * SECTION; i < least(count, (section + 1) * SECTION); i++)
        insert_candidate(best, K, x[i], first + i);
}

/* The K most probable tokens, best first, a token of -1 where there are fewer. Where the model would end the text while
   tokens of the rule are missing, only these may follow; where all is excluded, END may follow. Returns 1, or 0 if a
   score is NaN or infinite. */
static int finish_choice(Choice *choice, const Limits *limits, Candidate *best, int K) {
  int end = limits->special->end;
  if (has_rule(limits)) {
    if (is_incomplete(limits) && choice->allowed_token == end) {
      for (int i = 0; i < K; i++) best[i] = (Candidate){-INFINITY, -1};
      for (int i = 0; i < limits->rule->count; i++)
        insert_candidate(best, K, choice->rule_scores[i], limits->rule->tokens[i]);
    }
    if (best->token < 0) *best = (Candidate){choice->end_score, end};
  }
  float log_total = logf(choice->total);
  for (int i = 0; i < K; i++) best[i].logp = best[i].logp - choice->top - log_total;
  return isfinite(log_total);
}

#endif
