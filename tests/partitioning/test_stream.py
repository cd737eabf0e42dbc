"""Tables cut into parts batch by batch: the same parts as from memory, in little memory, also after a kill."""

from __future__ import annotations

import gzip
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pytest

from adagpr.data import load
from adagpr.errors import InputError
from adagpr.partitioning import Part, Parts, partition, partition_graph
from adagpr.partitioning.out_of_core import partition_tables
from tests.partitioning.tables import MEMORY, NUM_NODES, OPTIONS, edge_table, node_table, saved


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def each(parts: Parts) -> list[Part]:
    return [parts[number] for number in range(len(parts))]


def assert_equal_parts(streamed: Parts, other: Parts) -> None:
    one, two = streamed.manifest, other.manifest
    for name in ("graph_sha256", "split_sha256", "recipe", "class_names", "is_symmetric", "num_features", "edge_cut"):
        assert getattr(one, name) == getattr(two, name), name
    for part, known in zip(each(streamed), each(other), strict=True):
        part.check()
        mine, theirs = part.rows(), known.rows()
        for name in ("indptr", "indices", "data"):
            assert np.array_equal(getattr(mine.adj, name), getattr(theirs.adj, name)), name
        for name in ("degree", "halo", "role", "position"):
            assert np.array_equal(getattr(mine, name), getattr(theirs, name)), name
        assert np.array_equal(np.asarray(mine.x), np.asarray(theirs.x))
        assert mine.y.equal(theirs.y)
        assert mine.node_ids.equals(theirs.node_ids)


@pytest.mark.parametrize(
    ("kind", "weighted", "ending", "directed"),
    [
        ("plain", False, "feather", False),
        ("plain", True, "csv", True),
        ("whole", True, "parquet", False),
        ("whole", False, "csv", False),
        ("text", False, "parquet", True),
        ("text", True, "csv", False),
        ("text", True, "feather", True),
        ("text", True, "arrow", False),
    ],
)
def test_the_parts_are_those_of_the_tables_read_whole(
    tmp_path: Path, kind: str, weighted: bool, ending: str, directed: bool
) -> None:
    nodes = node_table(kind)
    files = saved(tmp_path, ending, nodes, edge_table(nodes, weighted))
    graph, (split,) = load("tables", nodes=files[0], edges=files[1], label="topic", as_is=True, directed=directed)
    streamed = partition_tables(*files, 4, tmp_path / "streamed", MEMORY, directed=directed, **OPTIONS)
    assert_equal_parts(streamed, partition_graph(graph, split, 4, tmp_path / "whole", "greedy"))
    assert streamed.manifest.notes == graph.notes


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize(
    "labels", [["10", "9", "+2"], ["1.0", "0.0", "2.0"], ["01", "1", "2"], [True, False, None], [3, 1, 20]]
)
def test_classes_are_named_and_ordered_as_in_tables_read_whole(tmp_path: Path, ending: str, labels: list[Any]) -> None:
    nodes = node_table()
    files = saved(tmp_path, ending, {**nodes, "topic": pa.array(labels * 200)}, edge_table(nodes))
    graph = load("tables", nodes=files[0], edges=files[1], label="topic", as_is=True)[0]
    manifest = partition_tables(*files, 2, tmp_path / "parts", MEMORY, **OPTIONS).manifest
    assert (manifest.class_names, manifest.graph_sha256) == (graph.class_names, graph.fingerprint)


def test_ids_may_be_written_as_numbers_with_a_point(tmp_path: Path) -> None:
    nodes = node_table()
    plain = saved(tmp_path, "csv", nodes, edge_table(nodes))
    one = partition_tables(*plain, 3, tmp_path / "plain", MEMORY, **OPTIONS)
    (tmp_path / "pointed").mkdir()
    edges = {
        name: pa.array([f"{number}.0" for number in values.to_pylist()]) for name, values in edge_table(nodes).items()
    }
    pointed = saved(tmp_path / "pointed", "csv", nodes, edges)
    assert_equal_parts(one, partition_tables(*pointed, 3, tmp_path / "pointed" / "parts", MEMORY, **OPTIONS))


