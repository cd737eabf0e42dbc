"""The same files read by torch_geometric: where its classes agree with ours, and where they do not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from adagpr.data import load
from adagpr.data.catalogue import row
from adagpr.graph import Graph, Split

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")

WEBKB = [("cornell", "cornell"), ("cornell-corrected", "cornell"), ("texas", "texas"), ("wisconsin", "wisconsin")]


def raw_files(name: str, raw: Path, root: Path) -> None:
    raw.mkdir(parents=True)
    for file in row(name).files():
        shutil.copy(root / file, raw / Path(file).name)


def planetoid(name: str, split: str, folder: Path, root: Path) -> Any:
    from torch_geometric.datasets import Planetoid

    raw_files(name, folder / name / ("geom-gcn/raw" if split == "geom-gcn" else "raw"), root)
    return Planetoid(str(folder), name, split=split)[0]


def webkb(name: str, folder: Path, root: Path) -> Any:
    from torch_geometric.datasets import WebKB

    theirs = dict(WEBKB)[name]
    raw_files(name, folder / theirs / "raw", root)
    return WebKB(str(folder), theirs)[0]


def adjacency(data: Any) -> sp.csr_array:
    sources, targets = data.edge_index.numpy()
    return sp.csr_array((np.ones(len(sources)), (sources, targets)), shape=(data.num_nodes,) * 2)


def features(graph: Graph) -> torch.Tensor:
    return torch.from_numpy(graph.x.toarray()) if isinstance(graph.x, sp.csr_array) else graph.x


def without_loops(adj: sp.csr_array) -> sp.csr_array:
    links = adj.tocoo()
    kept = links.row != links.col
    return sp.csr_array((links.data[kept], (links.row[kept], links.col[kept])), shape=adj.shape)


def assert_same_masks(splits: list[Split], data: Any) -> None:
    masks = {part: data[f"{part}_mask"].reshape(data.num_nodes, -1) for part in ("train", "val", "test")}
    assert masks["train"].shape[1] == len(splits)
    for column, split in enumerate(splits):
        for part, mask in masks.items():
            assert torch.equal(getattr(split, part), mask[:, column].nonzero().ravel())


@pytest.mark.parametrize("split", ["public", "geom-gcn"])
@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed"])
def test_citation_sets_agree_but_for_self_loops_which_torch_geometric_drops(
    name: str, split: str, benchmark_root: Path, tmp_path: Path
) -> None:
    data = planetoid(name, split, tmp_path, benchmark_root)
    graph, splits = load(name, split, row_normalize=False, data_root=benchmark_root)
    assert torch.equal(features(graph), data.x)
    assert torch.equal(graph.y, data.y)
    assert_same_masks(splits, data)
    assert abs(without_loops(graph.adj) - adjacency(data)).nnz == 0
    assert adjacency(data).diagonal().sum() == 0
    assert graph.adj.diagonal().sum() == row(name).counts.self_loops


@pytest.mark.parametrize("name", [name for name, _ in WEBKB])
def test_webkb_sets_agree_with_torch_geometric_given_the_same_files(
    name: str, benchmark_root: Path, tmp_path: Path
) -> None:
    data = webkb(name, tmp_path, benchmark_root)
    graph, splits = load(name, row_normalize=False, data_root=benchmark_root)
    assert torch.equal(features(graph), data.x)
    assert torch.equal(graph.y, data.y)
    assert abs(graph.adj - adjacency(data)).nnz == 0
    assert_same_masks(splits, data)


def test_chameleon_agrees_with_torch_geometric(benchmark_root: Path, tmp_path: Path) -> None:
    from torch_geometric.datasets import WikipediaNetwork

    raw_files("chameleon", tmp_path / "chameleon/geom_gcn/raw", benchmark_root)
    data = WikipediaNetwork(str(tmp_path), "chameleon", geom_gcn_preprocess=True)[0]
    graph, splits = load("chameleon", row_normalize=False, data_root=benchmark_root)
    assert torch.equal(features(graph), data.x)
    assert torch.equal(graph.y, data.y)
    assert abs(graph.adj - adjacency(data)).nnz == 0
    assert_same_masks(splits, data)


def test_torch_geometrics_cornell_is_the_corrected_one_and_differs_from_the_papers(
    benchmark_root: Path, tmp_path: Path
) -> None:
    data = webkb("cornell-corrected", tmp_path, benchmark_root)
    papers, _ = load("cornell", row_normalize=False, data_root=benchmark_root)
    assert not torch.equal(features(papers), data.x)
    assert not torch.equal(papers.y, data.y)
    assert abs(papers.adj - adjacency(data)).nnz > 0


def test_row_normalised_features_agree_with_torch_geometrics_transform(benchmark_root: Path, tmp_path: Path) -> None:
    from torch_geometric.transforms import NormalizeFeatures

    data = NormalizeFeatures()(planetoid("cora", "public", tmp_path, benchmark_root))
    graph, _ = load("cora", data_root=benchmark_root)
    torch.testing.assert_close(features(graph), data.x, atol=1e-8, rtol=1e-6)
