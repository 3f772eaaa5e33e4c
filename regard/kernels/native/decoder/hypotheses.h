/* Greedy and beam search over the texts of a batch: which hypotheses live on, which are finished, and when a text is
   done; the same rules as decoding/searches/beam.py and greedy.py.

       w beam width   n hypotheses wanted   R rows: the live hypotheses, those of a text side by side and best first
*/
#ifndef REGARD_HYPOTHESES
#define REGARD_HYPOTHESES
#include "candidates.h"

typedef struct {
  int32_t width, wanted;
  int32_t greedy;        /* take the most probable token, and end with END */
  float length_penalty;
  int32_t max_finished;  /* hypotheses with which a text is done; 0: their number does not matter */
} Search;

typedef struct { int32_t parent, token; float logp; } Node;  /* the last token of a hypothesis; parent -1: the first */
typedef struct { float ranking; int32_t node; } Finished;

typedef struct {
  int32_t source, length;  /* where its source tokens begin among those of the batch, and how many there are */
  int32_t limit, rule;     /* the most tokens to write; the number of its rule */
  int32_t rows;            /* live hypotheses */
  Finished *finished;      /* (n), best first */
  int32_t ended;           /* how many of them there are */
  int32_t finished_count;  /* the others included */
} Text;

typedef struct { int32_t token, text, parent, node; float score; uint64_t used; } Row;

typedef struct { float total, logp; int32_t row, token; } Continuation;

/* Insert into a list of at most `room`, best first; among equals the earlier one comes first. Returns the new length. */
static int insert(Continuation *list, int count, int room, Continuation c) {
  if (count == room && !(c.total > list[count - 1].total)) return count;
  int at = count < room ? count : count - 1;
  for (; at > 0 && c.total > list[at - 1].total; at--) list[at] = list[at - 1];
  list[at] = c;
  return count < room ? count + 1 : count;
}

/* The best 2w continuations of a text's live hypotheses: among equals the earlier hypothesis first, then the lower token.
   A live hypothesis can end in only one way, so at least w of them do not end. Returns their number. */
static int best_continuations(const Row *rows, int first, int count, const Candidate *candidates, int K, int room,
                              Continuation *list) {
  int length = 0;
  for (int r = first; r < first + count; r++)
    for (int i = 0; i < K && candidates[(size_t)r * K + i].token >= 0; i++) {
      Candidate c = candidates[(size_t)r * K + i];
      float total = rows[r].score + c.logp;
      if (total == -INFINITY) break;
      length = insert(list, length, room, (Continuation){total, c.logp, r, c.token});
    }
  return length;
}

/* Keep the n best finished hypotheses; among equals the earlier one. */
static void add_finished(Text *text, int wanted, float ranking, int node) {
  text->finished_count++;
  if (text->ended == wanted && !(ranking > text->finished[wanted - 1].ranking)) return;
  int at = text->ended < wanted ? text->ended++ : wanted - 1;
  for (; at > 0 && ranking > text->finished[at - 1].ranking; at--) text->finished[at] = text->finished[at - 1];
  text->finished[at] = (Finished){ranking, node};
}

/* Whether enough hypotheses are finished, or no live one can overtake the last of the wanted ones: scores only fall, and
   the length is at most the limit. `written` tokens are in each hypothesis. */
static int is_done(const Search *search, const Text *text, const Row *rows, int written) {
  if (written == text->limit || !text->rows) return 1;
  if (text->ended < search->wanted) return 0;
  if (search->max_finished && text->finished_count >= search->max_finished) return 1;
  float best_to_come = rows->score / powf((float)text->limit, search->length_penalty);
  return best_to_come <= text->finished[search->wanted - 1].ranking;
}

#endif
