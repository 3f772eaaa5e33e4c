/* x (rows, in) times a matrix (out, in) that is stored in the order in which it is read (decoding/cpu/c_matrix.py).

   The result is computed in tiles of up to TILE rows and BLOCK outputs, whose sums stay in registers: for each input,
   the weights of a block are adjacent. Integers come in groups of inputs, which CPUs multiply and add at once. Every
   tile sums over the inputs in the same order, so the result of a row has the same bits beside any other rows.

   Where the weights are integers, so are the rows of x: of 8 bits for int8 models, or of 16 bits, for weights in float32
   that are integers times a scale. Two of 16 bits are multiplied and added at once, and with their weights they need half
   the time of floats; they are a hundred times as precise as those of 8 bits.

   Many rows of integers take tiles of twice the height and half the width, if the CPU has 32 registers. Each tile fetches
   a part of the next block into the cache: the weights of a small model come from the last level of the cache at every
   step, and the arithmetic would wait for them.
*/
#ifndef REGARD_PRODUCT
#define REGARD_PRODUCT
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "common.h"
#include "threads.h"

enum { TILE = 6, BLOCK = LANES * WIDE, STRIP = 8 * LANES };
enum { HAS_TALL = WIDE == 4, TALL = HAS_TALL ? 12 : 6, NARROW = HAS_TALL ? 2 : WIDE };  /* TALL rows, NARROW vectors */

#if (defined(__AVX512VNNI__) && defined(__AVX512F__)) || defined(__AVXVNNI__) || !defined(__AVX2__)
enum { GROUP = 4, ZERO = 128 };  /* four numbers from 1 to 255, of which 128 stands for 0 */
typedef uint8_t Number;
#else
#define PAIRS_OF_INTEGERS
enum { GROUP = 2, ZERO = 0 };  /* two numbers of 16 bits */
typedef int16_t Number;
#endif

enum { PAIR = 2, MAX_INT8 = 127 };

typedef struct {  /* float32 numbers, or int8 numbers with a scale for each row */
  const float *weight;    /* (blocks, in, BLOCK) */
  const int8_t *numbers;  /* (blocks, in / group, BLOCK, group) */
  const float *scales;    /* (out), padded to strips, as are the sums of each row of numbers, times -ZERO */
  const int32_t *sums;
  const float *bias;      /* (out), or NULL */
  const void *by_input;   /* NULL, or float (in, out), or int8 (in / group, out, group); out padded to strips */
  int out, in;
  int limit;              /* the largest integer in a row of x: MAX_INT8, or more, so that no sum exceeds 32 bits */
} Matrix;

typedef struct { float *scales; int32_t *groups; } Quantized;  /* (rows) and (rows, in / group) */

/* Inputs whose integers are multiplied and added at once. */
static inline int group_of(const Matrix *m) { return m->limit > MAX_INT8 ? PAIR : GROUP; }
static inline long groups_of(const Matrix *m) { return (m->in + group_of(m) - 1) / group_of(m); }

/* The weights of a pair of inputs and LANES outputs, as integers of 16 bits. */
static inline Ints pairs_at(const int8_t *w) {
#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
  return (Ints)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)w));
#elif defined(__AVX2__)
  return (Ints)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)w));
#else
  int16_t numbers[2 * LANES];
  for (int i = 0; i < 2 * LANES; i++) numbers[i] = w[i];
  return ints_at(numbers);
#endif
}

/* Add to each sum the products of two inputs of 16 bits and their weights. */
static inline Ints add_pairs(Ints sums, int32_t pair, Ints w) {
  Ints x = pair - (Ints){0};
#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
  return (Ints)_mm512_dpwssd_epi32((__m512i)sums, (__m512i)x, (__m512i)w);
#elif defined(__AVXVNNI__)
  return (Ints)_mm256_dpwssd_avx_epi32((__m256i)sums, (__m256i)x, (__m256i)w);
#elif defined(__AVX2__)
  return sums + (Ints)_mm256_madd_epi16((__m256i)x, (__m256i)w);
#else
  int16_t a[2 * LANES], b[2 * LANES];
  memcpy(a, &x, sizeof a), memcpy(b, &w, sizeof b);
  for (int i = 0; i < 2 * LANES; i++) sums[i / 2] += a[i] * b[i];
  return sums;
#endif
}

