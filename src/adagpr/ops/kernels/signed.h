/* Included once for each type of number, after `stack.h`: all layers of a signed stack, one after another.

   Layer l is z = sum_d sum_k mu[l][d][k] A_d^k (y W[l][d]) + y E[l], then y = drop(relu(norm(z))); see
   `ops/signed_stack.py`. The maps of a layer are below one another, those of the operators first. */

/* A layer, or what is before the first, where `layer` is -1. */
typedef struct {
  const NAME(signed_stack_arguments) *a;
  int64_t layer;
  const uint16_t *words;
  int64_t words_per_block;
  int is_streamed;
} NAME(signed_layer);

/* Where the product of an operator's map and the input of a layer is. */
INLINE REAL *NAME(mapped)(const NAME(signed_stack_arguments) *a, int64_t layer, int64_t number) {
  const int64_t slot = (a->stride != 0 ? layer : layer % 2) * a->num_operators + number;
  return a->v + slot * a->num_rows * a->width;
}

INLINE const REAL *NAME(constants_of)(const NAME(signed_stack_arguments) *a, int64_t layer, int64_t block) {
  return a->constants + (layer * a->num_blocks + block) * NUM_CONSTANTS * a->width;
}

/* Some rows of the input of a layer times all its maps, two at a time. */
INLINE void NAME(map_input)(const NAME(signed_layer) *work, int64_t layer, int64_t block, int64_t first, int64_t rows,
                            const REAL *y, REAL *room) {
  const NAME(signed_stack_arguments) *a = work->a;
  const int64_t width = a->width, square = width * width, size = rows * width, num_maps = a->num_operators + 1;
  const REAL *maps = a->weights[layer * a->num_blocks + block];
  uint64_t marks[ROWS_PER_CHUNK * ((width + 63) / 64)];
  const int is_marked = NAME(mark)(rows, width, y, marks);
  for (int64_t number = 0; number < num_maps; number += 2) {
    REAL *ends[2], *to[2];
    const int64_t count = num_maps - number < 2 ? 1 : 2;
    for (int64_t m = 0; m < count; m++) {
      ends[m] = (number + m < a->num_operators ? NAME(mapped)(a, layer, number + m) : a->own) + first * width;
      to[m] = work->is_streamed ? room + m * ROWS_PER_CHUNK * width : ends[m];
    }
    const REAL *map = maps + number * square;
    if (is_marked && count == 2) {
      NAME(map_marked)(rows, width, y, marks, map, square, to[0], to[1] - to[0], 2, 0);
    } else if (is_marked) {
      NAME(map_marked)(rows, width, y, marks, map, 0, to[0], 0, 1, 0);
    } else {
      for (int64_t m = 0; m < count; m++) NAME(map_rows)(rows, width, y, map + m * square, to[m], 0);
    }
    for (int64_t m = 0; m < count && work->is_streamed; m++) NAME(stream)(size, to[m], ends[m]);
  }
}

/* Some rows of the output of a layer from its z, and their products with the maps of the next. */
INLINE void NAME(activate_signed)(const NAME(signed_layer) *work, int64_t block, int64_t first, int64_t within,
                                  int64_t rows, const REAL *z, REAL *room) {
  const NAME(signed_stack_arguments) *a = work->a;
  const int64_t width = a->width, size = rows * width, layer = work->layer;
  const uint16_t *words = work->words == NULL ? NULL : work->words + block * work->words_per_block + within * width;
  REAL *end = layer == a->num_layers - 1 ? a->last : a->stride != 0 ? a->y + (layer + 1) * a->stride : NULL;
  REAL *y = end == NULL || work->is_streamed ? room : end + first * width;
  if (layer < 0) {
    const REAL scale = (REAL)a->scale;
    for (int64_t i = 0; i < size; i++) y[i] = words != NULL && words[i] < a->threshold ? 0 : z[i] * scale;
  } else {
    NAME(by_row) found;
    const NAME(by_row) *of_rows = NAME(measure_rows)((int)a->by_row, rows, width, z, &found);
    NAME(normalise_rows)(rows, width, z, NAME(constants_of)(a, layer, block), of_rows, y);
    NAME(relu_drop_part)(size, y, words, (int)a->threshold);
  }
  if (end != NULL && work->is_streamed) NAME(stream)(size, y, end + first * width);
  if (layer < a->num_layers - 1) NAME(map_input)(work, layer + 1, block, first, rows, y, room + ROWS_PER_CHUNK * width);
}

