/* x (rows, in) times a matrix (out, in) that is stored in the order in which it is read (decoding/cpu/c_matrix.py).

   The result is computed in tiles of TILE rows and BLOCK outputs, whose sums stay in registers: for each input, the
   weights of a block are adjacent. Integers come in groups of four inputs, which CPUs multiply and add at once. Every
   tile sums over the inputs in the same order, so the result of a row has the same bits beside any other rows.
*/
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "common.h"

enum { TILE = 6, BLOCK = LANES * WIDE };

typedef int32_t Ints __attribute__((vector_size(4 * LANES)));

typedef struct {  /* float32 numbers, or int8 numbers with a scale for each row */
  const float *weight;   /* (blocks, in, BLOCK) */
  const int8_t *numbers; /* (blocks, in / 4, BLOCK, 4) */
  const float *scales;    /* (blocks, BLOCK), as are the sums of each row of numbers, times -128 */
  const int32_t *sums;
  const float *bias;     /* (out), or NULL */
  int out, in;
} Matrix;

typedef struct { float *scales; uint8_t *numbers; } Quantized;  /* (rows) and (rows, in), in groups of four */

static inline long groups_of_four(int in) { return (in + 3) / 4; }
static inline Ints ints_at(const void *x) { Ints y; memcpy(&y, x, sizeof y); return y; }

/* Add to each sum the products of four numbers from 0 to 255 and four from -127 to 127; exact on every CPU. */
static inline Ints add_products(Ints sums, Ints x, Ints w) {
#if defined(__AVX512VNNI__) && defined(__AVX512F__)
  return (Ints)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)x, (__m512i)w);
#elif defined(__AVXVNNI__)
  return (Ints)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)x, (__m256i)w);
#elif defined(__AVX2__)
  __m256i a = (__m256i)x, b = (__m256i)w;
  __m256i even = _mm256_madd_epi16(a & _mm256_set1_epi16(255), _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8));
  __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(a, 8), _mm256_srai_epi16(b, 8));
  return sums + (Ints)even + (Ints)odd;
#else
  uint8_t a[4 * LANES];
  int8_t b[4 * LANES];
  memcpy(a, &x, sizeof a), memcpy(b, &w, sizeof b);
  for (int i = 0; i < 4 * LANES; i++) sums[i / 4] += a[i] * b[i];
  return sums;
#endif
}

/* Quantize the rows to integers from 1 to 255 (128 stands for 0), with a scale that makes the largest one 127.
   A row with NaN or infinity has no such integers: its scale is NaN, and so are all its products.
   Not inlined: GCC would then optimize the float products of the same file less, to half their speed. */
__attribute__((noinline)) static void quantize_rows(const float *x, Quantized to, int rows, int in, Thread t) {
  for (int r = share(rows, t, 0); r < share(rows, t, 1); r++) {
    const float *row = x + (size_t)r * in;
    uint8_t *numbers = to.numbers + r * 4 * groups_of_four(in);
    float top = 1e-30f;
    int finite = 1;
    for (int i = 0; i < in; i++) finite &= fabsf(row[i]) <= FLT_MAX;
    for (int i = 0; i < in; i++) top = fabsf(row[i]) > top ? fabsf(row[i]) : top;
    float times = 127.0f / top;
    if (finite)
      for (int i = 0; i < in; i++) numbers[i] = (uint8_t)(int)(rintf(row[i] * times) + 128.0f);
    else
      memset(numbers, 128, in);
    for (int i = in; i < 4 * groups_of_four(in); i++) numbers[i] = 0;
    to.scales[r] = finite ? top / 127.0f : NAN;
  }
  meet(t);
}

static inline __attribute__((always_inline)) void sum_floats(const Matrix *m, const float *x, int o, int rows,
                                                             Floats sums[TILE][WIDE]) {
  const float *w = m->weight + (size_t)o * m->in;
  for (int r = 0; r < rows; r++)
    for (int j = 0; j < WIDE; j++) sums[r][j] = (Floats){0};
  for (long i = 0; i < m->in; i++, w += BLOCK) {
    Floats some[WIDE];
    for (int j = 0; j < WIDE; j++) some[j] = floats_at(w + j * LANES);
    for (int r = 0; r < rows; r++)
      for (int j = 0; j < WIDE; j++) sums[r][j] += x[(long)r * m->in + i] * some[j];
  }
}

static inline __attribute__((always_inline)) void sum_ints(const Matrix *m, const uint8_t *x, const float *scales, int o,
                                                           int rows, Floats sums[TILE][WIDE]) {
  const int8_t *w = m->numbers + (size_t)o * 4 * groups_of_four(m->in);
  Ints exact[TILE][WIDE];
  for (int r = 0; r < rows; r++)
    for (int j = 0; j < WIDE; j++) exact[r][j] = ints_at(m->sums + o + j * LANES);
  for (long i = 0; i < groups_of_four(m->in); i++, w += 4 * BLOCK) {
    Ints some[WIDE];
    for (int j = 0; j < WIDE; j++) some[j] = ints_at(w + 4 * j * LANES);
    for (int r = 0; r < rows; r++) {
      int32_t four;
      memcpy(&four, x + 4 * (r * groups_of_four(m->in) + i), 4);
      for (int j = 0; j < WIDE; j++) exact[r][j] = add_products(exact[r][j], four - (Ints){0}, some[j]);
    }
  }
  for (int r = 0; r < rows; r++)
    for (int j = 0; j < WIDE; j++)
      sums[r][j] = __builtin_convertvector(exact[r][j], Floats) * (scales[r] * floats_at(m->scales + o + j * LANES));
}

/* Compute `rows` rows from row r and BLOCK outputs from o; inlined, so that `rows` is a constant for the compiler. */
static inline __attribute__((always_inline)) void tile(const Matrix *m, const float *x, Quantized quantized, float *y, int o,
                                                       int r, int rows) {
  Floats sums[TILE][WIDE];
  if (m->numbers)
    sum_ints(m, quantized.numbers + r * 4 * groups_of_four(m->in), quantized.scales + r, o, rows, sums);
  else
    sum_floats(m, x + (size_t)r * m->in, o, rows, sums);
  int count = least(BLOCK, m->out - o);
  float bias[BLOCK] = {0};
  if (m->bias) memcpy(bias, m->bias + o, count * sizeof(float));
  for (int i = 0; i < rows; i++) {
    for (int j = 0; j < WIDE; j++) sums[i][j] += floats_at(bias + j * LANES);
    memcpy(y + (size_t)(r + i) * m->out + o, sums[i], count * sizeof(float));
  }
}

/* y (rows, out) = x (rows, in) times the matrix, plus its bias. */
static void product(const Matrix *m, const float *x, float *y, Quantized quantized, int rows, Thread t) {
  if (m->numbers) quantize_rows(x, quantized, rows, m->in, t);
  int down = (rows + TILE - 1) / TILE, across = (m->out + BLOCK - 1) / BLOCK;
  for (int i = share(down * across, t, 0); i < share(down * across, t, 1); i++) {
    int o = i / down * BLOCK, r = i % down * TILE;
    switch (least(TILE, rows - r)) {
      case 1: tile(m, x, quantized, y, o, r, 1); break;
      case 2: tile(m, x, quantized, y, o, r, 2); break;
      case 3: tile(m, x, quantized, y, o, r, 3); break;
      case 4: tile(m, x, quantized, y, o, r, 4); break;
      case 5: tile(m, x, quantized, y, o, r, 5); break;
      default: tile(m, x, quantized, y, o, r, TILE);
    }
  }
  meet(t);
}
