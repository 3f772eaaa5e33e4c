/* Shared by the C files of this package: vectors of numbers, and threads. */
#ifndef REGARD_C_CODE
#define REGARD_C_CODE
#include <float.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(_OPENMP)
#include <omp.h>
#endif

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

static inline int least(int a, int b) { return a < b ? a : b; }
static inline Floats floats_at(const float *x) { Floats y; memcpy(&y, x, sizeof y); return y; }

static inline float dot(const float *x, const float *y, int d) {
  Floats sums = {0};
  int i = 0;
  for (; i + LANES <= d; i += LANES) sums += floats_at(x + i) * floats_at(y + i);
  float total = 0, some[LANES];
  memcpy(some, &sums, sizeof some);
  for (int j = 0; j < LANES; j++) total += some[j];
  for (; i < d; i++) total += x[i] * y[i];
  return total;
}

enum { PATIENCE = 20000 };  /* spins, about ten microseconds */
typedef struct { atomic_int arrived, phase; } Meeting;
typedef struct { int number, threads; Meeting *place; } Thread;

static inline Thread this_thread(Meeting *place) {
#if defined(_OPENMP)
  return (Thread){omp_get_thread_num(), omp_get_num_threads(), place};
#else
  return (Thread){0, 1, place};
#endif
}

/* Where a thread's share of n items begins; with next = 1, where it ends. */
static inline int share(int n, Thread t, int next) { return (int)((long)n * (t.number + next) / t.threads); }

/* A barrier: wait until all threads have arrived. OpenMP's own barrier assumes a core for each thread: when two of our
   threads share a core, the first one would spin for milliseconds and keep the second one from running. */
static inline void meet(Thread t) {
  if (t.threads == 1) return;
  int phase = atomic_load(&t.place->phase);
  if (atomic_fetch_add(&t.place->arrived, 1) == t.threads - 1) {
    atomic_store(&t.place->arrived, 0);
    atomic_store(&t.place->phase, phase + 1);
  } else {
    for (int looks = 0; atomic_load_explicit(&t.place->phase, memory_order_acquire) == phase; looks++)
      if (looks > PATIENCE) sched_yield();
  }
}

#endif
