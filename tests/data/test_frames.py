"""Data frames of pandas and polars, and what polars writes: the same graph as from an Arrow table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from adagpr import from_tables
from adagpr.errors import InputError

NUM_NODES = 30
NAMES = [f"node {number}" for number in range(NUM_NODES)]
NODES = pa.table(
    {
        "id": NAMES,
        "age": [None if number == 3 else number / 2 for number in range(NUM_NODES)],
        "city": [("rome", "oslo", "lima")[number % 3] for number in range(NUM_NODES)],
        "since": [datetime(2020, 1, 1, tzinfo=UTC) + timedelta(days=number) for number in range(NUM_NODES)],
        "is_new": [number % 2 == 0 for number in range(NUM_NODES)],
        "topic": [("x", "y", None)[number % 3] for number in range(NUM_NODES)],
    }
)
EDGES = pa.table({"source": NAMES, "target": NAMES[7:] + NAMES[:7]})
PANDAS, POLARS = NODES.to_pandas(), pl.DataFrame(NODES)
CATEGORIES: dict[Any, Any] = {"city": pl.Categorical, "topic": pl.Enum(["x", "y"])}
FRAMES: dict[str, Any] = {
    "pandas": PANDAS,
    "pandas with ids as index": PANDAS.set_index("id"),
    "pandas with categories": PANDAS.astype({"city": "category", "topic": "category"}),
    "pandas with its own missing values": PANDAS.convert_dtypes(),
    "pandas with objects": PANDAS.astype({"id": object, "city": object}),
    "pandas in another order": PANDAS.sample(frac=1, random_state=0),
    "polars": POLARS,
    "polars with categories": POLARS.cast(CATEGORIES),
    "polars in chunks": pl.concat([POLARS[:10], POLARS[10:]], rechunk=False),
    "columns of polars": {name: POLARS[name] for name in POLARS.columns},
}


@pytest.mark.parametrize("name", FRAMES)
def test_frames_give_the_graph_of_the_table(name: str) -> None:
    edges = EDGES.to_pandas() if "pandas" in name else pl.DataFrame(EDGES)
    graph, expected = (from_tables(*pair, label="topic") for pair in ((FRAMES[name], edges), (NODES, EDGES)))
    assert graph.fingerprint == expected.fingerprint
    assert graph.class_names == ("x", "y")


@pytest.mark.parametrize("ending", ["feather", "arrow", "parquet", "csv"])
def test_files_of_polars_give_the_graph_of_the_table(ending: str, tmp_path: Path) -> None:
    write = {"feather": "write_ipc", "arrow": "write_ipc_stream"}.get(ending, f"write_{ending}")
    files = tmp_path / f"nodes.{ending}", tmp_path / f"edges.{ending}"
    for frame, file in zip((POLARS.cast(CATEGORIES), pl.DataFrame(EDGES)), files, strict=True):
        getattr(frame, write)(file)
    assert from_tables(*files, label="topic").fingerprint == from_tables(NODES, EDGES, label="topic").fingerprint


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (POLARS.lazy(), "nodes: must be .* got LazyFrame"),
        (PANDAS["age"], "nodes: cannot be read as a table"),
        (PANDAS.assign(age=[1, "x"] * 15), "nodes: cannot be read as a table .*column age"),
    ],
)
def test_what_is_no_table_is_one_sentence(frame: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_tables(frame, EDGES, label="topic")
