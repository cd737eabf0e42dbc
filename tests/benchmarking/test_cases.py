from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from adagpr.benchmarking import BASELINES, OURS, SETS, SIGNED, Case, cases
from adagpr.benchmarking.cases import build_model, load_graph
from adagpr.errors import InputError

TINY = Case("tiny", "csbm:300", num_layers=2, hidden_channels=8, num_coeffs=3, ways=(OURS,))
EVERY = [case for group in SETS.values() for case in group]


def test_the_sets_are_those_of_the_plan() -> None:
    sweeps = {"layers", "coeffs", "channels", "nodes", "edges", "hops"}
    assert set(SETS) == {"headline", "products", "gcnii", "memory", "saving", "signed", *sweeps}
    assert cases("headline")[0].ways[-1] == OURS


def test_names_are_unique_over_all_sets() -> None:
    assert len({case.name for case in EVERY}) == len(EVERY)


@pytest.mark.parametrize("case", EVERY, ids=[case.name for case in EVERY])
def test_a_case_is_complete(case: Case) -> None:
    assert set(case.ways) <= {OURS, SIGNED, *BASELINES}
    assert case.is_timed or case.measures_memory
    assert case.fixed_coeffs is None or len(case.fixed_coeffs) == case.num_coeffs
    assert Case.from_plain(json.loads(json.dumps(case.plain()))) == case


def test_the_older_name_of_a_key_is_still_read() -> None:
    plain = TINY.plain()
    plain["is_weighed"] = not plain.pop("measures_memory")
    assert Case.from_plain(plain) == replace(TINY, measures_memory=True)


@pytest.mark.parametrize(
    ("way", "most"), [("dense-powers", 3_000), ("gather-scatter", 100_000), ("pyg-csr", 300_000), (OURS, 1_000_000)]
)
def test_a_way_takes_part_as_far_as_it_fits(way: str, most: int) -> None:
    sizes = [int(case.graph.partition(":")[2]) for case in cases("nodes") if way in case.ways]
    assert (min(sizes), max(sizes)) == (1_000, most)


@pytest.mark.parametrize("kind", ["csbm", "rmat"])
def test_a_drawn_graph_has_the_size_asked_for(kind: str) -> None:
    graph, split = load_graph(replace(TINY, graph=f"{kind}:400", average_degree=6.0))
    assert (graph.num_nodes, graph.num_edges) == (400, 2400)
    split.check(graph)


def test_a_data_set_comes_with_its_first_split() -> None:
    graph, split = load_graph(replace(TINY, graph="digits"))
    assert (graph.num_nodes, split.name) == (1797, "labelled-5")


def test_learned_coefficients_start_equal_and_fixed_ones_as_given() -> None:
    graph, split = load_graph(TINY)
    learned = build_model(TINY, graph, split).model.coefficients()
    torch.testing.assert_close(learned, torch.full((2, 3), 1 / 3))
    given = build_model(replace(TINY, fixed_coeffs=(0.5, 0.5, 0.0)), graph, split).model.coefficients()
    assert given is not None
    assert given.tolist() == [[0.5, 0.5, 0.0]] * 2


def test_mistakes_are_told() -> None:
    with pytest.raises(InputError, match="ways must include 'ours'"):
        replace(TINY, ways=("pyg-csr",))
    with pytest.raises(InputError, match="graph must be a data set, rmat:NODES or csbm:NODES, got 'tree:9'"):
        load_graph(replace(TINY, graph="tree:9"))
    with pytest.raises(InputError, match="Did you mean 'headline'"):
        cases("headlines")
