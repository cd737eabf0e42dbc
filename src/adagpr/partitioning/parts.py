"""A partitioned graph on disk: one folder per part, and a manifest that is written last.

Nodes are numbered by part: part ``p`` has the numbers from ``offsets[p]`` to ``offsets[p + 1]``, within a part in the
order of the graph. The files of a part are read by memory map:

- ``nodes.arrow``: ``node_id``, and ``position``, the place of the node in the order of the whole graph.
- ``graph.safetensors``: the rows of the adjacency as ``indptr`` and ``columns``, with ``weights`` unless all are 1. A
  column below the part's number of nodes is one of its own nodes; further columns count through ``halo``, the numbers
  of the nodes of other parts that its rows read, in ascending order. ``degree`` and ``halo_degree`` are the sums of
  whole rows of the adjacency, ``y`` the classes (-1 where unknown) and ``role`` 1, 2 or 3 for train, val and test
  nodes, else 0.
- ``features.safetensors``: ``x``, or of sparse features ``indptr``, ``columns`` and ``values``.

Each file names the partition that it belongs to, and the manifest has its size and its SHA-256 sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import safetensors.torch
import scipy.sparse as sp
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from adagpr.errors import InputError
from adagpr.files import make_folder, sha256_file, write_atomically, write_json
from adagpr.graph import SPLIT_NAMES, Split
from adagpr.schemas import (
    Kind,
    PartitionManifest,
    check_columns,
    check_tensors,
    damaged,
    read_json,
    reading,
    with_sum,
)

FORMAT = 1
FILES = ("nodes.arrow", "graph.safetensors", "features.safetensors")
# The number of each part of the split.
_WAY_OUT = "Copy the part from where the partition was made, or partition again."
ROLES = {name: number for number, name in enumerate(SPLIT_NAMES, 1)}
Method = Literal["metis", "greedy"]


@dataclass(frozen=True)
class PartInfo:
    """One part in the manifest."""

    num_nodes: int
    num_edges: int
    num_halo: int
    num_cut: int  # entries whose column is in another part
    files: dict[str, dict[str, Any]]  # size in bytes and SHA-256 sum of each


@dataclass(frozen=True)
class Manifest:
    """What is known of a partition without opening its parts; notes, origin and recipe are those of its `Graph`."""

    key: str  # names the partition; each of its files carries it
    name: str
    num_features: int
    class_names: tuple[str, ...]
    is_symmetric: bool  # every edge has its reverse with the same weight
    method: Method
    split: str
    num_train: int
    num_val: int
    num_test: int
    graph_sha256: str
    split_sha256: str
    parts: tuple[PartInfo, ...]
    notes: tuple[str, ...] = ()
    origin: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] | None = None

    @property
    def num_nodes(self) -> int:
        """Nodes of the graph."""
        return sum(part.num_nodes for part in self.parts)

    @property
    def num_edges(self) -> int:
        """Stored entries of the adjacency."""
        return sum(part.num_edges for part in self.parts)

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def edge_cut(self) -> int:
        """Entries between two parts."""
        return sum(part.num_cut for part in self.parts)

    @cached_property
    def offsets(self) -> np.ndarray:
        """The first number of each part, and the number of nodes at the end."""
        return np.concatenate([[0], np.cumsum([part.num_nodes for part in self.parts])]).astype(np.int64)

    def write(self, folder: Path) -> None:
        """Writes the manifest, after which the partition is complete."""
        totals = {"num_nodes": self.num_nodes, "num_edges": self.num_edges, "edge_cut": self.edge_cut}
        write_json(folder / "manifest.json", with_sum({"format": FORMAT, **totals, **asdict(self)}))


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a graph's adjacency with all that belongs to their nodes; what a part is written from and read as.

    Fields are as in the files; columns of ``adj`` and entries of ``degree`` are the nodes, then those of ``halo``.
    """

    adj: sp.csr_array
    degree: np.ndarray
    halo: np.ndarray
    x: Tensor | sp.csr_array
    y: Tensor
    role: np.ndarray
    node_ids: pa.Array
    position: np.ndarray

    @property
    def num_nodes(self) -> int:
        """Number of rows."""
        return int(self.adj.shape[0])


def roles(split: Split, num_nodes: int) -> np.ndarray:
    """The role of each node."""
    role = np.zeros(num_nodes, dtype=np.int8)
    for name, number in ROLES.items():
        role[getattr(split, name).numpy()] = number
    return role


