"""torchrun starts a rank again that was killed, and the training goes on from its checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq

from adagpr.data import csbm
from adagpr.data.splits import random_split
from adagpr.partitioning import partition_graph

LAUNCH = ["--nnodes", "1", "--nproc-per-node", "2", "--max-restarts", "2", "--monitor-interval", "0.1"]
NUM_EPOCHS = 300
ROOT = Path(__file__).parents[2]


def ranks_of(launcher: subprocess.Popen[bytes]) -> list[int]:
    """The processes that torchrun has started."""
    return [int(word) for word in Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()]


def test_a_killed_rank_is_started_again(tmp_path: Path) -> None:
    graph = csbm(num_nodes=200, num_features=8)
    partition_graph(graph, random_split(graph.y), 2, tmp_path / "parts")
    words = ["-m", "torch.distributed.run", *LAUNCH, "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    words += ["-m", "tests.partitioning.train_worker", str(tmp_path / "parts"), str(tmp_path / "run"), str(NUM_EPOCHS)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    launcher = subprocess.Popen([sys.executable, *words], env=environment, cwd=ROOT)
    checkpoint = tmp_path / "run" / "checkpoint" / "state.safetensors"
    try:
        ends = time.monotonic() + 100
        while not checkpoint.exists():
            assert launcher.poll() is None
            assert time.monotonic() < ends
            time.sleep(0.02)
        os.kill(ranks_of(launcher)[0], signal.SIGKILL)
        launcher.wait(timeout=120)
    finally:
        for process in [*ranks_of(launcher), launcher.pid] if launcher.poll() is None else []:
            os.kill(process, signal.SIGKILL)
    assert launcher.returncode == 0
    epochs = pq.read_table(tmp_path / "run" / "history.parquet")["epoch"].to_pylist()
    assert epochs == list(range(1, NUM_EPOCHS + 1))
