/* Included once for each type of number, after `maps.h`: normalisation of columns, or of rows, and its gradient; see
   `ops/norms.py`. Sums over the rows of a chunk are those of REAL, sums over chunks those of double, in their order. */

/* Calls BLOCK(vectors) for as many vectors of columns at once as have two sums each in registers. */
#define SUM_VECTORS 4

/* The sum of each column over some rows, and that of the squares about its mean over these: with the mean of REAL first,
   then with what it is wrong by. */
INLINE void NAME(moments_tile)(int64_t rows, int64_t width, const REAL *z, int64_t column, int count, double *sums) {
  VEC sum[2][SUM_VECTORS], square[2][SUM_VECTORS], mean[SUM_VECTORS];
  UNROLLED(v, count) sum[0][v] = sum[1][v] = square[0][v] = square[1][v] = (VEC){0};
  int64_t row = 0;
  for (; row + 2 <= rows; row += 2)
    UNROLLED(r, 2)
      UNROLLED(v, count) sum[r][v] += GET(z + (row + r) * width + column + v * LANES);
  if (row < rows) UNROLLED(v, count) sum[0][v] += GET(z + row * width + column + v * LANES);
  UNROLLED(v, count) {
    mean[v] = (sum[0][v] + sum[1][v]) / (REAL)rows;
    sum[0][v] = sum[1][v] = (VEC){0};
  }
  for (row = 0; row + 2 <= rows; row += 2)
    UNROLLED(r, 2)
      UNROLLED(v, count) {
        const VEC off = GET(z + (row + r) * width + column + v * LANES) - mean[v];
        sum[r][v] += off;
        square[r][v] += off * off;
      }
  if (row < rows)
    UNROLLED(v, count) {
      const VEC off = GET(z + row * width + column + v * LANES) - mean[v];
      sum[0][v] += off;
      square[0][v] += off * off;
    }
  UNROLLED(v, count) {
    const VEC all = sum[0][v] + sum[1][v], squares = square[0][v] + square[1][v];
    for (int lane = 0; lane < LANES; lane++) {
      const int64_t at = column + v * LANES + lane;
      const double wrong = (double)all[lane], part = wrong * wrong / (double)rows;
      sums[at] = (double)rows * (double)mean[v][lane] + wrong;
      sums[width + at] = (double)squares[lane] - part;
    }
  }
}

INLINE void NAME(moments_rows)(int64_t rows, int64_t width, const REAL *z, double *sums) {
#define BLOCK(count) NAME(moments_tile)(rows, width, z, column, count, sums)
  ALONG_WIDTH(width, SUM_VECTORS, BLOCK)
#undef BLOCK
}

/* Adds up what chunks have: sums, and squares about the mean of all rows. */
static void NAME(add_moments)(int64_t num_blocks, int64_t rows, int64_t width, const double *parts, double *sums) {
  const int64_t chunks = chunks_of(rows);
  for (int64_t block = 0; block < num_blocks; block++, parts += chunks * 2 * width, sums += 2 * width) {
    for (int64_t i = 0; i < 2 * width; i++) sums[i] = 0;
    for (int64_t chunk = 0; chunk < chunks; chunk++)
      for (int64_t i = 0; i < width; i++) sums[i] += parts[chunk * 2 * width + i];
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
      const double count = (double)(end_of(chunk, rows) - chunk * ROWS_PER_CHUNK);
      const double *part = parts + chunk * 2 * width;
      for (int64_t i = 0; i < width; i++) {
        const double off = part[i] / count - sums[i] / (double)rows;
        sums[width + i] += part[width + i] + count * (off * off);
      }
    }
  }
}

/* Adds up what chunks have, number by number. */
static void NAME(add_parts)(int64_t num_blocks, int64_t rows, int64_t width, const double *parts, double *sums) {
  const int64_t chunks = chunks_of(rows);
  for (int64_t block = 0; block < num_blocks; block++, parts += chunks * 2 * width, sums += 2 * width) {
    for (int64_t i = 0; i < 2 * width; i++) sums[i] = 0;
    for (int64_t chunk = 0; chunk < chunks; chunk++)
      for (int64_t i = 0; i < 2 * width; i++) sums[i] += parts[chunk * 2 * width + i];
  }
}

/* The mean of a row from its vector of sums, whose halves are added until one number is left. */
INLINE REAL NAME(mean_of)(VEC sum, int64_t width) {
  REAL part[LANES];
  PUT(part) = sum;
  for (int half = LANES / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; lane++) part[lane] += part[lane + half];
  return part[0] / (REAL)width;
}

