"""The training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from adagpr import seeding
from adagpr.errors import AdaGPRError
from adagpr.metrics import accuracy
from adagpr.nn import Model
from adagpr.ops import Features
from adagpr.training.adam import Adam
from adagpr.training.config import TrainingConfig
from adagpr.training.stopping import Epoch, Stopping

__all__ = [
    "Measured",
    "State",
    "Strategy",
    "TrainingData",
    "balanced_weights",
    "evaluate",
    "train",
    "train_loss",
    "train_step",
]


class Measured(NamedTuple):
    """What is measured after a step, dropout off; see `Epoch`."""

    train_acc: float
    val_loss: float
    val_acc: float


class Strategy(Protocol):
    """What is trained on: a graph in memory, this process's share of one, or batches of its parts."""

    def step(self, state: State) -> Tensor:
        """Learns from every training node once; returns the loss."""

    def measure(self, model: Model) -> Measured:
        """Measures the model on training and validation nodes, dropout off."""


@dataclass(frozen=True, eq=False)
class TrainingData:
    """What the model is shown.

    Attributes:
        x: Features of all nodes.
        structure: What the model prepared.
        y: Classes of all nodes.
        train: Positions of the training nodes.
        val: Positions of the validation nodes.
        class_weights: How much a node of each class counts; the same unless given.
        order: Which node of the graph stands at each position, where they stand in another order.
    """

    x: Features
    structure: Any
    y: Tensor
    train: Tensor
    val: Tensor
    class_weights: Tensor | None = None
    order: Tensor | None = None

    @cached_property
    def train_y(self) -> Tensor:
        """The classes of the training nodes."""
        return self.y[self.train]

    @cached_property
    def val_y(self) -> Tensor:
        """The classes of the validation nodes."""
        return self.y[self.val]

    def step(self, state: State) -> Tensor:
        """One step of the optimiser; see `train_step`."""
        return train_step(state, self)

    def measure(self, model: Model) -> Measured:
        """Measures the model on this graph."""
        return self.measured(_logits(model, self))

    def measured(self, logits: Tensor) -> Measured:
        """What is measured of the logits of all nodes."""
        on_train = logits.index_select(0, self.train)
        on_val = logits.index_select(0, self.val)
        val_loss = F.cross_entropy(on_val, self.val_y, self.class_weights).item()
        return Measured(accuracy(on_train, self.train_y), val_loss, accuracy(on_val, self.val_y))


