"""Where an epoch, one training step and one evaluation, spends its time.

An epoch is timed as it is, without instruments. The same epoch is then repeated under torch's profiler, which sees
Python functions and torch's operations, forward and backward alike. Its events are folded into stacks: functions of
this package and of the optimiser, then the operation that runs. Each stack has one of `CATEGORIES` (see `category`).
What the profiler adds to the epoch is deducted, an equal time for each of its events. Overhead is what the rest
leave of the epoch as it is: Python, autograd, allocation.

Kernels of our own count as what they mainly do: a sum of weighted hops as its sparse products, ReLU with dropout as
dropout. Under the profiler layers are computed one by one, which adds time around the kernels, not in them.

The limit is what the matrix products of that epoch need when each runs alone, into memory that is already there: with
the same products on the same kernels no epoch can be faster.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, TypeVar

import torch
from torch import Tensor

from adagpr.benchmarking.products import PRODUCT, Product, Recorder, seconds_of
from adagpr.errors import AdaGPRError, InputError
from adagpr.ops import num_threads, watch_kernels
from adagpr.training import State, TrainingData, evaluate

CATEGORIES = ("sparse products", "dense products", "dropout", "activation", "optimiser", "other operations", "overhead")
PHASES = ("training", "evaluation")

Stack = tuple[str, ...]

T = TypeVar("T", str, Stack)
_Steps = dict[str, Callable[[], Tensor]]

# The functions that call kernels which are products, and the one in which all kernels run.
_SPARSE = {"adagpr/ops/kernels.py: weighted_hops", "adagpr/ops/backend.py: weighted_hops_backward"}
_DENSE = {"adagpr/ops/kernels.py: multiply_square", "adagpr/ops/kernels.py: outer"}
_KERNEL = "adagpr/ops/kernels.py: _run"
_ACTIVATION = re.compile(r"^aten::(relu|threshold|leaky_relu|elu|clamp_min)(_backward)?_?$")
_DROPOUT = re.compile(r"(?<![a-z])drop|::bernoulli")
_SHOWN = re.compile(r"^(adagpr/(?!benchmarking/|cli/)|torch/optim/|torch/_tensor.py\(\d+\): backward)|^\w+Backward\d*$")


def category(stack: Stack) -> str:
    """The category that time in ``stack`` belongs to, by the names of files, functions and operations."""
    last = stack[-1]
    if last == _KERNEL and not {*_SPARSE, *_DENSE}.isdisjoint(stack):
        return "dense products" if _SPARSE.isdisjoint(stack) else "sparse products"
    if last.endswith(("(sparse)", "(dense)")):
        return "sparse products" if last.endswith("(sparse)") else "dense products"
    if _ACTIVATION.match(last):
        return "activation"
    # A product or an activation is one wherever it runs; all else inside these is theirs, Python included.
    if any(_DROPOUT.search(entry) for entry in stack):
        return "dropout"
    if any(entry.startswith("adagpr/training/optimizer.py") for entry in stack):
        return "optimiser"
    return "other operations" if last.startswith("aten::") else "overhead"


@dataclass(frozen=True)
class Profile:
    """What `profile_epoch` found."""

    seconds: float  # of one epoch without instruments
    categories: dict[str, tuple[float, float]]  # seconds in training and in evaluation; together they are ``seconds``
    products: list[Product]  # the distinct matrix products
    stacks: dict[Stack, float]  # seconds in order of appearance, which sum to ``seconds``; the first entry is the phase
    num_threads: int  # of the kernels

    @property
    def limit(self) -> tuple[float, float]:
        """Seconds of all products, each alone, in training and in evaluation."""
        each = [sum(product.counts[phase] * product.seconds for product in self.products) for phase in PHASES]
        return each[0], each[1]

    @property
    def limit_share(self) -> float:
        """The limit as a share of the epoch; 1 would be an epoch of nothing but products."""
        return sum(self.limit) / self.seconds

    def to_plain(self) -> dict[str, Any]:
        """All but the stacks, ready for JSON."""
        return {
            "seconds": self.seconds,
            "limit_share": self.limit_share,
            "limit": dict(zip(PHASES, self.limit, strict=True)),
            "parts": {name: dict(zip(PHASES, seconds, strict=True)) for name, seconds in self.categories.items()},
            "products": [product.to_plain() for product in self.products],
            "num_threads": self.num_threads,
        }

    def table(self) -> list[tuple[str, float, float, float]]:
        """Each category, the whole epoch and the limit: ms in training, ms in evaluation, and share of the epoch."""
        training, evaluation = zip(*self.categories.values(), strict=True)
        rows = {**self.categories, "epoch": (sum(training), sum(evaluation)), "limit (products alone)": self.limit}
        return [(name, 1e3 * row[0], 1e3 * row[1], sum(row) / self.seconds) for name, row in rows.items()]

    def flame_graph(self, name: str) -> dict[str, Any]:
        """The stacks as a file of https://www.speedscope.app, which draws them as a flame graph."""
        frames = list(dict.fromkeys(entry for stack in self.stacks for entry in stack))
        timeline = {
            "type": "sampled",
            "name": "one epoch",
            "unit": "milliseconds",
            "startValue": 0,
            "endValue": 1e3 * self.seconds,
            "samples": [[frames.index(entry) for entry in stack] for stack in self.stacks],
            "weights": [1e3 * seconds for seconds in self.stacks.values()],
        }
        return {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "name": name,
            "shared": {"frames": [{"name": entry} for entry in frames]},
            "profiles": [timeline],
        }


