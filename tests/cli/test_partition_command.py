"""``adagpr partition``: what it writes and shows, and what it refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pytest

from adagpr.cli.partition import _bytes
from adagpr.data import load
from adagpr.errors import InputError
from adagpr.partitioning import open_parts, partition
from tests.ages import are_old, make_old

Ended = tuple[int, str, str]
TABLES = ["partition", "--nodes", "nodes.csv", "--edges", "edges.csv", "--label", "topic"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two tables whose columns have usual names: rings of ten nodes."""
    rng = np.random.default_rng(0)
    numbers = np.arange(60)
    nodes = {
        "node_id": numbers,
        "topic": numbers % 3,
        "age": rng.normal(size=60),
        "city": pa.array(["Lima", "Rome"] * 30),
    }
    nodes["split"] = pa.array(["train", "val", "test"]).take(pa.array(numbers % 7 % 3))
    edges = {"src": numbers, "dst": numbers // 10 * 10 + (numbers + 1) % 10}
    arrow_csv.write_csv(pa.table(nodes), tmp_path / "nodes.csv")
    arrow_csv.write_csv(pa.table(edges), tmp_path / "edges.csv")
    return tmp_path


@pytest.fixture
def refused(ended: Callable[..., Ended]) -> Callable[..., str]:
    """Runs a command and gives back its one sentence, once it has ended as a mistake should."""

    def call(place: Path, *words: str) -> str:
        code, out, err = ended(place, *words)
        assert (code, out) == (2, ""), err
        assert err.startswith("Error: ")
        assert err.count("\n") == 1
        return err.removeprefix("Error: ").strip()

    return call


def shown(ended: Callable[..., Ended], place: Path, *words: str) -> dict[str, Any]:
    code, out, err = ended(place, *words, "--json")
    assert (code, err) == (0, "")
    plain: dict[str, Any] = json.loads(out)
    return plain


def test_a_data_set_is_cut_by_metis_and_the_cut_is_compared_with_random(
    tmp_path: Path, ended: Callable[..., Ended]
) -> None:
    code, out, err = ended(tmp_path, "partition", "digits", "--parts", "4", "-o", "parts")
    assert (code, err) == (0, "")
    manifest = open_parts(tmp_path / "parts").manifest
    lines = dict(line.split(maxsplit=1) for line in out.replace("edge cut", "cut").splitlines())
    assert lines["parts"] == "4 by metis"
    assert lines["nodes"].startswith("1,797; 44")
    assert lines["cut"].startswith(
        f"{manifest.edge_cut:,} entries, {100 * manifest.edge_cut / manifest.num_edges:.1f} %"
    )
    assert lines["cut"].endswith("(at random 75.0 %)")


@pytest.mark.parametrize(("memory", "method"), [("8GB", "metis"), ("100MB", "greedy")])
def test_auto_takes_metis_where_the_memory_is_enough(
    folder: Path, ended: Callable[..., Ended], memory: str, method: str
) -> None:
    plain = shown(ended, folder, *TABLES, "--parts", "3", "-o", "parts", "--memory", memory, "--as-is")
    assert (plain["method"], plain["num_nodes"], plain["num_edges"]) == (method, 60, 120)
    assert plain["edge_cut_share"] < plain["random_cut_share"] == pytest.approx(2 / 3)
    assert plain["split"] == "given"
    assert len(open_parts(folder / "parts")) == 3


def test_both_ways_give_the_sums_of_the_tables_as_they_are(folder: Path, ended: Callable[..., Ended]) -> None:
    graph = load("tables", nodes=folder / "nodes.csv", edges=folder / "edges.csv", label="topic", as_is=True)[0]
    for method in ("metis", "greedy"):
        words = ["--parts", "3", "-o", method, "--method", method, "--as-is"]
        assert shown(ended, folder, *TABLES, *words)["graph_sha256"] == graph.fingerprint


def test_repeating_the_command_shows_what_is_there(folder: Path, ended: Callable[..., Ended]) -> None:
    words = [*TABLES, "--parts", "3", "-o", "parts", "--memory", "100MB"]
    first = shown(ended, folder, *words)
    files = make_old((folder / "parts").rglob("part-*/*"))
    # With more memory it would now be METIS, but what is there is greedy.
    assert shown(ended, folder, *words[:-1], "8GB") == first
    assert are_old(files)
    assert sorted((folder / "parts").rglob("part-*/*")) == sorted(files)


def test_what_was_found_in_tables_is_said(folder: Path, ended: Callable[..., Ended]) -> None:
    code, out, _ = ended(folder, *TABLES, "--parts", "3", "-o", "parts", "--method", "greedy", "--memory", "100MB")
    assert code == 0
    assert "ids from column 'node_id', labels from column 'topic', split from column 'split'." in out
    assert "undirected edges from column 'src' to column 'dst'." in out
    assert "Column 'city' is left out: it holds no numbers." in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["digits", "--nodes", "nodes.csv"], "Give a data set or tables, not both: 'digits' and --nodes."),
        ([], "Name a data set, or give tables: nodes, edges and the column of the label."),
        (
            ["--nodes", "nodes.csv", "--edges", "edges.csv"],
            "Tables need --nodes, --edges and --label; --label is missing.",
        ),
        (["digits", "--method", "kmetis"], "Unknown method 'kmetis'. Did you mean 'metis'?"),
        (["digits", "--memory", "much"], "--memory takes a size such as 4GB or 500MB, got 'much'."),
        (["coar"], "Did you mean 'cora'?"),
        ([*TABLES[1:], "--split", "public", "--method", "greedy"], "Unknown split 'public'. Known: given, stratified."),
        ([*TABLES[1:], "--id", "nde_id", "--method", "greedy"], "Unknown column 'nde_id'. Did you mean 'node_id'?"),
        ([*TABLES[1:], "--method", "greedy", "--memory", "1MB"], "needs 0.017 GB of memory, but 0.001 GB are allowed."),
    ],
)
def test_wrong_usage_is_one_sentence(
    folder: Path, refused: Callable[..., str], words: list[str], sentence: str
) -> None:
    assert sentence in refused(folder, "partition", "--parts", "3", "-o", "parts", *words)


