"""What is measured: the cases of the benchmark as data, in named sets.

The network has the paper's settings for Cora. Its coefficients start equal where they are learned, and the learning
rate is tiny, so that all hops stay in use: skipping hops, which only ours does, saves nothing. The set ``hops`` shows
what it saves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from adagpr.benchmarking.rmat import rmat
from adagpr.data import csbm, load, random_split
from adagpr.errors import InputError, unknown_name
from adagpr.graph import Graph, Split
from adagpr.training import Setup, resolve, set_memory

OURS = "ours"
# Not another way of computing the same network but the one with signed hops, of the same depth, width and hops.
SIGNED = "adagpr-signed"

ALL_WAYS = ("dense-powers", "gather-scatter", "pyg-csr", "pyg-edge-index", OURS)
_GCNII_WAYS = ("gcn2conv", "pyg-edge-index", OURS)
NUM_FEATURES, NUM_CLASSES = 64, 8
SETTINGS = {"alpha": 0.1, "theta": 0.3, "dropout": 0.6, "lr": 1e-6, "weight_decay": 5e-4}


@dataclass(frozen=True)
class Case:
    """One network on one graph, and the ways of computing it that are compared."""

    name: str  # also of the file of its record
    graph: str  # "cora" or another name of the catalogue; "rmat:100000" or "csbm:10000" with the nodes
    num_layers: int
    hidden_channels: int
    num_coeffs: int  # hops of each layer, hop 0 included
    ways: tuple[str, ...]  # "ours", "adagpr-signed" and names of `adagpr.benchmarking.BASELINES`
    threads: int = 2  # at most; each way takes as many of them as suit it
    fixed_coeffs: tuple[float, ...] | None = None  # of all layers, none where they are learned
    average_degree: float = 10.0  # neighbours of a node, where the graph is drawn
    is_timed: bool = True
    measures_memory: bool = False  # of a training step
    rounds: int = 30  # of timing, at most
    budget: float = 60.0  # seconds of timing after which no further round begins
    recompute: bool = False  # whether ours computes a part of its layers again in the backward pass
    activations: str = "float32"  # in which precision ours keeps its layers for the backward pass

    def __post_init__(self) -> None:
        if OURS not in self.ways:
            raise InputError(f"Case {self.name}: ways must include '{OURS}', which the others are compared with.")

    def plain(self) -> dict[str, Any]:
        """The case as plain data, for a JSON file."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Case:
        """The case that `plain` came from; keys that it was written without are at their defaults."""
        # Older records call the measurement of memory by another name.
        names = {"is_weighed": "measures_memory"}
        values: dict[str, Any] = {
            names.get(key, key): tuple(value) if isinstance(value, list) else value for key, value in plain.items()
        }
        return cls(**values)


def load_graph(case: Case) -> tuple[Graph, Split]:
    """The graph of a case and the split that is trained on."""
    kind, _, size = case.graph.partition(":")
    if not size:
        graph, splits = load(kind)
        return graph, splits[0]
    if kind not in ("rmat", "csbm") or not size.isdecimal():
        raise InputError(f"Case {case.name}: graph must be a data set, rmat:NODES or csbm:NODES, got {case.graph!r}.")
    draw = rmat if kind == "rmat" else csbm
    graph = draw(int(size), average_degree=case.average_degree, num_features=NUM_FEATURES, num_classes=NUM_CLASSES)
    return graph, random_split(graph.y)


def build_model(case: Case, graph: Graph, split: Split, way: str = OURS) -> Setup:
    """The network of a case and how it is trained, as `adagpr.fit` resolves and seeds them, with equal coefficients."""
    options: dict[str, Any] = {"num_layers": case.num_layers, "num_coeffs": case.num_coeffs}
    options |= {"hidden_channels": case.hidden_channels, "recompute": case.recompute, "activations": case.activations}
    if way == SIGNED:
        setup = resolve(graph, split, SIGNED, {**options, "dropout": SETTINGS["dropout"]})
    else:
        if case.fixed_coeffs is not None:
            options |= {"projection": "fixed", "fixed_coeffs": list(case.fixed_coeffs)}
        setup = resolve(graph, split, "adagpr", {**SETTINGS, **options})
    setup.model.seed(setup.config.seed)
    set_memory(setup.model, setup.config, graph.num_nodes)
    if way == SIGNED:
        return setup
    with torch.no_grad():
        for scores in setup.model.parameter_groups().get("coeffs", []):
            scores.zero_()
    return setup


