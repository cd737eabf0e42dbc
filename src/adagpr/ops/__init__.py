"""Pure tensor maths: operators, propagation, projections, sparse features, dropout, spectra."""

from adagpr.ops.buffers import buffer_pool, matrix
from adagpr.ops.dropout import dropout, pair_norm, relu_dropout_
from adagpr.ops.feature_scaling import (
    LEAST_SUM,
    UNSCALED,
    FeatureScaling,
    FeatureStatistics,
    ScalingKind,
    ScalingOption,
    row_sums,
)
from adagpr.ops.kernels import addresses, call_kernel, compute_threads, num_threads, supports_kernels, watch_kernels
from adagpr.ops.latent_space import NUM_RELATIONS, Neighbourhoods, neighbourhoods, relation_operators
from adagpr.ops.linear import Features, SparseFeatures, drop_features, features, first_maps, last_map, linear
from adagpr.ops.norms import EPSILON as NORM_EPSILON
from adagpr.ops.norms import TOO_FEW_ROWS, Norm
from adagpr.ops.operator import (
    Direction,
    DroppableOperator,
    Operator,
    cache_order,
    csr,
    csr_tensor,
    directed_operator,
    edge_operator,
    is_large,
    multiply,
    normalise,
    normalised,
    operator,
    read_edges,
    to_scipy,
)
from adagpr.ops.propagate import gpr_propagate
from adagpr.ops.residual_stack import Layers, WeightMaps, map_shapes, residual_stack
from adagpr.ops.signed_stack import SignedLayers, signed_stack
from adagpr.ops.simplex import PROJECTIONS, projection
from adagpr.ops.spectrum import MAX_EXACT, NUM_PROBES, NUM_STEPS, Estimate, Spectrum, spectrum

__all__ = [
    "LEAST_SUM",
    "MAX_EXACT",
    "NORM_EPSILON",
    "NUM_PROBES",
    "NUM_RELATIONS",
    "NUM_STEPS",
    "PROJECTIONS",
    "TOO_FEW_ROWS",
    "UNSCALED",
    "Direction",
    "DroppableOperator",
    "Estimate",
    "FeatureScaling",
    "FeatureStatistics",
    "Features",
    "Layers",
    "Neighbourhoods",
    "Norm",
    "Operator",
    "ScalingKind",
    "ScalingOption",
    "SignedLayers",
    "SparseFeatures",
    "Spectrum",
    "WeightMaps",
    "addresses",
    "buffer_pool",
    "cache_order",
    "call_kernel",
    "compute_threads",
    "csr",
    "csr_tensor",
    "directed_operator",
    "drop_features",
    "dropout",
    "edge_operator",
    "features",
    "first_maps",
    "gpr_propagate",
    "is_large",
    "last_map",
    "linear",
    "map_shapes",
    "matrix",
    "multiply",
    "neighbourhoods",
    "normalise",
    "normalised",
    "num_threads",
    "operator",
    "pair_norm",
    "projection",
    "read_edges",
    "relation_operators",
    "relu_dropout_",
    "residual_stack",
    "row_sums",
    "signed_stack",
    "spectrum",
    "supports_kernels",
    "to_scipy",
    "watch_kernels",
]
