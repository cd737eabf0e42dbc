"""Products of a whole graph on disk, part by part: exact, in memory that does not grow with the graph.

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

import safetensors.torch
import torch
from torch import Tensor

from adagpr.errors import InputError
from adagpr.ops import Operator, csr, csr_tensor, multiply
from adagpr.partitioning.parts import Parts
from adagpr.partitioning.shards import normalised

_TENSORS = ("crow_indices", "col_indices", "values")


@dataclass(frozen=True, eq=False)
class StoredOperator(Operator):
    """The normalised adjacency of a partition, in files of ``folder``; it has no transpose and gives no gradient."""

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
        """None: the matrix is in several files."""

    def _read(self, number: int) -> tuple[Tensor, Tensor, Tensor]:
        """What the nodes of a part read of each other, what they read of its halo, and the numbers of that."""
        size, halo = self.parts[number].info.num_nodes, self.parts[number].info.num_halo
        stored = safetensors.torch.load_file(self.folder / f"{number}.safetensors")
        own, outer = (
            csr(*(stored[f"{name}.{key}"] for key in _TENSORS), (size, width))  # type: ignore[call-arg,arg-type]
            for name, width in (("own", size), ("outer", halo))
        )
        return own, outer, stored["halo"]


@contextmanager
def stored_operator(parts: Parts, self_loops: bool, folder: Path) -> Iterator[StoredOperator]:
    """Writes the normalised rows of all parts below ``folder``, and removes them when the context ends."""
    with TemporaryDirectory(prefix="rows-", dir=folder) as name:
        for number in range(len(parts)):
            rows = parts[number].rows()
            tensors = {"halo": torch.from_numpy(rows.halo)}
            for key, matrix in zip(("own", "outer"), normalised(rows, self_loops), strict=True):
                tensor = csr_tensor(matrix)
                tensors |= {f"{key}.{part}": getattr(tensor, part)() for part in _TENSORS}
            safetensors.torch.save_file(tensors, Path(name) / f"{number}.safetensors")
        empty = torch.empty(0)
        yield StoredOperator(empty, empty, "directed", self_loops, parts, Path(name))
