"""Pure tensor maths: operators, propagation, projections, sparse features, dropout."""

from adagpr.ops.drop_edge import DroppableOperator
from adagpr.ops.dropout import dropout, relu_dropout_
from adagpr.ops.edge_operator import edge_operator
from adagpr.ops.first_maps import first_maps
from adagpr.ops.last_map import last_map
from adagpr.ops.operator import Direction, Operator, operator
from adagpr.ops.pair_norm import pair_norm
from adagpr.ops.propagate import gpr_propagate
from adagpr.ops.residual_stack import Layers, WeightMaps, map_shapes, residual_stack
from adagpr.ops.scratch import reused
from adagpr.ops.simplex import PROJECTIONS, Projection, projection
from adagpr.ops.sparse_linear import Features, SparseFeatures, drop_features, features, linear

__all__ = [
    "PROJECTIONS",
    "Direction",
    "DroppableOperator",
    "Features",
    "Layers",
    "Operator",
    "Projection",
    "SparseFeatures",
    "WeightMaps",
    "drop_features",
    "dropout",
    "edge_operator",
    "features",
    "first_maps",
    "gpr_propagate",
    "last_map",
    "linear",
    "map_shapes",
    "operator",
    "pair_norm",
    "projection",
    "relu_dropout_",
    "residual_stack",
    "reused",
]
