/* One step of a Transformer's decoder on a CPU: from the vector of each row's new token to the scores of the next.

   It computes what the modules of regard/models compute, without a return to Python for each of hundreds of small
   operations. It is compiled on first use (compiler.py). Apart from the matrix products (product.h) it consists of plain
   loops, which compilers turn into the CPU's vector instructions. translate.h decodes whole translations.

       R rows   p model width   H heads   G key-value heads   d head width   n source tokens
*/
#include "attention.h"
#include "../linear_step.h"
#include "stack.h"
#include "text_encoder.h"
#include "translate.h"

typedef struct {  /* keys and values (rows, G, capacity, d), with the strides of rows, heads and tokens */
  float *k, *v;
  long row, head, token;
  int32_t *origins;  /* (rows, capacity): the row that holds each token; NULL: its own row */
  long capacity;
} Cache;

typedef struct {
  Cache own, source;  /* of self-attention and cross-attention */
  Features features;  /* F = 0: exact self-attention with the keys and values of `own`; otherwise random features */
  Sums sums;
  Matrix gate;        /* out = 0: no gate */
} LayerState;

typedef struct {  /* `sharing` consecutive rows attend to one source of n tokens, of which `keep` (texts, n) are no padding */
  Attention functions;
  const Stack *stack;
  const LayerState *states;
  const int64_t *positions;          /* (R) of the new tokens */
  const uint8_t *keep;               /* or NULL */
  const float *cosines, *sines;      /* (R, rotated / 2) */
  Scratch scratch;
  int first, rows, sharing, n;       /* the rows of this call begin at `first` of those of the arrays above */
} StepAttention;

/* Attention of row r to the first n tokens of a text. */
static void attend_to_cache(const Stack *stack, const float *q, Cache s, int text, int n, const uint8_t *keep, float *y) {
  HeadSizes sizes = {stack->heads, stack->kv_heads, stack->dim / stack->heads};
  const float *k[n], *v[n];
  float weights[attention_room(sizes, n)];
  for (int t = 0; t < n; t++) {
    long offset = (s.origins ? s.origins[text * s.capacity + t] : text) * s.row + t * s.token;
    k[t] = s.k + offset, v[t] = s.v + offset;
  }
  attend(q, (Tokens){k, v, s.head, n}, sizes, keep, weights, y);
}

/* Rotate the queries and keys of row r, of all rows, to their position, and append keys and values to the cache. */
static void append_to_cache(const StepAttention *a, Cache own, float *row, int r) {
  int H = a->stack->heads, G = a->stack->kv_heads, d = a->stack->dim / H, rotated = a->stack->rotated;
  if (own.origins) own.origins[r * own.capacity + a->positions[r]] = r;
  for (int h = 0, at = r * rotated / 2; rotated && h < H + G; h++)
    turn(row + h * d, a->cosines + at, a->sines + at, rotated, a->stack->interleaved);
  for (int g = 0; g < G; g++) {
    long at = r * own.row + g * own.head + a->positions[r] * own.token;
    memcpy(own.k + at, row + (H + g) * d, d * sizeof(float));
    memcpy(own.v + at, row + (H + G + g) * d, d * sizeof(float));
  }
}

/* Self-attention of the new tokens, to exact keys and values or by random features. */
static void step_self(Attention *attention, int l, const float *x, float *qkv, float *y, Thread t) {
  StepAttention *a = (StepAttention *)attention;
  const LayerState *state = a->states + l;
  int H = a->stack->heads, G = a->stack->kv_heads, d = a->stack->dim / H, wide = (H + 2 * G) * d;
  if (a->stack->recurrent) {
    size_t p = a->stack->dim;
    const float *gates = qkv + a->rows * p;
    for (int r = share(a->rows, t, 0); r < share(a->rows, t, 1); r++) {
      float *own = state->own.k + (a->first + r) * p;
      step_ssru(qkv + r * p, gates + r * p, own, own, y + r * p, (int)p);
    }
    meet(t);
    return;
  }
  if (state->features.F) {
    float *gates = a->scratch.y;  /* free until the output of attention */
    if (state->gate.out) product(&state->gate, x, gates, a->scratch.quantized, a->rows, t);
    New new = {qkv, qkv + H * d, qkv + (H + G) * d, wide, wide, wide};
    size_t at = (size_t)a->first * G, angles = (size_t)a->first * a->stack->rotated / 2, F = state->features.F;
    Sums sums = state->sums;
    sums.S += at * F * state->features.e, sums.z += at * F, sums.log_scale += at, sums.log_decay += at;
    const float *cosines = a->cosines ? a->cosines + angles : NULL, *sines = a->sines ? a->sines + angles : NULL;
    step_features(&state->features, sums, new, state->gate.out ? gates : NULL, cosines, sines, y, a->rows, t);
    return;
  }
  for (int r = share(a->rows, t, 0); r < share(a->rows, t, 1); r++)
    append_to_cache(a, state->own, qkv + (size_t)r * wide, a->first + r);
  meet(t);
  for (int r = share(a->rows, t, 0); r < share(a->rows, t, 1); r++) {
    int row = a->first + r, length = (int)a->positions[row] + 1;
    attend_to_cache(a->stack, qkv + (size_t)r * wide, state->own, row, length, NULL, y + (size_t)r * H * d);
  }
  meet(t);
}

