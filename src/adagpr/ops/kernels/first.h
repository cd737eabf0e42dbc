/* Included once for each type of number, after `hops.h` and `maps.h`: the first map of several networks, from the sparse
   features that they share to a matrix with a block of rows for each. */

/* out = relu(X W^T + b). The weights lie along the outputs. With words, 16 bits for each value, X is dropped for each
   block anew; `kept` and `transposed` then have room for its values block by block, the latter in the order of the
   transpose. */
void NAME(first)(int64_t num_rows, int64_t num_blocks, int64_t width, const int32_t *starts, const int32_t *columns,
                 const REAL *values, const uint16_t *const *words, int threshold, double scale, const int64_t *order,
                 REAL *kept, REAL *transposed, const REAL *const *weights, const REAL *const *biases, REAL *out,
                 int num_threads) {
  const int64_t size = starts[num_rows];
  const double mu[2] = {0, 1};
  for (int64_t block = 0; block < num_blocks; block++) {
    REAL *to = out + block * num_rows * width;
    const REAL *own = words == NULL ? values : kept + block * size, *restrict bias = biases[block];
    if (words != NULL)
      NAME(drop_values)(size, values, words[block], threshold, scale, order, kept + block * size,
                        transposed + block * size, num_threads);
    NAME(mix)(num_rows, 1, width, starts, columns, own, weights[block], 2, mu, NULL, 0, to, NULL, num_threads);
#pragma omp parallel for schedule(static) num_threads(num_threads) if (num_threads > 1)
    for (int64_t row = 0; row < num_rows; row++) {
      REAL *restrict y = to + row * width;
      for (int64_t i = 0; i < width; i++) y[i] += bias[i];
      NAME(relu_drop_part)(width, y, NULL, 0);
    }
  }
}

/* The gradients of the weights, X^T times each block of `grad`. `values` are those of the transpose, `stride` apart from
   block to block: 0 where all share them. */
void NAME(first_back)(int64_t num_columns, int64_t num_blocks, int64_t width, const int32_t *starts,
                      const int32_t *columns, const REAL *values, int64_t stride, const REAL *grad, int64_t num_rows,
                      REAL *out, int num_threads) {
  const double mu[2] = {0, 1};
  for (int64_t block = 0; block < num_blocks; block++)
    NAME(mix)(num_columns, 1, width, starts, columns, values + block * stride, grad + block * num_rows * width, 2, mu,
              NULL, 0, out + block * num_columns * width, NULL, num_threads);
}
