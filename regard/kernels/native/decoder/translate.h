/* Whole translations: encode a batch of sentences, then decode until each has its hypotheses.

   A Run is one batch. advance_runs decodes several of them, each on a thread of its own, or one of them on all threads.
   It returns after some time, so that the caller can stop, and continues when it is called again.

       N source tokens   R rows (live hypotheses)   V vocabulary   w beam width   T tokens that a row has room for
*/
#ifndef REGARD_TRANSLATE
#define REGARD_TRANSLATE
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

/* Encode the sources, some whole sentences at a time. */
static void encode_batch(Run *run, Thread t) {
  const Network *net = run->batch.network;
  int layers = net->decoder.layers, wide = 2 * net->decoder.kv_heads * (net->decoder.dim / net->decoder.heads);
  for (int first = 0, last; first < run->batch.texts; first = last) {
    int begin = run->texts[first].source, rows = 0;
    for (last = first; last < run->batch.texts && (!rows || rows + run->texts[last].length <= ENCODER_ROWS); last++)
      rows += run->texts[last].length;
    int32_t starts[rows], ends[rows];
    float *kv[layers];
    for (int i = first, r = 0; i < last; i++)
      for (int start = r; r < start + run->texts[i].length; r++) starts[r] = start, ends[r] = start + run->texts[i].length;
    for (int l = 0; l < layers; l++) kv[l] = run->source_kv[l] + (size_t)begin * wide;
    Scratch scratch = cut_scratch(&net->encoder, run->scratch.y, rows);
    encode(net, run->batch.tokens + begin, starts, ends, rows, run->x, kv, scratch, t);
  }
}

/* Fetch numbers into the cache, while others are used. */
static inline void fetch_numbers(const float *x, int count) {
  for (int i = 0; i < count; i += 16) __builtin_prefetch(x + i, 0, 2);
}

/* Each row attends to the tokens of its hypothesis, the new one included, while the next row's keys and values come. */
static void run_self(Attention *attention, int l, const float *x, float *qkv, float *y, Thread t) {
  Run *run = (Run *)attention;
  const Stack *stack = &run->batch.network->decoder;
  int H = stack->heads, G = stack->kv_heads, d = stack->dim / H, wide = (H + 2 * G) * d, kv = 2 * G * d;
  int T = run->batch.T, n = run->position + 1;
  float *cache = own_kv_at(run, l, run->position);
  (void)x;
  for (int r = share(run->live, t, 0); r < share(run->live, t, 1); r++) {
    float *row = qkv + (size_t)r * wide;
    rotate_row(stack, run->batch.network->target_angles, row, run->position);
    memcpy(cache + (size_t)r * kv, row + H * d, kv * sizeof(float));
  }
  meet(t);
  HeadSizes sizes = {H, G, d};
  const float *caches[n], *k[n], *v[n];
  for (int i = 0; i < n; i++) caches[i] = own_kv_at(run, l, i);
  float weights[attention_room(sizes, n)];
  int last = share(run->live, t, 1);
  for (int r = share(run->live, t, 0); r < last; r++) {
    for (int i = 0; i < n; i++) {
      k[i] = caches[i] + (size_t)run->origins[(size_t)r * T + i] * kv;
      v[i] = k[i] + G * d;
      if (r + 1 < last) fetch_numbers(caches[i] + (size_t)run->origins[(size_t)(r + 1) * T + i] * kv, kv);
    }
    attend(qkv + (size_t)r * wide, (Tokens){k, v, d, n}, sizes, NULL, weights, y + (size_t)r * H * d);
  }
  meet(t);
}

