from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import torch

from adagpr.data import load
from adagpr.data.tables.nodes import stratified_split
from adagpr.data.tables.read import Tables, from_tables, read_tables
from adagpr.errors import InputError
from adagpr.graph import Graph

NODES: dict[str, Any] = {
    "id": ["d", "a", "c", "b"],
    "age": [40, 10, 30, 20],
    "y": ["red", "blue", None, "red"],
}
EDGES: dict[str, Any] = {"source": ["a", "a", "b"], "target": ["b", "c", "d"]}


def read(nodes: dict[str, Any] | None = None, edges: dict[str, Any] | None = None, **options: Any) -> Tables:
    return read_tables(NODES | (nodes or {}), EDGES | (edges or {}), **options)


def links(graph: Graph) -> list[tuple[int, int, float]]:
    entries = graph.adj.tocoo()
    return list(zip(entries.row.tolist(), entries.col.tolist(), entries.data.tolist(), strict=True))


def test_nodes_are_in_the_order_of_their_ids() -> None:
    graph = from_tables(NODES, EDGES)
    assert graph.node_ids.tolist() == ["a", "b", "c", "d"]
    assert graph.class_names == ("blue", "red")
    assert graph.y.tolist() == [0, 1, -1, 1]
    assert isinstance(graph.x, torch.Tensor)
    assert graph.x[:, 0].tolist() == sorted(graph.x[:, 0].tolist())
    assert links(graph) == [(0, 1, 1), (0, 2, 1), (1, 0, 1), (1, 3, 1), (2, 0, 1), (3, 1, 1)]


def test_what_was_found_is_said() -> None:
    tables = read(edges={"source": ["a", "a", "b"], "target": ["b", "b", "b"]})
    assert tables.messages == (
        "nodes: 4 rows; ids from column 'id', labels from column 'y'.",
        "edges: 3 rows; undirected edges from column 'source' to column 'target'.",
        "1 feature from 1 column: numbers, scaled (age).",
        "1 row of edges that repeat an edge merged, each edge counted once.",
        "1 edge from a node to itself kept.",
        "Without an edge to another node: 2 of 4 nodes.",
        "Without a label: 1 of 4 nodes.",
        "With fewer than 3 labelled nodes, so that validation and test cannot show how well they are learnt: 2 of 2 "
        "classes, 'blue' (1), 'red' (2).",
        "There are too few labels for a split: no class has three.",
    )
    assert tables.graph.notes == tables.messages


def test_directed_edges_keep_their_direction_and_weights_are_added() -> None:
    edges = {"source": ["a", "a", "b", "a"], "target": ["b", "b", "a", "c"], "weight": [1, 2.5, 1, 0]}
    assert links(read(edges=edges, directed=True).graph) == [(0, 1, 3.5), (1, 0, 1)]
    assert links(read(edges=edges).graph) == [(0, 1, 3.5), (1, 0, 3.5)]


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        (("src", "dst"), {}),
        (("From", "To"), {}),
        (("one", "two"), {}),
        (("two", "one"), {"source": "two"}),
        (("two", "one"), {"source": "two", "target": "one"}),
    ],
)
def test_the_ends_of_edges_are_found_by_name_or_by_order(columns: tuple[str, str], options: Any) -> None:
    edges = dict(zip(columns, EDGES.values(), strict=True)) | {"kind": ["x"] * 3}
    assert links(read_tables(NODES, edges, directed=True, **options).graph) == [(0, 1, 1), (0, 2, 1), (1, 3, 1)]


def test_the_column_of_ids_is_the_one_that_the_edges_use() -> None:
    nodes = {"age": [4, 1, 3, 2], "who": NODES["id"], "y": NODES["y"]}
    tables = read_tables(nodes, EDGES)
    assert tables.messages[0] == "nodes: 4 rows; ids from column 'who', labels from column 'y'."
    with pytest.raises(InputError, match="nodes: no column of ids was found"):
        read_tables({"age": [4, 1, 3, 2], "y": NODES["y"]}, EDGES)