def test_the_order_of_the_rows_does_not_matter(tmp_path: Path) -> None:
    nodes = node_table()
    edges = edge_table(nodes, weighted=True)
    orders = np.random.default_rng(2).permutation(NUM_NODES), np.random.default_rng(3).permutation(4500)
    shuffled = [
        {name: pa.array(values).take(pa.array(order)) for name, values in table.items()}
        for table, order in zip((nodes, edges), orders, strict=True)
    ]
    made = []
    for name, tables in (("first", (nodes, edges)), ("second", shuffled)):
        (tmp_path / name).mkdir()
        files = saved(tmp_path / name, "feather", *tables)
        made.append(partition_tables(*files, 5, tmp_path / name / "parts", MEMORY, **OPTIONS))
    assert_equal_parts(made[0], made[1])


def test_the_bytes_do_not_depend_on_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = node_table("text")
    files = saved(tmp_path, "parquet", nodes, edge_table(nodes, weighted=True))
    partition_tables(*files, 4, tmp_path / "much", 1e9, **OPTIONS)
    for name, size in (("MIN_SLICE", 20_000), ("MAX_ROWS", 100), ("NUM_BUCKETS", 7), ("NUM_UNITS", 50)):
        monkeypatch.setattr(f"adagpr.partitioning.work_folder.{name}", size)
    partition_tables(*files, 4, tmp_path / "little", 400_000, **OPTIONS)
    assert files_of(tmp_path / "much") == files_of(tmp_path / "little")


def test_lists_of_numbers_are_features(tmp_path: Path) -> None:
    nodes = node_table()
    x = np.random.default_rng(0).normal(size=(NUM_NODES, 5)).astype(np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(x.ravel(), 5)
    files = saved(tmp_path, "feather", {**nodes, "vector": vectors}, edge_table(nodes))
    parts = partition_tables(*files, 3, tmp_path / "parts", MEMORY, features=["vector"], **OPTIONS)
    blocks = [part.rows() for part in each(parts)]
    assert all(np.array_equal(block.x.numpy(), x[block.position]) for block in blocks)
    graph = load("tables", nodes=files[0], edges=files[1], features=["vector"], **OPTIONS)[0]
    assert (parts.manifest.graph_sha256, parts.manifest.recipe) == (graph.fingerprint, graph.recipe)


def test_a_drawn_split_is_that_of_the_tables_read_whole(tmp_path: Path) -> None:
    nodes = {name: values for name, values in node_table().items() if name != "split"}
    files = saved(tmp_path, "feather", nodes, edge_table(nodes))
    one, two, three = (
        partition_tables(*files, 3, tmp_path / name, MEMORY, seed=seed, split=split, **OPTIONS).manifest
        for name, seed, split in (("one", 0, None), ("two", 1, None), ("three", 0, "stratified/1"))
    )
    for manifest, seed in ((one, 0), (two, 1)):
        whole = load("tables", nodes=files[0], edges=files[1], seed=seed, **OPTIONS)[1][0]
        assert (manifest.split, manifest.split_sha256) == (whole.name, whole.fingerprint)
    assert (two.split, two.key) == (three.split, three.key)
    assert one.split_sha256 != two.split_sha256


def test_without_as_is_a_note_says_what_features_are(tmp_path: Path) -> None:
    nodes = node_table()
    files = saved(tmp_path, "feather", nodes, edge_table(nodes))
    notes = partition_tables(*files, 3, tmp_path / "parts", MEMORY, label="topic").manifest.notes
    assert notes[0].startswith("The tables were not read whole: numbers are features as they are, not scaled")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_columns_are_found_from_all_rows(tmp_path: Path, ending: str) -> None:
    """Rows behind the first thousand decide: on the column of the ids, on what is a number, and on the split."""
    nodes, size = {}, 3000
    nodes["code"] = pa.array([*range(1500), 5, *range(1501, size)])
    nodes["name"] = pa.array([f"n{number}" for number in range(size)])
    nodes["topic"] = pa.array([number % 3 for number in range(size)])
    nodes["size"] = pa.array([str(number) if ending == "csv" else "0" for number in range(1500)] + ["x"] * 1500)
    nodes["split"] = pa.array(["train", "val", "test"] * 900 + ["later"] * 300)
    nodes["age"] = pa.array([float(number) for number in range(size)])
    edges = {"source": pa.array([f"n{number}" for number in range(size)]), "target": pa.array(["n0"] * size)}
    files = saved(tmp_path, ending, nodes, edges)
    graph, (split,) = load("tables", nodes=files[0], edges=files[1], **OPTIONS)
    manifest = partition_tables(*files, 3, tmp_path / "parts", MEMORY, **OPTIONS).manifest
    assert (manifest.graph_sha256, manifest.split_sha256) == (graph.fingerprint, split.fingerprint)
    assert (manifest.notes, manifest.split) == (graph.notes, "stratified/0")
    assert "ids from column 'name'" in manifest.notes[0]


@pytest.mark.parametrize("memory", [1e10, MEMORY])
def test_a_compressed_parquet_file_is_partitioned_too(tmp_path: Path, memory: float) -> None:
    nodes = node_table()
    plain = saved(tmp_path, "parquet", nodes, edge_table(nodes))
    packed = [path.with_name(f"{path.name}.gz") for path in plain]
    for path, other in zip(plain, packed, strict=True):
        other.write_bytes(gzip.compress(path.read_bytes()))
    graph = load("tables", nodes=packed[0], edges=packed[1], **OPTIONS)[0]
    tables = {"nodes": packed[0], "edges": packed[1], **OPTIONS}
    manifest = partition(parts=3, out=tmp_path / "parts", memory=memory, **tables).manifest
    assert (manifest.graph_sha256, manifest.method) == (graph.fingerprint, "metis" if memory == 1e10 else "greedy")
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in (*plain, *packed)} | {"parts"}


