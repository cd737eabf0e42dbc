/* Included once for each type of number, after `hops.h` and `maps.h`: all layers of a network, one after another.

   Layer l is s = share[l] h_0 + sum_k mu[l][k] A^k y, then y = drop(relu(s M[l])); or, where layers have two maps,
   y = drop(relu(s M[l] + h_0 N[l])). Rows are blocks with maps and weights of their own; mu is layer by layer, within it
   hop by hop, within that block by block. A layer has as many hops as num_hops says; mu has room for `most_hops` in each. */

/* identity I + factor W of every layer and block, or its transpose, for each of its maps; `shapes` has identity and factor
   of each map. The weights of several maps stand below one another. */
void NAME(make_maps)(int64_t count, int64_t num_maps, int64_t width, const REAL *const *weights, const double *shapes,
                     int is_transposed, REAL *maps) {
  for (int64_t number = 0; number < count * num_maps; number++) {
    const REAL identity = (REAL)shapes[2 * number], factor = (REAL)shapes[2 * number + 1];
    const REAL *weight = weights[number / num_maps] + number % num_maps * width * width;
    REAL *map = maps + number * width * width;
    for (int64_t row = 0; row < width; row++) {
      for (int64_t column = 0; column < width; column++)
        map[row * width + column] = factor * (is_transposed ? weight[column * width + row] : weight[row * width + column]);
      map[row * width + row] += identity;
    }
  }
}

/* The words that a layer's dropout needs are drawn during the layer before it: two layers' are there at a time. */
INLINE void NAME(plan_draws)(int64_t num_blocks, int64_t words_per_block, uint64_t *states, uint64_t *words, draw *plan) {
  for (int64_t number = 0; number < 2 * num_blocks; number++)
    plan[number] = (draw){states + 4 * (number % num_blocks), words + number * words_per_block, words_per_block};
}

/* y = drop(h), by the first words of the plan; meanwhile the next ones are drawn. Without a plan y = h. */
INLINE void NAME(drop_first)(int64_t num_rows, int64_t num_blocks, int64_t width, const REAL *h, const draw *plan,
                             int threshold, REAL *y, REAL *room, int num_threads) {
  const int64_t rows = num_rows / num_blocks, chunks = chunks_of(rows), row_bytes = width * (int64_t)sizeof(REAL);
  const int is_streamed = IS_STREAMED(y, num_rows * row_bytes, row_bytes);
  for (int64_t block = 0; block < num_blocks && plan != NULL; block++) draw_words(plan + block);
#pragma omp parallel num_threads(num_threads) if (num_threads > 1)
  {
#pragma omp single nowait
    for (int64_t block = 0; block < num_blocks && plan != NULL; block++) draw_words(plan + num_blocks + block);
#pragma omp for schedule(dynamic, 1)
    for (int64_t chunk = 0; chunk < num_blocks * chunks; chunk++) {
      const int64_t block = chunk / chunks, within = chunk % chunks * ROWS_PER_CHUNK;
      const int64_t at = (block * rows + within) * width, size = (end_of(chunk % chunks, rows) - within) * width;
      REAL *restrict to = is_streamed ? room + THREAD * ROWS_PER_CHUNK * width : y + at;
      const REAL *restrict from = h + at;
      if (plan == NULL) {
        for (int64_t i = 0; i < size; i++) to[i] = from[i];
      } else {
        const uint16_t *restrict words = (const uint16_t *)plan[block].words + within * width;
        for (int64_t i = 0; i < size; i++) to[i] = words[i] < threshold ? 0 : from[i];
      }
      if (is_streamed) NAME(stream)(size, to, y + at);
    }
  }
}

/* The layers from y[0] = drop(h_0) to `last`, the output of the last one, which is multiplied by `scale`. With the size
   of a matrix as `stride` every y before it and every s are kept; with 0 none is: y and s then have room for one matrix
   each. `words` has room for two layers' words. */