def profile_epoch(state: State, inputs: TrainingData, rounds: int = 20) -> Profile:
    """Measures one epoch ``rounds`` times as it is, its products alone, and the epoch under the profiler, in turn.

    Medians over the rounds count. The clock of a shared machine changes from second to second, so all times of a round
    are first brought to the speed at which its epoch takes the median time.

    ``state`` is trained by one epoch to warm up. Every round then starts from the same point, so that all do the same
    work, and ``state`` is left there. All runs on a CPU with the threads that kernels have at the moment.
    """
    if rounds < 1:
        raise InputError(f"profile_epoch: rounds must be at least 1, got {rounds}.")
    steps: _Steps = {"training": lambda: inputs.step(state), "evaluation": lambda: evaluate(state.model, inputs)}
    for step in steps.values():
        step()
    tensors, header = state.tensors()
    start = {name: tensor.detach().clone() for name, tensor in tensors.items()}

    def rewind() -> None:
        state.restore({name: tensor.clone() for name, tensor in start.items()}, header)

    recorder = Recorder()
    recorder.record(steps)
    found = list(recorder.found.values())
    measured: list[dict[str, float]] = []
    traced: list[dict[Stack, float]] = []
    for _ in range(rounds):
        rewind()
        measured.append({phase: seconds_of(step) for phase, step in steps.items()})
        for item in found:
            item.measure()
        rewind()
        stacks, counts = _trace(steps, recorder.kinds)
        traced.append(stacks)
    rewind()
    epochs = [sum(item.values()) for item in measured]
    speeds = [median(epochs) / seconds for seconds in epochs]
    phases = _medians(measured, speeds)
    stacks = _corrected(_medians(traced, speeds), counts, phases)
    categories = {name: (_total(stacks, "training", name), _total(stacks, "evaluation", name)) for name in CATEGORIES}
    for item in found:
        item.seconds = median(time * speed for time, speed in zip(item.times, speeds, strict=True))
    return Profile(sum(phases.values()), categories, found, stacks, num_threads())


