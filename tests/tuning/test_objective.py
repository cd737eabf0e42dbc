from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import optuna
import pytest
import torch

from adagpr import fit
from adagpr.data.splits import random_split
from adagpr.errors import InputError
from adagpr.graph import Graph, Split
from adagpr.training import State, TrainingData
from adagpr.tuning import Space, search
from adagpr.tuning.search import objective
from adagpr.tuning.space import Parameter
from adagpr.tuning.study import Study, blind

optuna.logging.set_verbosity(optuna.logging.CRITICAL)
PARAMS = {"lr": 0.05, "weight_decay": 0.001, "dropout": 0.2, "alpha": 0.3}


def make_study(small: tuple[Graph, list[Split]], space: Space, **changes: Any) -> Study:
    graph, (split,) = small
    return replace(Study(graph, [split, random_split(graph.y, 1)], [0], "adagpr", space), **changes)


def run_one(study: Study, folder: Path | None = None, interrupted_at: int | None = None) -> optuna.trial.FrozenTrial:
    def run(trial: optuna.Trial) -> float:
        report = trial.report

        def report_unless_interrupted(value: float, step: int) -> None:
            if step == interrupted_at:
                raise KeyboardInterrupt
            report(value, step)

        trial.report = report_unless_interrupted  # type: ignore[method-assign]
        return objective(study, trial, folder)

    opened = optuna.create_study()
    opened.enqueue_trial(PARAMS)
    opened.optimize(run, n_trials=1)
    return opened.trials[0]


def test_only_training_and_validation_labels_are_left(small: tuple[Graph, list[Split]]) -> None:
    graph, (split,) = small
    hidden, shown = blind(graph, split)
    assert torch.equal(hidden.y[split.train], graph.y[split.train])
    assert torch.equal(hidden.y[split.val], graph.y[split.val])
    assert hidden.y[split.test].unique().tolist() == [-1]
    assert len(shown.test) == 0
    assert hidden.num_classes == graph.num_classes


def test_a_trial_s_value_is_the_validation_loss_that_fit_reaches(
    small: tuple[Graph, list[Split]], quick_space: Space
) -> None:
    study = make_study(small, quick_space)
    trial = run_one(study)
    run = fit(study.graph, study.splits[0], **study.options(PARAMS))
    assert trial.value == run.score("val", "loss")
    assert trial.user_attrs["result"]["epochs"] == 16


def test_other_test_labels_change_nothing(small: tuple[Graph, list[Split]], quick_space: Space) -> None:
    study = make_study(small, quick_space)
    labels = study.graph.y.clone()
    labels[study.splits[0].test] = 1 - labels[study.splits[0].test]
    spoiled = replace(study, graph=replace(study.graph, y=labels))
    assert spoiled.graph.fingerprint != study.graph.fingerprint
    one, other = run_one(study), run_one(spoiled)
    assert one.value == other.value
    assert one.intermediate_values == other.intermediate_values
    assert one.user_attrs["result"]["graph_sha256"] == other.user_attrs["result"]["graph_sha256"]
    train = study.splits[0].train[:3]
    labels[train] = 1 - labels[train]
    assert run_one(replace(study, graph=replace(study.graph, y=labels))).value != one.value


def test_another_split_or_recipe_is_another_study(small: tuple[Graph, list[Split]], quick_space: Space) -> None:
    study = make_study(small, quick_space)
    first, second = study.splits
    turned = replace(first, train=first.val, val=first.train)
    others = [
        replace(study, splits=[turned, second]),
        replace(study, splits=[first, turned]),
        replace(study, splits=[first]),
        replace(study, graph=replace(study.graph, recipe={"columns": ["age"]})),
        replace(study, graph=replace(study.graph, recipe={"columns": ["year"]})),
    ]
    assert len({item.name for item in (study, *others)}) == 6


def test_several_splits_are_averaged(small: tuple[Graph, list[Split]], quick_space: Space) -> None:
    first, second = (run_one(make_study(small, quick_space, tuned=[number])).value for number in (0, 1))
    both = run_one(make_study(small, quick_space, tuned=[0, 1]))
    assert first is not None
    assert second is not None
    assert both.value == fmean([first, second])
    assert list(both.intermediate_values) == [2, 4, 8, 16, 18, 20, 24, 32]
    assert both.intermediate_values[16] == first


def test_the_penalty_does_not_enter_the_value(small: tuple[Graph, list[Split]], quick_space: Space) -> None:
    space = quick_space.with_settings({"decay": "penalty", "monitor": "val_objective", "weight_decay": 0.1})
    study = make_study(small, space)
    run = fit(study.graph, study.splits[0], **study.options(PARAMS | {"weight_decay": 0.1}))
    result = run.record["result"]
    assert result["val_objective"] > run.score("val", "loss")
    assert run_one(study).value == run.score("val", "loss")


