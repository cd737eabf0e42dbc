"""The fields of the files of a study, as in `adagpr.schemas.records`; Optuna reads the lines of its journal."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from adagpr.arguments import Finite, Fraction, MetricName, Nonnegative
from adagpr.schemas.records import Named, Number, Sha256, Size, Stored


class StudyConfig(Stored):
    """``study.toml``; the rest is compared with what is asked for."""

    model: str
    seed: Number
    data: Named
    space: Named
    storage: str


class _Worker(Stored):
    host: str
    pid: Number


class _TrialResult(Stored):
    seed: Number
    epochs: Number
    graph_sha256: list[str]
    val_acc: Fraction | None = None
    pruned_because: str = ""
    seconds: Nonnegative


class TrialAttributes(Stored):
    """A trial of the journal, as Optuna read it, running or not."""

    number: Number
    is_complete: bool
    params: dict[str, Any]
    values: list[Finite] | None
    intermediate_values: dict[int, Finite]
    place: Number | None = None
    first: Number | None = None
    worker: _Worker | None = None
    result: _TrialResult | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.is_complete and self.values is None:
            raise ValueError(f"trial {self.number} is complete, but has no value")
        return self


class _Shown(Stored):
    split: str
    num_labels: Number
    num_hidden: Number


class _TrialMachine(Stored):
    seconds: Nonnegative | None = None
    attempts: Size = 1


class _Trial(Stored):
    number: Number
    state: Literal["complete", "pruned", "fail"]
    value: Finite | None
    params: dict[str, Any]
    val_acc: Fraction | None = None
    val_metric: Fraction | None = None
    epochs: Number | None = None
    machine: _TrialMachine

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.state == "complete" and None in (self.value, self.val_acc, self.epochs, self.machine.seconds):
            raise ValueError(f"trial {self.number} is complete, but was not measured")
        return self


class _Best(Stored):
    number: Number
    value: Finite
    params: dict[str, Any]
    trials_sha256: Sha256
    best_sha256: Sha256
    machine: dict[str, str] = Field(default_factory=dict)


class _TestRun(Stored):
    split: str
    test_acc: Fraction
    num_test_seen: Number


class _TestMetric(Stored):
    name: MetricName
    test: Fraction | None
    test_std: Nonnegative
    unseen_test: Fraction | None


class _StudyTest(Stored):
    num_runs: Size
    test_acc: Fraction
    test_acc_std: Nonnegative
    unseen_test_acc: Fraction | None
    metric: _TestMetric | None = None
    runs: list[_TestRun]
    machine: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.runs) != self.num_runs:
            raise ValueError(f"num_runs is {self.num_runs}, but there are {len(self.runs)} runs")
        if (self.unseen_test_acc is None) == any(run.num_test_seen == 0 for run in self.runs):
            raise ValueError("unseen_test_acc and num_test_seen do not agree")
        return self


class _EarlierTest(Stored):
    num_trials: Size
    best: _Best
    test_acc: Fraction
    machine: dict[str, str] = Field(default_factory=dict)


class _Space(Named):
    fixed: dict[str, Any] = Field(default_factory=dict)
    search: dict[str, dict[str, Any]]


class _Study(Stored):
    data: Named
    model: str
    tuned_on: list[str]
    space: _Space
    metric: MetricName = "accuracy"
    source: str
    notes: list[str]


class StudyRecord(Stored):
    """``study.json``; until the choice is tested there is no ``test``."""

    format: Annotated[int, Field(ge=1, le=2)]
    study: _Study
    data_notes: list[str] = Field(default_factory=list)
    num_trials: Size
    shown: list[_Shown]
    trials: list[_Trial]
    best: _Best
    importance: dict[str, Fraction]
    machine: dict[str, Any]
    earlier_tests: list[_EarlierTest] = Field(default_factory=list)
    test: _StudyTest | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        numbers = [trial.number for trial in self.trials]
        if self.format > 1 and numbers != [*range(len(numbers))]:
            raise ValueError(f"the trials must have the numbers 0 to {len(numbers) - 1}")
        chosen = [(trial.value, trial.params) for trial in self.trials if trial.number == self.best.number]
        if chosen != [(self.best.value, self.best.params)]:
            raise ValueError(f"best is not trial {self.best.number}")
        for trial in self.trials:
            missing = {*self.study.space.search} - {*trial.params}
            if trial.state == "complete" and missing:
                raise ValueError(f"trial {trial.number} has no {min(missing)}")
            for name, value in trial.params.items():
                choices = self.study.space.search.get(name, {}).get("choices")
                fits = isinstance(value, int | float) if choices is None else value in choices
                if not fits:
                    raise ValueError(f"trial {trial.number} cannot have the {name} {value!r}")
        return self
