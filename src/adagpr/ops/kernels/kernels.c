/* The inner loops of residual PageRank layers: one pass over memory where single operations need several.

   Everything is there twice, in float and in double; `numbers.h` has what both share. No result depends on the number of
   threads: rows are always cut into the same chunks, and what is summed over chunks is added up in their order. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* So many vectors are held at once. */
#define MOST_VECTORS 8
/* A matrix is mapped so many rows and MAP_VECTORS vectors at a time: as many sums as there are registers for. */
#define MAP_ROWS 6
#define OUTER_ROWS 4
/* Zeros are passed over where at most such a share of a chunk is not 0, MARKED_VECTORS vectors at a time. */
#define MOST_MARKED 0.6

#define ROWS_PER_CHUNK 128
/* Rows of a matrix that does not fit into a core's own cache are asked for so many entries before they are needed. Those
   of one that fits into no cache are asked for earlier still, into the second level, which can wait for more of them at
   a time than the first. */
#define NEAR 16
#define FAR 64
#define FAR_BYTES (1 << 24)
#define CACHE_BYTES (1 << 20)
/* What is written into a matrix of so many bytes goes past the caches, which would read it first and not keep it. */
#define STREAM_BYTES (1 << 26)
#define INLINE static inline __attribute__((always_inline))
/* A product is rounded before anything is added to it, wherever its expression is inlined: otherwise compilers choose
   which of several products they round, and kernels that compute the same differ in their last bits. */
#if defined(__AVX512F__)
#define ROUND(value) __asm__("" : "+v"(value))
#elif defined(__x86_64__)
#define ROUND(value) __asm__("" : "+x"(value))
#elif defined(__aarch64__)
#define ROUND(value) __asm__("" : "+w"(value))
#else
#define ROUND(value) __asm__("" : "+m"(value))
#endif
#define UNROLLED(i, count) _Pragma("GCC unroll 8") for (int i = 0; i < (count); i++)

/* A vector is a register of the processor that this is compiled for; BITS has a bit for each element that is not 0. */
#if defined(__AVX__)
#include <immintrin.h>
#endif
#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define MAP_VECTORS 4
#define MARKED_VECTORS 4
#define BITS_float(v) _mm512_cmp_ps_mask((__m512)(v), _mm512_setzero_ps(), _CMP_NEQ_UQ)
#define BITS_double(v) _mm512_cmp_pd_mask((__m512d)(v), _mm512_setzero_pd(), _CMP_NEQ_UQ)
#define STREAM_float(pointer, value) _mm512_stream_ps((pointer), (__m512)(value))
#define STREAM_double(pointer, value) _mm512_stream_pd((pointer), (__m512d)(value))
#define IS_STREAMED(out, num_rows, width)                                                       \
  ((num_rows) * (width) * SIZE > STREAM_BYTES && (uintptr_t)(out) % VECTOR_BYTES == 0 && (width) % LANES == 0)
#define END_OF_STREAM _mm_sfence()
#else
#define MAP_VECTORS 2
#define MARKED_VECTORS 8
#define STREAM_float(pointer, value) PUT(pointer) = (value)
#define STREAM_double(pointer, value) PUT(pointer) = (value)
#define IS_STREAMED(out, num_rows, width) ((void)(width), 0)
#define END_OF_STREAM
#if defined(__AVX__)
#define VECTOR_BYTES 32
#define BITS_float(v) _mm256_movemask_ps(_mm256_cmp_ps((__m256)(v), _mm256_setzero_ps(), _CMP_NEQ_UQ))
#define BITS_double(v) _mm256_movemask_pd(_mm256_cmp_pd((__m256d)(v), _mm256_setzero_pd(), _CMP_NEQ_UQ))
#else
#define VECTOR_BYTES 16
#endif
#endif

/* The constants of a normalisation, in the order of `ops/norms.py`. */
enum { CENTRE, INVERSE, FACTOR, SHIFT, PULL, PUSH, NUM_CONSTANTS };
#define NORM_EPSILON 1e-5

#include "threads.h"

/* Loops without chunks of rows are cut into so many numbers at a time. */
#define NUMBERS_PER_ITEM (1 << 14)

/* Calls BLOCK(vectors) for as many vectors at once as there are left of the width, which is a multiple of one. */
#define ALONG_WIDTH(width, most, BLOCK)                                         \
  int64_t column = 0;                                                           \
  for (; column + (most) * LANES <= (width); column += (most) * LANES) BLOCK(most); \
  for (; column + 2 * LANES <= (width); column += 2 * LANES) BLOCK(2);          \
  for (; column < (width); column += LANES) BLOCK(1);

/* How many chunks the rows of one block have. */
INLINE int64_t chunks_of(int64_t rows_per_block) { return (rows_per_block + ROWS_PER_CHUNK - 1) / ROWS_PER_CHUNK; }

/* The row behind the last one of a chunk. */
INLINE int64_t end_of(int64_t chunk, int64_t num_rows) {
  return (chunk + 1) * ROWS_PER_CHUNK < num_rows ? (chunk + 1) * ROWS_PER_CHUNK : num_rows;
}

/* How many items a loop over numbers has. */
INLINE int64_t items_of(int64_t size) { return (size + NUMBERS_PER_ITEM - 1) / NUMBERS_PER_ITEM; }

/* The number behind the last one of an item. */
INLINE int64_t end_of_item(int64_t item, int64_t size) {
  return (item + 1) * NUMBERS_PER_ITEM < size ? (item + 1) * NUMBERS_PER_ITEM : size;
}

/* Of the sources that this was compiled from, given by `hatch_build.py`: callers load no file from other sources. */
const uint64_t compiled_hash = SOURCE_HASH;

/* For callers that give room for chunks, or for a number of each. */
const int64_t rows_per_chunk = ROWS_PER_CHUNK;

/* The next word of SFC64 (Doty-Humphrey), as NumPy's generator of that name gives it. */
INLINE uint64_t next_word(uint64_t *state) {
  const uint64_t word = state[0] + state[1] + state[3]++;
  state[0] = state[1] ^ (state[1] >> 11);
  state[1] = state[2] + (state[2] << 3);
  state[2] = ((state[2] << 24) | (state[2] >> 40)) + word;
  return word;
}

/* Words that are to be drawn. */
typedef struct {
  uint64_t *state, *words;
  int64_t count;
} draw;

INLINE void draw_words(const draw *wanted) {
  uint64_t state[4];
  for (int i = 0; i < 4; i++) state[i] = wanted->state[i];
  for (int64_t i = 0; i < wanted->count; i++) wanted->words[i] = next_word(state);
  for (int i = 0; i < 4; i++) wanted->state[i] = state[i];
}

/* Transposes 64 words of 64 bits each. */
static void turn_bits(uint64_t *words) {
  uint64_t mask = 0x00000000ffffffff;
  for (int step = 32; step != 0; step >>= 1, mask ^= mask << step)
    for (int first = 0; first < 64; first += 2 * step)
      for (int i = first; i < first + step; i++) {
        const uint64_t swapped = ((words[i] >> step) ^ words[i + step]) & mask;
        words[i] ^= swapped << step;
        words[i + step] ^= swapped;
      }
}

#define root_float sqrtf
#define root_double sqrt

#define REAL float
#define NAME(name) name##_float
#include "numbers.h"
#undef REAL
#undef NAME

#define REAL double
#define NAME(name) name##_double
#include "numbers.h"
#undef REAL
#undef NAME