/* Each row attends to the source of its text. */
static void run_cross(Attention *attention, int l, const float *q, float *y, Thread t) {
  Run *run = (Run *)attention;
  const Stack *stack = &run->batch.network->decoder;
  int H = stack->heads, G = stack->kv_heads, d = stack->dim / H, kv = 2 * G * d;
  HeadSizes sizes = {H, G, d};
  int last = share(run->live, t, 1);
  for (int r = share(run->live, t, 0); r < last; r++) {
    const Text *text = run->texts + run->rows[r].text;
    const float *k[text->length], *v[text->length];
    float weights[attention_room(sizes, text->length)];
    for (int i = 0; i < text->length; i++) {
      k[i] = run->source_kv[l] + (size_t)(text->source + i) * kv;
      v[i] = k[i] + G * d;
    }
    if (r + 1 < last && run->rows[r + 1].text != run->rows[r].text) {
      const Text *next = run->texts + run->rows[r + 1].text;
      fetch_numbers(run->source_kv[l] + (size_t)next->source * kv, next->length * kv);
    }
    attend(q + (size_t)r * H * d, (Tokens){k, v, d, text->length}, sizes, NULL, weights, y + (size_t)r * H * d);
  }
  meet(t);
}

/* What may follow the hypothesis of row r. */
static Limits limits_of(const Run *run, int r) {
  const Row *row = run->rows + r;
  return (Limits){&run->batch.special, run->batch.rules + run->texts[row->text].rule, row->used};
}

/* The candidates of all rows from the decoder's output (R, p): the scores of some outputs for all rows, then the next
   ones, so that the output matrix is read once. */
static void choose_rows(Run *run, const float *hidden, Thread t) {
  const Matrix *output = &run->batch.network->output;
  Quantized quantized = run->scratch.quantized;
  int rows = run->live, V = output->out, K = run->batch.search.greedy ? 1 : 2 * run->batch.search.width;
  int wide = least(round_up(V, PIECE), PIECE + MIN_SCORES / rows / PIECE * PIECE);
  int first_row = share(rows, t, 0), last_row = share(rows, t, 1);
  double start = cpu_time();
  if (output->parts) quantize_rows(output, hidden, quantized, rows, t);
  for (int r = first_row; r < last_row; r++) begin_choice(run->choices + r, run->candidates + (size_t)r * K, K);
  for (int first = 0; first < V; first += wide) {
    Matrix part = some_outputs(output, first, least(wide, V - first));
    multiply_tiles(&part, hidden, run->scores, quantized, rows, t);
    double spent = cpu_time() - start;
    if (!t.number) run->seconds[1] += spent, run->seconds[2] -= spent;
    for (int r = first_row; r < last_row; r++) {
      Limits limits = limits_of(run, r);
      for (int o = 0; o < part.out; o += PIECE)
        choose_among(run->choices + r, &limits, run->scores + (size_t)r * part.out + o, first + o, least(PIECE, part.out - o),
                     run->candidates + (size_t)r * K, K);
    }
    meet(t);
    start = cpu_time();
  }
  for (int r = first_row; r < last_row; r++) {
    Limits limits = limits_of(run, r);
    if (!finish_choice(run->choices + r, &limits, run->candidates + (size_t)r * K, K)) run->failure = NOT_FINITE;
  }
  meet(t);
}

static int new_node(Run *run, int parent, int token, float logp) {
  if (run->node_count == run->node_room) {
    int room = 2 * run->node_room + 1024;
    Node *nodes = realloc(run->nodes, room * sizeof *nodes);
    if (!nodes) {
      run->failure = OUT_OF_MEMORY;
      return -1;
    }
    run->nodes = nodes, run->node_room = room;
  }
  run->nodes[run->node_count] = (Node){parent, token, logp};
  return run->node_count++;
}

