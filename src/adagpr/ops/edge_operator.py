"""An operator from the graph forms of torch_geometric: an edge index, or a sparse tensor.

Messages flow there from source to target, so that row ``i`` of the operator reads the sources of the edges that end in
``i``, and degrees count the edges that come in. A sparse tensor is torch_geometric's ``adj_t``: its row ``i`` already
holds what ``i`` reads. Repeated edges count as often as they are given. Self loops are added as ``gcn_norm`` does: with
an edge index only to nodes without one, with a sparse tensor to all.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from adagpr.errors import InputError
from adagpr.ops.csr import csr_tensor
from adagpr.ops.operator import Operator, normalise

__all__ = ["edge_operator"]


def edge_operator(
    edge_index: Tensor,
    num_nodes: int,
    edge_weight: Tensor | None = None,
    *,
    normalize: bool = True,
    add_self_loops: bool = True,
    dtype: torch.dtype = torch.float32,
) -> Operator:
    """Builds an operator as torch_geometric's ``gcn_norm`` and ``propagate`` would use it.

    Takes time and memory in the number of edges. The weights are constants: no gradient reaches them.

    Args:
        edge_index: Sources above targets, 2 x E whole numbers; or a sparse tensor, ``[targets, sources]``.
        num_nodes: Number of nodes.
        edge_weight: One weight an edge, 1 each unless given; a sparse tensor brings its own.
        normalize: Whether to divide by the roots of both ends' degrees; without it no self loops are added either.
        add_self_loops: Whether each node also reads itself.
        dtype: Precision of the result; degrees are always summed in float64.

    Raises:
        InputError: Shapes do not fit, an edge leaves the graph, or a weight asks for a gradient.

    Example:
        >>> edge_operator(torch.tensor([[0], [1]]), num_nodes=2, normalize=False).matrix.to_dense().tolist()
        [[0.0, 0.0], [1.0, 0.0]]
    """
    is_sparse = edge_index.layout != torch.strided
    weights = edge_index if is_sparse else edge_weight
    if weights is not None and weights.requires_grad:
        raise InputError(
            "edge_operator: edge weights are taken as constants, but these ask for a gradient; detach them."
        )
    if is_sparse:
        if edge_weight is not None:
            raise InputError("edge_operator: a sparse tensor brings its own weights; edge_weight must be left out.")
        matrix = _from_sparse(edge_index, num_nodes)
    else:
        matrix = _from_pairs(edge_index, edge_weight, num_nodes)
    if normalize:
        loops = np.ones(num_nodes) if is_sparse else (matrix.diagonal() == 0).astype(np.float64)
        if add_self_loops:
            matrix = sp.csr_array(matrix + sp.diags_array(loops, format="csr"))
        matrix = normalise(matrix, "directed", self_loops=False)
    device = edge_index.device
    transpose = csr_tensor(sp.csr_array(matrix.T), dtype).to(device)
    return Operator(csr_tensor(matrix, dtype).to(device), transpose, "directed", normalize and add_self_loops)


def _from_pairs(edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int) -> sp.csr_array:
    # A plain tensor also where it is torch_geometric's EdgeIndex.
    pairs = edge_index.as_subclass(Tensor).cpu().numpy()
    if pairs.ndim != 2 or pairs.shape[0] != 2 or pairs.dtype.kind not in "iu":
        raise InputError(f"edge_operator: edge_index must be 2 x E whole numbers, got {pairs.dtype} {pairs.shape}.")
    if pairs.size and (pairs.min() < 0 or pairs.max() >= num_nodes):
        raise InputError(
            f"edge_operator: edge_index names nodes from {pairs.min()} to {pairs.max()}, "
            f"but the nodes are 0 to {num_nodes - 1}."
        )
    weights = np.ones(pairs.shape[1]) if edge_weight is None else edge_weight.cpu().double().numpy()
    if weights.shape != (pairs.shape[1],):
        raise InputError(f"edge_operator: edge_weight must hold {pairs.shape[1]} values, got {weights.shape}.")
    return sp.csr_array((weights, (pairs[1], pairs[0])), shape=(num_nodes, num_nodes))


def _from_sparse(matrix: Tensor, num_nodes: int) -> sp.csr_array:
    if tuple(matrix.shape) != (num_nodes, num_nodes):
        raise InputError(
            f"edge_operator: the sparse tensor must be {num_nodes} x {num_nodes} for as many nodes, "
            f"got {tuple(matrix.shape)}."
        )
    csr = matrix.cpu().to_sparse_csr()
    parts = (csr.values().double(), csr.col_indices(), csr.crow_indices())
    # A copy, because merging duplicates sorts in place.
    result = sp.csr_array(tuple(part.numpy() for part in parts), shape=(num_nodes, num_nodes), copy=True)
    result.sum_duplicates()
    return result
