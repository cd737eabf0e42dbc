"""``adagpr train`` and ``predict`` on tables as people have them: of another look, with lists, infinity, odd ids."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from adagpr.files import read_json

Ended = tuple[int, str, str]
QUICK = ["--set", "max_epochs=2", "--set", "num_layers=2", "--set", "hidden_channels=4", "--label", "topic"]
NODES: dict[str, list[Any]] = {
    "id": [f"n{i:02}" for i in range(24)],
    "größe": [20.5 + (7 * i) % 31 for i in range(24)],
    "city": [["Zürich", "Orléans\nNord", "Rom"][i % 3] for i in range(24)],
    "topic": [["Maß", "law"][i % 2] for i in range(24)],
}
EDGES: dict[str, list[Any]] = {"source": NODES["id"][:22], "target": NODES["id"][2:]}


def text_of(table: dict[str, list[Any]], separator: str = ",", decimal: str = ".") -> str:
    rows = [list(table), *zip(*table.values(), strict=True)]
    written = [
        [str(value).replace(".", decimal) if isinstance(value, float) else f'"{value}"' for value in row]
        for row in rows
    ]
    return "".join(separator.join(row) + "\r\n" for row in written)


def command(verb: str, nodes: str, edges: str, *words: str) -> list[str]:
    return [verb, *(["run"] if verb == "predict" else []), "--nodes", nodes, "--edges", edges, *words]


def test_later_tables_are_read_by_their_own_look(tmp_path: Path, ended: Callable[..., Ended]) -> None:
    (tmp_path / "nodes.csv").write_bytes(text_of(NODES, ";", ",").encode("cp1252"))
    (tmp_path / "edges.csv").write_bytes(text_of(EDGES, "\t").encode("utf-16"))
    (tmp_path / "new.csv").write_bytes(text_of(NODES).encode())
    train = command("train", "nodes.csv", "edges.csv", *QUICK, "--out", "run")
    code, out, err = ended(tmp_path, *train)
    assert (code, err) == (0, "")
    looks = {
        "nodes": "read as Windows-1252, separated by semicolons, with decimal commas",
        "edges": "read as UTF-16, separated by tabs",
    }
    for name, look in looks.items():
        assert f"{name}.csv: {look}.\n" in out
    assert read_json(tmp_path / "run" / "recipe.json")["looks"] == looks
    found = {}
    for nodes in ("nodes.csv", "new.csv"):
        code, out, err = ended(tmp_path, *command("predict", nodes, "edges.csv", "-o", "out.parquet", "--json"))
        assert (code, err) == (0, "")
        found[nodes] = pq.read_table(tmp_path / "out.parquet").to_pydict()
        said = [line.rpartition("/")[2] for line in json.loads(out)["messages"] if "read as" in line]
        assert said == [f"{name}.csv: {look}." for name, look in looks.items()][nodes == "new.csv" :]
    assert found["new.csv"] == found["nodes.csv"]
    # The same table, saved anew in another way, is the table of the run.
    (tmp_path / "nodes.csv").write_bytes(text_of(NODES).encode())
    code, _, err = ended(tmp_path, "train", "--config", "run/config.toml", "--out", "again")
    assert (code, err) == (0, "")
    one, other = (read_json(tmp_path / name / "record.json")["result"] for name in ("run", "again"))
    assert one == other


def test_lists_and_infinite_numbers_train_and_predict(tmp_path: Path, ended: Callable[..., Ended]) -> None:
    odd = {**NODES, "größe": [float("inf"), *NODES["größe"][1:]], "v": [[i % 5, i / 3.0] for i in range(24)]}
    pq.write_table(pa.table(odd), tmp_path / "nodes.parquet")
    pq.write_table(pa.table(EDGES), tmp_path / "edges.parquet")
    code, out, err = ended(tmp_path, *command("train", "nodes.parquet", "edges.parquet", *QUICK, "--out", "run"))
    assert (code, err) == (0, "")
    note = "Column 'größe' has 1 infinite number, taken as missing, the first in row 1."
    assert note in out
    assert "lists of numbers, scaled (v)" in out
    words = command("predict", "nodes.parquet", "edges.parquet", "-o", "out.parquet")
    code, out, err = ended(tmp_path, *words)
    assert (code, err) == (0, "")
    assert note in out
    own = pq.read_table(tmp_path / "run" / "predictions.parquet")
    assert pq.read_table(tmp_path / "out.parquet")["p_law"].equals(own["p_law"])
    pq.write_table(pa.table({**odd, "v": [*odd["v"][:-1], [1.0]]}), tmp_path / "nodes.parquet")
    code, _, err = ended(tmp_path, *words)
    assert (code, err) == (2, "Error: nodes.parquet, column 'v', row 24: the list has 1 value, not 2.\n")


def test_ids_without_their_zeros_and_labels_with_blanks_are_joined_with_notes(
    tmp_path: Path, ended: Callable[..., Ended]
) -> None:
    nodes = {**NODES, "id": [f"{i:03}" for i in range(24)], "topic": ["a ", "b", "a"] * 8}
    plain = {**nodes, "topic": [topic.strip() for topic in nodes["topic"]]}
    edges = "source,target\n" + "".join(f"{i},{i + 1}\n" for i in range(23))
    for name, table in (("odd", nodes), ("plain", plain)):
        (tmp_path / "nodes.csv").write_text(text_of(table), encoding="utf-8")
        (tmp_path / "edges.csv").write_text(edges)
        code, out, err = ended(tmp_path, *command("train", "nodes.csv", "edges.csv", *QUICK, "--out", name))
        assert (code, err) == (0, "")
        joined = (
            "edges.csv: 46 ids have other leading zeros than in nodes.csv, column 'id', and were joined, such as '0'."
        )
        assert joined in out
        assert ("Labels of column 'topic' that differ only by blanks are joined: 'a' and 'a '." in out) == (
            name == "odd"
        )
    one, other = (read_json(tmp_path / name / "record.json")["result"] for name in ("odd", "plain"))
    assert one == other
