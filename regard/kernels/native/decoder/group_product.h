/* x (rows, in) times a matrix of integers in groups: 32 inputs of an output have a scale s and a minimum m of their own,
   and so have 32 inputs of a row their scale t.

       w_oi = s_og u_oi + m_og        u of 4 bits (0 to 15) or 8 bits (0 to 255), s and m of 16 bits
       x_ri = t_rg q_ri               q of 8 bits (-127 to 127)
       y_ro = Σ_g t_rg s_og (Σ_{i in g} q_ri u_oi) + (t_rg Σ_{i in g} q_ri) m_og

   A language model has a few features that are a hundred times larger than the others. With one scale for a whole row they
   would round the others away; here they spoil only their own group.

   One stream of text reads every weight once for a token, and waits for memory: 4 bits, with the scale and the minimum 5,
   are an eighth to a sixth of a float's. The numbers of a block of outputs are one stream in memory: for each group its
   scales, its minima, then the integers, four inputs after four. Every tile sums over the groups in the same order, so the
   result of a row has the same bits beside any other rows.
*/
#ifndef REGARD_GROUP_PRODUCT
#define REGARD_GROUP_PRODUCT
#include "matrix.h"

enum { GROUP_TILE = WIDE == 4 ? 6 : 2, WIDE_GROUP_TILE = WIDE == 4 ? 3 : 2 };  /* rows; rows with all vectors of a block */
enum { HALF_BLOCK = WIDE == 4 ? 2 : WIDE };  /* vectors of tiles with more rows than WIDE_GROUP_TILE */

/* Numbers of 16 bits as floats: a half has 5 bits of exponent, which 2^112 shifts to those of a float. */
INLINE Floats halves_at(const uint16_t *x) {
#if defined(__AVX512VNNI__) && defined(__AVX512F__)
  return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)x));
#elif defined(__F16C__) && defined(__AVX__)
  return (Floats)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)x));
#else
  Ints bits;
  for (int i = 0; i < LANES; i++) bits[i] = x[i];
  Floats magnitudes = (Floats)((bits & 0x7fff) << 13) * 0x1p112f;
  return (Floats)((Ints)magnitudes | (bits & 0x8000) << 16);
#endif
}

/* Add to each sum the products of four unsigned weights with four signed inputs; exact on every CPU. */
INLINE Ints add_four(Ints sums, Ints weights, int32_t four, int bits) {
  Ints x = four - (Ints){0};
#if defined(__AVX512VNNI__) && defined(__AVX512F__)
  return (Ints)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)weights, (__m512i)x);
#elif defined(__AVXVNNI__)
  return (Ints)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)weights, (__m256i)x);
#elif defined(__AVX2__)
  __m256i w = (__m256i)weights, q = (__m256i)x;
  if (bits == 4)  /* pairs of products have 13 bits */
    return sums + (Ints)_mm256_madd_epi16(_mm256_maddubs_epi16(w, q), _mm256_set1_epi16(1));
  __m256i even = _mm256_madd_epi16(_mm256_and_si256(w, _mm256_set1_epi16(255)), _mm256_srai_epi16(_mm256_slli_epi16(q, 8), 8));
  __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(w, 8), _mm256_srai_epi16(q, 8));
  return sums + (Ints)even + (Ints)odd;
#else
  uint8_t a[4 * LANES];
  int8_t b[4 * LANES];
  memcpy(a, &weights, sizeof a), memcpy(b, &x, sizeof b);
  for (int i = 0; i < 4 * LANES; i++) sums[i / 4] += a[i] * b[i];
  return sums;
#endif
}

/* Round the rows x to integers in groups. A group with NaN or infinity has no such integers: its scale is NaN, and so are
   all products of its row. */
__attribute__((noinline)) static void quantize_groups(const Matrix *m, const float *x, RowGroup *to, int rows, Thread t) {
  long groups = row_groups_of(m->in);
  for (int r = share(rows, t, 0); r < share(rows, t, 1); r++)
    for (long g = 0; g < groups; g++) {
      RowGroup *group = to + r * groups + g;
      float numbers[ROW_GROUP] = {0};
      int8_t *rounded = (int8_t *)group->numbers;
      memcpy(numbers, x + (size_t)r * m->in + g * ROW_GROUP, least(ROW_GROUP, m->in - g * ROW_GROUP) * sizeof(float));
      float top = largest(numbers, ROW_GROUP), magnitude = top > 1e-30f || top != top ? top : 1e-30f;
      float times = top >= 0 ? 127.0f / magnitude : 0;
      int total = 0;
      for (int i = 0; i < ROW_GROUP; i++) {
        int integer = (int)rintf((top >= 0 ? numbers[i] : 0) * times);
        rounded[i] = (int8_t)integer, total += integer;
      }
      group->scale = magnitude / 127.0f, group->total = group->scale * total;
    }
  meet(t);
}

