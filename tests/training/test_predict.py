"""From two tables to predictions: the same bits as other roads, and nodes that came later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pytest
import scipy.sparse as sp
import torch

from adagpr.data import from_tables, load, random_split, read_tables
from adagpr.errors import InputError
from adagpr.graph import Graph
from adagpr.training import Run, fit, load_run, predict
from adagpr.training.run import class_table

SMALL: dict[str, Any] = {"num_layers": 2, "num_coeffs": 3, "hidden_channels": 8}
COLUMNS: dict[str, Any] = {"id": "person", "weight": "strength", "directed": True}
NUM_NODES = 60
ISOLATED = 3


def nodes_table() -> dict[str, list[Any]]:
    rng = np.random.default_rng(1)
    y = np.arange(NUM_NODES) % 3
    words = np.array(["graph", "query", "tcp", "router", "lemma", "bound"])
    return {
        "person": [f"n{i:03}" for i in range(NUM_NODES)],
        "size": (y + 0.8 * rng.normal(size=NUM_NODES)).tolist(),
        "city": [["Lima", "Oslo", "Rome"][k if rng.random() < 0.6 else 0] for k in y],
        "note": [" ".join([*rng.choice(words, 4), *rng.choice(words[2 * k : 2 * k + 2], 2)]) for k in y],
        "kind": [["a", "b", "c"][k] if rng.random() < 0.8 else None for k in y],
    }


def edges_table() -> dict[str, list[Any]]:
    """A ring within each class and some edges at random; the last few nodes have none."""
    rng = np.random.default_rng(2)
    linked = NUM_NODES - ISOLATED
    ends = [(i, (i + 3) % linked) for i in range(linked)] + rng.integers(linked, size=(30, 2)).tolist()
    return {
        "from": [f"n{i:03}" for i, _ in ends],
        "to": [f"n{j:03}" for _, j in ends],
        "strength": (0.5 + rng.random(len(ends))).round(3).tolist(),
    }


def shuffled(table: dict[str, list[Any]], seed: int) -> dict[str, list[Any]]:
    order = np.random.default_rng(seed).permutation(len(next(iter(table.values()))))
    return {name: [values[i] for i in order] for name, values in table.items()}


def extended(table: dict[str, list[Any]], **rows: list[Any]) -> dict[str, list[Any]]:
    count = len(next(iter(rows.values())))
    return {name: values + rows.get(name, [None] * count) for name, values in table.items()}


def save(folder: Path, nodes: dict[str, list[Any]], edges: dict[str, list[Any]]) -> dict[str, Any]:
    paths = {"nodes": folder / "nodes.csv", "edges": folder / "edges.csv"}
    for path, table in zip(paths.values(), (nodes, edges), strict=True):
        arrow_csv.write_csv(pa.table(table), str(path))
    return paths


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A directed, weighted graph of tables, trained until it is mostly right."""
    folder = tmp_path_factory.mktemp("trained")
    paths = save(folder, nodes_table(), edges_table())
    graph, (split,) = load("tables", **paths, label="kind", **COLUMNS)
    return fit(graph, split, **SMALL, max_epochs=60, out=folder / "run")


def answers(table: pa.Table, *ids: str) -> pa.Table:
    """The rows of some nodes, in the order asked for."""
    return table.take([table["node_id"].to_pylist().index(name) for name in ids])


def shares(table: pa.Table) -> np.ndarray:
    return np.stack([table[name].to_numpy() for name in table.column_names if name.startswith("p_")], axis=1)


NEW: dict[str, list[Any]] = {
    "person": ["x1", "x2", "x3"],
    "size": [1.5, None, 0.1],
    "city": ["Oslo", "Nome", "Rome"],
    "note": ["tcp router", "something else", "lemma"],
}
NEW_EDGES: dict[str, list[Any]] = {"from": ["x1"], "to": ["x2"], "strength": [2.0]}


def cora_columns(cora: Graph, parts: np.ndarray) -> dict[str, Any]:
    assert isinstance(cora.x, sp.csr_array)
    x = cora.x.toarray()
    words = {f"w{i}": x[:, i] for i in range(x.shape[1])}
    topic = [cora.class_names[y] for y in cora.y.tolist()]
    return {"paper": np.arange(cora.num_nodes), **words, "topic": topic, "split": parts.tolist()}


