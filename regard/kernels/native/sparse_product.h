/* Products after a ReLU, where most inputs are zero: sparse_product skips them. It reads a second copy of the matrix, in
   which all outputs of an input are adjacent.
*/
#ifndef REGARD_SPARSE_PRODUCT
#define REGARD_SPARSE_PRODUCT
#include "product.h"

#define MAX_DENSITY 0.6f  /* the share of a row that may differ from zero if sparse_product is to pay */
/* Groups of four are rarely all zero, and four products at once make skipping them pay only where no rows share weights. */
enum { MAX_ROWS_OF_FOURS = 2 };

/* List where a row has numbers that are not zero; `places` is as long as the row. Returns the length of the list. */
static int list_nonzero(const Bits *row, int count, int32_t *places) {
  int length = 0, i = 0;
#if defined(__AVX512F__)
  __m512i number = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (; i + 16 <= count; i += 16, number = _mm512_add_epi32(number, _mm512_set1_epi32(16))) {
    __m512i some = _mm512_loadu_si512(row + i);
    __mmask16 nonzero = _mm512_test_epi32_mask(some, some);
    _mm512_storeu_si512(places + length, _mm512_maskz_compress_epi32(nonzero, number));
    length += __builtin_popcount(nonzero);
  }
#elif defined(__AVX2__) && defined(__BMI2__)
  for (; i + 8 <= count; i += 8) {
    __m256i some = _mm256_loadu_si256((const __m256i *)(row + i));
    unsigned zero = _mm256_movemask_ps((__m256)_mm256_cmpeq_epi32(some, _mm256_setzero_si256())), nonzero = zero ^ 255;
    if (!nonzero) continue;
    /* The numbers 0 to 7 of the lanes that are not zero, as bytes, one after the other. */
    uint64_t lanes = _pext_u64(0x0706050403020100, _pdep_u64(nonzero, 0x0101010101010101) * 255);
    __m256i order = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(lanes));
    _mm256_storeu_si256((__m256i *)(places + length), _mm256_add_epi32(order, _mm256_set1_epi32(i)));
    length += __builtin_popcount(nonzero);
  }
#endif
  for (; i < count; i++) {
    places[length] = i;
    length += row[i] != 0;
  }
  return length;
}

/* Quantize a row of numbers that are at least 0, of which the largest is limit / times; without ZERO. */
__attribute__((noinline)) static void quantize_positive(const Matrix *m, const float *x, int32_t *groups, float times) {
  if (group_of(m) == PAIR) {
    round_pairs(x, times, (int16_t *)groups, m->in);
  } else {
    int8_t *numbers = (int8_t *)groups;
    for (int i = 0; i < m->in; i++) numbers[i] = (int8_t)(int)rintf(x[i] * times);
    for (int i = m->in; i < GROUP * groups_of(m); i++) numbers[i] = 0;
  }
}

typedef struct { const Bits *row; const int32_t *inputs; int length; float scale; } Listed;  /* inputs that are not 0 */

/* The sums of a strip from o over the listed groups of integers; `group` is a constant. */
INLINE void add_groups(const Matrix *m, Listed listed, int o, int group, Floats sums[8]) {
  long padded = round_up(m->out, STRIP);
  Ints exact[8] = {0};
  const int8_t *w = m->by_input;
  w += (long)o * group;
  for (int i = 0; i < listed.length; i++)
    for (int j = 0; j < 8; j++) {
      Ints some = weights_at(w + group * (listed.inputs[i] * padded + j * LANES), group);
      exact[j] = add_products(exact[j], listed.row[listed.inputs[i]], some, group);
    }
  for (int j = 0; j < 8; j++)
    sums[j] = __builtin_convertvector(exact[j], Floats) * (listed.scale * floats_at(m->scales + o + j * LANES));
}

INLINE void add_floats(const Matrix *m, Listed listed, int o, Floats sums[8]) {
  long padded = round_up(m->out, STRIP);
  const float *w = m->by_input, *row = (const float *)listed.row;
  w += o;
  for (int i = 0; i < listed.length; i++)
    for (int j = 0; j < 8; j++) sums[j] += row[listed.inputs[i]] * floats_at(w + listed.inputs[i] * padded + j * LANES);
}

/* y (STRIP) = the outputs of a strip from o: the sum over the listed inputs, plus the bias. The sums stay in registers. */
static void add_inputs(const Matrix *m, Listed listed, int o, float *y) {
  Floats sums[8] = {0};
  if (!m->numbers) add_floats(m, listed, o, sums);
  else if (GROUP == PAIR || m->limit > MAX_INT8) add_groups(m, listed, o, PAIR, sums);
  else add_groups(m, listed, o, GROUP, sums);
  int count = least(STRIP, m->out - o);
  float bias[STRIP] = {0};
  if (m->bias) memcpy(bias, m->bias + o, count * sizeof(float));
  for (int j = 0; j < 8; j++) sums[j] += floats_at(bias + j * LANES);
  memcpy(y, sums, count * sizeof(float));
}

/* List the inputs of row r, which has been through the ReLU. A row with few zeros, or with numbers that are not finite,
   gets its product here, the usual way, and no list. */
static Listed list_inputs(const Matrix *m, const float *x, float *y, Quantized quantized, int32_t *places, int r) {
  int count = m->numbers ? groups_of(m) : m->in;
  const float *row = x + (size_t)r * m->in;
  float top = largest(row, m->in), magnitude = top > 1e-30f ? top : 1e-30f;
  Quantized own = {quantized.scales + r, quantized.groups + r * groups_of(m)};
  const Bits *values = m->numbers ? (const Bits *)own.groups : (const Bits *)row;
  if (m->numbers && top == top) quantize_positive(m, row, own.groups, m->limit / magnitude);
  int length = top == top ? list_nonzero(values, count, places) : count;
  if (length <= MAX_DENSITY * count) return (Listed){values, places, length, magnitude / m->limit};
  product(m, row, y + (size_t)r * m->out, own, 1, ALONE);
  return (Listed){NULL, NULL, 0, 0};
}

/* y (rows, out) = max(x, 0) times the matrix, plus its bias; x is overwritten, `places` (rows, in) is room. A matrix
   without `by_input`, rows with few zeros, and more than MAX_ROWS_OF_FOURS rows of such groups take the usual product.
   All rows take a strip of outputs before the next one, so that its weights stay in the cache. */
static void sparse_product(const Matrix *m, float *x, float *y, Quantized quantized, int32_t *places, int rows, Thread t) {
  int is_sparse = m->by_input && (!m->numbers || group_of(m) == PAIR || rows <= MAX_ROWS_OF_FOURS);
  int first = share(rows, t, 0), last = share(rows, t, 1);
  for (size_t i = (size_t)first * m->in; i < (size_t)last * m->in; i++) x[i] = x[i] > 0 ? x[i] : 0;
  if (is_sparse) {
    Listed listed[last - first + 1];
    for (int r = first; r < last; r++)
      listed[r - first] = list_inputs(m, x, y, quantized, places + (size_t)r * m->in, r);
    for (int o = 0; o < m->out; o += STRIP)
      for (int r = first; r < last; r++)
        if (listed[r - first].row) add_inputs(m, listed[r - first], o, y + (size_t)r * m->out + o);
  }
  meet(t);
  if (!is_sparse) product(m, x, y, quantized, rows, t);
}

#endif
