"""The paper's generalisation bounds for a trained run, beside what it measured; for the formulas see `theorem`."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from adagpr.errors import InputError
from adagpr.graph import Graph
from adagpr.insight.source import DatasetFiles, graph_of
from adagpr.insight.theorem import LayerBound, Sizes, Total, Transductive, all_totals, layer_bounds, transductive_of
from adagpr.nn import EDGES, Model
from adagpr.ops import (
    MAX_EXACT,
    NUM_PROBES,
    NUM_STEPS,
    Estimate,
    Spectrum,
    compute_threads,
    features,
    normalised,
    spectrum,
)
from adagpr.seeding import stream
from adagpr.task import scores_of_result
from adagpr.training import Run, load_run


@dataclass(frozen=True)
class Bounds:
    """The bounds of a run."""

    dataset: str
    model: str
    sizes: Sizes
    max_degree: int  # most neighbours of a node, itself not counted
    is_exact: bool  # whether the spectrum is exact, else estimated
    powers: tuple[Estimate, ...]  # sum of |lambda|^k for each hop k
    layers: tuple[LayerBound, ...]
    totals: tuple[Total, ...]  # every model in every form
    transductive: Transductive  # the bound of the gap beside the gap
    assumptions: tuple[str, ...]  # what the theory assumes and this run breaks
    remarks: tuple[str, ...]  # how to read the numbers

    def total(self, model: str = "run", form: str = "spectrum") -> Total:
        """The bound of one model in one form."""
        for item in self.totals:
            if (item.model, item.form) == (model, form):
                return item
        raise InputError(f"bounds: there is no bound of model {model!r} in form {form!r}.")

    def to_plain(self) -> dict[str, Any]:
        """All of it as plain data; the logarithm of zero is none."""
        return dict(_without_infinity(asdict(self)))


def bounds(
    run: Run | Path | str,
    *,
    graph: Graph | None = None,
    dataset: DatasetFiles = None,
    delta: float = 0.05,
    max_exact: int = MAX_EXACT,
    num_probes: int = NUM_PROBES,
    num_steps: int = NUM_STEPS,
    seed: int = 0,
    data_root: Path | str | None = None,
) -> Bounds:
    """Evaluates the paper's generalisation bounds at the weights and coefficients of a trained run.

    Args:
        run: A run of AdaGPR or GCNII, or of AdaGPR with signed hops of one operator; or its folder.
        graph: The graph that it was trained on, if `adagpr.load` cannot give it again.
        dataset: Where the run's file is now, if it has moved or only the run names it; two for tables.
        delta: The transductive bound holds with probability ``1 - delta``; in (0, 1).
        max_exact: Nodes up to which all eigenvalues are computed; above, sums over them are estimated.
        num_probes: Random starts of an estimate.
        num_steps: Lanczos steps of an estimate.
        seed: Chooses the random starts.
        data_root: Folder of the data files, as for `adagpr.load`.

    Raises:
        InputError: The run is of another model, or its graph cannot be had.

    Example:
        >>> import adagpr
        >>> graph, splits = adagpr.load("csbm", num_nodes=60)
        >>> run = adagpr.fit(graph, splits[0], num_layers=2, max_epochs=5)
        >>> found = bounds(run)
        >>> found.total("run", "trace").log10_printed < found.total("run", "degree").log10_printed
        True
    """
    if not 0 < delta < 1:
        raise InputError(f"bounds: delta must be between 0 and 1, got {delta:g}.")
    run = run if isinstance(run, Run) else load_run(run)
    model = run.model
    if not model.capabilities.theory:
        is_kin = model.capabilities.hop_weights
        kin = "one with several operators or weight maps per layer, PairNorm or layer normalisation"
        what = kin if is_kin else f"'{model.name}'"
        raise InputError(f"bounds: the theory is about AdaGPR and GCNII with one weight map per layer, not {what}.")
    if not run.record["data"]["num_test"]:
        raise InputError("bounds: they are about the error on test nodes, and this run has none.")
    graph = run.scaled(graph_of(run, graph, dataset, data_root))
    found = spectrum(
        normalised(graph, "symmetric", run.record["config"]["training"]["self_loops"]),
        max_exact=max_exact,
        num_probes=num_probes,
        num_steps=num_steps,
        generator=stream(seed, "spectrum"),
    )
    sizes = _sizes(run, model, graph)
    max_degree = int(graph.num_neighbours.max())
    coeffs = [tuple(view.coefficients[EDGES].double().tolist()) for view in model.layer_views()]
    totals = all_totals(coeffs, sizes, found, max_degree)
    return Bounds(
        dataset=graph.name,
        model=model.name,
        sizes=sizes,
        max_degree=max_degree,
        is_exact=found.is_exact,
        powers=tuple(found.powers(max(len(row) for row in coeffs))),
        layers=layer_bounds(coeffs, sizes, found, max_degree),
        totals=totals,
        transductive=transductive_of(sizes, delta, totals[0].log10_printed, scores_of_result(run.record["result"])),
        assumptions=tuple(_assumptions(run, model, graph, sizes, coeffs)),
        remarks=tuple(_remarks(found, num_probes, num_steps)),
    )


def _sizes(run: Run, model: Model, graph: Graph) -> Sizes:
    training, lin_in = run.record["config"]["training"], model.outer_maps()[0]
    device = lin_in.weight.device
    structure = model.structure(graph, training["direction"], training["self_loops"], device)
    with torch.inference_mode(), compute_threads():
        hidden = model.hidden_matrices(lin_in(features(graph.x).to(device)).relu(), structure)
        largest_activation = max(float(h.max()) for h in hidden)
    views, norms = model.layer_views(), []
    for view in views:
        weight = view.weight.cpu().double()
        norms.append(_norm((1 - view.beta) * torch.eye(len(weight), dtype=torch.float64) + view.beta * weight))
    values = graph.x.data if isinstance(graph.x, sp.csr_array) else graph.x.numpy()
    return Sizes(
        alphas=tuple(view.alpha for view in views),
        weight_norms=tuple(norms),
        # A row of the stored weight is a column of the paper's, which multiplies the features from the other side.
        input_norm=float(lin_in.weight.detach().double().abs().sum(1).max()),
        features_norm=float(np.linalg.norm(values.astype(np.float64).ravel())),
        largest_activation=largest_activation,
        num_nodes=graph.num_nodes,
        num_train=run.record["data"]["num_train"],
        num_test=run.record["data"]["num_test"],
        own_norms=tuple(_norm(view.own.double()) for view in views if view.own is not None),
    )


def _norm(weight: Tensor) -> float:
    """The largest column L1 norm."""
    return float(weight.abs().sum(0).max())


def _assumptions(run: Run, model: Model, graph: Graph, sizes: Sizes, coeffs: list[tuple[float, ...]]) -> list[str]:
    """What the theory assumes and this run breaks, one sentence each."""
    left_out = graph.num_nodes - sizes.num_train - sizes.num_test
    views, signed = model.layer_views(), model.capabilities.signed
    learned = any(view.learned for view in views)
    biases = (
        "the input map and the output map" if views[0].shift is None else "the input map, the layers and the output map"
    )
    broken = [
        "Output map: the theory ends with the last layer; this network has a linear map behind it, which is not in the "
        "number.",
        f"Biases: the theory has none; {biases} have them, and they are not in the number.",
        f"Classes: the theory bounds one output under a loss of at most 1; this run has {graph.num_classes} classes "
        "and a cross entropy without bound.",
        f"Activation: the theory's is bounded by R; relu is not, and R = {sizes.largest_activation:.4g} is the largest "
        "activation observed on this graph.",
        f"Norms: the theory fixes B{' and the coefficients' if learned else ''} before the data are seen; here they "
        "are what training arrived at.",
    ]
    if run.record["config"]["training"]["direction"] == "directed" and not graph.is_symmetric:
        broken.append(
            "Directed: the theory needs a symmetric operator and this run's is not; the spectrum is that of the "
            "symmetrised graph, which the run was not trained on."
        )
    if left_out:
        broken.append(
            f"Nodes: the theory has every node in training or test; {left_out} of {graph.num_nodes} are in neither, "
            "and the validation nodes among them chose the epoch."
        )
    if sizes.own_norms:
        broken.append(
            "Own map: the theory's layer has none; here it counts as a second layer at hop 0 beside the first, whose "
            "norm times the term of hop 0 is added to the factor."
        )
    if model.arguments.get("norm") == "batch":
        broken.append(
            "Batch normalisation: the theory has none; its scales are in B, but they come from the data of all nodes "
            "together, and the theory fixes B before the data are seen."
        )
    if signed:
        broken.append(
            "Alpha: the theory has one alpha in (0, 1); these layers have no residual, alpha is 0, and with it the "
            "features fall out of the printed theorem, but not out of the recursion."
        )
        broken.append(
            "Coefficients: the theory's are not negative and sum to 1; these are free, and the spectrum and degree "
            "terms take their absolute values, as if hops that are subtracted were added: they hold for coefficients "
            "of these sizes with any signs."
        )
        return broken
    if len(set(sizes.alphas)) > 1 or not all(0 < alpha < 1 for alpha in sizes.alphas):
        broken.append("Alpha: the theory has one alpha in (0, 1); each layer's own is taken in its place.")
    if any(min(row) < 0 or abs(sum(row) - 1) > 1e-4 for row in coeffs):
        broken.append(
            "Coefficients: the theory's are not negative and sum to 1; these do not, and the spectrum term takes "
            "their absolute values."
        )
    return broken


def _remarks(found: Spectrum, num_probes: int, num_steps: int) -> list[str]:
    remarks = [
        "The constant C' is unknown and grows with depth: it is 1 here, so compare only bounds of equal depth.",
        "The second sum of Theorem 1 runs over l = 0..L-1; printed 1..L drops a term and asks for a layer 0.",
    ]
    if not found.is_exact:
        remarks.append(
            f"The spectrum is estimated from {num_probes} random probes of {num_steps} Lanczos steps; errors are one "
            "standard error and the effect of halving the steps, added."
        )
    return remarks


def _without_infinity(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_infinity(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_without_infinity(value) for value in content]
    return None if isinstance(content, float) and math.isinf(content) else content