@pytest.mark.parametrize("method", ["metis", "greedy"])
@pytest.mark.parametrize(("num_parts", "sentence"), [("0", "at least 1, got 0"), ("61", "61 parts are more than")])
def test_a_number_of_parts_out_of_range_is_one_sentence(
    folder: Path, refused: Callable[..., str], method: str, num_parts: str, sentence: str
) -> None:
    assert sentence in refused(folder, *TABLES, "--method", method, "--parts", num_parts, "-o", "parts")


@pytest.mark.parametrize("method", ["metis", "greedy"])
def test_an_edge_to_an_unknown_node_is_one_sentence(folder: Path, refused: Callable[..., str], method: str) -> None:
    with (folder / "edges.csv").open("a") as file:
        file.write("3,77\n")
    sentence = refused(folder, *TABLES, "--method", method, "--parts", "3", "-o", "parts")
    assert "'77'" in sentence
    assert "row 61" in sentence


def test_another_partition_in_the_folder_is_one_sentence(
    folder: Path, ended: Callable[..., Ended], refused: Callable[..., str]
) -> None:
    words = [*TABLES, "-o", "parts", "--memory", "100MB"]
    assert ended(folder, *words, "--parts", "3")[0] == 0
    assert refused(folder, *words, "--parts", "4").startswith("parts holds a partition of other data or arguments.")


def test_of_several_splits_one_must_be_named(
    tmp_path: Path, benchmark_root: Path, ended: Callable[..., Ended], refused: Callable[..., str]
) -> None:
    words = ["partition", "texas", "--parts", "3", "-o", "parts", "--data-root", str(benchmark_root)]
    assert "has 10 such splits: name one, for example geom-gcn/0." in refused(tmp_path, *words)
    assert shown(ended, tmp_path, *words, "--split", "geom-gcn/4")["split"] == "geom-gcn/4"


@pytest.mark.parametrize(
    ("text", "size"), [("4GB", 4e9), ("500 MB", 5e8), ("2GiB", 2**31), ("1.5g", 1.5e9), ("1000", 1e3), ("8kb", 8e3)]
)
def test_sizes_are_read_as_people_write_them(text: str, size: float) -> None:
    assert _bytes(text) == size


def test_the_default_is_half_of_what_is_available(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables: dict[str, Any] = {"nodes": str(folder / "nodes.csv"), "edges": str(folder / "edges.csv"), "label": "topic"}
    found = {}
    for available in (2e9, 2e8):
        monkeypatch.setattr(
            sys.modules["adagpr.partitioning.partition"], "available_memory", lambda size=available: size
        )
        found[available] = partition(parts=3, out=folder / str(available), **tables).manifest.method
    assert found == {2e9: "metis", 2e8: "greedy"}
    with pytest.raises(InputError, match="--memory takes a size"):
        _bytes("-1GB")


def test_a_run_whose_record_lacks_what_has_a_default_is_shown(tmp_path: Path, ended: Callable[..., Ended]) -> None:
    ended(tmp_path, "partition", "digits", "--parts", "2", "-o", "parts")
    command = ("train", "--partitions", "parts", "--set", "max_epochs=2", "--out", "run")
    code, first, _ = ended(tmp_path, *command)
    assert code == 0
    path = tmp_path / "run" / "record.json"
    record = json.loads(path.read_text())
    del record["data"]["is_approximate"], record["machine"]["ranks"]
    path.write_text(json.dumps(record))
    code, again, err = ended(tmp_path, *command)
    assert (code, again.splitlines()[0], err) == (0, first.splitlines()[0], "")
