"""Batches of parts, and exact inference from disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from adagpr.data import csbm
from adagpr.data.splits import random_split
from adagpr.errors import InputError
from adagpr.graph import SPLIT_NAMES, Graph, Split
from adagpr.nn import AdaGPR
from adagpr.ops import WeightMaps, buffers, features, operator
from adagpr.partitioning import Group, Parts, induced, join, partition_graph, positions, stored_operator
from adagpr.training import TrainingConfig, fit, fit_partition, load_run
from adagpr.training.partition_strategies import Batches, read_shard
from tests.partitioning.test_exchange import directed_graph

SMALL: dict[str, Any] = {"num_layers": 3, "hidden_channels": 8, "num_coeffs": 3, "max_epochs": 12}


@pytest.fixture(scope="module")
def clustered() -> tuple[Graph, Split]:
    graph = csbm(num_nodes=400, num_features=8)
    return graph, random_split(graph.y)


def order_of(parts: Parts, numbers: range | list[int]) -> np.ndarray:
    return np.concatenate([parts[number].nodes()["position"].to_numpy() for number in numbers])


@pytest.mark.parametrize("numbers", [[0, 1, 2, 3, 4], [1, 3], [4]])
def test_joined_parts_are_rows_of_the_graph(tmp_path: Path, numbers: list[int]) -> None:
    graph, split = directed_graph()
    parts = partition_graph(graph, split, 5, tmp_path / "parts")
    rows, order = join(parts, numbers), order_of(parts, range(5))
    own = order_of(parts, numbers)
    whole = graph.adj.toarray()
    columns = np.concatenate([own, order[rows.halo]])
    np.testing.assert_array_equal(rows.adj.toarray(), whole[np.ix_(own, columns)])
    np.testing.assert_allclose(rows.degree, whole.sum(1)[columns], rtol=1e-15)
    # Nothing that these rows read is missing.
    assert rows.adj.nnz == (whole[own] != 0).sum()
    alone = induced(parts, numbers)
    np.testing.assert_array_equal(alone.adj.toarray(), whole[np.ix_(own, own)])
    np.testing.assert_allclose(alone.degree, whole[np.ix_(own, own)].sum(1), rtol=1e-12)
    for found in (rows, alone):
        assert torch.equal(found.y, graph.y[own])
        assert isinstance(found.x, torch.Tensor)
        assert isinstance(graph.x, torch.Tensor)
        assert torch.equal(found.x, graph.x[own])
        for part in ("train", "val", "test"):
            assert set(own[positions(found.role, part)]) == set(getattr(split, part).tolist()) & set(own)


@pytest.mark.parametrize("weight_maps", ["shared", "separate"])
@pytest.mark.parametrize("num_parts", [1, 4])
def test_logits_from_disk_are_those_of_the_whole_graph(
    tmp_path: Path, num_parts: int, weight_maps: WeightMaps, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that even these small matrices lie in files.
    monkeypatch.setattr(buffers, "_LARGE", 1)
    graph, split = directed_graph()
    parts = partition_graph(graph, split, num_parts, tmp_path / "parts")
    model = AdaGPR(5, 8, 3, num_layers=5, num_coeffs=4, weight_maps=weight_maps)
    model.seed(2)
    with torch.inference_mode():
        expected = model.eval()(features(graph.x), operator(graph))
    with stored_operator(parts, True, tmp_path) as op:
        ground = Batches(parts, 1, op, TrainingConfig())
        found = torch.cat([logits for _, logits in ground.logits_of_parts(model)])
        assert [item.name for item in tmp_path.iterdir() if item.name != "parts"] == [op.folder.name]
        assert all(item.suffix == ".safetensors" for item in op.folder.iterdir())
    assert not op.folder.exists()
    wanted = expected[order_of(parts, range(num_parts))]
    if num_parts == 1:
        assert torch.equal(found, wanted)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "own", [{"weight_maps": "shared"}, {"weight_maps": "separate"}, {"model": "adagpr-signed", "norm": "batch"}]
)
def test_with_one_part_batches_are_the_whole_graph(
    clustered: tuple[Graph, Split], tmp_path: Path, own: dict[str, Any]
) -> None:
    graph, split = clustered
    options = {**SMALL, **own}
    whole = fit(graph, split, out=tmp_path / "whole", **options)
    partition_graph(graph, split, 1, tmp_path / "parts")
    record = fit_partition(tmp_path / "parts", out=tmp_path / "run", per_batch=1, **options)
    run = load_run(tmp_path / "run")
    assert run.history.equals(whole.history)
    assert record["result"]["best_epoch"] == whole.best_epoch
    for part in SPLIT_NAMES:
        for metric in ("accuracy", "macro_f1"):
            assert run.score(part, metric) == whole.score(part, metric)
    assert run.predictions.sort_by("node_id").equals(whole.predictions.sort_by("node_id"))
    assert record["data"]["is_approximate"] is False


def test_batches_are_scaled_by_the_statistics_of_all_parts(clustered: tuple[Graph, Split], tmp_path: Path) -> None:
    graph, split = clustered
    assert isinstance(graph.x, torch.Tensor)
    graph = graph.with_features(graph.x * torch.arange(1.0, 9.0) + 50)
    options = {**SMALL, "feature_scaling": "auto"}
    for num_parts in (1, 4):
        partition_graph(graph, split, num_parts, tmp_path / f"parts-{num_parts}")
        fit_partition(tmp_path / f"parts-{num_parts}", out=tmp_path / f"run-{num_parts}", per_batch=1, **options)
    whole, one, four = fit(graph, split, **options), *(load_run(tmp_path / f"run-{number}") for number in (1, 4))
    assert one.record["feature_scaling"] == "standardise"
    assert one.history.equals(whole.history)
    for name, tensor in whole.scaling.tensors.items():
        torch.testing.assert_close(four.scaling.tensors[name], tensor, rtol=1e-12, atol=1e-12)
    # What was measured on the whole graph is what the run says of that graph.
    said = four.predict(graph)["prediction"].to_pylist()
    known = dict(zip(*(four.predictions[name].to_pylist() for name in ("node_id", "prediction")), strict=True))
    assert said == [known[node] for node in graph.node_ids.tolist()]


def test_a_record_of_batches_says_that_it_is_approximate(clustered: tuple[Graph, Split], tmp_path: Path) -> None:
    graph, split = clustered
    partition_graph(graph, split, 6, tmp_path / "parts")
    record = fit_partition(tmp_path / "parts", out=tmp_path / "run", per_batch=2, **{**SMALL, "max_epochs": 60})
    assert record["data"]["is_approximate"] is True
    assert "Approximate: steps saw batches of 2 parts" in record["data"]["notes"][-1]
    whole = fit(graph, split, **{**SMALL, "max_epochs": 150})
    test_acc = load_run(tmp_path / "run").test_acc
    assert test_acc > whole.test_acc - 0.1
    said = pq.read_table(tmp_path / "run" / "predictions.parquet")
    right = sum(row["label"] == row["prediction"] for row in said.to_pylist() if row["part"] == "test")
    assert right / len(split.test) == pytest.approx(test_acc)


def test_an_interrupted_training_goes_on_with_the_same_bits(clustered: tuple[Graph, Split], tmp_path: Path) -> None:
    graph, split = clustered
    partition_graph(graph, split, 4, tmp_path / "parts")
    fit_partition(tmp_path / "parts", out=tmp_path / "whole", per_batch=2, **SMALL)

    def stop(number: int, *_: object) -> None:
        if number == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_partition(
            tmp_path / "parts", out=tmp_path / "run", per_batch=2, on_epoch=stop, checkpoint_seconds=0, **SMALL
        )
    fit_partition(tmp_path / "parts", out=tmp_path / "run", per_batch=2, **SMALL)
    assert load_run(tmp_path / "run").history.equals(load_run(tmp_path / "whole").history)


@pytest.mark.parametrize("per_batch", [None, 2])
def test_a_training_that_is_told_to_stop_is_measured_and_written(
    clustered: tuple[Graph, Split], tmp_path: Path, per_batch: int | None
) -> None:
    partition_graph(*clustered, 4, tmp_path / "parts")
    words: dict[str, Any] = {"on_epoch": lambda number, *_: "stop" if number == 3 else None, "per_batch": per_batch}
    record = fit_partition(tmp_path / "parts", out=tmp_path / "run", **words, **SMALL)
    assert record["result"]["num_epochs"] == 3
    assert len(load_run(tmp_path / "run").predictions) == 400


@pytest.mark.parametrize("per_batch", [None, 2])
def test_without_validation_and_test_nodes_training_is_that_of_the_whole_graph(
    clustered: tuple[Graph, Split], tmp_path: Path, per_batch: int | None
) -> None:
    graph, split = clustered
    nothing = torch.empty(0, dtype=torch.int64)
    alone = Split(split.train, nothing, nothing)
    partition_graph(graph, alone, 4, tmp_path / "parts")
    record = fit_partition(tmp_path / "parts", out=tmp_path / "run", per_batch=per_batch, **SMALL)
    assert list(record["result"]["scores"]) == ["train"]
    assert record["calibration"]["temperature"] == 1.0
    history = load_run(tmp_path / "run").history
    assert history["val_acc"].equals(history["train_acc"])


def devices_of(found: object) -> set[str]:
    """Where the tensors of an object and of its parts are."""
    if isinstance(found, torch.Tensor):
        return {found.device.type}
    return set().union(*map(devices_of, vars(found).values())) if hasattr(found, "__dict__") else set()


@pytest.mark.parametrize("weights", ["equal", "balanced"])
def test_what_is_trained_on_is_on_the_device_of_the_model(tmp_path: Path, weights: str) -> None:
    parts = partition_graph(*directed_graph(), 4, tmp_path / "parts")
    config = TrainingConfig().model_copy(update={"device": "meta", "class_weights": weights})
    with stored_operator(parts, True, tmp_path) as op:
        batch = Batches(parts, 2, op, config).read(np.array([1, 3]))
    shard = read_shard(parts, Group(), config)
    for found in (batch, batch.structure, shard, shard.operator):
        assert devices_of(found) == {"meta"}


def test_the_whole_graph_is_measured_by_the_processor_wherever_training_is(tmp_path: Path) -> None:
    parts = partition_graph(*directed_graph(), 3, tmp_path / "parts")
    model = AdaGPR(5, 8, 3, num_layers=2, num_coeffs=3)
    with stored_operator(parts, True, tmp_path) as op:
        configs = (TrainingConfig().model_copy(update={"device": device}) for device in ("cpu", "cuda"))
        here, there = ([*Batches(parts, 1, op, config).logits_of_parts(model)] for config in configs)
    assert all(torch.equal(one, other) for (_, one), (_, other) in zip(here, there, strict=True))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"per_batch": 9}, "A batch takes 1 to 4 parts"),
        ({"model": "gcn"}, "Partitions are for adagpr and gcnii"),
        ({"drop_edge": 0.5}, "without drop_edge and pair_norm"),
    ],
)
def test_what_cannot_be_is_said_and_nothing_is_written(
    clustered: tuple[Graph, Split], tmp_path: Path, asked: dict[str, Any], said: str
) -> None:
    partition_graph(*clustered, 4, tmp_path / "parts")
    with pytest.raises(InputError, match=said):
        fit_partition(tmp_path / "parts", out=tmp_path / "run", **asked)
    assert not (tmp_path / "run").exists()


def test_a_folder_without_a_partition_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no complete partition"):
        fit_partition(tmp_path, out=tmp_path / "run")
