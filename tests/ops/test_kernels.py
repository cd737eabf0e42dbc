"""Kernels of our own against torch's operations, in value and gradient, and what they promise beside."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from adagpr import seeding
from adagpr.data import csbm
from adagpr.errors import InputError
from adagpr.nn import AdaGPR, BatchedModels
from adagpr.ops import features, kernels, operator
from adagpr.ops.backend import backend_of
from adagpr.ops.dropout import MaskSource
from adagpr.ops.operator import csr_tensor, multiply
from tests.ops import keep_mask

pytestmark = pytest.mark.skipif(  # .ci/run has a compiler, and a missing one fails there
    kernels.library() is None and "ADAGPR_REQUIRE_ALL" not in os.environ, reason="no kernels were compiled"
)

# In float32 gradients of coefficients are small differences of large sums.
TYPES = [(torch.float32, 1e-3), (torch.float64, 1e-11)]


@contextmanager
def by_torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "library", lambda: None)
        yield


def case(
    channels: int, dtype: torch.dtype, num_nodes: int = 300, seed: int = 0, **options: Any
) -> tuple[AdaGPR, Callable[[AdaGPR], Tensor]]:
    graph = csbm(num_nodes=num_nodes, average_degree=5.0, num_features=6, num_classes=3, directed=True)
    op, x = operator(graph, dtype=dtype), features(graph.x, dtype)
    arguments = {"num_layers": 3, "num_coeffs": 4, "dropout": 0.5, "projection": "softmax", **options}
    model = AdaGPR(6, channels, 3, **arguments)
    model.seed(seed)
    return model.to(dtype), lambda net: net(x, op)


def outcome(model: AdaGPR, run: Callable[[AdaGPR], Tensor]) -> list[Tensor]:
    logits = run(model)
    (logits * logits.detach().cos()).sum().backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return [logits.detach(), *gradients]


def test_there_are_kernels_where_nothing_may_be_left_out() -> None:
    assert kernels.library() is not None


@pytest.mark.parametrize(("dtype", "error"), TYPES, ids=str)
@pytest.mark.parametrize("channels", [16, 48, 64, 5, 7, 144, 272])
@pytest.mark.parametrize(
    "options",
    [{}, {"dropout": 0.0}, {"alpha": 0.0}, {"num_coeffs": [1, 2, 6]}, {"weight_maps": "separate", "num_coeffs": 2}],
    ids=str,
)
def test_a_network_is_that_of_torch(
    channels: int, options: dict[str, Any], dtype: torch.dtype, error: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, run = case(channels, dtype, **options)
    ours = outcome(model, run)
    with by_torch(monkeypatch):
        other, _ = case(channels, dtype, **options)
        theirs = outcome(other, run)
    for one, two in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, two, rtol=error, atol=error * float(two.abs().max()))


@pytest.mark.parametrize("weight_maps", ["shared", "separate"])
@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
def test_bits_depend_neither_on_threads_nor_on_how_layers_are_called(
    threads: int, watched: bool, weight_maps: str
) -> None:
    op = operator(csbm(num_nodes=1000, average_degree=5.0, num_classes=3))
    h_0 = torch.rand(1000, 64, generator=torch.Generator().manual_seed(0))

    def layers(net: AdaGPR) -> Tensor:
        return net.trunk(h_0, op)

    expected = outcome(case(64, torch.float32, weight_maps=weight_maps)[0], layers)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    around: kernels.Around = lambda name, arguments, step: step()  # noqa: E731
    with kernels.watch_kernels(around) if watched else nullcontext():
        found = outcome(case(64, torch.float32, weight_maps=weight_maps)[0], layers)
    torch.set_num_threads(before)
    assert all(torch.equal(one, two) for one, two in zip(expected, found, strict=True))


def test_batched_models_have_the_bits_of_each_alone_whatever_hops_the_others_keep() -> None:
    graph = csbm(num_nodes=200, num_features=6, num_classes=3)
    op, x = operator(graph), features(graph.x)
    models = [AdaGPR(6, 16, 3, num_layers=2, num_coeffs=5) for _ in range(3)]
    for number, model in enumerate(models):
        model.seed(number)
        with torch.no_grad():
            for place, scores in enumerate(model.parameter_groups()["coeffs"]):
                scores.copy_(2.0 * (torch.arange(5) == number + place))
    together = BatchedModels(models, op)(x, training=False)
    assert len({tuple(model.coefficients()[0].tolist()) for model in models}) == 3
    for model, logits in zip(models, together, strict=True):
        assert torch.equal(logits, model.eval()(x, op))


@settings(max_examples=40)
@given(rows=st.integers(1, 400), columns=st.integers(1, 40), width=st.integers(1, 70), seed=st.integers(0, 1000))
def test_products_are_those_of_dense_matrices(rows: int, columns: int, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    dense = torch.from_numpy(rng.normal(size=(rows, columns)) * (rng.random((rows, columns)) < 0.2))
    sparse = dense.to_sparse_csr()
    matrix = torch.sparse_csr_tensor(
        sparse.crow_indices().int(), sparse.col_indices().int(), sparse.values(), dense.shape, check_invariants=False
    )
    h = torch.from_numpy(rng.normal(size=(columns, width)))
    torch.testing.assert_close(multiply(matrix, h, torch.empty(rows, width, dtype=h.dtype)), dense @ h)


@pytest.mark.parametrize(("dtype", "error"), TYPES, ids=str)
@pytest.mark.parametrize("rows", [1, 5, 128, 700])
@pytest.mark.parametrize("width", [16, 32, 48, 64, 128, 256])
def test_maps_are_matrix_products(rows: int, width: int, dtype: torch.dtype, error: float) -> None:
    generator = torch.Generator().manual_seed(rows)
    s, z = (torch.randn(rows, width, dtype=dtype, generator=generator) for _ in range(2))
    m = torch.randn(width, width, dtype=dtype, generator=generator)
    torch.testing.assert_close(
        kernels.multiply_square(s, m, torch.empty_like(s)), s @ m, rtol=error, atol=error * width
    )
    torch.testing.assert_close(
        kernels.multiply_square(s, m, z.clone(), adds=True), z + s @ m, rtol=error, atol=error * width
    )
    torch.testing.assert_close(kernels.outer(s, z), s.t() @ z, rtol=error, atol=error * max(rows, width))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [1, 63, 700])
@pytest.mark.parametrize("width", [64, 80, 256])
def test_zeros_that_are_passed_over_leave_the_bits_of_adding_them(rows: int, width: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(rows)
    s, z = (torch.randn(rows, width, dtype=dtype, generator=generator) for _ in range(2))
    kept = torch.rand(rows, width, generator=generator) < 0.3
    kept[0] = True
    # What stands in for 0 is too small to change a sum, and nothing is passed over then.
    added = kernels.outer(s, torch.where(kept, z, 1e-37))
    assert torch.equal(kernels.outer(s, z * kept), added)


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.999])
def test_relu_with_dropout_keeps_what_the_words_keep(rate: float) -> None:
    x = torch.randn(37, 11, generator=torch.Generator().manual_seed(0))
    mask, _ = keep_mask((37, 11), rate, seeding.stream(0, "dropout"))
    expected = x.relu() * (torch.from_numpy(mask) if rate > 0 else 1)
    masks = MaskSource(rate, [seeding.stream(0, "dropout")])
    assert torch.equal(backend_of(x).relu_drop_(x.clone(), masks), expected)
    assert 0 <= masks.threshold < 2**16


def test_what_is_not_a_number_is_not_hidden() -> None:
    x = torch.tensor([[float("nan"), -1.0, 1.0]])
    assert backend_of(x).relu_drop_(x, MaskSource(0.0, [])).isnan().tolist() == [[True, False, False]]


def test_a_stack_draws_the_words_that_its_generator_would_give() -> None:
    model, run = case(16, torch.float32)
    run(model)
    after = seeding.capture(model.generator)
    with kernels.watch_kernels(lambda name, arguments, step: step()):
        other, _ = case(16, torch.float32)
        run(other)
    assert after == seeding.capture(other.generator)
    assert after != seeding.capture(seeding.stream(0, "dropout"))


def test_matrices_that_the_kernels_cannot_read_are_left_to_torch() -> None:
    whole = torch.randn(6, 32)
    assert kernels.supports_dense(whole)
    assert not kernels.supports_dense(whole.t())
    assert not kernels.supports_dense(whole.half())
    assert not kernels.supports_dense(whole.to("meta"))


def test_the_environment_leaves_them_out() -> None:
    command = [sys.executable, "-c", "from adagpr.ops import kernels; print(kernels.library())"]
    done = subprocess.run(
        command, env={**os.environ, "ADAGPR_KERNELS": "torch"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "None"


def copy_of_kernels(folder: Path, kind: str) -> Path:
    """The sources, and of the compiled files one."""
    copy = folder / "kernels"
    shutil.copytree(kernels.folder(), copy, ignore=shutil.ignore_patterns("*.so"))
    shutil.copy(kernels.folder() / f"kernels-{kind}.so", copy)
    return copy


def test_kernels_of_other_sources_are_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = copy_of_kernels(tmp_path, "default")
    monkeypatch.setattr(kernels, "folder", lambda: copy)
    load = kernels.library.__wrapped__
    assert load() is not None
    with (copy / "maps.h").open("a") as file:
        file.write("/* changed */")
    with pytest.warns(UserWarning, match="kernels-default.so was compiled from other sources"):
        assert load() is None


def test_what_does_not_fit_never_reaches_a_kernel() -> None:
    s, m = torch.randn(6, 16), torch.randn(16, 16)
    pair = csr_tensor(sp.eye_array(6, format="csr"))
    with pytest.raises(InputError, match=r"must all be \(6, 16\), got \(5, 16\)"):
        kernels.multiply_square(s, m, torch.empty(5, 16))
    with pytest.raises(InputError, match=r"\(6, 6\) times \(5, 16\) does not give \(6, 16\)"):
        backend_of(s).multiply(pair, s[:5], s)
    with pytest.raises(InputError, match=r"m must be contiguous torch\.float32 on a CPU, got torch\.float64"):
        kernels.multiply_square(s, m.double(), torch.empty_like(s))
    with pytest.raises(InputError, match="m must be contiguous"):
        kernels.multiply_square(s, m.t(), torch.empty_like(s))


@pytest.mark.parametrize("kind", ["default", "avx2"])
def test_every_kind_of_processor_has_kernels_that_agree(kind: str, tmp_path: Path) -> None:
    """Another kind is loaded by a process that finds no better one."""
    copy = copy_of_kernels(tmp_path, kind)
    script = (
        "import sys; from pathlib import Path; from adagpr.ops import kernels\n"
        "kernels.folder = lambda: Path(sys.argv[1])\n"
        "from tests.ops.test_kernels import case, outcome\n"
        "import torch; assert kernels.library() is not None\n"
        "print([item.double().sum().item() for item in outcome(*case(48, torch.float64))])"
    )
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", script, str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    expected = [item.double().sum().item() for item in outcome(*case(48, torch.float64))]
    found = [float(word) for word in done.stdout.strip(" []\n").split(",")]
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)