CHILD = """
import os, signal, sys
from adagpr.partitioning.out_of_core import partition_tables
nodes, edges, out, stage, count = sys.argv[1:]

def stop(name, done, total):
    if name.startswith(stage) and done >= int(count):
        os.kill(os.getpid(), signal.SIGKILL)

partition_tables(nodes, edges, 4, out, 40e6, label="topic", as_is=True, on_progress=stop)
"""


def test_after_kill_9_the_same_call_ends_with_the_same_bytes(tmp_path: Path) -> None:
    nodes = node_table("whole")
    files = saved(tmp_path, "feather", nodes, edge_table(nodes))
    partition_tables(*files, 4, tmp_path / "whole", MEMORY, **OPTIONS)
    killed = tmp_path / "killed"
    for stage, count in (("sorting the features", 1), ("writing", 2)):
        words = [*(str(path) for path in (*files, killed)), stage, str(count)]
        done = subprocess.run([sys.executable, "-c", CHILD, *words], check=False)
        assert done.returncode == -signal.SIGKILL
        assert not (killed / "manifest.json").exists()
    with pytest.raises(InputError, match="a partition under way of other data or arguments"):
        partition_tables(*files, 5, killed, MEMORY, **OPTIONS)
    partition_tables(*files, 4, killed, MEMORY, **OPTIONS)
    assert files_of(killed) == files_of(tmp_path / "whole")


def test_a_mistake_leaves_the_folder_free_for_a_corrected_call(tmp_path: Path) -> None:
    nodes = node_table()
    files = saved(tmp_path, "csv", nodes, edge_table(nodes))
    with files[1].open("a") as file:
        file.write("1,9999\n")
    with pytest.raises(InputError, match=r"'9999' \(column 'target', row 4501\)"):
        partition_tables(*files, 3, tmp_path / "parts", MEMORY, **OPTIONS)
    saved(tmp_path, "csv", nodes, edge_table(nodes))
    assert len(partition_tables(*files, 4, tmp_path / "parts", MEMORY, **OPTIONS)) == 4


def test_files_that_changed_are_not_mixed_with_what_is_there(tmp_path: Path) -> None:
    nodes = node_table()
    files = saved(tmp_path, "csv", nodes, edge_table(nodes))
    partition_tables(*files, 3, tmp_path / "parts", MEMORY, **OPTIONS)
    with files[1].open("a") as file:
        file.write("1,2\n")
    with pytest.raises(InputError, match="holds a partition of other data or arguments"):
        partition_tables(*files, 3, tmp_path / "parts", MEMORY, **OPTIONS)


def test_memory_stays_below_the_bound_and_the_size_of_the_tables(tmp_path: Path) -> None:
    rng, size = np.random.default_rng(0), 20_000
    x = pa.FixedSizeListArray.from_arrays(rng.random(size * 500, dtype=np.float32), 500)
    nodes = pa.table({"id": np.arange(size), "topic": rng.integers(4, size=size), "x": x})
    edges = pa.table(dict(zip(("source", "target"), rng.integers(size, size=(2, 100_000)), strict=True)))
    files = tmp_path / "nodes.arrow", tmp_path / "edges.arrow"
    for path, table in zip(files, (nodes, edges), strict=True):
        feather.write_feather(table, path, compression="uncompressed", chunksize=1000)
    tracemalloc.start()
    partition_tables(*files, 8, tmp_path / "parts", 25e6, label="topic")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 25e6 < 40e6 < sum(path.stat().st_size for path in files)
