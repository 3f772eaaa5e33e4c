/* A Run: one batch of sentences on its way from the encoder to its hypotheses, and the memory that it takes.

       N source tokens   p model width   G heads with keys and values   d head width   K candidates of a row
       w beam width      T tokens that a row has room for
*/
#ifndef REGARD_RUN
#define REGARD_RUN
#include <time.h>

#include "encoder.h"
#include "hypotheses.h"
#include "memory.h"

enum { ENCODER_ROWS = 160 };  /* source tokens that are encoded at once, so that their vectors stay in the cache */
enum { MIN_SCORES = 1 << 16 };  /* that are computed at once, if the vocabulary has so many; they stay in the cache */
enum { POSITIONS = 8 };  /* whose keys and values take memory at once: most texts end long before their limit */
enum { OUT_OF_MEMORY = 1, NOT_FINITE = 2 };

typedef struct {  /* what Python reads of a hypothesis: tokens and logps [start, start + length) of the results */
  int32_t text, start, length, ended;
  float ranking;
} Result;

typedef struct {
  const Network *network;
  Search search;
  Special special;
  const Rule *rules;
  const int32_t *tokens;     /* (N) of all sources */
  const int32_t *prefixes;   /* (texts, prefix): what the decoder reads first */
  int32_t texts, source_tokens, prefix, T;
} Batch;

typedef struct {
  Attention functions;
  Batch batch;
  Text *texts;
  Row *rows, *next_rows;                /* at most texts · w */
  int32_t *origins, *next_origins;      /* (rows, T): the row that computed the keys and values of each token */
  float **source_kv;                    /* for each layer: (N, 2 G d) */
  Memory *own_kv;                       /* for each POSITIONS positions: (layers, POSITIONS, rows, 2 G d) */
  float *x, *scores;                    /* (rows, p), (rows, some outputs) */
  Choice *choices;                      /* (rows) */
  Candidate *candidates;                /* (rows, K) */
  Continuation *list;                   /* (2 w) */
  Scratch scratch;
  Node *nodes;
  int32_t *tokens;                      /* of the results */
  float *logps;
  Result *results;
  int32_t room, live, live_texts, position, node_count, node_room, token_count, token_room, result_count;
  int32_t is_encoded, is_paused;
  atomic_int failure;
  int64_t steps, step_rows;             /* how many there were, for benchmarks */
  double seconds[3];                    /* CPU time of the encoder, the steps and the choice, for benchmarks */
  Memory blocks[16];
  int block_count;
} Run;

static double seconds_of(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return time.tv_sec + 1e-9 * time.tv_nsec;
}

static double now(void) { return seconds_of(CLOCK_MONOTONIC); }
static double cpu_time(void) { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }

static void *take_block(Run *run, size_t bytes) {
  Memory block = take_memory(bytes + 64);
  if (block.place) run->blocks[run->block_count++] = block;
  else run->failure = OUT_OF_MEMORY;
  return block.place;
}

/* The memory of everything but the results. */
static void return_blocks(Run *run) {
  for (int i = 0; run->own_kv && i * POSITIONS < run->batch.T; i++) return_memory(run->own_kv[i]);
  for (int i = 0; i < run->block_count; i++) return_memory(run->blocks[i]);
  run->block_count = 0, run->own_kv = NULL;
}

void free_run(Run *run) {
  if (!run) return;
  return_blocks(run);
  free(run->texts), free(run->nodes), free(run->tokens), free(run->logps), free(run->results), free(run);
}

