"""Kills a rank of a training at random moments, run after run, and writes down whether each was completed.

    python benchmarks/kills_of_ranks.py [--kills 10] [--out results/kills.json]

Every run trains Cora in 4 parts on 2 ranks under torchrun, which starts them again from the last checkpoint. At a
moment drawn from the time that an undisturbed run takes, start included, one rank gets SIGKILL. A run counts as
complete when torchrun ends well and the record is there; its history is compared with that of the undisturbed run.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import adagpr
from adagpr.files import read_json, write_json
from adagpr.partitioning import partition_graph
from adagpr.system import describe_machine

NUM_EPOCHS = 600
SETTINGS = {"num_layers": 4, "hidden_channels": 32, "max_epochs": NUM_EPOCHS, "patience": "none"}
RANKS = 2


def start(parts: Path, out: Path) -> subprocess.Popen[bytes]:
    """Starts a training under torchrun."""
    words = ["-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", str(RANKS), "--max-restarts", "5"]
    words += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--monitor-interval", "0.1"]
    words += ["-m", "adagpr", "train", "--partitions", str(parts), "--out", str(out)]
    words += [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    quiet = subprocess.DEVNULL
    return subprocess.Popen([sys.executable, *words], env=environment, stdout=quiet, stderr=quiet)


def kill_one(launcher: subprocess.Popen[bytes], generator: np.random.Generator) -> int | None:
    """Kills one of the ranks that are running; returns which, none where none is."""
    ranks = [int(word) for word in Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()]
    if not ranks:
        return None
    chosen = int(generator.integers(len(ranks)))
    os.kill(ranks[chosen], signal.SIGKILL)
    return chosen


def history(out: Path) -> list[dict[str, Any]]:
    """The epochs of a complete run."""
    return pq.read_table(out / "history.parquet").to_pylist()


def one_kill(parts: Path, out: Path, moment: float, generator: np.random.Generator) -> dict[str, Any]:
    """One run with one kill, and how it ended."""
    launcher = start(parts, out)
    time.sleep(moment)
    before = out / "checkpoint" / "state.safetensors"
    had_checkpoint = before.exists()
    killed = kill_one(launcher, generator) if launcher.poll() is None else None
    code = launcher.wait(timeout=600)
    complete = (out / "record.json").exists()
    epochs = [row["epoch"] for row in history(out)] if complete else []
    return {
        "seconds_before_the_kill": round(moment, 2),
        "rank": killed,
        "had_checkpoint": had_checkpoint,
        "exit_code": code,
        "complete": complete,
        "no_gap": epochs == list(range(1, NUM_EPOCHS + 1)),
        "test_acc": read_json(out / "record.json")["result"]["scores"]["test"]["accuracy"] if complete else None,
    }


def main() -> None:
    """Reads the command line, kills, and writes the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("results/kills.json"))
    asked = parser.parse_args()
    generator = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        graph, (split,) = adagpr.load("cora", split="public")
        partition_graph(graph, split, 4, folder / "parts")
        began = time.monotonic()
        if start(folder / "parts", folder / "whole").wait() != 0:
            raise SystemExit("The undisturbed run failed.")
        took = time.monotonic() - began
        undisturbed = history(folder / "whole")
        kills: list[dict[str, Any]] = []
        # A run that was over before its moment came was not killed, and does not count.
        while sum(kill["rank"] is not None for kill in kills) < asked.kills:
            out = folder / str(len(kills))
            found = one_kill(folder / "parts", out, generator.uniform(0.1, 0.95) * took, generator)
            found["same_numbers"] = found["complete"] and history(out) == undisturbed
            kills.append(found)
            print(found, flush=True)
    record = {"settings": SETTINGS, "ranks": RANKS, "kills": kills, "machine": describe_machine(took)}
    # Entries of other commands, by ``kills.py``, stay in the record.
    write_json(asked.out, {**(read_json(asked.out) if asked.out.exists() else {}), "ranks": record})


if __name__ == "__main__":
    main()
