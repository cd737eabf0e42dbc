/* Included once for each type of number: dense maps, ReLU and dropout. */

/* In place: what is negative becomes 0, and so does what has a word below the threshold; NaN stays. */
INLINE void NAME(relu_drop_part)(int64_t size, REAL *restrict x, const uint16_t *restrict words, int threshold) {
  if (words == NULL)
    for (int64_t i = 0; i < size; i++) x[i] = x[i] <= 0 ? 0 : x[i];
  else
    for (int64_t i = 0; i < size; i++) x[i] = (x[i] <= 0) | (words[i] < threshold) ? 0 : x[i];
}

static void NAME(relu_drop_item)(const void *work, int64_t item) {
  const NAME(relu_drop_arguments) *a = work;
  const int64_t at = item * NUMBERS_PER_ITEM, size = end_of_item(item, a->size) - at;
  NAME(relu_drop_part)(size, a->x + at, a->words == NULL ? NULL : a->words + at, (int)a->threshold);
}

void NAME(relu_drop)(const NAME(relu_drop_arguments) *a) {
  for_each(items_of(a->size), a->num_threads, NAME(relu_drop_item), a);
}

/* Writes a part of a large matrix past the caches; see STREAM_BYTES. */
INLINE void NAME(stream)(int64_t size, const REAL *from, REAL *to) {
  for (int64_t i = 0; i < size; i += LANES) NAME(STREAM)(to + i, GET(from + i));
  END_OF_STREAM;
}

/* out = factor * x where y is positive, else 0. */
typedef struct {
  int64_t size;
  const REAL *x, *y;
  REAL factor, *out;
} NAME(masked);

static void NAME(mask_item)(const void *work, int64_t item) {
  const NAME(masked) *a = work;
  const REAL *restrict x = a->x, *restrict y = a->y, factor = a->factor;
  REAL *restrict out = a->out;
  for (int64_t i = item * NUMBERS_PER_ITEM; i < end_of_item(item, a->size); i++) out[i] = y[i] > 0 ? x[i] * factor : 0;
}

/* One step of `drop`: the words for the next are drawn first, by one thread, while the others use its own. */
typedef struct {
  const NAME(drop_arguments) *a;
  const uint16_t *words;
  int64_t at, end;
  draw ahead;
} NAME(drop_step);

static void NAME(drop_item)(const void *work, int64_t item) {
  const NAME(drop_step) *step = work;
  if (item == 0) {
    draw_words(&step->ahead);
    return;
  }
  const int64_t size = step->end - step->at;
  const int threshold = (int)step->a->threshold;
  const REAL factor = (REAL)step->a->scale, *restrict x = step->a->x + step->at;
  const uint16_t *restrict words = step->words;
  REAL *restrict out = step->a->out + step->at;
  for (int64_t i = (item - 1) * NUMBERS_PER_ITEM; i < end_of_item(item - 1, size); i++)
    out[i] = words[i] < threshold ? 0 : x[i] * factor;
}

void NAME(drop)(const NAME(drop_arguments) *a) {
  const int64_t size = a->size, step = a->step;
  draw ahead = {a->state, a->words, (size < step ? size + 3 : step) / 4};
  draw_words(&ahead);
  for (int64_t at = 0; at < size; at += step) {
    const int64_t end = at + step < size ? at + step : size;
    const uint16_t *words = (const uint16_t *)ahead.words;
    ahead.words = a->words + (at / step + 1) % 2 * step / 4;
    ahead.count = (size - end < step ? size - end + 3 : step) / 4;
    if (end == size) ahead.count = 0;
    const NAME(drop_step) work = {a, words, at, end, ahead};
    for_each(1 + items_of(end - at), a->num_threads, NAME(drop_item), &work);
  }
}

static void NAME(transpose_item)(const void *work, int64_t item) {
  const NAME(drop_values_arguments) *a = work;
  const REAL *kept = a->kept;
  for (int64_t i = item * NUMBERS_PER_ITEM; i < end_of_item(item, a->size); i++) a->transposed[i] = kept[a->order[i]];
}

void NAME(drop_values)(const NAME(drop_values_arguments) *a) {
  const int64_t size = a->size;
  const int threshold = (int)a->threshold;
  const REAL factor = (REAL)a->scale, *values = a->values;
  const uint16_t *words = a->words;
  REAL *kept = a->kept;
  for (int64_t i = 0; i < size; i++) kept[i] = words[i] < threshold ? 0 : values[i] * factor;
  for_each(items_of(size), a->num_threads, NAME(transpose_item), a);
}