/* The products of `rows` rows from row r, and of some vectors of outputs from o. Inlined, so that rows, vectors and bits
   are constants for the compiler, and the sums stay in registers. With `fetch`, it fetches the next block into the cache. */
INLINE void group_tile(const Matrix *m, const RowGroup *x, float *y, int o, int r, int rows, int vectors, int bits, int fetch) {
  long groups = row_groups_of(m->in), size = group_bytes(bits), first = o % BLOCK;
  const uint8_t *group = m->grouped + (size_t)(o / BLOCK) * groups * size;
  Floats sums[GROUP_TILE][WIDE];
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < vectors; j++) sums[i][j] = (Floats){0};
  x += r * groups;
  for (long g = 0; g < groups; g++, group += size) {
    const uint16_t *scales = (const uint16_t *)group + first, *minima = scales + BLOCK;
    const uint8_t *numbers = group + 4 * BLOCK + 4 * first;
    for (long line = 0; fetch && line < size; line += LINE) __builtin_prefetch(group + groups * size + line, 0, 2);
    Ints exact[GROUP_TILE][WIDE];
    for (int i = 0; i < rows; i++)
      for (int j = 0; j < vectors; j++) exact[i][j] = (Ints){0};
    for (int k = 0; k < bits; k++)
      for (int j = 0; j < vectors; j++) {
        Ints some = ints_at(numbers + 4 * (k * BLOCK + j * LANES)), low = bits == 4 ? some & 0x0f0f0f0f : some;
        Ints high = some >> 4 & 0x0f0f0f0f;  /* of 4 bits: the next inputs of the same outputs, four fours later */
        for (int i = 0; i < rows; i++) {
          const int32_t *fours = x[i * groups + g].numbers;
          exact[i][j] = add_four(exact[i][j], low, fours[k], bits);
          if (bits == 4) exact[i][j] = add_four(exact[i][j], high, fours[k + 4], bits);
        }
      }
    for (int j = 0; j < vectors; j++) {
      Floats s = halves_at(scales + j * LANES), minimum = halves_at(minima + j * LANES);
      for (int i = 0; i < rows; i++) {
        const RowGroup *row = x + i * groups + g;
        Floats both = in_this_order(s * row->scale);
        sums[i][j] = in_this_order(sums[i][j] + __builtin_convertvector(exact[i][j], Floats) * both);
        sums[i][j] = in_this_order(sums[i][j] + minimum * row->total);
      }
    }
  }
  int count = least(vectors * LANES, m->out - o);
  float bias[BLOCK] = {0};
  if (m->bias) memcpy(bias, m->bias + o, count * sizeof(float));
  for (int i = 0; i < rows; i++) {
    for (int j = 0; j < vectors; j++) sums[i][j] += floats_at(bias + j * LANES);
    memcpy(y + (size_t)(r + i) * m->out + o, sums[i], count * sizeof(float));
  }
}

#define GROUP_TILE_OF(rows, vectors) \
  case 16 * vectors + 2 * rows: group_tile(m, x, y, o, r, rows, vectors, 4, fetch); break; \
  case 16 * vectors + 2 * rows + 1: group_tile(m, x, y, o, r, rows, vectors, 8, fetch); break

INLINE void any_group_tile(const Matrix *m, const RowGroup *x, float *y, int o, int r, int rows, int vectors, int fetch) {
  switch (16 * vectors + 2 * rows + (m->bits == 8)) {
    GROUP_TILE_OF(1, WIDE); GROUP_TILE_OF(2, WIDE);
#if defined(__AVX512VNNI__) && defined(__AVX512F__)
    GROUP_TILE_OF(3, WIDE);
    GROUP_TILE_OF(3, HALF_BLOCK); GROUP_TILE_OF(4, HALF_BLOCK); GROUP_TILE_OF(5, HALF_BLOCK); GROUP_TILE_OF(6, HALF_BLOCK);
#endif
  }
}

/* y (rows, out) = the rows in groups times the matrix, plus its bias. Tiles are about equally high, and all tiles of some
   outputs follow each other, with their weights in the cache. */
__attribute__((noinline)) static void multiply_groups(const Matrix *m, const RowGroup *x, float *y, int rows, Thread t) {
  int down = (rows + GROUP_TILE - 1) / GROUP_TILE, base = rows / down, higher = rows % down;
  int vectors = rows > WIDE_GROUP_TILE ? HALF_BLOCK : WIDE, width = LANES * vectors, across = (m->out + width - 1) / width;
  for (int i = share(across, t, 0); i < share(across, t, 1); i++)
    for (int d = 0, r = 0; d < down; r += base + (d < higher), d++)
      any_group_tile(m, x, y, i * width, r, base + (d < higher), vectors, d == 0 && i * width % BLOCK == 0);
  meet(t);
}

#endif
