/* One step of a Transformer's decoder on a CPU: the vector of each row's new token goes in, its scores come out.

   It is what the modules of regard/models compute, without a visit to Python and memory for each of their hundreds of
   small operations. Compiled when it is first wanted (native.py); plain loops, which compilers turn into the CPU's
   vector instructions.

       R rows   p model width   H heads   G key-value heads   d head width   T tokens so far   n source tokens
*/
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { RELU, GELU, GELU_TANH, SWIGLU };

typedef struct {  /* (out, in), float32, or whole numbers with the worth of one in each row */
  const float *weight, *bias;
  const int8_t *numbers;
  const float *worth;
  const int32_t *sums;  /* of each row of numbers, times 128 */
  int out, in;
} Matrix;

typedef struct { const float *weight, *bias; float eps; int rms; } Norm;

typedef struct {  /* keys and values (rows, G, room, d): where the next row, head and token begin */
  float *k, *v;
  long row, head, token;
} Store;

typedef struct {
  Matrix qkv, out, cross_q, cross_out, up, down;
  Norm self_norm, cross_norm, feed_norm;
  Store own, source;
} Layer;

typedef struct {
  int layers, dim, heads, kv_heads, pre, crosses, activation;
  int turning;         /* numbers of a head that rotary positions turn; 0: none */
  int interleaved;     /* the pairs that turn are neighbours, not halves */
  Norm last;           /* of pre-norm models */
  Matrix output;
} Shape;

typedef struct { float *x, *y, *a, *b, *worth; uint8_t *numbers; } Space;

static int least(int a, int b) { return a < b ? a : b; }

/* The rows as whole numbers from 1 to 255, the true ones plus 128, and what one is worth: the largest becomes 127. */
static void round_rows(const float *x, Space s, int rows, int in) {
#pragma omp for schedule(static)
  for (int r = 0; r < rows; r++) {
    const float *row = x + (size_t)r * in;
    uint8_t *numbers = s.numbers + (size_t)r * in;
    float top = 1e-30f;
    for (int i = 0; i < in; i++) top = fmaxf(top, fabsf(row[i]));
    float times = 127.0f / top;
    for (int i = 0; i < in; i++) numbers[i] = (uint8_t)(int)(rintf(row[i] * times) + 128.0f);
    s.worth[r] = top / 127.0f;
  }
}

#define ROWS 4  /* whose products with a row of the matrix are made together, so that it is read once for all */

static void int_products(const uint8_t *restrict x, long in, const int8_t *restrict w, int count, int32_t *sums) {
  if (count == ROWS) {
    int32_t a = 0, b = 0, c = 0, d = 0;
    for (long i = 0; i < in; i++) {
      a += x[i] * w[i];
      b += x[in + i] * w[i];
      c += x[2 * in + i] * w[i];
      d += x[3 * in + i] * w[i];
    }
    sums[0] = a, sums[1] = b, sums[2] = c, sums[3] = d;
  } else {
    for (int r = 0; r < count; r++, x += in) {
      int32_t sum = 0;
      for (long i = 0; i < in; i++) sum += x[i] * w[i];
      sums[r] = sum;
    }
  }
}

static void float_products(const float *restrict x, long in, const float *restrict w, int count, float *sums) {
  for (int r = 0; r < count; r++, x += in) {
    float sum = 0;
    for (long i = 0; i < in; i++) sum += x[i] * w[i];
    sums[r] = sum;
  }
}

/* y (rows, out) = x (rows, in) times the matrix, plus its bias. */
static void product(Matrix m, const float *x, float *y, Space s, int rows) {
  if (m.numbers) round_rows(x, s, rows, m.in);
#pragma omp for schedule(static)
  for (int first = 0; first < m.out; first += 16)
    for (int r0 = 0; r0 < rows; r0 += ROWS)
      for (int o = first; o < least(first + 16, m.out); o++) {
        int count = least(ROWS, rows - r0);
        float bias = m.bias ? m.bias[o] : 0.0f;
        if (m.numbers) {
          int32_t sums[ROWS];
          int_products(s.numbers + (size_t)r0 * m.in, m.in, m.numbers + (size_t)o * m.in, count, sums);
          for (int r = 0; r < count; r++)
            y[(size_t)(r0 + r) * m.out + o] = s.worth[r0 + r] * m.worth[o] * (float)(sums[r] - m.sums[o]) + bias;
        } else {
          float sums[ROWS];
          float_products(x + (size_t)r0 * m.in, m.in, m.weight + (size_t)o * m.in, count, sums);
          for (int r = 0; r < count; r++) y[(size_t)(r0 + r) * m.out + o] = sums[r] + bias;
        }
      }
}

static void normalise(Norm n, const float *x, float *y, int rows, int p) {
#pragma omp for schedule(static)
  for (int r = 0; r < rows; r++) {
    const float *in = x + (size_t)r * p;
    float *out = y + (size_t)r * p, mean = 0, squares = 0;
    if (!n.rms) {
      for (int i = 0; i < p; i++) mean += in[i];
      mean /= p;
    }
    for (int i = 0; i < p; i++) squares += (in[i] - mean) * (in[i] - mean);
    float factor = 1.0f / sqrtf(squares / p + n.eps);
    for (int i = 0; i < p; i++) out[i] = (in[i] - mean) * factor * n.weight[i] + (n.bias ? n.bias[i] : 0.0f);
  }
}

static void add(float *x, const float *y, int rows, int p) {
#pragma omp for schedule(static)
  for (int r = 0; r < rows; r++)
    for (int i = 0; i < p; i++) x[(size_t)r * p + i] += y[(size_t)r * p + i];
}