def positions(role: np.ndarray, part: str) -> Tensor:
    """The positions of the train, val or test nodes among nodes of these roles."""
    return torch.from_numpy(np.flatnonzero(role == ROLES[part]))


class Part:
    """One part of a partition, read by memory map."""

    def __init__(self, folder: Path, number: int, manifest: Manifest) -> None:
        self.folder = folder / part_name(number)
        self.number = number
        self._manifest = manifest
        self.info = manifest.parts[number]

    def check(self) -> None:
        """Raises an `InputError` that names the first file which is missing, altered or of another partition."""
        for name in FILES:
            path, known = self._path(name), self.info.files[name]
            if not path.is_file():
                raise InputError(f"{path} is missing. Copy it from where the partition was made, or partition again.")
            key = _key_of(path)
            if key is not None and key != self._manifest.key:
                raise InputError(f"{path} belongs to another partition than {self.folder.parent / 'manifest.json'}.")
            if path.stat().st_size != known["bytes"] or sha256_file(path) != known["sha256"]:
                raise InputError(f"{path} was altered: its sum differs from the manifest's. Partition again.")
        graph, x = self.tensors("graph.safetensors"), self.features()
        for name, indices, most in (
            ("y", graph["y"], self._manifest.num_classes),
            ("columns", graph["columns"], self.info.num_nodes + self.info.num_halo),
            ("x", x.indices if isinstance(x, sp.csr_array) else np.empty(0), self._manifest.num_features),
        ):
            if len(indices) and int(indices.max()) >= most:
                raise damaged(self.folder, f"'{name}' holds {int(indices.max())}, must be below {most}", _WAY_OUT)

    def _path(self, name: str) -> Path:
        """A file of the part; a link out of the folder of the partition is an `InputError`."""
        path = self.folder / name
        if not path.resolve().is_relative_to(self.folder.parent.resolve()):
            raise InputError(f"{path} leads out of the folder of the partition. Copy the file in its place.")
        return path

    def nodes(self) -> pa.Table:
        """Ids and positions of the nodes."""
        path = self._path("nodes.arrow")
        with reading(path, _WAY_OUT), pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
        check_columns(path, table, {"node_id": "id", "position": "whole"}, self.info.num_nodes, _WAY_OUT)
        return table

    def tensors(self, name: str) -> dict[str, Tensor]:
        """All tensors of a file, mapped into memory and not copied."""
        path = self._path(name)
        with reading(path, _WAY_OUT):
            tensors = safetensors.torch.load_file(path)
        check_tensors(path, tensors, self._kinds(name, tensors), _WAY_OUT)
        return tensors

    def _kinds(self, name: str, tensors: Mapping[str, Tensor]) -> dict[str, Kind]:
        """The tensors that belong into a file."""

        def one_of(key: str, *dtypes: torch.dtype) -> torch.dtype:
            return tensors[key].dtype if key in tensors and tensors[key].dtype in dtypes else dtypes[0]

        size, num_edges, halo = self.info.num_nodes, self.info.num_edges, self.info.num_halo
        found: dict[str, Kind] = {"indptr": (torch.int64, (size + 1,))}
        if name == "graph.safetensors":
            found["columns"] = (one_of("columns", torch.int32, torch.int64), (num_edges,))
            if "weights" in tensors:
                found["weights"] = (one_of("weights", torch.float32, torch.float64), (num_edges,))
            found |= {"degree": (torch.float64, (size,)), "halo_degree": (torch.float64, (halo,))}
            return found | {"halo": (torch.int64, (halo,)), "y": (torch.int64, (size,)), "role": (torch.int8, (size,))}
        if "x" in tensors:
            return {"x": (torch.float32, (size, self._manifest.num_features))}
        values = len(tensors.get("values", ()))
        return {**found, "columns": (torch.int32, (values,)), "values": (torch.float32, (values,))}

    def rows(self) -> Rows:
        """The part as one block of rows."""
        graph, nodes = self.tensors("graph.safetensors"), self.nodes()
        shape = (self.info.num_nodes, self.info.num_nodes + self.info.num_halo)
        columns = graph["columns"].numpy()
        weights = graph["weights"].numpy() if "weights" in graph else np.ones(len(columns), dtype=np.float32)
        return Rows(
            sp.csr_array((weights, columns, graph["indptr"].numpy()), shape=shape),
            torch.cat([graph["degree"], graph["halo_degree"]]).numpy(),
            graph["halo"].numpy(),
            self.features(),
            graph["y"],
            graph["role"].numpy(),
            nodes["node_id"].combine_chunks(),
            nodes["position"].to_numpy(),
        )

    def targets(self) -> tuple[Tensor, np.ndarray]:
        """The classes of the nodes, and what each is for."""
        graph = self.tensors("graph.safetensors")
        return graph["y"], graph["role"].numpy()

    def features(self) -> Tensor | sp.csr_array:
        """The features of the nodes."""
        stored = self.tensors("features.safetensors")
        if "x" in stored:
            return stored["x"]
        shape = (self.info.num_nodes, self._manifest.num_features)
        arrays = (stored["values"].numpy(), stored["columns"].numpy(), stored["indptr"].numpy())
        return sp.csr_array(arrays, shape=shape)


