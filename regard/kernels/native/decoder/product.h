/* x (rows, in) times a matrix (out, in) that is stored in the order in which it is read (decoding/cpu/c_matrix.py).

   The result is computed in tiles of up to TILE rows and BLOCK outputs, whose sums stay in registers: for each input,
   the weights of a block are adjacent. Integers come in groups of inputs, which CPUs multiply and add at once. Every
   tile sums over the inputs in the same order, so the result of a row has the same bits beside any other rows.

   Where the weights are integers of 8 bits, x is rounded to integers too. An int8 model rounds it to 8 bits. A float32
   model whose weights are integers times scales, as in a folder that stores int8, rounds it to 24 bits, as many as a
   float32 number has: three parts of 8 bits, most significant first. A tile multiplies each part like a row of its own,
   exactly, and then adds up the parts. That takes three quarters of the instructions of float32, and a quarter of its
   memory.

   Many rows of integers take tiles of twice the height and half the width, if the CPU has 32 registers. Each tile fetches
   a part of the next block into the cache: the weights of a small model come from the last level of the cache at every
   step, and the arithmetic would wait for them.
*/
#ifndef REGARD_PRODUCT
#define REGARD_PRODUCT
#include "amx_product.h"
#include "group_product.h"

enum { TILE = 6 };
enum { HAS_TALL = WIDE == 4, TALL = HAS_TALL ? 12 : 6, NARROW = HAS_TALL ? 2 : WIDE };  /* TALL rows, NARROW vectors */

/* The weights of a group of inputs and LANES outputs. */
static inline Ints weights_at(const int8_t *w) {
#if defined(PAIRS_OF_INTEGERS)
  return (Ints)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)w));
#else
  return ints_at(w);
#endif
}

/* Add to each sum the products of a group of inputs and their weights; exact on every CPU. */
static inline Ints add_products(Ints sums, int32_t group, Ints w) {
  Ints x = group - (Ints){0};
#if defined(__AVX512VNNI__) && defined(__AVX512F__)
  return (Ints)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)x, (__m512i)w);
#elif defined(__AVXVNNI__)
  return (Ints)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)x, (__m256i)w);
#elif defined(__AVX2__)
  return sums + (Ints)_mm256_madd_epi16((__m256i)x, (__m256i)w);
#else
  uint8_t a[4 * LANES];
  int8_t b[4 * LANES];
  memcpy(a, &x, sizeof a), memcpy(b, &w, sizeof b);
  for (int i = 0; i < 4 * LANES; i++) sums[i / 4] += a[i] * b[i];
  return sums;
#endif
}

/* While a tile is computed, fetch a part of the next block into the cache: as many lines as there are groups of inputs.
   A block has WIDE such pieces, of which `fetched` is the number. */
static inline const char *next_block(const void *weights, int size, int o, long groups, int fetched) {
  return (const char *)weights + (size_t)size * place_of(o / BLOCK * BLOCK + BLOCK, groups) + 4 * LANES * groups * fetched;
}

/* The products of some rows and outputs, plus the bias of these outputs. */
INLINE void sum_floats(const Matrix *m, const float *x, const float *bias, int o, int rows, int vectors, int fetched,
                       Floats sums[TALL][WIDE]) {
  const float *w = m->weight + place_of(o, m->in);
  const char *next = next_block(m->weight, sizeof(float), o, m->in, fetched);
  for (int r = 0; r < rows; r++)
    for (int j = 0; j < vectors; j++) sums[r][j] = (Floats){0};
  for (long i = 0; i < m->in; i++, w += BLOCK) {
    __builtin_prefetch(next + 4 * LANES * i, 0, 2);
    Floats some[WIDE];
    for (int j = 0; j < vectors; j++) some[j] = floats_at(w + j * LANES);
    for (int r = 0; r < rows; r++)
      for (int j = 0; j < vectors; j++) sums[r][j] += x[(long)r * m->in + i] * some[j];
  }
  for (int r = 0; r < rows; r++)
    for (int j = 0; j < vectors; j++) sums[r][j] += floats_at(bias + j * LANES);
}

/* The same with integers. Each part of a row is multiplied like a row; then the parts are added up. */
INLINE void sum_ints(const Matrix *m, const int32_t *x, const float *scales, const float *bias, int o, int rows, int parts,
                     int vectors, int fetched, Floats sums[TALL][WIDE]) {
  long groups = groups_of(m->in);
  const int8_t *w = m->numbers + GROUP * place_of(o, groups);
  const char *next = next_block(m->numbers, GROUP, o, groups, fetched);
  Ints exact[TALL][WIDE];
  for (int r = 0; r < rows * parts; r++)
    for (int j = 0; j < vectors; j++)
      exact[r][j] = ZERO && r % parts == 0 ? ints_at(m->sums + o + j * LANES) : (Ints){0};
  for (long i = 0; i < groups; i++, w += GROUP * BLOCK) {
    __builtin_prefetch(next + 4 * LANES * i, 0, 2);
    Ints some[WIDE];
    for (int j = 0; j < vectors; j++) some[j] = weights_at(w + GROUP * j * LANES);
    for (int r = 0; r < rows * parts; r++)
      for (int j = 0; j < vectors; j++) exact[r][j] = add_products(exact[r][j], x[r * groups + i], some[j]);
  }
  for (int r = 0; r < rows; r++)
    for (int j = 0; j < vectors; j++) {
      Floats sum = __builtin_convertvector(exact[r * parts][j], Floats);
      for (int part = 1; part < parts; part++)
        sum = sum * 256.0f + __builtin_convertvector(exact[r * parts + part][j], Floats);
      sums[r][j] = scale_sums(m, sum, scales[r], o + j * LANES, bias + j * LANES);
    }
}

