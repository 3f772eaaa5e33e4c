/* Threads that share the work of a call: each takes its share of the items, and they meet before the next operation. */
#ifndef REGARD_THREADS
#define REGARD_THREADS
#include <pthread.h>
#include <stdatomic.h>
#if defined(_OPENMP)
#include <omp.h>
#endif

enum { PATIENCE = 20000 };  /* spins, about ten microseconds */
typedef struct {
  atomic_int arrived, phase;
  pthread_mutex_t lock;
  pthread_cond_t changed;
} Meeting;
#define NEW_MEETING {0, 0, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER}

typedef struct { int number, threads; Meeting *place; } Thread;
static const Thread ALONE = {0, 1, NULL};

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
   threads share a core, the first one would spin for milliseconds and keep the second one from running. Here a thread
   spins for some microseconds and then sleeps. */
static inline void meet(Thread t) {
  if (t.threads == 1) return;
  Meeting *m = t.place;
  int phase = atomic_load(&m->phase);
  if (atomic_fetch_add(&m->arrived, 1) == t.threads - 1) {
    atomic_store(&m->arrived, 0);
    pthread_mutex_lock(&m->lock);
    atomic_store(&m->phase, phase + 1);
    pthread_mutex_unlock(&m->lock);
    pthread_cond_broadcast(&m->changed);
    return;
  }
  for (int looks = 0; looks < PATIENCE; looks++)
    if (atomic_load_explicit(&m->phase, memory_order_acquire) != phase) return;
  pthread_mutex_lock(&m->lock);
  while (atomic_load(&m->phase) == phase) pthread_cond_wait(&m->changed, &m->lock);
  pthread_mutex_unlock(&m->lock);
}

/* Threads of one call. A new thread costs some 20 microseconds and, unlike those of a pool, nothing between calls. */
typedef struct {
  Meeting meeting;
  pthread_mutex_t gate;  /* closed until it is known how many threads there are */
  int threads;
  atomic_int arrived;
} Crew;
#define NEW_CREW {NEW_MEETING, PTHREAD_MUTEX_INITIALIZER, 1, 0}

/* What each thread of a crew calls first. */
static inline Thread join_crew(Crew *crew) {
  pthread_mutex_lock(&crew->gate);
  int threads = crew->threads;
  pthread_mutex_unlock(&crew->gate);
  return (Thread){atomic_fetch_add(&crew->arrived, 1), threads, &crew->meeting};
}

/* Call `work` on this thread and on up to threads - 1 new ones, and wait for all of them. */
static inline void run_crew(Crew *crew, void *(*work)(void *), void *argument, int threads) {
  pthread_t others[threads];
  int started = 0;
  pthread_mutex_lock(&crew->gate);
  while (started < threads - 1 && !pthread_create(&others[started], NULL, work, argument)) started++;
  crew->threads = started + 1;
  pthread_mutex_unlock(&crew->gate);
  work(argument);
  for (int i = 0; i < started; i++) pthread_join(others[i], NULL);
}

#endif
