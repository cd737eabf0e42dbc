"""A training in progress: parameters, optimiser, history and stopping rule. A checkpoint holds all of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from adagpr import seeding
from adagpr.errors import DivergedError
from adagpr.nn import Model
from adagpr.schemas import CheckpointHeader, check_tensors, conform, damaged, kinds
from adagpr.training.config import TrainingConfig
from adagpr.training.optimizer import Adam


class Measured(NamedTuple):
    """What is measured after a step, dropout off; see `Epoch`."""

    train_acc: float
    val_loss: float
    val_acc: float
    val_metric: float | None = None


class Epoch(NamedTuple):
    """What is measured after one training step; the columns of the history.

    Attributes:
        train_loss: Loss of the step itself, dropout on.
        train_acc: Accuracy on the training nodes, dropout off.
        val_loss: Loss on the validation nodes, dropout off, without penalties.
        val_acc: Accuracy on the validation nodes.
        penalty: What the penalties add to a loss; 0 with Adam's decay.
        val_metric: The configured metric on the validation nodes; none, and no column, where that is the accuracy or
            undefined.
    """

    train_loss: float
    train_acc: float
    val_loss: float
    val_acc: float
    penalty: float
    val_metric: float | None = None

    @property
    def by_metric(self) -> float:
        """The configured metric on the validation nodes where it is defined, else the accuracy."""
        return self.val_acc if self.val_metric is None else self.val_metric

    @property
    def val_objective(self) -> float:
        """Validation loss with the penalties."""
        return self.val_loss + self.penalty


def columns_of(history: Sequence[Epoch]) -> tuple[str, ...]:
    """The columns that a history has."""
    has_metric = bool(history) and history[0].val_metric is not None
    return tuple(name for name in Epoch._fields if name != "val_metric" or has_metric)


@dataclass
class Stopping:
    """Tracks the best epoch and counts the epochs without progress. Validation decides; test nodes are never used.

    Attributes:
        best_epoch: The epoch whose parameters count, from 1; 0 before the first.
        waited: Epochs since the last progress.
        lowest: Lowest value so far of everything that may count as progress; what is better high is stored negative.
    """

    best_epoch: int = 0
    waited: int = 0
    lowest: dict[str, float] = field(default_factory=dict)

    def update(self, number: int, epoch: Epoch, config: TrainingConfig) -> bool:
        """Adds one epoch and tells whether it is the best so far."""
        measured = {"val_loss": epoch.val_loss, "val_objective": epoch.val_objective, "val_acc": -epoch.val_acc}
        measured["val_metric"] = -epoch.by_metric
        watched = {config.monitor, "val_loss", "val_acc"} if config.progress == "validation" else {config.monitor}
        better = {name for name in watched if measured[name] < self.lowest.get(name, math.inf)}
        self.lowest |= {name: measured[name] for name in better}
        if config.monitor in better:
            self.best_epoch = number
        self.waited = 0 if better else self.waited + 1
        return config.monitor in better

    def is_over(self, config: TrainingConfig) -> bool:
        """Whether patience has run out."""
        return config.patience is not None and self.waited >= config.patience


# Called after each epoch with its number, its measurements and the stopping rule; may ask to stop.
OnEpoch = Callable[[int, Epoch, Stopping], Literal["stop"] | None]


class State:
    """Everything that changes while a model trains.

    Attributes:
        decays: The decay of each group of parameters.
        history: What was measured after each epoch.
        best: The parameters of the best epoch.
        seconds: Time spent training so far, in all processes that worked on it.
        is_stopped: Whether a callback asked to stop.
        failure: Why there is no result, if training diverged.
    """

    def __init__(self, model: Model, config: TrainingConfig) -> None:
        self.model, self.config = model, config
        decay, parameters_of = config.weight_decay, model.parameter_groups()
        self.decays = {name: decay.get(name, 0.0) if isinstance(decay, dict) else decay for name in parameters_of}
        # The gradient of w * |p|^2 is 2 w p, which is Adam's decay at 2 w.
        factor = 2.0 if config.decay == "penalty" else 1.0
        groups: dict[float, list[torch.nn.Parameter]] = {}
        for name, parameters in parameters_of.items():
            groups.setdefault(factor * self.decays[name], []).extend(parameters)
        self.optimizer = Adam(groups, config.lr)
        self.stopping = Stopping()
        self.history: list[Epoch] = []
        self._coeffs: Tensor | None = None
        self.best = self._parameters()
        self.seconds = 0.0
        self.is_stopped = False
        self.failure: DivergedError | None = None

    def _parameters(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self.model.state_dict().items()}

    def penalty(self) -> float:
        """What the penalties add to a loss."""
        total = 0.0
        for name, parameters in self.model.parameter_groups().items():
            if self.decays[name] > 0:
                norms = torch.stack(torch._foreach_norm([parameter.detach() for parameter in parameters]))
                total += self.decays[name] * norms.square().sum().item()
        return total

    def add_epoch(self, loss: Tensor, measured: Measured, coeffs: Tensor | None) -> None:
        """Adds the loss of a step and what was measured after it; keeps the parameters if they are the best so far.

        Raises:
            DivergedError: The loss is not finite.
        """
        penalty = self.penalty() if self.config.decay == "penalty" else 0.0
        epoch = Epoch(train_loss=loss.item(), **measured._asdict(), penalty=penalty)
        number = len(self.history) + 1
        if not math.isfinite(epoch.train_loss + epoch.val_objective):
            self.failure = DivergedError(
                f"Training diverged at epoch {number}: the loss is not finite. Try a smaller lr."
            )
            raise self.failure
        self.history.append(epoch)
        if coeffs is not None:
            self._keep(coeffs)
        if self.stopping.update(number, epoch, self.config):
            self.best = self._parameters()

    @property
    def coeffs(self) -> Tensor | None:
        """The coefficients after each epoch, ``[epochs, layers, hops]``, if the model has any."""
        return None if self._coeffs is None else self._coeffs[: len(self.history)]

    def _keep(self, coeffs: Tensor) -> None:
        # In one block that doubles: one small block per epoch, between large ones that come and go, would keep the C
        # library from reusing their memory, and it would ask the system for more and more.
        number, rows = len(self.history), self._coeffs
        if rows is None:
            rows = torch.empty(64, *coeffs.shape, dtype=coeffs.dtype)
        elif number > len(rows):
            rows = torch.cat([rows, torch.empty_like(rows)])
        rows[number - 1] = coeffs
        self._coeffs = rows

    def tell(self, on_epoch: OnEpoch | None) -> None:
        """Reports the last epoch; training is over if the callback asks to stop."""
        if on_epoch is not None:
            self.is_stopped = on_epoch(len(self.history), self.history[-1], self.stopping) == "stop"

    @property
    def is_over(self) -> bool:
        """Whether patience or epochs have run out, a callback asked to stop, or training diverged."""
        # A model without parameters has nothing to learn: it is measured once.
        num_epochs = self.config.max_epochs if self.decays else 1
        is_ended = self.is_stopped or self.failure is not None or len(self.history) >= num_epochs
        return is_ended or self.stopping.is_over(self.config)

    @property
    def stopped_by(self) -> str:
        """What ended the training, as the record names it."""
        if self.is_stopped:
            return "callback"
        return "patience" if self.stopping.is_over(self.config) else "max_epochs"

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The state as named tensors and a header of plain data."""
        tensors = {f"model/{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"best/{name}": value for name, value in self.best.items()}
        tensors |= self.optimizer.tensors(self.model)
        width = len(columns_of(self.history))
        tensors["history"] = torch.tensor([epoch[:width] for epoch in self.history], dtype=torch.float64)
        if self.coeffs is not None:
            tensors["coeffs"] = self.coeffs
        generator = seeding.capture(self.model.generator)
        return tensors, {"stopping": asdict(self.stopping), "generator": generator, "seconds": self.seconds}

    def check(self, path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any], way_out: str) -> int:
        """Raises unless a checkpoint's content is that of such a training; its number of epochs."""
        conform(path, CheckpointHeader, header, way_out)
        state, coeffs, num_epochs = self.model.state_dict(), self.model.coefficients(), len(tensors.get("history", ()))
        expected = kinds({f"{part}/{name}": value for part in ("model", "best") for name, value in state.items()})
        for name, parameter in self.model.named_parameters():
            # A parameter that had no gradient yet has no moments.
            if f"adam/{name}/step" in tensors:
                expected[f"adam/{name}/step"] = (torch.float32, ())
                expected |= kinds({f"adam/{name}/{moment}": parameter for moment in ("exp_avg", "exp_avg_sq")})
        if coeffs is not None and num_epochs:
            expected["coeffs"] = (coeffs.dtype, (num_epochs, *coeffs.shape))
        width = len(Epoch._fields)
        # The metric has no column where it is the accuracy, or undefined on the validation nodes.
        if self.config.metric == "accuracy" or (num_epochs and tensors["history"].shape[1:] != (width,)):
            width -= 1
        expected["history"] = (torch.float64, (num_epochs, width) if num_epochs else (0,))
        check_tensors(path, tensors, expected, way_out)
        stopping = header["stopping"]
        if num_epochs > self.config.max_epochs or not tensors["history"].isfinite().all():
            raise damaged(path, "tensor 'history' does not fit this run", way_out)
        if not bool(num_epochs) <= stopping["best_epoch"] <= num_epochs or stopping["waited"] > num_epochs:
            raise damaged(path, f"stopping does not fit a history of {num_epochs} epochs", way_out)
        return num_epochs

    def restore(self, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
        """Puts back what `tensors` returned."""
        self.model.load_state_dict(_under("model/", tensors))
        self.best = _under("best/", tensors)
        self.optimizer.restore(self.model, tensors)
        self.history = [Epoch(*row) for row in tensors["history"].tolist()]
        self._coeffs = tensors.get("coeffs")
        self.stopping = Stopping(**header["stopping"])
        seeding.restore(self.model.generator, header["generator"])
        self.seconds = header["seconds"]


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
