/* Shared by the C files of this package: vectors of numbers. */
#ifndef REGARD_COMMON
#define REGARD_COMMON
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512VNNI__) && defined(__AVX512F__)
enum { LANES = 16, WIDE = 4 };  /* 32 registers: a product takes 24 for sums, 4 for weights */
#elif defined(__AVX__)
enum { LANES = 8, WIDE = 2 };  /* 16 registers: 12 for sums, 2 for weights */
#elif defined(__aarch64__)
enum { LANES = 4, WIDE = 4 };
#else
enum { LANES = 4, WIDE = 2 };
#endif

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
enum { LINE = 64 };  /* bytes of a line of the cache */
#define INLINE static inline __attribute__((always_inline))

static inline int least(int a, int b) { return a < b ? a : b; }
static inline Floats floats_at(const float *x) { Floats y; memcpy(&y, x, sizeof y); return y; }

/* The same numbers; the compiler may not reorder sums and products across this call. */
INLINE Floats in_this_order(Floats x) {
#if defined(__AVX512F__)
  __asm__("" : "+v"(x));
#elif defined(__x86_64__)
  __asm__("" : "+x"(x));
#elif defined(__aarch64__)
  __asm__("" : "+w"(x));
#endif
  return x;
}

static inline Ints ints_at(const void *x) { Ints y; memcpy(&y, x, sizeof y); return y; }
static inline int round_up(int count, int unit) { return (count + unit - 1) / unit * unit; }

/* New memory that begins with a line of the cache: a vector in two lines takes twice as long to read. NULL if there is none. */
static inline void *new_memory(size_t bytes) { return aligned_alloc(LINE, (bytes + LINE - 1) / LINE * LINE); }

INLINE float total_of(Floats x) {
  float total = 0, some[LANES];
  memcpy(some, &x, sizeof some);
  for (int j = 0; j < LANES; j++) total += some[j];
  return total;
}

/* The products of x and y (d), summed up to LANES sums. */
INLINE Floats partial_dot(const float *x, const float *y, int d) {
  Floats sums = {0};
  int i = 0;
  for (; i + LANES <= d; i += LANES) sums += floats_at(x + i) * floats_at(y + i);
  if (i < d) {
    float a[LANES] = {0}, b[LANES] = {0};
    memcpy(a, x + i, (d - i) * sizeof(float)), memcpy(b, y + i, (d - i) * sizeof(float));
    sums += floats_at(a) * floats_at(b);
  }
  return sums;
}

INLINE float dot(const float *x, const float *y, int d) { return total_of(partial_dot(x, y, d)); }

/* The numbers of two vectors, with each two neighbours added. */
INLINE Floats add_neighbours(Floats a, Floats b) {
#if defined(__GNUC__) && !defined(__clang__)
  Ints even, odd;
  for (int i = 0; i < LANES; i++) even[i] = 2 * i, odd[i] = 2 * i + 1;
  return __builtin_shuffle(a, b, even) + __builtin_shuffle(a, b, odd);
#else
  Floats sums;
  for (int i = 0; i < LANES / 2; i++) sums[i] = a[2 * i] + a[2 * i + 1], sums[LANES / 2 + i] = b[2 * i] + b[2 * i + 1];
  return sums;
#endif
}

/* The totals of LANES vectors, which are overwritten, as one vector. Few instructions for each, unlike total_of. */
INLINE Floats totals_of(Floats *x) {
  for (int count = LANES / 2; count; count /= 2)
    for (int i = 0; i < count; i++) x[i] = add_neighbours(x[2 * i], x[2 * i + 1]);
  return x[0];
}

/* e^t, with exponents of at most 88: e^t = 2^n e^y with |y| <= log(2)/2, and the polynomial for e^y of the Cephes
   library (Moshier 1992, expf.c). Unlike library functions, loops over it are vectorised. The remainder y needs fmaf:
   the compiler may reorder sums, and n log(2) in one part would lose the digits of the second part. */
static inline float exponential(float t) {
  float n = rintf(t * 1.44269504f);
  n = n < -126.0f ? -126.0f : n;  /* smaller powers are subnormal; see below */
  float y = fmaf(n, 2.12194440e-4f, fmaf(n, -0.693359375f, t)), p = 1.9875691500e-4f;
  p = p * y + 1.3981999507e-3f;
  p = p * y + 8.3334519073e-3f;
  p = p * y + 4.1665795894e-2f;
  p = p * y + 1.6666665459e-1f;
  p = p * y + 5.0000001201e-1f;
  p = p * y * y + y + 1.0f;
  int32_t bits = ((int32_t)n + 127) << 23;
  float power;
  memcpy(&power, &bits, 4);
  return t < -87.0f ? 0.0f : p * power;
}

/* e^t of numbers that are at most 0, by the same polynomial; 0 below -87. log(2) in one part is exact enough here: the
   relative error is below 1e-6 where e^t is above 1e-15. */
INLINE Floats exponential_of_negative(Floats t) {
  Ints low = t < -87.0f;
  Ints n = __builtin_convertvector(t * 1.44269504f - 0.5f, Ints);
  Floats y = t - __builtin_convertvector(n, Floats) * 0.69314718f, p = y * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * y + 8.3334519073e-3f;
  p = p * y + 4.1665795894e-2f;
  p = p * y + 1.6666665459e-1f;
  p = p * y + 5.0000001201e-1f;
  p = p * y * y + y + 1.0f;
  return (Floats)((Ints)(p * (Floats)((n + 127) << 23)) & ~low);
}

/* x = e^(x - shift). */
static inline void exponentials(float *x, int count, float shift) {
  for (int i = 0; i < count; i++) x[i] = exponential(x[i] - shift);
}

/* Rotate the pairs of a query or key by the angles of its position. */
static inline void turn(float *x, const float *cosines, const float *sines, int turning, int interleaved) {
  for (int c = 0; c < turning / 2; c++) {
    float *first = x + (interleaved ? 2 * c : c), *second = x + (interleaved ? 2 * c + 1 : c + turning / 2);
    float a = *first, b = *second;
    *first = a * cosines[c] - b * sines[c];
    *second = b * cosines[c] + a * sines[c];
  }
}

#endif
