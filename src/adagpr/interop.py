"""Graphs of other libraries: NetworkX in, torch_geometric in and out.

Edges keep their direction: an edge from ``i`` to ``j`` there is entry ``[i, j]`` of ``adj`` here. What a model makes of
a direction differs: torch_geometric's layers send messages along an edge, from its source to its target, while an
operator with ``direction="directed"`` lets a node read the nodes that it points to, as the paper's authors do. On
undirected graphs both are the same.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from adagpr.errors import InputError, reason_of, unknown_name
from adagpr.graph import SPLIT_NAMES, Graph, Split, edges_to_csr, from_edge_index, from_scipy

if TYPE_CHECKING:
    from torch_geometric.data import Data


def from_networkx(
    g: Any,
    label: str = "y",
    features: Sequence[str] | None = None,
    weight: str | None = "weight",
    *,
    name: str = "graph",
) -> Graph:
    """Makes a `Graph` from a NetworkX graph.

    Nodes are in the graph's own order, and their names become ``node_ids``. An undirected edge goes both ways; of
    parallel edges the largest weight stays.

    Args:
        g: The graph, of any of NetworkX's four kinds.
        label: Node attribute with the class, of any type. Where it is missing, ``None`` or NaN the class is unknown.
        features: Node attributes with the features, each a number or a list of numbers; side by side in this order. By
            default all but the label, in the first node's order; where there are none, each node is its own feature.
        weight: Edge attribute with the weight, 1 where it is missing; ``None`` for 1 everywhere.
        name: What to call the graph in results.

    Raises:
        InputError: ``g`` is no such graph, has no such attribute, or an attribute is not what it should be.

    Example:
        >>> import networkx as nx
        >>> club = nx.karate_club_graph()
        >>> graph = from_networkx(club, label="club")
        >>> graph.num_nodes, graph.num_edges, graph.class_names
        (34, 156, ('Mr. Hi', 'Officer'))
    """
    if not all(hasattr(g, part) for part in ("nodes", "edges", "is_directed")):
        raise InputError(f"from_networkx: g must be a NetworkX graph, got {type(g).__name__}.")
    nodes = list(g.nodes)
    if not nodes:
        raise InputError("from_networkx: there are no nodes.")
    attributes = [g.nodes[node] for node in nodes]
    y, class_names = _classes(_column(attributes, label), label)
    chosen = [key for key in attributes[0] if key != label] if features is None else list(features)
    x = _features(nodes, attributes, chosen) if chosen else sp.eye_array(len(nodes), format="csr")
    adj = _adjacency(g, {node: place for place, node in enumerate(nodes)}, weight)
    return from_scipy(adj, x, y, class_names=class_names, node_ids=_ids(nodes), name=name)


def from_pyg(
    data: Any, *, weight: str | None = "edge_weight", class_names: Sequence[str] | None = None, name: str = "graph"
) -> Graph:
    """Makes a `Graph` from a torch_geometric ``Data``; its masks are read by `splits_from_pyg`.

    Args:
        data: With ``x``, ``edge_index`` and ``y``; class -1 means unknown. Repeated edges count once.
        weight: Attribute with one weight per edge, 1 everywhere where there is none of that name.
        class_names: Names of the classes; by default those that `to_pyg` left, else their numbers.
        name: What to call the graph in results.

    Raises:
        InputError: Something is missing, or does not fit.

    Example:
        >>> import adagpr
        >>> graph, splits = adagpr.load("digits")
        >>> from_pyg(to_pyg(graph)).num_edges == graph.num_edges
        True
    """
    x, edge_index, y = (_attribute(data, key) for key in ("x", "edge_index", "y"))
    if y.ndim == 2 and y.shape[1] == 1:
        y = y.squeeze(1)
    given = None if weight is None else getattr(data, weight, None)
    if given is not None and given.ndim == 2 and given.shape[1] == 1:
        given = given.squeeze(1)
    return from_edge_index(
        _plain(edge_index),
        _plain(x),
        _plain(y),
        edge_weight=None if given is None else _plain(given),
        class_names=getattr(data, "class_names", None) if class_names is None else class_names,
        node_ids=getattr(data, "node_ids", None),
        name=name,
    )


def splits_from_pyg(data: Any) -> list[Split]:
    """The splits that the masks of a torch_geometric ``Data`` hold: one, or one for each column of the masks.

    Args:
        data: With ``train_mask``, ``val_mask`` and ``test_mask``, one row per node.

    Raises:
        InputError: A mask is missing or has another shape than the others, or a part has no nodes.

    Example:
        >>> import adagpr
        >>> graph, splits = adagpr.load("digits")
        >>> len(splits_from_pyg(to_pyg(graph, splits[0]))[0].train)
        50
    """
    masks = [_mask(data, part) for part in SPLIT_NAMES]
    count = max(mask.shape[1] for mask in masks)
    if any(mask.shape[0] != masks[0].shape[0] or mask.shape[1] not in (1, count) for mask in masks):
        shapes = ", ".join(str(tuple(mask.shape)) for mask in masks)
        raise InputError(f"splits_from_pyg: the masks must have as many rows and columns as each other, got {shapes}.")
    splits = []
    for column in range(count):
        parts = [mask[:, min(column, mask.shape[1] - 1)].nonzero().squeeze(1) for mask in masks]
        splits.append(Split(parts[0], parts[1], parts[2], "given" if count == 1 else f"given/{column}"))
    return splits


def to_pyg(graph: Graph, split: Split | None = None) -> Data:
    """Makes a torch_geometric ``Data`` from a graph.

    It has ``x`` (dense, as layers there expect), ``edge_index``, ``y`` with -1 where unknown, ``class_names``,
    ``edge_weight`` unless all weights are 1, and ``node_ids`` unless they are positions; with a split also
    ``train_mask``, ``val_mask`` and ``test_mask``. `from_pyg` gives the same graph again.

    Args:
        graph: The graph.
        split: Whose parts become masks; none for no masks.

    Raises:
        InputError: torch_geometric is not installed, or the split does not fit the graph.

    Example:
        >>> import adagpr
        >>> graph, splits = adagpr.load("digits")
        >>> to_pyg(graph, splits[0]).x.shape
        torch.Size([1797, 64])
    """
    links = graph.adj.tocoo()
    data: Data = load_pyg("data", "to_pyg").Data(
        x=torch.from_numpy(graph.x.toarray()) if isinstance(graph.x, sp.csr_array) else graph.x.clone(),
        edge_index=torch.from_numpy(np.stack([links.row, links.col]).astype(np.int64)),
        y=graph.y.clone(),
        class_names=list(graph.class_names),
    )
    if not (links.data == 1).all():
        data.edge_weight = torch.from_numpy(links.data.astype(np.float32))
    if not np.array_equal(graph.node_ids, np.arange(graph.num_nodes)):
        data.node_ids = graph.node_ids.tolist()
    if split is not None:
        split.check(graph)
        for part in SPLIT_NAMES:
            mask = torch.zeros(graph.num_nodes, dtype=torch.bool)
            mask[getattr(split, part)] = True
            data[f"{part}_mask"] = mask
    return data


def load_pyg(module: str, owner: str) -> Any:
    """A module of torch_geometric, which is optional and slow to import; ``owner`` is who needs it."""
    try:
        with warnings.catch_warnings():
            # It calls torch.jit, which torch deprecates.
            warnings.simplefilter("ignore", DeprecationWarning)
            return import_module(f"torch_geometric.{module}")
    except ImportError:
        sentence = f'{owner} needs torch_geometric, which is not installed. Try: pip install "adagpr[pyg]"'
        raise InputError(sentence) from None


def _attribute(data: Any, key: str) -> Tensor:
    value = getattr(data, key, None)
    if not isinstance(value, Tensor):
        hint = " With nothing known of the nodes, give an identity matrix." if key == "x" else ""
        raise InputError(f"from_pyg: data must have a tensor '{key}', got {type(value).__name__}.{hint}")
    return value


def _plain(value: Any) -> np.ndarray:
    return torch.as_tensor(value).detach().cpu().as_subclass(Tensor).numpy()


def _mask(data: Any, part: str) -> Tensor:
    mask = getattr(data, f"{part}_mask", None)
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.ndim not in (1, 2):
        raise InputError(f"splits_from_pyg: data must have '{part}_mask', true and false values with one row per node.")
    return mask.cpu().reshape(mask.shape[0], -1)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, (float, np.floating)) and math.isnan(value))


def _column(attributes: list[Any], key: str) -> list[Any]:
    """The values of one node attribute, ``None`` where a node lacks it."""
    if not any(key in item for item in attributes):
        raise unknown_name("node attribute", key, {str(other) for item in attributes for other in item})
    return [item.get(key) for item in attributes]


def _classes(values: list[Any], label: str) -> tuple[np.ndarray, list[str]]:
    """Labels from 0 up, -1 where unknown, and the name of each; classes are in order of value, else of text."""
    plain = [value.item() if hasattr(value, "item") else value for value in values]
    try:
        known = {value for value in plain if not _is_missing(value)}
    except TypeError as error:
        raise InputError(
            f"from_networkx: the label '{label}' must be one value per node ({reason_of(error)})."
        ) from None
    try:
        ordered = sorted(known)
    except TypeError:
        ordered = sorted(known, key=str)
    code = {value: place for place, value in enumerate(ordered)}
    y = np.array([-1 if _is_missing(value) else code[value] for value in plain], dtype=np.int64)
    return y, [str(value) for value in ordered]


def _features(nodes: list[Any], attributes: list[Any], keys: Iterable[str]) -> np.ndarray:
    blocks = []
    for key in keys:
        rows: list[np.ndarray] = []
        for node, value in zip(nodes, _column(attributes, key), strict=True):
            if _is_missing(value):
                raise InputError(f"from_networkx: node {node!r} has no '{key}', which is asked for as a feature.")
            rows.append(np.atleast_1d(np.asarray(value)))
            if rows[-1].ndim != 1 or rows[-1].shape != rows[0].shape or rows[-1].dtype.kind not in "biuf":
                raise InputError(
                    f"from_networkx: '{key}' must be a number, or as many numbers at every node, to be a feature; "
                    f"node {node!r} has {value!r}."
                )
        blocks.append(np.stack(rows).astype(np.float64))
    return np.hstack(blocks)


def _adjacency(g: Any, place: dict[Any, int], weight: str | None) -> sp.csr_array:
    links = list(g.edges(data=weight or "", default=1))
    for source, target, value in [] if weight is None else links:
        if not isinstance(value, (int, float, np.number)):
            raise InputError(
                f"from_networkx: '{weight}' of edge {source!r} - {target!r} must be a number, got {value!r}."
            )
    ends = np.array([(place[source], place[target]) for source, target, _ in links], dtype=np.int64).reshape(-1, 2).T
    values = np.array([1.0 if weight is None else float(value) for *_, value in links])
    if not g.is_directed():
        ends, values = np.hstack([ends, ends[::-1]]), np.tile(values, 2)
    return edges_to_csr(ends[0], ends[1], len(place), values)


def _ids(nodes: list[Any]) -> list[Any]:
    """The nodes' own names where they are all whole numbers or all texts, else as texts."""
    is_uniform = any(
        all(isinstance(node, kind) and not isinstance(node, bool) for node in nodes) for kind in (int, str)
    )
    return nodes if is_uniform else [str(node) for node in nodes]
