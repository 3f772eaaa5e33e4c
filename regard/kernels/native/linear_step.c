/* The step of one layer, for linear_step.py. */
#include "linear_step.h"

/* frequencies (turning / 2): angular frequencies of rotary positions; places (R): positions of the new tokens.
   Returns 0, or 1 if there is not enough memory. */
int feature_step(const Features *m, const Sums *s, const New *x, const float *gate, const float *frequencies,
                 const int64_t *places, float *y, int rows, int threads) {
  int pairs = m->turning / 2;
  float *cosines = malloc((2 * (size_t)rows * pairs + 1) * sizeof(float)), *sines = cosines + (size_t)rows * pairs;
  if (!cosines) return 1;
  for (int i = 0; i < rows * pairs; i++) {
    float angle = places[i / pairs] * frequencies[i % pairs];
    cosines[i] = cosf(angle), sines[i] = sinf(angle);
  }
  Meeting place = NEW_MEETING;
#pragma omp parallel num_threads(threads)
  step_features(m, *s, *x, gate, cosines, sines, y, rows, this_thread(&place));
  free(cosines);
  return 0;
}

/* For tests. */
void exponentials_of(float *x, int count) { exponentials(x, count, 0); }
