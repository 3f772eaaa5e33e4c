/* Word vectors: stochastic gradient steps of skip-gram, CBOW (Mikolov et al. 2013) and GloVe (Pennington et al. 2014).

   Skip-gram and GloVe change one row of each table for each example. The rows of both tables are divided into blocks, and
   the examples of a batch into cells: (block of the word, block of the output). In a round each block occurs in one cell, so
   threads work on different rows of both tables and need no locks (Gemulla et al. 2011, stratified SGD). The rounds and the
   random numbers do not depend on the threads: any number of threads gives the same bits. CBOW changes many rows for each
   example and runs on one thread. */
#include <math.h>
#include <stdint.h>
#include "common.h"
#include "threads.h"

enum { BLOCKS = 16, CELLS = BLOCKS * BLOCKS, UNKNOWN = 1, SPECIAL_TOKENS = 4, NEW_SENTENCE = -1, AHEAD = 6, USUAL_DIM = 100 };

typedef struct {
  const uint32_t *keep;   /* (V) a word is kept if a random number is at most this one */
  const float *chance;    /* (V) and (V): an alias table of the noise distribution (Walker 1977) */
  const int32_t *alias;
  const int32_t *block;   /* (V) block of each word */
  float *words, *outputs; /* (V, D) vectors and context vectors */
  int vocabulary, dim, window, negatives;
} Model;

typedef struct { int32_t word, output; } Example; /* a negative example has ~output */
typedef struct {
  int32_t *kept;       /* the words of the row that are left after subsampling */
  Example *examples;
  long size, positives;
  long cells[CELLS];   /* the size of each cell, then where the next example of the cell goes */
} Row;

static inline int output_of(Example e) { return e.output < 0 ? ~e.output : e.output; }
static inline int cell_of(const Model *m, Example e) { return m->block[e.word] * BLOCKS + m->block[output_of(e)]; }

static inline void prefetch(const float *row, int dim) {
  for (int c = 0; c < dim; c += 16) __builtin_prefetch(row + c, 1);
}

