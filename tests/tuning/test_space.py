from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest

from adagpr.data.splits import random_split
from adagpr.errors import InputError
from adagpr.experiments import catalogue
from adagpr.graph import Graph
from adagpr.nn.registry import MODELS
from adagpr.training import resolve
from adagpr.tuning import Space, read_space, space_names
from adagpr.tuning.space import choose_space, flat

PAPERS = [name for name in space_names() if name.startswith("adagpr_")]
ROWS = [row for row in catalogue().values() if row.method == "AdaGPR"]


def write(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("name", space_names())
def test_every_choice_of_a_space_can_be_trained(name: str, make_graph: Callable[..., Graph]) -> None:
    graph = make_graph()
    space = read_space(name)
    space = space.for_model("adagpr" if space.model == "any" else space.model)
    for params in space.probes():
        plain = resolve(graph, random_split(graph.y), space.model, space.options(params)).plain
        assert flat({**plain["model"], **plain["training"]}).items() >= params.items()


@pytest.mark.parametrize("model", MODELS)
def test_the_general_space_serves_every_model(model: str, make_graph: Callable[..., Graph]) -> None:
    graph = make_graph()
    space = read_space("general").for_model(model)
    assert space.search
    for params in space.probes():
        resolve(graph, random_split(graph.y), model, space.options(params))


def test_choices_that_a_model_refuses_are_left_out() -> None:
    layers = read_space("general").for_model("incepgcn").search["num_layers"]
    assert layers.choices == [4, 8, 16]


def test_a_model_that_does_not_learn_has_no_learning_rate_to_search() -> None:
    assert set(read_space("general").for_model("label-propagation").search) == {"num_hops", "alpha"}


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_what_the_paper_chose_lies_in_the_space_it_searched(row: Any) -> None:
    space = choose_space(row.dataset, row.split, "adagpr")
    assert space.name in PAPERS
    for cell in row.cells():
        options = flat(cell.options)
        for name, parameter in space.search.items():
            assert is_inside(parameter, options[name]), (name, options[name])
        # A depth may have options of its own, which the row explains.
        own = row.at.get(str(cell.layers), {})
        fixed = {name: value for name, value in space.fixed.items() if name not in own}
        assert {name: options[name] for name in fixed} == fixed


def is_inside(parameter: Any, value: float) -> bool:
    if parameter.choices is not None:
        return bool(value in parameter.choices)
    low, high, step = (float(item) for item in (parameter.low, parameter.high, parameter.step))
    steps = (value - low) / step
    return low <= value <= high + 1e-9 and abs(steps - round(steps)) < 1e-9


@pytest.mark.parametrize(
    ("dataset", "split", "model", "name"),
    [
        ("texas", "geom-gcn", "adagpr", "adagpr_fully-supervised"),
        ("texas", "geom-gcn", "gcnii", "gcnii_fully-supervised"),
        ("cora", "public", "adagpr", "adagpr_semi-supervised_cora"),
        ("cora", "geom-gcn", "adagpr", "adagpr_fully-supervised"),
        ("cora", "random", "adagpr", "general"),
        ("digits", "labelled-5", "adagpr", "general"),
        ("texas", "geom-gcn", "gat", "general"),
    ],
)
def test_the_default_space_is_the_paper_s_where_it_has_one(dataset: str, split: str, model: str, name: str) -> None:
    assert choose_space(dataset, split, model).name == name


def test_what_is_set_by_hand_is_no_longer_searched() -> None:
    space = read_space("adagpr_semi-supervised_cora")
    groups = space.with_settings({"weight_decay": {"convs": 0.5}})
    assert "weight_decay.convs" not in groups.search
    assert groups.options({"weight_decay.coeffs": 0.1})["weight_decay"] == {
        "convs": 0.5,
        "linears": 0.0001,
        "coeffs": 0.1,
    }
    single = space.with_settings({"weight_decay": 0.5, "patience": "none"})
    assert [name for name in single.search if name.startswith("weight_decay")] == []
    assert single.options({})["weight_decay"] == 0.5
    assert single.options({})["patience"] is None


def test_steps_give_round_numbers(quick_space: Space) -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    drawn = {quick_space.suggest(study.ask())["dropout"] for _ in range(60)}
    assert drawn == {0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}


BAD = [
    ('model = "any"', "search must be a table"),
    ('model = "any"\n[search.lr]\nlow = 1', "search.lr needs choices, or low and high"),
    ('model = "any"\n[search.lr]\nlow = 2\nhigh = 1', "search.lr must have low at most high"),
    ('model = "any"\n[search.lr]\nlow = 0\nhigh = 1\nlog = true', "search.lr with log must have low above 0"),
    ('model = "any"\n[search.lr]\nlow = 0\nhigh = 1\nstep = 0', "search.lr must have a step above 0"),
    ('model = "any"\n[search.lr]\nchoices = []', "search.lr needs at least one choice"),
    ('model = "any"\n[search.lr]\nchoices = [1]\nlow = 2', "search.lr takes either choices or a range"),
    ('model = "any"\n[search.lr]\nlow = "a"\nhigh = 1', "search.lr: low must be"),
    ('model = "any"\n[search.lr]\nlows = 1\nhigh = 1', "'lows'. Did you mean 'low'?"),
    ('model = "any"\nextra = 1\n[search.lr]\nchoices = [1]', "Unknown key of mine.toml 'extra'"),
    ("[search.lr]\nchoices = [1]", "mine.toml: model is missing"),
    ("[search", "Cannot read"),
]


@pytest.mark.parametrize(("text", "message"), BAD, ids=[message for _, message in BAD])
def test_a_mistake_in_a_space_s_file_is_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_space(write(tmp_path, text))
    assert message in str(caught.value)


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    text = 'model = "any"\n[search.lr]\nlow = 1\n[search.alpha]\nchoices = []'
    with pytest.raises(InputError, match=r"search\.lr needs .* search\.alpha needs"):
        read_space(write(tmp_path, text))


def test_a_space_of_another_model_is_refused() -> None:
    with pytest.raises(InputError, match="is for the model 'adagpr', not for 'gcn'"):
        read_space("adagpr_fully-supervised").for_model("gcn")


def test_nothing_left_to_search_is_refused(quick_space: Space) -> None:
    with pytest.raises(InputError, match="nothing to search"):
        quick_space.with_settings({"lr": 0.1, "weight_decay": 0, "dropout": 0, "alpha": 0.1})
