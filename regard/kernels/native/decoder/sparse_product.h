/* Products after a ReLU, where most inputs are zero: sparse_product skips them. It reads a second copy of the matrix, in
   which all outputs of an input are adjacent.
*/
#ifndef REGARD_SPARSE_PRODUCT
#define REGARD_SPARSE_PRODUCT
#include "product.h"

#define MAX_DENSITY 0.6f  /* the share of a row that may differ from zero if sparse_product is to pay */
/* Groups of four are rarely all zero, and four products at once make skipping them pay only where no rows share weights. */
enum { MAX_SPARSE_ROWS = GROUP == 4 ? 2 : 1 << 30 };

typedef struct {  /* the inputs of a row that are not zero, or their groups */
  const Bits *values;     /* all of them */
  const int32_t *places;  /* of those that are not zero; NULL: the row has its product already */
  int length;
  float scale;            /* of integers */
} Listed;

/* List where a row has numbers that are not zero; `places` is as long as the row. Returns the length of the list. */
static int list_nonzero(const Bits *row, int count, int32_t *places) {
  int length = 0, i = 0;
#if defined(__AVX512F__)
  __m512i number = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (; i + 16 <= count; i += 16, number = _mm512_add_epi32(number, _mm512_set1_epi32(16))) {
    __m512i some = _mm512_loadu_si512(row + i);
    __mmask16 nonzero = _mm512_test_epi32_mask(some, some);
    _mm512_mask_compressstoreu_epi32(places + length, nonzero, number);
    length += __builtin_popcount(nonzero);
  }
#endif
  for (; i < count; i++) {
    places[length] = i;
    length += row[i] != 0;
  }
  return length;
}

/* Quantize a row of numbers that are at least 0, of which the largest is 127 / times; without ZERO. */
__attribute__((noinline)) static void quantize_positive(const float *x, int32_t *groups, int in, float times) {
  int8_t numbers[GROUP * groups_of(in)];
  for (int i = 0; i < in; i++) numbers[i] = (int8_t)(int)rintf(x[i] * times);
  for (int i = in; i < GROUP * groups_of(in); i++) numbers[i] = 0;
  Number *to = (Number *)groups;
  for (int i = 0; i < GROUP * groups_of(in); i++) to[i] = numbers[i];
}

/* List the inputs of row r, which has been through the ReLU. A row with few zeros, or with numbers that are not finite,
   gets its product here, the usual way. */
static Listed list_inputs(const Matrix *m, const float *x, float *y, Quantized quantized, int32_t *places, int r) {
  int count = m->parts ? groups_of(m->in) : m->in;
  const float *row = x + (size_t)r * m->in;
  float top = largest(row, m->in), magnitude = top > 1e-30f ? top : 1e-30f;
  Quantized own = {quantized.scales + r, quantized.groups + r * groups_of(m->in)};
  if (m->parts && top == top) quantize_positive(row, own.groups, m->in, 127.0f / magnitude);
  const Bits *values = m->parts ? (const Bits *)own.groups : (const Bits *)row;
  int length = top == top ? list_nonzero(values, count, places) : count;
  if (length <= MAX_DENSITY * count) return (Listed){values, places, length, magnitude / 127.0f};
  product(m, row, y + (size_t)r * m->out, own, 1, ALONE);
  return (Listed){NULL, NULL, 0, 0};
}

/* y = up to a STRIP of outputs from o: the sums over the listed inputs, which stay in registers, plus the bias. */
static void add_inputs(const Matrix *m, Listed x, int o, float *y) {
  long padded = round_up(m->out, STRIP);
  Floats sums[8] = {0};
  if (m->parts) {
    Ints exact[8] = {0};
    const int8_t *w = (const int8_t *)m->by_input + (long)o * GROUP;
    for (int i = 0; i < x.length; i++)
      for (int j = 0; j < 8; j++)
        exact[j] = add_products(exact[j], x.values[x.places[i]], weights_at(w + GROUP * (x.places[i] * padded + j * LANES)));
    for (int j = 0; j < 8; j++)
      sums[j] = __builtin_convertvector(exact[j], Floats) * (x.scale * floats_at(m->scales + o + j * LANES));
  } else {
    const float *w = (const float *)m->by_input + o, *values = (const float *)x.values;
    for (int i = 0; i < x.length; i++)
      for (int j = 0; j < 8; j++) sums[j] += values[x.places[i]] * floats_at(w + x.places[i] * padded + j * LANES);
  }
  int count = least(STRIP, m->out - o);
  float bias[STRIP] = {0};
  if (m->bias) memcpy(bias, m->bias + o, count * sizeof(float));
  for (int j = 0; j < 8; j++) sums[j] += floats_at(bias + j * LANES);
  memcpy(y, sums, count * sizeof(float));
}

/* y (rows, out) = max(x, 0) times the matrix, plus its bias; x is overwritten, `places` (rows, in) is room. A matrix
   without `by_input`, rows with few zeros, and more than MAX_SPARSE_ROWS rows of integers take the usual product. All
   rows take a strip of outputs before the next one, so that its weights stay in the cache. */
static void sparse_product(const Matrix *m, float *x, float *y, Quantized quantized, int32_t *places, int rows, Thread t) {
  int is_sparse = m->by_input && (!m->parts || rows <= MAX_SPARSE_ROWS);
  int first = share(rows, t, 0), last = share(rows, t, 1);
  for (size_t i = (size_t)first * m->in; i < (size_t)last * m->in; i++) x[i] = x[i] > 0 ? x[i] : 0;
  if (is_sparse) {
    Listed listed[last - first + 1];
    for (int r = first; r < last; r++) listed[r - first] = list_inputs(m, x, y, quantized, places + (size_t)r * m->in, r);
    for (int o = 0; o < m->out; o += STRIP)
      for (int r = first; r < last; r++)
        if (listed[r - first].places) add_inputs(m, listed[r - first], o, y + (size_t)r * m->out + o);
  }
  meet(t);
  if (!is_sparse) product(m, x, y, quantized, rows, t);
}

#endif
