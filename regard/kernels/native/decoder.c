/* One step of a Transformer's decoder on a CPU: the vector of each row's new token goes in, its scores come out.

   It is what the modules of regard/models compute, without a visit to Python and memory for each of their hundreds of
   small operations. Compiled when it is first wanted (compiled.py); but for the products (product.h) plain loops, which
   compilers turn into the CPU's vector instructions.

       R rows   p model width   H heads   G key-value heads   d head width   n source tokens
*/
#include "linear_step.h"
#include "product.h"

enum { RELU, GELU, GELU_TANH, SWIGLU };

typedef struct { const float *weight, *bias; float eps; int rms; } Norm;

typedef struct {  /* keys and values (rows, G, room, d): where the next row, head and token begin */
  float *k, *v;
  long row, head, token;
  int32_t *origins;  /* (rows, room): in which row each token lies; NULL: in that of its text */
  long room;
} Store;

typedef struct {
  Matrix qkv, out, cross_q, cross_out, up, down;
  Norm self_norm, cross_norm, feed_norm;
  Store own, source;
  Features features;  /* F = 0: self-attention is exact, with the keys and values of `own`; else it keeps the sums */
  Sums sums;
  Matrix gate;        /* out = 0: there is none */
} Layer;

typedef struct {
  int layers, dim, heads, kv_heads, pre, crosses, activation;
  int turning;         /* numbers of a head that rotary positions turn; 0: none */
  int interleaved;     /* the pairs that turn are neighbours, not halves */
  Norm last;           /* of pre-norm models */
  Matrix output;
} Shape;