@pytest.mark.parametrize(
    ("ids", "ends", "expected", "edge"),
    [
        (pa.array([10, 9, 8], pa.int16()), pa.array([9, 10], pa.uint64()), [8, 9, 10], (1, 2)),
        (["10", "9", "8"], [9, 10], ["10", "8", "9"], (0, 2)),
        ([10, 9, 8], ["9", "10"], [8, 9, 10], (1, 2)),
        (["010", "009", "x"], ["009", "010"], ["009", "010", "x"], (0, 1)),
        (["010", "009", "008"], [9, 10], ["008", "009", "010"], (1, 2)),
        ([10.0, 9.0, 8.0], [9, 10], [8, 9, 10], (1, 2)),
        (
            pa.array([2, 1, 0], pa.date32()),
            pa.array([1, 2], pa.date32()),
            ["1970-01-01", "1970-01-02", "1970-01-03"],
            (1, 2),
        ),
        (pa.array([2**64 - 1, 1, 0], pa.uint64()), [1, 0], ["0", "1", "18446744073709551615"], (0, 1)),
    ],
)
def test_ids_may_be_of_any_type(ids: Any, ends: Any, expected: list[Any], edge: tuple[int, int]) -> None:
    graph = from_tables({"id": ids, "age": [1, 2, 3], "y": [0, 1, 1]}, {"source": ends[:1], "target": ends[1:]})
    assert graph.node_ids.tolist() == expected
    assert links(graph)[0][:2] == edge


def test_labels_are_texts_numbers_or_truth_values() -> None:
    assert read({"y": [10, 9, None, 9]}).graph.class_names == ("9", "10")
    assert read({"y": [2.0, 1.0, float("nan"), 1.0]}).graph.class_names == ("1", "2")
    assert read({"y": [True, False, None, True]}).graph.class_names == ("false", "true")
    assert read({"y": [True, False, None, True]}).graph.y.tolist() == [0, 1, -1, 1]


