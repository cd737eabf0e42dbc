"""The training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from adagpr import seeding
from adagpr.errors import AdaGPRError
from adagpr.graph import Split
from adagpr.metrics import accuracy
from adagpr.nn import Model
from adagpr.ops import Features
from adagpr.training.checkpoint import optimizer_tensors, restore_optimizer
from adagpr.training.config import TrainingConfig
from adagpr.training.stopping import Epoch, Stopping

__all__ = ["Inputs", "State", "evaluate", "train", "train_step"]


@dataclass(frozen=True, eq=False)
class Inputs:
    """What the model is shown: features, the structure that it prepared, labels and the split."""

    x: Features
    structure: Any
    y: Tensor
    split: Split


class State:
    """A training in progress: all that a checkpoint holds.

    Attributes:
        model: The model with its current parameters.
        optimizer: Adam, one parameter group for each named group of the model.
        stopping: The stopping rule's memory.
        history: One row of numbers for each epoch, in the order of the fields of `Epoch`.
        coeffs: The coefficients of all layers after each epoch, where the model has any.
        best: The parameters of the best epoch.
        seconds: Time spent training so far, over all sessions.
    """

    def __init__(self, model: Model, config: TrainingConfig) -> None:
        self.model = model
        self.decays = _decays(model, config)
        # The gradient of w * |p|^2 is 2 w p, which is Adam's decay at 2 w.
        factor = 2.0 if config.decay == "penalty" else 1.0
        groups = model.parameter_groups()
        self.optimizer = torch.optim.Adam(
            [{"params": groups[name], "weight_decay": factor * self.decays[name]} for name in groups]
            or [{"params": []}],
            lr=config.lr,
            fused=True,
        )
        self.stopping = Stopping()
        self.history: list[list[float]] = []
        self.coeffs: list[Tensor] = []
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

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The state as named tensors and a header of plain data."""
        tensors = {f"model/{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"best/{name}": value for name, value in self.best.items()}
        tensors |= optimizer_tensors(self.optimizer, self.model)
        tensors["history"] = torch.tensor(self.history, dtype=torch.float64)
        if self.coeffs:
            tensors["coeffs"] = torch.stack(self.coeffs)
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
        restore_optimizer(self.optimizer, self.model, tensors)
        self.history = tensors["history"].tolist()
        self.coeffs = list(tensors["coeffs"]) if "coeffs" in tensors else []
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
    inputs: Inputs,
    config: TrainingConfig,
    on_epoch: Callable[[int, Epoch, Stopping], None],
    save: Callable[[], None],
    save_every: float,
) -> None:
    """Trains until patience or epochs run out; then the best epoch's parameters are in the model.

    Args:
        state: Where training stands; changed in place.
        inputs: What the model is shown.
        config: How to train.
        on_epoch: Called after each epoch with its number, its measurements and the stopping rule.
        save: Called every ``save_every`` seconds to write a checkpoint of ``state``.
        save_every: Seconds between two checkpoints.
    """
    model, split, y = state.model, inputs.split, inputs.y
    saved = started = time.perf_counter()
    before = state.seconds
    # A model without parameters has nothing to learn: it is measured once.
    num_epochs = config.max_epochs if state.decays else 1
    while len(state.history) < num_epochs and not state.stopping.is_over(config):
        loss = train_step(state, inputs)
        logits = evaluate(model, inputs)
        epoch = Epoch(
            train_loss=loss.item(),
            train_acc=accuracy(logits[split.train], y[split.train]),
            val_loss=F.cross_entropy(logits[split.val], y[split.val]).item(),
            val_acc=accuracy(logits[split.val], y[split.val]),
            penalty=state.penalty() if config.decay == "penalty" else 0.0,
        )
        number = len(state.history) + 1
        if not math.isfinite(epoch.train_loss + epoch.val_objective):
            raise AdaGPRError(f"Training diverged at epoch {number}: the loss is not finite. Try a smaller lr.")
        state.history.append(list(astuple(epoch)))
        coefficients = model.coefficients()
        if coefficients is not None:
            state.coeffs.append(coefficients.cpu())
        if state.stopping.update(number, epoch, config):
            state.best = {name: value.clone() for name, value in model.state_dict().items()}
        now = time.perf_counter()
        state.seconds = before + now - started
        if now - saved >= save_every:
            save()
            saved = time.perf_counter()
        on_epoch(number, epoch, state.stopping)
    model.load_state_dict(state.best)


def train_step(state: State, inputs: Inputs) -> Tensor:
    """One step of the optimiser on the training nodes; returns the loss before it, dropout on."""
    model, train_nodes = state.model, inputs.split.train
    model.train()
    state.optimizer.zero_grad(set_to_none=True)
    loss = F.cross_entropy(model(inputs.x, inputs.structure)[train_nodes], inputs.y[train_nodes])
    if state.decays:
        loss.backward()
        state.optimizer.step()
    return loss.detach()


def evaluate(model: Model, inputs: Inputs) -> Tensor:
    """Logits of all nodes, dropout off, no gradients."""
    model.eval()
    with torch.inference_mode():
        logits: Tensor = model(inputs.x, inputs.structure)
        return logits


HISTORY_COLUMNS = [field.name for field in fields(Epoch)]
