"""Degrees and spectrum of the paper's seven sets: do large degrees go with a small spectrum, as its section 4 says?

python benchmarks/spectra.py                  # writes results/spectra.json
python benchmarks/spectra.py --table          # prints the table for docs

Edges are read both ways, as the theory needs, and every node is its own neighbour. Degrees count neighbours other than
the node itself. Sets of up to 5,000 nodes by all their eigenvalues, Pubmed by stochastic Lanczos quadrature.
"""

from __future__ import annotations

import sys
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from adagpr.data import load
from adagpr.files import read_json, write_json
from adagpr.ops import normalise, spectrum
from adagpr.seeding import stream

PATH = Path(__file__).parent.parent / "results" / "spectra.json"
SETS = ("cora", "citeseer", "pubmed", "chameleon", "cornell", "texas", "wisconsin")
HOPS = (1, 2, 3)
MEASURES = ("max_degree", "mean_degree")


def measured(name: str) -> dict[str, Any]:
    """Degrees and mean powers of the absolute eigenvalues of one set."""
    graph, _ = load(name)
    degrees = graph.num_neighbours
    found = spectrum(normalise(graph.adj, "symmetric", True), num_probes=32, generator=stream(0, "spectra"))
    powers = found.powers(HOPS[-1] + 1)
    return {
        "name": name,
        "num_nodes": graph.num_nodes,
        "max_degree": int(degrees.max()),
        "mean_degree": float(degrees.mean()),
        "is_exact": found.is_exact,
        "mean_power": {str(k): powers[k].value / graph.num_nodes for k in HOPS},
        "error": {str(k): powers[k].error / graph.num_nodes for k in HOPS},
    }


def rank_correlation(one: list[float], other: list[float]) -> dict[str, float]:
    """Spearman's rank correlation, and the share of all orders of the sets in which it is as far from 0."""
    x, y = rankdata(one), rankdata(other)
    orders = y[np.array(list(permutations(range(len(y)))))]
    every = (orders - y.mean()) @ (x - x.mean()) / (len(x) * x.std() * y.std())
    found = float(np.corrcoef(x, y)[0, 1])
    return {"correlation": found, "p_value": float((abs(every) >= abs(found) - 1e-9).mean())}


def agreement(rows: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """How each kind of degree goes with each mean power: the paper's claim is that the correlation is negative."""
    return {
        measure: {
            str(k): rank_correlation([row[measure] for row in rows], [row["mean_power"][str(k)] for row in rows])
            for k in HOPS
        }
        for measure in MEASURES
    }


def table(record: dict[str, Any]) -> None:
    """Prints the record as Markdown."""
    print("| set | nodes | maximum degree | mean degree | " + " | ".join(f"k = {k}" for k in HOPS) + " |")
    print("| --- |" + " --- |" * (3 + len(HOPS)))
    for row in record["sets"]:
        cells = []
        for k in map(str, HOPS):
            error = "" if row["is_exact"] else f" +- {row['error'][k]:.1g}"
            cells.append(f"{row['mean_power'][k]:.4f}{error}")
        head = f"{row['name']} | {row['num_nodes']} | {row['max_degree']} | {row['mean_degree']:.2f}"
        print(f"| {head} | {' | '.join(cells)} |")
    for measure in MEASURES:
        cells = []
        for k in map(str, HOPS):
            item = record["rank_correlation"][measure][k]
            cells.append(f"{item['correlation']:+.2f} (p = {item['p_value']:.3f})")
        print(f"| rank correlation with {measure.replace('_', ' ')} | | | | {' | '.join(cells)} |")


def main() -> None:
    """Measures all sets, or prints what was measured."""
    if "--table" in sys.argv[1:]:
        table(read_json(PATH))
        return
    rows = []
    for name in SETS:
        rows.append(measured(name))
        print(rows[-1], flush=True)
    write_json(PATH, {"sets": rows, "rank_correlation": agreement(rows)})


if __name__ == "__main__":
    main()