class State:
    """A training in progress: all that a checkpoint holds.

    Attributes:
        model: The model with its current parameters.
        optimizer: Adam.
        stopping: The stopping rule's memory.
        history: One row of numbers for each epoch, in the order of the fields of `Epoch`.
        best: The parameters of the best epoch.
        seconds: Time spent training so far, over all sessions.
    """

    def __init__(self, model: Model, config: TrainingConfig) -> None:
        self.model = model
        self.decays = _decays(model, config)
        # The gradient of w * |p|^2 is 2 w p, which is Adam's decay at 2 w.
        factor = 2.0 if config.decay == "penalty" else 1.0
        groups: dict[float, list[torch.nn.Parameter]] = {}
        for name, parameters in model.parameter_groups().items():
            groups.setdefault(factor * self.decays[name], []).extend(parameters)
        self.optimizer = Adam(groups, config.lr)
        self.stopping = Stopping()
        self.history: list[list[float]] = []
        self._coeffs: Tensor | None = None
        self.best = {name: value.clone() for name, value in model.state_dict().items()}
        self.seconds = 0.0

    def penalty(self) -> float:
        """What the penalties add to a loss."""
        total = 0.0
        for name, parameters in self.model.parameter_groups().items():
            if self.decays[name] > 0:
                norms = torch.stack(torch._foreach_norm([parameter.detach() for parameter in parameters]))
                total += self.decays[name] * norms.square().sum().item()
        return total

    def add_epoch(self, loss: Tensor, measured: Measured, coeffs: Tensor | None, config: TrainingConfig) -> None:
        """Enters an epoch into the history, and keeps its parameters where it is the best so far.

        Args:
            loss: The loss of its training step.
            measured: What was measured after the step, dropout off.
            coeffs: The coefficients after the step, where the model has any.
            config: How to train.
        """
        penalty = self.penalty() if config.decay == "penalty" else 0.0
        epoch = Epoch(train_loss=loss.item(), **measured._asdict(), penalty=penalty)
        number = len(self.history) + 1
        if not math.isfinite(epoch.train_loss + epoch.val_objective):
            raise AdaGPRError(f"Training diverged at epoch {number}: the loss is not finite. Try a smaller lr.")
        self.history.append([getattr(epoch, name) for name in HISTORY_COLUMNS])
        if coeffs is not None:
            self._keep(coeffs)
        if self.stopping.update(number, epoch, config):
            self.best = {name: value.clone() for name, value in self.model.state_dict().items()}

    @property
    def coeffs(self) -> Tensor | None:
        """The coefficients after each epoch, ``[epochs, layers, hops]``, where the model has any."""
        return None if self._coeffs is None else self._coeffs[: len(self.history)]

    def _keep(self, coeffs: Tensor) -> None:
        # In one block that doubles: a small one an epoch, between large ones that come and go, would keep the C library
        # from using the memory of these again, and it would ask for more and more.
        number, rows = len(self.history), self._coeffs
        if rows is None or number > len(rows):
            larger = torch.empty(max(2 * number, 64), *coeffs.shape, dtype=coeffs.dtype)
            if rows is not None:
                larger[: len(rows)] = rows
            self._coeffs = rows = larger
        rows[number - 1] = coeffs

    @property
    def last_epoch(self) -> Epoch:
        """The measurements of the last epoch."""
        return Epoch(*self.history[-1])

    def is_over(self, config: TrainingConfig) -> bool:
        """Whether patience or epochs have run out."""
        # A model without parameters has nothing to learn: it is measured once.
        num_epochs = config.max_epochs if self.decays else 1
        return len(self.history) >= num_epochs or self.stopping.is_over(config)

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The state as named tensors and a header of plain data."""
        tensors = {f"model/{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"best/{name}": value for name, value in self.best.items()}
        tensors |= self.optimizer.tensors(self.model)
        tensors["history"] = torch.tensor(self.history, dtype=torch.float64)
        if self.coeffs is not None:
            tensors["coeffs"] = self.coeffs
        header = {
            "stopping": self.stopping.state(),
            "generator": seeding.capture(self.model.generator),
            "seconds": self.seconds,
        }
        return tensors, header

    def restore(self, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
        """Puts back what `tensors` took."""
        self.model.load_state_dict(_under("model/", tensors))
        self.best = _under("best/", tensors)
        self.optimizer.restore(self.model, tensors)
        self.history = tensors["history"].tolist()
        self._coeffs = tensors.get("coeffs")
        self.stopping = Stopping(**header["stopping"])
        seeding.restore(self.model.generator, header["generator"])
        self.seconds = header["seconds"]


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _decays(model: Model, config: TrainingConfig) -> dict[str, float]:
    decay = config.weight_decay
    return {name: decay.get(name, 0.0) if isinstance(decay, dict) else decay for name in model.parameter_groups()}


def train(
    state: State,
    ground: Strategy,
    config: TrainingConfig,
    on_epoch: Callable[[int, Epoch, Stopping], None],
    save: Callable[[], None],
    save_every: float,
) -> None:
    """Trains until patience or epochs run out; then the best epoch's parameters are in the model.

    Args:
        state: Where training stands; changed in place.
        ground: What is trained on.
        config: How to train.
        on_epoch: Called after each epoch with its number, its measurements and the stopping rule.
        save: Called every ``save_every`` seconds to write a checkpoint of ``state``.
        save_every: Seconds between two checkpoints.
    """
    saved = started = time.perf_counter()
    before = state.seconds
    while not state.is_over(config):
        loss = ground.step(state)
        state.add_epoch(loss, ground.measure(state.model), state.model.coefficients(), config)
        now = time.perf_counter()
        state.seconds = before + now - started
        if now - saved >= save_every:
            save()
            saved = time.perf_counter()
        on_epoch(len(state.history), state.last_epoch, state.stopping)
    state.model.load_state_dict(state.best)


def train_step(state: State, inputs: TrainingData) -> Tensor:
    """One step of the optimiser on the training nodes; returns the loss before it, dropout on."""
    model = state.model
    model.train()
    state.optimizer.zero_grad()
    loss = train_loss(model.logits_at(inputs.train, inputs.x, inputs.structure), inputs)
    if state.decays:
        loss.backward()
        state.optimizer.step()
    return loss.detach()


def train_loss(logits: Tensor, inputs: TrainingData) -> Tensor:
    """Cross entropy of the logits of the training nodes."""
    return F.cross_entropy(logits, inputs.train_y, inputs.class_weights)


def evaluate(model: Model, inputs: TrainingData) -> Tensor:
    """Logits of all nodes in the order of the graph, dropout off, no gradients."""
    logits = _logits(model, inputs)
    return logits if inputs.order is None else torch.empty_like(logits).index_copy_(0, inputs.order, logits)


def _logits(model: Model, inputs: TrainingData) -> Tensor:
    """Logits in the order of ``inputs``."""
    model.eval()
    with torch.inference_mode():
        logits: Tensor = model(inputs.x, inputs.structure)
        return logits


def balanced_weights(counts: Tensor) -> Tensor:
    """Such that the nodes of each class weigh the same together; a class without one weighs nothing.

    Args:
        counts: Training nodes of each class.
    """
    present = counts > 0
    return torch.where(present, counts.sum() / (counts.clamp(min=1).float() * present.sum()), 0.0)


HISTORY_COLUMNS = [field.name for field in fields(Epoch)]