def test_cora_by_way_of_text_files_trains_to_the_same_bits(benchmark_root: Path, tmp_path: Path) -> None:
    cora, (public,) = load("cora", "public", data_root=benchmark_root)
    parts = np.full(cora.num_nodes, None, dtype=object)
    for part in ("train", "val", "test"):
        parts[getattr(public, part).numpy()] = part
    table = pa.table(cora_columns(cora, parts)).take(np.random.default_rng(0).permutation(cora.num_nodes))
    arrow_csv.write_csv(table, str(tmp_path / "nodes.csv"))
    ends = sp.triu(cora.adj).tocoo()
    arrow_csv.write_csv(pa.table({"citing": ends.col, "cited": ends.row}), str(tmp_path / "edges.csv"))
    graph, (split,) = load(
        "tables", nodes=tmp_path / "nodes.csv", edges=tmp_path / "edges.csv", label="topic", id="paper", as_is=True
    )
    assert graph.fingerprint == cora.fingerprint
    one, other = (fit(*data, **SMALL, max_epochs=5) for data in ((cora, public), (graph, split)))
    assert one.history.equals(other.history)
    assert one.predictions.equals(other.predictions)
    assert one.record["result"] == other.record["result"]
    assert all(torch.equal(value, other.model.state_dict()[key]) for key, value in one.model.state_dict().items())


def test_shuffled_rows_train_to_the_same_bits(run: Run) -> None:
    nodes, edges = shuffled(nodes_table(), 3), shuffled(edges_table(), 4)
    graph, (split,) = load("tables", nodes=nodes, edges=edges, label="kind", **COLUMNS)
    again = fit(graph, split, **SMALL, max_epochs=60)
    assert again.predictions.equals(run.predictions)
    assert again.history.equals(run.history)


def test_shuffled_rows_are_predicted_alike(run: Run) -> None:
    one, _ = predict(run, extended(nodes_table(), **NEW), extended(edges_table(), **NEW_EDGES))
    other, _ = predict(
        run, shuffled(extended(nodes_table(), **NEW), 5), shuffled(extended(edges_table(), **NEW_EDGES), 6)
    )
    assert one.equals(other)


def test_the_tables_of_the_training_are_predicted_as_the_run_itself_did(run: Run) -> None:
    assert run.folder is not None
    folder = run.folder.parent
    for given in (run, run.folder, str(run.folder)):
        table, said = predict(given, folder / "nodes.csv", folder / "edges.csv")
        assert table.equals(run.predictions.drop(["part", "label"]))
    assert "directed edges from column 'from' to column 'to', weights from column 'strength'" in said[1]


def test_the_classes_are_mostly_right_and_probabilities_sum_to_one(run: Run) -> None:
    assert run.test_acc > 0.7
    assert shares(run.predictions).sum(1) == pytest.approx(1, abs=1e-6)
    chosen = [["a", "b", "c"][i] for i in shares(run.predictions).argmax(1)]
    assert run.predictions["prediction"].to_pylist() == chosen


def test_probabilities_are_the_softmax_of_logits_over_the_temperature(run: Run) -> None:
    graph = from_tables(nodes_table(), edges_table(), "kind", **COLUMNS)
    one, four = ({**run.record, "calibration": {"temperature": number}} for number in (1.0, 4.0))
    plain, softened = (shares(replace(run, record=record).predict(graph)) for record in (one, four))
    powers = plain.astype(np.float64) ** 0.25
    assert softened == pytest.approx(powers / powers.sum(1, keepdims=True), abs=1e-5)


def test_new_nodes_that_touch_no_old_one_change_nothing_for_it(run: Run) -> None:
    table, _ = predict(run, extended(nodes_table(), **NEW), extended(edges_table(), **NEW_EDGES))
    old = answers(table, *nodes_table()["person"])
    assert old["doubt"].to_pylist() == run.predictions["doubt"].to_pylist()
    assert shares(old) == pytest.approx(shares(run.predictions), abs=1e-5)


