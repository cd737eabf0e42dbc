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
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from adagpr.ops import addresses, call_kernel, supports_kernels

_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8


class Adam:
    """The optimiser of one training; ``groups`` are the parameters by their decay, which stay where they are in memory.

    The first and second moment of a parameter, in ``means`` and ``squares``, are laid out in memory as it is. ``steps``
    counts how often each was changed.
    """

    def __init__(self, groups: Mapping[float, Sequence[nn.Parameter]], lr: float) -> None:
        self.lr = lr
        self.parameters = [parameter for group in groups.values() for parameter in group]
        self.decays = np.array([decay for decay, group in groups.items() for _ in group], dtype=np.float64)
        self.means = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.squares = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.steps = np.zeros(len(self.parameters))

    @cached_property
    def places(self) -> np.ndarray:
        """Where parameters, means and squares begin in memory, and how long they are: a column for each."""
        rows = [addresses(items) for items in (self.parameters, self.means, self.squares)]
        return np.stack([*rows, np.array([item.numel() for item in self.parameters], dtype=np.uint64)])

    @cached_property
    def dtype(self) -> torch.dtype | None:
        """The type of all parameters, where there is one and the kernels can read them."""
        kinds = {parameter.dtype for parameter in self.parameters}
        return kinds.pop() if len(kinds) == 1 and all(map(supports_kernels, self.parameters)) else None

    def zero_grad(self) -> None:
        """Forgets the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def step(self) -> None:
        """Changes every parameter that has a gradient."""
        step_together([self])

    def tensors(self, model: nn.Module) -> dict[str, Tensor]:
        """Moments and step counts under the names of the parameters that they belong to."""
        found: dict[str, Tensor] = {}
        for name, place in self._named_places(model):
            if self.steps[place]:
                found[f"{name}/step"] = torch.tensor(float(self.steps[place]))
                found[f"{name}/exp_avg"] = self.means[place]
                found[f"{name}/exp_avg_sq"] = self.squares[place]
        return found

    def restore(self, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
        """Puts back what `tensors` took."""
        for name, place in self._named_places(model):
            if f"{name}/step" in tensors:
                self.steps[place] = float(tensors[f"{name}/step"])
                self.means[place].copy_(tensors[f"{name}/exp_avg"])
                self.squares[place].copy_(tensors[f"{name}/exp_avg_sq"])

    def _named_places(self, model: nn.Module) -> list[tuple[str, int]]:
        places = {id(parameter): place for place, parameter in enumerate(self.parameters)}
        return [(f"adam/{name}", places[id(parameter)]) for name, parameter in model.named_parameters()]


def step_together(optimizers: Sequence[Adam]) -> None:
    """A step of several trainings of one learning rate and type of number at once."""
    chosen: list[tuple[Adam, dict[int, Tensor]]] = []
    for optimizer in optimizers:
        parameters = enumerate(optimizer.parameters)
        found = {place: parameter.grad for place, parameter in parameters if parameter.grad is not None}
        if found:
            optimizer.steps[[*found]] += 1
            chosen.append((optimizer, found))
    dtype = optimizers[0].dtype
    if dtype is None:
        _step_torch(chosen)
    elif chosen:
        _step_native(chosen, optimizers[0].lr, dtype)


def _step_native(chosen: Sequence[tuple[Adam, dict[int, Tensor]]], lr: float, dtype: torch.dtype) -> None:
    def joined(name: str) -> np.ndarray:
        return np.concatenate(
            [getattr(optimizer, name).take([*found], axis=-1) for optimizer, found in chosen], axis=-1
        )

    gradients = [
        _laid_out_as(optimizer.parameters[place], gradient)
        for optimizer, found in chosen
        for place, gradient in found.items()
    ]
    (parameters, means, squares, sizes), steps, decays = joined("places"), joined("steps"), joined("decays")
    # What a mean is multiplied with, and a square's root: the learning rate and both corrections.
    rates, roots = lr / (1 - _BETA_1**steps), 1 / np.sqrt(1 - _BETA_2**steps)
    call_kernel(
        "adam", dtype, count=len(sizes), sizes=sizes, parameters=parameters, gradients=addresses(gradients),
        means=means, squares=squares, decays=decays, rates=rates, roots=roots, beta_1=_BETA_1, beta_2=_BETA_2,
        epsilon=_EPSILON,
    )  # fmt: skip


def _laid_out_as(parameter: Tensor, gradient: Tensor) -> Tensor:
    """The gradient, laid out in memory as its parameter is."""
    return gradient if gradient.stride() == parameter.stride() else torch.empty_like(parameter).copy_(gradient)


@torch.no_grad()
def _step_torch(chosen: Sequence[tuple[Adam, dict[int, Tensor]]]) -> None:
    for optimizer, found in chosen:
        for place, own in found.items():
            parameter, mean, square = optimizer.parameters[place], optimizer.means[place], optimizer.squares[place]
            gradient = torch.add(own, parameter, alpha=float(optimizer.decays[place]))
            mean.lerp_(gradient, 1 - _BETA_1)
            square.mul_(_BETA_2).addcmul_(gradient, gradient, value=1 - _BETA_2)
            rate = optimizer.lr / (1 - _BETA_1 ** float(optimizer.steps[place]))
            root = 1 / math.sqrt(1 - _BETA_2 ** float(optimizer.steps[place]))
            parameter.addcdiv_(mean, square.sqrt().mul_(root).add_(_EPSILON), value=-rate)
