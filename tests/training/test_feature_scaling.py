"""Features scaled for training are scaled in the same way wherever the run is used."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from adagpr.errors import InputError
from adagpr.files import read_json, write_json
from adagpr.graph import Graph, Split, from_scipy
from adagpr.insight import bounds, explain
from adagpr.nn import MLP
from adagpr.schemas import load_tensors, save_tensors
from adagpr.training import config_digest, fit, fit_all, load_run, resolve
from tests.cli.command import adagpr

UNITS = 10.0 ** np.linspace(-2, 3, 10)


@pytest.fixture(scope="module")
def uneven(graph: Graph) -> Graph:
    """The graph with columns in unequal units, as people store them."""
    return graph.with_features(torch.from_numpy((torch.as_tensor(graph.x).numpy() * UNITS + 7).astype(np.float32)))


@pytest.fixture(scope="module")
def words(graph: Graph) -> Graph:
    """The graph with sparse counts."""
    counts = np.random.default_rng(0).poisson(0.1, size=(120, 40)).astype(np.float32)
    return graph.with_features(sp.csr_array(counts))


def later(graph: Graph, num_new: int = 4) -> Graph:
    """The graph after some nodes have joined it whose features are far from all others, and that nobody reads."""
    x = graph.x.toarray() if isinstance(graph.x, sp.csr_array) else graph.x.numpy()
    rows = np.full((num_new, x.shape[1]), 1e4)
    adj = sp.block_diag([graph.adj, sp.eye_array(num_new)], format="csr")
    return from_scipy(adj, np.concatenate([x, rows]), [*graph.y.tolist(), *[-1] * num_new])


def probabilities(table: Any) -> np.ndarray:
    return np.stack([table[name].to_numpy() for name in table.column_names if name.startswith("p_")], 1)


@pytest.mark.parametrize("scaling", ["rows", "standardise"])
@pytest.mark.parametrize("kind", ["uneven", "words"])
@pytest.mark.parametrize("model", ["adagpr", "sgc"])
def test_later_nodes_are_scaled_as_those_of_the_training(
    model: str,
    kind: str,
    scaling: str,
    split: Split,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    graph: Graph = request.getfixturevalue(kind)
    fit(graph, split, model, feature_scaling=scaling, max_epochs=12, out=tmp_path)
    run = load_run(tmp_path)
    assert run.record["feature_scaling"] == scaling
    known = probabilities(run.predictions)
    assert np.ptp(known, axis=0).max() > 1e-3
    np.testing.assert_allclose(probabilities(run.predict(graph)), known, atol=1e-6)
    np.testing.assert_allclose(probabilities(run.predict(later(graph)))[:120], known, atol=1e-6)


def test_standardised_columns_do_not_depend_on_their_units(
    graph: Graph, uneven: Graph, split: Split, options: dict[str, Any]
) -> None:
    one, other = (fit(item, split, feature_scaling="standardise", **options) for item in (graph, uneven))
    np.testing.assert_allclose(probabilities(one.predictions), probabilities(other.predictions), atol=1e-3)


def test_auto_names_what_it_chose(graph: Graph, uneven: Graph, split: Split, tmp_path: Path) -> None:
    runs = [fit(item, split, "mlp", feature_scaling="auto", max_epochs=2) for item in (graph, uneven)]
    assert [run.record["feature_scaling"] for run in runs] == ["none", "standardise"]
    assert {run.record["config"]["training"]["feature_scaling"] for run in runs} == {"auto"}


def test_insight_reads_the_scaled_features(uneven: Graph, split: Split, options: dict[str, Any]) -> None:
    run = fit(uneven, split, feature_scaling="standardise", **options)
    found = explain(run, graph=uneven, split=split, node=5)
    assert found.val_acc == pytest.approx(100 * run.val_acc)
    assert found.node is not None
    row = run.predictions.slice(5, 1)
    assert found.node.probability == pytest.approx(float(probabilities(row).max()), abs=1e-5)
    # Every standardised column has a squared length of one per node.
    assert bounds(run, graph=uneven).sizes.features_norm == pytest.approx((120 * 10) ** 0.5, rel=1e-5)


def test_runs_side_by_side_are_those_alone(uneven: Graph, split: Split, options: dict[str, Any]) -> None:
    together = fit_all(uneven, [split], seeds=[0, 1], feature_scaling="standardise", **options)
    assert together[1].record["machine"]["together"] == 2
    alone = fit(uneven, split, seed=1, feature_scaling="standardise", **options)
    assert together[1].predictions.equals(alone.predictions)


def test_resumed_training_has_the_same_scaling(
    uneven: Graph, split: Split, options: dict[str, Any], tmp_path: Path
) -> None:
    options |= {"feature_scaling": "auto", "checkpoint_seconds": 0.0}

    def stop(number: int, *_: object) -> None:
        if number == 5:
            raise KeyboardInterrupt

    fit(uneven, split, out=tmp_path / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        fit(uneven, split, out=tmp_path / "parts", on_epoch=stop, **options)
    fit(uneven, split, out=tmp_path / "parts", **options)
    for name in ("model", "scaling"):
        whole, parts = ((tmp_path / folder / f"{name}.safetensors").read_bytes() for folder in ("whole", "parts"))
        assert whole == parts


def remove(path: Path) -> None:
    path.unlink()


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    tensors, header = load_tensors(path, "")
    save_tensors(path, {**tensors, "shift": tensors["shift"][:-1]}, header)


def without_factor(path: Path) -> None:
    tensors, header = load_tensors(path, "")
    save_tensors(path, {"shift": tensors["shift"]}, header)


def not_finite(path: Path) -> None:
    tensors, header = load_tensors(path, "")
    save_tensors(path, {**tensors, "shift": tensors["shift"] / 0}, header)


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (remove, "No such file"),
        (flip_a_bit, "does not have the sum"),
        (cut, "tensor 'shift' must be 10 of float64, got 9 of float64"),
        (without_factor, "tensor 'factor' is missing"),
        (not_finite, "tensor 'shift' holds a value that is no finite number"),
    ],
)
def test_a_damaged_scaling_is_one_sentence(
    harm: Callable[[Path], None], reason: str, uneven: Graph, split: Split, tmp_path: Path
) -> None:
    fit(uneven, split, "mlp", feature_scaling="standardise", max_epochs=2, out=tmp_path)
    harm(tmp_path / "scaling.safetensors")
    with pytest.raises(InputError, match=rf"scaling.safetensors is damaged \(.*{reason}.*\). Remove the folder"):
        load_run(tmp_path)


def test_a_record_that_contradicts_itself_is_damaged(uneven: Graph, split: Split, tmp_path: Path) -> None:
    fit(uneven, split, "mlp", feature_scaling="standardise", max_epochs=2, out=tmp_path)
    record = read_json(tmp_path / "record.json")
    write_json(tmp_path / "record.json", {**record, "feature_scaling": "rows"})
    with pytest.raises(InputError, match=r"feature_scaling is not what config\.training asks for"):
        load_run(tmp_path)


def test_a_run_of_before_is_read_as_one_without_scaling(graph: Graph, split: Split, tmp_path: Path) -> None:
    run = fit(graph, split, "mlp", max_epochs=3, out=tmp_path)
    config, record = tmp_path / "config.toml", read_json(tmp_path / "record.json")
    config.write_text("".join(line for line in config.read_text().splitlines(True) if "feature_scaling" not in line))
    del record["feature_scaling"], record["config"]["training"]["feature_scaling"]
    write_json(tmp_path / "record.json", record)
    assert config_digest(record["config"]) == config_digest(run.record["config"])
    assert fit(graph, split, "mlp", max_epochs=3, out=tmp_path).predictions.equals(run.predictions)
    with pytest.raises(InputError, match=r"these keys differ: training\.feature_scaling"):
        fit(graph, split, "mlp", max_epochs=3, out=tmp_path, feature_scaling="rows")


def test_a_model_may_have_a_default_of_its_own(graph: Graph, split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MLP, "training_defaults", {"feature_scaling": "auto"})
    assert resolve(graph, split, "mlp", {}).config.feature_scaling == "auto"
    assert resolve(graph, split, "mlp", {"feature_scaling": None}).config.feature_scaling is None
    assert resolve(graph, split, "mlp", {"feature_scaling": "none"}).plain["training"]["feature_scaling"] is None
    assert resolve(graph, split, "adagpr", {}).config.feature_scaling is None


def test_another_scaling_is_refused(graph: Graph, split: Split) -> None:
    with pytest.raises(InputError, match="training: feature_scaling must be"):
        fit(graph, split, feature_scaling="columns")


def test_missing_values_are_refused_with_a_way_out(graph: Graph) -> None:
    x = torch.as_tensor(graph.x).numpy().copy()
    x[7, 2] = np.nan
    with pytest.raises(InputError, match=r"1 values that are NaN or infinite, the first in row 7; fill them in first"):
        from_scipy(graph.adj, x, graph.y)


def test_the_command_says_what_was_done(tmp_path: Path) -> None:
    command = ["train", "csbm", "--set", "data.num_nodes=60", "--set", "max_epochs=2", "--set", "feature_scaling=auto"]
    assert "(chosen by feature_scaling=auto)" in adagpr(*command, "--out", str(tmp_path / "run"))
    assert json.loads((tmp_path / "run" / "record.json").read_text())["feature_scaling"] == "none"