def test_new_nodes_are_predicted_alike_within_the_old_graph_and_as_another_graph(run: Run) -> None:
    within, _ = predict(run, extended(nodes_table(), **NEW), extended(edges_table(), **NEW_EDGES))
    alone, _ = predict(run, NEW, NEW_EDGES)
    assert alone["node_id"].to_pylist() == ["x1", "x2", "x3"]
    assert shares(alone) == pytest.approx(shares(answers(within, "x1", "x2", "x3")), abs=1e-5)
    assert alone["doubt"].to_pylist() == answers(within, "x1", "x2", "x3")["doubt"].to_pylist()


def test_signed_hops_that_read_edges_both_ways_predict_new_nodes() -> None:
    graph, (split,) = load("tables", nodes=nodes_table(), edges=edges_table(), label="kind", **COLUMNS)
    run = fit(graph, split, "adagpr-signed", norm="batch", **SMALL, max_epochs=20)
    assert run.record["config"]["model"]["directions"] == "both"
    within, _ = predict(run, extended(nodes_table(), **NEW), extended(edges_table(), **NEW_EDGES))
    alone, _ = predict(run, NEW, NEW_EDGES)
    assert shares(answers(within, *nodes_table()["person"])) == pytest.approx(shares(run.predictions), abs=1e-5)
    assert shares(alone) == pytest.approx(shares(answers(within, "x1", "x2", "x3")), abs=1e-5)


def test_a_new_edge_to_an_old_node_counts(run: Run) -> None:
    joined: dict[str, list[Any]] = {"from": ["x1", "x3"], "to": ["x2", "n001"], "strength": [2.0, 3.0]}
    before, _ = predict(run, extended(nodes_table(), **NEW), extended(edges_table(), **NEW_EDGES))
    after, _ = predict(run, extended(nodes_table(), **NEW), extended(edges_table(), **joined))
    assert "no neighbours" in before["doubt"].to_pylist()[-1]
    assert "no neighbours" not in (after["doubt"].to_pylist()[-1] or "")
    assert np.abs(shares(after) - shares(before)).max() > 1e-4


def test_each_reason_to_doubt_is_said_where_it_holds(run: Run) -> None:
    table, said = predict(run, extended(nodes_table(), **NEW), extended(edges_table(), **NEW_EDGES))
    doubts = {row["node_id"]: row["doubt"] or "" for row in table.to_pylist()}
    isolated = {f"n{i:03}" for i in range(NUM_NODES - ISOLATED, NUM_NODES)} | {"x3"}
    assert {name for name, doubt in doubts.items() if "no neighbours" in doubt} == isolated
    assert {name for name, doubt in doubts.items() if "unseen category" in doubt} == {"x2"}
    unsure = shares(table).max(1) < (1 + 1 / shares(table).shape[1]) / 2
    assert np.array_equal(["low confidence" in doubt for doubt in doubts.values()], unsure)
    assert "With a category that was never seen in training: 1 of 63 nodes." in said


def test_a_network_that_has_learnt_nothing_doubts_every_node() -> None:
    graph, (split,) = load("tables", nodes=nodes_table(), edges=edges_table(), label="kind", id="person")
    doubts = fit(graph, split, **SMALL, max_epochs=1, lr=1e-9).predictions["doubt"].to_pylist()
    assert all(doubt is not None and "low confidence" in doubt for doubt in doubts)
    assert doubts[-1] == "no neighbours, low confidence"


def test_one_node_is_predicted_from_itself(run: Run) -> None:
    one = {name: values[:1] for name, values in NEW.items()}
    table, _ = predict(run, one, {"from": ["x1"], "to": ["x1"], "strength": [1.0]})
    assert table["node_id"].to_pylist() == ["x1"]
    assert table["doubt"].to_pylist()[0].startswith("no neighbours")


def test_labels_are_neither_needed_nor_read(run: Run) -> None:
    wrong = nodes_table() | {"kind": ["never seen"] * NUM_NODES}
    table, _ = predict(run, wrong, edges_table())
    assert table.equals(run.predictions.drop(["part", "label"]))


def test_a_run_read_back_predicts_the_same(run: Run) -> None:
    assert run.folder is not None
    assert predict(load_run(run.folder), NEW, NEW_EDGES)[0].equals(predict(run, NEW, NEW_EDGES)[0])


def test_a_run_on_something_else_than_tables_is_refused(graph: Graph, split: Any, options: dict[str, Any]) -> None:
    run = fit(graph, split, **options)
    with pytest.raises(InputError, match="this run was not trained on tables"):
        predict(run, NEW, NEW_EDGES)
    assert run.predict(graph).equals(run.predictions.drop(["part", "label"]))


