r"""What a trained network does with its graph: how far it looks, what it filters, and what that is worth.

- **Reach.** A layer's mean hop is :math:`\sum_k k |\mu_k| / \sum_k |\mu_k|`, its farthest hop the last whose
  coefficient is not 0, over all operators. A node's receptive field is every node within the sum of the farthest hops.
- **Filter.** A layer multiplies an eigenvector of the operator of eigenvalue :math:`\lambda` by
  :math:`g_l(\lambda) = \sum_k \mu_{lk} \lambda^k`. The network is linearised for this: ReLU is left out and each weight
  ``W`` is the identity, so that :math:`f_0 = 1, \; f_l = p_l g_l f_{l-1} + q_l`, with :math:`p_l = 1 - \alpha_l` and
  :math:`q_l = \alpha_l` where a layer has one weight map. Eigenvalue 1 is what neighbours share, -1 where they differ.
  For layers with signed hops the network's filter is left out, as their maps are free and not near the identity.
- **Smoothing.** With :math:`\tilde A` of the edges read both ways, the Dirichlet energy is
  :math:`\mathrm{tr}\, H^\top (I - \tilde A) H / N`, and the relative energy is that divided by :math:`|H|^2 / N`, in
  [0, 2]. The mean cosine distance is over all pairs of nodes whose row is not 0. Small values: nodes look alike.
- **Worth of the graph.** The trained weights are shown other coefficients, in every layer at once, and nothing is
  trained or rescaled: 1 at hop 0 and 0 elsewhere (``without the graph``), hop 0 as it is and 0 elsewhere (``hop 0
  alone``), or 0 at one hop. Signed hops do not sum to 1, and a 1 at hop 0 would rescale what a node keeps of itself:
  there ``without the graph`` is hop 0 as it is. Where edges are read both ways, hops beyond 0 are also taken out one
  way at a time. Counted on the validation nodes, with and without on the same nodes.
- **Groups.** Validation nodes by number of neighbours, and by the share of labelled neighbours in their own class.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
import torch
from torch import Tensor

from adagpr.errors import InputError
from adagpr.files import make_folder, tidied, write_together
from adagpr.graph import Graph, Split
from adagpr.insight.node import NodeExplanation, all_links, distances, explain_node, farthest_hop, total_hops
from adagpr.insight.source import DatasetFiles, data_of
from adagpr.nn import Model
from adagpr.ops import Direction, Operator, features, operator, to_scipy
from adagpr.seeding import stream
from adagpr.training import Run, load_run

_LAMBDAS = tuple(np.linspace(-1, 1, 41).round(3).tolist())
_MOST_SAMPLED = 200
_BATCH = 20
# Where a model reads edges both ways: what the directions are called, in the order of its operators.
_DIRECTIONS = ("forwards", "backwards")


@dataclass(frozen=True)
class LayerPart:
    """What one layer takes from the graph; ``response`` is its filter at each of the explanation's ``lambdas``.

    Where edges are read both ways, ``coefficients`` and ``response`` are those forwards, then those backwards.
    """

    layer: int
    coefficients: tuple[float, ...]
    mean_hop: float
    max_hop: int
    uses_graph: bool
    response: tuple[float, ...]


@dataclass(frozen=True)
class Reach:
    """How many nodes one prediction can read: within ``total_hops``, the mean and the most over sampled nodes."""

    total_hops: int
    mean_nodes: float
    max_nodes: int
    num_nodes: int
    num_sampled: int


@dataclass(frozen=True)
class Smoothing:
    """How alike nodes are after a layer; layer 0 is the input map. No cosine for fewer than two rows other than 0."""

    layer: int
    dirichlet_energy: float
    relative_energy: float
    cosine_distance: float | None


@dataclass(frozen=True)
class Ablation:
    """The trained weights with other coefficients, on the validation nodes; ``name`` says what was changed."""

    name: str
    accuracy: float  # after the change, in per cent
    difference: float  # points that the change costs
    right_only_with: int  # nodes that are right only with all coefficients
    right_only_without: int
    max_change: float  # of any logit of any node


@dataclass(frozen=True)
class Group:
    """Validation nodes that are alike ``by`` degree or homophily; accuracies in per cent."""

    by: str
    name: str
    num_nodes: int
    accuracy: float
    accuracy_without_graph: float


@dataclass(frozen=True)
class Explanation:
    """What `explain` found."""

    dataset: str
    split: str
    model: str
    num_val: int
    val_acc: float | None  # accuracy on the validation nodes, in per cent; none without such nodes
    layers: tuple[LayerPart, ...]
    reach: Reach
    hop_names: tuple[str, ...]  # of the layers' coefficients
    signed: bool  # whether coefficients may be negative and need not sum to 1
    directions: tuple[
        str, ...
    ]  # ``forwards`` and ``backwards`` where edges are read both ways, else one without a name
    lambdas: tuple[float, ...]  # where the filters are given
    network_response: tuple[float, ...] | None  # of the linearised network; none with PairNorm or signed hops
    smoothing: tuple[Smoothing, ...]  # after the input map and after every layer
    ablations: tuple[Ablation, ...]  # what the graph and each hop are worth; empty without validation nodes
    groups: tuple[Group, ...]  # accuracy by degree and by local homophily, likewise
    node: NodeExplanation | None  # one node's prediction, if it was asked for
    remarks: tuple[str, ...]  # sentences on what was left out or must be kept in mind

    def filters(self, part: LayerPart) -> dict[str, tuple[float, ...]]:
        """The response of a layer by direction."""
        count = len(self.lambdas)
        return {name: part.response[i * count : (i + 1) * count] for i, name in enumerate(self.directions)}

    def to_plain(self) -> dict[str, Any]:
        """The explanation as plain data, ready for JSON."""
        return asdict(self)

    def tables(self) -> dict[str, pa.Table]:
        """The tables by name: ``layers`` (layer 0 is the input map), ``ablations`` and ``groups``."""
        parts: list[dict[str, Any]] = [dict.fromkeys(LayerPart.__dataclass_fields__), *map(asdict, self.layers)]
        rows = [{**part, **asdict(after)} for part, after in zip(parts, self.smoothing, strict=True)]
        tables = {"layers": rows, "ablations": map(asdict, self.ablations), "groups": map(asdict, self.groups)}
        return {name: pa.Table.from_pylist(list(table)) for name, table in tables.items()}

    def save(self, folder: Path | str) -> None:
        """Writes each table into ``folder`` as a Parquet file of its name."""
        tables = self.tables().items()
        with tidied(Path(folder)):
            make_folder(Path(folder))
            write_together({Path(folder) / f"{name}.parquet": partial(pq.write_table, table) for name, table in tables})


@torch.no_grad()
def explain(
    run: Run | Path | str,
    *,
    node: object = None,
    graph: Graph | None = None,
    split: Split | None = None,
    dataset: DatasetFiles = None,
    data_root: Path | str | None = None,
) -> Explanation:
    """Explains what a run of AdaGPR, with signed hops or without, or of GCNII does with its graph.

    Args:
        run: A run, or its folder.
        node: Id of a node, to take its prediction apart; see `adagpr.insight.node`.
        graph: The run's graph, if it did not come from `adagpr.load`; with ``split``.
        split: The run's split.
        dataset: Where the run's file is now, if it has moved or only the run names it; two for tables.
        data_root: Folder of the data files; see `adagpr.load`.

    Raises:
        InputError: The model has no coefficients by layer, the data are not those of the run, or there is no such node.

    Example:
        >>> import adagpr
        >>> graph, splits = adagpr.load("csbm", num_nodes=60)
        >>> run = adagpr.fit(graph, splits[0], num_layers=2, max_epochs=3)
        >>> [part.layer for part in explain(run).layers]
        [1, 2]
    """
    run = run if isinstance(run, Run) else load_run(run)
    config = run.record["config"]
    coeffs = run.model.coefficients()
    if coeffs is None or not run.model.capabilities.hop_weights:
        raise InputError(f"The model '{config['model']['name']}' has no layers with coefficients to explain.")
    graph, split = data_of(run, graph, split, dataset, data_root)
    graph = run.scaled(graph)
    direction, self_loops = config["training"]["direction"], config["training"]["self_loops"]
    model = deepcopy(run.model).cpu().eval()
    operators = model.operators(graph, direction, self_loops, torch.float32)
    structure = model.prepare(graph, **operators)
    x = features(graph.x)
    coeffs = coeffs.cpu()
    by_operator = coeffs.view(len(coeffs), len(operators), -1)
    views, signed = model.layer_views(), model.capabilities.signed
    logits = model(x, structure)
    changes = _changes(by_operator, signed)
    changed = {name: model.with_coefficients(mu.flatten(1))(x, structure) for name, mu in changes.items()}
    right, right_without = (_right(item, graph, split) for item in (logits, changed["without the graph"]))
    symmetric = operator(graph, "symmetric", self_loops, torch.float64)
    hidden = model.hidden_matrices(model.outer_maps()[0](x).relu(), structure)
    is_measured = len(split.val) > 0
    explained = None
    if node is not None and model.pair_norm is None:
        explained = explain_node(model, graph, node, direction, self_loops, temperature=run.temperature)
    alphas, by_hops_alone = [view.alpha for view in views], views[0].own is None
    hops = total_hops(coeffs.numpy(), alphas, len(operators), by_hops_alone)
    # Read both ways, an edge makes either end the other's neighbour.
    neighbours: Direction = "symmetric" if len(operators) > 1 else direction
    return Explanation(
        dataset=graph.name,
        split=split.name,
        model=model.name,
        num_val=len(split.val),
        val_acc=_percent(right) if is_measured else None,
        layers=tuple(
            _layer(view.number, mu, view.alpha) for view, mu in zip(views, by_operator.double().numpy(), strict=True)
        ),
        reach=_reach(all_links([to_scipy(item.matrix) for item in operators.values()]), hops),
        hop_names=model.hop_names(),
        signed=signed,
        directions=_DIRECTIONS if len(operators) > 1 else ("",),
        lambdas=_LAMBDAS,
        network_response=None if signed or model.pair_norm is not None else _network_response(model, coeffs),
        smoothing=tuple(_alike(number, h, symmetric) for number, h in enumerate(hidden)),
        ablations=tuple(_ablation(name, logits, item, graph, split) for name, item in changed.items() if is_measured),
        groups=tuple(_groups(graph, split, neighbours, right, right_without)) if is_measured else (),
        node=explained,
        remarks=tuple(_remarks(model, graph, direction, explained)),
    )


def _remarks(model: Model, graph: Graph, direction: Direction, node: NodeExplanation | None) -> list[str]:
    remarks = []
    if model.pair_norm is not None:
        remarks.append(
            "PairNorm is between the layers and makes every node depend on all others: the filter of the whole "
            "network and the parts of a node's prediction are left out, and the reach is that of the layers alone."
        )
    if any(value < 0 for view in model.layer_views() for row in view.coefficients.values() for value in row):
        remarks.append(
            "A hop with a negative weight is subtracted: a layer whose weights have both signs takes the difference "
            "between what is near and what is farther away."
        )
    if model.capabilities.signed:
        remarks.append(
            "The filter of the whole network is left out: it would take every weight map for the identity, and those "
            "of these layers are free. The filter of a layer is that of its hops, without its own map and its norm."
        )
    if node is not None and any(view.row_norm is not None for view in model.layer_views()):
        remarks.append(
            "Layer normalisation divides each node's row by its own deviation: in the parts of the node's prediction "
            "these deviations are frozen at what they were, as the ReLUs are."
        )
    if direction == "directed" and not graph.is_symmetric:
        remarks.append(
            "The graph is directed: its operator may have complex eigenvalues, of which the filters show the real "
            "ones, and the Dirichlet energy is that of the edges read both ways."
        )
    return remarks


def _changes(coeffs: Tensor, signed: bool) -> dict[str, Tensor]:
    """The coefficients of each ablation, ``[layers, operators, hops]``, by its name."""
    first = torch.zeros_like(coeffs)
    first[..., 0] = 1.0
    alone = coeffs * first
    changes = {"without the graph": alone} if signed else {"without the graph": first, "hop 0 alone": alone}
    for hop in range(coeffs.shape[2]):
        changes[f"without hop {hop}"] = coeffs.index_fill(2, torch.tensor([hop]), 0.0)
    if coeffs.shape[1] > 1:
        for number, name in enumerate(_DIRECTIONS):
            changes[f"without the edges {name}"] = coeffs.clone()
            changes[f"without the edges {name}"][:, number, 1:] = 0.0
    return changes


def _right(logits: Tensor, graph: Graph, split: Split) -> Tensor:
    return logits[split.val].argmax(-1) == graph.y[split.val]


def _percent(right: Tensor) -> float:
    return 100 * int(right.sum()) / len(right)


def _ablation(name: str, logits: Tensor, changed: Tensor, graph: Graph, split: Split) -> Ablation:
    one, other = (_right(item, graph, split) for item in (logits, changed))
    with_only, without_only = int((one & ~other).sum()), int((other & ~one).sum())
    difference = 100 * (with_only - without_only) / len(one)
    return Ablation(name, _percent(other), difference, with_only, without_only, float((logits - changed).abs().max()))


def _layer(number: int, mu: np.ndarray, alpha: float) -> LayerPart:
    """What one layer takes; ``mu`` is ``[operators, hops]``."""
    size, max_hop = np.abs(mu).sum(0), farthest_hop(mu, len(mu))
    mean_hop = float(size @ np.arange(len(size)) / size.sum()) if size.any() else 0.0
    response = np.concatenate([np.polynomial.polynomial.polyval(_LAMBDAS, row) for row in mu])
    uses_graph = max_hop > 0 and alpha < 1
    return LayerPart(number, tuple(mu.ravel().tolist()), mean_hop, max_hop, uses_graph, tuple(response.tolist()))


def _network_response(model: Model, coeffs: Tensor) -> tuple[float, ...]:
    result = np.ones(len(_LAMBDAS))
    for view, mu in zip(model.layer_views(), coeffs.double().numpy(), strict=True):
        height, width = view.weight.shape
        identity = torch.eye(width, dtype=torch.float64).repeat(height // width, 1)
        own, residual = (float(item[0, 0]) for item in replace(view, weight=identity).maps())
        result = own * np.polynomial.polynomial.polyval(_LAMBDAS, mu) * result + residual
    return tuple(result.tolist())


def _reach(matrix: sp.csr_array, hops: int) -> Reach:
    num_nodes = matrix.shape[0]
    nodes = np.arange(num_nodes)
    if num_nodes > _MOST_SAMPLED:
        nodes = np.sort(stream(0, "receptive field").choice(num_nodes, _MOST_SAMPLED, replace=False))
    batches = [nodes[start : start + _BATCH] for start in range(0, len(nodes), _BATCH)]
    counts = np.concatenate([(distances(matrix, batch.tolist(), hops) >= 0).sum(0) for batch in batches])
    return Reach(hops, float(counts.mean()), int(counts.max()), num_nodes, len(nodes))


def _alike(layer: int, h: Tensor, symmetric: Operator) -> Smoothing:
    h = h.double()
    # A node without any weight has a zero row, and nobody to differ from.
    linked = symmetric.matrix.crow_indices().diff() > 0
    size = float(h.square().sum())
    energy = max(float(h[linked].square().sum() - (h * (symmetric.matrix @ h)).sum()), 0.0)
    length = h.norm(dim=1)
    unit = h[length > 0] / length[length > 0, None]
    count = len(unit)
    # The sum of all cosines is the squared length of the sum of all unit vectors.
    cosine = (float(unit.sum(0).square().sum()) - count) / (count * (count - 1)) if count > 1 else None
    return Smoothing(layer, energy / len(h), energy / size if size else 0.0, None if cosine is None else 1 - cosine)


def _groups(graph: Graph, split: Split, direction: Direction, right: Tensor, right_without: Tensor) -> list[Group]:
    links = graph.adj.maximum(graph.adj.T) if direction == "symmetric" else graph.adj
    links = sp.csr_array(links - sp.diags_array(links.diagonal()))
    links.eliminate_zeros()
    val, labels = split.val.numpy(), graph.y.numpy()
    links.data[:] = 1
    degree = np.diff(links.indptr)[val]
    known = (links @ (labels >= 0).astype(np.float64))[val]
    ones = np.eye(graph.num_classes)[labels] * (labels >= 0)[:, None]
    same = (links @ ones)[val, labels[val]]
    # Degrees in powers of two: 0, 1, 2 to 3, 4 to 7, ...; shares in fifths, the last with 1 in it.
    by_degree = np.ceil(np.log2(degree + 1)).astype(int)
    share = np.divide(same, known, out=np.full(len(val), -1.0), where=known > 0)
    by_share = np.where(known > 0, np.minimum((5 * share + 1e-9).astype(int), 4), 5)
    ends = [(2**number // 2, 2**number - 1) for number in range(int(by_degree.max()) + 1)]
    degrees = [f"{low} to {high}" if low < high else str(low) for low, high in ends]
    shares = [*(f"{i / 5:.1f} to {(i + 1) / 5:.1f}" for i in range(5)), "no labelled neighbour"]
    groups = []
    for by, numbers, names in (("degree", by_degree, degrees), ("homophily", by_share, shares)):
        for number, name in enumerate(names):
            mask = numbers == number
            if mask.any():
                accuracies = (100 * float(item.numpy()[mask].mean()) for item in (right, right_without))
                groups.append(Group(by, name, int(mask.sum()), *accuracies))
    return groups
