/* A stack of Transformer blocks that reads whole texts, from the vectors of their tokens to those of the last block.

   Their tokens are rows one after the other, so nothing is padded. Chunks of texts are read one after the other, so that
   their vectors stay in the cache; each thread takes the next chunk, and none waits for others.

       N tokens of all texts   C chunks   p model width
*/
#ifndef REGARD_TEXT_ENCODER
#define REGARD_TEXT_ENCODER
#include "encoder.h"

typedef struct {
  Crew crew;
  const Stack *stack;
  Angles angles;
  float *x;                      /* (N, p) */
  const int32_t *starts, *ends;  /* (N): where the text of each row begins and ends, counted from its chunk's first row */
  const int32_t *chunks;         /* (C + 1): the first rows of the chunks, and N */
  int count, longest;            /* chunks; rows of the longest one */
  atomic_int next, failure;
} Reading;

static void *work_on_chunks(void *argument) {
  Reading *reading = argument;
  join_crew(&reading->crew);
  const Stack *stack = reading->stack;
  size_t p = stack->dim;
  void *room = new_memory(scratch_bytes(stack, reading->longest));
  if (!room) reading->failure = 1;
  for (int i; room && (i = atomic_fetch_add(&reading->next, 1)) < reading->count;) {
    int first = reading->chunks[i], rows = reading->chunks[i + 1] - first;
    float *x = reading->x + first * p;
    EncoderAttention attention = {
        {encoder_self, NULL}, stack, reading->angles, reading->starts + first, reading->ends + first, rows};
    const float *states = run_stack(stack, x, cut_scratch(stack, room, rows), rows, &attention.functions, ALONE);
    if (states != x) memcpy(x, states, rows * p * sizeof *x);
  }
  free(room);
  return NULL;
}

/* Overwrite the vectors x (N, p) of the tokens with the output of the stack. Returns 0, or 1 if memory ran out. */
int read_texts(const Stack *stack, const float *cosines, const float *sines, float *x, const int32_t *starts,
               const int32_t *ends, const int32_t *chunks, int count, int threads) {
  int longest = 0;
  for (int i = 0; i < count; i++) longest = chunks[i + 1] - chunks[i] > longest ? chunks[i + 1] - chunks[i] : longest;
  Reading reading = {NEW_CREW, stack, {cosines, sines}, x, starts, ends, chunks, count, longest, 0, 0};
  run_crew(&reading.crew, work_on_chunks, &reading, least(threads, count));
  return reading.failure;
}

#endif