static void turn(float *x, const float *cosines, const float *sines, int turning, int interleaved) {
  for (int c = 0; c < turning / 2; c++) {
    float *one = x + (interleaved ? 2 * c : c), *other = x + (interleaved ? 2 * c + 1 : c + turning / 2);
    float a = *one, b = *other;
    *one = a * cosines[c] - b * sines[c];
    *other = b * cosines[c] + a * sines[c];
  }
}

/* softmax(q k / sqrt(d)) v for each row and head; `sharing` rows side by side look at one text. */
static void look(const float *q, long q_row, Store s, const uint8_t *keep, float *y, int rows, int sharing, int heads,
                 int kv_heads, int d, int n) {
  float scale = 1.0f / sqrtf((float)d);
#pragma omp for schedule(static)
  for (int j = 0; j < rows * heads; j++) {
    int r = j / heads, h = j % heads, text = r / sharing;
    long start = text * s.row + h / (heads / kv_heads) * s.head;
    const float *query = q + r * q_row + h * d;
    float weights[n], top = -INFINITY, total = 0, *out = y + ((size_t)r * heads + h) * d;
    for (int t = 0; t < n; t++) {
      float sum = 0;
      for (int i = 0; i < d; i++) sum += query[i] * s.k[start + t * s.token + i];
      weights[t] = keep && !keep[(size_t)text * n + t] ? -INFINITY : sum * scale;
      top = fmaxf(top, weights[t]);
    }
    for (int t = 0; t < n; t++) total += weights[t] = top == -INFINITY ? 0.0f : expf(weights[t] - top);
    memset(out, 0, d * sizeof(float));
    for (int t = 0; t < n; t++) {
      float share = total > 0 ? weights[t] / total : 0.0f;
      for (int i = 0; i < d; i++) out[i] += share * s.v[start + t * s.token + i];
    }
  }
}

static float activated(float x, int kind) {
  if (kind == RELU) return x > 0 ? x : 0;
  if (kind == GELU) return 0.5f * x * (1.0f + erff(x * 0.70710678f));
  if (kind == GELU_TANH) return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
  return x / (1.0f + expf(-x));  /* the gate of SwiGLU */
}

static void activate(const float *x, float *y, int rows, int hidden, int kind) {
  int wide = kind == SWIGLU ? 2 * hidden : hidden;
#pragma omp for schedule(static)
  for (int r = 0; r < rows; r++)
    for (int i = 0; i < hidden; i++) {
      const float *row = x + (size_t)r * wide;
      y[(size_t)r * hidden + i] = activated(row[i], kind) * (kind == SWIGLU ? row[hidden + i] : 1.0f);
    }
}

/* x (R, p) the vectors of the new tokens, which stand at place T; scores (R, vocabulary). Returns 0, or 1 without memory. */
int decode_step(const Shape *shape, const Layer *layers, float *x, float *scores, int rows, int sharing, int T, int n,
                const uint8_t *keep, const float *cosines, const float *sines) {
  int p = shape->dim, H = shape->heads, G = shape->kv_heads, d = p / H, wide = (H + 2 * G) * d;
  int widest = wide;
  for (int l = 0; l < shape->layers; l++)
    if (layers[l].up.out > widest) widest = layers[l].up.out;
  size_t floats = (size_t)rows * (2 * p + 2 * widest + 1);
  Space s;
  s.y = malloc(floats * sizeof(float) + (size_t)rows * widest);
  if (!s.y) return 1;
  s.x = s.y + (size_t)rows * p;
  s.a = s.x + (size_t)rows * p;
  s.b = s.a + (size_t)rows * widest;
  s.worth = s.b + (size_t)rows * widest;
  s.numbers = (uint8_t *)(s.worth + rows);
#pragma omp parallel
  {
    for (int l = 0; l < shape->layers; l++) {
      const Layer *m = layers + l;
      const float *in = x;
      if (shape->pre) normalise(m->self_norm, x, s.x, rows, p), in = s.x;
      product(m->qkv, in, s.a, s, rows);
#pragma omp for schedule(static)
      for (int r = 0; r < rows; r++) {
        float *row = s.a + (size_t)r * wide;
        if (shape->turning)
          for (int h = 0; h < H + G; h++) turn(row + h * d, cosines, sines, shape->turning, shape->interleaved);
        for (int g = 0; g < G; g++) {
          long at = r * m->own.row + g * m->own.head + T * m->own.token;
          memcpy(m->own.k + at, row + (H + g) * d, d * sizeof(float));
          memcpy(m->own.v + at, row + (H + G + g) * d, d * sizeof(float));
        }
      }
      look(s.a, wide, m->own, NULL, s.b, rows, 1, H, G, d, T + 1);
      product(m->out, s.b, s.y, s, rows);
      add(x, s.y, rows, p);
      if (!shape->pre) normalise(m->self_norm, x, x, rows, p);
      if (shape->crosses) {
        in = x;
        if (shape->pre) normalise(m->cross_norm, x, s.x, rows, p), in = s.x;
        product(m->cross_q, in, s.a, s, rows);
        look(s.a, p, m->source, keep, s.b, rows, sharing, H, G, d, n);
        product(m->cross_out, s.b, s.y, s, rows);
        add(x, s.y, rows, p);
        if (!shape->pre) normalise(m->cross_norm, x, x, rows, p);
      }
      in = x;
      if (shape->pre) normalise(m->feed_norm, x, s.x, rows, p), in = s.x;
      product(m->up, in, s.a, s, rows);
      activate(s.a, s.b, rows, m->down.in, shape->activation);
      product(m->down, s.b, s.y, s, rows);
      add(x, s.y, rows, p);
      if (!shape->pre) normalise(m->feed_norm, x, x, rows, p);
    }
    if (shape->pre) normalise(shape->last, x, x, rows, p);
    product(shape->output, x, scores, s, rows);
  }
  free(s.y);
  return 0;
}
