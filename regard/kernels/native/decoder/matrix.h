/* A matrix (out, in) in the order in which it is read (decoding/cpu/c_matrix.py), and the integers of the rows that it is
   multiplied by: for each input, or group of inputs, the weights of a block of outputs are adjacent.

   Where the weights are integers of 8 bits, the rows are rounded to integers too. An int8 model rounds them to 8 bits. A
   float32 model whose weights are integers times scales, as in a folder that stores int8, rounds them to 24 bits, as many
   as a float32 number has: three parts of 8 bits, most significant first.
*/
#ifndef REGARD_MATRIX
#define REGARD_MATRIX
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "../common.h"
#include "../threads.h"

enum { BLOCK = LANES * WIDE, STRIP = 8 * LANES };

#if (defined(__AVX512VNNI__) && defined(__AVX512F__)) || defined(__AVXVNNI__) || !defined(__AVX2__)
enum { GROUP = 4, ZERO = 128, MAX_PARTS = 3 };  /* four numbers from 1 to 255, of which 128 stands for 0 */
typedef uint8_t Number;
#else
#define PAIRS_OF_INTEGERS
enum { GROUP = 2, ZERO = 0, MAX_PARTS = 1 };  /* two numbers of 16 bits */
typedef int16_t Number;
#endif

typedef struct {  /* float32 numbers, int8 numbers with a scale for each row, or integers in groups (group_product.h) */
  const float *weight;    /* (blocks, in, BLOCK) */
  const int8_t *numbers;  /* (blocks, in / GROUP, BLOCK, GROUP) */
  const float *scales;    /* (out), padded to strips, as are the sums of each row of numbers, times -ZERO */
  const int32_t *sums;
  const float *bias;      /* (out), or NULL */
  const void *by_input;   /* NULL, or float (in, out), or int8 (in / GROUP, out, GROUP); out padded to strips */
  const uint8_t *grouped; /* (blocks, in / ROW_GROUP, group_bytes) */
  int out, in;
  int parts;              /* of 8 bits, of the integers that x is rounded to: 1 or 3; 0 if the weights are not int8 */
  int bits;               /* of integers in groups: 4 or 8; 0 if the weights are others */
} Matrix;

enum { ROW_GROUP = 32 };  /* inputs that have a scale of their own, where integers are in groups */
typedef struct { float scale, total; int32_t numbers[ROW_GROUP / 4]; } RowGroup;  /* total: scale times the sum of numbers */

/* Either (rows) and (rows, parts, in / GROUP), or `groups` alone, which are then RowGroups (rows, in / ROW_GROUP). */
typedef struct { float *scales; int32_t *groups; } Quantized;

static inline long groups_of(int in) { return (in + GROUP - 1) / GROUP; }
static inline long row_groups_of(int in) { return (in + ROW_GROUP - 1) / ROW_GROUP; }

/* Bytes of a block of outputs and a group of inputs: scales and minima of 16 bits, and the integers. */
static inline long group_bytes(int bits) { return (4 + ROW_GROUP * bits / 8) * BLOCK; }

/* Numbers of 4 bytes in the integers and the scales of a row, of any kind. */
static inline long quantized_size(int in) {
  long in_parts = 1 + MAX_PARTS * groups_of(in), in_groups = 1 + row_groups_of(in) * (long)(sizeof(RowGroup) / 4);
  return in_parts > in_groups ? in_parts : in_groups;
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

/* numbers (parts, in) = x · times, rounded, in parts of 8 bits. The first part is signed: ZERO is added to it. */
static inline void round_row(const float *x, float times, Number *numbers, int in, int parts) {
  long padded = GROUP * groups_of(in);
  int i = 0;
#if defined(__AVX512VNNI__) && defined(__AVX512F__)
  for (; i + LANES <= in; i += LANES) {
    Ints rounded = (Ints)_mm512_cvtps_epi32((__m512)(floats_at(x + i) * times));
    for (int part = 0; part < parts; part++) {
      Ints shifted = (rounded >> 8 * (parts - 1 - part)) + (part ? 0 : ZERO);
      _mm_storeu_si128((__m128i *)(numbers + part * padded + i), _mm512_cvtepi32_epi8((__m512i)shifted));
    }
  }
#endif
  for (; i < in; i++) {
    int rounded = (int)rintf(x[i] * times);
    for (int part = 0; part < parts; part++)
      numbers[part * padded + i] = (Number)((rounded >> 8 * (parts - 1 - part)) + (part ? 0 : ZERO));
  }
  for (; i < padded; i++)
    for (int part = 0; part < parts; part++) numbers[part * padded + i] = 0;
}

/* The integer that stands for the largest number of a row. For three parts it leaves room for the rounding of x · times. */
static inline float largest_integer(int parts) { return parts == 1 ? 127.0f : 8388604.0f; }

/* Quantize the rows x to integers as the matrix multiplies them. A row with NaN or infinity has no such integers: its
   scale is NaN, and so are all its products.
   Not inlined: GCC would then optimize the float products of the same file less, to half their speed. */
__attribute__((noinline)) static void quantize_rows(const Matrix *m, const float *x, Quantized to, int rows, Thread t) {
  float limit = largest_integer(m->parts);
  for (int r = share(rows, t, 0); r < share(rows, t, 1); r++) {
    const float *row = x + (size_t)r * m->in;
    int32_t *groups = to.groups + r * m->parts * groups_of(m->in);
    float top = largest(row, m->in), magnitude = top > 1e-30f || top != top ? top : 1e-30f;
    if (top >= 0) round_row(row, limit / magnitude, (Number *)groups, m->in, m->parts);
    else memset(groups, 0, m->parts * groups_of(m->in) * sizeof *groups);
    to.scales[r] = magnitude / limit;
  }
  meet(t);
}

/* The weights of outputs o, o + 1, … for the first group of inputs; those for the next group are BLOCK groups later. */
static inline size_t place_of(int o, long groups) { return (size_t)(o / BLOCK) * BLOCK * groups + o % BLOCK; }

/* The products of a row with LANES outputs from o: their exact sums times the scales, plus the bias. */
INLINE Floats scale_sums(const Matrix *m, Floats sums, float row_scale, int o, const float *bias) {
  return sums * in_this_order(row_scale * floats_at(m->scales + o)) + floats_at(bias);
}

/* The matrix of `count` outputs from o, which is the first one of a block. */
static Matrix some_outputs(const Matrix *m, int o, int count) {
  Matrix part = *m;
  part.out = count;
  if (m->weight) part.weight += (size_t)o * m->in;
  if (m->numbers) part.numbers += (size_t)o * GROUP * groups_of(m->in), part.scales += o, part.sums += o;
  if (m->grouped) part.grouped += (size_t)(o / BLOCK) * row_groups_of(m->in) * group_bytes(m->bits);
  if (m->bias) part.bias += o;
  part.by_input = NULL;
  return part;
}

#endif
