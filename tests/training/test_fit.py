from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from adagpr.data import csbm
from adagpr.data.splits import random_split
from adagpr.errors import AdaGPRError, InputError, OutOfMemoryError
from adagpr.files import read_json, read_toml, write_json
from adagpr.graph import Graph, Split, from_scipy
from adagpr.nn import MODELS, build
from adagpr.ops import PROJECTIONS, features, operator
from adagpr.training import Epoch, State, TrainingConfig, fit, fit_all, hop_0_options, load_run, summarise
from tests.ages import are_old, make_old


def equal_but_for_the_machine(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return json.dumps({**one, "machine": 0}) == json.dumps({**other, "machine": 0})


def test_a_run_learns_what_the_features_and_the_graph_say() -> None:
    graph = csbm(num_nodes=400, num_classes=3, num_features=8, feature_signal=1.0, homophily=0.9, seed=1)
    order = torch.from_numpy(np.random.default_rng(1).permutation(400))
    run = fit(graph, Split(order[:60], order[60:160], order[160:]), num_layers=2, hidden_channels=16, max_epochs=150)
    assert run.test_acc > 0.8
    assert run.score("train") > 0.9


def test_equal_seeds_give_equal_records_and_other_seeds_do_not(
    graph: Graph, split: Split, options: dict[str, Any]
) -> None:
    runs = [fit(graph, split, seed=seed, **options) for seed in (1, 1, 2)]
    assert equal_but_for_the_machine(runs[0].record, runs[1].record)
    assert runs[0].history.equals(runs[1].history)
    assert not equal_but_for_the_machine(runs[0].record, runs[2].record)


def test_the_caller_s_random_state_and_threads_are_left_alone(
    graph: Graph, split: Split, options: dict[str, Any]
) -> None:
    before = torch.get_rng_state(), torch.get_num_threads()
    fit(graph, split, num_threads=2, **options)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == torch.get_num_threads()


def test_the_folder_holds_the_run_and_nothing_of_its_making(
    graph: Graph, split: Split, options: dict[str, Any], tmp_path: Path
) -> None:
    run = fit(graph, split, out=tmp_path / "run", checkpoint_seconds=0.0, **options)
    names = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert names == [
        ".lock",
        "config.toml",
        "history.parquet",
        "model.safetensors",
        "predictions.parquet",
        "record.json",
    ]
    again = load_run(tmp_path / "run")
    assert again.record == run.record == read_json(tmp_path / "run" / "record.json")
    assert again.history.equals(run.history)
    assert again.predictions.equals(run.predictions)
    for name, value in run.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name])


def test_history_has_every_coefficient_of_every_layer(graph: Graph, split: Split, options: dict[str, Any]) -> None:
    run = fit(graph, split, **options)
    history = run.history.to_pydict()
    assert history["epoch"] == list(range(1, 13))
    best = run.best_epoch - 1
    ours = [[history[f"coeff_{layer}_{hop}"][best] for hop in range(3)] for layer in (1, 2)]
    assert ours == run.record["coefficients"]
    assert history["val_acc"][best] == run.val_acc
    assert history["val_loss"][best] == pytest.approx(run.score("val", "loss"), rel=1e-6)


def test_predictions_name_node_part_label_and_probabilities(
    graph: Graph, split: Split, options: dict[str, Any], tmp_path: Path
) -> None:
    run = fit(graph, split, out=tmp_path, **options)
    table = pq.read_table(tmp_path / "predictions.parquet").to_pydict()
    parts = np.array(table["part"])
    assert set(np.flatnonzero(parts == "test")) == set(split.test.tolist())
    correct = np.array(table["prediction"]) == np.array(table["label"])
    assert correct[parts == "test"].mean() == run.test_acc
    total = sum(np.array(table[f"p_{name}"]) for name in graph.class_names)
    np.testing.assert_allclose(total, 1, atol=1e-6)


def test_the_best_epoch_is_restored(graph: Graph, split: Split, options: dict[str, Any]) -> None:
    run = fit(graph, split, **{**options, "max_epochs": 60, "lr": 0.2})
    losses = run.history["val_loss"].to_pylist()
    assert run.best_epoch == int(np.argmin(losses)) + 1 < 60
    logits = run.model(features(graph.x), operator(graph))
    loss = F.cross_entropy(logits[split.val], graph.y[split.val]).item()
    assert loss == pytest.approx(min(losses), rel=1e-6)