/* Append a hypothesis to the results: the tokens of its chain of nodes, in order. */
static void add_result(Run *run, int text, int node, int ended, float ranking) {
  int length = 0;
  for (int i = node; i >= 0; i = run->nodes[i].parent) length++;
  if (run->token_count + length > run->token_room) {
    int room = 2 * run->token_room + length + 1024;
    int32_t *tokens = realloc(run->tokens, room * sizeof *tokens);
    if (tokens) run->tokens = tokens;
    float *logps = realloc(run->logps, room * sizeof *logps);
    if (logps) run->logps = logps;
    if (tokens && logps) run->token_room = room;
  }
  if (!run->results) run->results = malloc((size_t)run->batch.texts * run->batch.search.wanted * sizeof *run->results);
  if (run->token_count + length > run->token_room || !run->results) {
    run->failure = OUT_OF_MEMORY;
    return;
  }
  run->results[run->result_count++] = (Result){text, run->token_count, length, ended, ranking};
  run->token_count += length;
  for (int i = node, at = run->token_count - 1; i >= 0; i = run->nodes[i].parent, at--)
    run->tokens[at] = run->nodes[i].token, run->logps[at] = run->nodes[i].logp;
}

static uint64_t used_after(const Rule *rule, uint64_t used, int token) {
  for (int i = 0; i < rule->count; i++)
    if (rule->tokens[i] == token) used |= (uint64_t)1 << i;
  return used;
}

/* Continue the hypotheses of one text, which are the rows from `first`: finished ones are stored, and the live ones
   written to next_rows from `at`. `written` counts the new token. Returns the number of live ones; 0 if the text is done. */
static int continue_text(Run *run, int first, int at, int written) {
  const Search *search = &run->batch.search;
  Text *text = run->texts + run->rows[first].text;
  int w = search->width, K = search->greedy ? 1 : 2 * w, end = run->batch.special.end, alive = 0;
  float length = powf((float)written, search->length_penalty);
  int count = best_continuations(run->rows, first, text->rows, run->candidates, K, K, run->list);
  for (int i = 0; i < count && alive < w; i++) {
    Continuation c = run->list[i];
    const Row *parent = run->rows + c.row;
    if (c.token == end && (i < w || search->greedy)) {
      add_finished(text, search->wanted, c.total / length, new_node(run, parent->node, c.token, c.logp));
    } else if (c.token != end) {
      uint64_t used = used_after(run->batch.rules + text->rule, parent->used, c.token);
      int node = new_node(run, parent->node, c.token, c.logp);
      run->next_rows[at + alive++] = (Row){c.token, parent->text, c.row, node, c.total, used};
    }
  }
  text->rows = alive;
  if (!is_done(search, text, run->next_rows + at, written)) return alive;
  int number = run->rows[first].text, results = text->ended;
  for (int i = 0; i < results; i++) add_result(run, number, text->finished[i].node, 1, text->finished[i].ranking);
  for (int i = 0; i < alive && results < search->wanted; i++, results++)
    add_result(run, number, run->next_rows[at + i].node, 0, run->next_rows[at + i].score / length);
  text->rows = 0;
  return 0;
}

/* Rows that continue take over the origins of the tokens of their parents. */
static void move_rows(Run *run, int count) {
  int T = run->batch.T, n = run->position + 1;
  for (int r = 0; r < count; r++) {
    memcpy(run->next_origins + (size_t)r * T, run->origins + (size_t)run->next_rows[r].parent * T, n * sizeof(int32_t));
    run->next_origins[(size_t)r * T + n] = r;
  }
  Row *rows = run->rows;
  int32_t *origins = run->origins;
  run->rows = run->next_rows, run->next_rows = rows;
  run->origins = run->next_origins, run->next_origins = origins;
  run->live = count, run->position++;
}

/* After the candidates are known: continue all texts. Before the end of the prefix, feed its next token. */
static void continue_texts(Run *run) {
  int written = run->position + 2 - run->batch.prefix, alive = 0;
  if (written < 1) {
    for (int r = 0; r < run->live; r++) {
      int token = run->batch.prefixes[(size_t)r * run->batch.prefix + run->position + 1];
      const Rule *rule = run->batch.rules + run->texts[r].rule;
      run->next_rows[r] = (Row){token, r, r, -1, 0.0f, used_after(rule, run->rows[r].used, token)};
    }
    move_rows(run, run->live);
    return;
  }
  for (int first = 0, next; first < run->live; first = next) {
    next = first + run->texts[run->rows[first].text].rows;
    int count = continue_text(run, first, alive, written);
    run->live_texts -= !count;
    alive += count;
  }
  move_rows(run, alive);
}