/* A step of Adam for some numbers. */
static void NAME(adam_part)(int64_t size, REAL *restrict p, const REAL *restrict g, REAL *restrict m, REAL *restrict v,
                            REAL decay, REAL rate, REAL root, REAL beta_1, REAL beta_2, REAL epsilon) {
  for (int64_t i = 0; i < size; i++) {
    const REAL gradient = g[i] + decay * p[i];
    m[i] = beta_1 * m[i] + (1 - beta_1) * gradient;
    v[i] = beta_2 * v[i] + (1 - beta_2) * gradient * gradient;
    p[i] -= rate * m[i] / (NAME(root)(v[i]) * root + epsilon);
  }
}

/* An array of `adam`. */
typedef struct {
  const NAME(adam_arguments) *a;
  int64_t number;
} NAME(adam_array);

static void NAME(adam_item)(const void *work, int64_t item) {
  const NAME(adam_arguments) *a = ((const NAME(adam_array) *)work)->a;
  const int64_t number = ((const NAME(adam_array) *)work)->number;
  const int64_t at = item * NUMBERS_PER_ITEM, size = end_of_item(item, a->sizes[number]) - at;
  NAME(adam_part)(size, a->parameters[number] + at, a->gradients[number] + at, a->means[number] + at,
                  a->squares[number] + at, (REAL)a->decays[number], (REAL)a->rates[number], (REAL)a->roots[number],
                  (REAL)a->beta_1, (REAL)a->beta_2, (REAL)a->epsilon);
}

void NAME(adam)(const NAME(adam_arguments) *a) {
  for (int64_t number = 0; number < a->count; number++)
    for_each(items_of(a->sizes[number]), a->num_threads, NAME(adam_item), &(NAME(adam_array)){a, number});
}

/* Some rows of s times a square matrix m, in so many vectors of columns; with `adds` onto what is there. */
INLINE void NAME(map_tile)(const REAL *s, const REAL *m, int64_t width, int64_t column, REAL *out, int rows, int count,
                           int adds) {
  VEC sum[MAP_ROWS][MAP_VECTORS];
  UNROLLED(r, rows)
    UNROLLED(v, count) {
      sum[r][v] = (VEC){0};
      if (adds) sum[r][v] = GET(out + r * width + column + v * LANES);
    }
  for (int64_t k = 0; k < width; k++) {
    VEC of_m[MAP_VECTORS];
    UNROLLED(v, count) of_m[v] = GET(m + k * width + column + v * LANES);
    UNROLLED(r, rows) {
      const REAL value = s[r * width + k];
      UNROLLED(v, count) sum[r][v] += value * of_m[v];
    }
  }
  UNROLLED(r, rows)
    UNROLLED(v, count) PUT(out + r * width + column + v * LANES) = sum[r][v];
}

INLINE void NAME(map_columns)(const REAL *s, const REAL *m, int64_t width, int64_t column, REAL *out, int64_t rows,
                              int count, int adds) {
  int64_t row = 0;
  for (; row + MAP_ROWS <= rows; row += MAP_ROWS)
    NAME(map_tile)(s + row * width, m, width, column, out + row * width, MAP_ROWS, count, adds);
  for (; row < rows; row++) NAME(map_tile)(s + row * width, m, width, column, out + row * width, 1, count, adds);
}

/* out = s m for the rows of a chunk, or with `adds` out = out + s m. */
INLINE void NAME(map_rows)(int64_t rows, int64_t width, const REAL *s, const REAL *m, REAL *out, int adds) {
#define BLOCK(count) NAME(map_columns)(s, m, width, column, out, rows, count, adds)
  ALONG_WIDTH(width, MAP_VECTORS, BLOCK)
#undef BLOCK
}

static void NAME(multiply_square_chunk)(const void *work, int64_t chunk) {
  const NAME(multiply_square_arguments) *a = work;
  const int64_t first = chunk * ROWS_PER_CHUNK, at = first * a->width;
  NAME(map_rows)(end_of(chunk, a->num_rows) - first, a->width, a->s + at, a->m, a->out + at, (int)a->adds);
}

void NAME(multiply_square)(const NAME(multiply_square_arguments) *a) {
  for_each(chunks_of(a->num_rows), a->num_threads, NAME(multiply_square_chunk), a);
}

