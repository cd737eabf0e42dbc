"""Writes a large R-MAT graph as two Arrow tables, in memory that does not grow with its edges.

    python benchmarks/large_graph.py FOLDER --nodes 5000000 --edges 50000000 --features 64 --classes 8 --seed 0

``--edges`` counts stored entries: half as many undirected edges are written, each once. The adjacency matrix is cut
into square cells by the first bits of both ends, each cell gets its share of the edges, and the edges of a cell are
drawn on their own: different cells never hold the same edge, so one cell is all that is ever in memory. The class of a
node is a hash of its number, its features are the mean of the class and noise, and one node in a hundred is for
training, one for validation and all others for test.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from adagpr.benchmarking import PROBABILITIES, descend
from adagpr.files import make_folder, write_atomically
from adagpr.seeding import stream

MAX_DRAWN = 1 << 22
ROWS_OF_BATCH = 1 << 17
SIGNAL = 0.25


def main() -> None:
    """Writes ``nodes.arrow`` and ``edges.arrow``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    for name, default in (("nodes", 5_000_000), ("edges", 50_000_000), ("features", 64), ("classes", 8), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    make_folder(given.folder)
    start = time.perf_counter()
    nodes = node_batches(given.nodes, given.features, given.classes, given.seed)
    write(given.folder / "nodes.arrow", nodes)
    write(given.folder / "edges.arrow", edge_batches(given.nodes, given.edges // 2, given.seed))
    for file in ("nodes.arrow", "edges.arrow"):
        print(f"{(given.folder / file).stat().st_size / 1e9:8.2f} GB  {given.folder / file}")
    print(f"{time.perf_counter() - start:8.1f} s")


def write(path: Path, batches: Iterator[pa.RecordBatch]) -> None:
    """Writes batches to an Arrow file as they come."""

    def fill(temporary: Path) -> None:
        first = next(batches)
        with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, first.schema) as writer:
            for batch in itertools.chain([first], batches):
                writer.write_batch(batch)

    write_atomically(path, fill)


def node_batches(num_nodes: int, num_features: int, num_classes: int, seed: int) -> Iterator[pa.RecordBatch]:
    """Ids, labels, parts of the split and features."""
    means = SIGNAL * stream(seed, "large means").standard_normal((num_classes, num_features), dtype=np.float32)
    noise = stream(seed, "large noise")
    parts = pa.array(["train", "val", "test"])
    for start in range(0, num_nodes, ROWS_OF_BATCH):
        ids = np.arange(start, min(start + ROWS_OF_BATCH, num_nodes))
        y = (mixed(ids, seed) % np.uint64(num_classes)).astype(np.int64)
        chance = mixed(ids, seed + 1) % np.uint64(100)
        part = pa.DictionaryArray.from_arrays(np.minimum(chance, 2).astype(np.int8), parts).cast(pa.string())
        x = noise.standard_normal((num_features, len(ids)), dtype=np.float32) + means.T[:, y]
        columns = {"id": ids, "y": y, "split": part, **{f"x{number}": row for number, row in enumerate(x)}}
        yield pa.RecordBatch.from_pydict(columns)


def mixed(numbers: np.ndarray, seed: int) -> np.ndarray:
    """A hash of each number (the finaliser of SplitMix64)."""
    word = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed * 0x632BE59B)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


def edge_batches(num_nodes: int, num_edges: int, seed: int) -> Iterator[pa.RecordBatch]:
    """The edges, cell by cell, with shuffled nodes."""
    place = stream(seed, "large nodes").permutation(num_nodes)
    generator = stream(seed, "large edges")
    width, cells = cells_of(num_nodes, num_edges)
    shares = np.array([share for _, _, share in cells])
    counts = generator.multinomial(num_edges, shares / shares.sum())
    for (row, column, _), count in zip(cells, counts, strict=True):
        keys = distinct_edges(row, column, width, int(count), num_nodes, generator)
        for start in range(0, len(keys), ROWS_OF_BATCH):
            part = keys[start : start + ROWS_OF_BATCH]
            yield pa.RecordBatch.from_pydict({"source": place[part // num_nodes], "target": place[part % num_nodes]})


def cells_of(num_nodes: int, num_edges: int) -> tuple[int, list[tuple[int, int, float]]]:
    """Bits of a place within a cell, and the cells on and above the diagonal with the share of edges in each."""
    num_bits = max(1, (num_nodes - 1).bit_length())
    depth = 0
    while depth < num_bits - 1 and PROBABILITIES[0] ** depth * num_edges * 1.5 > MAX_DRAWN:
        depth += 1
    width = num_bits - depth
    quarters = np.array(PROBABILITIES).reshape(2, 2)
    shares = np.ones((1, 1))
    for _ in range(depth):
        shares = np.kron(shares, quarters)
    last = (num_nodes - 1) >> width
    found = []
    for row in range(last + 1):
        for column in range(row, last + 1):
            both = shares[row, column] + (shares[column, row] if row < column else 0.0)
            # A cell at the end of the nodes is narrower; so is its share.
            inside = [min(1.0, (num_nodes - (place << width)) / (1 << width)) for place in (row, column)]
            found.append((row, column, both * inside[0] * inside[1]))
    return width, found


def distinct_edges(
    row: int, column: int, width: int, wanted: int, num_nodes: int, generator: np.random.Generator
) -> np.ndarray:
    """So many different edges of one cell as ``smaller * num_nodes + larger``, in random order."""
    keys = np.empty(0, dtype=np.int64)
    for _ in range(200):
        missing = wanted - len(keys)
        if missing <= 0:
            break
        drawn = draw(row, column, width, min(MAX_DRAWN, missing + missing // 3 + 16), num_nodes, generator)
        keys = np.unique(np.concatenate([keys, drawn]))
    generator.shuffle(keys)
    if len(keys) < wanted:
        raise SystemExit(f"Only {len(keys)} of {wanted} edges were found in a cell: ask for more nodes or fewer edges.")
    return keys[:wanted]


def draw(row: int, column: int, width: int, count: int, num_nodes: int, generator: np.random.Generator) -> np.ndarray:
    """Edges of one cell, those beyond the last node and self loops left out."""
    sources, targets = np.full(count, row, dtype=np.int64), np.full(count, column, dtype=np.int64)
    descend(sources, targets, width, generator)
    valid = (sources != targets) & (np.maximum(sources, targets) < num_nodes)
    sources, targets = sources[valid], targets[valid]
    return np.minimum(sources, targets) * num_nodes + np.maximum(sources, targets)


if __name__ == "__main__":
    main()
