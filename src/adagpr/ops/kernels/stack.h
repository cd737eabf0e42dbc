/* Included once for each type of number, after `hops.h` and `maps.h`: all layers of a network, one after another.

   Layer l is s = share[l] h_0 + sum_k mu[l][k] A^k y, then y = drop(relu(s M[l])). Rows are blocks with maps and weights
   of their own; mu is layer by layer, within it hop by hop, within that block by block. A layer has as many hops as
   num_hops says; mu has room for `most_hops` in each. */

/* M = (1 - beta) I + beta W of every layer and block, or its transpose. */
void NAME(make_maps)(int64_t count, int64_t width, const REAL *const *weights, const double *betas, int is_transposed,
                     REAL *maps) {
  for (int64_t number = 0; number < count; number++) {
    const REAL beta = (REAL)betas[number], *weight = weights[number];
    REAL *map = maps + number * width * width;
    for (int64_t row = 0; row < width; row++) {
      for (int64_t column = 0; column < width; column++)
        map[row * width + column] = beta * (is_transposed ? weight[column * width + row] : weight[row * width + column]);
      map[row * width + row] += 1 - beta;
    }
  }
}

/* Applies each block's own map. */
INLINE void NAME(map_blocks)(int64_t num_rows, int64_t num_blocks, int64_t width, const REAL *s, const REAL *maps,
                             REAL *out, int num_threads) {
  const int64_t size = num_rows / num_blocks * width;
  for (int64_t block = 0; block < num_blocks; block++)
    NAME(map)(num_rows / num_blocks, width, s + block * size, maps + block * width * width, out + block * size,
              num_threads);
}

/* ReLU of each block, and dropout by its words, four elements a word. */
INLINE void NAME(drop_blocks)(int64_t size, int64_t num_blocks, REAL *y, const draw *wanted, int threshold,
                              int num_threads) {
  if (wanted == NULL) NAME(relu_drop)(num_blocks * size, y, NULL, 0, num_threads);
  for (int64_t block = 0; block < num_blocks && wanted != NULL; block++) {
    if (num_blocks > 1) draw_words(wanted + block);
    NAME(relu_drop)(size, y + block * size, (const uint16_t *)wanted[block].words, threshold, num_threads);
  }
}

/* The layers from y[0] = drop(h_0) to y[num_layers]. With `stride` 0 every y is written over the one before it, and
   every s over the last; with the size of a matrix they are kept. */
void NAME(stack)(int64_t num_layers, int64_t num_rows, int64_t num_blocks, int64_t width, const int32_t *starts,
                 const int32_t *columns, const REAL *values, const REAL *h_0, const double *shares,
                 const int64_t *num_hops, int64_t most_hops, const double *mu,
                 const REAL *const *weights, const double *betas, REAL *maps, uint64_t *states, uint64_t *words,
                 int threshold, REAL *y, REAL *s, int64_t stride, REAL *spare, int num_threads) {
  NAME(make_maps)(num_layers * num_blocks, width, weights, betas, 0, maps);
  const int64_t size = num_rows / num_blocks * width;
  draw draws[num_blocks], *wanted = states == NULL ? NULL : draws;
  for (int64_t block = 0; block < num_blocks; block++) draws[block] = (draw){states + 4 * block, words, (size + 3) / 4};
  for (int64_t i = 0; i < num_rows * width; i++) y[i] = h_0[i];
  if (wanted != NULL && num_blocks == 1) draw_words(wanted);
  if (wanted != NULL) NAME(drop_blocks)(size, num_blocks, y, wanted, threshold, num_threads);
  for (int64_t layer = 0; layer < num_layers; layer++) {
    const REAL *plus = shares[layer] != 0 ? h_0 : NULL;
    const double *own = mu + layer * most_hops * num_blocks;
    const REAL *before = y + layer * stride;
    REAL *sum = s + layer * stride, *after = y + (layer + 1) * stride;
    /* The words of one block can be drawn meanwhile; those of several follow one another in the same memory. */
    NAME(mix_and_draw)(num_rows, num_blocks, width, starts, columns, values, before, num_hops[layer], own, plus,
                       shares[layer], sum, spare, num_blocks == 1 ? wanted : NULL, num_threads);
    NAME(map_blocks)(num_rows, num_blocks, width, sum, maps + layer * num_blocks * width * width, after, num_threads);
    NAME(drop_blocks)(size, num_blocks, after, wanted, threshold, num_threads);
  }
}

/* The gradients of all layers. `grad` is that of y[num_layers], 0 where that is not positive, and at the end that of
   y[0]. `transposed` has room for the maps; `outers` gets the gradient of each weight, `inner` the inner products, laid
   out as mu; the gradient of h_0 is added to `shared`. `back` and `spare` are written over. */
void NAME(stack_back)(int64_t num_layers, int64_t num_rows, int64_t num_blocks, int64_t width, const int32_t *starts,
                      const int32_t *columns, const REAL *values, const double *shares, const int64_t *num_hops,
                      int64_t most_hops, const double *mu, const REAL *const *weights, const double *betas,
                      REAL *transposed, const REAL *y, const REAL *s, int64_t stride, REAL *grad, REAL *shared, REAL *outers, double *inner, REAL *back, REAL *spare,
                      REAL *partial, int64_t num_segments, double *pairs, double *parts, int num_threads) {
  const int64_t rows = num_rows / num_blocks, square = width * width;
  NAME(make_maps)(num_layers * num_blocks, width, weights, betas, 1, transposed);
  for (int64_t layer = num_layers - 1; layer >= 0; layer--) {
    const double *own = mu + layer * most_hops * num_blocks;
    const REAL *sum = s + layer * stride;
    for (int64_t block = 0; block < num_blocks; block++)
      NAME(outer)(rows, width, sum + block * rows * width, grad + block * rows * width,
                  outers + (layer * num_blocks + block) * square, partial, num_segments, num_threads);
    NAME(map_blocks)(num_rows, num_blocks, width, grad, transposed + layer * num_blocks * square, back, num_threads);
    NAME(mix_back)(num_rows, num_blocks, width, starts, columns, values, back, y + layer * stride, num_hops[layer],
                   own, grad, spare, shares[layer] != 0 ? shared : NULL, shares[layer], 1,
                   inner + layer * most_hops * num_blocks, pairs, parts, num_threads);
  }
  for (int64_t number = 0; number < num_layers * num_blocks; number++)
    for (int64_t i = 0; i < square; i++) outers[number * square + i] *= (REAL)betas[number];
}
