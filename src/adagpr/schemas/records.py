"""The fields of every file of plain data, as pydantic models; keys that a model does not name are not looked at.

Keys that came later than the first records have a default here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from adagpr.arguments import Finite, Fraction, MetricName, Nonnegative, Positive

# Of a run's record; format 1 had the scores as flat keys of the result.
RECORD_FORMAT = 2

Number = Annotated[int, Field(ge=0)]
Size = Annotated[int, Field(ge=1)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
SplitName = Literal["train", "val", "test"]
Matrix = Annotated[list[Annotated[list[Finite], Field(min_length=1)]], Field(min_length=1)]

# Points by which a mean over runs of a cell, rounded like them, may be off.
_ROUNDING = 0.02


class Stored(BaseModel):
    """Plain data that were written by the package: types are exact, a whole number counts as a number."""

    model_config = ConfigDict(strict=True, frozen=True, protected_namespaces=())


class _Exact(Stored):
    """As `Stored`, without other keys."""

    model_config = ConfigDict(extra="forbid")


class Named(Stored):
    """What has a name, beside other things."""

    name: str


class _Scale(Stored):
    """How a run on a partition was trained."""

    parts: Size
    per_batch: Size | Literal["none"] | None
    border: Literal["float32", "bfloat16"]


class RunConfig(Stored):
    """The parts of a run's configuration; what a model and a training take is said where they are."""

    data: dict[str, Any]
    model: Named
    training: dict[str, Any]
    scale: _Scale | None = None


class _DataSource(Named):
    split: str
    graph_sha256: str
    split_sha256: str


class _RecordConfig(RunConfig):
    data: _DataSource  # type: ignore[assignment]


class _Data(Named):
    num_nodes: Size
    num_edges: Number
    num_features: Size
    class_names: Annotated[list[str], Field(min_length=1)]
    split: str
    num_train: Number
    num_val: Number
    num_test: Number
    notes: list[str] = []
    is_approximate: bool = False

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _distinct("class_names", self.class_names)
        if self.num_train + self.num_val + self.num_test > self.num_nodes:
            raise ValueError("num_train, num_val and num_test are more than num_nodes")
        return self


class _Scores(Stored):
    loss: Finite
    accuracy: Fraction
    macro_f1: Fraction = 0.0
    balanced_accuracy: Fraction = 0.0
    # Undefined for more than two classes, and for nodes of one.
    roc_auc: Fraction | None = None
    average_precision: Fraction | None = None


class _Result(Stored):
    best_epoch: Size
    num_epochs: Size
    stopped_by: str
    val_objective: Finite
    primary: MetricName = "accuracy"
    scores: dict[SplitName, _Scores] | None = None
    # Format 1.
    train_loss: Finite = 0.0
    train_acc: Fraction | None = None
    val_loss: Finite = 0.0
    val_acc: Fraction | None = None
    test_loss: Finite = 0.0
    test_acc: Fraction | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _within_history(self.best_epoch, self.num_epochs)
        return self

    def has_scores(self, split: SplitName) -> bool:
        return getattr(self, f"{split}_acc") is not None if self.scores is None else split in self.scores


class _Machine(Stored):
    seconds: Nonnegative
    ranks: Size = 1


class _Calibration(Stored):
    temperature: Positive


class RunRecord(Stored):
    """``record.json`` of a run."""

    format: Size
    config: _RecordConfig
    data: _Data
    result: _Result
    num_parameters: Number
    machine: _Machine
    calibration: _Calibration = _Calibration(temperature=1.0)
    coefficients: Matrix | None = None
    feature_scaling: Literal["none", "rows", "standardise"] = "none"

    @model_validator(mode="before")
    @classmethod
    def _is_known(cls, content: Any) -> Any:
        number = content.get("format") if isinstance(content, dict) else None
        if isinstance(number, int) and number > RECORD_FORMAT:
            raise ValueError(f"it has the format {number}; this version reads up to {RECORD_FORMAT}")
        return content

    @model_validator(mode="after")
    def _fits(self) -> Self:
        names: tuple[SplitName, ...] = ("train", "val", "test")
        for name in names:
            if bool(getattr(self.data, f"num_{name}")) != self.result.has_scores(name):
                raise ValueError(f"data.num_{name} and the scores of the result do not agree")
        if self.data.split != self.config.data.split:
            raise ValueError("data.split and config.data.split differ")
        asked = self.config.training.get("feature_scaling") or "none"
        if asked not in ("auto", self.feature_scaling):
            raise ValueError("feature_scaling is not what config.training asks for")
        _rectangular("coefficients", self.coefficients)
        return self


class _TableColumns(_Exact):
    id: str
    source: str
    target: str
    weight: str
    directed: bool


class RunRecipe(_Exact):
    """``recipe.json`` of a run on tables; what the features hold is said where they are made."""

    columns: _TableColumns
    features: dict[str, Any]
    looks: dict[Literal["nodes", "edges"], str] = {}  # how text files were read, where not as usual


class _Stopping(_Exact):
    best_epoch: Number
    waited: Number
    lowest: dict[Literal["val_loss", "val_objective", "val_acc", "val_metric"], Finite]