/* One token for each live hypothesis. */
static void step_run(Run *run, Thread t) {
  const Network *net = run->batch.network;
  int p = net->decoder.dim, rows = run->live;
  double start = cpu_time();
  Scratch scratch = cut_scratch(&net->decoder, run->scratch.y, rows);
  for (int r = share(rows, t, 0); r < share(rows, t, 1); r++)
    embed(&net->target, run->rows[r].token, run->position, run->x + (size_t)r * p, p);
  if (!t.number) extend_own_kv(run);
  meet(t);
  if (run->failure) return;
  if (!t.number) run->scratch = scratch;
  const float *hidden = run_stack(&net->decoder, run->x, scratch, rows, &run->functions, t);
  if (!t.number) run->seconds[1] += cpu_time() - start, start = cpu_time();
  if (run->position + 2 > run->batch.prefix) choose_rows(run, hidden, t);
  if (!t.number) {
    run->steps++, run->step_rows += rows;
    continue_texts(run);
    run->seconds[2] += cpu_time() - start;
  }
  meet(t);
}

/* Decode until the batch is done or the deadline has passed. */
static void advance_run(Run *run, double deadline, Thread t) {
  if (run->failure) return;
  if (!run->is_encoded) {
    double start = cpu_time();
    if (!t.number) take_blocks(run);
    meet(t);
    if (run->failure) return;
    encode_batch(run, t);
    if (!t.number) {
      run->functions = (Attention){run_self, run_cross};
      run->is_encoded = 1, run->seconds[0] += cpu_time() - start;
    }
    meet(t);
  }
  while (run->live && !run->failure && !run->is_paused) {
    step_run(run, t);
    if (!t.number) run->is_paused = now() > deadline;
    meet(t);
  }
  if (!t.number && (!run->live || run->failure)) return_blocks(run);
}

typedef struct {
  Crew crew;
  Run **runs;
  int count, together;  /* all threads on each run, or each run on one thread */
  double deadline;
  atomic_int next;
} Task;

static void *work_on_runs(void *argument) {
  Task *task = argument;
  Thread t = join_crew(&task->crew);
  if (task->together)
    for (int i = 0; i < task->count; i++) advance_run(task->runs[i], task->deadline, t);
  else
    for (int i; (i = atomic_fetch_add(&task->next, 1)) < task->count;) advance_run(task->runs[i], task->deadline, ALONE);
  return NULL;
}

/* Decode these batches for about so many milliseconds. Returns how many are not done. */
int advance_runs(Run **runs, int count, int threads, int together, int milliseconds) {
  for (int i = 0; i < count; i++) runs[i]->is_paused = 0;
  Task task = {NEW_CREW, runs, count, together, now() + 1e-3 * milliseconds, 0};
  run_crew(&task.crew, work_on_runs, &task, together ? threads : least(threads, count));
  int unfinished = 0;
  for (int i = 0; i < count; i++) unfinished += runs[i]->live && !runs[i]->failure;
  return unfinished;
}

/* What Python reads of a batch that is done. */
typedef struct {
  const Result *results;
  const int32_t *tokens;
  const float *logps;
  int32_t count, failure;
  int64_t steps, rows;  /* of the decoder */
  double seconds[3];    /* CPU time of the encoder, the steps and the choice */
} Outcome;

void read_run(const Run *run, Outcome *to) {
  *to = (Outcome){run->results, run->tokens, run->logps, run->result_count, run->failure, run->steps, run->step_rows,
                  {run->seconds[0], run->seconds[1], run->seconds[2]}};
}

#endif
