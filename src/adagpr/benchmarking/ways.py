"""One way of computing a case, ready to train, in a process of its own.

A way that has just used gigabytes leaves a heap and caches behind that slow the next one down, so each has a process
to itself. The processes wait for one another: one epoch after the other, never two at once.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from adagpr.benchmarking.cases import OURS, SETTINGS, Case, build_model, load_graph
from adagpr.benchmarking.rivals import rival_class
from adagpr.errors import AdaGPRError
from adagpr.graph import Graph, Split
from adagpr.metrics import accuracy
from adagpr.nn import AdaGPR
from adagpr.ops import buffer_pool
from adagpr.system import keep_freed_memory
from adagpr.training import Epoch, State, TrainingConfig, evaluate, training_data

__all__ = ["Implementation", "WayProcess", "make_way", "memory_step", "serve", "way_process"]


@dataclass(frozen=True)
class Implementation:
    """One way of computing the network, ready to train."""

    step: Callable[[], Tensor]
    logits: Callable[[], Tensor]
    split: Split
    y: Tensor

    def epoch(self) -> Epoch:
        """One training step and one evaluation."""
        loss, logits = self.step(), self.logits()
        train, val, y = self.split.train, self.split.val, self.y
        return Epoch(
            train_loss=loss.item(),
            train_acc=accuracy(logits[train], y[train]),
            val_loss=F.cross_entropy(logits[val], y[val]).item(),
            val_acc=accuracy(logits[val], y[val]),
            penalty=0.0,
        )


def make_way(name: str, model: AdaGPR, config: TrainingConfig, graph: Graph, split: Split) -> Implementation:
    """The named way of computing ``model``: ``ours`` or a rival with a copy of its parameters."""
    if name == OURS:
        inputs, state = training_data(graph, split, config, model), State(model, config)
        return Implementation(lambda: inputs.step(state), lambda: evaluate(model, inputs), split, graph.y)
    rival = rival_class(name).from_model(model)
    x = graph.x if isinstance(graph.x, Tensor) else torch.from_numpy(graph.x.toarray())
    structure, y = rival.prepare(graph), graph.y
    optimizer = torch.optim.Adam(rival.parameters(), SETTINGS["lr"], weight_decay=SETTINGS["weight_decay"])

    def step() -> Tensor:
        rival.train()
        optimizer.zero_grad()
        loss = F.cross_entropy(rival(x, structure)[split.train], y[split.train])
        loss.backward()
        optimizer.step()
        return loss.detach()

    def logits() -> Tensor:
        rival.eval()
        with torch.inference_mode():
            result: Tensor = rival(x, structure)
            return result

    return Implementation(step, logits, split, y)


def memory_step(case_json: str, name: str) -> Callable[[], None]:
    """For `adagpr.benchmarking.measure.peak_memory`: prepares one way of a case and returns its training step."""
    torch.set_num_threads(1)
    case = Case.from_plain(json.loads(case_json))
    graph, split = load_graph(case)
    ready = make_way(name, *build_model(case, graph, split), graph, split)

    def step() -> None:
        ready.step()

    return step


class WayProcess:
    """A way that is computed in another process; see `way_process`.

    Attributes:
        process: The process.
        logits: What it computed before its first step.
    """

    def __init__(self, process: subprocess.Popen[str], logits: Path) -> None:
        self.process = process
        self.epochs(0, 1)  # answered as soon as all is prepared
        self.logits: np.ndarray = np.load(logits, allow_pickle=False)

    def epochs(self, count: int, num_threads: int) -> float:
        """Computes so many epochs on so many threads and returns the seconds that it took."""
        ask, answer = cast("TextIO", self.process.stdin), cast("TextIO", self.process.stdout)
        try:
            ask.write(f"{count} {num_threads}\n")
            ask.flush()
            line = answer.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise AdaGPRError(f"A process of the benchmark ended with code {self.process.wait()}.")
        return float(line)


@contextmanager
def way_process(case: Case, name: str, folder: Path) -> Iterator[WayProcess]:
    """A process that computes the named way of a case; it ends with the context.

    Args:
        case: What is computed.
        name: ``ours`` or a rival's name.
        folder: An existing folder that the process may write its logits into.
    """
    logits = folder / f"{name}.npy"
    script = f"import sys; from {__name__} import serve; serve(*sys.argv[1:])"
    command = [sys.executable, "-c", script, json.dumps(case.plain()), name, str(logits)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield WayProcess(process, logits)
        finally:
            process.kill()


def serve(case_json: str, name: str, logits: str) -> None:
    """Reads counts of epochs and of threads line by line, and answers each with the seconds it took."""
    warnings.simplefilter("ignore", UserWarning)
    keep_freed_memory()
    torch.manual_seed(0)
    case = Case.from_plain(json.loads(case_json))
    graph, split = load_graph(case)
    way = make_way(name, *build_model(case, graph, split), graph, split)
    np.save(logits, way.logits().numpy(), allow_pickle=False)
    with buffer_pool():
        for line in sys.stdin:
            count, num_threads = map(int, line.split())
            torch.set_num_threads(num_threads)
            before = time.perf_counter()
            for _ in range(count):
                way.epoch()
            sys.stdout.write(f"{time.perf_counter() - before}\n")
            sys.stdout.flush()
