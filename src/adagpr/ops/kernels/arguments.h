/* Included once for each type of number: what the kernels are given. `ops/kernels.py` reads these declarations, so that
   this is the only list of members, which are int64_t, double or pointers. What a caller does not name is 0.

   Matrices have `num_rows` rows in `num_blocks` blocks of as many rows each, and `width` columns. A sparse matrix is
   given as `starts`, `columns` and `values`. Dropout zeroes what has a 16-bit word below `threshold`. */

struct NAME(following);

/* A hop whose product x is made: out = factor * x + own * h + share * plus; `plus` may be NULL. */
typedef struct {
  int64_t num_rows, width, num_threads;
  const REAL *x, *h, *plus;
  double factor, own, share;
  REAL *out;
} NAME(hop_arguments);

/* The gradients of `weighted_hops`; A is the transpose of the forward pass. `first` is the gradient that the recurrence
   starts from. `spare` and `other` are written over where there are powers to keep; `other` may be `first`. `share` times it is added to `shared` where there is one. With `is_masked` the total
   is 0 where h is not positive. With `begins` nothing is in `shared` yet; with `ends` it is added to the total. `inner`
   gets the inner products of h with the powers of A times `first`, hop by hop, within a hop block by block; `pairs` has
   room for two numbers for each block, `parts` for two for each chunk.

   One hop of it is `hop_backward`: power = A x, or x where there are no `starts`; total = (mu * first where it is given,
   else what it was) + weight * power; `pairs` gets, for each block, the inner product of h with the power and with
   `first`. Without `power` the product is not kept, as nothing follows the last hop. */
typedef struct {
  int64_t num_rows, num_blocks, width, num_threads, num_hops;
  const int32_t *starts, *columns;
  const REAL *values, *x, *h;
  const double *mu, *weight;
  REAL *first, *total, *power, *spare, *other, *shared;
  double share, *inner, *pairs, *parts;
  int64_t is_masked, begins, ends;
} NAME(weighted_hops_backward_arguments), NAME(hop_backward_arguments);

/* out = share * plus + sum_k mu[k] A^k h by Horner's rule; `mu` hop by hop, within a hop block by block. A block begins
   with its last hop that has any weight. `spare` is a matrix that is written over where there are more than two hops.
   One thread first draws the words that are `wanted`, if any, one draw for each block, while the others begin. What
   follows is done `then`, if anything. */
typedef struct {
  int64_t num_rows, num_blocks, width, num_threads, num_hops;
  const int32_t *starts, *columns;
  const REAL *values, *h, *plus;
  const double *mu;
  double share;
  REAL *out, *spare;
  const draw *wanted;
  const struct NAME(following) *then;
} NAME(weighted_hops_arguments);

/* out = s^T z, for a width that is a multiple of a vector's. The rows are cut into `num_segments`, each with a matrix of
   its own in `partial`, which holds z^T s; these are added up in order. With `m` the rows of z are mapped on the way:
   mapped = z m, by way of `room` for a chunk for each thread where it `is_streamed`; or mapped = mapped + z m where it
   `adds`. Where enough of z is 0, it is passed over.

   `multiply_square` is out = s m, or with `adds` out = out + s m, for such a width. */
typedef struct {
  int64_t num_rows, width, num_threads, num_segments, is_streamed, adds;
  const REAL *s, *z, *m;
  REAL *out, *partial, *mapped, *room;
} NAME(outer_arguments), NAME(multiply_square_arguments);

/* A step of Adam for `count` arrays, each with a decay, a rate and a root of its own; `rates` and `roots` have the
   corrections of mean and square in them. */
typedef struct {
  int64_t count, num_threads;
  const int64_t *sizes;
  REAL *const *parameters;
  const REAL *const *gradients;
  REAL *const *means, *const *squares;
  const double *decays, *rates, *roots;
  double beta_1, beta_2, epsilon;
} NAME(adam_arguments);

/* In place: what is negative becomes 0, and so does what has a word below the threshold; NaN is kept. */
typedef struct {
  int64_t size, num_threads, threshold;
  REAL *x;
  const uint16_t *words;
} NAME(relu_drop_arguments);

/* out = scale * x, or 0 where the word is below the threshold. The words are drawn on the way, four elements each, for
   `step` elements at a time, so that they stay in the cache; `words` has room for twice as many. */
typedef struct {
  int64_t size, num_threads, step, threshold;
  const REAL *x;
  uint64_t *state, *words;
  double scale;
  REAL *out;
} NAME(drop_arguments);

