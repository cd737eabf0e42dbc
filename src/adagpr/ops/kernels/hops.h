/* Included once for each type of number: products with a sparse matrix, what is added to them and measured of them. */

/* A sparse matrix times `x`. Without `starts` there is no matrix, and `x` is the product already. Up to the
   entries `last_near` and `last_far` the rows of `x` that are needed NEAR and FAR entries later are asked for. */
typedef struct {
  const int32_t *starts, *columns;
  const REAL *values, *x;
  int64_t width, last_near, last_far;
} NAME(product);

INLINE NAME(product) NAME(product_of)(int64_t num_rows, int64_t width, const int32_t *starts, const int32_t *columns,
                                      const REAL *values, const REAL *x) {
  const int64_t bytes = num_rows * width * SIZE, num_entries = starts == NULL ? 0 : starts[num_rows];
  const int64_t last_near = bytes > CACHE_BYTES ? num_entries - NEAR : 0;
  return (NAME(product)){starts, columns, values, x, width, last_near, bytes > FAR_BYTES ? num_entries - FAR : 0};
}

/* `count` vectors of a row of the product. */
INLINE void NAME(gather)(const NAME(product) *a, int64_t row, int64_t column, int count, VEC *sum) {
  if (a->starts == NULL) {
    for (int v = 0; v < count; v++) sum[v] = GET(a->x + row * a->width + column + v * LANES);
    return;
  }
  for (int v = 0; v < count; v++) sum[v] = (VEC){0};
  for (int64_t p = a->starts[row]; p < a->starts[row + 1]; p++) {
    const REAL value = a->values[p];
    const REAL *from = a->x + (int64_t)a->columns[p] * a->width + column;
    if (p < a->last_far) {
      const char *far = (const char *)(a->x + (int64_t)a->columns[p + FAR] * a->width + column);
      for (int byte = 0; byte < count * VECTOR_BYTES; byte += 64) __builtin_prefetch(far + byte, 0, 2);
    }
    if (p < a->last_near) {
      const char *near = (const char *)(a->x + (int64_t)a->columns[p + NEAR] * a->width + column);
      for (int byte = 0; byte < count * VECTOR_BYTES; byte += 64) __builtin_prefetch(near + byte, 0, 3);
    }
    for (int v = 0; v < count; v++) sum[v] += value * GET(from + v * LANES);
  }
}

/* One number of the product, for columns that do not fill a vector. */
INLINE REAL NAME(gather_one)(const NAME(product) *a, int64_t row, int64_t column) {
  if (a->starts == NULL) return a->x[row * a->width + column];
  REAL sum = 0;
  for (int64_t p = a->starts[row]; p < a->starts[row + 1]; p++)
    sum += a->values[p] * a->x[(int64_t)a->columns[p] * a->width + column];
  return sum;
}

/* Calls TILE(vectors) for as many vectors at once as there are left of a row, and ONE for each column that remains. */
#define ALONG_ROW(width, TILE, ONE)                                 \
  int64_t column = 0;                                               \
  for (; column + 8 * LANES <= (width); column += 8 * LANES) TILE(8); \
  for (; column + 4 * LANES <= (width); column += 4 * LANES) TILE(4); \
  for (; column + 2 * LANES <= (width); column += 2 * LANES) TILE(2); \
  for (; column + LANES <= (width); column += LANES) TILE(1);       \
  for (; column < (width); column++) ONE;

/* Forward: out = factor * A x + own * h + share * plus. */
typedef struct {
  NAME(product) a;
  const REAL *h, *plus;
  REAL *out;
  REAL factor, own, share;
  int is_streamed;
} NAME(forward);

INLINE void NAME(forward_tile)(const NAME(forward) *t, int64_t row, int64_t column, int count) {
  VEC sum[MOST_VECTORS];
  const int64_t at = row * t->a.width + column;
  NAME(gather)(&t->a, row, column, count, sum);
  for (int v = 0; v < count; v++) {
    const int64_t place = at + v * LANES;
    VEC value = t->factor * sum[v];
    ROUND(value);
    if (t->own != 0) value += t->own * GET(t->h + place);
    if (t->plus != NULL) value += t->share * GET(t->plus + place);
    if (t->is_streamed) NAME(STREAM)(t->out + place, value);
    else PUT(t->out + place) = value;
  }
}