class _Stream(_Exact):
    words: Annotated[list[Annotated[int, Field(ge=0, lt=2**64)]], Field(min_length=4, max_length=4)]
    has_uint32: Annotated[int, Field(ge=0, le=1)]
    uinteger: Annotated[int, Field(ge=0, lt=2**32)]


class CheckpointHeader(_Exact):
    """The header of a checkpoint, beside its sum."""

    stopping: _Stopping
    generator: _Stream
    seconds: Nonnegative


class EmptyHeader(_Exact):
    """The header of ``model.safetensors`` and of ``scaling.safetensors``, beside its sum: nothing."""


class _PartFile(_Exact):
    bytes: Number
    sha256: Sha256


class _PartFiles(_Exact):
    nodes: _PartFile = Field(alias="nodes.arrow")
    graph: _PartFile = Field(alias="graph.safetensors")
    features: _PartFile = Field(alias="features.safetensors")


class PartRecord(_Exact):
    """One part in the manifest of a partition; until that is written, also in a file of its own, with a sum."""

    num_nodes: Number
    num_edges: Number
    num_halo: Number
    num_cut: Number
    files: _PartFiles
    sha256: str | None = None


class PartitionManifest(Named):
    """``manifest.json`` of a partition; ``sha256`` is the sum of everything else in it."""

    format: Literal[1]
    key: str
    num_features: Size
    class_names: Annotated[list[str], Field(min_length=1)]
    is_symmetric: bool
    method: Literal["metis", "greedy"]
    split: str
    num_train: Number
    num_val: Number
    num_test: Number
    graph_sha256: str
    split_sha256: str
    parts: Annotated[list[PartRecord], Field(min_length=1)]
    notes: list[str] = []
    origin: dict[str, Any] = {}
    recipe: dict[str, Any] | None = None
    num_nodes: Number
    num_edges: Number
    edge_cut: Number
    sha256: str | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _distinct("class_names", self.class_names)
        for name, of_part in (("num_nodes", "num_nodes"), ("num_edges", "num_edges"), ("edge_cut", "num_cut")):
            if getattr(self, name) != sum(getattr(part, of_part) for part in self.parts):
                raise ValueError(f"{name} is not the sum over the parts")
        if self.num_train + self.num_val + self.num_test > self.num_nodes:
            raise ValueError("num_train, num_val and num_test are more than num_nodes")
        return self


class PartitionProgress(Stored):
    """How far a partition is that is not complete."""

    key: str
    method: Literal["metis", "greedy"] = "metis"
    stages: dict[str, Any]
    sha256: str | None = None


class _CellRun(Stored):
    config: Annotated[str, Field(pattern="^[0-9a-f]+$")]
    split: str
    seed: Number
    test_acc: Fraction
    val_acc: Fraction
    best_epoch: Size
    num_epochs: Size
    machine: _Machine
    coefficients: Matrix | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _within_history(self.best_epoch, self.num_epochs)
        _rectangular("coefficients", self.coefficients)
        return self


class CellRecord(Stored):
    """The record of a cell of the paper's tables, or of a part of its runs."""

    table: int | str
    method: str
    dataset: str
    split: str
    layers: Size | None
    published: Finite | str
    test_acc: Finite
    test_acc_std: Nonnegative
    val_acc: Finite
    num_runs: Size
    model: str
    options: dict[str, Any]
    settings: str
    settings_from: str
    runs: list[_CellRun]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.runs) != self.num_runs:
            raise ValueError(f"num_runs is {self.num_runs}, but there are {len(self.runs)} runs")
        _distinct("runs", [f"{run.split}, seed {run.seed}" for run in self.runs])
        for name in ("test_acc", "val_acc"):
            if abs(getattr(self, name) - 100 * fmean(getattr(run, name) for run in self.runs)) > _ROUNDING:
                raise ValueError(f"{name} is not the mean over the runs")
        if len({_shape(run.coefficients) for run in self.runs if run.coefficients is not None}) > 1:
            raise ValueError("the coefficients of the runs differ in their number")
        return self


class CellFailure(Stored):
    """Why a cell has no record."""

    cell: str
    failed: list[str]


class CoefficientCurve(Stored):
    """The coefficients over one training, kept beside the records."""

    config: str
    best_epoch: Size
    epochs: Annotated[list[Size], Field(min_length=1)]
    coefficients: Annotated[list[Matrix], Field(min_length=1)]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.epochs) != len(self.coefficients):
            raise ValueError("epochs and coefficients are not equally many")
        for one, other in pairwise(self.coefficients):
            if _shape(one) != _shape(other):
                raise ValueError("the coefficients of two epochs differ in their number")
        _rectangular("coefficients", self.coefficients[0])
        return self


def _within_history(best_epoch: int, num_epochs: int) -> None:
    if best_epoch > num_epochs:
        raise ValueError(f"best_epoch is {best_epoch}, but there are {num_epochs} epochs")


def _distinct(name: str, values: Sequence[str]) -> None:
    if len(set(values)) < len(values):
        raise ValueError(f"{name} holds something twice")


def _shape(matrix: Matrix) -> tuple[int, ...]:
    return tuple(map(len, matrix))


def _rectangular(name: str, matrix: Matrix | None) -> None:
    if matrix is not None and len(set(_shape(matrix))) > 1:
        raise ValueError(f"the rows of {name} differ in length")
