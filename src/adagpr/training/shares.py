"""Exact training by several processes, each with its own rows of the graph.

Every process holds the whole model and its share of the nodes. Products exchange rows at the borders (see
`adagpr.partitioning.shards`), gradients and counts are added up over the processes, and all take the same step: up to
the order of sums the result is that of one process with the whole graph. Dropout draws from a stream of its own in each
process and epoch, so that nothing of it has to be kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from adagpr.nn import Model
from adagpr.ops import Features, features
from adagpr.partitioning import (
    ExchangedOperator,
    Group,
    HaloExchange,
    Parts,
    bounds_of_ranks,
    exchanged_operator,
    join,
    parts_of_rank,
)
from adagpr.task import balanced_weights
from adagpr.training.config import TrainingConfig
from adagpr.training.state import Measured, State

__all__ = ["Shard", "read_shard"]


@dataclass(frozen=True, eq=False)
class Shard:
    """The nodes of one process, and how to train on them together with the others.

    Attributes:
        group: The processes.
        x: Features of the nodes.
        operator: Their rows of the operator.
        y: Their classes.
        train: Positions of the training nodes among them.
        val: Positions of the validation nodes among them.
        class_weights: How much a node of each class counts.
        seed: Seed of dropout.
        sizes: How many nodes each part of the share has.
        numbers: Which parts these are.
    """

    group: Group
    x: Features
    operator: ExchangedOperator
    y: Tensor
    train: Tensor
    val: Tensor
    class_weights: Tensor
    seed: int
    numbers: range
    sizes: list[int]

    def step(self, state: State) -> Tensor:
        """One step of the optimiser, the same in all processes."""
        model = state.model.train()
        purpose = f"dropout, epoch {len(state.history) + 1}, rank {self.group.rank} of {self.group.size}"
        model.restart_dropout(self.seed, purpose)
        state.optimizer.zero_grad()
        loss = self.loss(model)
        loss.backward()
        self.add_up_gradients(model)
        state.optimizer.step()
        return self.group.sum_(loss.detach().clone())

    def loss(self, model: Model) -> Tensor:
        """What the nodes of this process add to the mean loss over all training nodes."""
        logits = model(self.x, self.operator)
        return self._cross_entropy(logits, self.train) / self._total_weight(self.train)

    def add_up_gradients(self, model: Model) -> None:
        """Replaces the gradients by their sums over all processes."""
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        total = self.group.sum_(torch.cat([gradient.reshape(-1) for gradient in gradients]))
        for gradient, part in zip(gradients, total.split([item.numel() for item in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def measure(self, model: Model) -> Measured:
        """Measures the model on the nodes of all processes."""
        logits = self.evaluate(model)
        right = [(logits[index].argmax(-1) == self.y[index]).sum().double() for index in (self.train, self.val)]
        counts = [torch.tensor(len(index), dtype=torch.float64) for index in (self.train, self.val)]
        loss = self._cross_entropy(logits, self.val).double()
        found = self.group.sum_(torch.stack([*right, *counts, loss])).tolist()
        val_loss = found[4] / self._total_weight(self.val)
        return Measured(found[0] / found[2], val_loss, found[1] / found[3])

    def evaluate(self, model: Model) -> Tensor:
        """Logits of the nodes of this process, dropout off."""
        with torch.inference_mode():
            logits: Tensor = model.eval()(self.x, self.operator)
            return logits

    def logits_of_parts(self, model: Model) -> Iterator[tuple[int, Tensor]]:
        """Each part of this process and the logits of its nodes."""
        yield from zip(self.numbers, self.evaluate(model).split(self.sizes), strict=True)

    def _cross_entropy(self, logits: Tensor, index: Tensor) -> Tensor:
        return F.cross_entropy(logits[index], self.y[index], self.class_weights.to(logits.dtype), reduction="sum")

    def _total_weight(self, index: Tensor) -> float:
        return self.group.sum_(self.class_weights[self.y[index]].double().sum()).item()


def read_shard(
    parts: Parts,
    group: Group,
    config: TrainingConfig,
    border: torch.dtype | None = None,
    dtype: torch.dtype = torch.float32,
) -> Shard:
    """Reads the parts of this process.

    Args:
        parts: The partition.
        group: The processes.
        config: How to train.
        border: In which precision rows travel between processes, by default their own.
        dtype: Precision of features and operator.
    """
    numbers = parts_of_rank(len(parts), group.rank, group.size)
    rows = group.run_on_all_ranks(lambda: join(parts, numbers))
    ways = HaloExchange.between(group, rows.halo, bounds_of_ranks(parts, group.size), border)
    operator = exchanged_operator(rows, ways, config.self_loops, dtype)
    train, val = rows.index("train"), rows.index("val")
    weights = torch.ones(parts.manifest.num_classes)
    if config.class_weights == "balanced":
        counts = torch.bincount(rows.y[train], minlength=len(weights))
        weights = balanced_weights(group.sum_(counts))
    sizes = [parts[number].info.num_nodes for number in numbers]
    x = features(rows.x, dtype)
    return Shard(group, x, operator, rows.y, train, val, weights, config.seed, numbers, sizes)