INLINE void NAME(forward_one)(const NAME(forward) *t, int64_t row, int64_t column) {
  const int64_t at = row * t->a.width + column;
  REAL value = t->factor * NAME(gather_one)(&t->a, row, column);
  ROUND(value);
  if (t->own != 0) value += t->own * t->h[at];
  if (t->plus != NULL) value += t->share * t->plus[at];
  t->out[at] = value;
}

/* The rows of a chunk, which lie in one block. */
INLINE void NAME(forward_rows)(const NAME(forward) *task, int64_t first, int64_t end) {
  for (int64_t row = first; row < end; row++) {
#define TILE(count) NAME(forward_tile)(task, row, column, count)
    ALONG_ROW(task->a.width, TILE, NAME(forward_one)(task, row, column))
#undef TILE
  }
}

static void NAME(hop_chunk)(const void *work, int64_t chunk) {
  const NAME(hop_arguments) *a = work;
  const NAME(product) none = {NULL, NULL, NULL, a->x, a->width, 0, 0};
  const NAME(forward) task = {none, a->h, a->plus, a->out, (REAL)a->factor, (REAL)a->own, (REAL)a->share, 0};
  NAME(forward_rows)(&task, chunk * ROWS_PER_CHUNK, end_of(chunk, a->num_rows));
}

void NAME(hop)(const NAME(hop_arguments) *a) { for_each(chunks_of(a->num_rows), a->num_threads, NAME(hop_chunk), a); }

/* What follows the last hop at once, some rows after the other: `rows` is given the task of that hop, and writes into
   `after`, if anywhere. `first` is the first of the rows, `within` its number in its block. */
typedef struct NAME(following) {
  void (*rows)(const void *work, NAME(forward) task, int64_t block, int64_t first, int64_t within, int64_t count);
  const void *work;
  const REAL *after;
} NAME(following);

/* Hop k of `weighted_hops`. */
typedef struct {
  const NAME(weighted_hops_arguments) *a;
  /* The last hop of each block that has any weight. */
  const int64_t *last;
  int64_t k, num_draws;
  NAME(product) from_h, from_before;
  REAL *to;
  int is_streamed;
} NAME(weighted_hop);

static void NAME(weighted_hop_item)(const void *work, int64_t item) {
  const NAME(weighted_hop) *hop = work;
  const NAME(weighted_hops_arguments) *a = hop->a;
  if (item < hop->num_draws) {
    draw_words(a->wanted + item);
    return;
  }
  const double *mu = a->mu;
  const int64_t num_blocks = a->num_blocks, rows = a->num_rows / num_blocks, chunks = chunks_of(rows);
  const int64_t chunk = item - hop->num_draws, block = chunk / chunks, start = block * rows;
  const int64_t k = hop->k, last = hop->last[block];
  const REAL own = (REAL)mu[k * num_blocks + block], beyond = (REAL)mu[last * num_blocks + block];
  NAME(forward) task = {hop->from_before, a->h, k == 0 ? a->plus : NULL, hop->to, 1, own, (REAL)a->share, hop->is_streamed};
  if (k == last - 1) task.a = hop->from_h, task.factor = beyond;
  if (k == 0 && last == 0) {
    task.a = (NAME(product)){NULL, NULL, NULL, a->h, a->width, 0, 0};
    task.factor = own, task.own = 0;
  }
  const int64_t within = chunk % chunks * ROWS_PER_CHUNK, end = end_of(chunk % chunks, rows);
  if (k == 0 && a->then != NULL) {
    a->then->rows(a->then->work, task, block, start + within, within, end - within);
    return;
  }
  if (k < last || k == 0) NAME(forward_rows)(&task, start + within, start + end);
  if (hop->is_streamed) { END_OF_STREAM; }
}