def test_class_weights_enter_every_loss_that_is_reported(small: tuple[Graph, list[Split]], quick_space: Space) -> None:
    graph, (split,) = small
    labels = graph.y.clone()
    labels[::3] = 0
    space = quick_space.with_settings({"patience": 1, "max_epochs": 160, "class_weights": "balanced"})
    study = make_study((replace(graph, y=labels), [split]), space)
    trial = run_one(study)
    run = fit(study.graph, study.splits[0], **study.options(PARAMS))
    assert trial.value == run.best_val_loss != run.score("val", "loss")
    assert run.record["result"]["num_epochs"] < 80
    assert trial.intermediate_values[80] == trial.value


def test_losses_with_other_class_weights_are_not_compared(small: tuple[Graph, list[Split]], quick_space: Space) -> None:
    weights = Parameter(choices=["equal", "balanced"])
    space = quick_space.model_copy(update={"search": {**quick_space.search, "class_weights": weights}})
    with pytest.raises(InputError, match="class_weights cannot be searched"):
        make_study(small, space).check()


def test_what_stopped_early_still_has_a_value_at_every_rung(
    small: tuple[Graph, list[Split]], quick_space: Space
) -> None:
    study = make_study(small, quick_space.with_settings({"patience": 1, "max_epochs": 160}))
    trial = run_one(study)
    assert trial.user_attrs["result"]["epochs"] < 80
    assert list(trial.intermediate_values) == [20, 40, 80, 160]
    assert trial.intermediate_values[160] == trial.value


def test_a_hopeless_trial_is_pruned_before_its_end(small: tuple[Graph, list[Split]], quick_space: Space) -> None:
    study = make_study(small, quick_space)
    opened = optuna.create_study(pruner=optuna.pruners.MedianPruner(n_startup_trials=1))
    for lr in (0.05, 0.001):
        opened.enqueue_trial({**PARAMS, "lr": lr})
    opened.optimize(lambda trial: objective(study, trial), n_trials=2)
    pruned = opened.trials[1]
    assert pruned.state == optuna.trial.TrialState.PRUNED
    assert pruned.user_attrs["result"]["epochs"] < 16
    assert pruned.user_attrs["result"]["pruned_because"] == "above the median"


def test_a_diverging_trial_is_pruned_and_says_why(small: tuple[Graph, list[Split]], quick_space: Space) -> None:
    trial = run_one(make_study(small, quick_space.with_settings({"lr": 1e30})))
    assert trial.state == optuna.trial.TrialState.PRUNED
    assert "Training diverged" in trial.user_attrs["result"]["pruned_because"]


def test_a_trial_that_does_not_fit_in_memory_is_pruned_and_says_why(
    small: tuple[Graph, list[Split]], quick_space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["adagpr.training.fit"], "train", lambda *arguments: torch.empty(2**50))
    trial = run_one(make_study(small, quick_space))
    assert trial.state == optuna.trial.TrialState.PRUNED
    assert trial.user_attrs["result"]["pruned_because"] == "There is not enough memory for this."


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"alhpa": 1}, "Did you mean 'alpha'"), ({"seed": 1}, "cannot hold seed"), ({"theta": -1}, "theta must be")],
)
def test_a_space_that_does_not_fit_is_refused_before_any_trial(
    settings: dict[str, Any], message: str, small: tuple[Graph, list[Split]], quick_space: Space
) -> None:
    with pytest.raises(InputError, match=message):
        make_study(small, quick_space.with_settings(settings)).check()


def test_a_trial_that_was_interrupted_is_continued_from_its_checkpoints(
    small: tuple[Graph, list[Split]], quick_space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "CHECKPOINT_SECONDS", 0.0)
    study = make_study(small, quick_space, tuned=[0, 1])
    whole = run_one(study, folder=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run_one(study, folder=tmp_path / "parts", interrupted_at=24)
    num_steps, step = [0], TrainingData.step

    def counted(data: TrainingData, state: State) -> torch.Tensor:
        num_steps[0] += 1
        return step(data, state)

    monkeypatch.setattr(TrainingData, "step", counted)
    again = run_one(study, folder=tmp_path / "parts")
    # The first split and half of the second were done.
    assert num_steps == [8]
    assert again.value == whole.value == run_one(study).value
    assert again.intermediate_values == whole.intermediate_values
    results = [{**trial.user_attrs["result"], "seconds": None} for trial in (again, whole)]
    assert results[0] == results[1]