/* Random numbers: SplitMix64 (Steele et al. 2014). */
static uint64_t random_bits(uint64_t *state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

static int random_below(uint64_t *state, int n) { return (int)((random_bits(state) >> 32) * (uint64_t)n >> 32); }

static int noise_word(const Model *m, uint64_t *state) {
  uint64_t bits = random_bits(state);
  int word = (int)((bits >> 32) * (uint64_t)m->vocabulary >> 32);
  return (float)(bits & 0xFFFFFF) * 0x1p-24f < m->chance[word] ? word : m->alias[word];
}

/* The words of a row after subsampling: unknown words are left out, and other special tokens end a sentence. */
static int kept_words(const Model *m, const int32_t *tokens, int length, int32_t *kept, uint64_t *state) {
  int count = 0;
  for (int i = 0; i < length; i++) {
    int token = tokens[i];
    if (token >= SPECIAL_TOKENS) {
      if ((uint32_t)(random_bits(state) >> 32) <= m->keep[token]) kept[count++] = token;
    } else if (token != UNKNOWN && count && kept[count - 1] != NEW_SENTENCE) kept[count++] = NEW_SENTENCE;
  }
  return count;
}

/* The words around position i of the same sentence, at most `reach` on each side. */
static int context(const int32_t *kept, int count, int i, int reach, int32_t *around) {
  int n = 0;
  for (int j = i - 1; j >= 0 && j >= i - reach && kept[j] != NEW_SENTENCE; j--) around[n++] = kept[j];
  for (int j = i + 1; j < count && j <= i + reach && kept[j] != NEW_SENTENCE; j++) around[n++] = kept[j];
  return n;
}

/* The gradient step of one example: return -d loss / d score, scaled by the rate; multiply `likelihood` by its probability. */
static inline float slope(float score, int positive, float rate, double *likelihood) {
  float e = exponential(-fabsf(score)), sigma = (score < 0 ? e : 1.0f) / (1.0f + e);
  float probability = positive ? sigma : 1.0f - sigma;
  *likelihood *= probability < 1e-30f ? 1e-30f : probability;
  return rate * ((float)positive - sigma);
}

/* Add up -log(likelihood) before the product becomes too small. */
static inline void take_log(double *likelihood, double *loss) {
  if (*likelihood < 1e-200) *loss -= log(*likelihood), *likelihood = 1.0;
}

static inline void learn_pair(float *restrict x, float *restrict y, float g, int dim) {
  for (int c = 0; c < dim; c++) {
    float old = x[c];
    x[c] += g * y[c], y[c] += g * old;
  }
}

typedef float Eight __attribute__((vector_size(32)));
static inline Eight eight_at(const float *x) { Eight y; memcpy(&y, x, sizeof y); return y; }

/* The dot product, with four sums side by side, so that none waits for the one before it. */
static inline float product(const float *x, const float *y, int dim) {
  Eight sums[4] = {{0}};
  int c = 0;
  for (; c + 32 <= dim; c += 32)
    for (int j = 0; j < 4; j++) sums[j] += eight_at(x + c + 8 * j) * eight_at(y + c + 8 * j);
  for (; c + 8 <= dim; c += 8) sums[0] += eight_at(x + c) * eight_at(y + c);
  Eight all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  float total = ((all[0] + all[1]) + (all[2] + all[3])) + ((all[4] + all[5]) + (all[6] + all[7]));
  for (; c < dim; c++) total += x[c] * y[c];
  return total;
}

static inline __attribute__((always_inline)) double train_cell(const Model *m, const Example *examples, long count,
                                                               float rate, int dim) {
  double loss = 0, likelihood = 1;
  for (long i = 0; i < count; i++) {
    int positive = examples[i].output >= 0, output = output_of(examples[i]);
    float *x = m->words + (size_t)examples[i].word * dim, *y = m->outputs + (size_t)output * dim;
    if (i + AHEAD < count) prefetch(m->outputs + (size_t)output_of(examples[i + AHEAD]) * dim, dim);
    learn_pair(x, y, slope(product(x, y, dim), positive, rate, &likelihood), dim);
    take_log(&likelihood, &loss);
  }
  return loss - log(likelihood);
}

static double train_cell_of(const Model *m, const Example *examples, long count, float rate) {
  if (m->dim == USUAL_DIM) return train_cell(m, examples, count, rate, USUAL_DIM);  /* a constant gives faster code */
  return train_cell(m, examples, count, rate, m->dim);
}

/* Draw the examples of one row of tokens, and count those of each cell. */
static void draw_examples(const Model *m, const int32_t *tokens, int length, uint64_t seed, Row *row) {
  int32_t *kept = row->kept, around[2 * m->window];
  uint64_t state = seed;
  int count = kept_words(m, tokens, length, kept, &state);
  Example *out = row->examples;
  for (int i = 0; i < count; i++) {
    if (kept[i] == NEW_SENTENCE) continue;
    int near = context(kept, count, i, 1 + random_below(&state, m->window), around);
    row->positives += near;
    for (int j = 0; j < near; j++) {
      *out++ = (Example){kept[i], around[j]};
      for (int k = 0; k < m->negatives; k++) {
        int noise = noise_word(m, &state);
        if (noise != around[j]) *out++ = (Example){kept[i], ~noise};
      }
    }
  }
  row->size = out - row->examples;
  for (long e = 0; e < row->size; e++) row->cells[cell_of(m, row->examples[e])]++;
}

/* Turn the sizes of the cells into starts: the examples are sorted by cells, and in a cell by rows. */
static void sort_cells(Row *rows, int count, long starts[CELLS + 1]) {
  long total = 0;
  for (int cell = 0; cell < CELLS; cell++) {
    starts[cell] = total;
    for (int row = 0; row < count; row++) {
      long size = rows[row].cells[cell];
      rows[row].cells[cell] = total;
      total += size;
    }
  }
  starts[CELLS] = total;
}

/* Allocate the rows of a batch: three arrays for all of them. NULL if there is not enough memory. */
static Row *new_rows(const Model *m, int count, int length) {
  long most = (long)length * 2 * m->window * (1 + m->negatives);
  Row *rows = calloc(count + 1, sizeof *rows);
  int32_t *kept = malloc((size_t)count * length * sizeof *kept);
  Example *examples = malloc(2 * count * most * sizeof *examples);
  if (!rows || !kept || !examples) {
    free(rows), free(kept), free(examples);
    return NULL;
  }
  for (int row = 0; row <= count; row++)  /* the one after the last has the sorted examples of all rows */
    rows[row].kept = kept + (size_t)row * length, rows[row].examples = examples + row * most;
  return rows;
}

static void free_rows(Row *rows) { free(rows->kept), free(rows->examples), free(rows); }

/* Train skip-gram on tokens (count, length). results: the sum of the losses and the number of positive examples. */
int train_skip_gram(const Model *m, const int32_t *tokens, int count, int length, uint64_t seed, float rate, int threads,
                    double *results) {
  Row *rows = new_rows(m, count, length);
  if (!rows) return 1;
  Example *sorted = rows[count].examples;
  long starts[CELLS + 1];
  double losses[CELLS] = {0};
  Meeting place = NEW_MEETING;
  atomic_int next[BLOCKS + 2] = {0};  /* the next item of each stage; a thread takes one when it is ready */
#pragma omp parallel num_threads(threads)
  {
    Thread t = this_thread(&place);
    for (int i; (i = atomic_fetch_add(&next[BLOCKS], 1)) < count;)
      draw_examples(m, tokens + (size_t)i * length, length, seed + ((uint64_t)i << 32), rows + i);
    meet(t);
    if (t.number == 0) sort_cells(rows, count, starts);
    meet(t);
    for (int i; (i = atomic_fetch_add(&next[BLOCKS + 1], 1)) < count;)
      for (long e = 0; e < rows[i].size; e++) {
        Example example = rows[i].examples[e];
        sorted[rows[i].cells[cell_of(m, example)]++] = example;
      }
    meet(t);
    for (int round = 0; round < BLOCKS; round++) {
      for (int i; (i = atomic_fetch_add(&next[round], 1)) < BLOCKS;) {
        int cell = i * BLOCKS + (i + round) % BLOCKS;
        losses[cell] = train_cell_of(m, sorted + starts[cell], starts[cell + 1] - starts[cell], rate);
      }
      meet(t);
    }
  }
  results[0] = results[1] = 0;
  for (int cell = 0; cell < CELLS; cell++) results[0] += losses[cell];
  for (int row = 0; row < count; row++) results[1] += rows[row].positives;
  free_rows(rows);
  return 0;
}

/* One example of CBOW: the mean of the words around predicts the first of the outputs, and not the others. */
static inline __attribute__((always_inline)) void learn_mean(const Model *m, const int32_t *around, int near,
                                                             const int32_t *outputs, int count, float rate,
                                                             double *likelihood, int dim) {
  float hidden[dim], error[dim];
  memset(hidden, 0, sizeof hidden), memset(error, 0, sizeof error);
  for (int k = 0; k < count; k++) prefetch(m->outputs + (size_t)outputs[k] * dim, dim);
  for (int j = 0; j < near; j++) {
    const float *x = m->words + (size_t)around[j] * dim;
    for (int c = 0; c < dim; c++) hidden[c] += x[c];
  }
  for (int c = 0; c < dim; c++) hidden[c] *= 1.0f / near;
  for (int k = 0; k < count; k++) {
    float *y = m->outputs + (size_t)outputs[k] * dim, g = slope(product(hidden, y, dim), k == 0, rate, likelihood);
    for (int c = 0; c < dim; c++) error[c] += g * y[c], y[c] += g * hidden[c];
  }
  for (int c = 0; c < dim; c++) error[c] *= 1.0f / near;
  for (int j = 0; j < near; j++) {
    float *x = m->words + (size_t)around[j] * dim;
    for (int c = 0; c < dim; c++) x[c] += error[c];
  }
}

/* Train CBOW on tokens (rows, length); results as above. */
int train_cbow(const Model *m, const int32_t *tokens, int rows, int length, uint64_t seed, float rate, double *results) {
  double loss = 0, likelihood = 1;
  long positives = 0;
  int32_t *kept = malloc(length * sizeof *kept), around[2 * m->window], outputs[1 + m->negatives];
  if (!kept) return 1;
  for (int row = 0; row < rows; row++) {
    uint64_t state = seed + ((uint64_t)row << 32);
    int count = kept_words(m, tokens + (size_t)row * length, length, kept, &state);
    for (int i = 0; i < count; i++) {
      if (kept[i] == NEW_SENTENCE) continue;
      int near = context(kept, count, i, 1 + random_below(&state, m->window), around), n = 1;
      if (!near) continue;
      outputs[0] = kept[i];
      for (int k = 0; k < m->negatives; k++)
        if ((outputs[n] = noise_word(m, &state)) != kept[i]) n++;
      if (m->dim == USUAL_DIM) learn_mean(m, around, near, outputs, n, rate, &likelihood, USUAL_DIM);
      else learn_mean(m, around, near, outputs, n, rate, &likelihood, m->dim);
      take_log(&likelihood, &loss);
      positives++;
    }
  }
  results[0] = loss - log(likelihood), results[1] = positives;
  free(kept);
  return 0;
}

typedef struct {
  float *vectors[2], *vector_sums[2];  /* (V, D) of words and contexts, and AdaGrad's sums of squared gradients */
  float *biases[2], *bias_sums[2];     /* (V) */
  const int32_t *block;                /* (V) */
  int dim;
  float most_count, power, eps;        /* of the weight f(X) = min(1, (X / most_count)^power) */
} Glove;

static inline void adagrad(float *x, float *sum, float gradient, float rate, float eps) {
  *sum += gradient * gradient;
  *x -= rate * gradient / (sqrtf(*sum) + eps);
}

static double train_entry(const Glove *m, const int32_t *entry, float count, float rate) {
  int dim = m->dim;
  float *v[2], *s[2], error = -logf(count), weight = count < m->most_count ? powf(count / m->most_count, m->power) : 1.0f;
  for (int t = 0; t < 2; t++) {
    v[t] = m->vectors[t] + (size_t)entry[t] * dim, s[t] = m->vector_sums[t] + (size_t)entry[t] * dim;
    error += m->biases[t][entry[t]];
  }
  error += product(v[0], v[1], dim);
  float *restrict x = v[0], *restrict y = v[1], *restrict p = s[0], *restrict q = s[1], g = 2 * weight * error;
  for (int c = 0; c < dim; c++) {
    float dx = g * y[c], dy = g * x[c];
    adagrad(x + c, p + c, dx, rate, m->eps), adagrad(y + c, q + c, dy, rate, m->eps);
  }
  for (int t = 0; t < 2; t++) adagrad(m->biases[t] + entry[t], m->bias_sums[t] + entry[t], g, rate, m->eps);
  return (double)weight * error * error;
}

static inline int entry_cell(const Glove *m, const int32_t *entry) {
  return m->block[entry[0]] * BLOCKS + m->block[entry[1]];
}

/* Train GloVe on n entries (n, 2) of the co-occurrence matrix and their counts; results: the sum of the losses, and n. */
int train_glove(const Glove *m, const int32_t *entries, const float *counts, long n, float rate, int threads,
                double *results) {
  Row row = {0};
  long starts[CELLS + 1];
  double losses[CELLS] = {0};
  Meeting place = NEW_MEETING;
  atomic_int next[BLOCKS] = {0};
  long *order = malloc((n + 1) * sizeof *order);
  if (!order) return 1;
  for (long e = 0; e < n; e++) row.cells[entry_cell(m, entries + 2 * e)]++;
  sort_cells(&row, 1, starts);
  for (long e = 0; e < n; e++) order[row.cells[entry_cell(m, entries + 2 * e)]++] = e;
#pragma omp parallel num_threads(threads)
  {
    Thread t = this_thread(&place);
    for (int round = 0; round < BLOCKS; round++) {
      for (int i; (i = atomic_fetch_add(&next[round], 1)) < BLOCKS;) {
        int cell = i * BLOCKS + (i + round) % BLOCKS;
        for (long j = starts[cell]; j < starts[cell + 1]; j++)
          losses[cell] += train_entry(m, entries + 2 * order[j], counts[order[j]], rate);
      }
      meet(t);
    }
  }
  results[0] = 0, results[1] = n;
  for (int cell = 0; cell < CELLS; cell++) results[0] += losses[cell];
  free(order);
  return 0;
}
