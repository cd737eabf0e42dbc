/* Included once for each type of number, after `hops.h` and `maps.h`: the first map of several networks, from the sparse
   features that they share to a matrix with a block of rows for each, and all their layers, one after another.

   Layer l is s = share[l] h_0 + sum_k mu[l][k] A^k y, then y = drop(relu(s M[l])); or, where layers have two maps,
   y = drop(relu(s M[l] + h_0 N[l])). Rows are blocks with maps and weights of their own; mu is layer by layer, within it
   hop by hop, within that block by block. A layer has as many hops as num_hops says; mu has room for `most_hops` in each. */

INLINE void NAME(first_product)(const NAME(first_maps_arguments) *a, const REAL *values, const REAL *h, REAL *out) {
  const double one_hop[2] = {0, 1};
  NAME(weighted_hops)(&(NAME(weighted_hops_arguments)){
      .num_rows = a->num_rows, .num_blocks = 1, .width = a->width, .num_threads = a->num_threads, .num_hops = 2,
      .starts = a->starts, .columns = a->columns, .values = values, .h = h, .mu = one_hop, .out = out});
}

/* The end of `first_maps` for one block: out = relu(out + bias), row by row. */
typedef struct {
  int64_t num_rows, width;
  const REAL *bias;
  REAL *out;
} NAME(biased);

static void NAME(bias_chunk)(const void *work, int64_t chunk) {
  const NAME(biased) *a = work;
  const int64_t width = a->width;
  const REAL *restrict bias = a->bias;
  for (int64_t row = chunk * ROWS_PER_CHUNK; row < end_of(chunk, a->num_rows); row++) {
    REAL *restrict y = a->out + row * width;
    for (int64_t i = 0; i < width; i++) y[i] += bias[i];
    NAME(relu_drop_part)(width, y, NULL, 0);
  }
}

void NAME(first_maps)(const NAME(first_maps_arguments) *a) {
  const int64_t num_rows = a->num_rows, width = a->width, size = a->starts[num_rows];
  for (int64_t block = 0; block < a->num_blocks; block++) {
    const REAL *values = a->values;
    REAL *to = a->out + block * num_rows * width;
    if (a->words != NULL) {
      REAL *kept = a->kept + block * size;
      NAME(drop_values)(&(NAME(drop_values_arguments)){
          .size = size, .num_threads = a->num_threads, .threshold = a->threshold, .values = values,
          .words = a->words[block], .scale = a->scale, .order = a->order, .kept = kept,
          .transposed = a->transposed + block * size});
      values = kept;
    }
    NAME(first_product)(a, values, a->weights[block], to);
    for_each(chunks_of(num_rows), a->num_threads, NAME(bias_chunk), &(NAME(biased)){num_rows, width, a->biases[block], to});
  }
}

void NAME(first_maps_backward)(const NAME(first_maps_arguments) *a) {
  for (int64_t block = 0; block < a->num_blocks; block++)
    NAME(first_product)(a, a->values + block * a->stride, a->grad + block * a->grad_stride,
                        a->out + block * a->num_rows * a->width);
}

/* identity I + factor W of every layer and block, or its transpose, for each of its maps; `shapes` has identity and factor
   of each map, and without any it is W. The weights of several maps are below one another. */
static void NAME(make_maps)(int64_t count, int64_t num_maps, int64_t width, const REAL *const *weights, const double *shapes,
                     int is_transposed, REAL *maps) {
  for (int64_t number = 0; number < count * num_maps; number++) {
    const REAL identity = shapes == NULL ? 0 : (REAL)shapes[2 * number];
    const REAL factor = shapes == NULL ? 1 : (REAL)shapes[2 * number + 1];
    const REAL *weight = weights[number / num_maps] + number % num_maps * width * width;
    REAL *map = maps + number * width * width;
    for (int64_t row = 0; row < width; row++) {
      for (int64_t column = 0; column < width; column++)
        map[row * width + column] = factor * (is_transposed ? weight[column * width + row] : weight[row * width + column]);
      map[row * width + row] += identity;
    }
  }
}

/* What follows a sum s at once, chunk by chunk: after = scale * drop(relu(s m)), with a map m for each block, and a word
   for each element where there are any. With h_0 a second map n follows each m, and it is relu(s m + h_0 n). s itself is
   written if it `is_kept`. `room` has two chunks for each thread. */
typedef struct {
  const REAL *maps, *h_0;
  const uint16_t *words;
  int64_t words_per_block;
  int threshold, is_kept;
  REAL scale, *after, *room;
} NAME(activation);