/* The weights of a group of inputs and LANES outputs. */
static inline Ints weights_at(const int8_t *w, int group) { return group == PAIR ? pairs_at(w) : ints_at(w); }

/* Add to each sum the products of a group of inputs and their weights; exact on every CPU. */
INLINE Ints add_products(Ints sums, int32_t inputs, Ints w, int group) {
  if (group == PAIR) return add_pairs(sums, inputs, w);
  Ints x = inputs - (Ints){0};
#if defined(__AVX512VNNI__) && defined(__AVX512F__)
  return (Ints)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)x, (__m512i)w);
#elif defined(__AVXVNNI__)
  return (Ints)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)x, (__m256i)w);
#else
  uint8_t a[4 * LANES];
  int8_t b[4 * LANES];
  memcpy(a, &x, sizeof a), memcpy(b, &w, sizeof b);
  for (int i = 0; i < 4 * LANES; i++) sums[i / 4] += a[i] * b[i];
  return sums;
#endif
}

typedef int32_t __attribute__((may_alias)) Bits;  /* of other types */

/* The largest magnitude of a row; NaN if the row has NaN or infinity. The bits of magnitudes have the same order as the
   magnitudes, and those of infinity and NaN are the largest. */
static inline float largest(const float *x, int count) {
  const Bits *bits = (const Bits *)x;
  int32_t top = 0;
  for (int i = 0; i < count; i++) top = (bits[i] & 0x7fffffff) > top ? bits[i] & 0x7fffffff : top;
  float magnitude;
  memcpy(&magnitude, &top, sizeof magnitude);
  return magnitude <= FLT_MAX ? magnitude : NAN;
}

/* numbers (in) = x · times, rounded, plus ZERO. */
static inline void round_row(const float *x, float times, Number *numbers, int in) {
  int i = 0;
#if defined(__AVX512VNNI__) && defined(__AVX512F__)
  for (; i + LANES <= in; i += LANES) {
    Ints rounded = (Ints)_mm512_cvtps_epi32((__m512)(floats_at(x + i) * times)) + ZERO;
    _mm_storeu_si128((__m128i *)(numbers + i), _mm512_cvtepi32_epi8((__m512i)rounded));
  }
#endif
  for (; i < in; i++) numbers[i] = (Number)((int)rintf(x[i] * times) + ZERO);
}

static inline void round_pairs(const float *x, float times, int16_t *numbers, int in) {
  for (int i = 0; i < in; i++) numbers[i] = (int16_t)(int)rintf(x[i] * times);
  if (in % PAIR) numbers[in] = 0;
}

/* Quantize the rows to integers, with a scale that makes the largest one the matrix's limit. A row with NaN or infinity
   has no such integers: its scale is NaN, and so are all its products.
   Not inlined: GCC would then optimize the float products of the same file less, to half their speed. */
__attribute__((noinline)) static void quantize_rows(const Matrix *m, const float *x, Quantized to, int rows, Thread t) {
  int in = m->in, is_paired = group_of(m) == PAIR;
  long groups = groups_of(m);
  for (int r = share(rows, t, 0); r < share(rows, t, 1); r++) {
    const float *row = x + (size_t)r * in;
    int32_t *numbers = to.groups + r * groups;
    float top = largest(row, in), magnitude = top > 1e-30f || top != top ? top : 1e-30f, times = m->limit / magnitude;
    if (top != top) {
      memset(numbers, 0, groups * sizeof *numbers);
    } else if (is_paired) {
      round_pairs(row, times, (int16_t *)numbers, in);
    } else {
      round_row(row, times, (Number *)numbers, in);
      for (int i = in; i < GROUP * groups; i++) ((Number *)numbers)[i] = 0;
    }
    to.scales[r] = magnitude / m->limit;
  }
  meet(t);
}

