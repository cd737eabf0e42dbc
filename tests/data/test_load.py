from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from adagpr.data import catalogue, load, random_split
from adagpr.errors import InputError

PAPERS = [name for name, item in catalogue().items() if item.row_normalize]


@pytest.mark.parametrize("name", PAPERS)
def test_features_of_the_papers_sets_sum_to_one_or_are_all_zero(name: str, benchmark_root: Path) -> None:
    graph, _ = load(name, "random", data_root=benchmark_root)
    assert isinstance(graph.x, sp.csr_array)
    totals = graph.x.sum(axis=1)
    assert totals[totals != 0] == pytest.approx(1.0, abs=1e-5)


def test_rows_of_zeros_stay(benchmark_root: Path) -> None:
    graph, _ = load("chameleon", "random", data_root=benchmark_root)
    assert isinstance(graph.x, sp.csr_array)
    assert int((graph.x.sum(axis=1) == 0).sum()) == 233


def test_features_can_be_had_as_they_are_in_the_file(benchmark_root: Path) -> None:
    graph, _ = load("texas", data_root=benchmark_root, row_normalize=False)
    assert isinstance(graph.x, sp.csr_array)
    assert set(graph.x.data.tolist()) == {1.0}


def test_a_random_split_goes_by_the_seed_or_by_its_own_number(benchmark_root: Path) -> None:
    graph, (by_seed,) = load("texas", "random", seed=7, fractions=(0.5, 0.25, 0.25), data_root=benchmark_root)
    _, (by_number,) = load("texas", "random/7", fractions=(0.5, 0.25, 0.25), data_root=benchmark_root)
    expected = random_split(graph.y, 7, (0.5, 0.25, 0.25))
    assert by_seed.name == by_number.name == expected.name
    assert by_seed.train.tolist() == by_number.train.tolist() == expected.train.tolist()


def test_a_split_that_the_set_lacks_is_refused_before_files_are_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Unknown split 'public'\. .*See: adagpr data info texas"):
        load("texas", "public", data_root=tmp_path)


def test_loading_twice_gives_the_same_bits(benchmark_root: Path) -> None:
    first, second = (load("cora", data_root=benchmark_root)[0] for _ in range(2))
    assert first.fingerprint == second.fingerprint
    assert first.node_ids.tolist() == np.arange(2708).tolist()
