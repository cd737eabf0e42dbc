/* Included once for each type of number, after `hops.h` and `maps.h`: the first map of several networks, from the sparse
   features that they share to a matrix with a block of rows for each. */

static const double NAME(one_hop)[2] = {0, 1};

void NAME(first_maps)(const NAME(first_maps_arguments) *a) {
  const int64_t num_rows = a->num_rows, width = a->width, size = a->starts[num_rows];
  for (int64_t block = 0; block < a->num_blocks; block++) {
    const REAL *values = a->values, *restrict bias = a->biases[block];
    REAL *to = a->out + block * num_rows * width;
    if (a->words != NULL) {
      REAL *kept = a->kept + block * size;
      NAME(drop_values)(&(NAME(drop_values_arguments)){
          .size = size, .num_threads = a->num_threads, .threshold = a->threshold, .values = values,
          .words = a->words[block], .scale = a->scale, .order = a->order, .kept = kept,
          .transposed = a->transposed + block * size});
      values = kept;
    }
    NAME(weighted_hops)(&(NAME(weighted_hops_arguments)){
        .num_rows = num_rows, .num_blocks = 1, .width = width, .num_threads = a->num_threads, .num_hops = 2,
        .starts = a->starts, .columns = a->columns, .values = values, .h = a->weights[block],
        .mu = NAME(one_hop), .out = to});
#pragma omp parallel for schedule(static) num_threads(a->num_threads) if (a->num_threads > 1)
    for (int64_t row = 0; row < num_rows; row++) {
      REAL *restrict y = to + row * width;
      for (int64_t i = 0; i < width; i++) y[i] += bias[i];
      NAME(relu_drop_part)(width, y, NULL, 0);
    }
  }
}

void NAME(first_maps_backward)(const NAME(first_maps_backward_arguments) *a) {
  for (int64_t block = 0; block < a->num_blocks; block++)
    NAME(weighted_hops)(&(NAME(weighted_hops_arguments)){
        .num_rows = a->num_rows, .num_blocks = 1, .width = a->width, .num_threads = a->num_threads, .num_hops = 2,
        .starts = a->starts, .columns = a->columns, .values = a->values + block * a->stride, .mu = NAME(one_hop),
        .h = a->grad + block * a->grad_stride, .out = a->out + block * a->num_rows * a->width});
}
