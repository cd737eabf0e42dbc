"""The profile of an epoch: its parts are the whole, its products those of the mathematics. No test asserts a time."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import scipy.sparse as sp
import torch

from adagpr.benchmarking import CATEGORIES, Profile, profile_epoch
from adagpr.benchmarking.profile import category, fold
from adagpr.data import csbm
from adagpr.data.splits import random_split
from adagpr.errors import InputError
from adagpr.nn import build
from adagpr.ops import features
from adagpr.training import State, TrainingConfig, TrainingData

LAYERS, COEFFS = 3, 4


def prepare(is_sparse: bool) -> tuple[State, TrainingData]:
    graph = csbm(num_nodes=300, num_features=8)
    sizes = {"in_channels": 8, "hidden_channels": 16, "out_channels": 2}
    model = build("adagpr", {**sizes, "num_layers": LAYERS, "num_coeffs": COEFFS, "projection": "fixed"})
    model.seed(0)
    x = features(sp.csr_array(graph.x.numpy()) if is_sparse else graph.x)
    structure = model.structure(graph)
    split = random_split(graph.y)
    return State(model, TrainingConfig()), TrainingData(x, structure, graph.y, split.train, split.val)


@pytest.fixture(scope="module")
def profile() -> Profile:
    return profile_epoch(*prepare(is_sparse=False), rounds=2)


def count(profile: Profile, kind: str) -> tuple[int, int]:
    chosen = [product for product in profile.products if product.kind == kind]
    return sum(item.counts["training"] for item in chosen), sum(item.counts["evaluation"] for item in chosen)


def test_each_layer_takes_a_sparse_product_a_hop_each_way(profile: Profile) -> None:
    hops = LAYERS * (COEFFS - 1)
    assert count(profile, "sparse") == (2 * hops, hops)


def test_each_map_takes_a_dense_product_and_two_for_its_gradients_the_first_one(profile: Profile) -> None:
    assert count(profile, "dense") == (2 + 3 * LAYERS + 3, LAYERS + 2)


def test_sparse_features_move_the_input_map_to_the_sparse_products() -> None:
    found = profile_epoch(*prepare(is_sparse=True), rounds=1)
    hops = LAYERS * (COEFFS - 1)
    assert count(found, "sparse") == (2 * hops + 2, hops + 1)
    assert count(found, "dense") == (3 * LAYERS + 3, LAYERS + 1)


def test_categories_are_not_negative_and_sum_to_the_epoch(profile: Profile) -> None:
    seconds = [value for name in CATEGORIES for value in profile.categories[name]]
    assert min(seconds) >= 0
    assert sum(seconds) == pytest.approx(profile.seconds)
    assert sum(profile.stacks.values()) == pytest.approx(profile.seconds)


def test_training_has_every_category_and_evaluation_no_optimiser(profile: Profile) -> None:
    assert {name for name in CATEGORIES if name != "overhead" and profile.categories[name][0] == 0} == set()
    assert profile.categories["optimiser"][1] == 0


def test_the_limit_is_the_sum_of_the_products(profile: Profile) -> None:
    both = sum(product.counts.total() * product.seconds for product in profile.products)
    assert sum(profile.limit) == pytest.approx(both)
    assert min(product.seconds for product in profile.products) > 0


def test_the_table_ends_with_the_epoch_and_the_limit(profile: Profile) -> None:
    rows = profile.table()
    assert [row[0] for row in rows] == [*CATEGORIES, "epoch", "limit (products alone)"]
    assert rows[-2][-1] == pytest.approx(1)
    assert rows[-1][-1] == pytest.approx(profile.limit_share)


def test_plain_data_goes_through_json(profile: Profile) -> None:
    plain = json.loads(json.dumps(profile.to_plain()))
    assert plain["limit_share"] == profile.limit_share
    assert set(plain["parts"]) == set(CATEGORIES)


def test_the_state_is_left_one_epoch_further() -> None:
    (state, inputs), (other, _) = prepare(is_sparse=False), prepare(is_sparse=False)
    profile_epoch(state, inputs, rounds=2)
    inputs.step(other)
    expected = other.model.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in state.model.state_dict().items())
    assert state.model.generator.random() == other.model.generator.random()


def test_no_rounds_are_refused() -> None:
    state, inputs = prepare(is_sparse=False)
    with pytest.raises(InputError, match="rounds must be at least 1, got 0"):
        profile_epoch(state, inputs, rounds=0)


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        (("training", "adagpr/ops/propagate.py: forward", "aten::addmm_ (sparse)"), "sparse products"),
        (("training", "adagpr/ops/kernels.py: weighted_hops", "adagpr/ops/kernels.py: _run"), "sparse products"),
        (("training", "adagpr/ops/kernels.py: outer", "adagpr/ops/kernels.py: _run"), "dense products"),
        (("training", "adagpr/ops/backend.py: relu_drop_", "adagpr/ops/kernels.py: _run"), "dropout"),
        (("training", "adagpr/ops/kernels.py: weighted_hops"), "overhead"),
        (("training", "adagpr/ops/dropout.py: forward", "aten::relu_"), "activation"),
        (("training", "adagpr/ops/dropout.py: draw"), "dropout"),
        (("training", "adagpr/ops/sparse_linear.py: dropped", "aten::mul"), "dropout"),
        (("training", "adagpr/training/optimizer.py: step_together", "adagpr/ops/kernels.py: _run"), "optimiser"),
        (("training", "torch/_tensor.py: backward", "aten::add"), "other operations"),
        (("training", "torch/_tensor.py: backward"), "overhead"),
    ],
)
def test_categories_follow_from_names(stack: tuple[str, ...], expected: str) -> None:
    assert category(stack) == expected


def event(name: str, start: int, duration: int, *children: SimpleNamespace) -> SimpleNamespace:
    return SimpleNamespace(name=name, start_time_ns=start, duration_time_ns=duration, children=children)


def test_folding_gives_hidden_events_to_their_callers_and_cuts_what_outlasts_them() -> None:
    hidden = event("-hidden", 3, 4, event("aten::mm", 4, 2, event("inner", 4, 1)))
    tree = [event("-outside", 0, 100, event("step", 2, 10, hidden, event("late", 11, 50)))]
    stacks, counts = fold(tree, "root", lambda item: None if item.name.startswith("-") else str(item.name))
    nanoseconds = {stack[1:]: round(1e9 * seconds) for stack, seconds in stacks.items()}
    assert nanoseconds == {("step",): 7, ("step", "aten::mm"): 2, ("step", "late"): 1}
    assert [counts[stack] for stack in stacks] == [2, 2, 1]


def test_the_flame_graph_holds_every_stack_and_its_time(profile: Profile) -> None:
    found = json.loads(json.dumps(profile.flame_graph("tiny")))
    assert found["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    names = [frame["name"] for frame in found["shared"]["frames"]]
    assert len(set(names)) == len(names)
    (epoch,) = found["profiles"]
    assert (epoch["type"], epoch["unit"], epoch["startValue"]) == ("sampled", "milliseconds", 0)
    stacks = [tuple(names[number] for number in sample) for sample in epoch["samples"]]
    assert dict(zip(stacks, epoch["weights"], strict=True)) == {
        stack: pytest.approx(1e3 * seconds) for stack, seconds in profile.stacks.items()
    }
    assert sum(epoch["weights"]) == pytest.approx(epoch["endValue"])