/* Compute `rows` rows from row r and the outputs of some vectors from o. Inlined, so that the numbers of rows, parts and
   vectors are constants for the compiler, and the sums stay in registers. */
INLINE void tile(const Matrix *m, const float *x, Quantized quantized, float *y, int o, int r, int rows, int parts,
                 int vectors, int fetched) {
  Floats sums[TALL][WIDE];
  int count = least(vectors * LANES, m->out - o);
  float bias[BLOCK] = {0};
  if (m->bias) memcpy(bias, m->bias + o, count * sizeof(float));
  if (parts) {
    const int32_t *groups = quantized.groups + r * parts * groups_of(m->in);
    sum_ints(m, groups, quantized.scales + r, bias, o, rows, parts, vectors, fetched, sums);
  } else {
    sum_floats(m, x + (size_t)r * m->in, bias, o, rows, vectors, fetched, sums);
  }
  for (int i = 0; i < rows; i++) {
    float *to = y + (size_t)(r + i) * m->out + o;
    if (count == vectors * LANES)
      for (int j = 0; j < vectors; j++) memcpy(to + j * LANES, &sums[i][j], sizeof(Floats));
    else
      memcpy(to, sums[i], count * sizeof(float));
  }
}

#define TILE_OF(rows, parts, vectors) \
  case 16 * parts + rows: tile(m, x, quantized, y, o, r, rows, parts, vectors, fetched); break

/* Tiles of a whole block of outputs and up to TILE rows, or parts of rows. */
INLINE void wide_tile(const Matrix *m, const float *x, Quantized quantized, float *y, int o, int r, int rows, int fetched) {
  switch (16 * m->parts + rows) {
    TILE_OF(1, 0, WIDE); TILE_OF(2, 0, WIDE); TILE_OF(3, 0, WIDE); TILE_OF(4, 0, WIDE); TILE_OF(5, 0, WIDE); TILE_OF(6, 0, WIDE);
    TILE_OF(1, 1, WIDE); TILE_OF(2, 1, WIDE); TILE_OF(3, 1, WIDE); TILE_OF(4, 1, WIDE); TILE_OF(5, 1, WIDE); TILE_OF(6, 1, WIDE);
#if !defined(PAIRS_OF_INTEGERS)
    TILE_OF(1, 3, WIDE); TILE_OF(2, 3, WIDE);
#endif
  }
}

/* Tiles of integers with 6 to 12 rows, or parts of rows, and half a block: each weight that is read serves twice as many
   rows. Half blocks of floats would meet in the same sets of the cache, and be slower. */
INLINE void tall_tile(const Matrix *m, const float *x, Quantized quantized, float *y, int o, int r, int rows, int fetched) {
  switch (16 * m->parts + rows) {
    TILE_OF(6, 1, NARROW); TILE_OF(7, 1, NARROW); TILE_OF(8, 1, NARROW); TILE_OF(9, 1, NARROW); TILE_OF(10, 1, NARROW);
    TILE_OF(11, 1, NARROW); TILE_OF(12, 1, NARROW);
#if !defined(PAIRS_OF_INTEGERS)
    TILE_OF(2, 3, NARROW); TILE_OF(3, 3, NARROW); TILE_OF(4, 3, NARROW);
#endif
  }
}

/* y (rows, out) = x (rows, in), of which `quantized` has the integers, times the matrix, plus its bias. Tiles are about
   equally high: 4 and 4 rows, not 6 and 2. All tiles of some outputs follow each other, with their weights in the cache. */
__attribute__((noinline)) static void multiply_tiles(const Matrix *m, const float *x, float *y, Quantized quantized, int rows,
                                                     Thread t) {
  if (m->bits) {
    multiply_groups(m, (RowGroup *)quantized.groups, y, rows, t);
    return;
  }
  if (suits_amx(m, rows)) {
    multiply_by_amx(m, y, quantized, rows, t);
    return;
  }
  int parts = m->parts ? m->parts : 1, is_tall = HAS_TALL && m->parts && rows * parts > TILE;
  int height = (is_tall ? TALL : TILE) / parts, width = LANES * (is_tall ? NARROW : WIDE);
  int down = (rows + height - 1) / height, across = (m->out + width - 1) / width;
  int first = share(down * across, t, 0), last = share(down * across, t, 1);
  int base = rows / down, higher = rows % down;  /* so many tiles have base + 1 rows */
  int o = first / down * width, d = first % down, r = d * base + least(d, higher);
  for (int i = first; i < last; i++) {
    int count = base + (d < higher);
    if (is_tall) tall_tile(m, x, quantized, y, o, r, count, i % WIDE);
    else wide_tile(m, x, quantized, y, o, r, count, d % WIDE);
    r += count;
    if (++d == down) d = r = 0, o += width;
  }
  meet(t);
}

/* Round the rows x to integers as the matrix multiplies them; nothing for a matrix of floats. */
static void quantize(const Matrix *m, const float *x, Quantized to, int rows, Thread t) {
  if (m->parts) quantize_rows(m, x, to, rows, t);
  if (m->bits) quantize_groups(m, x, (RowGroup *)to.groups, rows, t);
}

static void product(const Matrix *m, const float *x, float *y, Quantized quantized, int rows, Thread t) {
  quantize(m, x, quantized, rows, t);
  multiply_tiles(m, x, y, quantized, rows, t);
}

#endif
