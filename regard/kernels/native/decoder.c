/* One step of a Transformer's decoder on a CPU: from the vector of each row's new token to the scores of the next.

   It computes what the modules of regard/models compute, without a return to Python for each of hundreds of small
   operations. It is compiled on first use (compiler.py). Apart from the matrix products (product.h) it consists of plain
   loops, which compilers turn into the CPU's vector instructions.

       R rows   p model width   H heads   G key-value heads   d head width   n source tokens
*/
#include "linear_step.h"
#include "product.h"

enum { RELU, GELU, GELU_TANH, SWIGLU };

typedef struct { const float *weight, *bias; float eps; int rms; } Norm;

typedef struct {  /* keys and values (rows, G, capacity, d), with the strides of rows, heads and tokens */
  float *k, *v;
  long row, head, token;
  int32_t *origins;  /* (rows, capacity): the row that holds each token; NULL: its own row */
  long capacity;
} Cache;

typedef struct {
  Matrix qkv, out, cross_q, cross_out, up, down;
  Norm self_norm, cross_norm, feed_norm;
  Cache own, source;   /* of self-attention and cross-attention */
  Features features;  /* F = 0: exact self-attention with the keys and values of `own`; otherwise random features */
  Sums sums;
  Matrix gate;        /* out = 0: no gate */
} Layer;

typedef struct {
  int layers, dim, heads, kv_heads, pre, crosses, activation;
  int rotated;         /* numbers of a head that rotary positions rotate; 0: none */
  int interleaved;     /* the rotated pairs are neighbours, not halves */
  Norm final_norm;     /* of pre-norm models */
  Matrix output;
} Decoder;

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
    for (int i = 0; i < p; i++) out[i] = (in[i] - mean) * factor * n.weight[i] + (n.bias ? n.bias[i] : 0.0f);
  }
  meet(t);
}

/* The offset of token t of a row. */
static inline long token_offset(Cache s, int text, int t) {
  return (s.origins ? s.origins[text * s.capacity + t] : text) * s.row + t * s.token;
}

/* The weighted sum of a row's n values; some of the d numbers at a time, so that the sums stay in registers. */
static void weighted_sum(const float *weights, Cache s, int text, long head, int n, int d, float *out) {
  int i = 0;
  for (; i + BLOCK <= d; i += BLOCK) {
    Floats sums[WIDE] = {0};
    for (int t = 0; t < n; t++) {
      const float *v = s.v + token_offset(s, text, t) + head + i;
      for (int j = 0; j < WIDE; j++) sums[j] += weights[t] * floats_at(v + j * LANES);
    }
    memcpy(out + i, sums, sizeof sums);
  }
  memset(out + i, 0, (d - i) * sizeof(float));
  for (int t = 0; i < d && t < n; t++) {
    const float *v = s.v + token_offset(s, text, t) + head;
    for (int rest = i; rest < d; rest++) out[rest] += weights[t] * v[rest];
  }
}

/* softmax(q k / sqrt(d)) v for each row and head. `sharing` consecutive rows attend to one text of n tokens. With
   `positions`, each row attends to its own tokens up to its position. */
static void dot_attention(const float *q, long q_row, Cache s, const uint8_t *keep, float *y, int rows, int sharing, int heads,
                 int kv_heads, int d, int n, const int64_t *positions, Thread thread) {
  float scale = 1.0f / sqrtf((float)d);
  for (int j = share(rows * heads, thread, 0); j < share(rows * heads, thread, 1); j++) {
    int r = j / heads, h = j % heads, text = r / sharing;
    if (positions) n = (int)positions[r] + 1;
    long head = h / (heads / kv_heads) * s.head;
    const float *query = q + r * q_row + h * d;
    float weights[n], top = -INFINITY, total = 0;
    for (int t = 0; t < n; t++) {
      int seen = !keep || keep[(size_t)text * n + t];
      weights[t] = seen ? dot(query, s.k + token_offset(s, text, t) + head, d) * scale : -INFINITY;
      top = weights[t] > top ? weights[t] : top;
    }
    for (int t = 0; t < n; t++) total += weights[t] = top == -INFINITY ? 0.0f : expf(weights[t] - top);
    for (int t = 0; t < n; t++) weights[t] = total > 0 ? weights[t] / total : 0.0f;
    weighted_sum(weights, s, text, head, n, d, y + (size_t)j * d);
  }
  meet(thread);
}

static float activation(float x, int kind) {
  if (kind == RELU) return x > 0 ? x : 0;
  if (kind == GELU) return 0.5f * x * (1.0f + erff(x * 0.70710678f));
  if (kind == GELU_TANH) return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
  return x / (1.0f + expf(-x));  /* SiLU, for SwiGLU */
}

static void activate(const float *x, float *y, int rows, int hidden, int kind, Thread t) {
  int wide = kind == SWIGLU ? 2 * hidden : hidden;
  for (int r = share(rows, t, 0); r < share(rows, t, 1); r++)
    for (int i = 0; i < hidden; i++) {
      const float *row = x + (size_t)r * wide;
      y[(size_t)r * hidden + i] = activation(row[i], kind) * (kind == SWIGLU ? row[hidden + i] : 1.0f);
    }
  meet(t);
}

