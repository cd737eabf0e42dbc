from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from adagpr.benchmarking import BASELINES, baselines
from adagpr.benchmarking.baselines import baseline_class
from adagpr.errors import InputError
from adagpr.graph import Graph
from adagpr.nn import AdaGPR
from adagpr.ops import operator

pytestmark = pytest.mark.filterwarnings("ignore")

GENERAL = ["dense-powers", "gather-scatter", "pyg-csr", "pyg-edge-index"]


def make_model(dropout: float = 0.0, fixed_coeffs: list[float] | None = None) -> AdaGPR:
    options: dict[str, Any] = {"alpha": 0.2, "theta": 0.6, "dropout": dropout, "num_layers": 3}
    if fixed_coeffs is not None:
        options |= {"projection": "fixed", "fixed_coeffs": fixed_coeffs, "num_coeffs": len(fixed_coeffs)}
    model = AdaGPR(12, 8, 3, **options)
    model.seed(3)
    return model.double()


def assert_equal(name: str, model: AdaGPR, graph: Graph) -> None:
    baseline = baseline_class(name)(model)
    x = torch.as_tensor(graph.x).double()
    ours = model(x, operator(graph, dtype=torch.float64))
    theirs = baseline(x, baseline.prepare(graph, torch.float64))
    torch.testing.assert_close(theirs, ours, rtol=1e-10, atol=1e-10)
    F.cross_entropy(ours, graph.y).backward()
    F.cross_entropy(theirs, graph.y).backward()
    found = dict(baseline.named_parameters())
    expected = dict(model.named_parameters())
    assert found.keys() == expected.keys()
    for key, parameter in expected.items():
        torch.testing.assert_close(found[key].grad, parameter.grad, rtol=1e-10, atol=1e-10)
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0


@pytest.mark.parametrize("name", GENERAL)
def test_logits_and_gradients_equal_ours_on_a_directed_graph(name: str, make_graph: Callable[..., Graph]) -> None:
    graph = make_graph()
    assert not graph.is_symmetric
    assert_equal(name, make_model(), graph)


@pytest.mark.parametrize("name", GENERAL)
def test_fixed_coefficients_are_taken_over(name: str, make_graph: Callable[..., Graph]) -> None:
    assert_equal(name, make_model(fixed_coeffs=[0.5, 0.0, 0.3, 0.2]), make_graph(directed=False))


def test_gcn2conv_equals_ours_with_all_weight_on_hop_one(make_graph: Callable[..., Graph]) -> None:
    assert_equal("gcn2conv", make_model(fixed_coeffs=[0.0, 1.0]), make_graph())


def test_gcn2conv_refuses_what_it_cannot_do() -> None:
    with pytest.raises(InputError, match=r"needs projection 'fixed' and fixed_coeffs \[0, 1\]"):
        baseline_class("gcn2conv")(make_model())


@pytest.mark.parametrize("name", GENERAL)
def test_dropout_is_on_in_training_only(name: str, make_graph: Callable[..., Graph]) -> None:
    graph = make_graph()
    baseline = baseline_class(name)(make_model(dropout=0.5))
    x, structure = torch.as_tensor(graph.x).double(), baseline.prepare(graph, torch.float64)
    assert not torch.equal(baseline(x, structure), baseline(x, structure))
    baseline.eval()
    assert torch.equal(baseline(x, structure), baseline(x, structure))


def test_a_copy_leaves_the_model_alone(make_graph: Callable[..., Graph]) -> None:
    model = make_model()
    baseline = baseline_class("dense-powers")(model)
    with torch.no_grad():
        baseline.lin_in.weight.zero_()
    assert model.lin_in.weight.abs().sum() > 0


def test_options_that_no_baseline_has_are_refused() -> None:
    model = AdaGPR(12, 8, 3, drop_edge=0.5)
    with pytest.raises(InputError, match="dense-powers: drop_edge must be 0"):
        baseline_class("dense-powers")(model)


def test_an_unknown_way_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(InputError, match="Did you mean 'pyg-csr'"):
        baseline_class("pyg-cs")


def test_a_missing_library_is_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dgl", None)
    with pytest.raises(ImportError, match="dgl"):
        baseline_class("dgl")


@pytest.mark.parametrize("path", sorted(Path(baselines.__file__).parent.glob("*.py")), ids=lambda path: path.stem)
def test_no_library_is_imported_at_the_top(path: Path) -> None:
    top = ast.parse(path.read_text()).body
    plain = {alias.name for node in top if isinstance(node, ast.Import) for alias in node.names}
    named = {node.module or "" for node in top if isinstance(node, ast.ImportFrom)}
    libraries = {kind.library for kind in BASELINES.values()}
    assert {name.partition(".")[0] for name in plain | named} & libraries == set()