/* The mean of a row, and what its deviations from it are multiplied by. */
INLINE void NAME(row_moments)(int64_t width, const REAL *z, REAL *centre, REAL *inverse) {
  VEC sum = {0}, square = {0};
  for (int64_t i = 0; i < width; i += LANES) sum += GET(z + i);
  *centre = NAME(mean_of)(sum, width);
  for (int64_t i = 0; i < width; i += LANES) {
    const VEC off = GET(z + i) - *centre;
    square += off * off;
  }
  *inverse = 1 / NAME(root)(NAME(mean_of)(square, width) + (REAL)NORM_EPSILON);
}

/* The moments of the rows of a chunk, for layer normalisation. */
typedef struct {
  REAL centre[ROWS_PER_CHUNK], inverse[ROWS_PER_CHUNK];
} NAME(by_row);

/* Returns `found`, with the moments of each row, or NULL where it is columns that are normalised. */
INLINE const NAME(by_row) *NAME(measure_rows)(int by_row, int64_t rows, int64_t width, const REAL *z, NAME(by_row) *found) {
  if (!by_row) return NULL;
  for (int64_t row = 0; row < rows; row++)
    NAME(row_moments)(width, z + row * width, found->centre + row, found->inverse + row);
  return found;
}

/* out = factor * (z - centre) + shift for some rows of a block, or with `of_rows` factor * inverse * (z - centre) + shift
   with centre and inverse of each row. */
INLINE void NAME(normalise_rows)(int64_t rows, int64_t width, const REAL *z, const REAL *constants,
                                 const NAME(by_row) *of_rows, REAL *out) {
  const REAL *centre = constants + CENTRE * width, *factor = constants + FACTOR * width, *shift = constants + SHIFT * width;
  for (int64_t row = 0; row < rows; row++, z += width, out += width) {
    if (of_rows == NULL) {
      for (int64_t i = 0; i < width; i += LANES)
        PUT(out + i) = GET(factor + i) * (GET(z + i) - GET(centre + i)) + GET(shift + i);
      continue;
    }
    const REAL mean = of_rows->centre[row], inverse = of_rows->inverse[row];
    for (int64_t i = 0; i < width; i += LANES)
      PUT(out + i) = GET(factor + i) * ((GET(z + i) - mean) * inverse) + GET(shift + i);
  }
}

/* The sums over some rows of the gradient g and of g times what was normalised. */
INLINE void NAME(norm_sums_tile)(int64_t rows, int64_t width, const REAL *g, const REAL *z, const REAL *constants,
                                 const NAME(by_row) *of_rows, int64_t column, int count, double *sums) {
  VEC sum[SUM_VECTORS], product[SUM_VECTORS], centre[SUM_VECTORS], inverse[SUM_VECTORS];
  UNROLLED(v, count) {
    sum[v] = product[v] = (VEC){0};
    centre[v] = GET(constants + CENTRE * width + column + v * LANES);
    inverse[v] = GET(constants + INVERSE * width + column + v * LANES);
  }
  for (int64_t row = 0; row < rows; row++) {
    if (of_rows != NULL)
      UNROLLED(v, count) centre[v] = (VEC){0} + of_rows->centre[row], inverse[v] = (VEC){0} + of_rows->inverse[row];
    UNROLLED(v, count) {
      const int64_t at = row * width + column + v * LANES;
      sum[v] += GET(g + at);
      product[v] += GET(g + at) * ((GET(z + at) - centre[v]) * inverse[v]);
    }
  }
  UNROLLED(v, count)
    for (int lane = 0; lane < LANES; lane++) {
      sums[column + v * LANES + lane] = (double)sum[v][lane];
      sums[width + column + v * LANES + lane] = (double)product[v][lane];
    }
}

INLINE void NAME(norm_sums_rows)(int64_t rows, int64_t width, const REAL *g, const REAL *z, const REAL *constants,
                                 const NAME(by_row) *of_rows, double *sums) {
#define BLOCK(count) NAME(norm_sums_tile)(rows, width, g, z, constants, of_rows, column, count, sums)
  ALONG_WIDTH(width, SUM_VECTORS, BLOCK)
#undef BLOCK
}

