/* Threads that divide the items of a loop among themselves.

   The caller takes one item after another, and so do helpers, each as soon as a processor is free for it. The caller waits
   for no helper that has not begun an item: where other processes need the processors, it computes alone, and loses no
   time. OpenMP's loops end at a barrier instead, for which every thread has to be scheduled first; beside one busy process
   they took up to 60 times as long as a single thread. */

typedef void item_function(const void *work, int64_t item);

#ifdef SINGLE_THREADED

#define THREAD 0

static void for_each(int64_t num_items, int64_t num_threads, item_function *function, const void *work) {
  (void)num_threads;
  for (int64_t item = 0; item < num_items; item++) function(work, item);
}

#else

#include <pthread.h>
#include <signal.h>

#define MOST_HELPERS 255
/* Who waits looks so many times before it sleeps: to wake a thread takes longer than most items. */
#define LOOKS 2000
/* In the place of the next item while there is none. */
#define NO_ITEM 0xffffffffu

/* Fields without a lock are read and written atomically. */
static struct {
  /* The number of the loop in the upper half, which differs in every loop, and its next item in the lower half. */
  uint64_t next;
  item_function *function;
  const void *work;
  int64_t num_items, num_threads, num_done, num_helpers, num_asleep, is_taken, is_awaited;
  pthread_mutex_t mutex;
  pthread_cond_t loop_begins, items_are_done;
} pool = {.next = NO_ITEM, .mutex = PTHREAD_MUTEX_INITIALIZER, .loop_begins = PTHREAD_COND_INITIALIZER,
          .items_are_done = PTHREAD_COND_INITIALIZER};

/* The number of this thread: 0 for callers. */
static __thread int64_t thread_number;
#define THREAD thread_number

#define READ(field) __atomic_load_n(&pool.field, __ATOMIC_SEQ_CST)
#define WRITE(field, value) __atomic_store_n(&pool.field, (value), __ATOMIC_SEQ_CST)

INLINE void look_again(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

/* Computes items of the current loop until none is left; returns how many. */
static int64_t take_items(void) {
  int64_t count = 0;
  uint64_t next = READ(next);
  for (;;) {
    /* If these are of another loop than `next`, that has changed, and no item is taken. */
    item_function *function = READ(function);
    const void *work = READ(work);
    const int64_t item = next & NO_ITEM;
    if (item >= READ(num_items) || THREAD >= READ(num_threads)) return count;
    if (!__atomic_compare_exchange_n(&pool.next, &next, next + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) continue;
    function(work, item);
    count++;
    if (THREAD > 0) {
      /* Before it is counted: once all are, the caller may begin another loop. */
      const int64_t num_items = READ(num_items);
      if (__atomic_add_fetch(&pool.num_done, 1, __ATOMIC_SEQ_CST) == num_items && READ(is_awaited)) {
        pthread_mutex_lock(&pool.mutex);
        pthread_cond_signal(&pool.items_are_done);
        pthread_mutex_unlock(&pool.mutex);
      }
    }
    next = READ(next);
  }
}

static void *help(void *number) {
  thread_number = (intptr_t)number;
  for (;;) {
    const uint64_t loop = READ(next) >> 32;
    take_items();
    for (int look = 0; look < LOOKS && READ(next) >> 32 == loop; look++) look_again();
    if (READ(next) >> 32 != loop) continue;
    pthread_mutex_lock(&pool.mutex);
    WRITE(num_asleep, READ(num_asleep) + 1);
    while (READ(next) >> 32 == loop) pthread_cond_wait(&pool.loop_begins, &pool.mutex);
    WRITE(num_asleep, READ(num_asleep) - 1);
    pthread_mutex_unlock(&pool.mutex);
  }
  return NULL;
}

/* The child of a fork has no helpers; they may have held the lock. */
static void begin_anew(void) {
  pool.next |= NO_ITEM;
  pool.num_helpers = pool.num_asleep = pool.is_taken = pool.is_awaited = 0;
  pthread_mutex_init(&pool.mutex, NULL);
  pthread_cond_init(&pool.loop_begins, NULL);
  pthread_cond_init(&pool.items_are_done, NULL);
}

static void start_helpers(int64_t count) {
  static int is_registered = 0;
  if (!is_registered) is_registered = pthread_atfork(NULL, NULL, begin_anew) == 0;
  sigset_t all, before;
  sigfillset(&all);
  /* Signals are for the caller's threads. */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (pool.num_helpers < count && pool.num_helpers < MOST_HELPERS) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, help, (void *)(intptr_t)(pool.num_helpers + 1)) != 0) break;
    pthread_detach(thread);
    pool.num_helpers++;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Calls the function for all items, from 0, each once, on up to so many threads. */
static void for_each(int64_t num_items, int64_t num_threads, item_function *function, const void *work) {
  /* Where another thread of the program computes with the helpers, this one computes alone. */
  if (num_threads < 2 || num_items < 2 || num_items >= NO_ITEM || __atomic_exchange_n(&pool.is_taken, 1, __ATOMIC_SEQ_CST)) {
    for (int64_t item = 0; item < num_items; item++) function(work, item);
    return;
  }
  if (pool.num_helpers < num_threads - 1) start_helpers(num_threads - 1);
  const uint64_t loop = (READ(next) >> 32) + 1;
  WRITE(function, function), WRITE(work, work), WRITE(num_items, num_items), WRITE(num_threads, num_threads);
  WRITE(num_done, 0);
  WRITE(next, loop << 32);
  if (READ(num_asleep) > 0) {
    pthread_mutex_lock(&pool.mutex);
    pthread_cond_broadcast(&pool.loop_begins);
    pthread_mutex_unlock(&pool.mutex);
  }
  const int64_t own = take_items();
  __atomic_add_fetch(&pool.num_done, own, __ATOMIC_SEQ_CST);
  for (int look = 0; look < LOOKS && READ(num_done) < num_items; look++) look_again();
  if (READ(num_done) < num_items) {
    pthread_mutex_lock(&pool.mutex);
    WRITE(is_awaited, 1);
    while (READ(num_done) < num_items) pthread_cond_wait(&pool.items_are_done, &pool.mutex);
    WRITE(is_awaited, 0);
    pthread_mutex_unlock(&pool.mutex);
  }
  /* The fields are written next only while nobody can take an item. */
  WRITE(next, READ(next) | NO_ITEM);
  WRITE(is_taken, 0);
}

#undef READ
#undef WRITE

#endif
