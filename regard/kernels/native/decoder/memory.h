/* Memory that batches use one after the other. The system gives out new memory by page faults, one for every 4 KB, which
   took a fifteenth of the time of a batch; so some of what a batch returns is kept for the next ones.
*/
#ifndef REGARD_MEMORY
#define REGARD_MEMORY
#include <pthread.h>

#include "../common.h"

enum { MAX_KEPT = 32 };
#define MAX_KEPT_BYTES ((size_t)1 << 26)

typedef struct { void *place; size_t bytes; } Memory;

static struct {
  pthread_mutex_t lock;
  Memory blocks[MAX_KEPT];
  int count;
  size_t bytes;
} kept = {PTHREAD_MUTEX_INITIALIZER, {{0}}, 0, 0};

/* At least so many bytes: the smallest kept block that is large enough but not much too large, or new memory. The place
   is NULL if there is none. */
static Memory take_memory(size_t bytes) {
  int best = -1;
  pthread_mutex_lock(&kept.lock);
  for (int i = 0; i < kept.count; i++) {
    size_t room = kept.blocks[i].bytes;
    if (room >= bytes && room <= 4 * bytes && (best < 0 || room < kept.blocks[best].bytes)) best = i;
  }
  Memory memory = {NULL, bytes};
  if (best >= 0) {
    memory = kept.blocks[best];
    kept.blocks[best] = kept.blocks[--kept.count];
    kept.bytes -= memory.bytes;
  }
  pthread_mutex_unlock(&kept.lock);
  if (!memory.place) memory.place = new_memory(bytes);
  return memory;
}

static void return_memory(Memory memory) {
  if (!memory.place) return;
  pthread_mutex_lock(&kept.lock);
  int has_room = kept.count < MAX_KEPT && kept.bytes + memory.bytes <= MAX_KEPT_BYTES;
  if (has_room) kept.blocks[kept.count++] = memory, kept.bytes += memory.bytes;
  pthread_mutex_unlock(&kept.lock);
  if (!has_room) free(memory.place);
}

#endif