def many(num_nodes: int = 60, **changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    columns = {
        "id": [f"n{i:03}" for i in range(num_nodes)],
        "size": rng.normal(size=num_nodes).tolist(),
        "city": [f"c{i % 4}" for i in range(num_nodes)],
        "note": [" ".join(rng.choice(list("abcdefgh"), 5)) for _ in range(num_nodes)],
        "y": [i % 3 for i in range(num_nodes)],
    }
    return columns | changes


def many_edges(num_edges: int = 200, num_nodes: int = 60) -> dict[str, Any]:
    ends = np.random.default_rng(2).integers(num_nodes, size=(2, num_edges))
    weight = np.random.default_rng(3).random(num_edges)
    return {"u": [f"n{i:03}" for i in ends[0]], "v": [f"n{i:03}" for i in ends[1]], "weight": weight.tolist()}


def shuffled(table: dict[str, Any], seed: int) -> dict[str, Any]:
    order = np.random.default_rng(seed).permutation(len(next(iter(table.values()))))
    return {name: [values[i] for i in order] for name, values in table.items()}


def test_shuffled_rows_give_the_same_graph_split_and_recipe() -> None:
    nodes, edges = many(), many_edges()
    one, other = read_tables(nodes, edges), read_tables(shuffled(nodes, 4), shuffled(edges, 5))
    assert one.graph.fingerprint == other.graph.fingerprint
    assert one.recipe == other.recipe
    assert one.split is not None
    assert other.split is not None
    assert torch.equal(one.split.train, other.split.train)


def test_a_text_file_and_parquet_give_the_same_graph(tmp_path: Path) -> None:
    nodes, edges = pa.table(many()), pa.table(many_edges())
    arrow_csv.write_csv(nodes, str(tmp_path / "people.csv"))
    pq.write_table(edges, tmp_path / "edges.parquet")
    graph = from_tables(str(tmp_path / "people.csv"), tmp_path / "edges.parquet")
    assert graph.fingerprint == from_tables(nodes, edges).fingerprint
    assert graph.name == "people"


def test_cora_written_to_text_files_and_read_back_is_cora(benchmark_root: Path, tmp_path: Path) -> None:
    cora, _ = load("cora", data_root=benchmark_root)
    assert isinstance(cora.x, sp.csr_array)
    x = cora.x.toarray()
    columns = {"paper": np.arange(cora.num_nodes), **{f"w{i}": x[:, i] for i in range(x.shape[1])}}
    order = np.random.default_rng(0).permutation(cora.num_nodes)
    nodes = pa.table(columns | {"topic": cora.y.numpy()}).take(order)
    arrow_csv.write_csv(nodes, str(tmp_path / "nodes.csv"))
    ends = sp.triu(cora.adj).tocoo()
    arrow_csv.write_csv(pa.table({"target": ends.row, "source": ends.col}), str(tmp_path / "edges.csv"))
    graph = from_tables(tmp_path / "nodes.csv", tmp_path / "edges.csv", label="topic", id="paper", as_is=True)
    assert graph.fingerprint == cora.fingerprint


def test_a_column_of_parts_is_the_split_and_no_feature() -> None:
    parts = ["train", "Valid", "test", None] * 15
    tables = read_tables(many(split=parts), many_edges())
    assert tables.split is not None
    assert tables.split.name == "given"
    assert tables.split.val.tolist() == list(range(1, 60, 4))
    assert "split" not in {column.name for column in tables.recipe.columns}
    named = read_tables(many(fold=parts, y=[None] + [i % 3 for i in range(1, 60)]), many_edges(), split_column="fold")
    assert named.split is not None
    assert named.split.train.tolist() == list(range(4, 60, 4))
    assert "Left out of train because it has no label: 1 node." in named.messages


def test_classes_of_one_or_two_nodes_are_for_training() -> None:
    y = torch.tensor([0] * 20 + [1] * 20 + [2, 3, 3, -1])
    split = stratified_split(y, seed=3)
    assert split is not None
    assert split.name == "stratified/3"
    assert set(split.train.tolist()) >= {40, 41, 42}
    assert [len(part) for part in (split.train, split.val, split.test)] == [27, 8, 8]


def test_tables_to_predict_are_read_with_the_recipe_and_classes_of_training() -> None:
    trained = read_tables(many(), many_edges())
    new = {name: values[:3] for name, values in many().items() if name != "y"} | {"city": ["c1", "c9", None]}
    tables = read_tables(
        new,
        {"u": ["n000"], "v": ["n002"]},
        None,
        recipe=trained.recipe.to_plain(),
        class_names=trained.graph.class_names,
    )
    assert tables.graph.num_features == trained.graph.num_features
    assert tables.graph.y.tolist() == [-1] * 3
    assert tables.num_unseen.tolist() == [0, 1, 0]
    assert "With a category that was never seen in training: 1 of 3 nodes." in tables.messages


@pytest.mark.parametrize(
    ("nodes", "edges", "options", "message"),
    [
        (
            {},
            {"source": ["x", "a", "q"], "target": ["b", "y", "d"]},
            {},
            r"edges: 3 edges name ids that are not in nodes, column 'id': 'x' \(column 'source', row 1\), "
            r"'y' \(column 'target', row 2\), 'q' \(column 'source', row 3\)",
        ),
        (
            {"id": [1, 2, 3, 4]},
            {"source": [1, 2, 9], "target": [2, 3, 4]},
            {},
            "1 edge names an id that is not in nodes",
        ),
        ({"id": [1, 2, 3, 4]}, {}, {}, r"3 edges name ids that are not in nodes, column 'id': 'a'"),
        (
            {"id": ["a", "b", "c", "c"]},
            {},
            {},
            r"nodes, column 'id': 1 id is in more than one row: 'c' \(rows 3 and 4",
        ),
        ({"id": ["a", None, "c", "d"]}, {}, {}, "nodes, column 'id', row 2: the id is missing"),
        ({"id": [[1], [2], [3], [4]]}, {}, {}, "nodes, column 'id': values of the type list.* cannot be ids"),
        ({}, {"target": ["a", None, None]}, {}, r"edges, column 'target', row 2: the id is missing \(2 such rows\)"),
        ({}, {"weight": [1, -2, 3]}, {}, "edges, column 'weight', row 2: a weight must not be negative, got -2"),
        ({}, {"weight": [1, 2, None]}, {}, "edges, column 'weight', row 3: the weight is missing"),
        ({}, {"weight": [1, float("inf"), 1]}, {}, "edges, column 'weight', row 2: the number is infinite"),
        ({}, {"w": ["x", "y", "z"]}, {"weight": "w"}, "edges, column 'w', row 1: a weight must be a number, got 'x'"),
        ({}, {"weight": [None] * 3}, {}, "edges, column 'weight', row 1: the weight is missing"),
        ({}, {}, {"label": "yy"}, r"nodes: Unknown column 'yy'\. Did you mean 'y'\?"),
        ({}, {}, {"id": "idd"}, r"nodes: Unknown column 'idd'\. Did you mean 'id'\?"),
        ({}, {}, {"source": "sorce"}, r"edges: Unknown column 'sorce'\. Did you mean 'source'\?"),
        ({}, {}, {"features": ["agee"]}, r"nodes: Unknown column 'agee'\. Did you mean 'age'\?"),
        ({}, {}, {"features": ["id"]}, "a column of ids, labels or the split cannot also be a feature"),
        ({}, {}, {"features": "age"}, "features must be a list of columns"),
        ({}, {}, {"id": "y"}, "the column of ids cannot also hold the labels or the split"),
        ({}, {}, {"source": "target", "target": "target"}, "source and target must be different columns"),
        ({}, {}, {"label": None}, "label must name the column of the classes"),
        ({}, {}, {"seed": -1}, "read_tables: seed must be a whole number from 0 up"),
        ({"y": [None] * 4}, {}, {}, "nodes, column 'y': every label is missing"),
        ({"y": ["", "", "", ""]}, {}, {}, "nodes, column 'y': every label is missing"),
        ({"y": ["a", None, "a", "a"]}, {}, {}, "nodes, column 'y': every known label is 'a'"),
        ({"y": [1, 2, 0.5, 1.5]}, {}, {}, "nodes, column 'y', row 3: the label is 0.5; labels must be classes"),
        (
            {"split": ["train", "val", "tset", "test"]},
            {},
            {"split_column": "split"},
            "row 3: 'tset' is no part of a split",
        ),
        (
            {"split": ["train", "val", "test", "val"]},
            {},
            {},
            "nodes, column 'split': there are no test nodes with a label",
        ),
    ],
)
def test_each_mistake_is_one_sentence_with_table_column_and_row(
    nodes: dict[str, Any], edges: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read(nodes, edges, **options)
    assert "\n" not in str(caught.value)


def test_measurements_and_texts_are_no_labels() -> None:
    ids = [f"n{i:03}" for i in range(150)]
    for values in (list(range(150)), [f"text {i}" for i in range(150)]):
        with pytest.raises(InputError, match="column 'y': there are 150 different values on 150 rows"):
            from_tables({"id": ids, "size": range(150), "y": values}, many_edges())


def test_a_weight_that_is_no_number_is_named_by_its_row(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("source,target,weight\na,b,1\na,c,heavy\n")
    with pytest.raises(InputError, match=r"e\.csv, column 'weight', row 2: a weight must be a number, got 'heavy'"):
        from_tables(NODES, tmp_path / "e.csv")


def test_an_edge_table_needs_two_columns_for_the_ends() -> None:
    with pytest.raises(InputError, match="edges: an edge needs two columns, source and target, but there are: one"):
        from_tables(NODES, {"one": ["a"]})