/* Adds s^T z over some rows to some rows and vectors of a square matrix. */
INLINE void NAME(outer_tile)(const REAL *s, const REAL *z, int64_t width, int64_t rows, REAL *sum, int count) {
  VEC held[OUTER_ROWS][MAP_VECTORS];
  UNROLLED(r, OUTER_ROWS)
    UNROLLED(v, count) held[r][v] = GET(sum + r * width + v * LANES);
  for (int64_t row = 0; row < rows; row++) {
    VEC of_z[MAP_VECTORS];
    UNROLLED(v, count) of_z[v] = GET(z + row * width + v * LANES);
    UNROLLED(r, OUTER_ROWS) {
      const REAL value = s[row * width + r];
      UNROLLED(v, count) held[r][v] += value * of_z[v];
    }
  }
  UNROLLED(r, OUTER_ROWS)
    UNROLLED(v, count) PUT(sum + r * width + v * LANES) = held[r][v];
}

/* Products with a matrix most of whose elements are 0, as the gradient behind ReLU and dropout is. What is 0 is passed
   over; the rest is added up in the order of the products that do not look, so that the bits are theirs. */

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

/* The rows of `block` that have a bit, each times its own of `values`, in so many vectors, added to `sum` if it `adds`;
   or two such sums at once, `block_gap` and `sum_gap` numbers apart. */
INLINE void NAME(add_marked)(uint64_t bits, const REAL *values, int64_t step, const REAL *block, int64_t stride,
                             int64_t block_gap, REAL *sum, int64_t sum_gap, int count, int maps, int adds) {
  VEC held[2][MARKED_VECTORS];
  UNROLLED(m, maps)
    UNROLLED(v, count) {
      held[m][v] = (VEC){0};
      if (adds) held[m][v] = GET(sum + m * sum_gap + v * LANES);
    }
  for (; bits != 0; bits &= bits - 1) {
    const int64_t k = __builtin_ctzll(bits);
    const REAL value = values[k * step], *from = block + k * stride;
    UNROLLED(m, maps)
      UNROLLED(v, count) held[m][v] += value * GET(from + m * block_gap + v * LANES);
  }
  UNROLLED(m, maps)
    UNROLLED(v, count) PUT(sum + m * sum_gap + v * LANES) = held[m][v];
}

/* Up to 64 rows of some vectors of a matrix, or of two, where they all fit into the first cache: those of a wide one are
   copied. `gap` is how far apart two are. */
INLINE const REAL *NAME(block_of)(int64_t rows, int64_t width, const REAL *from, REAL *room, int count, int maps,
                                  int64_t *gap) {
  if (width <= MARKED_VECTORS * LANES) return from;
  const int64_t size = rows * count * LANES;
  for (int m = 0; m < maps; m++)
    for (int64_t row = 0; row < rows; row++)
      for (int v = 0; v < count; v++)
        PUT(room + m * size + (row * count + v) * LANES) = GET(from + m * *gap + row * width + v * LANES);
  *gap = size;
  return room;
}

#define STRIDE(count) (width <= MARKED_VECTORS * LANES ? width : (count) * LANES)
/* So many vectors of one matrix at a time, or of each of two. */
#define MARKED_AT_ONCE(maps) ((maps) == 1 ? MARKED_VECTORS : 4)

/* out = z m for up to a chunk of rows, or with `adds` out = out + z m; or the same for two maps and results. */
INLINE void NAME(map_marked)(int64_t rows, int64_t width, const REAL *z, const uint64_t *marks, const REAL *m,
                             int64_t m_gap, REAL *out, int64_t out_gap, int maps, int adds) {
  const int64_t words = (width + 63) / 64;
  REAL room[2 * 64 * MARKED_VECTORS * LANES] __attribute__((aligned(64)));
  for (int64_t word = 0; word < words; word++, adds = 1) {
    const int64_t depth = width - 64 * word < 64 ? width - 64 * word : 64;
#define BLOCK(count)                                                                                                  \
  do {                                                                                                                \
    int64_t gap = m_gap;                                                                                              \
    const REAL *block = NAME(block_of)(depth, width, m + 64 * word * width + column, room, count, maps, &gap);        \
    for (int64_t row = 0; row < rows; row++)                                                                          \
      NAME(add_marked)(marks[row * words + word], z + row * width + 64 * word, 1, block, STRIDE(count), gap,          \
                       out + row * width + column, out_gap, count, maps, adds);                                       \
  } while (0)
    ALONG_WIDTH(width, MARKED_AT_ONCE(maps), BLOCK)
#undef BLOCK
  }
}