/* Rotate the queries and keys in `rows` (R, (H + 2 G) d) to their positions, and append keys and values to the cache. */
static void append_to_cache(const Decoder *decoder, Cache own, float *rows, int count, const int64_t *positions, const float *cosines,
                     const float *sines, Thread t) {
  int H = decoder->heads, G = decoder->kv_heads, d = decoder->dim / H;
  for (int r = share(count, t, 0); r < share(count, t, 1); r++) {
    float *row = rows + (size_t)r * (H + 2 * G) * d;
    if (own.origins) own.origins[r * own.capacity + positions[r]] = r;
    if (decoder->rotated)
      for (int h = 0, at = r * decoder->rotated / 2; h < H + G; h++)
        turn(row + h * d, cosines + at, sines + at, decoder->rotated, decoder->interleaved);
    for (int g = 0; g < G; g++) {
      long at = r * own.row + g * own.head + positions[r] * own.token;
      memcpy(own.k + at, row + (H + g) * d, d * sizeof(float));
      memcpy(own.v + at, row + (H + G + g) * d, d * sizeof(float));
    }
  }
  meet(t);
}

/* Self-attention of the new tokens with queries, keys and values `rows` (R, (H + 2 G) d), to y (R, p). `in` is the input
   of the gate, `gates` (R, G) its output. */
static void self_attention(const Decoder *decoder, const Layer *m, const float *in, float *rows, float *gates, float *y, Quantized s,
                   int count, const int64_t *positions, const float *cosines, const float *sines, Thread t) {
  int H = decoder->heads, G = decoder->kv_heads, d = decoder->dim / H, wide = (H + 2 * G) * d;
  if (m->features.F) {
    if (m->gate.out) product(&m->gate, in, gates, s, count, t);
    New x = {rows, rows + H * d, rows + (H + G) * d, wide, wide, wide};
    step_features(&m->features, m->sums, x, m->gate.out ? gates : NULL, cosines, sines, y, count, t);
  } else {
    append_to_cache(decoder, m->own, rows, count, positions, cosines, sines, t);
    dot_attention(rows, wide, m->own, NULL, y, count, 1, H, G, d, 0, positions, t);
  }
}

/* x (R, p): the vectors of the new tokens at `positions` (R); scores (R, vocabulary); cosines and sines of these
   positions (R, rotated / 2). Returns 0, or 1 if memory ran out. */
int decode_step(const Decoder *decoder, const Layer *layers, float *x, float *scores, int rows, int sharing, int n,
                const int64_t *positions, const uint8_t *keep, const float *cosines, const float *sines, int threads) {
  int p = decoder->dim, H = decoder->heads, G = decoder->kv_heads, d = p / H, wide = (H + 2 * G) * d, widest = wide;
  for (int l = 0; l < decoder->layers; l++)
    if (layers[l].up.out > widest) widest = layers[l].up.out;
  float *y = malloc((size_t)rows * ((2 * p + 2 * widest + 1) * sizeof(float) + 4 * groups_of_four(widest)));
  if (!y) return 1;
  float *normed = y + (size_t)rows * p, *a = normed + (size_t)rows * p, *b = a + (size_t)rows * widest;
  Quantized s = {b + (size_t)rows * widest, (uint8_t *)(b + (size_t)rows * (widest + 1))};
  float *in = decoder->pre ? normed : x;  /* the input of the next sublayer */
  Meeting meeting = {0, 0};
#pragma omp parallel num_threads(threads)
  {
    Thread t = this_thread(&meeting);
    if (decoder->pre) add_norm(x, NULL, layers->self_norm, in, rows, p, t);
    for (const Layer *m = layers; m < layers + decoder->layers; m++) {
      Norm next_norm = m + 1 < layers + decoder->layers ? m[1].self_norm : decoder->final_norm;
      product(&m->qkv, in, a, s, rows, t);
      self_attention(decoder, m, in, a, y, b, s, rows, positions, cosines, sines, t);
      product(&m->out, b, y, s, rows, t);
      add_norm(x, y, !decoder->pre ? m->self_norm : decoder->crosses ? m->cross_norm : m->feed_norm, in, rows, p, t);
      if (decoder->crosses) {
        product(&m->cross_q, in, a, s, rows, t);
        dot_attention(a, p, m->source, keep, b, rows, sharing, H, G, d, n, NULL, t);
        product(&m->cross_out, b, y, s, rows, t);
        add_norm(x, y, decoder->pre ? m->feed_norm : m->cross_norm, in, rows, p, t);
      }
      product(&m->up, in, a, s, rows, t);
      activate(a, b, rows, m->down.in, decoder->activation, t);
      product(&m->down, b, y, s, rows, t);
      add_norm(x, y, decoder->pre ? next_norm : m->feed_norm, in, rows, p, t);
    }
    product(&decoder->output, in, scores, s, rows, t);
  }
  free(y);
  return 0;
}

/* y (rows, out) = x (rows, in) times the matrix, plus the bias. Returns 0, or 1 if memory ran out. */
int multiply(const Matrix *matrix, const float *bias, const float *x, float *y, int rows, int threads) {
  Matrix m = *matrix;
  m.bias = bias;
  Quantized s = {NULL, NULL};
  if (m.numbers) {
    s.scales = malloc((size_t)rows * (sizeof(float) + 4 * groups_of_four(m.in)));
    if (!s.scales) return 1;
    s.numbers = (uint8_t *)(s.scales + rows);
  }
  Meeting meeting = {0, 0};
#pragma omp parallel num_threads(threads)
  product(&m, x, y, s, rows, this_thread(&meeting));
  free(s.scales);
  return 0;
}

int outputs_of_a_block(void) { return BLOCK; }
