from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from adagpr.data import catalogue, load, row
from adagpr.data.catalogue import Counts, DatasetRow, sources, sums, url_of
from adagpr.data.geom_gcn import edges_from_text
from adagpr.data.musae import pairs_from_csv
from adagpr.data.npz import edges_from_npz, read_arrays
from adagpr.data.planetoid import edges_from_lists, unpickle
from adagpr.errors import InputError
from adagpr.graph import Graph


def entries_as_stored(dataset: DatasetRow, graph: Graph, root: Path) -> int:
    def content(position: int) -> bytes:
        return (root / dataset.graph_files()[position]).read_bytes()

    count: dict[str, Callable[[], int]] = {
        "planetoid": lambda: len(edges_from_lists(unpickle(content(6), "graph"))[0]),
        "geom-gcn": lambda: len(edges_from_text(content(0), "edges")[0]),
        "npz": lambda: len(edges_from_npz(read_arrays(content(0), "npz"), "npz")[0]),
        "musae": lambda: len(list(pairs_from_csv(content(0), ("from", "to"), "edges"))),
        "digits": lambda: graph.num_edges,
        "csbm": lambda: graph.num_edges,
    }
    return count[dataset.loader]()


def measured(dataset: DatasetRow, graph: Graph, root: Path) -> Counts:
    links = graph.adj.tocoo()
    ends = np.sort(np.stack([links.row, links.col]), axis=0)
    pairs = np.unique(ends[:, ends[0] != ends[1]], axis=1)
    y = graph.y.numpy()
    return Counts(
        nodes=graph.num_nodes,
        entries=entries_as_stored(dataset, graph, root),
        self_loops=int((ends[0] == ends[1]).sum()),
        edges=pairs.shape[1],
        features=graph.num_features,
        classes=len(np.unique(y)),
        directed=not graph.is_symmetric,
        homophily=round(float((y[pairs[0]] == y[pairs[1]]).mean()), 4),
    )


@pytest.mark.parametrize("name", catalogue())
def test_counts_of_every_row_are_those_of_the_loaded_data(name: str, benchmark_root: Path) -> None:
    graph, _ = load(name, data_root=benchmark_root)
    assert measured(row(name), graph, benchmark_root) == row(name).counts


@pytest.mark.parametrize("name", catalogue())
def test_every_row_loads_with_every_split_it_names_and_carries_its_oddities(name: str, benchmark_root: Path) -> None:
    for split in row(name).splits:
        graph, splits = load(name, split, data_root=benchmark_root)
        assert splits[0].name.startswith(split)
        for item in splits:
            item.check(graph)
    assert graph.name == name
    assert graph.notes == row(name).oddities
    assert len(graph.class_names) == row(name).counts.classes


def test_every_pinned_file_belongs_to_a_row_and_every_row_has_its_sums() -> None:
    used = {file for item in catalogue().values() for file in item.files()}
    assert used == set(sums())


def test_sums_of_the_benchmark_folder_are_the_pinned_ones(benchmark_root: Path) -> None:
    first, beyond = (
        dict(line.split("  ")[::-1] for line in (benchmark_root / name).read_text().splitlines())
        for name in ("SHA256SUMS", "SHA256SUMS.beyond")
    )
    assert first.items() <= sums().items() <= (first | beyond).items()


def test_addresses_name_repository_commit_and_path() -> None:
    commit = sources()["planetoid"].commit
    assert (
        url_of("planetoid/ind.cora.x")
        == f"https://raw.githubusercontent.com/kimiyoung/planetoid/{commit}/data/ind.cora.x"
    )


def test_the_first_oddity_of_cornell_names_the_real_one() -> None:
    first = row("cornell").oddities[0]
    assert "Texas' features and labels on Cornell's links" in first
    assert "cornell-corrected" in first


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("actor", 10 * [(3648, 2432, 1520)]),
        ("minesweeper", 10 * [(5000, 2500, 2500)]),
        ("tolokers", 10 * [(5879, 2939, 2940)]),
        ("computers", 3 * [(8251, 2750, 2751)]),
    ],
)
def test_given_splits_are_as_many_and_of_the_sizes_that_the_oddities_say(
    name: str, sizes: list[tuple[int, int, int]], benchmark_root: Path
) -> None:
    _, splits = load(name, data_root=benchmark_root)
    assert [(len(split.train), len(split.val), len(split.test)) for split in splits] == sizes
    with pytest.raises(InputError, match=rf"the data set's splits are given/0 to given/{len(sizes) - 1}\."):
        load(name, f"given/{len(sizes)}", data_root=benchmark_root)


@pytest.mark.parametrize("name", catalogue())
def test_oddities_are_whole_sentences(name: str) -> None:
    assert row(name).oddities
    assert all(oddity[0].isupper() or oddity[0].isdigit() for oddity in row(name).oddities)
    assert all(oddity.endswith(".") for oddity in row(name).oddities)


def test_cornell_and_texas_share_one_feature_file() -> None:
    assert sums()[row("cornell").graph_files()[1]] == sums()[row("texas").graph_files()[1]]


@pytest.mark.parametrize(
    ("name", "missing"), [("cornell", 7), ("cornell-corrected", 0), ("texas", 4), ("wisconsin", 0)]
)
def test_splits_that_lack_a_class_in_training_are_as_many_as_the_oddities_say(
    name: str, missing: int, benchmark_root: Path
) -> None:
    graph, splits = load(name, "geom-gcn", data_root=benchmark_root)
    assert sum(len(graph.y[split.train].unique()) < graph.num_classes for split in splits) == missing


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("cora", {(1192, 796, 497)}),
        ("citeseer", {(1596, 1065, 666), (1017, 679, 424)}),
        ("pubmed", {(9463, 6310, 3944)}),
        ("chameleon", {(1092, 729, 456)}),
        ("cornell", {(87, 59, 37)}),
        ("cornell-corrected", {(87, 59, 37)}),
        ("texas", {(87, 59, 37)}),
        ("wisconsin", {(120, 80, 51)}),
    ],
)
def test_the_ten_splits_are_of_the_sizes_that_the_oddities_say(
    name: str, sizes: set[tuple[int, int, int]], benchmark_root: Path
) -> None:
    _, splits = load(name, "geom-gcn", data_root=benchmark_root)
    assert {(len(split.train), len(split.val), len(split.test)) for split in splits} == sizes


def test_chameleon_has_as_many_twins_as_its_oddity_says(benchmark_root: Path) -> None:
    graph, splits = load("chameleon", data_root=benchmark_root)
    ends = np.split(graph.adj.indices, graph.adj.indptr[1:-1])
    kinds = [(label, *links.tolist()) for label, links in zip(graph.y.tolist(), ends, strict=True)]
    assert sum(count for count in Counter(kinds).values() if count > 1) == 1830
    leaks = []
    for split in splits:
        known = {kinds[node] for node in split.train.tolist()}
        leaks.append(np.mean([kinds[node] in known for node in split.test.tolist()]))
    assert round(100 * float(np.mean(leaks))) == 69


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(InputError, match=r"Unknown data set 'coar'\. Did you mean 'cora'\? See: adagpr data ls"):
        row("coar")


def test_an_unknown_key_in_a_row_is_an_error() -> None:
    with pytest.raises(ValidationError, match="extra"):
        Counts.model_validate(row("cora").counts.model_dump() | {"color": "red"})
