"""Pure tensor maths: operators, propagation, projections, sparse features, dropout."""

from adagpr.ops.drop_edge import DroppableOperator
from adagpr.ops.dropout import dropout, relu_dropout_
from adagpr.ops.edge_operator import edge_operator
from adagpr.ops.operator import Direction, Operator, operator
from adagpr.ops.pair_norm import pair_norm
from adagpr.ops.propagate import gpr_propagate
from adagpr.ops.residual_stack import Layers, residual_stack
from adagpr.ops.scratch import reused
from adagpr.ops.simplex import PROJECTIONS, Projection, projection
from adagpr.ops.sparse_linear import Features, SparseFeatures, features, linear

__all__ = [
    "PROJECTIONS",
    "Direction",
    "DroppableOperator",
    "Features",
    "Layers",
    "Operator",
    "Projection",
    "SparseFeatures",
    "dropout",
    "edge_operator",
    "features",
    "gpr_propagate",
    "linear",
    "operator",
    "pair_norm",
    "projection",
    "relu_dropout_",
    "residual_stack",
    "reused",
]
