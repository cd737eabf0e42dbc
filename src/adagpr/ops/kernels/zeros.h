/* Included once for each type of number, before `maps.h`: products with a matrix most of whose elements are 0, as the
   gradient behind ReLU and dropout is. What is 0 is passed over; the rest is added up in the order of the products that
   do not look, so that the bits are theirs. */

#ifndef BITS_float
INLINE uint64_t NAME(BITS)(VEC values) {
  uint64_t bits = 0;
  for (int i = 0; i < LANES; i++) bits |= (uint64_t)(values[i] != 0) << i;
  return bits;
}
#endif

/* Marks the elements of some rows that are not 0: bit b of word w of a row is that of its column 64 w + b. Returns
   whether they are so few that the others had better be passed over. In narrow rows that never pays. */
INLINE int NAME(mark)(int64_t rows, int64_t width, const REAL *z, uint64_t *marks) {
  const int64_t words = (width + 63) / 64;
  int64_t found = 0;
  if (width < MARKED_VECTORS * LANES) return 0;
  for (int64_t row = 0; row < rows; row++)
    for (int64_t word = 0; word < words; word++) {
      const REAL *from = z + row * width + 64 * word;
      const int64_t count = width - 64 * word < 64 ? width - 64 * word : 64;
      uint64_t bits = 0;
      for (int64_t i = 0; i < count; i += LANES) bits |= (uint64_t)NAME(BITS)(GET(from + i)) << i;
      marks[row * words + word] = bits;
      found += __builtin_popcountll(bits);
    }
  return found < MOST_MARKED * rows * width;
}

/* sum + the rows of `block` that have a bit, each times its own of `values`, in so many vectors. */
INLINE void NAME(add_marked)(uint64_t bits, const REAL *values, int64_t step, const REAL *block, int64_t stride,
                             REAL *sum, int count) {
  VEC held[MARKED_VECTORS];
#pragma GCC unroll 8
  for (int v = 0; v < count; v++) held[v] = GET(sum + v * LANES);
  for (; bits != 0; bits &= bits - 1) {
    const int64_t k = __builtin_ctzll(bits);
    const REAL value = values[k * step], *from = block + k * stride;
#pragma GCC unroll 8
    for (int v = 0; v < count; v++) held[v] += value * GET(from + v * LANES);
  }
#pragma GCC unroll 8
  for (int v = 0; v < count; v++) PUT(sum + v * LANES) = held[v];
}

/* Up to 64 rows of some vectors of a matrix, where they all fit into the first cache: those of a wide one are copied. */
INLINE const REAL *NAME(block_of)(int64_t rows, int64_t width, const REAL *from, REAL *room, int count) {
  if (width <= MARKED_VECTORS * LANES) return from;
  for (int64_t row = 0; row < rows; row++)
    for (int v = 0; v < count; v++) PUT(room + (row * count + v) * LANES) = GET(from + row * width + v * LANES);
  return room;
}

#define STRIDE(count) (width <= MARKED_VECTORS * LANES ? width : (count) * LANES)

/* out = out + z m for up to a chunk of rows. */
INLINE void NAME(map_marked)(int64_t rows, int64_t width, const REAL *z, const uint64_t *marks, const REAL *m, REAL *out) {
  const int64_t words = (width + 63) / 64;
  REAL room[64 * MARKED_VECTORS * LANES] __attribute__((aligned(64)));
  for (int64_t word = 0; word < words; word++) {
    const int64_t depth = width - 64 * word < 64 ? width - 64 * word : 64;
#define BLOCK(count)                                                                                            \
  do {                                                                                                          \
    const REAL *block = NAME(block_of)(depth, width, m + 64 * word * width + column, room, count);             \
    for (int64_t row = 0; row < rows; row++)                                                                    \
      NAME(add_marked)(marks[row * words + word], z + row * width + 64 * word, 1, block, STRIDE(count),         \
                       out + row * width + column, count);                                                      \
  } while (0)
    ALONG_WIDTH(width, MARKED_VECTORS, BLOCK)
#undef BLOCK
  }
}

/* sum = sum + z^T s for up to a chunk of rows. */
INLINE void NAME(outer_marked)(int64_t rows, int64_t width, const REAL *z, const uint64_t *marks, const REAL *s, REAL *sum) {
  const int64_t words = (width + 63) / 64;
  REAL room[64 * MARKED_VECTORS * LANES] __attribute__((aligned(64)));
  for (int64_t first = 0; first < rows; first += 64) {
    const int64_t depth = rows - first < 64 ? rows - first : 64;
    uint64_t of_columns[words * 64];
    for (int64_t word = 0; word < words; word++) {
      uint64_t *bits = of_columns + 64 * word;
      for (int64_t row = 0; row < 64; row++) bits[row] = row < depth ? marks[(first + row) * words + word] : 0;
      turn_bits(bits);
    }
#define BLOCK(count)                                                                                            \
  do {                                                                                                          \
    const REAL *block = NAME(block_of)(depth, width, s + first * width + column, room, count);                 \
    for (int64_t k = 0; k < width; k++)                                                                         \
      NAME(add_marked)(of_columns[k], z + first * width + k, width, block, STRIDE(count), sum + k * width + column, count); \
  } while (0)
    ALONG_WIDTH(width, MARKED_VECTORS, BLOCK)
#undef BLOCK
  }
}

#undef STRIDE
