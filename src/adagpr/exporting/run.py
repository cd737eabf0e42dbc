"""From a run to a file: the network is pruned, measured against the trained one, and written in one of three forms."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from adagpr.errors import InputError, unknown_name
from adagpr.exporting.module import About, Exported
from adagpr.exporting.onnx import to_onnx
from adagpr.exporting.prune import Cost, cost_as_trained, cost_pruned, prune
from adagpr.exporting.safetensors import to_safetensors
from adagpr.exporting.torch import to_torch
from adagpr.files import digest, make_folder, tidied, write_bytes
from adagpr.graph import Graph
from adagpr.insight import DatasetFiles, graph_of
from adagpr.nn import EDGES, Model
from adagpr.ops import features
from adagpr.training import Run, load_run

# From about so many standard deviations on, taking a mean off in single precision moves logits visibly.
_LARGE_MEAN = 1000.0

ExportFormat = Literal["safetensors", "onnx", "torch"]

# The end of the file's name and what makes its content.
FORMATS: dict[str, tuple[str, Callable[[Exported], bytes]]] = {
    "safetensors": (".safetensors", to_safetensors),
    "onnx": (".onnx", to_onnx),
    "torch": (".pt2", to_torch),
}

_OF_THE_RUN = (
    "config.toml",
    "model.safetensors",
    "scaling.safetensors",
    "history.parquet",
    "predictions.parquet",
    "record.json",
)


@dataclass(frozen=True)
class Input:
    """An input of the exported network; a size that is a name in ``shape`` may be any number."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True)
class LayerUse:
    """What is left of one layer, counted from 1, and of its sparse products.

    ``hops`` are those whose coefficient is not 0; none if the layer is left out or does not read the one before. A
    network that reads edges both ways has ``backward_hops``, too.
    """

    layer: int
    kept: bool
    hops: tuple[int, ...]
    products: int
    products_left: int
    backward_hops: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Measured:
    """One pass of both networks over the run's own graph.

    ``max_difference`` is the largest of any logit of any node, to be compared with the largest logit, in size.
    """

    num_nodes: int
    num_entries: int
    multiply_adds: int
    multiply_adds_left: int
    max_difference: float
    max_logit: float


@dataclass(frozen=True)
class ExportReport:
    """What `export` wrote, and what that saves.

    The cost ``before`` is as trained, every hop counted. Nothing is ``measured`` if the graph cannot be loaded;
    a remark says why. Direction and self loops are those of the operator that the network takes if it needs a graph;
    with ``directions`` ``"both"`` it reads its transpose, too.
    """

    model: str
    format: str
    path: str
    num_bytes: int
    needs_graph: bool
    direction: str
    self_loops: bool
    inputs: tuple[Input, ...]
    layers: tuple[LayerUse, ...]
    before: Cost
    after: Cost
    measured: Measured | None
    remarks: tuple[str, ...]
    directions: str = "one"

    def to_plain(self) -> dict[str, Any]:
        """The report as plain data, ready for JSON."""
        return asdict(self)


def export(
    run: Run | Path | str,
    format: ExportFormat = "safetensors",  # noqa: A002 - the name of the flag
    out: Path | str | None = None,
    *,
    graph: Graph | None = None,
    dataset: DatasetFiles = None,
    data_root: Path | str | None = None,
) -> ExportReport:
    """Writes what a trained AdaGPR, signed or not, or GCNII still computes into one file, and says how much that saved.

    Hops whose coefficient is 0 and layers that nothing reads are left out; a network in which no layer uses the graph
    takes features alone. See `adagpr.exporting.prune` for what is joined.

    Args:
        run: A run, or its folder.
        format: ``"safetensors"`` for `load_exported`, ``"onnx"`` for onnxruntime and similar programs, ``"torch"`` for
            `torch.export.load`.
        out: The file; by default ``exported`` with the format's ending in the run's folder. A file that is there
            already is replaced.
        graph: The run's graph to measure on, where it did not come from `adagpr.load`.
        dataset: Where the run's file is now, where it has moved.
        data_root: Folder of the data files; see `adagpr.load`.

    Raises:
        InputError: The model has no layers with coefficients, or has PairNorm; the format is unknown or needs a package
            that is not installed; the file cannot be written there; the graph is not that of the run.
        StorageError: The disk is full or fails; what was there before is unchanged.

    Example:
        >>> import adagpr, tempfile
        >>> graph, splits = adagpr.load("csbm", num_nodes=60)
        >>> run = adagpr.fit(graph, splits[0], num_layers=2, max_epochs=3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     report = export(run, "safetensors", f"{folder}/small.safetensors")
        >>> [item.name for item in report.inputs]
        ['x', 'operator']
    """
    if format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    run = run if isinstance(run, Run) else load_run(run)
    ending, content_of = FORMATS[format]
    path = _path(run, out, ending)
    exported, model = pruned_run(run), _model(run)
    before, after = cost_as_trained(model), cost_pruned(exported)
    measured, remarks = None, []
    if run.scaling.largest_mean > _LARGE_MEAN:
        remarks.append(
            f"A column of the features has a mean of {run.scaling.largest_mean:,.0f} times its standard deviation, and "
            "the exported network takes the mean off in single precision: take it off such columns before training."
        )
    try:
        graph = graph_of(run, graph, dataset, data_root)
    except InputError as error:
        if graph is not None or dataset is not None or data_root is not None:
            raise
        remarks.append(f"Nothing was measured, because the run's graph could not be loaded. {error}")
    else:
        measured = _measure(model, exported, graph, run.scaled(graph), before, after)
    content = content_of(exported)
    with tidied(path.parent):
        make_folder(path.parent)
        write_bytes(path, content)
    return ExportReport(
        model=model.name,
        format=format,
        path=str(path),
        num_bytes=len(content),
        needs_graph=exported.needs_graph,
        direction=exported.about.direction,
        self_loops=exported.about.self_loops,
        inputs=_inputs(exported, format),
        layers=_uses(model, exported),
        before=before,
        after=after,
        measured=measured,
        remarks=tuple(remarks),
        directions=exported.about.directions,
    )


