"""The rows of the catalogue that the studies here share: AdaGPR as in the paper, on five data sets."""

from __future__ import annotations

from adagpr.data import load
from adagpr.experiments import Cell, Experiment, experiment
from adagpr.graph import Graph, Split

__all__ = ["ROWS", "paper_row"]

ROWS = {
    "cora": ("table2_adagpr_cora", 8),
    "texas": ("table3_adagpr_texas", 4),
    "cornell": ("table3_adagpr_cornell", 4),
    "chameleon": ("table3_adagpr_chameleon", 2),
    "wisconsin": ("table3_adagpr_wisconsin", 16),
}


def paper_row(dataset: str) -> tuple[Experiment, Cell, Graph, list[Split]]:
    """The row, its cell at the depth used here, and the data."""
    name, layers = ROWS[dataset]
    row = experiment(name)
    (cell,) = (cell for cell in row.cells() if cell.layers == layers)
    return row, cell, *load(row.dataset, row.split)
