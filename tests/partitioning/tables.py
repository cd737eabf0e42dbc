"""Tables of nodes and edges as tests of streaming use them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.feather as feather
import pyarrow.parquet as pq

NUM_NODES = 600
MEMORY = 40e6
OPTIONS: dict[str, Any] = {"label": "topic", "as_is": True}


def node_table(kind: str = "plain", seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    ids: dict[str, Any] = {
        "plain": np.arange(NUM_NODES),
        "whole": rng.choice(10**12, NUM_NODES, replace=False),
        "text": [f"node {number}é" for number in rng.permutation(NUM_NODES)],
    }
    return {
        "id": pa.array(ids[kind]),
        "topic": pa.array(np.array(["b", "a", "c"])[rng.integers(3, size=NUM_NODES)], mask=rng.random(NUM_NODES) < 0.1),
        "size": rng.normal(size=NUM_NODES),
        "weight": rng.normal(size=NUM_NODES).astype(np.float32),
        "age": rng.integers(1, 90, size=NUM_NODES),
        "is_new": rng.random(NUM_NODES) < 0.6,
        "name": pa.array(["nobody"] * NUM_NODES),
        "split": pa.array(rng.choice(["train", "Val", "test"], NUM_NODES)),
    }


def edge_table(nodes: dict[str, Any], weighted: bool = False) -> dict[str, Any]:
    """Edges within groups of fifty and a few others, some of them twice, both ways, or from a node to itself."""
    rng = np.random.default_rng(1)
    sources = rng.integers(NUM_NODES, size=4000)
    targets = np.where(rng.random(4000) < 0.9, sources // 50 * 50 + rng.integers(50, size=4000), 7)
    sources, targets = (
        np.concatenate([one, one[:300], other[:200]]) for one, other in ((sources, targets), (targets, sources))
    )
    table = {"source": nodes["id"].take(pa.array(sources)), "target": nodes["id"].take(pa.array(targets))}
    weight = np.where(rng.random(len(sources)) < 0.05, 0.0, rng.random(len(sources)))
    return {**table, "weight": pa.array(weight)} if weighted else table


def saved(folder: Path, ending: str, nodes: dict[str, Any], edges: dict[str, Any]) -> tuple[Path, Path]:
    paths = folder / f"nodes.{ending}", folder / f"edges.{ending}"
    for path, columns in zip(paths, (nodes, edges), strict=True):
        table = pa.table(columns)
        if ending == "parquet":
            pq.write_table(table, path, row_group_size=250)
        elif ending == "csv":
            arrow_csv.write_csv(table, path)
        elif ending == "arrow":
            pl.DataFrame(table).cast({"topic": pl.Categorical} if "topic" in columns else {}).write_ipc(path)
        else:
            feather.write_feather(table, path, chunksize=170)
    return paths