/* Dropout of the values of a sparse matrix, and of its transpose, which has them in another order. */
typedef struct {
  int64_t size, num_threads, threshold;
  const REAL *values;
  const uint16_t *words;
  double scale;
  const int64_t *order;
  REAL *kept, *transposed;
} NAME(drop_values_arguments);

/* out = relu(X W^T + b) for each block. The weights lie along the outputs. With `words`, one array for each block, X is
   dropped for each block anew; `kept` and `transposed` then have room for its values block by block, the latter in the
   `order` of the transpose.

   `first_maps_backward` gives the gradients of the weights: X^T, which has `num_rows` rows here, times each block of
   `grad`, `grad_stride` numbers apart. `values` are those of the transpose, `stride` apart from block to block: 0 where
   all share them. */
typedef struct {
  int64_t num_rows, num_blocks, width, num_threads, threshold, grad_stride, stride;
  const int32_t *starts, *columns;
  const REAL *values, *grad;
  const uint16_t *const *words;
  double scale;
  const int64_t *order;
  REAL *kept, *transposed, *out;
  const REAL *const *weights, *const *biases;
} NAME(first_maps_arguments), NAME(first_maps_backward_arguments);

/* The layers of a network, see `stack.h`, from y[0] = drop(h_0) to `last`, the output of the last one, which is
   multiplied by `scale`. With the size of a matrix as `stride` every y before it and every s are kept; with 0 none is: y
   and s then have room for one matrix each. `words` has room for two layers' words, `maps` for the maps of all layers,
   `room` for two chunks for each thread; `spare` is written over.

   `stack_backward` gives the gradients of all layers from `given`, that of `last`: `grad` gets that of h_0, `outers` that
   of each weight, `inner` the inner products, laid out as mu. `maps` has room for the transposed maps, `partial` for what
   `outer` needs; `shared` and `back` are written over, too. */
typedef struct {
  int64_t num_layers, num_rows, num_blocks, width, num_threads, most_hops, num_maps, threshold, stride, num_segments;
  const int32_t *starts, *columns;
  const REAL *values, *h_0, *given;
  const double *shares, *mu, *shapes;
  const int64_t *num_hops;
  const REAL *const *weights;
  uint64_t *states, *words;
  double scale, *inner, *pairs, *parts;
  REAL *maps, *y, *s, *last, *spare, *room, *grad, *shared, *outers, *back, *partial;
} NAME(stack_arguments), NAME(stack_backward_arguments);

/* Normalisation, see `norms.h`: `constants` are NUM_CONSTANTS rows for each block; `by_row` for layer normalisation. `sums`
   get two rows for each block, `parts` has room for two for each chunk. `column_moments` gives sums and squares about the
   mean, `norm_sums` the sums of the gradient and of its products with what was normalised. */
typedef struct {
  int64_t num_rows, num_blocks, width, num_threads, by_row;
  const REAL *z, *grad, *constants;
  REAL *out;
  double *sums, *parts;
} NAME(column_moments_arguments), NAME(normalise_arguments), NAME(norm_sums_arguments), NAME(norm_backward_arguments);

/* The layers of a signed stack, see `signed.h`, from drop(h_0) to `last`, the output of the last one. `starts`, `columns`
   and `values` are of one matrix for each operator. With the size of a matrix as `stride` the input y of each layer, what
   every operator's map makes of it, v, and with a norm z are kept; with 0 none is: v then has room for two layers', z for
   one matrix. `own` and `turn` are written over, `turn` only where there are several operators; `words` has room for two
   layers' words, `room` for four chunks for each thread. With `measures` mean and variance are those of z, and are
   written to `moments`; otherwise `moments` are given, or there are none.

   `signed_stack_backward` gives the gradients from `given`, that of `last`: `grad` gets that of h_0, `outers` that of
   each map, `inner` that of each coefficient, laid out as mu, `sums` those of shift and scale. `maps` has room for the
   transposed maps, `partial` for a matrix for each map of each of `num_segments` in each block; `dz`, `t`, one matrix for
   each operator, and `spare` are written over. */
typedef struct {
  int64_t num_layers, num_operators, num_rows, num_blocks, width, num_threads, most_hops, threshold, stride;
  int64_t num_segments, by_row, measures, has_norm;
  const int32_t *const *starts, *const *columns;
  const REAL *const *values;
  const REAL *h_0, *given, *scales, *shifts;
  const double *mu;
  const int64_t *num_hops;
  const REAL *const *weights;
  uint64_t *states, *words;
  double scale, *inner, *pairs, *parts, *chunk_sums, *moments, *sums;
  REAL *constants, *y, *v, *z, *last, *own, *turn, *spare, *room, *grad, *dz, *t, *maps, *outers, *partial;
} NAME(signed_stack_arguments), NAME(signed_stack_backward_arguments);
