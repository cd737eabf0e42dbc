"""Training shared by processes is that of one: losses, gradients, and what the processes send each other."""

from __future__ import annotations

import multiprocessing
import os
import socket
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from benchmarks.cost import border_bytes
from safetensors.torch import load_file

from adagpr.data.splits import random_split
from adagpr.graph import Graph, Split, from_scipy
from adagpr.ops import features, operator
from adagpr.partitioning import open_parts, partition_graph
from tests.partitioning.share_worker import COEFFS, DEPTH, WIDTH, main, the_model


def directed_graph(num_nodes: int = 120, weighted: bool = True) -> tuple[Graph, Split]:
    generator = np.random.default_rng(3)
    adj = sp.random_array((num_nodes, num_nodes), density=0.05, random_state=generator, format="csr")
    adj.data = generator.uniform(0.5, 2.0, adj.nnz) if weighted else np.ones(adj.nnz)
    y = generator.integers(3, size=num_nodes)
    graph = from_scipy(adj, generator.standard_normal((num_nodes, 5)), y)
    return graph, random_split(graph.y)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def run_workers(parts: Path, out: Path, size: int, *arguments: str) -> list[dict[str, torch.Tensor]]:
    """Has forked processes, which start at once, do what `share_worker` does."""
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(size)}
    context = multiprocessing.get_context("fork")
    workers = [
        context.Process(target=work, args=({**address, "RANK": str(rank)}, str(parts), str(out), *arguments))
        for rank in range(size)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * size
    return [load_file(out / f"{rank}.safetensors") for rank in range(size)]


def work(variables: dict[str, str], *arguments: str) -> None:
    os.environ.update(variables)
    main(*arguments)


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_give_the_losses_and_gradients_of_one_process(tmp_path: Path, size: int) -> None:
    graph, split = directed_graph()
    parts = partition_graph(graph, split, 8, tmp_path / "parts")
    model = the_model()
    op = operator(graph, dtype=torch.float64)
    logits = model(features(graph.x, torch.float64), op)
    loss = torch.nn.functional.cross_entropy(logits[split.train], graph.y[split.train])
    loss.backward()
    found = run_workers(tmp_path / "parts", tmp_path, size)
    for own in found:
        assert own["loss"].item() == pytest.approx(loss.item(), abs=1e-12)
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            torch.testing.assert_close(own[f"grad/{name}"], parameter.grad, rtol=0, atol=1e-10)
    everywhere = torch.cat([own["logits"] for own in found])
    order = np.concatenate([parts[number].nodes()["position"].to_numpy() for number in range(8)])
    torch.testing.assert_close(everywhere, logits.detach()[order], rtol=0, atol=1e-10)
    # One pass forward and backward, and one of the evaluation above; every hop of every layer counts.
    hops = DEPTH * (COEFFS - 1)
    assert sum(int(own["bytes"]) for own in found) == border_bytes(
        open_parts(tmp_path / "parts"), size, WIDTH, 3 * hops, 8
    )
