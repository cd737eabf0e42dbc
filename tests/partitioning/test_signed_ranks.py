"""A signed stack whose rows several processes share is that of one: batch normalisation counts the rows of all."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from adagpr.ops import Norm, Operator, SignedLayers, operator, signed_stack
from adagpr.partitioning import (
    HaloExchange,
    bounds_of_ranks,
    exchanged_operator,
    group_from_environment,
    join,
    open_parts,
    partition_graph,
    parts_of_rank,
)
from tests.partitioning.test_exchange import directed_graph, free_port

WIDTH, DEPTH, NUM_PARTS, SIZE = 16, 3, 5, 2


def outcome(op: Operator, norm: Norm, rows: np.ndarray) -> dict[str, torch.Tensor]:
    """The stack on some rows of a matrix that all processes know, and the gradients of a sum over these."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    h_0, upstream = normal(120, WIDTH).relu()[rows].requires_grad_(), normal(120, WIDTH)[rows]
    coeffs, scales, shifts = normal(DEPTH, 1, 1, 4), normal(DEPTH, 1, WIDTH), normal(DEPTH, 1, WIDTH)
    weights = [normal(2 * WIDTH, WIDTH) / WIDTH**0.5 for _ in range(DEPTH)]
    learned = {"coeffs": coeffs, "shifts": shifts, **{f"weight {i}": weight for i, weight in enumerate(weights)}}
    for x in learned.values():
        x.requires_grad_()
    y, moments = signed_stack(h_0, coeffs, SignedLayers([op], norm, skip_tail=False), weights, scales, shifts)
    *gradients, of_h_0 = torch.autograd.grad(y, [*learned.values(), h_0], upstream)
    found = {"y": y.detach(), "h_0": of_h_0, **dict(zip(learned, gradients, strict=True))}
    return found if moments is None else {**found, "moments": moments}


def work(variables: dict[str, str], parts_folder: Path, out: Path, norm: Norm) -> None:
    os.environ.update(variables)
    torch.set_num_threads(1)
    with group_from_environment() as group:
        parts = open_parts(parts_folder)
        rows = join(parts, parts_of_rank(NUM_PARTS, group.rank, SIZE))
        exchange = HaloExchange.between(group, rows.halo, bounds_of_ranks(parts, SIZE))
        found = outcome(exchanged_operator(rows, exchange, False, torch.float64), norm, rows.position)
        save_file({name: x.contiguous() for name, x in found.items()}, out / f"{group.rank}.safetensors")


@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_ranks_give_the_values_and_gradients_of_one_process(tmp_path: Path, norm: Norm) -> None:
    graph, split = directed_graph()
    parts = partition_graph(graph, split, NUM_PARTS, tmp_path / "parts")
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(SIZE)}
    variables = [{**address, "RANK": str(rank)} for rank in range(SIZE)]
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work, args=(own, tmp_path / "parts", tmp_path, norm)) for own in variables]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * SIZE
    ranks = [load_file(tmp_path / f"{rank}.safetensors") for rank in range(SIZE)]
    whole = outcome(operator(graph, self_loops=False, dtype=torch.float64), norm, np.arange(120))
    order = np.concatenate([parts[number].nodes()["position"].to_numpy() for number in range(NUM_PARTS)])
    for name, expected in whole.items():
        if name == "moments":
            for rank in ranks:
                torch.testing.assert_close(rank[name], expected, rtol=1e-9, atol=1e-9)
            continue
        by_rows = name in ("y", "h_0")
        found = torch.cat([rank[name] for rank in ranks]) if by_rows else sum(rank[name] for rank in ranks)
        torch.testing.assert_close(found, expected[order] if by_rows else expected, rtol=1e-9, atol=1e-9)