void NAME(weighted_hops)(const NAME(weighted_hops_arguments) *a) {
  const int64_t num_rows = a->num_rows, num_blocks = a->num_blocks, width = a->width, num_hops = a->num_hops;
  const NAME(following) *then = a->then;
  const double *mu = a->mu;
  int64_t last[num_blocks], furthest = 1;
  for (int64_t block = 0; block < num_blocks; block++) {
    for (last[block] = num_hops - 1; last[block] > 0 && mu[last[block] * num_blocks + block] == 0;) last[block]--;
    if (last[block] > furthest) furthest = last[block];
  }
  const NAME(product) from_h = NAME(product_of)(num_rows, width, a->starts, a->columns, a->values, a->h);
  NAME(weighted_hop) hop = {.a = a, .last = last, .from_h = from_h, .from_before = from_h};
  for (int64_t k = furthest - 1; k >= 0; k--) {
    hop.k = k;
    hop.num_draws = a->wanted != NULL && k == furthest - 1 ? num_blocks : 0;
    hop.to = k % 2 == 0 ? a->out : a->spare;
    hop.from_before.x = k % 2 == 0 ? a->spare : a->out;
    hop.is_streamed = IS_STREAMED(hop.to, num_rows, width);
    if (then != NULL && k == 0 && then->after != NULL)
      hop.is_streamed = hop.is_streamed && IS_STREAMED(then->after, num_rows, width);
    const int64_t num_chunks = num_blocks * chunks_of(num_rows / num_blocks);
    for_each(hop.num_draws + num_chunks, a->num_threads, NAME(weighted_hop_item), &hop);
  }
}

/* Backward: power = A x; total = (own * x, or what it was) + weight * power; and the inner products with h. */
typedef struct {
  NAME(product) a;
  const REAL *first, *h;
  REAL *total, *power, *shared;
  REAL weight, own, share;
  int is_masked, is_streamed, begins, ends;
} NAME(backward);

/* Sums over a chunk: of power times h, and of x times h where it is the first hop. */
typedef struct {
  VEC with_power, with_first;
  REAL with_power_one, with_first_one;
} NAME(inner);

INLINE void NAME(backward_tile)(const NAME(backward) *t, int64_t row, int64_t column, int count, NAME(inner) *inner) {
  VEC sum[MOST_VECTORS];
  const int64_t at = row * t->a.width + column;
  NAME(gather)(&t->a, row, column, count, sum);
  for (int v = 0; v < count; v++) {
    const int64_t place = at + v * LANES;
    const VEC h = GET(t->h + place);
    VEC total;
    inner->with_power += sum[v] * h;
    if (t->first != NULL) {
      const VEC first = GET(t->first + place);
      inner->with_first += first * h;
      total = t->own * first;
      if (t->shared != NULL) {
        VEC shared = {0};
        if (!t->begins) shared = GET(t->shared + place);
        PUT(t->shared + place) = shared + t->share * first;
      }
    } else {
      total = GET(t->total + place);
    }
    total += t->weight * sum[v];
    if (t->is_masked) total = (VEC)((__typeof__(h > 0))total & (h > 0));
    if (t->ends) total += GET(t->shared + place);
    if (t->is_streamed && t->first != NULL) NAME(STREAM)(t->total + place, total);
    else PUT(t->total + place) = total;
    if (t->power == NULL) continue;
    if (t->is_streamed) NAME(STREAM)(t->power + place, sum[v]);
    else PUT(t->power + place) = sum[v];
  }
}

INLINE void NAME(backward_one)(const NAME(backward) *t, int64_t row, int64_t column, NAME(inner) *inner) {
  const int64_t at = row * t->a.width + column;
  const REAL sum = NAME(gather_one)(&t->a, row, column), h = t->h[at];
  REAL total = t->total[at];
  inner->with_power_one += sum * h;
  if (t->first != NULL) {
    inner->with_first_one += t->first[at] * h;
    total = t->own * t->first[at];
    if (t->shared != NULL) t->shared[at] = (t->begins ? 0 : t->shared[at]) + t->share * t->first[at];
  }
  total += t->weight * sum;
  t->total[at] = (!t->is_masked || h > 0 ? total : 0) + (t->ends ? t->shared[at] : 0);
  if (t->power != NULL) t->power[at] = sum;
}