def test_test_labels_change_nothing_but_the_reported_test_figures(
    graph: Graph, split: Split, options: dict[str, Any]
) -> None:
    y = graph.y.clone()
    y[split.test] = (y[split.test] + 1) % 3
    other = Graph(graph.x, graph.adj, y, graph.class_names)
    one, two = fit(graph, split, **options), fit(other, split, **options)
    assert one.history.equals(two.history)
    assert one.best_epoch == two.best_epoch
    assert one.test_acc != two.test_acc


@pytest.mark.parametrize("decay", ["adam", "penalty"])
def test_both_decays_equal_autograd_on_the_written_out_objective(
    decay: str, graph: Graph, split: Split, options: dict[str, Any]
) -> None:
    decays = {"convs": 0.3, "linears": 0.01, "coeffs": 0.2}
    run = fit(graph, split, decay=decay, weight_decay=decays, dropout=0.0, **{**options, "max_epochs": 3})
    oracle = build("adagpr", run.model.arguments)
    oracle.seed(0)
    optimizer = torch.optim.Adam(oracle.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(oracle(features(graph.x), operator(graph))[split.train], graph.y[split.train])
        for name, group in oracle.parameter_groups().items():
            half = 0.5 if decay == "adam" else 1.0
            loss = loss + half * decays[name] * sum(p.square().sum() for p in group)
        loss.backward()
        optimizer.step()
    assert run.best_epoch == 3
    for one, other in zip(run.model.parameters(), oracle.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_the_penalty_is_the_sum_over_named_groups(graph: Graph, split: Split, options: dict[str, Any]) -> None:
    config = TrainingConfig(decay="penalty", weight_decay={"convs": 2.0, "coeffs": 0.5})
    model = build("adagpr", {"in_channels": 10, "hidden_channels": 8, "out_channels": 3})
    groups = model.parameter_groups()
    squares = {name: sum(p.square().sum().item() for p in group) for name, group in groups.items()}
    expected = 2.0 * squares["convs"] + 0.5 * squares["coeffs"]
    assert State(model, config).penalty() == pytest.approx(expected, rel=1e-6)


def test_several_runs_are_kept_side_by_side_and_summed_up(
    graph: Graph, split: Split, options: dict[str, Any], tmp_path: Path
) -> None:
    runs = fit_all(graph, [split], seeds=[0, 1], out=tmp_path, **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["test-0-seed-0", "test-0-seed-1"]
    summary = summarise(runs)
    assert summary["test_acc"] == pytest.approx((runs[0].test_acc + runs[1].test_acc) / 2)
    assert summary["num_runs"] == 2


def test_the_twin_without_the_graph_ignores_every_edge(graph: Graph, split: Split, options: dict[str, Any]) -> None:
    lonely = Graph(graph.x, graph.adj * 0, graph.y, graph.class_names)
    twin = hop_0_options("adagpr", {**options, "weight_decay": {"coeffs": 0.1, "convs": 0.1}})
    one, other = (fit(item, split, **twin).predictions.drop(["doubt"]) for item in (graph, lonely))
    assert one.equals(other)
    with pytest.raises(InputError, match="'mlp' has no coefficients"):
        hop_0_options("mlp", {})


def test_without_the_graph_signed_hops_are_a_network_that_no_edge_changes(make_graph: Callable[..., Graph]) -> None:
    graph = make_graph()
    split = random_split(graph.y, 0)
    options = hop_0_options("adagpr-signed", {"num_layers": 2, "num_coeffs": 3, "max_epochs": 3})
    runs = [fit(each, split, "adagpr-signed", **options) for each in (graph, replace(graph, adj=0 * graph.adj))]
    assert runs[0].history.equals(runs[1].history)
    assert runs[0].coefficients is not None
    assert runs[0].coefficients.shape == (2, 1)


def test_a_finished_run_is_read_and_not_repeated(
    graph: Graph, split: Split, options: dict[str, Any], tmp_path: Path
) -> None:
    fit(graph, split, out=tmp_path, **options)
    record = make_old([tmp_path / "record.json"])
    seen: list[int] = []
    fit(graph, split, out=tmp_path, on_epoch=lambda number, epoch, stopping: seen.append(number), **options)
    assert seen == []
    assert are_old(record)


def test_the_resolved_configuration_is_saved_whole(
    graph: Graph, split: Split, options: dict[str, Any], tmp_path: Path
) -> None:
    fit(graph, split, out=tmp_path, **options)
    config = read_toml(tmp_path / "config.toml")
    assert config["model"]["projection"] == "exp-sparsemax"
    assert config["training"]["lr"] == 0.01
    assert config["data"]["split"] == "test/0"
    assert "num_threads" not in config["training"]


@pytest.mark.parametrize("projection", [name for name in PROJECTIONS if name != "fixed"])
@pytest.mark.parametrize("lr", [1e10, 1e38])
def test_divergence_is_one_sentence(
    projection: str, lr: float, graph: Graph, split: Split, options: dict[str, Any]
) -> None:
    with pytest.raises(AdaGPRError, match=r"Training diverged at epoch .* Try a smaller lr"):
        fit(graph, split, projection=projection, **{**options, "lr": lr, "max_epochs": 50})


BAD: list[tuple[dict[str, Any], str]] = [
    ({"num_layer": 3}, "Unknown key for the model 'adagpr' 'num_layer'. Did you mean 'num_layers'"),
    ({"num_layers": -1}, "num_layers must be greater than or equal to 1, got -1"),
    ({"num_layers": 2.5}, "num_layers must be a whole number"),
    ({"dropout": 1.0}, "dropout must be less than 1, got 1.0"),
    ({"lr": 0}, "lr must be greater than 0, got 0"),
    ({"patience": 0}, "patience must be greater than or equal to 1"),
    ({"weight_decay": {"conv": 1.0}}, "Unknown parameter group in weight_decay 'conv'. Did you mean 'convs'"),
    ({"monitor": "test_acc"}, "monitor must be 'val_loss', 'val_objective', 'val_acc' or 'val_metric'"),
    ({"direction": "both"}, "direction must be 'directed' or 'symmetric'"),
    ({"num_layers": True}, "num_layers must be a whole number, got True"),
    ({"num_threads": 100_000}, "num_threads must be less than or equal to 256"),
    ({"projection": "fixed", "num_coeffs": 1, "fixed_coeffs": [float("nan")]}, "fixed_coeffs must be a finite number"),
    ({"foo": 1, "lr": -1, "num_layers": -1}, r"(?s)'foo'.*lr must be .*num_layers must be"),
    ({"device": "tpu"}, "device must be 'cpu' or 'cuda', got 'tpu'"),
]


@pytest.mark.parametrize(("wrong", "message"), BAD)
def test_bad_options_are_refused_and_nothing_is_written(
    wrong: dict[str, Any], message: str, graph: Graph, split: Split, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        fit(graph, split, out=tmp_path / "run", **wrong)
    assert list(tmp_path.iterdir()) == []


def test_a_split_that_does_not_fit_is_refused(graph: Graph, make_graph: Callable[..., Graph]) -> None:
    one, two, three = (torch.arange(start, start + 5) for start in (0, 5, 200))
    with pytest.raises(InputError, match="test names nodes from 200 to 204, but the graph has 120"):
        fit(graph, Split(one, two, three))
    with pytest.raises(InputError, match="nodes are in more than one part"):
        Split(one, one, two)
    unlabelled = from_scipy(make_graph().adj, make_graph().x, [-1] * 10 + [0, 1] * 10)
    with pytest.raises(InputError, match="5 train nodes have no label"):
        fit(unlabelled, Split(one, two + 10, two + 15))
    with pytest.raises(InputError, match="all of one class"):
        fit(make_graph(), Split(torch.tensor([0, 3]), torch.tensor([1]), torch.tensor([2])))


def test_epochs_add_the_penalty_to_the_validation_objective() -> None:
    assert Epoch(1.0, 0.5, 2.0, 0.5, 0.25).val_objective == 2.25


def test_a_folder_written_before_an_option_existed_is_still_the_same_run(
    graph: Graph, split: Split, options: dict[str, Any], tmp_path: Path
) -> None:
    fit(graph, split, out=tmp_path, **options)
    config = tmp_path / "config.toml"
    config.write_text("".join(line for line in config.read_text().splitlines(True) if "drop_edge" not in line))
    assert fit(graph, split, out=tmp_path, **options).folder == tmp_path
    with pytest.raises(InputError, match=r"these keys differ: model\.drop_edge"):
        fit(graph, split, out=tmp_path, drop_edge=0.5, **options)


def test_a_run_that_was_recorded_with_a_number_of_threads_is_still_the_same_run(
    graph: Graph, split: Split, options: dict[str, Any], tmp_path: Path
) -> None:
    run = fit(graph, split, out=tmp_path, **options)
    text = (tmp_path / "config.toml").read_text()
    (tmp_path / "config.toml").write_text(text.replace("[training]\n", "[training]\nnum_threads = 3\n"))
    assert fit(graph, split, out=tmp_path, num_threads=2, **options).record == run.record


@pytest.mark.parametrize("name", ["record.json", "model.safetensors", "history.parquet", "predictions.parquet"])
@pytest.mark.parametrize("damage", ["cut", "gone", "empty"])
def test_a_damaged_run_is_one_sentence(
    name: str, damage: str, graph: Graph, split: Split, options: dict[str, Any], tmp_path: Path
) -> None:
    fit(graph, split, out=tmp_path, **options)
    path = tmp_path / name
    content = {"cut": path.read_bytes()[:-20], "gone": b"", "empty": b"{}"}[damage]
    path.unlink() if damage == "gone" else path.write_bytes(content)
    with pytest.raises(InputError, match=r"is damaged .* Remove the folder|holds no complete run"):
        load_run(tmp_path)


def test_a_training_node_without_a_label_is_damage(
    graph: Graph, split: Split, options: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "predictions.parquet"
    table = fit(graph, split, out=tmp_path, **options).predictions
    column = table.schema.get_field_index("label")
    pq.write_table(table.set_column(column, "label", [pa.nulls(len(table), pa.string())]), path)
    with pytest.raises(InputError, match="column 'label' is empty for a node of the split"):
        load_run(tmp_path)


def test_a_run_is_not_called_damaged_where_memory_is_short(
    graph: Graph, split: Split, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit(graph, split, out=tmp_path, **options)
    monkeypatch.setattr("safetensors.torch.load", lambda _: torch.empty(2**50))
    with pytest.raises(OutOfMemoryError, match="There is not enough memory"):
        load_run(tmp_path)


def test_equal_splits_or_seeds_are_refused_before_training(
    graph: Graph, split: Split, options: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="Each seed may be given once, got 3, 3"):
        fit_all(graph, [split], seeds=[3, 3], out=tmp_path / "a", **options)
    with pytest.raises(InputError, match="Each split may be given once"):
        fit_all(graph, [split, split], out=tmp_path / "a", **options)
    with pytest.raises(InputError, match="seed must be greater than or equal to 0"):
        fit_all(graph, [split], seeds=[0, -1], out=tmp_path / "a", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("model", MODELS)
def test_every_model_trains_by_the_one_loop(model: str, graph: Graph, split: Split, tmp_path: Path) -> None:
    run = fit(graph, split, model, max_epochs=3, out=tmp_path, checkpoint_seconds=0.0)
    assert 0 <= run.test_acc <= 1
    assert load_run(tmp_path).predictions.equals(run.predictions)


@pytest.mark.parametrize("is_sparse", [True, False])
def test_a_large_graph_trains_in_another_order_and_is_given_back_in_its_own(
    is_sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = csbm(num_nodes=200, num_features=6, directed=True)
    if is_sparse:
        graph = replace(graph, x=sp.csr_array(graph.x.numpy()))
    options: dict[str, Any] = {"dropout": 0.0, "num_layers": 2, "max_epochs": 5, "class_weights": "balanced"}
    split = random_split(graph.y)
    plain = fit(graph, split, **options)
    monkeypatch.setattr(import_module("adagpr.ops.operator"), "_LARGE", 1)
    moved = fit(graph, split, **options)
    for name in ("node_id", "part", "label", "prediction", "doubt"):
        assert moved.predictions[name].to_pylist() == plain.predictions[name].to_pylist()
    assert moved.score("val", "loss") == pytest.approx(plain.score("val", "loss"), rel=1e-4)


NAMES_OF_FORMAT_1 = {"acc": "accuracy", "loss": "loss", "macro_f1": "macro_f1"}


def test_a_record_of_the_first_format_is_still_read_and_one_of_a_later_format_is_refused(
    graph: Graph, split: Split, options: dict[str, Any], tmp_path: Path
) -> None:
    run = fit(graph, split, out=tmp_path, **options)
    record = read_json(tmp_path / "record.json")
    scores = record["result"].pop("scores")
    old = {f"{part}_{name}": scores[part][key] for part in scores for name, key in NAMES_OF_FORMAT_1.items()}
    write_json(tmp_path / "record.json", {**record, "format": 1, "result": {**record["result"], **old}})
    assert load_run(tmp_path).test_acc == run.test_acc
    assert load_run(tmp_path).score("val", "loss") == run.score("val", "loss")
    write_json(tmp_path / "record.json", {**record, "format": 99})
    with pytest.raises(InputError, match="format 99; this version reads up to 2"):
        load_run(tmp_path)