/* x += y, if there is a y, and z = the norm of x; z may be x. */
static void join(float *x, const float *y, Norm n, float *z, int rows, int p, Thread t) {
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

/* Where token t of a text lies. */
static inline long place(Store s, int text, int t) {
  return (s.origins ? s.origins[text * s.room + t] : text) * s.row + t * s.token;
}

/* The sum of a text's n values, each times its weight; some of the d numbers at a time, to stay in registers. */
static void mix(const float *weights, Store s, int text, long head, int n, int d, float *out) {
  int i = 0;
  for (; i + BLOCK <= d; i += BLOCK) {
    Floats sums[WIDE] = {0};
    for (int t = 0; t < n; t++) {
      const float *v = s.v + place(s, text, t) + head + i;
      for (int j = 0; j < WIDE; j++) sums[j] += weights[t] * floats_at(v + j * LANES);
    }
    memcpy(out + i, sums, sizeof sums);
  }
  memset(out + i, 0, (d - i) * sizeof(float));
  for (int t = 0; i < d && t < n; t++) {
    const float *v = s.v + place(s, text, t) + head;
    for (int rest = i; rest < d; rest++) out[rest] += weights[t] * v[rest];
  }
}

/* softmax(q k / sqrt(d)) v for each row and head; `sharing` rows side by side look at one text, which has n tokens, or
   where `places` are given, as many as are before the row's new one, and that one. */
static void look(const float *q, long q_row, Store s, const uint8_t *keep, float *y, int rows, int sharing, int heads,
                 int kv_heads, int d, int n, const int64_t *places, Thread thread) {
  float scale = 1.0f / sqrtf((float)d);
  for (int j = share(rows * heads, thread, 0); j < share(rows * heads, thread, 1); j++) {
    int r = j / heads, h = j % heads, text = r / sharing;
    if (places) n = (int)places[r] + 1;
    long head = h / (heads / kv_heads) * s.head;
    const float *query = q + r * q_row + h * d;
    float weights[n], top = -INFINITY, total = 0;
    for (int t = 0; t < n; t++) {
      int seen = !keep || keep[(size_t)text * n + t];
      weights[t] = seen ? dot(query, s.k + place(s, text, t) + head, d) * scale : -INFINITY;
      top = weights[t] > top ? weights[t] : top;
    }
    for (int t = 0; t < n; t++) total += weights[t] = top == -INFINITY ? 0.0f : expf(weights[t] - top);
    for (int t = 0; t < n; t++) weights[t] = total > 0 ? weights[t] / total : 0.0f;
    mix(weights, s, text, head, n, d, y + (size_t)j * d);
  }
  meet(thread);
}

static float activated(float x, int kind) {
  if (kind == RELU) return x > 0 ? x : 0;
  if (kind == GELU) return 0.5f * x * (1.0f + erff(x * 0.70710678f));
  if (kind == GELU_TANH) return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
  return x / (1.0f + expf(-x));  /* the gate of SwiGLU */
}

static void activate(const float *x, float *y, int rows, int hidden, int kind, Thread t) {
  int wide = kind == SWIGLU ? 2 * hidden : hidden;
  for (int r = share(rows, t, 0); r < share(rows, t, 1); r++)
    for (int i = 0; i < hidden; i++) {
      const float *row = x + (size_t)r * wide;
      y[(size_t)r * hidden + i] = activated(row[i], kind) * (kind == SWIGLU ? row[hidden + i] : 1.0f);
    }
  meet(t);
}

/* Turns the queries and keys of `rows` (R, (H + 2 G) d) to their places, and stores the keys and values there. */
static void remember(const Shape *shape, Store own, float *rows, int count, const int64_t *places, const float *cosines,
                     const float *sines, Thread t) {
  int H = shape->heads, G = shape->kv_heads, d = shape->dim / H;
  for (int r = share(count, t, 0); r < share(count, t, 1); r++) {
    float *row = rows + (size_t)r * (H + 2 * G) * d;
    if (own.origins) own.origins[r * own.room + places[r]] = r;
    if (shape->turning)
      for (int h = 0, at = r * shape->turning / 2; h < H + G; h++)
        turn(row + h * d, cosines + at, sines + at, shape->turning, shape->interleaved);
    for (int g = 0; g < G; g++) {
      long at = r * own.row + g * own.head + places[r] * own.token;
      memcpy(own.k + at, row + (H + g) * d, d * sizeof(float));
      memcpy(own.v + at, row + (H + G + g) * d, d * sizeof(float));
    }
  }
  meet(t);
}

/* Self-attention of the new tokens, by their queries, keys and values `rows` (R, (H + 2 G) d), to y (R, p); `in` is what
   the gate reads, `gates` (R, G) where it writes. */
static void attend(const Shape *shape, const Layer *m, const float *in, float *rows, float *gates, float *y, Rounded s,
                   int count, const int64_t *places, const float *cosines, const float *sines, Thread t) {
  int H = shape->heads, G = shape->kv_heads, d = shape->dim / H, wide = (H + 2 * G) * d;
  if (m->features.F) {
    if (m->gate.out) product(&m->gate, in, gates, s, count, t);
    New x = {rows, rows + H * d, rows + (H + G) * d, wide, wide, wide};
    step_features(&m->features, m->sums, x, m->gate.out ? gates : NULL, cosines, sines, y, count, t);
  } else {
    remember(shape, m->own, rows, count, places, cosines, sines, t);
    look(rows, wide, m->own, NULL, y, count, 1, H, G, d, 0, places, t);
  }
}

/* x (R, p) the vectors of the new tokens, which stand at `places` (R); scores (R, vocabulary); cosines and sines of
   these places (R, turning / 2). Returns 0, or 1 without memory. */
int decode_step(const Shape *shape, const Layer *layers, float *x, float *scores, int rows, int sharing, int n,
                const int64_t *places, const uint8_t *keep, const float *cosines, const float *sines, int threads) {
  int p = shape->dim, H = shape->heads, G = shape->kv_heads, d = p / H, wide = (H + 2 * G) * d, widest = wide;
  for (int l = 0; l < shape->layers; l++)
    if (layers[l].up.out > widest) widest = layers[l].up.out;
  float *y = malloc((size_t)rows * ((2 * p + 2 * widest + 1) * sizeof(float) + 4 * fours(widest)));
  if (!y) return 1;
  float *normed = y + (size_t)rows * p, *a = normed + (size_t)rows * p, *b = a + (size_t)rows * widest;
  Rounded s = {b + (size_t)rows * widest, (uint8_t *)(b + (size_t)rows * (widest + 1))};
  float *in = shape->pre ? normed : x;  /* what the next sublayer reads */
  Meeting place = {0, 0};
#pragma omp parallel num_threads(threads)
  {
    Thread t = this_thread(&place);
    if (shape->pre) join(x, NULL, layers->self_norm, in, rows, p, t);
    for (const Layer *m = layers; m < layers + shape->layers; m++) {
      Norm ahead = m + 1 < layers + shape->layers ? m[1].self_norm : shape->last;
      product(&m->qkv, in, a, s, rows, t);
      attend(shape, m, in, a, y, b, s, rows, places, cosines, sines, t);
      product(&m->out, b, y, s, rows, t);
      join(x, y, !shape->pre ? m->self_norm : shape->crosses ? m->cross_norm : m->feed_norm, in, rows, p, t);
      if (shape->crosses) {
        product(&m->cross_q, in, a, s, rows, t);
        look(a, p, m->source, keep, b, rows, sharing, H, G, d, n, NULL, t);
        product(&m->cross_out, b, y, s, rows, t);
        join(x, y, shape->pre ? m->feed_norm : m->cross_norm, in, rows, p, t);
      }
      product(&m->up, in, a, s, rows, t);
      activate(a, b, rows, m->down.in, shape->activation, t);
      product(&m->down, b, y, s, rows, t);
      join(x, y, shape->pre ? ahead : m->feed_norm, in, rows, p, t);
    }
    product(&shape->output, in, scores, s, rows, t);
  }
  free(y);
  return 0;
}

/* y (rows, out) = x (rows, in) times the matrix, plus the bias. Returns 0, or 1 without memory. */
int multiply(const Matrix *matrix, const float *bias, const float *x, float *y, int rows, int threads) {
  Matrix m = *matrix;
  m.bias = bias;
  Rounded s = {NULL, NULL};
  if (m.numbers) {
    s.worth = malloc((size_t)rows * (sizeof(float) + 4 * fours(m.in)));
    if (!s.worth) return 1;
    s.numbers = (uint8_t *)(s.worth + rows);
  }
  Meeting place = {0, 0};
#pragma omp parallel num_threads(threads)
  product(&m, x, y, s, rows, this_thread(&place));
  free(s.worth);
  return 0;
}

int outputs_of_a_block(void) { return BLOCK; }