/* sum = sum + z^T s for up to a chunk of rows; or the same for two s and sums. */
INLINE void NAME(outer_marked)(int64_t rows, int64_t width, const REAL *z, const uint64_t *marks, const REAL *s,
                               int64_t s_gap, REAL *sum, int64_t sum_gap, int maps) {
  const int64_t words = (width + 63) / 64;
  REAL room[2 * 64 * MARKED_VECTORS * LANES] __attribute__((aligned(64)));
  for (int64_t first = 0; first < rows; first += 64) {
    const int64_t depth = rows - first < 64 ? rows - first : 64;
    uint64_t of_columns[words * 64];
    for (int64_t word = 0; word < words; word++) {
      uint64_t *bits = of_columns + 64 * word;
      for (int64_t row = 0; row < 64; row++) bits[row] = row < depth ? marks[(first + row) * words + word] : 0;
      turn_bits(bits);
    }
#define BLOCK(count)                                                                                                  \
  do {                                                                                                                \
    int64_t gap = s_gap;                                                                                              \
    const REAL *block = NAME(block_of)(depth, width, s + first * width + column, room, count, maps, &gap);            \
    for (int64_t k = 0; k < width; k++)                                                                               \
      NAME(add_marked)(of_columns[k], z + first * width + k, width, block, STRIDE(count), gap,                        \
                       sum + k * width + column, sum_gap, count, maps, 1);                                            \
  } while (0)
    ALONG_WIDTH(width, MARKED_AT_ONCE(maps), BLOCK)
#undef BLOCK
  }
}

#undef STRIDE
#undef MARKED_AT_ONCE

/* sum = sum + z^T s for up to a chunk of rows. */
INLINE void NAME(outer_rows)(int64_t rows, int64_t width, const REAL *z, const REAL *s, REAL *sum) {
#define BLOCK(count)                                   \
  for (int64_t row = 0; row < width; row += OUTER_ROWS) \
  NAME(outer_tile)(z + row, s + column, width, rows, sum + row * width + column, count)
  ALONG_WIDTH(width, MAP_VECTORS, BLOCK)
#undef BLOCK
}

static void NAME(outer_segment)(const void *work, int64_t segment) {
  const NAME(outer_arguments) *a = work;
  const int64_t num_rows = a->num_rows, width = a->width, num_segments = a->num_segments;
  const REAL *s = a->s, *z = a->z, *m = a->m;
  REAL *mapped = a->mapped, *room = a->room;
  const int is_streamed = (int)a->is_streamed, adds = (int)a->adds;
  const int64_t chunks = chunks_of(num_rows), square = width * width;
  uint64_t marks[ROWS_PER_CHUNK * ((width + 63) / 64)];
  REAL *sum = a->partial + segment * square;
  for (int64_t i = 0; i < square; i++) sum[i] = 0;
  for (int64_t chunk = segment * chunks / num_segments; chunk < (segment + 1) * chunks / num_segments; chunk++) {
    const int64_t first = chunk * ROWS_PER_CHUNK * width, rows = end_of(chunk, num_rows) - chunk * ROWS_PER_CHUNK;
    const int is_marked = NAME(mark)(rows, width, z + first, marks);
    if (is_marked) {
      NAME(outer_marked)(rows, width, z + first, marks, s + first, 0, sum, 0, 1);
    } else {
      NAME(outer_rows)(rows, width, z + first, s + first, sum);
    }
    if (m == NULL) continue;
    REAL *to = is_streamed ? room + THREAD * ROWS_PER_CHUNK * width : mapped + first;
    if (is_marked) {
      NAME(map_marked)(rows, width, z + first, marks, m, 0, to, 0, 1, adds);
    } else {
      NAME(map_rows)(rows, width, z + first, m, to, adds);
    }
    if (is_streamed) NAME(stream)(rows * width, to, mapped + first);
  }
}

void NAME(outer)(const NAME(outer_arguments) *a) {
  const int64_t width = a->width, num_segments = a->num_segments, square = width * width;
  REAL *out = a->out, *partial = a->partial;
  for_each(num_segments, a->num_threads, NAME(outer_segment), a);
  for (int64_t segment = 1; segment < num_segments; segment++)
    for (int64_t i = 0; i < square; i++) partial[i] += partial[segment * square + i];
  for (int64_t row = 0; row < width; row++)
    for (int64_t column = 0; column < width; column++) out[row * width + column] = partial[column * width + row];
}
