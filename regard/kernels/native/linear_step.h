/* The step of a decoder with random features: attention/linear/step.py in C, for each row and key-value head.

   F3: S_t = g_t S_{t-1} + w_t phi(k_t) v_t^T, z_t likewise, o_t = phi(q_t) S_t / phi(q_t).z_t; Peng et al. 2021, eq. 7.
   The formulas of phi are those of feature_maps.py; large numbers have two parts, values * e^log_scale.

       H heads   G key-value heads   r = H/G   d, e widths of keys and values   M rows of W   F features
*/
#ifndef REGARD_FEATURE_STEP
#define REGARD_FEATURE_STEP
#include "common.h"
#include "threads.h"

enum { TRIG, PLAIN, POSITIVE, HYPERBOLIC, OPTIMAL, ELU };  /* in the order of MAPS */

typedef struct {
  const float *W;      /* (G, M, d) */
  const float *sigma;  /* (G, d), the learned scale, or NULL */
  int map, heads, kv_heads, d, e, M, F;
  int normalize;
  float root;          /* square root of the scale */
  float A;             /* of OPTIMAL */
  float factor;        /* of all features; its logarithm where they are exponentials */
  float floor;         /* of denominators */
  int turning;         /* dimensions of a head that rotary positions rotate; 0: none */
  int interleaved;     /* rotated pairs are neighbours, not halves */
} Features;

typedef struct { float *S, *z, *log_scale, *log_decay; } Sums;  /* (R, G, F, e), (R, G, F), (R, G), (R, G) */

/* q, k, v (R, heads · width): pointers, and strides of the rows. */
typedef struct { const float *q, *k, *v; long q_row, k_row, v_row; } New;

/* Normalise and scale queries or keys for the map: features.py, `prepare`. */
static void prepare(const Features *m, int g, float *x) {
  float factor = m->root;
  if (m->normalize) {
    float length = sqrtf(dot(x, x, m->d));
    factor /= length > 1e-6f ? length : 1e-6f;
  }
  for (int i = 0; i < m->d; i++) x[i] *= m->sigma ? factor * m->sigma[g * m->d + i] : factor;
}

/* phi (F) times e^-log_scale of x (d), which is overwritten; returns log_scale. */
static float make_features(const Features *m, int g, float *x, float *phi) {
  int M = m->M, d = m->d;
  if (m->map == ELU) {
    for (int i = 0; i < d; i++) phi[i] = x[i] < 0 ? x[i] : 0.0f;
    exponentials(phi, d, 0);
    for (int i = 0; i < d; i++) phi[i] += x[i] > 0 ? x[i] : 0.0f;
    return 0;
  }
  prepare(m, g, x);
  const float *W = m->W + (size_t)g * M * d;
  for (int i = 0; i < M; i++) phi[i] = dot(W + (size_t)i * d, x, d);
  float half_square = dot(x, x, d) / 2, top = -INFINITY;
  if (m->map == TRIG || m->map == PLAIN) {
    for (int i = 0; i < M; i++) phi[M + i] = m->factor * cosf(phi[i]), phi[i] = m->factor * sinf(phi[i]);
    return m->map == TRIG ? half_square : 0;
  }
  if (m->map == OPTIMAL) {
    float root = sqrtf(1 - 4 * m->A);
    for (int i = 0; i < M; i++) phi[i] = root * phi[i] + m->A * dot(W + (size_t)i * d, W + (size_t)i * d, d);
  }
  if (m->map == HYPERBOLIC)
    for (int i = 0; i < M; i++) phi[M + i] = -phi[i];
  for (int i = 0; i < m->F; i++) top = phi[i] > top ? phi[i] : top;
  exponentials(phi, m->F, top - m->factor);
  return top - half_square;
}

/* Update S (F, e) and z (F): times a, plus the new key; then the outputs y (r, e) of the r queries. */
static void move_on(float *restrict S, float *restrict z, float a, const float *restrict key, float b,
                    const float *restrict v, const float *restrict queries, float *restrict y, int r, int F, int e,
                    float floor) {
  float below[r];
  memset(below, 0, sizeof below), memset(y, 0, (size_t)r * e * sizeof *y);
  for (int f = 0; f < F; f++, S += e) {
    float w = b * key[f];
    z[f] = a * z[f] + w;
    for (int c = 0; c < e; c++) S[c] = a * S[c] + w * v[c];
    for (int j = 0; j < r; j++) {
      float weight = queries[(size_t)j * F + f];
      below[j] += weight * z[f];
      for (int c = 0; c < e; c++) y[(size_t)j * e + c] += weight * S[c];
    }
  }
  for (int j = 0; j < r; j++) {
    float over = 1.0f / (fabsf(below[j]) < floor ? floor : below[j]);
    for (int c = 0; c < e; c++) y[(size_t)j * e + c] *= over;
  }
}

static float log_sigmoid(float x) { return (x < 0 ? x : 0.0f) - log1pf(expf(-fabsf(x))); }

/* The step of all rows: y (R, H · e). gate (R, G) before the sigmoid, or NULL; cosines and sines (R, turning / 2) of the
   positions of the new tokens. */
static void step_features(const Features *m, Sums s, New x, const float *gate, const float *cosines,
                          const float *sines, float *y, int rows, Thread t) {
  int G = m->kv_heads, r = m->heads / G, d = m->d, e = m->e, F = m->F, pairs = m->turning / 2;
  for (int j = share(rows * G, t, 0); j < share(rows * G, t, 1); j++) {
    int row = j / G, g = j % G;
    float vectors[(r + 1) * d], phi[(r + 1) * F], new = 0;
    memcpy(vectors, x.q + row * x.q_row + g * r * d, r * d * sizeof(float));
    memcpy(vectors + r * d, x.k + row * x.k_row + g * d, d * sizeof(float));
    for (int i = 0; i <= r; i++) {
      if (pairs) turn(vectors + i * d, cosines + row * pairs, sines + row * pairs, m->turning, m->interleaved);
      new = make_features(m, g, vectors + i * d, phi + i * F);  /* the key is last; the log_scale of a query cancels */
    }
    float old = s.log_scale[j];
    if (gate) {
      float log_g = log_sigmoid(gate[j]);
      new += log_sigmoid(-gate[j]), old += log_g, s.log_decay[j] += log_g;
    }
    float top = s.log_scale[j] = old > new ? old : new;
    move_on(s.S + (size_t)j * F * e, s.z + (size_t)j * F, expf(old - top), phi + r * F, expf(new - top),
            x.v + row * x.v_row + g * e, phi, y + (size_t)j * r * e, r, F, e, m->floor);
  }
  meet(t);
}

#endif
