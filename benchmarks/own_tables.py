"""Writes the tables of the largest example: 100,000 nodes, 1,000,000 edges, 50 columns of numbers, kinds and texts.

python benchmarks/own_tables.py FOLDER     # writes nodes.csv and edges.csv
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv

NUM_NODES, NUM_EDGES, NUM_CLASSES = 100_000, 1_000_000, 8
NUM_NUMBERS, NUM_CATEGORIES, NUM_TEXTS, NUM_WORDS = 25, 10, 13, 20_000


def main(folder: Path) -> None:
    """Classes show a little in every column, three edges of ten are within a class, half of the labels are known."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    y = rng.integers(NUM_CLASSES, size=NUM_NODES)
    names = np.array([f"user-{number:07}" for number in range(NUM_NODES)])
    columns: dict[str, object] = {"id": names}
    for number in range(NUM_NUMBERS):
        values = (rng.normal(size=NUM_NODES) + 0.15 * rng.normal(size=NUM_CLASSES)[y]).round(4)
        columns[f"number_{number}"] = pa.array(values, mask=rng.random(NUM_NODES) < 0.02)
    for number in range(NUM_CATEGORIES):
        shifted = np.where(rng.random(NUM_NODES) < 0.1, y, rng.integers(20, size=NUM_NODES))
        columns[f"category_{number}"] = np.array([f"kind {kind}" for kind in range(20)])[shifted]
    words = np.array([f"word{number}" for number in range(NUM_WORDS)])
    shares = 1 / np.arange(1, NUM_WORDS + 1)
    for number in range(NUM_TEXTS):
        drawn = rng.choice(NUM_WORDS, p=shares / shares.sum(), size=(NUM_NODES, 12))
        # One word in twelve tells the class.
        drawn[:, 0] = np.where(rng.random(NUM_NODES) < 0.1, 100 + y, drawn[:, 0])
        columns[f"text_{number}"] = pa.array([" ".join(row) for row in words[drawn]])
    topics = np.array([f"topic {label}" for label in range(NUM_CLASSES)])[y]
    columns["topic"] = pa.array(topics, mask=rng.random(NUM_NODES) < 0.5)
    order = rng.permutation(NUM_NODES)
    pcsv.write_csv(pa.table(columns).take(pa.array(order)), folder / "nodes.csv")
    source = rng.integers(NUM_NODES, size=NUM_EDGES)
    by_class = np.argsort(y, kind="stable")
    starts = np.searchsorted(y[by_class], np.arange(NUM_CLASSES + 1))
    sizes = np.diff(starts)
    within = by_class[starts[y[source]] + (rng.random(NUM_EDGES) * sizes[y[source]]).astype(int)]
    target = np.where(rng.random(NUM_EDGES) < 0.3, within, rng.integers(NUM_NODES, size=NUM_EDGES))
    pcsv.write_csv(pa.table({"source": names[source], "target": names[target]}), folder / "edges.csv")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
