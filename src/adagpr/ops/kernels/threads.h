/* Threads that divide the items of a loop among themselves.

   The caller takes items from the front, and helpers take them from the back, each as soon as a processor is free for it:
   so a processor finds in its caches what it computed in the loop before. Each takes a share of what is left, less and
   less of it, so that all end together. The caller waits for no helper that has not begun: where other processes need the
   processors, it computes alone, and loses no time. OpenMP's loops end at a barrier instead, for which every thread has to
   be scheduled first; beside one busy process they took up to 60 times as long as a single thread. */

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
/* Items are taken in groups, of one where there are not more items than this. */
#define MOST_GROUPS 0xffffu

/* Fields without a lock are read and written atomically. */
static struct {
  /* What is left: the number of the loop in the upper half, then the end of its groups, then the first of them. */
  uint64_t left;
  item_function *function;
  const void *work;
  int64_t num_items, items_per_group, num_threads, num_done, num_helpers, num_asleep, is_taken, is_awaited;
  pthread_mutex_t mutex;
  pthread_cond_t loop_begins, items_are_done;
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER, .loop_begins = PTHREAD_COND_INITIALIZER,
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

INLINE uint64_t loop_of(uint64_t left) { return left >> 32; }

/* Computes items of the current loop until none is left; returns how many. */
static int64_t take_items(void) {
  int64_t count = 0;
  uint64_t left = READ(left);
  for (;;) {
    /* If these are of another loop than `left`, that has changed, and nothing is taken. */
    item_function *function = READ(function);
    const void *work = READ(work);
    const int64_t num_items = READ(num_items), size = READ(items_per_group), num_threads = READ(num_threads);
    const int64_t begin = left & MOST_GROUPS, end = left >> 16 & MOST_GROUPS;
    if (begin >= end || THREAD >= num_threads) return count;
    const int64_t share = (end - begin) / (2 * num_threads), taken = share > 1 ? share : 1;
    const uint64_t then = THREAD == 0 ? left + taken : left - ((uint64_t)taken << 16);
    if (!__atomic_compare_exchange_n(&pool.left, &left, then, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) continue;
    const int64_t first = (THREAD == 0 ? begin : end - taken) * size;
    const int64_t last = first + taken * size < num_items ? first + taken * size : num_items;
    for (int64_t item = first; item < last; item++) function(work, item);
    count += last - first;
    /* The fields hold for this loop until its items are counted: once all are, the caller may begin another. */
    if (THREAD > 0 && __atomic_add_fetch(&pool.num_done, last - first, __ATOMIC_SEQ_CST) == num_items && READ(is_awaited)) {
      pthread_mutex_lock(&pool.mutex);
      pthread_cond_signal(&pool.items_are_done);
      pthread_mutex_unlock(&pool.mutex);
    }
    left = READ(left);
  }
}

static void *help(void *number) {
  thread_number = (intptr_t)number;
  for (;;) {
    const uint64_t loop = loop_of(READ(left));
    take_items();
    for (int look = 0; look < LOOKS && loop_of(READ(left)) == loop; look++) look_again();
    if (loop_of(READ(left)) != loop) continue;
    pthread_mutex_lock(&pool.mutex);
    WRITE(num_asleep, READ(num_asleep) + 1);
    while (loop_of(READ(left)) == loop) pthread_cond_wait(&pool.loop_begins, &pool.mutex);
    WRITE(num_asleep, READ(num_asleep) - 1);
    pthread_mutex_unlock(&pool.mutex);
  }
  return NULL;
}

/* The child of a fork has no helpers; they may have held the lock. */
static void begin_anew(void) {
  pool.left = loop_of(pool.left) << 32;
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

/* Calls the function once for each item, on up to so many threads. */
static void for_each(int64_t num_items, int64_t num_threads, item_function *function, const void *work) {
  /* Where another thread of the program computes with the helpers, this one computes alone. */
  if (num_threads < 2 || num_items < 2 || __atomic_exchange_n(&pool.is_taken, 1, __ATOMIC_SEQ_CST)) {
    for (int64_t item = 0; item < num_items; item++) function(work, item);
    return;
  }
  if (pool.num_helpers < num_threads - 1) start_helpers(num_threads - 1);
  const int64_t size = (num_items + MOST_GROUPS - 1) / MOST_GROUPS;
  const uint64_t loop = loop_of(READ(left)) + 1, num_groups = (num_items + size - 1) / size;
  WRITE(function, function), WRITE(work, work), WRITE(num_threads, num_threads);
  WRITE(num_items, num_items), WRITE(items_per_group, size), WRITE(num_done, 0);
  WRITE(left, loop << 32 | num_groups << 16);
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
  WRITE(is_taken, 0);
}

#undef READ
#undef WRITE

#endif
