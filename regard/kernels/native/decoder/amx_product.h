/* Products of many rows of integers by AMX, the matrix unit of some Intel CPUs (Sapphire Rapids and later).

   A register of AMX, called tile, has 16 rows of 64 bytes. One instruction multiplies 16 rows of x, 64 inputs each, by the
   weights of these inputs and 16 outputs, and adds the products to 16 x 16 sums, all exact. The layout of matrix.h suits
   it as it is. The results have the same bits as those of product.h.
*/
#ifndef REGARD_AMX_PRODUCT
#define REGARD_AMX_PRODUCT
#include "matrix.h"

#if defined(__AMX_INT8__) && defined(__AVX512VNNI__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

enum { SIDE = 16, INPUTS = 64, PAIR = 2 * SIDE };  /* rows and outputs of a register; inputs; two registers side by side */
enum { ALLOW_REGISTERS = 0x1023, AMX_REGISTERS = 18 };  /* of Linux: ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
enum { UNKNOWN, ABSENT, PRESENT };

static atomic_int amx = UNKNOWN;

/* Whether this process may use AMX; Linux saves its large registers only for processes that ask for them. */
static int has_amx(void) {
  int state = atomic_load_explicit(&amx, memory_order_relaxed);
  if (state == UNKNOWN) {
    state = syscall(SYS_arch_prctl, ALLOW_REGISTERS, AMX_REGISTERS) ? ABSENT : PRESENT;
    atomic_store(&amx, state);
  }
  return state == PRESENT;
}

/* Rows of x in a register: each has as many rows of integers as it has parts. */
static inline int rows_of_a_register(const Matrix *m) { return SIDE / m->parts; }

/* Fewer rows would leave much of the registers empty; and there is no padding for inputs that do not fill them. */
static int suits_amx(const Matrix *m, int rows) {
  return m->parts && m->in % INPUTS == 0 && rows >= rows_of_a_register(m) && has_amx();
}

/* All eight registers get so many rows. */
static void configure_amx(int rows) {
  struct { uint8_t palette, start, reserved[14]; uint16_t bytes[16]; uint8_t rows[16]; } settings = {.palette = 1};
  for (int i = 0; i < 8; i++) settings.bytes[i] = 4 * SIDE, settings.rows[i] = i < 6 ? rows : SIDE;
  _tile_loadconfig(&settings);
}

/* y = the sums of one register's rows, from row r, and PAIR outputs from o, with their scales and the bias. */
INLINE void write_sums(const Matrix *m, const int32_t *exact, const float *scales, int o, int r, int parts, float *y) {
  int count = least(PAIR, m->out - o);
  float bias[PAIR] = {0};
  if (m->bias) memcpy(bias, m->bias + o, count * sizeof(float));
  for (int row = 0; row < SIDE / parts; row++) {
    Floats sums[2];
    for (int j = 0; j < 2; j++) {
      const int32_t *at = exact + row * parts * PAIR + j * LANES;
      Floats sum = __builtin_convertvector(ints_at(at) + ints_at(m->sums + o + j * LANES), Floats);
      for (int part = 1; part < parts; part++)
        sum = sum * 256.0f + __builtin_convertvector(ints_at(at + part * PAIR), Floats);
      sums[j] = scale_sums(m, sum, scales[r + row], o + j * LANES, bias + j * LANES);
    }
    memcpy(y + (size_t)(r + row) * m->out + o, sums, count * sizeof(float));
  }
}

/* Weights of the next block, which are fetched into the cache while this one is multiplied, so many lines at a time. */
typedef struct { const char *place; int lines; } Ahead;

INLINE void fetch(Ahead *ahead) {
  for (int i = 0; i < ahead->lines; i++, ahead->place += LINE) __builtin_prefetch(ahead->place, 0, 2);
}

/* The rows of two registers, from row r, times PAIR outputs from o. The last registers overlap others: some rows are
   computed twice, which is cheaper than registers of another height. */
INLINE void amx_tile(const Matrix *m, Quantized x, float *y, int o, int r, int rows, int parts, Ahead ahead) {
  int height = SIDE / parts, top = least(r, rows - height), bottom = least(r + height, rows - height);
  long groups = groups_of(m->in), row = groups * sizeof(int32_t), next = GROUP * BLOCK;
  const int32_t *above = x.groups + top * parts * groups, *below = x.groups + bottom * parts * groups;
  const int8_t *w = m->numbers + GROUP * place_of(o, groups);
  _Alignas(64) int32_t exact[2][SIDE * PAIR];
  _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);
  if (r + height < rows) {
    for (long i = 0; i < groups; i += SIDE, w += SIDE * next) {
      fetch(&ahead);
      _tile_loadd(4, above + i, row); _tile_loadd(5, below + i, row);
      _tile_loadd(6, w, next); _tile_loadd(7, w + GROUP * SIDE, next);
      _tile_dpbusd(0, 4, 6); _tile_dpbusd(1, 4, 7); _tile_dpbusd(2, 5, 6); _tile_dpbusd(3, 5, 7);
    }
    _tile_stored(2, exact[1], 4 * PAIR); _tile_stored(3, exact[1] + SIDE, 4 * PAIR);
    write_sums(m, exact[1], x.scales, o, bottom, parts, y);
  } else {
    for (long i = 0; i < groups; i += SIDE, w += SIDE * next) {
      fetch(&ahead);
      _tile_loadd(4, above + i, row); _tile_loadd(6, w, next); _tile_loadd(7, w + GROUP * SIDE, next);
      _tile_dpbusd(0, 4, 6); _tile_dpbusd(1, 4, 7);
    }
  }
  _tile_stored(0, exact[0], 4 * PAIR); _tile_stored(1, exact[0] + SIDE, 4 * PAIR);
  write_sums(m, exact[0], x.scales, o, top, parts, y);
}

/* As multiply_tiles of product.h; asks `suits_amx` before. */
__attribute__((noinline)) static void multiply_by_amx(const Matrix *m, float *y, Quantized x, int rows, Thread t) {
  int height = 2 * rows_of_a_register(m), down = (rows + height - 1) / height, across = (m->out + PAIR - 1) / PAIR;
  int tiles = BLOCK / PAIR * down, lines = (INPUTS * BLOCK / LINE + tiles - 1) / tiles;  /* of a block; of weights for each */
  configure_amx(rows_of_a_register(m) * m->parts);
  for (int i = share(down * across, t, 0); i < share(down * across, t, 1); i++) {
    int o = i / down * PAIR, r = i % down * height;
    size_t fetched = (size_t)(i % tiles) * lines * LINE * (m->in / INPUTS);
    Ahead ahead = {(const char *)m->numbers + (size_t)(o / BLOCK + 1) * BLOCK * m->in + fetched, lines};
    if (m->parts == 1) amx_tile(m, x, y, o, r, rows, 1, ahead);
    else amx_tile(m, x, y, o, r, rows, 3, ahead);
  }
  _tile_release();
  meet(t);
}

#else
static int suits_amx(const Matrix *m, int rows) { return (void)m, (void)rows, 0; }
static void multiply_by_amx(const Matrix *m, float *y, Quantized x, int rows, Thread t) { (void)m, (void)y, (void)x, (void)rows, (void)t; }
#endif

#endif
