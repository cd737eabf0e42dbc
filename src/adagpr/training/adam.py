r"""Adam (Kingma and Ba, 2015) with L2 decay, in one call for all parameters.

.. math:: g \leftarrow g + \lambda p, \quad m \leftarrow \beta_1 m + (1 - \beta_1) g, \quad
          v \leftarrow \beta_2 v + (1 - \beta_2) g^2, \quad
          p \leftarrow p - \eta \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon}

as `torch.optim.Adam` with its defaults. That one spends more time around a step than in it where a network is small,
and imports torch's compiler with the first step, which takes seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from adagpr.ops import native

__all__ = ["Adam", "step_together"]

_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8


class Adam:
    """The optimiser of one training.

    Args:
        groups: The parameters by their decay.
        lr: The learning rate.

    Attributes:
        parameters: All parameters.
        decays: The decay of each.
        means: The first moment of each, laid out in memory as the parameter is.
        squares: The second one.
        steps: How often each was changed.
    """

    def __init__(self, groups: Mapping[float, Sequence[nn.Parameter]], lr: float) -> None:
        self.lr = lr
        self.parameters = [parameter for group in groups.values() for parameter in group]
        self.decays = [decay for decay, group in groups.items() for _ in group]
        self.means = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.squares = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.steps = [0] * len(self.parameters)

    def zero_grad(self) -> None:
        """Forgets the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def step(self) -> None:
        """Changes every parameter that has a gradient."""
        step_together([self])

    def tensors(self, model: nn.Module) -> dict[str, Tensor]:
        """Moments and step counts under the names of the parameters that they belong to."""
        places = {id(parameter): place for place, parameter in enumerate(self.parameters)}
        found: dict[str, Tensor] = {}
        for name, parameter in model.named_parameters():
            place = places.get(id(parameter))
            if place is not None and self.steps[place]:
                found[f"adam/{name}/step"] = torch.tensor(float(self.steps[place]))
                found[f"adam/{name}/exp_avg"] = self.means[place]
                found[f"adam/{name}/exp_avg_sq"] = self.squares[place]
        return found

    def restore(self, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
        """Puts back what `tensors` took."""
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        for place, parameter in enumerate(self.parameters):
            prefix = f"adam/{names[id(parameter)]}"
            if f"{prefix}/step" in tensors:
                self.steps[place] = int(tensors[f"{prefix}/step"])
                self.means[place].copy_(tensors[f"{prefix}/exp_avg"])
                self.squares[place].copy_(tensors[f"{prefix}/exp_avg_sq"])


def step_together(optimizers: Sequence[Adam]) -> None:
    """A step of several trainings of one learning rate at once."""
    chosen = [
        (optimizer, place)
        for optimizer in optimizers
        for place, parameter in enumerate(optimizer.parameters)
        if parameter.grad is not None
    ]
    if not chosen:
        return
    for optimizer, place in chosen:
        optimizer.steps[place] += 1
    lr, kinds = optimizers[0].lr, {optimizer.parameters[place].dtype for optimizer, place in chosen}
    if len(kinds) == 1 and all(native.can_read(optimizer.parameters[place]) for optimizer, place in chosen):
        _step_native(chosen, lr, kinds.pop())
    else:
        _step_torch(chosen, lr)


def _step_native(chosen: Sequence[tuple[Adam, int]], lr: float, dtype: torch.dtype) -> None:
    parameters = [optimizer.parameters[place] for optimizer, place in chosen]
    gradients = [_like(parameter, parameter.grad) for parameter in parameters]
    lists: list[Sequence[Tensor]] = [
        parameters,
        gradients,
        [optimizer.means[place] for optimizer, place in chosen],
        [optimizer.squares[place] for optimizer, place in chosen],
    ]
    addresses = np.array([[item.data_ptr() for item in tensors] for tensors in lists], dtype=np.uint64)
    sizes = np.array([item.numel() for item in parameters], dtype=np.int64)
    steps = np.array([optimizer.steps[place] for optimizer, place in chosen], dtype=np.float64)
    decays = np.array([optimizer.decays[place] for optimizer, place in chosen], dtype=np.float64)
    # What a mean is multiplied with, and a square's root: the learning rate and both corrections.
    rates, roots = lr / (1 - _BETA_1**steps), 1 / np.sqrt(1 - _BETA_2**steps)
    native.call("adam", dtype, len(sizes), sizes, *addresses, decays, rates, roots, _BETA_1, _BETA_2, _EPSILON)


def _like(parameter: nn.Parameter, gradient: Tensor | None) -> Tensor:
    """The gradient, laid out in memory as its parameter is."""
    if gradient is None or gradient.stride() != parameter.stride():
        return torch.empty_like(parameter).copy_(gradient)  # type: ignore[arg-type]
    return gradient


def _step_torch(chosen: Sequence[tuple[Adam, int]], lr: float) -> None:
    with torch.no_grad():
        for optimizer, place in chosen:
            parameter, mean, square = optimizer.parameters[place], optimizer.means[place], optimizer.squares[place]
            gradient = torch.add(parameter.grad, parameter, alpha=optimizer.decays[place])  # type: ignore[arg-type]
            mean.lerp_(gradient, 1 - _BETA_1)
            square.mul_(_BETA_2).addcmul_(gradient, gradient, value=1 - _BETA_2)
            rate = lr / (1 - _BETA_1 ** optimizer.steps[place])
            root = 1 / math.sqrt(1 - _BETA_2 ** optimizer.steps[place])
            parameter.addcdiv_(mean, square.sqrt().mul_(root).add_(_EPSILON), value=-rate)