/* The weights of outputs o, o + 1, … for the first group of inputs; those for the next group are BLOCK groups later. */
static inline size_t place_of(int o, long groups) { return (size_t)(o / BLOCK) * BLOCK * groups + o % BLOCK; }

/* While a tile is computed, fetch a part of the next block into the cache: as many lines as there are groups of inputs.
   The WIDE parts are the whole block. */
static inline const char *next_block(const void *weights, int size, int o, long groups, int part) {
  return (const char *)weights + (size_t)size * place_of(o / BLOCK * BLOCK + BLOCK, groups) + 4 * LANES * groups * part;
}

INLINE void sum_floats(const Matrix *m, const float *x, int o, int rows, int vectors, int part, Floats sums[TALL][WIDE]) {
  const float *w = m->weight + place_of(o, m->in);
  const char *next = next_block(m->weight, sizeof(float), o, m->in, part);
  for (int r = 0; r < rows; r++)
    for (int j = 0; j < vectors; j++) sums[r][j] = (Floats){0};
  for (long i = 0; i < m->in; i++, w += BLOCK) {
    __builtin_prefetch(next + 4 * LANES * i, 0, 2);
    Floats some[WIDE];
    for (int j = 0; j < vectors; j++) some[j] = floats_at(w + j * LANES);
    for (int r = 0; r < rows; r++)
      for (int j = 0; j < vectors; j++) sums[r][j] += x[(long)r * m->in + i] * some[j];
  }
}

INLINE void sum_ints(const Matrix *m, const int32_t *x, const float *scales, int o, int rows, int vectors, int part,
                     int group, Floats sums[TALL][WIDE]) {
  long groups = (m->in + group - 1) / group;
  const int8_t *w = m->numbers + group * place_of(o, groups);
  const char *next = next_block(m->numbers, group, o, groups, part);
  Ints exact[TALL][WIDE];
  for (int r = 0; r < rows; r++)
    for (int j = 0; j < vectors; j++) exact[r][j] = group != PAIR ? ints_at(m->sums + o + j * LANES) : (Ints){0};
  for (long i = 0; i < groups; i++, w += group * BLOCK) {
    __builtin_prefetch(next + 4 * LANES * i, 0, 2);
    Ints some[WIDE];
    for (int j = 0; j < vectors; j++) some[j] = weights_at(w + group * j * LANES, group);
    for (int r = 0; r < rows; r++)
      for (int j = 0; j < vectors; j++) exact[r][j] = add_products(exact[r][j], x[r * groups + i], some[j], group);
  }
  for (int r = 0; r < rows; r++)
    for (int j = 0; j < vectors; j++)
      sums[r][j] = __builtin_convertvector(exact[r][j], Floats) * (scales[r] * floats_at(m->scales + o + j * LANES));
}

/* Compute `rows` rows from row r and the outputs of some vectors from o. Inlined, so that both numbers are constants for
   the compiler, and the sums stay in registers. */
INLINE void tile(const Matrix *m, const float *x, Quantized quantized, float *y, int o, int r, int rows, int vectors,
                 int part) {
  Floats sums[TALL][WIDE];
  const int32_t *groups = quantized.groups + r * groups_of(m);
  if (GROUP != PAIR && m->numbers && m->limit == MAX_INT8)
    sum_ints(m, groups, quantized.scales + r, o, rows, vectors, part, GROUP, sums);
  else if (vectors < WIDE || m->numbers)  /* only integers have narrow tiles */
    sum_ints(m, groups, quantized.scales + r, o, rows, vectors, part, PAIR, sums);
  else
    sum_floats(m, x + (size_t)r * m->in, o, rows, vectors, part, sums);
  int count = least(vectors * LANES, m->out - o);
  float bias[BLOCK] = {0};
  if (m->bias) memcpy(bias, m->bias + o, count * sizeof(float));
  for (int i = 0; i < rows; i++) {
    float *to = y + (size_t)(r + i) * m->out + o;
    for (int j = 0; m->bias && j < vectors; j++) sums[i][j] += floats_at(bias + j * LANES);
    if (count == vectors * LANES)
      for (int j = 0; j < vectors; j++) memcpy(to + j * LANES, &sums[i][j], sizeof(Floats));
    else
      memcpy(to, sums[i], count * sizeof(float));
  }
}

