"""The configuration of a run: options are resolved and checked once, before anything is written, into a `Setup`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from torch import Tensor

from adagpr.arguments import Count, MetricName, Nonnegative, Positive, Whole, check
from adagpr.data import catalogue
from adagpr.errors import InputError, unknown_name
from adagpr.files import digest, none_from_text
from adagpr.graph import Graph, Split
from adagpr.nn import Model, build, model_class, model_options
from adagpr.ops import Direction, ScalingOption
from adagpr.partitioning import Manifest
from adagpr.schemas import RunConfig, conform, read_toml, reading, start_anew
from adagpr.system import num_cores, require_memory
from adagpr.task import METRICS
from adagpr.training.threads import ThreadChoice

# With fewer multiplications per product and thread, another thread costs more than it brings.
_WORK_PER_THREAD = 1_500_000
# Parameters, their gradients, Adam's two moments, and the best parameters so far.
_COPIES = 5
# Keys that the first records did not have, at their defaults: a configuration without them is the same.
_ADDED_LATER = {"activations": "float32", "class_weights": "equal", "metric": "accuracy", "feature_scaling": None}


class TrainingConfig(BaseModel):
    """How a model is trained. Every field has one name here, in TOML files and on the command line.

    Attributes:
        seed: Seed of parameters and dropout.
        lr: Adam's learning rate.
        max_epochs: Largest number of epochs.
        weight_decay: Decay of all parameters, or one per named parameter group.
        decay: ``"adam"`` adds ``w * parameter`` to the gradient, as Adam's own L2 decay does. ``"penalty"`` adds
            ``w * |parameter|^2`` to the loss, as the paper does for its semi-supervised runs.
        metric: The score by which runs are compared, and which is reported first: ``"accuracy"``, unless the data set
            is scored by another; see `adagpr.task` for all. Alone it changes nothing of the training.
        monitor: What the best epoch is best in: the validation loss, the validation loss with the penalties
            (``"val_objective"``, the paper's), the validation accuracy, or the validation nodes' ``metric``
            (``"val_metric"``).
        patience: Epochs without progress after which training stops; none for never. The paper's is 100; see
            ``docs/stopping.md`` for how 300 was chosen.
        progress: What counts as progress: a better ``"monitor"`` alone as in the paper, or any better ``"validation"``
            figure, loss, accuracy or what is monitored.
        class_weights: ``"balanced"`` lets every class count the same in the losses of training and validation, however
            few nodes it has; ``"equal"`` lets every node count the same.
        feature_scaling: What is done to the features before the model sees them, fitted to all nodes and no label:
            ``"rows"``, ``"standardise"``, ``"auto"`` for what the features call for, or none; see
            `adagpr.ops.feature_scaling`.
        direction: How the graph's edges are read.
        self_loops: Whether each node is its own neighbour.
        num_threads: Threads of the kernels, which only change how long an epoch takes. Unless given, whatever is faster
            at the moment: see `adagpr.training.threads`.
        device: Where the tensors live.
        recompute: Whether a part of each layer is computed again in the backward pass, which needs less memory and more
            time; the bits are the same. Chosen from the available memory unless given.
        activations: In which precision layers are kept for the backward pass. ``"bfloat16"`` halves that memory and
            rounds the gradients of weights and coefficients; ``benchmarks/activations.py`` measures what that does.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: Annotated[Whole, Field(ge=0, lt=2**63)] = 0
    lr: Positive = 0.01
    max_epochs: Count = 1500
    weight_decay: Nonnegative | dict[str, Nonnegative] = 5e-4
    decay: Literal["adam", "penalty"] = "adam"
    metric: MetricName = "accuracy"
    monitor: Literal["val_loss", "val_objective", "val_acc", "val_metric"] = "val_loss"
    patience: Count | None = 300
    progress: Literal["monitor", "validation"] = "validation"
    class_weights: Literal["equal", "balanced"] = "equal"
    feature_scaling: Annotated[ScalingOption, BeforeValidator(lambda value: None if value == "none" else value)] = None
    direction: Direction = "directed"
    self_loops: Annotated[bool, Field(strict=True)] = True
    num_threads: Annotated[Whole, Field(ge=1, le=256)] | None = None
    device: Literal["cpu", "cuda"] = "cpu"
    recompute: Annotated[bool, Field(strict=True)] | None = None
    activations: Literal["float32", "bfloat16"] = "float32"


@dataclass(frozen=True, eq=False)
class Setup:
    """Everything that defines a run, resolved once and passed on; ``options`` are what the caller gave.

    The parameters of ``model`` are drawn when training starts. ``plain`` is the whole configuration as plain data with
    the keys ``data``, ``model`` and ``training``; threads are not in it, because nothing but time depends on them.
    ``work`` is the number of multiplications of a product on all nodes.
    """

    config: TrainingConfig
    model: Model
    plain: dict[str, Any]
    options: Mapping[str, Any]
    work: int

    def threads(self, num_runs: int = 1) -> ThreadChoice:
        """Who chooses the threads of a training of so many runs side by side: as many as pay off, up to the cores."""
        if self.config.num_threads is not None:
            return ThreadChoice(self.config.num_threads, is_fixed=True)
        return ThreadChoice(max(1, min(num_cores(), num_runs * self.work // _WORK_PER_THREAD)))

    def plain_for(self, graph: Graph, split: Split, seed: int) -> dict[str, Any]:
        """The configuration of the same run on another split or with another seed."""
        training = {**self.plain["training"], "seed": seed}
        return {**self.plain, "data": describe_data(graph, split), "training": training}

    def variant(self, graph: Graph, split: Split, seed: int) -> Setup:
        """The setup of the same run on another split or with another seed, with a model of its own."""
        plain = self.plain_for(graph, split, seed)
        if plain == self.plain:
            return self
        config = self.config.model_copy(update={"seed": seed})
        return replace(self, config=config, model=build(self.model.name, self.model.arguments), plain=plain)


def resolve(graph: Graph, split: Split, model: str, options: Mapping[str, Any]) -> Setup:
    """Sorts flat options into training and model, fills in every default, and checks that all fits the data.

    Raises:
        InputError: An option is unknown or out of range, or graph and split do not fit.
    """
    setup = resolve_options(graph, describe_data(graph, split), model, options)
    check_split(graph, split, setup.config)
    return setup


def check_split(graph: Graph, split: Split, config: TrainingConfig) -> None:
    """Raises an `InputError` unless a split fits the graph, leaves something to learn, and can choose the epoch."""
    split.check(graph)
    check_monitor(graph.y[split.val if len(split.val) else split.train], split.name, config)


def check_monitor(y: Tensor, split: str, config: TrainingConfig) -> None:
    """Raises an `InputError` unless the metric can choose the epoch on nodes of these classes."""
    metric = METRICS[config.metric]
    if config.monitor == "val_metric" and metric.for_two_classes and len(y.unique()) < 2:
        raise InputError(
            f"Split {split}: the validation nodes are all of one class, on which {metric.title} is undefined; "
            "choose the epoch by another monitor than 'val_metric', such as monitor='val_loss'."
        )


def resolve_options(sizes: Graph | Manifest, data: Mapping[str, Any], model: str, options: Mapping[str, Any]) -> Setup:
    """`resolve` for what ``data`` describes, without a look at it: a manifest, too, says how large the graph is."""
    defaults, fields = model_options(model), training_options(model)
    known = [*defaults, *fields]
    unknown = [key for key in options if key not in known]
    mistakes = [str(unknown_name(f"key for the model '{model}'", key, known)) for key in unknown]
    chosen = {**_defaults_of(sizes), **model_class(model).options_for(sizes, options), **options}
    arguments = defaults | {key: value for key, value in chosen.items() if key in defaults}
    channels = {"in_channels": sizes.num_features, "out_channels": sizes.num_classes}
    try:
        training = check("training", TrainingConfig, {key: chosen.get(key, fields[key]) for key in fields})
    except InputError as error:
        mistakes.append(str(error))
    try:
        built = build(model, {**arguments, **channels}, _COPIES)
    except InputError as error:
        mistakes.append(str(error))
    if mistakes:
        raise InputError(" ".join(mistakes))
    if METRICS[training.metric].for_two_classes and sizes.num_classes != 2:
        raise InputError(
            f"training: metric is '{training.metric}', which is for two classes, but this graph has "
            f"{sizes.num_classes}; choose another, such as 'balanced_accuracy'."
        )
    groups = built.parameter_groups()
    for name in training.weight_decay if isinstance(training.weight_decay, dict) else ():
        if name not in groups:
            raise unknown_name("parameter group in weight_decay", name, groups)
    if training.device == "cuda" and not torch.cuda.is_available():
        raise InputError("training: device is 'cuda', but torch sees no such device here.")
    if (training.recompute or training.activations != "float32") and not built.capabilities.fused_stack:
        raise InputError(
            "training: recompute and activations are for AdaGPR and GCNII with nothing between their layers, "
            f"not for this '{model}'."
        )
    width = int(built.arguments.get("hidden_channels", 1))
    if training.device == "cpu" and isinstance(sizes, Graph):
        # Half-precision matrices between the layers are the least; of a partition, parts suffice.
        widths = sizes.num_classes + width * built.arguments.get("num_layers", 1)
        require_memory(2 * sizes.num_nodes * widths, f"training: this '{model}' on {sizes.num_nodes:,} nodes")
    own = {key: value for key, value in built.arguments.items() if key not in channels}
    plain = {"data": data, "model": {"name": model, **own}, "training": training.model_dump(exclude={"num_threads"})}
    work = (sizes.num_edges + sizes.num_nodes) * width + sizes.num_nodes * width * width
    return Setup(training, built, plain, options, work)


def _defaults_of(sizes: Graph | Manifest) -> dict[str, Any]:
    """What the data set that a graph is from, if it is one of the catalogue, has other than the usual defaults."""
    name = str(sizes.origin.get("name"))
    return {"metric": catalogue()[name].metric} if name in catalogue() else {}


def training_options(model: str) -> dict[str, Any]:
    """The fields of training with their defaults for a model; see `adagpr.nn.Model.training_defaults`."""
    return {**TrainingConfig().model_dump(), **model_class(model).training_defaults}


def config_digest(*plain: Mapping[str, Any]) -> str:
    """A short hash of configurations that leaves out what the machine decides: threads and recomputation."""
    decided = []
    for item in plain:
        training = {
            key: value
            for key, value in item["training"].items()
            if key not in ("num_threads", "recompute") and _ADDED_LATER.get(key, ...) != value
        }
        decided.append({**item, "training": training})
    return digest(decided)


def read_config(path: Path) -> dict[str, Any]:
    """A stored configuration, with keys that it was written without at their defaults."""
    stored = read_toml(path, RunConfig, start_anew(path.parent))
    # Names of columns are free texts: one may be called "none".
    return with_defaults(path, {key: none_from_text(stored[key]) if key != "data" else stored[key] for key in stored})


def with_defaults(path: Path, stored: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration from this file, with keys that it was written without at their defaults."""
    way_out, name = start_anew(path.parent), stored["model"]["name"]
    # Runs of before were of a number of threads, on which their bits depended.
    kept = {key: value for key, value in stored["training"].items() if key != "num_threads"}
    training = TrainingConfig().model_dump(exclude={"num_threads"}) | kept
    with reading(path, way_out):
        model = {"name": name, **model_options(name), **stored["model"]}
    return {**stored, "model": model, "training": conform(path, TrainingConfig, training, way_out)}


def describe_data(graph: Graph, split: Split) -> dict[str, Any]:
    """The ``data`` part of a configuration: names, and sums of the graph and of the split."""
    described = {
        "name": graph.name,
        **graph.origin,
        "split": split.name,
        "graph_sha256": graph.fingerprint,
        "split_sha256": split.fingerprint,
    }
    if graph.recipe is None:
        return described
    # Other tables can give the same numbers, such as one with a category renamed.
    return {**described, "recipe_sha256": recipe_sum(graph.recipe)}


def recipe_sum(recipe: Mapping[str, Any]) -> str:
    """The sum of how features were made; in which form a text file was written makes no difference to them."""
    return digest({key: value for key, value in recipe.items() if key != "looks"}, 64)


def differences(stored: Mapping[str, Any], asked: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Dotted names of the keys whose values differ between a stored configuration and another one."""
    found: list[str] = []
    for key in sorted({*stored, *asked}):
        left, right = stored.get(key), asked.get(key)
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            found += differences(left, right, f"{prefix}{key}.")
        # A table has no null: where nothing was given, the file says "none".
        elif left != right and not (left == "none" and right is None):
            found.append(f"{prefix}{key}")
    return found