def cases(name: str) -> tuple[Case, ...]:
    """The cases of the named set."""
    if name not in SETS:
        raise unknown_name("set of cases", name, SETS)
    return SETS[name]


def _cora(name: str, num_layers: int, hidden_channels: int, num_coeffs: int) -> Case:
    return Case(name, "cora", num_layers, hidden_channels, num_coeffs, ALL_WAYS, rounds=12, budget=20.0)


def _nodes(kind: str, num_nodes: int) -> Case:
    """Baselines take part as long as all fit into memory together and an epoch takes less than a minute."""
    fits = {"dense-powers": 3_000, "gather-scatter": 100_000, "pyg-edge-index": 300_000, "pyg-csr": 300_000}
    ways = tuple(way for way in ALL_WAYS if num_nodes <= fits.get(way, 1_000_000))
    return Case(f"nodes-{kind}-{num_nodes}", f"{kind}:{num_nodes}", 4, 64, 4, ways, rounds=12, budget=20.0)


def _kept_hops(kept: int, num_coeffs: int = 16) -> Case:
    coeffs = tuple(1 / kept if k < kept else 0.0 for k in range(num_coeffs))
    return Case(f"hops-{kept}-of-{num_coeffs}", "rmat:50000", 4, 64, num_coeffs, (OURS,), fixed_coeffs=coeffs)


def _memory(num_nodes: int, num_coeffs: int) -> Case:
    name = f"memory-{num_nodes}-nodes-{num_coeffs}-coeffs"
    ways = ("pyg-csr", "pyg-edge-index", OURS)
    return Case(name, f"rmat:{num_nodes}", 4, 64, num_coeffs, ways, is_timed=False, measures_memory=True)


def _saving(recompute: bool, activations: str) -> Case:
    name = f"saving-{activations}{'-recompute' if recompute else ''}"
    case = Case(name, "rmat:50000", 16, 64, 4, (OURS,), measures_memory=True, rounds=12, budget=20.0)
    return replace(case, recompute=recompute, activations=activations)


def _beside_signed(name: str, graph: str, num_layers: int, hidden_channels: int) -> Case:
    return Case(f"signed-{name}", graph, num_layers, hidden_channels, 4, (SIGNED, OURS))


NODES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)

SETS: dict[str, tuple[Case, ...]] = {
    "headline": tuple(
        Case(f"cora-{depth}-layers", "cora", depth, width, 4, ("dgl", *ALL_WAYS), measures_memory=True)
        for depth, width in ((8, 32), (64, 64))
    ),
    "products": tuple(
        Case(f"products-{graph}-{width}", graph, 8, width, 4, (OURS,))
        for graph, width in (("cora", 32), ("cora", 64), ("pubmed", 64), ("pubmed", 128))
    ),
    "gcnii": tuple(
        Case(f"gcnii-{depth}-layers", "cora", depth, 64, 2, _GCNII_WAYS, fixed_coeffs=(0.0, 1.0)) for depth in (8, 64)
    ),
    "signed": (
        *(
            _beside_signed(f"{graph}-{depth}-{width}", graph, depth, width)
            for graph, depth, width in (("cora", 8, 32), ("cora", 64, 64), ("pubmed", 8, 64))
        ),
        *(replace(_memory(50_000, num), name=f"signed-memory-{num}-coeffs", ways=(SIGNED, OURS)) for num in (2, 32)),
    ),
    "layers": tuple(_cora(f"layers-{depth}", depth, 64, 4) for depth in (2, 4, 8, 16, 32, 64)),
    "coeffs": tuple(_cora(f"coeffs-{num}", 8, 32, num) for num in (2, 4, 8, 16, 32)),
    "channels": tuple(_cora(f"channels-{width}", 8, width, 4) for width in (16, 32, 64, 128, 256)),
    "nodes": tuple(_nodes(kind, num) for num in NODES for kind in ("rmat", "csbm")),
    # Nodes and edges grow together, ten stored edges per node: 1, 2, 4, 7 and 10 million.
    "edges": tuple(
        Case(f"edges-{10 * num}", f"rmat:{num}", 4, 64, 4, (OURS,))
        for num in (100_000, 200_000, 400_000, 700_000, 1_000_000)
    ),
    "hops": tuple(_kept_hops(kept) for kept in (1, 2, 4, 6, 8, 12, 16)),
    "memory": (*(_memory(50_000, num) for num in (2, 8, 32)), _memory(1_000_000, 4)),
    "saving": tuple(_saving(again, dtype) for dtype in ("float32", "bfloat16") for again in (False, True)),
}