/* Tiles of up to TILE rows and a whole block of outputs. */
INLINE void wide_tile(const Matrix *m, const float *x, Quantized quantized, float *y, int o, int r, int rows, int part) {
  switch (rows) {
    case 1: tile(m, x, quantized, y, o, r, 1, WIDE, part); break;
    case 2: tile(m, x, quantized, y, o, r, 2, WIDE, part); break;
    case 3: tile(m, x, quantized, y, o, r, 3, WIDE, part); break;
    case 4: tile(m, x, quantized, y, o, r, 4, WIDE, part); break;
    case 5: tile(m, x, quantized, y, o, r, 5, WIDE, part); break;
    default: tile(m, x, quantized, y, o, r, 6, WIDE, part);
  }
}

/* Tiles of integers with 6 to 12 rows and half a block: each weight that is read serves twice as many rows. Half blocks
   of floats would meet in the same sets of the cache, and be slower. */
INLINE void tall_tile(const Matrix *m, const float *x, Quantized quantized, float *y, int o, int r, int rows, int part) {
  switch (rows) {
    case 6: tile(m, x, quantized, y, o, r, 6, NARROW, part); break;
    case 7: tile(m, x, quantized, y, o, r, 7, NARROW, part); break;
    case 8: tile(m, x, quantized, y, o, r, 8, NARROW, part); break;
    case 9: tile(m, x, quantized, y, o, r, 9, NARROW, part); break;
    case 10: tile(m, x, quantized, y, o, r, 10, NARROW, part); break;
    case 11: tile(m, x, quantized, y, o, r, 11, NARROW, part); break;
    default: tile(m, x, quantized, y, o, r, 12, NARROW, part);
  }
}

/* y (rows, out) = x (rows, in), of which `quantized` has the integers, times the matrix, plus its bias. Tiles are about
   equally high: 4 and 4 rows, not 6 and 2. All tiles of some outputs follow each other, with their weights in the cache. */
__attribute__((noinline)) static void multiply_tiles(const Matrix *m, const float *x, float *y, Quantized quantized, int rows,
                                                     Thread t) {
  int is_tall = HAS_TALL && m->numbers && rows > TILE, height = is_tall ? TALL : TILE, width = LANES * (is_tall ? NARROW : WIDE);
  int down = (rows + height - 1) / height, across = (m->out + width - 1) / width;
  for (int i = share(down * across, t, 0); i < share(down * across, t, 1); i++) {
    int o = i / down * width, r = (long)(i % down) * rows / down, count = (long)(i % down + 1) * rows / down - r;
    if (is_tall) tall_tile(m, x, quantized, y, o, r, count, i % WIDE);
    else wide_tile(m, x, quantized, y, o, r, count, i % down % WIDE);
  }
  meet(t);
}

static void product(const Matrix *m, const float *x, float *y, Quantized quantized, int rows, Thread t) {
  if (m->numbers) quantize_rows(m, x, quantized, rows, t);
  multiply_tiles(m, x, y, quantized, rows, t);
}

/* The matrix of `count` outputs from o, which is the first one of a block. */
static Matrix some_outputs(const Matrix *m, int o, int count) {
  Matrix part = *m;
  part.out = count;
  if (m->weight) part.weight += (size_t)o * m->in;
  if (m->numbers) part.numbers += (size_t)o * group_of(m) * groups_of(m), part.scales += o, part.sums += o;
  if (m->bias) part.bias += o;
  part.by_input = NULL;
  return part;
}

#endif