static void step_cross(Attention *attention, int l, const float *q, float *y, Thread t) {
  StepAttention *a = (StepAttention *)attention;
  size_t p = a->stack->dim;
  for (int r = share(a->rows, t, 0); r < share(a->rows, t, 1); r++) {
    int text = (a->first + r) / a->sharing;
    const uint8_t *keep = a->keep ? a->keep + (size_t)text * a->n : NULL;
    attend_to_cache(a->stack, q + r * p, a->states[l].source, text, a->n, keep, y + r * p);
  }
  meet(t);
}

typedef struct {  /* a step that threads share */
  Crew crew;
  StepAttention attention;
  const Matrix *output;
  float *x, *scores;
  int together;
  void *bytes;          /* room for all rows, if `together` */
  atomic_int failure;
} Step;

/* The step of rows from `first`, with all threads or alone. */
static void step_rows(Step *step, int first, int count, void *room, Thread t) {
  StepAttention attention = step->attention;
  const Stack *stack = attention.stack;
  attention.scratch = cut_scratch(stack, room, count), attention.first = first, attention.rows = count;
  float *x = step->x + (size_t)first * stack->dim, *scores = step->scores + (size_t)first * step->output->out;
  const float *hidden = run_stack(stack, x, attention.scratch, count, &attention.functions, t);
  product(step->output, hidden, scores, attention.scratch.quantized, count, t);
}

static void *work_on_step(void *argument) {
  Step *step = argument;
  Thread t = join_crew(&step->crew);
  int rows = step->attention.rows, first = share(rows, t, 0), count = share(rows, t, 1) - first;
  if (step->together) {
    step_rows(step, 0, rows, step->bytes, t);
  } else if (count) {
    void *room = new_memory(scratch_bytes(step->attention.stack, count));
    if (room) step_rows(step, first, count, room, ALONE);
    else step->failure = 1;
    free(room);
  }
  return NULL;
}

/* x (R, p): the vectors of the new tokens at `positions` (R); scores (R, vocabulary); cosines and sines of these
   positions (R, rotated / 2). The threads share the work on all rows, `together`, or each takes rows of its own, and none
   waits for others. Returns 0, or 1 if memory ran out. */
int decode_step(const Stack *stack, const Matrix *output, const LayerState *states, float *x, float *scores, int rows,
                int sharing, int n, const int64_t *positions, const uint8_t *keep, const float *cosines,
                const float *sines, int threads, int together) {
  StepAttention all = {{step_self, step_cross}, stack, states, positions, keep, cosines, sines, {0}, 0, rows, sharing, n};
  Step step = {NEW_CREW, all, output, x, scores, together, NULL, 0};
  if (together && !(step.bytes = new_memory(scratch_bytes(stack, rows)))) return 1;
  run_crew(&step.crew, work_on_step, &step, threads);
  free(step.bytes);
  return step.failure;
}

typedef struct { Crew crew; const Matrix *matrix; const float *x; float *y; Quantized quantized; int rows; } Multiplication;

static void *work_on_product(void *argument) {
  Multiplication *m = argument;
  product(m->matrix, m->x, m->y, m->quantized, m->rows, join_crew(&m->crew));
  return NULL;
}

/* y (rows, out) = x (rows, in) times the matrix, plus the bias. Returns 0, or 1 if memory ran out. */
int multiply(const Matrix *matrix, const float *bias, const float *x, float *y, int rows, int threads) {
  Matrix m = *matrix;
  m.bias = bias;
  Quantized s = {NULL, NULL};
  if (m.parts || m.bits) {
    s.scales = new_memory((rows * quantized_size(m.in) + LINE) * sizeof(float));
    if (!s.scales) return 1;
    s.groups = (int32_t *)(s.scales + round_up(rows, LINE / sizeof(float)));
  }
  Multiplication work = {NEW_CREW, &m, x, y, s, rows};
  run_crew(&work.crew, work_on_product, &work, threads);
  free(s.scales);
  return 0;
}

/* How c_matrix.py lays matrices out. */
int outputs_of_a_block(void) { return BLOCK; }
int outputs_of_a_strip(void) { return STRIP; }
int inputs_of_a_group(void) { return GROUP; }
int integer_for_zero(void) { return ZERO; }
int max_parts(void) { return MAX_PARTS; }
int inputs_of_a_row_group(void) { return ROW_GROUP; }

/* Whether float32 rows are multiplied faster in three parts of 8 bits, if the weights have 8 bits. */
int has_fast_parts(void) {
#if (defined(__AVX512VNNI__) && defined(__AVX512F__)) || defined(__AVXVNNI__)
  return 1;
#else
  return 0;
#endif
}