/* The gradient of z from g, that of the result, for some rows. */
INLINE void NAME(norm_backward_rows)(int64_t rows, int64_t width, const REAL *g, const REAL *z, const REAL *constants,
                                     const NAME(by_row) *of_rows, REAL *out) {
  const REAL *centre = constants + CENTRE * width, *factor = constants + FACTOR * width;
  const REAL *pull = constants + PULL * width, *push = constants + PUSH * width;
  for (int64_t row = 0; row < rows; row++, g += width, z += width, out += width) {
    if (of_rows == NULL) {
      for (int64_t i = 0; i < width; i += LANES)
        PUT(out + i) = GET(factor + i) * GET(g + i) + (GET(pull + i) * (GET(z + i) - GET(centre + i)) + GET(push + i));
      continue;
    }
    const REAL mean = of_rows->centre[row], inverse = of_rows->inverse[row];
    VEC sum = {0}, product = {0};
    for (int64_t i = 0; i < width; i += LANES) {
      VEC scaled = GET(factor + i) * GET(g + i);
      ROUND(scaled);
      sum += scaled;
      product += scaled * ((GET(z + i) - mean) * inverse);
    }
    const REAL of_scaled = NAME(mean_of)(sum, width), of_product = NAME(mean_of)(product, width);
    for (int64_t i = 0; i < width; i += LANES) {
      VEC scaled = GET(factor + i) * GET(g + i);
      ROUND(scaled);
      PUT(out + i) = inverse * (scaled - (of_product * ((GET(z + i) - mean) * inverse) + of_scaled));
    }
  }
}

/* The same for a whole matrix. */
#define CHUNK_OF_BLOCK                                                                                       \
  const int64_t width = a->width, rows = a->num_rows / a->num_blocks, chunks = chunks_of(rows);              \
  const int64_t block = chunk / chunks, within = chunk % chunks * ROWS_PER_CHUNK;                            \
  const int64_t count = end_of(chunk % chunks, rows) - within, at = (block * rows + within) * width

#define NORM_OF_BLOCK                                                                                        \
  CHUNK_OF_BLOCK;                                                                                            \
  NAME(by_row) room;                                                                                         \
  const NAME(by_row) *of_rows = NAME(measure_rows)((int)a->by_row, count, width, a->z + at, &room);          \
  const REAL *constants = a->constants + block * NUM_CONSTANTS * width

static void NAME(column_moments_chunk)(const void *work, int64_t chunk) {
  const NAME(column_moments_arguments) *a = work;
  CHUNK_OF_BLOCK;
  NAME(moments_rows)(count, width, a->z + at, a->parts + chunk * 2 * width);
}

void NAME(column_moments)(const NAME(column_moments_arguments) *a) {
  const int64_t rows = a->num_rows / a->num_blocks;
  for_each(a->num_blocks * chunks_of(rows), a->num_threads, NAME(column_moments_chunk), a);
  NAME(add_moments)(a->num_blocks, rows, a->width, a->parts, a->sums);
}

static void NAME(normalise_chunk)(const void *work, int64_t chunk) {
  const NAME(normalise_arguments) *a = work;
  NORM_OF_BLOCK;
  NAME(normalise_rows)(count, width, a->z + at, constants, of_rows, a->out + at);
}

void NAME(normalise)(const NAME(normalise_arguments) *a) {
  for_each(a->num_blocks * chunks_of(a->num_rows / a->num_blocks), a->num_threads, NAME(normalise_chunk), a);
}

static void NAME(norm_sums_chunk)(const void *work, int64_t chunk) {
  const NAME(norm_sums_arguments) *a = work;
  NORM_OF_BLOCK;
  NAME(norm_sums_rows)(count, width, a->grad + at, a->z + at, constants, of_rows, a->parts + chunk * 2 * width);
}

void NAME(norm_sums)(const NAME(norm_sums_arguments) *a) {
  const int64_t rows = a->num_rows / a->num_blocks;
  for_each(a->num_blocks * chunks_of(rows), a->num_threads, NAME(norm_sums_chunk), a);
  NAME(add_parts)(a->num_blocks, rows, a->width, a->parts, a->sums);
}

static void NAME(norm_backward_chunk)(const void *work, int64_t chunk) {
  const NAME(norm_backward_arguments) *a = work;
  NORM_OF_BLOCK;
  NAME(norm_backward_rows)(count, width, a->grad + at, a->z + at, constants, of_rows, a->out + at);
}

void NAME(norm_backward)(const NAME(norm_backward_arguments) *a) {
  for_each(a->num_blocks * chunks_of(a->num_rows / a->num_blocks), a->num_threads, NAME(norm_backward_chunk), a);
}

#undef CHUNK_OF_BLOCK
#undef NORM_OF_BLOCK
#undef SUM_VECTORS