/* The rows of a chunk whose z is there, or of h_0. */
static void NAME(activate_signed_chunk)(const void *item, int64_t chunk) {
  const NAME(signed_layer) *work = item;
  const NAME(signed_stack_arguments) *a = work->a;
  const int64_t width = a->width, of_block = a->num_rows / a->num_blocks, chunks = chunks_of(of_block);
  const int64_t block = chunk / chunks, within = chunk % chunks * ROWS_PER_CHUNK, first = block * of_block + within;
  const REAL *z = work->layer < 0 ? a->h_0 : a->z + (a->has_norm ? work->layer * a->stride : 0);
  NAME(activate_signed)(work, block, first, within, end_of(chunk % chunks, of_block) - within, z + first * width,
                        a->room + THREAD * 4 * ROWS_PER_CHUNK * width);
}

/* Some rows of z, and their moments where these are measured, else what follows. */
static void NAME(follow_signed)(const void *item, NAME(forward) task, int64_t block, int64_t first, int64_t within,
                                int64_t rows) {
  const NAME(signed_layer) *work = item;
  const NAME(signed_stack_arguments) *a = work->a;
  const int64_t width = a->width;
  const int is_kept = a->measures || (a->stride != 0 && a->has_norm);
  REAL *room = a->room + THREAD * 4 * ROWS_PER_CHUNK * width, *end = task.out + first * width;
  REAL *z = !is_kept || task.is_streamed ? room : end;
  const int is_streamed = is_kept && task.is_streamed;
  task.out = z - first * width, task.is_streamed = 0;
  NAME(forward_rows)(&task, first, first + rows);
  if (is_streamed) NAME(stream)(rows * width, z, end);
  if (a->measures) {
    const int64_t chunk = block * chunks_of(a->num_rows / a->num_blocks) + within / ROWS_PER_CHUNK;
    NAME(moments_rows)(rows, width, z, a->chunk_sums + chunk * 2 * width);
  } else {
    NAME(activate_signed)(work, block, first, within, rows, z, room + ROWS_PER_CHUNK * width);
  }
}

/* The constants of a layer's norm, from its moments if it has any. */
static void NAME(make_constants)(const NAME(signed_stack_arguments) *a, int64_t layer) {
  const int64_t width = a->width, rows = a->num_rows / a->num_blocks;
  if (a->measures) NAME(add_moments)(a->num_blocks, rows, width, a->chunk_sums, a->sums);
  for (int64_t block = 0; block < a->num_blocks; block++) {
    const int64_t place = layer * a->num_blocks + block;
    REAL *constants = a->constants + place * NUM_CONSTANTS * width;
    for (int64_t i = 0; i < width; i++) {
      double factor = a->scale;
      if (a->has_norm) factor = a->scale * (double)a->scales[place * width + i];
      for (int row = 0; row < NUM_CONSTANTS; row++) constants[row * width + i] = 0;
      if (a->moments != NULL) {
        double *mean = a->moments + place * 2 * width + i, *variance = mean + width;
        if (a->measures) {
          *mean = a->sums[block * 2 * width + i] / (double)rows;
          *variance = a->sums[(block * 2 + 1) * width + i] / (double)rows;
        }
        const double inverse = 1 / sqrt(*variance + NORM_EPSILON);
        constants[CENTRE * width + i] = (REAL)*mean;
        constants[INVERSE * width + i] = (REAL)inverse;
        factor *= inverse;
      }
      constants[FACTOR * width + i] = (REAL)factor;
      constants[SHIFT * width + i] = (REAL)(a->scale * (double)a->shifts[place * width + i]);
    }
  }
}

