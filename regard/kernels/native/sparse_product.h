/* Products after a ReLU, where most inputs are zero: sparse_product skips them. It reads a second copy of the matrix, in
   which all outputs of an input are adjacent.
*/
#ifndef REGARD_SPARSE_PRODUCT
#define REGARD_SPARSE_PRODUCT
#include "product.h"

#define MAX_DENSITY 0.6f  /* the share of a row that may differ from zero if sparse_product is to pay */
/* Groups of four are rarely all zero, and four products at once make skipping them pay only where no rows share weights. */
enum { MAX_SPARSE_ROWS = GROUP == 4 ? 2 : 1 << 30 };

/* List the numbers of a row that are not zero: their places and their bits, with room for 16 more. Returns the length
   of the list. */
static int list_nonzero(const int32_t *row, int count, int32_t *places, int32_t *bits) {
  int length = 0, i = 0;
#if defined(__AVX512F__)
  __m512i number = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (; i + 16 <= count; i += 16, number = _mm512_add_epi32(number, _mm512_set1_epi32(16))) {
    __m512i some = _mm512_loadu_si512(row + i);
    __mmask16 nonzero = _mm512_test_epi32_mask(some, some);
    _mm512_storeu_si512(bits + length, _mm512_maskz_compress_epi32(nonzero, some));
    _mm512_storeu_si512(places + length, _mm512_maskz_compress_epi32(nonzero, number));
    length += __builtin_popcount(nonzero);
  }
#endif
  for (; i < count; i++) {
    bits[length] = row[i];
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

/* y (out) = the sum over the listed inputs, plus the bias; a strip of outputs at a time, whose sums stay in registers. */
static void add_inputs(const Matrix *m, const int32_t *inputs, const int32_t *values, int length, float scale, float *y) {
  long padded = (m->out + STRIP - 1) / STRIP * STRIP;
  for (int o = 0; o < m->out; o += STRIP) {
    Floats sums[8] = {0};
    if (m->numbers) {
      Ints exact[8] = {0};
      const int8_t *w = (const int8_t *)m->by_input + (long)o * GROUP;
      for (int i = 0; i < length; i++)
        for (int j = 0; j < 8; j++)
          exact[j] = add_products(exact[j], values[i], weights_at(w + GROUP * (inputs[i] * padded + j * LANES)));
      for (int j = 0; j < 8; j++)
        sums[j] = __builtin_convertvector(exact[j], Floats) * (scale * floats_at(m->scales + o + j * LANES));
    } else {
      const float *w = (const float *)m->by_input + o;
      for (int i = 0; i < length; i++) {
        float value;
        memcpy(&value, values + i, 4);
        for (int j = 0; j < 8; j++) sums[j] += value * floats_at(w + inputs[i] * padded + j * LANES);
      }
    }
    int count = least(STRIP, m->out - o);
    float bias[STRIP] = {0};
    if (m->bias) memcpy(bias, m->bias + o, count * sizeof(float));
    for (int j = 0; j < 8; j++) sums[j] += floats_at(bias + j * LANES);
    memcpy(y + o, sums, count * sizeof(float));
  }
}

/* y (rows, out) = max(x, 0) times the matrix, plus its bias; x is overwritten. A matrix without `by_input`, rows with few
   zeros, and more than MAX_SPARSE_ROWS rows of integers take the usual product. */
static void sparse_product(const Matrix *m, float *x, float *y, Quantized quantized, int rows, Thread t) {
  int is_sparse = m->by_input && (!m->numbers || rows <= MAX_SPARSE_ROWS);
  for (int r = share(rows, t, 0); r < share(rows, t, 1); r++) {
    float *row = x + (size_t)r * m->in, top = 0;
    for (int i = 0; i < m->in; i++) row[i] = row[i] > 0 ? row[i] : 0;
    if (!is_sparse) continue;
    int32_t inputs[m->in + 16], values[m->in + 16];
    for (int i = 0; i < m->in; i++) top = row[i] > top ? row[i] : top;
    top = top > 1e-30f ? top : 1e-30f;
    Quantized own = {quantized.scales + r, quantized.groups + r * groups_of(m->in)};
    int count = m->numbers ? groups_of(m->in) : m->in, length = count;
    if (top <= FLT_MAX && m->numbers) {
      quantize_positive(row, own.groups, m->in, 127.0f / top);
      length = list_nonzero(own.groups, count, inputs, values);
    } else if (top <= FLT_MAX) {
      length = list_nonzero((const int32_t *)row, count, inputs, values);
    }
    if (length > MAX_DENSITY * count) {
      product(m, row, y + (size_t)r * m->out, own, 1, ALONE);
    } else {
      add_inputs(m, inputs, values, length, top / 127.0f, y + (size_t)r * m->out);
    }
  }
  meet(t);
  if (!is_sparse) product(m, x, y, quantized, rows, t);
}

#endif