void NAME(stack)(int64_t num_layers, int64_t num_rows, int64_t num_blocks, int64_t width, const int32_t *starts,
                 const int32_t *columns, const REAL *values, const REAL *h_0, const double *shares,
                 const int64_t *num_hops, int64_t most_hops, const double *mu, int64_t num_maps,
                 const REAL *const *weights, const double *shapes, REAL *maps, uint64_t *states, uint64_t *words, int threshold, double scale,
                 REAL *y, REAL *s, int64_t stride, REAL *last, REAL *spare, REAL *room, int num_threads) {
  const int64_t size = num_rows * width, words_per_block = (size / num_blocks + 3) / 4, square = width * width;
  draw plan[2 * num_blocks];
  const REAL *before = h_0;
  NAME(make_maps)(num_layers * num_blocks, num_maps, width, weights, shapes, 0, maps);
  if (states != NULL) NAME(plan_draws)(num_blocks, words_per_block, states, words, plan);
  if (states != NULL || stride != 0) {
    REAL *first = stride == 0 && num_layers % 2 == 0 ? last : y;
    NAME(drop_first)(num_rows, num_blocks, width, h_0, states == NULL ? NULL : plan, threshold, first, room, num_threads);
    before = first;
  }
  for (int64_t layer = 0; layer < num_layers; layer++) {
    const int is_last = layer == num_layers - 1;
    const draw *own = plan + (layer + 1) % 2 * num_blocks, *next = plan + layer % 2 * num_blocks;
    /* What is not kept is written into y and `last` in turn. */
    REAL *after = (num_layers - 1 - layer) % 2 == 0 ? last : y;
    if (stride != 0 && !is_last) after = y + (layer + 1) * stride;
    const NAME(activation) then = {
        .maps = maps + layer * num_blocks * num_maps * square,
        .h_0 = num_maps > 1 ? h_0 : NULL,
        .words = states == NULL ? NULL : (const uint16_t *)own->words,
        .words_per_block = 4 * words_per_block,
        .threshold = threshold,
        .is_kept = stride != 0,
        .scale = is_last ? (REAL)scale : 1,
        .after = after,
        .room = room,
    };
    NAME(mix_and_draw)(num_rows, num_blocks, width, starts, columns, values, before, num_hops[layer],
                       mu + layer * most_hops * num_blocks, shares[layer] != 0 ? h_0 : NULL, shares[layer],
                       s + layer * stride, spare, states == NULL || is_last ? NULL : next, &then, num_threads);
    before = after;
  }
}

/* The gradients of all layers. `given` is that of the `last` output, `y` and `s` are those that `stack` kept. `grad`
   gets the gradient of h_0; `outers` that of each weight, `inner` the inner products, laid out as mu. `transposed` has
   room for the maps; `shared`, `back` and `spare` are written over. */
void NAME(stack_back)(int64_t num_layers, int64_t num_rows, int64_t num_blocks, int64_t width, const int32_t *starts,
                      const int32_t *columns, const REAL *values, const double *shares, const int64_t *num_hops,
                      int64_t most_hops, const double *mu, int64_t num_maps, const REAL *const *weights,
                      const double *shapes, REAL *transposed, const REAL *h_0, const REAL *y, const REAL *s, int64_t stride, const REAL *last, double scale,
                      const REAL *given, REAL *grad, REAL *shared, REAL *outers, double *inner, REAL *back,
                      REAL *spare, REAL *partial, int64_t num_segments, double *pairs, double *parts, REAL *room,
                      int num_threads) {
  const int64_t rows = num_rows / num_blocks, square = width * width, row_bytes = width * (int64_t)sizeof(REAL);
  const int is_streamed = IS_STREAMED(back, num_rows * row_bytes, row_bytes);
  int begins = 1;
  NAME(make_maps)(num_layers * num_blocks, num_maps, width, weights, shapes, 1, transposed);
  NAME(mask)(num_rows * width, given, last, scale, grad, num_threads);
  for (int64_t layer = num_layers - 1; layer >= 0; layer--) {
    const REAL *sum = s + layer * stride;
    for (int64_t block = 0; block < num_blocks; block++) {
      const int64_t at = block * rows * width, map = (layer * num_blocks + block) * num_maps * square;
      NAME(outer_and_map)(rows, width, sum + at, grad + at, outers + map, partial, num_segments, transposed + map,
                          back + at, is_streamed, 0, room, num_threads);
      if (num_maps > 1)
        NAME(outer_and_map)(rows, width, h_0 + at, grad + at, outers + map + square, partial, num_segments,
                            transposed + map + square, shared + at, 0, !begins, room, num_threads);
    }
    if (num_maps > 1) begins = 0;
    const int has_begun = !begins || shares[layer] != 0;
    NAME(mix_back_between)(num_rows, num_blocks, width, starts, columns, values, back, y + layer * stride,
                           num_hops[layer], mu + layer * most_hops * num_blocks, grad, spare, shared, shares[layer], 1,
                           begins, layer == 0 && has_begun, inner + layer * most_hops * num_blocks, pairs, parts,
                           num_threads);
    begins = !has_begun;
  }
  for (int64_t number = 0; number < num_layers * num_blocks * num_maps; number++)
    for (int64_t i = 0; i < square; i++) outers[number * square + i] *= (REAL)shapes[2 * number + 1];
}