static void NAME(activate_rows)(const void *work, NAME(forward) task, int64_t block, int64_t first, int64_t within,
                                int64_t rows) {
  const NAME(activation) *then = work;
  const int64_t width = task.a.width, size = rows * width;
  const int is_streamed = task.is_streamed;
  REAL *room = then->room + THREAD * 2 * ROWS_PER_CHUNK * width;
  REAL *s = then->is_kept && !is_streamed ? task.out + first * width : room;
  REAL *y = is_streamed ? room + ROWS_PER_CHUNK * width : then->after + first * width, *sums = task.out;
  task.out = s - first * width, task.is_streamed = 0;
  NAME(forward_rows)(&task, first, first + rows);
  const int64_t square = width * width;
  const REAL *map = then->maps + block * (then->h_0 == NULL ? square : 2 * square);
  NAME(map_rows)(rows, width, s, map, y, 0);
  if (then->h_0 != NULL) NAME(map_rows)(rows, width, then->h_0 + first * width, map + square, y, 1);
  const uint16_t *words = then->words == NULL ? NULL : then->words + block * then->words_per_block + within * width;
  NAME(relu_drop_part)(size, y, words, then->threshold);
  if (then->scale != 1)
    for (int64_t i = 0; i < size; i++) y[i] *= then->scale;
  if (!is_streamed) return;
  NAME(stream)(size, y, then->after + first * width);
  if (then->is_kept) NAME(stream)(size, s, sums + first * width);
}

/* y = drop(h_0), by the first words of the plan; meanwhile the next ones are drawn. Without a plan y = h_0. */
typedef struct {
  const NAME(stack_arguments) *a;
  const draw *plan;
  REAL *y;
} NAME(first_drop);

static void NAME(drop_first_item)(const void *work, int64_t item) {
  const NAME(first_drop) *first = work;
  const NAME(stack_arguments) *a = first->a;
  const draw *plan = first->plan;
  const int64_t num_rows = a->num_rows, num_blocks = a->num_blocks, width = a->width;
  const int64_t num_draws = plan == NULL ? 0 : num_blocks;
  if (item < num_draws) {
    draw_words(plan + num_blocks + item);
    return;
  }
  const int threshold = (int)a->threshold, is_streamed = IS_STREAMED(first->y, num_rows, width);
  const int64_t rows = num_rows / num_blocks, chunks = chunks_of(rows), chunk = item - num_draws;
  const int64_t block = chunk / chunks, within = chunk % chunks * ROWS_PER_CHUNK;
  const int64_t at = (block * rows + within) * width, size = (end_of(chunk % chunks, rows) - within) * width;
  REAL *restrict to = is_streamed ? a->room + THREAD * ROWS_PER_CHUNK * width : first->y + at;
  const REAL *restrict from = a->h_0 + at;
  if (plan == NULL) {
    for (int64_t i = 0; i < size; i++) to[i] = from[i];
  } else {
    const uint16_t *restrict words = (const uint16_t *)plan[block].words + within * width;
    for (int64_t i = 0; i < size; i++) to[i] = words[i] < threshold ? 0 : from[i];
  }
  if (is_streamed) NAME(stream)(size, to, first->y + at);
}

INLINE void NAME(drop_first)(const NAME(stack_arguments) *a, const draw *plan, REAL *y) {
  const int64_t num_blocks = a->num_blocks, num_chunks = num_blocks * chunks_of(a->num_rows / num_blocks);
  for (int64_t block = 0; block < num_blocks && plan != NULL; block++) draw_words(plan + block);
  const NAME(first_drop) first = {a, plan, y};
  for_each((plan == NULL ? 0 : num_blocks) + num_chunks, a->num_threads, NAME(drop_first_item), &first);
}