static void NAME(hop_backward_chunk)(const void *work, int64_t chunk) {
  const NAME(hop_backward_arguments) *a = work;
  const int64_t num_rows = a->num_rows, width = a->width, rows = num_rows / a->num_blocks, chunks = chunks_of(rows);
  const int64_t block = chunk / chunks, begin = chunk % chunks * ROWS_PER_CHUNK, end = end_of(chunk % chunks, rows);
  const REAL weight = a->weight == NULL ? 0 : (REAL)a->weight[block], own = (REAL)a->mu[block];
  const int is_streamed =
      IS_STREAMED(a->total, num_rows, width) && (a->power == NULL || IS_STREAMED(a->power, num_rows, width));
  const NAME(product) product = NAME(product_of)(num_rows, width, a->starts, a->columns, a->values, a->x);
  const NAME(backward) task = {product, a->first, a->h, a->total, a->power, a->shared, weight, own, (REAL)a->share,
                               (int)a->is_masked, is_streamed, (int)a->begins, (int)a->ends};
  NAME(inner) found = {{0}, {0}, 0, 0};
  for (int64_t row = block * rows + begin; row < block * rows + end; row++) {
#define TILE(count) NAME(backward_tile)(&task, row, column, count, &found)
    ALONG_ROW(width, TILE, NAME(backward_one)(&task, row, column, &found))
#undef TILE
  }
  double with_power = found.with_power_one, with_first = found.with_first_one;
  for (int lane = 0; lane < LANES; lane++) with_power += found.with_power[lane];
  for (int lane = 0; lane < LANES; lane++) with_first += found.with_first[lane];
  if (is_streamed) { END_OF_STREAM; }
  a->parts[2 * chunk] = with_power;
  a->parts[2 * chunk + 1] = with_first;
}

void NAME(hop_backward)(const NAME(hop_backward_arguments) *a) {
  const int64_t num_blocks = a->num_blocks, chunks = chunks_of(a->num_rows / num_blocks);
  double *inner = a->pairs, *parts = a->parts;
  for_each(num_blocks * chunks, a->num_threads, NAME(hop_backward_chunk), a);
  for (int64_t number = 0; number < 2 * num_blocks; number++) inner[number] = 0;
  for (int64_t chunk = 0; chunk < num_blocks * chunks; chunk++) {
    inner[chunk / chunks * 2] += parts[2 * chunk];
    inner[chunk / chunks * 2 + 1] += parts[2 * chunk + 1];
  }
}

void NAME(weighted_hops_backward)(const NAME(weighted_hops_backward_arguments) *a) {
  NAME(hop_backward_arguments) hop = *a;
  REAL *turns[2] = {a->spare, a->other};
  const int64_t num_blocks = a->num_blocks, num_products = a->num_hops - 1;
  hop.x = a->first, hop.is_masked = hop.ends = 0;
  if (a->share == 0) hop.shared = NULL;
  if (num_products == 0) hop.starts = NULL;  /* nothing to multiply, hence nothing to add */
  for (int64_t k = num_products == 0 ? 0 : 1; k <= num_products; k++) {
    hop.weight = k == 0 ? NULL : a->mu + k * num_blocks;
    hop.power = k == num_products ? NULL : turns[(k - 1) % 2];
    if (k == num_products) hop.is_masked = a->is_masked, hop.ends = a->ends;
    if (hop.ends) hop.shared = a->shared;
    NAME(hop_backward)(&hop);
    for (int64_t block = 0; block < num_blocks; block++) {
      if (k > 0) a->inner[k * num_blocks + block] = a->pairs[2 * block];
      if (k <= 1) a->inner[block] = a->pairs[2 * block + 1];
    }
    hop.x = hop.power, hop.first = NULL;
  }
}

#undef ALONG_ROW
