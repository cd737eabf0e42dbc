"""Ranks in two network namespaces, with addresses of their own and a wire between them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from benchmarks.cost import border_bytes
from safetensors.torch import load_file

from adagpr.ops import features, operator
from adagpr.partitioning import partition_graph
from tests.partitioning.share_worker import COEFFS, DEPTH, WIDTH, the_model
from tests.partitioning.test_exchange import directed_graph

ROOT = Path(__file__).parents[2]
ADDRESSES = ("10.87.0.1", "10.87.0.2")


@pytest.fixture
def namespaces() -> Iterator[list[str]]:
    """Two namespaces that see each other and nothing else."""
    names = [f"adagpr-{os.getpid()}-{number}" for number in range(2)]
    wires = [f"ag{os.getpid()}-{number}" for number in range(2)]
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", wires[0], "netns", names[0], "type", "veth", "peer", "name", wires[1], "netns", names[1])
        for name, wire, address in zip(names, wires, ADDRESSES, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", wire)
            ip("-n", name, "link", "set", wire, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def test_two_machines_give_the_gradients_of_one(namespaces: list[str], tmp_path: Path) -> None:
    graph, split = directed_graph()
    parts = partition_graph(graph, split, 4, tmp_path / "parts")
    model = the_model()
    logits = model(features(graph.x, torch.float64), operator(graph, dtype=torch.float64))
    loss = torch.nn.functional.cross_entropy(logits[split.train], graph.y[split.train])
    loss.backward()
    variables = {"MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": "29500", "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "tests.partitioning.share_worker", str(tmp_path / "parts"), str(tmp_path)]
    ranks = [
        subprocess.Popen(
            ["ip", "netns", "exec", name, *words], cwd=ROOT, env={**os.environ, **variables, "RANK": str(rank)}
        )
        for rank, name in enumerate(namespaces)
    ]
    assert [rank.wait() for rank in ranks] == [0, 0]
    found = [load_file(tmp_path / f"{rank}.safetensors") for rank in range(2)]
    for own in found:
        assert own["loss"].item() == pytest.approx(loss.item(), abs=1e-12)
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(own[f"grad/{name}"], parameter.grad, rtol=0, atol=1e-10)
    predicted = border_bytes(parts, 2, WIDTH, 3 * DEPTH * (COEFFS - 1), 8)
    assert sum(int(own["bytes"]) for own in found) == predicted
    # On the wire, headers, connections and the sums of gradients come on top.
    assert predicted < sum(int(own["wire"]) for own in found) < 2 * predicted
