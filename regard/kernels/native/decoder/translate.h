/* Whole translations: encode a batch of sentences, then decode until each has its hypotheses.

   A Run is one batch. advance_runs decodes several of them, each on a thread of its own, or one of them on all threads.
   It returns after some time, so that the caller can stop, and continues when it is called again.
*/
#ifndef REGARD_TRANSLATE
#define REGARD_TRANSLATE
#include "continuations.h"
#include "run_attention.h"

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