def _trace(steps: _Steps, kinds: dict[str, list[str]]) -> tuple[dict[Stack, float], dict[Stack, int]]:
    """Seconds and events of each stack of an epoch under the profiler; ``kinds`` tells sparse products from dense."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler writes to standard error
    stacks: dict[Stack, float] = {}
    counts: dict[Stack, int] = {}
    for phase, step in steps.items():
        with (
            torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=True) as profiler,
            watch_kernels(lambda name, arguments, run: run()),
        ):
            step()
        events, order = profiler.profiler.kineto_results.experimental_event_tree(), iter(kinds[phase])
        found = fold(events, phase, partial(_entry, kinds=order))
        if next(order, None) is not None:
            raise AdaGPRError("profile_epoch: the profiler missed products that ran.")
        stacks, counts = stacks | found[0], counts | found[1]
    return stacks, counts


def fold(
    events: Iterable[Any], root: str, entry: Callable[[Any], str | None]
) -> tuple[dict[Stack, float], dict[Stack, int]]:
    """Seconds by stack, in order of first appearance, and from how many events they come.

    ``entry`` says how an event appears, or none where its time goes to the entry below. Time outside of all entries is
    left out; inside an operation of torch (``aten::...``) nothing else appears.
    """
    stacks: dict[Stack, float] = {}
    counts: Counter[Stack] = Counter()

    def add(event: Any, stack: Stack, end: int, is_open: bool) -> int:
        # A range that torch marks by hand may end after the call that began it.
        nanoseconds: int = max(min(event.start_time_ns + event.duration_time_ns, end) - event.start_time_ns, 0)
        name = entry(event) if is_open else None
        own = stack if name is None else (*stack, name)
        stacks.setdefault(own, 0.0)
        counts[own] += 1
        is_open = is_open and not (name or "").startswith("aten::")
        inner = sum(add(child, own, event.start_time_ns + nanoseconds, is_open) for child in event.children)
        stacks[own] += max(nanoseconds - inner, 0) / 1e9
        return nanoseconds

    for event in events:
        add(event, (root,), event.start_time_ns + event.duration_time_ns, True)
    stacks.pop((root,), None)
    counts.pop((root,), None)
    return stacks, counts


def _entry(event: Any, kinds: Iterator[str]) -> str | None:
    """How an event appears in stacks, if it does; an operation made of products gives way to them."""
    name: str = event.name
    if PRODUCT.match(name):
        return f"{name} ({next(kinds)})"
    if name.startswith("aten::"):
        return None if _holds_product(event) else name
    return re.sub(r"\(\d+\)", "", name) if _SHOWN.match(name) else None


def _holds_product(event: Any) -> bool:
    return any(PRODUCT.match(child.name) or _holds_product(child) for child in event.children)


def _medians(rounds: list[dict[T, float]], speeds: list[float]) -> dict[T, float]:
    keys = dict.fromkeys(key for item in rounds for key in item)
    pairs = list(zip(rounds, speeds, strict=True))
    return {key: median(speed * item.get(key, 0.0) for item, speed in pairs) for key in keys}


def _total(stacks: dict[Stack, float], phase: str, name: str) -> float:
    return sum(seconds for stack, seconds in stacks.items() if stack[0] == phase and category(stack) == name)


def _corrected(stacks: dict[Stack, float], counts: dict[Stack, int], phases: dict[str, float]) -> dict[Stack, float]:
    """Takes out what the profiler added, an equal time per event; overhead then fills what each phase really took."""
    result: dict[Stack, float] = {}
    for phase, seconds in phases.items():
        own = {stack: value for stack, value in stacks.items() if stack[0] == phase}
        cost = max(sum(own.values()) - seconds, 0.0) / sum(counts[stack] for stack in own)
        # Noise may make the cost absurd: half of a stack stays in any case.
        own = {stack: max(value - cost * counts[stack], value / 2) for stack, value in own.items()}
        overhead = _total(own, phase, "overhead")
        work = sum(own.values()) - overhead
        is_full = overhead == 0 or work > seconds
        fill = 0.0 if is_full else (seconds - work) / overhead
        shrink = seconds / work if is_full else 1.0
        result |= {stack: value * (fill if category(stack) == "overhead" else shrink) for stack, value in own.items()}
    return result