void NAME(stack)(const NAME(stack_arguments) *a) {
  const int64_t num_blocks = a->num_blocks, num_layers = a->num_layers, square = a->width * a->width;
  const int64_t words_per_block = (a->num_rows * a->width / num_blocks + 3) / 4;
  const int is_dropped = a->states != NULL, is_kept = a->stride != 0;
  draw plan[2 * num_blocks];
  const REAL *before = a->h_0;
  NAME(make_maps)(num_layers * num_blocks, a->num_maps, a->width, a->weights, a->shapes, 0, a->maps);
  /* The words that a layer's dropout needs are drawn during the layer before it: two layers' are there at a time. */
  for (int64_t number = 0; number < 2 * num_blocks && is_dropped; number++)
    plan[number] = (draw){a->states + 4 * (number % num_blocks), a->words + number * words_per_block, words_per_block};
  if (is_dropped || is_kept) {
    REAL *first = !is_kept && num_layers % 2 == 0 ? a->last : a->y;
    NAME(drop_first)(a, is_dropped ? plan : NULL, first);
    before = first;
  }
  for (int64_t layer = 0; layer < num_layers; layer++) {
    const int is_last = layer == num_layers - 1;
    const draw *own = plan + (layer + 1) % 2 * num_blocks, *next = plan + layer % 2 * num_blocks;
    /* What is not kept is written into y and `last` in turn. */
    REAL *after = (num_layers - 1 - layer) % 2 == 0 ? a->last : a->y;
    if (is_kept && !is_last) after = a->y + (layer + 1) * a->stride;
    const NAME(activation) then = {
        .maps = a->maps + layer * num_blocks * a->num_maps * square,
        .h_0 = a->num_maps > 1 ? a->h_0 : NULL,
        .words = is_dropped ? (const uint16_t *)own->words : NULL,
        .words_per_block = 4 * words_per_block,
        .threshold = (int)a->threshold,
        .is_kept = is_kept,
        .scale = is_last ? (REAL)a->scale : 1,
        .after = after,
        .room = a->room,
    };
    const NAME(following) following = {NAME(activate_rows), &then, after};
    NAME(weighted_hops)(&(NAME(weighted_hops_arguments)){
        .num_rows = a->num_rows, .num_blocks = num_blocks, .width = a->width, .num_threads = a->num_threads,
        .num_hops = a->num_hops[layer], .starts = a->starts, .columns = a->columns, .values = a->values, .h = before,
        .plus = a->shares[layer] != 0 ? a->h_0 : NULL, .mu = a->mu + layer * a->most_hops * num_blocks,
        .share = a->shares[layer], .out = a->s + layer * a->stride, .spare = a->spare,
        .wanted = is_dropped && !is_last ? next : NULL, .then = &following});
    before = after;
  }
}

void NAME(stack_backward)(const NAME(stack_arguments) *a) {
  const int64_t num_blocks = a->num_blocks, width = a->width, square = width * width;
  const int64_t rows = a->num_rows / num_blocks;
  const int is_streamed = IS_STREAMED(a->back, a->num_rows, width);
  int begins = 1;
  NAME(make_maps)(a->num_layers * num_blocks, a->num_maps, width, a->weights, a->shapes, 1, a->maps);
  const NAME(masked) given = {a->num_rows * width, a->given, a->last, (REAL)a->scale, a->grad};
  for_each(items_of(given.size), a->num_threads, NAME(mask_item), &given);
  for (int64_t layer = a->num_layers - 1; layer >= 0; layer--) {
    for (int64_t block = 0; block < num_blocks; block++) {
      const int64_t at = block * rows * width, map = (layer * num_blocks + block) * a->num_maps * square;
      NAME(outer_arguments) outer = {
          .num_rows = rows, .width = width, .num_threads = a->num_threads, .num_segments = a->num_segments,
          .is_streamed = is_streamed, .s = a->s + layer * a->stride + at, .z = a->grad + at, .m = a->maps + map,
          .out = a->outers + map, .partial = a->partial, .mapped = a->back + at, .room = a->room,
      };
      NAME(outer)(&outer);
      if (a->num_maps == 1) continue;
      outer.s = a->h_0 + at, outer.m += square, outer.out += square, outer.mapped = a->shared + at;
      outer.is_streamed = 0, outer.adds = !begins;
      NAME(outer)(&outer);
    }
    if (a->num_maps > 1) begins = 0;
    const int has_begun = !begins || a->shares[layer] != 0;
    NAME(weighted_hops_backward)(&(NAME(weighted_hops_backward_arguments)){
        .num_rows = a->num_rows, .num_blocks = num_blocks, .width = width, .num_threads = a->num_threads,
        .num_hops = a->num_hops[layer], .starts = a->starts, .columns = a->columns, .values = a->values,
        .h = a->y + layer * a->stride, .mu = a->mu + layer * a->most_hops * num_blocks, .first = a->back,
        .total = a->grad, .spare = a->spare, .other = a->back, .shared = a->shared, .share = a->shares[layer],
        .inner = a->inner + layer * a->most_hops * num_blocks, .pairs = a->pairs, .parts = a->parts,
        .is_masked = 1, .begins = begins, .ends = layer == 0 && has_begun});
    begins = !has_begun;
  }
  for (int64_t number = 0; number < a->num_layers * num_blocks * a->num_maps; number++)
    for (int64_t i = 0; i < square; i++) a->outers[number * square + i] *= (REAL)a->shapes[2 * number + 1];
}
