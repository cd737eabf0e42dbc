"""The files of a partition: what is missing, altered or of another partition is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from adagpr.errors import InputError
from adagpr.graph import Graph, Split
from adagpr.partitioning import Parts, open_parts, partition_graph
from adagpr.partitioning.parts import FILES


@pytest.fixture
def parts(tmp_path: Path, make_graph: Callable[..., Graph]) -> Parts:
    return made(make_graph(), tmp_path / "parts")


def made(graph: Graph, folder: Path) -> Parts:
    nodes = torch.arange(graph.num_nodes)
    return partition_graph(graph, Split(nodes[:10], nodes[10:20], nodes[20:]), 3, folder)


def test_a_fresh_partition_passes_its_check(parts: Parts) -> None:
    assert len(parts) == 3
    again = open_parts(parts.folder)
    for number in range(3):
        again[number].check()


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(parts: Parts, name: str) -> None:
    (parts[1].folder / name).unlink()
    with pytest.raises(InputError, match=f"part-00001/{name} is missing"):
        parts[1].check()


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_short_is_named(parts: Parts, name: str) -> None:
    path = parts[1].folder / name
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(InputError, match=f"{name} was altered"):
        parts[1].check()


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_found_by_the_sums(parts: Parts, name: str) -> None:
    path = parts[2].folder / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"{name} was altered"):
        parts[2].check()


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_partition_is_named(
    tmp_path: Path, parts: Parts, make_graph: Callable[..., Graph], name: str
) -> None:
    other = made(make_graph(seed=1), tmp_path / "other")
    shutil.copy(other[0].folder / name, parts[0].folder / name)
    with pytest.raises(InputError, match=f"{name} belongs to another partition"):
        parts[0].check()


def test_a_folder_without_a_manifest_is_no_partition(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no complete partition"):
        open_parts(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 7}, "format must be 1, got 7"),
        ({"parts": []}, "parts must have at least 1 item"),
        ({"parts": [{"num_nodes": 3}]}, "parts.0.num_edges is missing"),
        ({"parts": None}, "parts must be a valid list"),
        ({"num_nodes": 3}, "num_nodes is not the sum over the parts"),
        ({"num_train": 1}, "its content does not have the sum in it"),
    ],
)
def test_a_manifest_that_is_none_is_refused(parts: Parts, change: dict[str, object], message: str) -> None:
    path = parts.folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError, match=message):
        open_parts(parts.folder)


def test_a_broken_manifest_is_named(parts: Parts) -> None:
    (parts.folder / "manifest.json").write_text("{")
    with pytest.raises(InputError, match=r"manifest\.json is damaged"):
        open_parts(parts.folder)


def test_a_file_that_cannot_be_read_is_named(parts: Parts) -> None:
    for name in FILES:
        (parts[0].folder / name).write_bytes(b"nothing")
    for read in (parts[0].nodes, parts[0].features, parts[0].rows):
        with pytest.raises(InputError, match="is damaged"):
            read()
