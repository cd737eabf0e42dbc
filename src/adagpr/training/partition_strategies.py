"""The two ways to train on a partition: exactly by all ranks, or approximately on batches of parts.

`Shard`: every rank holds the whole model and its own rows of the graph. Products exchange rows (see
`adagpr.partitioning.shards`), gradients and counts are added up over the ranks, and all take the same step. Dropout
draws from a stream of its own for each rank and epoch, so a checkpoint keeps nothing of it.

`Batches`: one process reads batches of parts from disk (Cluster-GCN, Chiang et al., 2019), for a graph that memory does
not hold. A batch is a few random parts with the edges between them, normalised anew; the next one is read while one
trains. Edges to other parts are left out, so training is approximate. Measurements are exact: the whole graph passes
through the model layer by layer, with matrices on disk. With one part the batch is the whole graph.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from adagpr import seeding
from adagpr.nn import Model
from adagpr.ops import (
    UNSCALED,
    Features,
    FeatureScaling,
    FeatureStatistics,
    Operator,
    buffer_pool,
    features,
    matrix,
)
from adagpr.partitioning import (
    Group,
    HaloExchange,
    Parts,
    StoredOperator,
    bounds_of_ranks,
    exchanged_operator,
    induced,
    join,
    operator_of,
    parts_of_rank,
    positions,
)
from adagpr.task import METRICS, Classification, accuracy, balanced_weights
from adagpr.training.config import TrainingConfig
from adagpr.training.fit import TrainingData
from adagpr.training.state import Measured, State


@dataclass(frozen=True, eq=False)
class Shard:
    """The nodes of one rank, and how to train on them together with the other ranks.

    ``train`` and ``val`` are positions among them, ``sizes`` the number of nodes of each of its parts.
    """

    group: Group
    x: Features
    operator: Operator
    y: Tensor
    train: Tensor
    val: Tensor
    class_weights: Tensor
    sizes: dict[int, int]
    scaling: FeatureScaling
    metric: str = "accuracy"

    def step(self, state: State) -> Tensor:
        """One step of the optimiser, the same in all ranks."""
        model = state.model.train()
        purpose = f"dropout, epoch {len(state.history) + 1}, rank {self.group.rank} of {self.group.size}"
        model.restart_dropout(state.config.seed, purpose)
        state.optimizer.zero_grad()
        loss = self.loss(model)
        loss.backward()
        self.add_up_gradients(model)
        state.optimizer.step()
        return self.group.sum_(loss.detach().clone())

    def loss(self, model: Model) -> Tensor:
        """What the nodes of this rank add to the mean loss over all training nodes."""
        logits = model(self.x, self.operator)
        return self._cross_entropy(logits, self.train) / self._total_weight(self.train)

    def add_up_gradients(self, model: Model) -> None:
        """Replaces the gradients by their sums over all ranks."""
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        total = self.group.sum_(torch.cat([gradient.reshape(-1) for gradient in gradients]))
        for gradient, part in zip(gradients, total.split([item.numel() for item in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def measure(self, model: Model) -> Measured:
        """Measures the model on the nodes of all ranks."""
        logits = self.evaluate(model)
        right = [int((logits[index].argmax(-1) == self.y[index]).sum()) for index in (self.train, self.val)]
        loss = self._cross_entropy(logits, self.val).item()
        own = torch.tensor([*right, len(self.train), len(self.val), loss], dtype=torch.float64)
        right_train, right_val, num_train, num_val, val_loss = self.group.sum_(own).tolist()
        val_loss /= self._total_weight(self.val)
        return Measured(right_train / num_train, val_loss, right_val / num_val, self._by_metric(logits))

    def _by_metric(self, logits: Tensor) -> float | None:
        """The metric on the deciding nodes of all ranks, whose logits every rank is sent."""
        if self.metric == "accuracy":
            return None
        every = self.group.gather((logits[self.val].cpu(), self.y[self.val].cpu()))
        return METRICS[self.metric].measure(*(torch.cat(items) for items in zip(*every, strict=True)))

    def evaluate(self, model: Model) -> Tensor:
        """Logits of the nodes of this rank, dropout off."""
        with torch.inference_mode():
            logits: Tensor = model.eval()(self.x, self.operator)
            return logits

    def logits_of_parts(self, model: Model) -> Iterator[tuple[int, Tensor]]:
        """Each part of this rank and the logits of its nodes."""
        yield from zip(self.sizes, self.evaluate(model).cpu().split([*self.sizes.values()]), strict=True)

    def _cross_entropy(self, logits: Tensor, index: Tensor) -> Tensor:
        return Classification(self.class_weights.to(logits.dtype)).loss(logits[index], self.y[index], "sum")

    def _total_weight(self, index: Tensor) -> float:
        return self.group.sum_(self.class_weights[self.y[index]].double().sum()).item()


def read_shard(
    parts: Parts,
    group: Group,
    config: TrainingConfig,
    sent_as: torch.dtype | None = None,
    dtype: torch.dtype = torch.float32,
) -> Shard:
    """Reads the parts of this rank onto the device; rows are sent as ``sent_as``, by default as they are."""
    numbers, device = parts_of_rank(len(parts), group.rank, group.size), config.device
    rows = group.run_on_all_ranks(lambda: join(parts, numbers))
    exchange = HaloExchange.between(group, rows.halo, bounds_of_ranks(parts, group.size), sent_as)
    operator = exchanged_operator(rows, exchange, config.self_loops, dtype).to(device)
    train, val = positions(rows.role, "train"), positions(rows.role, deciding(parts))
    weights = torch.ones(parts.manifest.num_classes)
    if config.class_weights == "balanced":
        weights = balanced_weights(group.sum_(torch.bincount(rows.y[train], minlength=len(weights))))
    sizes = {number: parts[number].info.num_nodes for number in numbers}
    scaling = scaling_of(parts, group, config)
    x, y, weights = features(scaling(rows.x), dtype).to(device), rows.y.to(device), weights.to(device)
    return Shard(group, x, operator, y, train.to(device), val.to(device), weights, sizes, scaling, config.metric)


def scaling_of(parts: Parts, group: Group, config: TrainingConfig) -> FeatureScaling:
    """The scaling fitted to the features of all parts, to the bit the same for any number of ranks."""
    option = config.feature_scaling
    if option is None or option == "rows":
        return FeatureScaling.fitted(option, [])
    numbers = parts_of_rank(len(parts), group.rank, group.size)
    own = [FeatureStatistics.of(parts[number].features()) for number in numbers]
    return FeatureScaling.from_statistics(option, itertools.chain(*group.gather(own)))


@dataclass(frozen=True, eq=False)
class Batches:
    """A partition as batches of parts; operator and scaling are those of the whole graph."""

    parts: Parts
    per_batch: int
    operator: StoredOperator
    config: TrainingConfig
    scaling: FeatureScaling = UNSCALED

    @cached_property
    def class_weights(self) -> Tensor | None:
        """How much a node of each class counts; none where all count the same."""
        if self.config.class_weights != "balanced":
            return None
        num_classes = self.parts.manifest.num_classes
        targets = (self.parts[number].targets() for number in range(len(self.parts)))
        counts = [torch.bincount(y[positions(role, "train")], minlength=num_classes) for y, role in targets]
        return balanced_weights(torch.stack(counts).sum(0))

    def step(self, state: State) -> Tensor:
        """One step of the optimiser for each batch; returns the mean loss of the training nodes."""
        total, count = torch.zeros((), device=self.config.device), 0
        for data in self._batches(len(state.history) + 1):
            if len(data.train):
                total = total + data.step(state) * len(data.train)
                count += len(data.train)
        return total / count

    def _batches(self, epoch: int) -> Iterator[TrainingData]:
        """The batches of an epoch; the next one is read while one is used."""
        order = seeding.stream(self.config.seed, f"parts, epoch {epoch}").permutation(len(self.parts))
        chosen = [np.sort(order[start : start + self.per_batch]) for start in range(0, len(order), self.per_batch)]
        with ThreadPoolExecutor(1) as reader:
            coming = reader.submit(self.read, chosen[0])
            for following in [*chosen[1:], None]:
                data = coming.result()
                if following is not None:
                    coming = reader.submit(self.read, following)
                yield data

    def read(self, numbers: np.ndarray) -> TrainingData:
        """One batch, on the device of the configuration."""
        rows, device = induced(self.parts, numbers.tolist()), self.config.device
        operator = operator_of(rows, self.config.self_loops, self.parts.manifest.is_symmetric).to(device)
        train, val = (positions(rows.role, name).to(device) for name in ("train", deciding(self.parts)))
        weights = None if self.class_weights is None else self.class_weights.to(device)
        return TrainingData(features(self.scaling(rows.x)).to(device), operator, rows.y.to(device), train, val, weights)

    def measure(self, model: Model) -> Measured:
        """Measures the model on the whole graph."""
        names = ("train", deciding(self.parts))
        found: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        for number, logits in self.logits_of_parts(model):
            y, role = self.parts[number].targets()
            train, val = (positions(role, name) for name in names)
            found.append((logits[train], y[train], logits[val], y[val]))
        on_train, train_y, on_val, val_y = map(torch.cat, zip(*found, strict=True))
        val_loss = Classification(self.class_weights).loss(on_val, val_y).item()
        metric = self.config.metric
        by_metric = METRICS[metric].measure(on_val, val_y) if metric != "accuracy" else None
        return Measured(accuracy(on_train, train_y), val_loss, accuracy(on_val, val_y), by_metric)

    def logits_of_parts(self, model: Model) -> Iterator[tuple[int, Tensor]]:
        """Each part and the logits of its nodes, exact, dropout off; computed by the processor, from disk."""
        if self.config.device != "cpu":
            model = copy.deepcopy(model).to("cpu")
        offsets = self.parts.manifest.offsets.tolist()
        with torch.inference_mode(), buffer_pool(on_disk=self.operator.folder):
            model.eval()
            lin_in, lin_out = model.outer_maps()
            h_0 = matrix(offsets[-1], lin_in.weight.shape[0])
            for number, (start, end) in enumerate(pairwise(offsets)):
                h_0[start:end] = lin_in(features(self.scaling(self.parts[number].features()))).relu_()
            h = model.trunk(h_0, self.operator)
            for number, (start, end) in enumerate(pairwise(offsets)):
                logits = lin_out(h[start:end])
                yield number, matrix(*logits.shape).copy_(logits)


def deciding(parts: Parts) -> str:
    """The split whose nodes choose the epoch: without validation nodes those of training."""
    return "val" if parts.manifest.num_val else "train"