def test_a_graph_of_other_features_is_refused(run: Run, make_graph: Callable[..., Graph]) -> None:
    with pytest.raises(InputError, match=r"predict: the model was trained on 10 features, got 12"):
        run.predict(make_graph())


def test_a_node_without_any_edge_needs_none(run: Run, tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("from,to,strength\n")
    one = {name: values[:1] for name, values in NEW.items()}
    table, _ = predict(run, one, tmp_path / "edges.csv")
    expected, _ = predict(run, one, {"from": ["x1"], "to": ["x1"], "strength": [0.0]})
    assert table.equals(expected)


def test_a_directed_graph_of_from_tables_is_predicted_as_a_directed_one() -> None:
    tables = read_tables(nodes_table(), edges_table(), "kind", **COLUMNS)
    assert tables.split is not None
    run = fit(tables.graph, tables.split, **SMALL, max_epochs=5)
    table, _ = predict(run, nodes_table(), edges_table())
    assert table.equals(run.predictions.drop(["part", "label"]))


def test_columns_that_training_found_are_those_of_the_prediction() -> None:
    graph, (split,) = load("tables", nodes=nodes_table(), edges=edges_table(), label="kind")
    run = fit(graph, split, **SMALL, max_epochs=5)
    renamed = {"size": nodes_table()["size"], **nodes_table(), "id": nodes_table()["person"][::-1]}
    heavier = edges_table() | {"weight": [1.0 + i for i in range(len(edges_table()["to"]))]}
    table, _ = predict(run, renamed, heavier)
    assert table.equals(run.predictions.drop(["part", "label"]))


def test_a_run_on_tables_in_memory_can_be_kept(tmp_path: Path) -> None:
    nodes, edges = pa.table(nodes_table()), pa.table(edges_table())
    graph, (split,) = load("tables", nodes=nodes, edges=edges, label="kind", id="person")
    run = fit(graph, split, **SMALL, max_epochs=2, out=tmp_path / "run")
    assert predict(tmp_path / "run", nodes, edges)[0].equals(run.predictions.drop(["part", "label"]))


def test_a_table_with_a_renamed_category_is_that_of_another_run(tmp_path: Path) -> None:
    nodes = nodes_table()
    graph, (split,) = load("tables", **save(tmp_path, nodes, edges_table()), label="kind", id="person")
    fit(graph, split, **SMALL, max_epochs=2, out=tmp_path / "run")
    renamed = nodes | {"city": ["Lime" if name == "Lima" else name for name in nodes["city"]]}
    graph, (split,) = load("tables", **save(tmp_path, renamed, edges_table()), label="kind", id="person")
    with pytest.raises(InputError, match="holds a run of another configuration"):
        fit(graph, split, **SMALL, max_epochs=2, out=tmp_path / "run")


def test_a_prediction_that_is_no_number_is_doubted(run: Run) -> None:
    graph = from_tables(nodes_table(), edges_table(), "kind", **COLUMNS)
    table = class_table(
        pa.array(graph.node_ids.tolist()), torch.full((NUM_NODES, 3), torch.nan), graph.class_names, run.temperature, {}
    )
    assert all("low confidence" in (doubt or "") for doubt in table["doubt"].to_pylist())


def test_label_propagation_predicts_from_the_labels_of_its_training_nodes() -> None:
    graph = from_tables(nodes_table(), edges_table(), label="kind", **COLUMNS)
    split = random_split(graph.y, seed=0)
    run = fit(graph, split, "label-propagation")
    assert run.predict(graph)["prediction"].to_pylist() == run.predictions["prediction"].to_pylist()
    assert len(set(run.predict(graph)["prediction"].to_pylist())) == 3


def test_a_run_shows_itself_in_a_notebook_and_gives_frames() -> None:
    graph = from_tables(nodes_table(), edges_table(), label="kind", **COLUMNS)
    run = fit(graph, random_split(graph.y, seed=0), max_epochs=2, **SMALL)
    assert f"{100 * run.test_acc:.1f} %" in run._repr_html_()
    assert "hop 2" in run._repr_html_()
    assert len(run.predictions_frame()) == graph.num_nodes
    assert list(run.history_frame()["epoch"]) == [1, 2]