def pruned_run(run: Run) -> Exported:
    """The pruned network of a run as a torch module; nothing is written.

    Example:
        >>> import adagpr
        >>> graph, splits = adagpr.load("csbm", num_nodes=60)
        >>> run = adagpr.fit(graph, splits[0], "gcnii", num_layers=2, max_epochs=3)
        >>> pruned_run(run)(graph.x, adagpr.operator(graph)).shape
        torch.Size([60, 2])
    """
    model = _model(run)
    config, views = run.record["config"], model.layer_views()
    reads_both = any(len(view.coefficients) > 1 for view in views)
    about = About(
        model=model.name,
        class_names=tuple(run.record["data"]["class_names"]),
        # A network that reads both ways reads the edges as they are, whatever its training was told.
        direction="directed" if reads_both else config["training"]["direction"],
        self_loops=config["training"]["self_loops"],
        coefficients=tuple(tuple(torch.cat(tuple(view.coefficients.values())).tolist()) for view in views),
        alphas=tuple(float(view.alpha) for view in views),
        config_sha256=digest(config, length=64),
        temperature=run.temperature,
        directions="both" if reads_both else "one",
        hop_names=model.hop_names(),
    )
    return prune(model, about, run.scaling).eval()


def _model(run: Run) -> Model:
    """The run's network as it predicts; a copy, so that the run stays as it is."""
    if not run.model.capabilities.hop_weights:
        name = run.record["config"]["model"]["name"]
        raise InputError(f"The model '{name}' cannot be exported: only adagpr, adagpr-signed and gcnii can.")
    return deepcopy(run.model).cpu().eval()


def _path(run: Run, out: Path | str | None, ending: str) -> Path:
    if out is None:
        if run.folder is None:
            raise InputError("This run is kept in no folder, so the file to write must be given.")
        return run.folder / f"exported{ending}"
    path = Path(out)
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the name of a file in it.")
    if run.folder is not None and path.resolve() in {(run.folder / name).resolve() for name in _OF_THE_RUN}:
        raise InputError(f"{path} belongs to the run itself and is not written over.")
    return path


def _measure(model: Model, exported: Exported, graph: Graph, scaled: Graph, before: Cost, after: Cost) -> Measured:
    """Both networks on the run's graph, of which the trained one reads the scaled features."""
    operators = model.operators(graph, exported.about.direction, exported.about.self_loops, torch.float32)
    op = operators[EDGES]
    with torch.no_grad():
        logits = model(features(scaled.x), model.prepare(graph, **operators))
        difference = (exported(features(graph.x), op if exported.needs_graph else None) - logits).abs().max()
    sizes = graph.num_nodes, int(op.matrix.values().numel())
    return Measured(*sizes, before.total(*sizes), after.total(*sizes), float(difference), float(logits.abs().max()))


def _inputs(exported: Exported, format_: str) -> tuple[Input, ...]:
    x = Input("x", "float32", ("num_nodes", exported.sizes[0]))
    if not exported.needs_graph:
        return (x,)
    if format_ == "safetensors":
        return x, Input("operator", "float32", ("num_nodes", "num_nodes"))
    ends = (Input(name, "int64", ("num_edges",)) for name in ("edge_source", "edge_target"))
    return x, *ends, Input("edge_weight", "float32", ("num_edges",))


def _uses(model: Model, exported: Exported) -> tuple[LayerUse, ...]:
    products = {layer.number: layer.num_products for layer in exported.layers}
    uses = []
    for view in model.layer_views():
        number, is_read = view.number, view.number in products and view.alpha < 1
        taken = sum(len(coeffs) - 1 for coeffs in view.coefficients.values())
        hops, *backward = (
            tuple(hop for hop, value in enumerate(coeffs.tolist()) if value and is_read)
            for coeffs in view.coefficients.values()
        )
        uses.append(LayerUse(number, number in products, hops, taken, products.get(number, 0), *backward))
    return tuple(uses)