void NAME(signed_stack)(const NAME(signed_stack_arguments) *a) {
  const int64_t num_blocks = a->num_blocks, num_operators = a->num_operators, size = a->num_rows * a->width;
  const int64_t words_per_block = (size / num_blocks + 3) / 4, chunks = num_blocks * chunks_of(a->num_rows / num_blocks);
  const int is_dropped = a->states != NULL, is_streamed = IS_STREAMED(a->own, a->num_rows, a->width) && size % LANES == 0;
  /* The words of a layer are drawn during its own hops where all of these end before they are needed, and otherwise
     during those of the layer before. */
  const int64_t ahead = a->measures ? 0 : 1;
  draw plan[2 * num_blocks];
  for (int64_t number = 0; number < 2 * num_blocks && is_dropped; number++) {
    plan[number] = (draw){a->states + 4 * (number % num_blocks), a->words + number * words_per_block, words_per_block};
    if (number < (1 + ahead) * num_blocks) draw_words(plan + number);
  }
  NAME(signed_layer) work = {a, -1, is_dropped ? (const uint16_t *)a->words : NULL, 4 * words_per_block, is_streamed};
  for_each(chunks, a->num_threads, NAME(activate_signed_chunk), &work);
  for (int64_t layer = 0; layer < a->num_layers; layer++) {
    const NAME(following) following = {NAME(follow_signed), &work, NULL};
    REAL *plus = a->own;
    const draw *own = plan + (layer + 1) % 2 * num_blocks, *next = plan + layer % 2 * num_blocks;
    const draw *wanted = is_dropped && layer + ahead < a->num_layers ? (ahead ? next : own) : NULL;
    work.layer = layer;
    if (is_dropped) work.words = (const uint16_t *)own->words;
    if (!a->measures) NAME(make_constants)(a, layer);
    for (int64_t number = 0; number < num_operators; number++) {
      const int is_last = number == num_operators - 1;
      REAL *out = is_last ? a->z + (a->has_norm ? layer * a->stride : 0) : plus == a->own ? a->turn : a->own;
      NAME(weighted_hops)(&(NAME(weighted_hops_arguments)){
          .num_rows = a->num_rows, .num_blocks = num_blocks, .width = a->width, .num_threads = a->num_threads,
          .num_hops = a->num_hops[layer * num_operators + number], .starts = a->starts[number],
          .columns = a->columns[number], .values = a->values[number], .h = NAME(mapped)(a, layer, number), .plus = plus,
          .mu = a->mu + (layer * num_operators + number) * a->most_hops * num_blocks, .share = 1, .out = out,
          .spare = a->spare, .wanted = number == 0 ? wanted : NULL, .then = is_last ? &following : NULL});
      plus = out;
    }
    if (!a->measures) continue;
    NAME(make_constants)(a, layer);
    for_each(chunks, a->num_threads, NAME(activate_signed_chunk), &work);
  }
}

/* Backward. The z of some rows of a layer; without a norm nothing is read of it, and any matrix will do. */
INLINE const REAL *NAME(normalised)(const NAME(signed_stack_arguments) *a, int64_t layer, int64_t first, const REAL *any) {
  return a->has_norm ? a->z + layer * a->stride + first : any;
}

/* The sums over the rows of a chunk of the gradient of a layer's output, and of its products with what was normalised. */
INLINE void NAME(sum_gradient)(const NAME(signed_stack_arguments) *a, int64_t layer, int64_t block, int64_t chunk,
                               int64_t rows, const REAL *grad, const REAL *z, const NAME(by_row) *of_rows) {
  const int64_t number = block * chunks_of(a->num_rows / a->num_blocks) + chunk;
  NAME(norm_sums_rows)(rows, a->width, grad, z, NAME(constants_of)(a, layer, block), of_rows,
                       a->chunk_sums + number * 2 * a->width);
}

/* The gradient of the last layer's output behind ReLU and dropout. */
static void NAME(begin_gradient_chunk)(const void *item, int64_t chunk) {
  const NAME(signed_stack_arguments) *a = ((const NAME(signed_layer) *)item)->a;
  const int64_t width = a->width, of_block = a->num_rows / a->num_blocks, chunks = chunks_of(of_block);
  const int64_t block = chunk / chunks, within = chunk % chunks * ROWS_PER_CHUNK, first = (block * of_block + within) * width;
  const int64_t rows = end_of(chunk % chunks, of_block) - within;
  const REAL *restrict last = a->last + first, *restrict given = a->given + first;
  REAL *restrict grad = a->grad + first;
  for (int64_t i = 0; i < rows * width; i++) grad[i] = last[i] > 0 ? given[i] : 0;
  if (!a->by_row)
    NAME(sum_gradient)(a, a->num_layers - 1, block, chunk % chunks, rows, grad,
                       NAME(normalised)(a, a->num_layers - 1, first, grad), NULL);
}

