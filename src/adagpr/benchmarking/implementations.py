"""One implementation of a case, ready to train, in a process of its own.

An implementation that has just used gigabytes leaves a heap and caches behind that slow the next one down, so each has
a process to itself. The processes wait for one another: one epoch after the other, never two at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from adagpr.benchmarking.baselines import baseline_class
from adagpr.benchmarking.cases import OURS, SETTINGS, SIGNED, Case, build_model, load_graph
from adagpr.benchmarking.measure import peak_memory
from adagpr.errors import AdaGPRError
from adagpr.graph import Split
from adagpr.nn import AdaGPR
from adagpr.ops import buffer_pool, compute_threads
from adagpr.system import keep_freed_memory
from adagpr.task import accuracy
from adagpr.training import State, evaluate, training_data


@dataclass(frozen=True)
class Implementation:
    """One way of computing the network, ready to train."""

    step: Callable[[], Tensor]
    logits: Callable[[], Tensor]
    split: Split
    y: Tensor

    def epoch(self) -> None:
        """One training step and one evaluation, with the losses and accuracies that a training keeps of them."""
        loss, logits = self.step(), self.logits()
        loss.item()
        F.cross_entropy(logits[self.split.val], self.y[self.split.val]).item()
        for nodes in (self.split.train, self.split.val):
            accuracy(logits[nodes], self.y[nodes])


def make_implementation(case: Case, name: str) -> Implementation:
    """``ours``, ``adagpr-signed``, or a baseline with a copy of our parameters, for the network and graph of a case."""
    graph, split = load_graph(case)
    setup = build_model(case, graph, split, name)
    config, model = setup.config, setup.model
    if name in (OURS, SIGNED):
        inputs, state = training_data(graph, split, config, model), State(model, config)
        return Implementation(lambda: inputs.step(state), lambda: evaluate(model, inputs), split, graph.y)
    baseline = baseline_class(name)(cast("AdaGPR", model))
    x = graph.x if isinstance(graph.x, Tensor) else torch.from_numpy(graph.x.toarray())
    structure, y = baseline.prepare(graph), graph.y
    optimizer = torch.optim.Adam(baseline.parameters(), SETTINGS["lr"], weight_decay=SETTINGS["weight_decay"])

    def step() -> Tensor:
        baseline.train()
        optimizer.zero_grad()
        loss = F.cross_entropy(baseline(x, structure)[split.train], y[split.train])
        loss.backward()
        optimizer.step()
        return loss.detach()

    def logits() -> Tensor:
        baseline.eval()
        with torch.inference_mode():
            result: Tensor = baseline(x, structure)
            return result

    return Implementation(step, logits, split, y)


class ImplementationProcess:
    """An implementation that is computed in another process, and the logits before its first step."""

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
def implementation_process(case: Case, name: str, folder: Path) -> Iterator[ImplementationProcess]:
    """A process that computes an implementation and writes its logits into the folder; it ends with the context."""
    logits = folder / f"{name}.npy"
    command = [*_command(serve, case, name), str(logits)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield ImplementationProcess(process, logits)
        finally:
            process.kill()


def serve(case_json: str, name: str, logits: str) -> None:
    """Reads counts of epochs and of threads line by line, and answers each with the seconds it took."""
    warnings.simplefilter("ignore", UserWarning)
    keep_freed_memory()
    torch.manual_seed(0)
    implementation = make_implementation(Case.from_plain(json.loads(case_json)), name)
    np.save(logits, implementation.logits().numpy(), allow_pickle=False)
    with buffer_pool():
        for line in sys.stdin:
            count, num_threads = map(int, line.split())
            torch.set_num_threads(num_threads)
            with compute_threads() if name in (OURS, SIGNED) else nullcontext():
                before = time.perf_counter()
                for _ in range(count):
                    implementation.epoch()
                sys.stdout.write(f"{time.perf_counter() - before}\n")
            sys.stdout.flush()


def step_memory(case: Case, name: str) -> dict[str, float]:
    """`peak_memory` of a training step of the named implementation, in a fresh process."""
    # The C library's cache of freed blocks varies by 15 % from run to run; with it off, what is resident is in use.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    command = _command(print_memory, case, name)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message; memory may have run out"])[-1]
        raise AdaGPRError(f"Measuring the memory of {name} ended with code {done.returncode}: {last}.")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def print_memory(case_json: str, name: str) -> None:
    """Prints `peak_memory` of a training step as JSON."""
    torch.set_num_threads(1)
    implementation = make_implementation(Case.from_plain(json.loads(case_json)), name)
    print(json.dumps(peak_memory(implementation.step)))  # noqa: T201


def _command(function: Callable[..., Any], case: Case, name: str) -> list[str]:
    """Calls a function of this module with a case and a name in a fresh Python."""
    script = f"import sys; from {__name__} import {function.__name__}; {function.__name__}(*sys.argv[1:])"
    return [sys.executable, "-W", "ignore", "-c", script, json.dumps(case.plain()), name]