class Parts:
    """A complete partition: its folder, its manifest, and its parts by their number."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest

    def __len__(self) -> int:
        return len(self.manifest.parts)

    def __getitem__(self, number: int) -> Part:
        return Part(self.folder, range(len(self))[number], self.manifest)


def part_name(number: int) -> str:
    """The folder of a part."""
    return f"part-{number:05d}"


def open_parts(folder: Path | str) -> Parts:
    """Reads the manifest of a partition; its parts are read when they are asked for."""
    folder = Path(folder)
    path = folder / "manifest.json"
    if not path.is_file():
        raise InputError(f"{folder} holds no complete partition: there is no manifest.json in it.")
    content = read_json(path, PartitionManifest, f"Remove the folder {folder} to partition anew.")
    known = {key: content[key] for key in Manifest.__dataclass_fields__ if key in content}
    parts = tuple(PartInfo(**part) for part in known.pop("parts"))
    known |= {key: tuple(content.get(key, ())) for key in ("class_names", "notes")}
    return Parts(folder, Manifest(parts=parts, **known))


def write_part(folder: Path, number: int, rows: Rows, key: str) -> PartInfo:
    """Writes the files of one part, columns ascending within each row, and returns its entry in the manifest."""
    own = folder / part_name(number)
    make_folder(own)
    size, index = rows.num_nodes, torch.int32 if rows.adj.shape[1] < 2**31 else torch.int64
    graph = {
        "indptr": torch.from_numpy(rows.adj.indptr.astype(np.int64)),
        "columns": torch.from_numpy(rows.adj.indices).to(index),
        "degree": torch.from_numpy(rows.degree[:size].astype(np.float64)),
        "halo": torch.from_numpy(rows.halo.astype(np.int64)),
        "halo_degree": torch.from_numpy(rows.degree[size:].astype(np.float64)),
        "y": rows.y,
        "role": torch.from_numpy(rows.role.astype(np.int8)),
    }
    if not (rows.adj.data == 1).all():
        graph["weights"] = torch.from_numpy(rows.adj.data)
    _write_safetensors(own / "graph.safetensors", graph, key)
    if isinstance(rows.x, Tensor):
        features = {"x": rows.x.float()}
    else:
        features = {
            "indptr": torch.from_numpy(rows.x.indptr.astype(np.int64)),
            "columns": torch.from_numpy(rows.x.indices.astype(np.int32)),
            "values": torch.from_numpy(rows.x.data.astype(np.float32)),
        }
    _write_safetensors(own / "features.safetensors", features, key)
    table = pa.table({"node_id": rows.node_ids, "position": rows.position.astype(np.int64)})
    write_atomically(own / "nodes.arrow", lambda path: write_arrow(path, table, key))
    files = {name: {"bytes": (own / name).stat().st_size, "sha256": sha256_file(own / name)} for name in FILES}
    num_cut = int((rows.adj.indices >= size).sum())
    return PartInfo(size, int(rows.adj.nnz), len(rows.halo), num_cut, files)


def _write_safetensors(path: Path, tensors: dict[str, Tensor], key: str) -> None:
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    write_atomically(path, lambda temporary: safetensors.torch.save_file(contiguous, temporary, {"partition": key}))


def write_arrow(path: Path, table: pa.Table, key: str) -> None:
    """Writes a table that can be mapped into memory, with the key of its partition."""
    schema = table.schema.with_metadata({"partition": key})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_table(table.cast(schema))


def _key_of(path: Path) -> str | None:
    """The partition that a file names; none if it cannot be read."""
    try:
        if path.suffix == ".arrow":
            with pa.memory_map(str(path)) as source:
                return str((pa.ipc.open_file(source).schema.metadata or {})[b"partition"].decode())
        with safe_open(path, "pt") as file:
            return str(file.metadata()["partition"])
    except (OSError, KeyError, TypeError, ValueError, SafetensorError, pa.ArrowException):
        return None
