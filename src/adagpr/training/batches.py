"""Training on a graph that memory does not hold: batches of parts, read from disk (Cluster-GCN, Chiang et al., 2019).

A batch is a few random parts with the edges between them, normalised anew; the next one is read while one trains. Edges
to other parts are left out, so that training is approximate, while what is measured is exact: the whole graph is gone
through layer by layer, with matrices on disk. With one part a batch is the whole graph, and so is its result.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from adagpr import seeding
from adagpr.errors import InputError
from adagpr.metrics import accuracy
from adagpr.nn import Model
from adagpr.ops import features, matrix, on_disk
from adagpr.partitioning import Parts, StoredOperator, induced, operator_of, positions
from adagpr.training.config import TrainingConfig
from adagpr.training.fit import TrainingData
from adagpr.training.state import Measured, State

__all__ = ["Batches"]


@dataclass(frozen=True, eq=False)
class Batches:
    """A partition as batches of parts.

    Attributes:
        parts: The partition.
        per_batch: Parts of a batch.
        operator: The whole graph's, on disk.
        config: How to train.
        class_weights: How much a node of each class counts; the same unless given.
    """

    parts: Parts
    per_batch: int
    operator: StoredOperator
    config: TrainingConfig
    class_weights: Tensor | None = None

    def step(self, state: State) -> Tensor:
        """One step of the optimiser for each batch; returns the mean loss of the training nodes."""
        total, count = torch.zeros(()), 0
        for inputs in self._batches(len(state.history) + 1):
            if len(inputs.train):
                total = total + inputs.step(state) * len(inputs.train)
                count += len(inputs.train)
        return total / count

    def _batches(self, epoch: int) -> Iterator[TrainingData]:
        """The batches of an epoch, the next one being read while one is used."""
        order = seeding.stream(self.config.seed, f"parts, epoch {epoch}").permutation(len(self.parts))
        chosen = [np.sort(order[start : start + self.per_batch]) for start in range(0, len(order), self.per_batch)]
        with ThreadPoolExecutor(1) as reader:
            coming = reader.submit(self._read, chosen[0])
            for following in [*chosen[1:], None]:
                inputs = coming.result()
                if following is not None:
                    coming = reader.submit(self._read, following)
                yield inputs

    def _read(self, numbers: np.ndarray) -> TrainingData:
        rows = induced(self.parts, numbers.tolist())
        operator = operator_of(rows, self.config.self_loops, self.parts.manifest.is_symmetric)
        return TrainingData(
            features(rows.x), operator, rows.y, rows.index("train"), rows.index("val"), self.class_weights
        )

    def measure(self, model: Model) -> Measured:
        """Measures the model on the whole graph."""
        found: dict[str, list[tuple[Tensor, Tensor]]] = {"train": [], "val": []}
        for number, logits in self.logits_of_parts(model):
            y, role = self.parts[number].targets()
            for name, items in found.items():
                index = positions(role, name)
                items.append((logits[index], y[index]))
        (on_train, train_y), (on_val, val_y) = (map(torch.cat, zip(*items, strict=True)) for items in found.values())
        val_loss = F.cross_entropy(on_val, val_y, self.class_weights).item()
        return Measured(accuracy(on_train, train_y), val_loss, accuracy(on_val, val_y))

    def logits_of_parts(self, model: Model) -> Iterator[tuple[int, Tensor]]:
        """Each part and the logits of its nodes, exact, dropout off."""
        if not model.capabilities.fused_stack:
            raise InputError(f"Batches of parts are for AdaGPR and GCNII without pair_norm, not for '{model.name}'.")
        offsets = self.parts.manifest.offsets.tolist()
        with torch.inference_mode(), on_disk(self.operator.folder):
            model.eval()
            lin_in, lin_out = model.outer_maps()
            h_0 = matrix(offsets[-1], lin_in.weight.shape[0])
            for number in range(len(self.parts)):
                own = lin_in(features(self.parts[number].features()))
                h_0[offsets[number] : offsets[number + 1]] = own.relu_()
            h = model.trunk(h_0, self.operator)
            for number in range(len(self.parts)):
                logits = lin_out(h[offsets[number] : offsets[number + 1]])
                yield number, matrix(*logits.shape).copy_(logits)
