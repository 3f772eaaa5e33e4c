/* The search: choose the candidates of each row, store finished hypotheses, and continue with the live ones.

       R rows (live hypotheses)   p model width   V vocabulary   K candidates of a row   w beam width
       T tokens that a row has room for
*/
#ifndef REGARD_CONTINUATIONS
#define REGARD_CONTINUATIONS
#include "run.h"

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
  quantize(output, hidden, quantized, rows, t);
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

#endif