/* Begin a batch; lengths, limits and rule numbers (texts) are copied, all other arrays must stay. NULL: out of memory. */
Run *begin_run(const Batch *batch, const int32_t *lengths, const int32_t *limits, const int32_t *rules) {
  int w = batch->search.width, n = batch->search.wanted;
  Run *run = calloc(1, sizeof *run);
  if (!run) return NULL;
  run->batch = *batch, run->room = batch->texts * w;
  run->texts = malloc(batch->texts * (sizeof *run->texts + n * sizeof(Finished)));
  if (!run->texts) {
    free_run(run);
    return NULL;
  }
  Finished *finished = (Finished *)(run->texts + batch->texts);
  for (int i = 0, source = 0; i < batch->texts; source += lengths[i++])
    run->texts[i] = (Text){source, lengths[i], limits[i], rules[i], 1, finished + (size_t)i * n, 0, 0};
  run->live = run->live_texts = batch->texts;
  return run;
}

/* Take the memory for decoding; `failure` tells if there is none. Keys and values of hypotheses take theirs later. */
static void take_blocks(Run *run) {
  const Batch *batch = &run->batch;
  const Network *net = batch->network;
  int w = batch->search.width, layers = net->decoder.layers, p = net->decoder.dim, rows = run->room, longest = 0;
  size_t wide = 2 * net->decoder.kv_heads * (p / net->decoder.heads), spans = (batch->T + POSITIONS - 1) / POSITIONS;
  for (int i = 0; i < batch->texts; i++) longest = run->texts[i].length > longest ? run->texts[i].length : longest;
  int encoder_rows = least(batch->source_tokens, ENCODER_ROWS + longest), most = rows > encoder_rows ? rows : encoder_rows;
  size_t encoder_bytes = scratch_bytes(&net->encoder, encoder_rows), decoder_bytes = scratch_bytes(&net->decoder, rows);
  run->rows = take_block(run, 2 * rows * sizeof *run->rows);
  run->origins = take_block(run, 2 * (size_t)rows * batch->T * sizeof *run->origins);
  run->source_kv = take_block(run, layers * sizeof *run->source_kv);
  Memory *own_kv = take_block(run, spans * sizeof *own_kv);
  float *kv = take_block(run, (size_t)layers * batch->source_tokens * wide * sizeof *kv);
  run->x = take_block(run, (size_t)most * p * sizeof *run->x);
  run->scores = take_block(run, (MIN_SCORES + (size_t)rows * PIECE) * sizeof *run->scores);
  run->choices = take_block(run, rows * sizeof *run->choices);
  run->candidates = take_block(run, 2 * (size_t)rows * w * sizeof *run->candidates);
  run->list = take_block(run, 2 * w * sizeof *run->list);
  run->scratch.y = take_block(run, encoder_bytes > decoder_bytes ? encoder_bytes : decoder_bytes);
  if (run->failure) return;
  run->own_kv = memset(own_kv, 0, spans * sizeof *own_kv);
  run->next_rows = run->rows + rows, run->next_origins = run->origins + (size_t)rows * batch->T;
  for (int l = 0; l < layers; l++) run->source_kv[l] = kv + (size_t)l * batch->source_tokens * wide;
  for (int i = 0; i < batch->texts; i++) {
    run->rows[i] = (Row){batch->prefixes[(size_t)i * batch->prefix], i, i, -1, 0.0f, 0};
    run->origins[(size_t)i * batch->T] = i;
  }
}

/* The keys and values (rows, 2 G d) of a position in layer l. */
static float *own_kv_at(const Run *run, int l, int position) {
  const Stack *stack = &run->batch.network->decoder;
  float *span = run->own_kv[position / POSITIONS].place;
  return span + ((size_t)l * POSITIONS + position % POSITIONS) * run->room * 2 * stack->kv_heads * (stack->dim / stack->heads);
}

/* Take memory for the keys and values of the next positions, if the new one is the first of them. */
static void extend_own_kv(Run *run) {
  const Stack *stack = &run->batch.network->decoder;
  size_t kv = 2 * stack->kv_heads * (stack->dim / stack->heads);
  if (run->position % POSITIONS) return;
  Memory *span = run->own_kv + run->position / POSITIONS;
  *span = take_memory(stack->layers * POSITIONS * run->room * kv * sizeof(float) + 64);
  if (!span->place) run->failure = OUT_OF_MEMORY;
}

#endif
