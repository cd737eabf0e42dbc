r"""Geom-GCN-I (Pei et al., 2020): neighbours are told apart by where they lie in a plane under the graph.

.. math::
    e_{v,r} = \sum_{u \in N_r(v)} (\deg(v) \deg(u))^{-1/2} h_u, \qquad
    h'_v = \mathrm{relu}\big(\Vert_r W_r e_{v,r}\big), \qquad z_v = \tfrac19 \sum_r W_r e_{v,r}

The nine relations ``r`` are the four quadrants around a node among its graph neighbours, the four among its latent
neighbours, and the node itself. ``h'`` is the hidden layer, ``z`` the last. `adagpr.ops.latent_space` makes plane and
neighbourhoods.

Where the authors' code (bingzhewei/geom-gcn, the published repository under its first name) departs from the paper:

* The paper maps the joined aggregates by one matrix, ``relu(W [e_1 | e_2 | ...])``, ``hidden_channels`` wide; the code
  (``utils_layers.py``) has a map for each relation and joins their outputs, nine times as wide. Built so here.
* The paper prints the exponent 1/2; the code has -1/2, with degrees in the graph of both kinds of neighbours.
* The node itself is a ninth relation, and a pair that is both a graph and a latent neighbour counts only as latent
  (``utils_data.py``). Built so here.
* The code computes no plane: it reads neighbourhoods from files whose making was not released. Those named ``MDS``
  serve as Geom-GCN-I. They are not Isomap of hop distances: in Texas, nodes 136 and 149 have node 56 as their only
  neighbour, so that Isomap puts them on one place, but their latent neighbours in the file have no node in common.
  Results here are those of the published method, not of those files.
"""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from adagpr.arguments import Count, Rate, checked
from adagpr.files import cache_folder, make_folder, write_bytes
from adagpr.graph import Graph
from adagpr.nn.gcn import propagate
from adagpr.nn.model import Model
from adagpr.ops import NUM_RELATIONS, Features, Neighbourhoods, Operator, linear, neighbourhoods, relation_operators

# Part of every file name: a change of what `neighbourhoods` computes must raise it.
_VERSION = 1


class GeomGCNConv(nn.Module):
    """One map per relation, each followed by that relation's sum over neighbours; no bias, as in the authors' code."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(NUM_RELATIONS * out_channels, in_channels))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draws each relation's map by Glorot's uniform rule."""
        rows, columns = self.weight.shape
        bound = math.sqrt(6 / (columns + rows // NUM_RELATIONS))
        nn.init.uniform_(self.weight, -bound, bound, generator=generator)

    def forward(self, x: Features, operators: list[Operator]) -> list[Tensor]:
        """One matrix per relation, ``[nodes, out_channels]`` each."""
        mapped = linear(x, self.weight, self.weight.new_zeros(self.weight.shape[0]))
        parts = mapped.chunk(NUM_RELATIONS, dim=1)
        return [propagate(part, operator) for part, operator in zip(parts, operators, strict=True)]

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        return f"{self.weight.shape[1]}, {NUM_RELATIONS} x {self.weight.shape[0] // NUM_RELATIONS}"


class GeomGCN(Model):
    """Two layers of sums by relation; the first joins the relations, the last averages them.

    Args:
        hidden_channels: Width of each relation; the hidden matrix is nine times as wide.
        dropout: Probability of dropping an element before each layer.

    Example:
        >>> GeomGCN(8, 16, 3).conv_out
        GeomGCNConv(144, 9 x 3)
    """

    name = "geom-gcn"
    paper = "Pei et al., 2020"
    good_for = "graphs whose shape matters: neighbours by place in a plane"
    groups = (("conv_in.*", "conv_in"), ("conv_out.*", "conv_out"))

    @checked
    def __init__(self, in_channels: Count, hidden_channels: Count, out_channels: Count, dropout: Rate = 0.5) -> None:
        super().__init__(dropout)
        self.conv_in = GeomGCNConv(in_channels, hidden_channels)
        self.conv_out = GeomGCNConv(NUM_RELATIONS * hidden_channels, out_channels)

    def prepare(self, graph: Graph, edges: Operator) -> list[Operator]:
        """The operators of the nine relations; edges are read both ways whatever the direction, as by the authors."""
        pairs = cached_neighbourhoods(graph)
        matrix = edges.matrix
        return [item.to(matrix.device) for item in relation_operators(pairs, graph.num_nodes, matrix.dtype)]

    def forward(self, x: Features, structure: list[Operator]) -> Tensor:
        """Logits of all nodes; ``structure`` is what `prepare` made."""
        h = torch.cat(self.conv_in(self.drop_features(x), structure), dim=1).relu_()
        return torch.stack(self.conv_out(self.drop(h), structure)).mean(dim=0)


def cached_neighbourhoods(graph: Graph) -> Neighbourhoods:
    """The neighbourhoods of ``graph`` from its file in the user's cache, which is written if missing or damaged."""
    # Named by the fingerprint of the edges alone, so that all splits of a graph share the file.
    bare = replace(graph, x=torch.zeros(graph.num_nodes, 1), y=torch.full((graph.num_nodes,), -1))
    folder = cache_folder() / "geom-gcn-neighbourhoods"
    path = folder / f"{bare.fingerprint}-v{_VERSION}.npz"
    found = _read(path, graph.num_nodes)
    if found is None:
        found = neighbourhoods(graph.adj)
        make_folder(folder)
        content = io.BytesIO()
        np.savez_compressed(content, **vars(found))
        write_bytes(path, content.getvalue())
    return found


def _read(path: Path, num_nodes: int) -> Neighbourhoods | None:
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            pairs = Neighbourhoods(**file)
    except (OSError, EOFError, KeyError, ValueError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error):
        return None
    limits = ((pairs.rows, num_nodes), (pairs.columns, num_nodes), (pairs.relation, NUM_RELATIONS - 1))
    for part, limit in limits:
        is_list = part.dtype == np.int64 and part.shape == pairs.rows.shape and part.ndim == 1 and part.size > 0
        if not is_list or part.min() < 0 or part.max() >= limit:
            return None
    return pairs