/* The gradient of z. The norm of a row needs no sums over others: these are made here. */
static void NAME(norm_gradient_chunk)(const void *item, int64_t chunk) {
  const NAME(signed_layer) *work = item;
  const NAME(signed_stack_arguments) *a = work->a;
  const int64_t width = a->width, of_block = a->num_rows / a->num_blocks, chunks = chunks_of(of_block);
  const int64_t block = chunk / chunks, within = chunk % chunks * ROWS_PER_CHUNK, first = (block * of_block + within) * width;
  const int64_t rows = end_of(chunk % chunks, of_block) - within;
  const REAL *grad = a->grad + first, *z = NAME(normalised)(a, work->layer, first, grad);
  REAL *to = work->is_streamed ? a->room + THREAD * 4 * ROWS_PER_CHUNK * width : a->dz + first;
  NAME(by_row) found;
  const NAME(by_row) *of_rows = NAME(measure_rows)((int)a->by_row, rows, width, z, &found);
  if (of_rows != NULL) NAME(sum_gradient)(a, work->layer, block, chunk % chunks, rows, grad, z, of_rows);
  NAME(norm_backward_rows)(rows, width, grad, z, NAME(constants_of)(a, work->layer, block), of_rows, to);
  if (work->is_streamed) NAME(stream)(rows * width, to, a->dz + first);
}

/* The gradients of the maps of a layer over a segment of rows, and of its input, behind ReLU and dropout. */
static void NAME(map_gradient_segment)(const void *item, int64_t number) {
  const NAME(signed_layer) *work = item;
  const NAME(signed_stack_arguments) *a = work->a;
  const int64_t width = a->width, square = width * width, of_block = a->num_rows / a->num_blocks;
  const int64_t num_maps = a->num_operators + 1, layer = work->layer, segments = a->num_segments;
  const int64_t block = number / segments, segment = number % segments, chunks = chunks_of(of_block);
  const REAL *maps = a->maps + (layer * a->num_blocks + block) * num_maps * square;
  const REAL times = layer == 0 ? (REAL)a->scale : 1;
  REAL *sum = a->partial + number * num_maps * square;
  uint64_t marks[ROWS_PER_CHUNK * ((width + 63) / 64)];
  for (int64_t i = 0; i < num_maps * square; i++) sum[i] = 0;
  for (int64_t chunk = segment * chunks / segments; chunk < (segment + 1) * chunks / segments; chunk++) {
    const int64_t rows = end_of(chunk, of_block) - chunk * ROWS_PER_CHUNK;
    const int64_t first = (block * of_block + chunk * ROWS_PER_CHUNK) * width;
    const REAL *y = a->y + layer * a->stride + first;
    REAL *to = work->is_streamed ? a->room + THREAD * 4 * ROWS_PER_CHUNK * width : a->grad + first;
    const int is_marked = NAME(mark)(rows, width, y, marks);
    for (int64_t map = 0; map < num_maps; map += 2) {
      const REAL *from[2];
      const int64_t count = num_maps - map < 2 ? 1 : 2;
      for (int64_t m = 0; m < count; m++)
        from[m] = (map + m < a->num_operators ? a->t + (map + m) * a->num_rows * width : a->dz) + first;
      if (is_marked && count == 2)
        NAME(outer_marked)(rows, width, y, marks, from[0], from[1] - from[0], sum + map * square, square, 2);
      else if (is_marked)
        NAME(outer_marked)(rows, width, y, marks, from[0], 0, sum + map * square, 0, 1);
      for (int64_t m = 0; m < count; m++) {
        if (!is_marked) NAME(outer_rows)(rows, width, y, from[m], sum + (map + m) * square);
        NAME(map_rows)(rows, width, from[m], maps + (map + m) * square, to, map + m > 0);
      }
    }
    for (int64_t i = 0; i < rows * width; i++) to[i] = y[i] > 0 ? to[i] * times : 0;
    if (layer > 0 && !a->by_row)
      NAME(sum_gradient)(a, layer - 1, block, chunk, rows, to, NAME(normalised)(a, layer - 1, first, to), NULL);
    if (work->is_streamed) NAME(stream)(rows * width, to, a->grad + first);
  }
}

