"""Measures an epoch beside busy processes: the threads that are chosen while training against one and two, fixed.

    python benchmarks/loads.py [--seconds 5] [--rounds 3] [--out results/loads.json]

For each number of busy processes and each network the three train in turn, some seconds at a time. The record has the
mean of an epoch in milliseconds, and ``ratio``: the mean with the chosen threads over the better of the other two.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from adagpr import fit, load
from adagpr.files import read_json, write_json
from adagpr.system import describe_machine
from adagpr.training import Epoch, Stopping

NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "Cora, 8 layers, 32 channels": ("cora", {"num_layers": 8, "hidden_channels": 32}),
    "Cora, 64 layers, 64 channels": ("cora", {"num_layers": 64, "hidden_channels": 64}),
    "Pubmed, 8 layers, 64 channels": ("pubmed", {"num_layers": 8, "hidden_channels": 64}),
    "digits, defaults": ("digits", {}),
}
LOADS = (0, 1, 2, 4)
THREADS = {"chosen": None, "one": 1, "two": 2}


class Clock:
    """Ends a training after some seconds; counts its epochs from the end of the first, which warms up."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.began = self.now = 0.0
        self.num_epochs = -1

    def __call__(self, number: int, epoch: Epoch, stopping: Stopping) -> Literal["stop"] | None:
        """Called after each epoch."""
        self.now = time.perf_counter()
        self.began = self.began or self.now
        self.num_epochs += 1
        return "stop" if self.num_epochs > 0 and self.now - self.began >= self.seconds else None


def mean_epochs(name: str, options: dict[str, Any], seconds: float, rounds: int) -> dict[str, float]:
    """The mean of an epoch with each way of choosing threads, in milliseconds."""
    graph, splits = load(name)
    clocks: dict[str, list[Clock]] = {threads: [] for threads in THREADS}
    for _ in range(rounds):
        for threads, count in THREADS.items():
            clocks[threads].append(Clock(seconds))
            settings = {"max_epochs": 10**6, "patience": None, "num_threads": count, **options}
            fit(graph, splits[0], on_epoch=clocks[threads][-1], **settings)
    return {
        threads: 1000 * sum(clock.now - clock.began for clock in own) / sum(clock.num_epochs for clock in own)
        for threads, own in clocks.items()
    }


def main() -> None:
    """Measures what the record does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results" / "loads.json")
    arguments = parser.parse_args()
    rows = read_json(arguments.out)["rows"] if arguments.out.exists() else []
    for num_busy in LOADS:
        for title, (name, options) in NETWORKS.items():
            if any((row["busy"], row["network"]) == (num_busy, title) for row in rows):
                continue
            with ExitStack() as stack:
                for _ in range(num_busy):
                    # In a session of its own, as somebody else's process is: schedulers share cores among sessions.
                    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
                    stack.enter_context(busy)
                    stack.callback(busy.kill)
                means = mean_epochs(name, options, arguments.seconds, arguments.rounds)
            ratio = means["chosen"] / min(means["one"], means["two"])
            found = {key: round(value, 2) for key, value in means.items()}
            rows.append({"busy": num_busy, "network": title, **found, "ratio": round(ratio, 3)})
            print(rows[-1], file=sys.stderr, flush=True)
            write_json(arguments.out, {"rows": rows, "machine": describe_machine(0.0)})


if __name__ == "__main__":
    main()
