"""torchrun starts a rank again that was killed, and the training goes on from its checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from multiprocessing.connection import wait
from pathlib import Path

import pyarrow.parquet as pq

from adagpr.data import csbm
from adagpr.data.splits import random_split
from adagpr.partitioning import partition_graph

LAUNCH = ["--nnodes", "1", "--nproc-per-node", "2", "--max-restarts", "2", "--monitor-interval", "0.1"]
NUM_EPOCHS = 20
ROOT = Path(__file__).parents[2]


def test_a_killed_rank_is_started_again(tmp_path: Path) -> None:
    graph = csbm(num_nodes=200, num_features=8)
    partition_graph(graph, random_split(graph.y), 2, tmp_path / "parts")
    os.mkfifo(tmp_path / "pipe")
    paths = [str(tmp_path / name) for name in ("parts", "run")]
    words = ["-m", "torch.distributed.run", *LAUNCH, "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    words += ["-m", "tests.partitioning.train_worker", *paths, str(NUM_EPOCHS), str(tmp_path / "pipe")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    pipe = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with subprocess.Popen([sys.executable, *words], env=environment, cwd=ROOT) as launcher:
        launched = os.pidfd_open(launcher.pid)
        try:
            assert pipe in wait([pipe, launched]), "torchrun ended before rank 1 was in epoch 5"
            os.kill(int(os.read(pipe, 100)), signal.SIGKILL)
            launcher.wait()
        finally:
            # With a failed launcher its ranks have ended, too.
            launcher.terminate()
            os.close(launched)
            os.close(pipe)
    assert launcher.returncode == 0
    epochs = pq.read_table(tmp_path / "run" / "history.parquet")["epoch"].to_pylist()
    assert epochs == list(range(1, NUM_EPOCHS + 1))