/* Adds up a map's gradient over the segments, in their order. */
static void NAME(add_segments)(const void *item, int64_t number) {
  const NAME(signed_layer) *work = item;
  const NAME(signed_stack_arguments) *a = work->a;
  const int64_t square = a->width * a->width, num_maps = a->num_operators + 1, block = number / num_maps;
  const REAL *partial = a->partial + (block * a->num_segments * num_maps + number % num_maps) * square;
  REAL *restrict out = a->outers + (work->layer * a->num_blocks * num_maps + number) * square;
  for (int64_t i = 0; i < square; i++) out[i] = partial[i];
  for (int64_t segment = 1; segment < a->num_segments; segment++)
    for (int64_t i = 0; i < square; i++) out[i] += partial[segment * num_maps * square + i];
}

/* The sums of all chunks, and what the gradient of a norm by its own moments needs of them. */
static void NAME(finish_sums)(const NAME(signed_stack_arguments) *a, int64_t layer) {
  const int64_t width = a->width, rows = a->num_rows / a->num_blocks;
  double *sums = a->sums + layer * a->num_blocks * 2 * width;
  NAME(add_parts)(a->num_blocks, rows, width, a->chunk_sums, sums);
  for (int64_t block = 0; block < a->num_blocks && a->measures; block++, sums += 2 * width) {
    REAL *constants = a->constants + (layer * a->num_blocks + block) * NUM_CONSTANTS * width;
    for (int64_t i = 0; i < width; i++) {
      const double factor = (double)constants[FACTOR * width + i], inverse = (double)constants[INVERSE * width + i];
      constants[PULL * width + i] = (REAL)(-(factor * inverse) * (sums[width + i] / (double)rows));
      constants[PUSH * width + i] = (REAL)(-factor * (sums[i] / (double)rows));
    }
  }
}

void NAME(signed_stack_backward)(const NAME(signed_stack_arguments) *a) {
  const int64_t num_blocks = a->num_blocks, num_operators = a->num_operators, num_maps = num_operators + 1;
  const int64_t chunks = num_blocks * chunks_of(a->num_rows / num_blocks), size = a->num_rows * a->width;
  NAME(signed_layer) work = {.a = a, .is_streamed = IS_STREAMED(a->dz, a->num_rows, a->width)};
  NAME(make_maps)(a->num_layers * num_blocks, num_maps, a->width, a->weights, NULL, 1, a->maps);
  for_each(chunks, a->num_threads, NAME(begin_gradient_chunk), &work);
  for (int64_t layer = a->num_layers - 1; layer >= 0; layer--) {
    work.layer = layer;
    if (!a->by_row) NAME(finish_sums)(a, layer);
    for_each(chunks, a->num_threads, NAME(norm_gradient_chunk), &work);
    if (a->by_row) NAME(finish_sums)(a, layer);
    for (int64_t number = 0; number < num_operators; number++) {
      const int64_t place = (layer * num_operators + number) * a->most_hops * num_blocks;
      NAME(weighted_hops_backward)(&(NAME(weighted_hops_backward_arguments)){
          .num_rows = a->num_rows, .num_blocks = num_blocks, .width = a->width, .num_threads = a->num_threads,
          .num_hops = a->num_hops[layer * num_operators + number], .starts = a->starts[number],
          .columns = a->columns[number], .values = a->values[number], .h = NAME(mapped)(a, layer, number),
          .mu = a->mu + place, .first = a->dz, .total = a->t + number * size, .spare = a->spare, .other = a->grad,
          .inner = a->inner + place, .pairs = a->pairs, .parts = a->parts});
    }
    for_each(num_blocks * a->num_segments, a->num_threads, NAME(map_gradient_segment), &work);
    for_each(num_blocks * num_maps, a->num_threads, NAME(add_segments), &work);
  }
}
