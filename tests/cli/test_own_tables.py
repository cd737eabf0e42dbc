"""``adagpr train``, ``tune`` and ``predict`` on a user's own tables: what they write, and what they refuse."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adagpr.files import read_json, read_toml
from tests.ages import are_old, make_old

Ended = tuple[int, str, str]
QUICK = ["--set", "max_epochs=2", "--set", "num_layers=2", "--set", "hidden_channels=4"]
TRAIN = ["train", "--nodes", "nodes.csv", "--edges", "edges.csv", "--label", "topic", *QUICK]
PREDICT = ["predict", "run", "--nodes", "new.csv", "--edges", "edges.csv", "-o", "out.parquet"]
NUM_NODES = 24

NODES: dict[str, list[Any]] = {
    "id": [f"n{i:02}" for i in range(NUM_NODES)],
    "age": [20 + (7 * i) % 31 for i in range(NUM_NODES)],
    "city": [["Lima", "Oslo", "Rome"][i % 3] for i in range(NUM_NODES)],
    "member": [i % 4 == 0 for i in range(NUM_NODES)],
    "topic": [["art", "law"][i % 2] if i < 20 else None for i in range(NUM_NODES)],
}
EDGES: dict[str, list[Any]] = {
    "source": [f"n{i:02}" for i in range(NUM_NODES - 2)],
    "target": [f"n{i + 2:02}" for i in range(NUM_NODES - 2)],
}


def text_of(table: dict[str, list[Any]], **changes: Any) -> bytes:
    """A table as the bytes of a CSV file, with columns changed or, where they are given as nothing, left out."""
    changed = {name: values for name, values in {**table, **changes}.items() if values is not None}
    sink = pa.BufferOutputStream()
    arrow_csv.write_csv(pa.table(changed), sink)
    return bytes(sink.getvalue())


def parquet_of(table: dict[str, list[Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(table), sink)
    return bytes(sink.getvalue())


def save(folder: Path, **files: bytes) -> None:
    for name, content in {"nodes.csv": text_of(NODES), "edges.csv": text_of(EDGES), **files}.items():
        (folder / name).write_bytes(content)


@pytest.fixture
def folder(tmp_path: Path, ended: Callable[..., Ended]) -> Path:
    """A folder with good tables and a run on them."""
    save(tmp_path, **{"new.csv": text_of(NODES, topic=None)})
    code, _, err = ended(tmp_path, *TRAIN, "--out", "run")
    assert (code, err) == (0, "")
    return tmp_path


def contents(place: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in place.rglob("*")}


@pytest.fixture
def refused(ended: Callable[..., Ended]) -> Callable[..., str]:
    """Runs a command and gives back its one sentence, once it has ended as a mistake should."""

    def call(place: Path, *words: str) -> str:
        before = contents(place)
        code, out, err = ended(place, *words)
        assert (code, out) == (2, ""), err
        assert err.startswith("Error: ")
        assert err.count("\n") == 1
        assert contents(place) == before
        return err.removeprefix("Error: ").strip()

    return call


def test_a_search_on_tables_is_trained_and_predicted_from(tmp_path: Path, ended: Callable[..., Ended]) -> None:
    save(tmp_path, **{"new.csv": text_of(NODES, topic=None)})
    words = [
        *TRAIN[1:],
        "--feature",
        "age",
        "--set",
        "data.label=topic",
        "--trials",
        "2",
        "--jobs",
        "1",
        "--out",
        "study",
        "--json",
    ]
    code, out, err = ended(tmp_path, "tune", *words)
    assert (code, err) == (0, "")
    record = json.loads(out)
    assert "nodes.csv: 24 rows; ids from column 'id', labels from column 'topic'." in record["data_notes"]
    (tested,) = record["test"]["runs"]
    code, out, _ = ended(tmp_path, "train", "--config", "study/best.toml", "--out", "run", "--json")
    assert code == 0
    assert json.loads(out)["test_acc"] == tested["test_acc"]
    assert ended(tmp_path, *PREDICT)[0] == 0
    assert pq.read_table(tmp_path / "out.parquet").num_rows == NUM_NODES


def test_what_was_found_in_the_tables_is_said_to_the_user(tmp_path: Path, ended: Callable[..., Ended]) -> None:
    save(tmp_path)
    code, out, err = ended(tmp_path, *TRAIN, "--out", "run")
    assert (code, err) == (0, "")
    for sentence in (
        "nodes: 24 nodes, 22 edges, 5 features, 2 classes",
        "nodes.csv: 24 rows; ids from column 'id', labels from column 'topic'.",
        "edges.csv: 22 rows; undirected edges from column 'source' to column 'target'.",
        "numbers, scaled (age); truth values (member); categories, a feature each (city).",
        "Without a label: 4 of 24 nodes.",
        "split stratified/0: 12 training, 4 validation, 4 test nodes",
    ):
        assert sentence in out
    assert out.endswith("run folder  run\npage        run/report.html\n")


def test_a_run_on_tables_keeps_what_predicts_again(folder: Path) -> None:
    config = read_toml(folder / "run" / "config.toml")["data"]
    assert {key: config[key] for key in ("name", "nodes", "edges", "label")} == {
        "name": "tables",
        "nodes": "nodes.csv",
        "edges": "edges.csv",
        "label": "topic",
    }
    assert [column["name"] for column in read_json(folder / "run" / "recipe.json")["features"]["columns"]] == [
        "age",
        "city",
        "member",
    ]
    table = pq.read_table(folder / "run" / "predictions.parquet")
    expected = ["node_id", "part", "label", "prediction", "p_art", "p_law", "doubt"]
    assert table.column_names == expected
    assert table["node_id"].to_pylist() == NODES["id"]
    assert table["label"].to_pylist() == NODES["topic"]


def test_repeating_the_command_reads_the_finished_run(folder: Path, ended: Callable[..., Ended]) -> None:
    record = make_old([folder / "run" / "record.json"])
    assert ended(folder, *TRAIN, "--out", "run")[0] == 0
    assert are_old(record)


def test_a_run_s_own_configuration_repeats_it(folder: Path, ended: Callable[..., Ended]) -> None:
    assert ended(folder, "train", "--config", "run/config.toml", "--out", "again")[0] == 0
    one, other = (read_json(folder / name / "record.json") for name in ("run", "again"))
    assert {**one, "machine": 0} == {**other, "machine": 0}
    assert (folder / "run" / "recipe.json").read_bytes() == (folder / "again" / "recipe.json").read_bytes()


def test_a_table_that_has_changed_is_no_longer_that_of_the_run(
    folder: Path, ended: Callable[..., Ended], refused: Callable[..., str]
) -> None:
    (folder / "nodes.csv").write_bytes(text_of(NODES, age=NODES["age"][::-1]))
    code, _, err = ended(folder, *TRAIN, "--out", "run")
    assert code == 2
    assert "these keys differ: data.graph_sha256" in err
    assert "written for another graph" in refused(folder, "train", "--config", "run/config.toml", "--out", "again")


def test_predict_on_the_training_s_tables_writes_the_run_s_own_predictions(
    folder: Path, ended: Callable[..., Ended]
) -> None:
    code, out, err = ended(folder, *PREDICT)
    assert (code, err) == (0, "")
    assert "5 features as in training." in out
    assert out.endswith("predictions  out.parquet\n")
    written = pq.read_table(folder / "out.parquet")
    assert written.equals(pq.read_table(folder / "run" / "predictions.parquet").drop(["part", "label"]))


def test_predict_counts_classes_and_doubts_as_json(folder: Path, ended: Callable[..., Ended]) -> None:
    lonely: dict[str, list[Any]] = {"id": ["x", "y"], "age": [30, 30], "city": ["Nome", "Lima"], "member": [True, None]}
    (folder / "new.csv").write_bytes(text_of(lonely))
    (folder / "edges.csv").write_text("source,target\nx,x\n")
    code, out, err = ended(folder, *PREDICT, "--json")
    found = json.loads(out)
    assert (code, err, found["file"], found["num_nodes"]) == (0, "", "out.parquet", 2)
    table = pq.read_table(folder / "out.parquet").to_pylist()
    assert sum(found["predictions"].values()) == 2
    assert found["doubts"] == {row["doubt"]: 1 for row in table}
    assert ["unseen category" in row["doubt"] for row in table] == [True, False]
    assert all(row["doubt"].startswith("no neighbours") for row in table)


def test_parquet_and_text_files_end_in_the_same_predictions(folder: Path, ended: Callable[..., Ended]) -> None:
    (folder / "nodes.parquet").write_bytes(parquet_of(NODES))
    (folder / "edges.parquet").write_bytes(parquet_of(EDGES))
    words = ["--nodes", "nodes.parquet", "--edges", "edges.parquet"]
    assert ended(folder, "train", *words, "--label", "topic", *QUICK, "--out", "other")[0] == 0
    one, other = (pq.read_table(folder / name / "predictions.parquet") for name in ("run", "other"))
    assert one.equals(other)
    assert ended(folder, "predict", "run", *words, "-o", "out.parquet")[0] == 0
    assert pq.read_table(folder / "out.parquet").equals(one.drop(["part", "label"]))


def values(number: int, odd: Any = None, at: int = 6) -> list[Any]:
    """Texts that are numbers, but one."""
    found = [str(i) for i in range(number)]
    return [*found[:at], odd, *found[at + 1 :]]


LONG: dict[str, list[Any]] = {"id": list(range(40)), "age": values(40, "old"), "topic": ["art", "law"] * 20}
UNKNOWN = {"source": ["n00", "who", "n01", "n02", "x1"], "target": ["n01", "n02", "x2", "n03", "n04"]}
BAD_TABLES: dict[str, tuple[dict[str, bytes], str]] = {
    "an edge to an unknown id": (
        {"edges.csv": text_of({"source": ["n00", "n01"], "target": ["n01", "nobody"]})},
        "edges.csv: 1 edge names an id that is not in nodes.csv, column 'id': 'nobody' (column 'target', row 2).",
    ),
    "edges to unknown ids": (
        {"edges.csv": text_of({name: ends * 2 for name, ends in UNKNOWN.items()})},
        "edges.csv: 6 edges name ids that are not in nodes.csv, column 'id': the first 'who' (column 'source', row 2), "
        "'x2' (column 'target', row 3), 'x1' (column 'source', row 5).",
    ),
    "ids that stand twice": (
        {"nodes.csv": text_of(NODES, id=["n01", *NODES["id"][1:]])},
        "nodes.csv, column 'id': 1 id is in more than one row: 'n01' (rows 1 and 2).",
    ),
    "no column of labels": (
        {"nodes.csv": text_of(NODES, topic=None, topics=NODES["topic"])},
        "nodes.csv: Unknown column 'topic'. Did you mean 'topics'?",
    ),
    "no label at all": (
        {"nodes.csv": text_of(NODES, topic=[None] * NUM_NODES)},
        "nodes.csv, column 'topic': every label is missing; at least two classes are needed to learn.",
    ),
    "one class": (
        {"nodes.csv": text_of(NODES, topic=["art"] * NUM_NODES)},
        "nodes.csv, column 'topic': every known label is 'art'; at least two classes are needed to learn.",
    ),
    "labels that are measurements": (
        {"nodes.csv": text_of(NODES, topic=[1.0, 2.5] * 12)},
        "nodes.csv, column 'topic', row 2: the label is 2.5; labels must be classes, not a measure.",
    ),
    "too few labels": (
        {"nodes.csv": text_of(NODES, topic=["art", "law", "art"] + [None] * (NUM_NODES - 3))},
        "There are too few labels for a split: no class has three labelled nodes.",
    ),
    "a word among numbers": (
        {"nodes.csv": text_of(LONG), "edges.csv": b"source,target\n1,2\n"},
        "nodes.csv, column 'age', row 7: 'old' is not a number, but 39 of the column's 40 values are.",
    ),
    "bytes that are no text": (
        {"nodes.csv": text_of(NODES).replace(b"Lima", "L\u00edma".encode()).replace(b"Rome", b"R\xf4me", 1)},
        "nodes.csv, column 'city', row 3: the bytes are not UTF-8. Save the file as UTF-8.",
    ),
    "a column without a value": (
        {"nodes.csv": text_of(NODES, city=[None] * NUM_NODES)},
        "nodes.csv, column 'city': every value is missing; remove the column, or name those to use as features.",
    ),
    "an empty file": ({"nodes.csv": b""}, "nodes.csv: the file is empty."),
    "an empty table of edges": ({"edges.csv": b""}, "edges.csv: the file is empty."),
    "a row that is too short": (
        {"nodes.csv": text_of(NODES) + b"n99,5\n"},
        "nodes.csv, row 25: there are 2 values, but the header names 5.",
    ),
    "a weight below zero": (
        {"edges.csv": text_of(EDGES, weight=[1.0, -1.0] * 11)},
        "edges.csv, column 'weight', row 2: a weight must not be negative, got -1.",
    ),
}


@pytest.mark.parametrize(("files", "sentence"), BAD_TABLES.values(), ids=BAD_TABLES)
def test_a_bad_table_is_one_sentence_and_exit_code_2_and_nothing_is_written(
    files: dict[str, bytes], sentence: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    save(tmp_path, **files)
    assert refused(tmp_path, *TRAIN) == sentence


@pytest.mark.parametrize("length", [0.2, 0.5, 0.99])
def test_a_parquet_file_cut_short_is_refused(length: float, tmp_path: Path, refused: Callable[..., str]) -> None:
    whole = parquet_of(NODES)
    save(tmp_path, **{"nodes.parquet": whole[: int(length * len(whole))]})
    sentence = refused(tmp_path, "train", "--nodes", "nodes.parquet", *TRAIN[3:])
    assert sentence.startswith("nodes.parquet: the file is broken, cut short or of another kind")


BAD_WORDS: list[tuple[list[str], str]] = [
    (["--label", "topic"], "Tables need --nodes, --edges and --label; --nodes is missing."),
    (["--nodes", "nodes.csv", "--label", "topic"], "Tables need --nodes, --edges and --label; --edges is missing."),
    ([*TRAIN[1:5]], "Tables need --nodes, --edges and --label; --label is missing."),
    (["cora", *TRAIN[1:]], "Give a data set or tables, not both: 'cora' and --nodes."),
    ([*TRAIN[1:], "--id", "idd"], "nodes.csv: Unknown column 'idd'. Did you mean 'id'?"),
    ([*TRAIN[1:], "--id", "city"], "nodes.csv, column 'city': 3 ids are in more than one row"),
    (
        [*TRAIN[1:], "--id", "topic"],
        "nodes.csv, column 'topic': the column of ids cannot also hold the labels or the split.",
    ),
    ([*TRAIN[1:], "--source", "from"], "edges.csv: Unknown column 'from'."),
    ([*TRAIN[1:], "--weight", "heavy"], "edges.csv: Unknown column 'heavy'."),
    ([*TRAIN[1:], "--split-column", "city"], "nodes.csv, column 'city', row 1: 'lima' is no part of a split"),
    ([*TRAIN[1:], "--split", "public"], "Unknown split 'public'. Known: given, stratified."),
    ([*TRAIN[1:], "--split", "given"], "Split 'given': the table of nodes has no column that says train, val or test."),
    ([*TRAIN[1:], "--nodes", "none.csv"], "none.csv: there is no such file."),
    ([*TRAIN[1:], "--nodes", "."], ".: unknown ending ''."),
]


@pytest.mark.parametrize(("words", "sentence"), BAD_WORDS, ids=[sentence for _, sentence in BAD_WORDS])
def test_options_that_do_not_fit_the_tables_are_refused(
    words: list[str], sentence: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    save(tmp_path)
    assert refused(tmp_path, "train", *words).startswith(sentence)


BAD_NEW: dict[str, tuple[dict[str, Any], str]] = {
    "a column missing": ({"age": None}, "new.csv: there is no column 'age', from which the model was trained."),
    "words for numbers": (
        {"age": values(NUM_NODES, "old")},
        "new.csv, column 'age', row 7: the value is 'old', but the model was trained on numbers.",
    ),
    "numbers for truth values": (
        {"member": [0, 1] * 12},
        "new.csv, column 'member', row 1: the value is '0', but the model was trained on true and false.",
    ),
    "an id missing": ({"id": [*NODES["id"][:-1], None]}, "new.csv, column 'id', row 24: the id is missing."),
    "no ids": ({"id": None}, "new.csv: Unknown column 'id'. Known: age, city, member, topic."),
}


@pytest.mark.parametrize(("changes", "sentence"), BAD_NEW.values(), ids=BAD_NEW)
def test_tables_that_differ_from_the_training_s_are_refused_at_prediction(
    changes: dict[str, Any], sentence: str, folder: Path, refused: Callable[..., str]
) -> None:
    (folder / "new.csv").write_bytes(text_of(NODES, **changes))
    assert refused(folder, *PREDICT).startswith(sentence)


def test_a_parquet_file_of_another_type_is_refused_at_prediction(folder: Path, refused: Callable[..., str]) -> None:
    (folder / "new.parquet").write_bytes(parquet_of(NODES | {"city": list(range(NUM_NODES))}))
    words = [word.replace("new.csv", "new.parquet") for word in PREDICT]
    sentence = "new.parquet, column 'city', row 1: the value is '0', but the model was trained on texts."
    assert refused(folder, *words) == sentence


def test_an_edge_to_an_unknown_id_is_refused_at_prediction_too(folder: Path, refused: Callable[..., str]) -> None:
    (folder / "new.csv").write_bytes(text_of({name: column[:3] for name, column in NODES.items()}))
    sentence = refused(folder, *PREDICT)
    assert sentence.startswith("edges.csv: 21 edges name ids that are not in new.csv, column 'id': the first 'n03'")


def test_a_folder_without_a_run_and_a_run_on_no_tables_cannot_predict(
    folder: Path, ended: Callable[..., Ended], refused: Callable[..., str]
) -> None:
    assert "nowhere holds no complete run" in refused(folder, "predict", "nowhere", *PREDICT[2:])
    assert ended(folder, "train", "csbm", "--set", "data.num_nodes=40", *QUICK, "--out", "csbm")[0] == 0
    assert "this run was not trained on tables" in refused(folder, "predict", "csbm", *PREDICT[2:])


def test_flags_are_laid_over_the_configuration_of_a_run(folder: Path, ended: Callable[..., Ended]) -> None:
    code, _, err = ended(folder, "train", "--config", "run/config.toml", "--directed", "--out", "other")
    assert (code, err) == (0, "")
    assert read_toml(folder / "other" / "config.toml")["data"]["directed"] is True


def test_predictions_are_not_written_as_parquet_under_another_ending(folder: Path, refused: Callable[..., str]) -> None:
    assert "out.csv" in refused(folder, *PREDICT[:-1], "out.csv")


def test_predict_leaves_the_run_s_own_files_alone(folder: Path, refused: Callable[..., str]) -> None:
    assert "run/predictions.parquet" in refused(folder, *PREDICT[:-1], "run/predictions.parquet")


def test_features_of_tables_are_not_normalised_in_silence(tmp_path: Path, refused: Callable[..., str]) -> None:
    save(tmp_path)
    assert "row_normalize" in refused(tmp_path, *TRAIN, "--set", "data.row_normalize=true")


def test_a_line_end_in_a_column_s_name_does_not_break_the_sentence(tmp_path: Path, refused: Callable[..., str]) -> None:
    save(tmp_path, **{"edges.csv": b'source,"tar\nget"\nn\xc3\xa9,n\xff1\n'})
    assert "row 1: the bytes are not UTF-8" in refused(tmp_path, *TRAIN)


SMALL = {name: column[:8] for name, column in NODES.items()}
SMALL_EDGES = {name: column[:6] for name, column in EDGES.items()} | {"weight": [1.0, 2.0, 0.5] * 2}
FILES = {
    "csv": (text_of(SMALL), text_of(SMALL_EDGES)),
    "parquet": (parquet_of(SMALL), parquet_of(SMALL_EDGES)),
}
ODD_BYTES = st.one_of(
    st.binary(max_size=2), st.sampled_from([b",", b"\n", b'"', b"\xff", b"NA", b"1e999", b"9", b"n0"])
)
CHANGES = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3), ODD_BYTES), min_size=1, max_size=2)


@settings(
    max_examples=60,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(ending=st.sampled_from(["csv", "csv", "parquet"]), which=st.integers(0, 1), changes=CHANGES)
def test_mutated_files_train_or_end_in_one_sentence_with_nothing_written(
    ending: str, which: int, changes: list[tuple[float, int, bytes]], tmp_path: Path, ended: Callable[..., Ended]
) -> None:
    contents = list(FILES[ending])
    for place, length, inserted in changes:
        at = int(place * len(contents[which]))
        contents[which] = contents[which][:at] + inserted + contents[which][at + length :]
    shutil.rmtree(tmp_path / "run", ignore_errors=True)
    names = [f"nodes.{ending}", f"edges.{ending}"]
    for name, content in zip(names, contents, strict=True):
        (tmp_path / name).write_bytes(content)
    tables = ["--nodes", names[0], "--edges", names[1], "--label", "topic"]
    code, out, err = ended(tmp_path, "train", *tables, *QUICK, "--set", "max_epochs=1", "--out", "run", "--json")
    is_written = (tmp_path / "run" / "record.json").exists()
    left = {path.name for path in tmp_path.iterdir()}
    assert (code, is_written, err.count("\n"), bool(out)) in ((0, True, 0, True), (2, False, 1, False))
    assert left - {"run"} <= {f"{name}.{end}" for name in ("nodes", "edges") for end in FILES}
    assert ("run" in left) == is_written


def test_a_label_column_named_none_is_trained_read_and_repeated(tmp_path: Path, ended: Callable[..., Ended]) -> None:
    nodes = {("none" if name == "topic" else name): values for name, values in NODES.items()}
    save(tmp_path, **{"nodes.csv": text_of(nodes)})
    command = ["train", "--nodes", "nodes.csv", "--edges", "edges.csv", "--label", "none", *QUICK]
    assert ended(tmp_path, *command, "--out", "run")[0] == 0
    assert ended(tmp_path, *command, "--out", "run")[0] == 0
    assert ended(tmp_path, "train", "--config", "run/config.toml", "--out", "again")[0] == 0
    one, other = (read_json(tmp_path / folder / "record.json") for folder in ("run", "again"))
    assert one["result"] == other["result"]


def test_a_column_named_none_is_a_column(tmp_path: Path, ended: Callable[..., Ended]) -> None:
    save(tmp_path, **{"nodes.csv": text_of(NODES, topic=None, none=NODES["topic"])})
    words = ["train", *TRAIN[1:5], "--label", "none", *QUICK, "--out", "run"]
    code, out, err = ended(tmp_path, *words)
    assert (code, err) == (0, "")
    assert "labels from column 'none'" in out
    assert ended(tmp_path, *words)[::2] == (0, "")
