"""Products of a whole graph that lies on disk, part by part: exact, in memory that does not grow with the graph.

The normalised rows of each part are written once into a folder and mapped from there. A product reads its left side
part by part; its right side and its result may be matrices on disk themselves (see `adagpr.ops.on_disk`). With
one part it is the product of the whole graph, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import safetensors.torch
import torch
from safetensors import safe_open
from torch import Tensor

from adagpr.errors import InputError
from adagpr.ops import Operator, csr, csr_tensor, multiply
from adagpr.partitioning.operators import normalised
from adagpr.partitioning.parts import Parts

__all__ = ["StoredOperator", "stored_operator"]

_TENSORS = ("crow_indices", "col_indices", "values")


@dataclass(frozen=True, eq=False)
class StoredOperator(Operator):
    """The normalised adjacency of a partition, on disk; there is no transpose, hence no gradient.

    Attributes:
        parts: The partition.
        folder: Where its normalised rows are.
    """

    parts: Parts
    folder: Path

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.parts.manifest.num_nodes

    def multiply(self, h: Tensor, out: Tensor, transposed: bool = False) -> Tensor:
        """The operator times ``h``, written into ``out`` part by part."""
        if transposed:
            raise InputError("StoredOperator: there is no transpose, hence no gradient.")
        offsets = self.parts.manifest.offsets.tolist()
        for number, (start, end) in enumerate(pairwise(offsets)):
            own, outer, halo = self._read(number)
            rows = multiply(own, h[start:end], out[start:end])
            if len(halo):
                rows.addmm_(outer, h.index_select(0, halo))
        return out

    def single_matrix(self, transposed: bool = False) -> None:
        """None: the matrix lies in parts."""

    def _read(self, number: int) -> tuple[Tensor, Tensor, Tensor]:
        """What the nodes of a part read of each other, what they read elsewhere, and where."""
        info = self.parts.manifest.parts[number]
        with safe_open(_file(self.folder, number), "pt") as file:
            own = _matrix(file, "own", (info.num_nodes, info.num_nodes))
            return own, _matrix(file, "outer", (info.num_nodes, info.num_halo)), file.get_tensor("halo")


def _matrix(file: Any, name: str, shape: tuple[int, int]) -> Tensor:
    rows, columns, values = (file.get_tensor(f"{name}.{key}") for key in _TENSORS)
    return csr(rows, columns, values, shape)


def _file(folder: Path, number: int) -> Path:
    return folder / f"{number}.safetensors"


@contextmanager
def stored_operator(parts: Parts, self_loops: bool, folder: Path) -> Iterator[StoredOperator]:
    """Writes the normalised rows of all parts, and removes them when the context ends.

    Args:
        parts: The partition.
        self_loops: Whether to add the identity before normalising.
        folder: A folder with room for them.
    """
    with TemporaryDirectory(prefix="rows-", dir=folder) as name:
        own = Path(name)
        for number in range(len(parts)):
            rows = parts[number].rows()
            tensors = {"halo": torch.from_numpy(rows.halo)}
            for key, matrix in zip(("own", "outer"), normalised(rows, self_loops), strict=True):
                tensor = csr_tensor(matrix)
                tensors |= {f"{key}.{part}": getattr(tensor, part)() for part in _TENSORS}
            safetensors.torch.save_file(tensors, _file(own, number))
        empty = torch.empty(0)
        yield StoredOperator(empty, empty, "directed", self_loops, parts, own)
