"""The task that a model learns: its loss, its scores, and how logits become calibrated probabilities.

Classification is the only task so far. Training, tuning and reports ask it for everything that depends on the kind of
answer, so that another kind is another class here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from torch import Tensor

from adagpr.errors import InputError


@dataclass(frozen=True)
class Metric:
    """A score of predictions from 0 to 1, the higher the better.

    Attributes:
        title: What to call it in texts.
        formula: Its value for logits and classes, one row per node.
        for_two_classes: Whether it needs a graph of two classes, and nodes of both.
    """

    title: str
    formula: Callable[[Tensor, Tensor], float]
    for_two_classes: bool = False

    def measure(self, logits: Tensor, y: Tensor) -> float | None:
        """Its value; none where it is undefined."""
        if self.for_two_classes and (logits.shape[-1] != 2 or len(y.unique()) != 2):
            return None
        return self.formula(logits.cpu(), y.cpu())


@dataclass(frozen=True, eq=False)
class Classification:
    """One class per node."""

    class_weights: Tensor | None = None  # how much a node of each class counts in the loss; the same unless given

    def loss(self, logits: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        """Cross entropy of logits, one row per node, with their classes."""
        return F.cross_entropy(logits, y, self.class_weights, reduction=reduction)

    def scores(self, logits: Tensor, y: Tensor) -> dict[str, float]:
        """Every score that is defined for a set of nodes by its name; the loss is that without class weights."""
        measured = {name: metric.measure(logits, y) for name, metric in METRICS.items()}
        defined = {name: value for name, value in measured.items() if value is not None}
        return {"loss": F.cross_entropy(logits, y).item(), **defined}

    def calibrate(self, logits: Tensor, y: Tensor) -> float:
        """The temperature that makes the probabilities of validation nodes fit best; 1 without such nodes."""
        return temperature(logits.numpy(), y.numpy()) if len(y) else 1.0

    def probabilities(self, logits: Tensor, temperature: float) -> Tensor:
        """Calibrated probability of each class in float64, one row per node."""
        return (logits.double() / temperature).softmax(-1)


def balanced_weights(counts: Tensor) -> Tensor:
    """Weights by which the ``counts`` of training nodes of each class weigh the same; a class without nodes has 0."""
    present = counts > 0
    return torch.where(present, counts.sum() / (counts.clamp(min=1).float() * present.sum()), 0.0)


def flat_scores(result: dict[str, Any]) -> dict[str, float]:
    """The scores of a record's result by names such as ``test_acc``, ``val_loss`` and ``test_macro_f1``."""
    scores = scores_of_result(result).items()
    return {flat_name(split, name): value for split, each in scores for name, value in each.items()}


def flat_name(split: str, metric: str) -> str:
    """The name of a split's score in a flat record or a table."""
    return f"{split}_{'acc' if metric == 'accuracy' else metric}"


def scores_of_result(result: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The scores of a record's result by split and name, also of records written before ``scores`` was a key."""
    if "scores" in result:
        scores: dict[str, dict[str, float]] = result["scores"]
        return scores
    found: dict[str, dict[str, float]] = {}
    for split in ("train", "val", "test"):
        for name in ("loss", "accuracy", "macro_f1"):
            if flat_name(split, name) in result:
                found.setdefault(split, {})[name] = result[flat_name(split, name)]
    return found


def primary_of(result: dict[str, Any]) -> str:
    """The metric by which the run of a record's result is compared and which is reported first."""
    return str(result.get("primary", "accuracy"))


def accuracy(logits: Tensor, y: Tensor) -> float:
    """Share of rows whose largest logit is at the right class."""
    return int((logits.argmax(-1) == y).sum()) / len(y)


def class_counts(logits: Tensor, y: Tensor) -> np.ndarray:
    """For each class how often it is right, how often it is predicted and how often it occurs, one row each."""
    predicted, num_classes = logits.argmax(-1), logits.shape[-1]
    found = (y[predicted == y], predicted, y)
    return np.stack([np.bincount(item.numpy(), minlength=num_classes) for item in found])


def macro_f1(counts: np.ndarray) -> float:
    """The mean over the classes that occur of the harmonic mean of precision and recall: rare classes count as much.

    From `class_counts`, which may be added up over sets of nodes.
    """
    right, predicted, present = counts[:, counts[2] > 0]
    return float((2 * right / (predicted + present)).mean())


def balanced_accuracy(counts: np.ndarray) -> float:
    """The mean over the classes that occur of the share of their nodes that is right, from `class_counts`."""
    right, _, present = counts[:, counts[2] > 0]
    return float((right / present).mean())


def roc_auc(scores: ArrayLike, y: ArrayLike) -> float:
    """The probability that a random node of class 1 has a higher score than one of class 0; of a tie half counts.

    Takes time in n log n, as `average_precision` does. ``y`` holds zeros and ones, both of them.
    """
    right, chosen = _by_threshold(scores, y)
    wrong = chosen - right
    # Twice the area under the steps, in whole numbers: where scores are equal the curve is a straight line.
    doubled = int((np.diff(wrong, prepend=0) * (right + np.concatenate([[0], right[:-1]]))).sum())
    return doubled / (2 * int(right[-1]) * int(wrong[-1]))


def average_precision(scores: ArrayLike, y: ArrayLike) -> float:
    """The mean over nodes of class 1 of the precision among all nodes whose score is at least theirs."""
    right, chosen = _by_threshold(scores, y)
    return float((np.diff(right, prepend=0) * (right / chosen)).sum() / right[-1])


def margins(logits: Tensor) -> np.ndarray:
    """How much the logit of class 1 is above that of class 0: the score of a node where there are two classes."""
    found: np.ndarray = (logits[:, 1].double() - logits[:, 0].double()).cpu().numpy()
    return found


def _by_threshold(scores: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """For each distinct score from the highest, how many nodes with at least that are of class 1, and how many are."""
    values, labels = np.asarray(scores, dtype=np.float64), np.asarray(y)
    if values.shape != labels.shape or values.ndim != 1 or set(np.unique(labels).tolist()) != {0, 1}:
        raise InputError("ROC-AUC and average precision need a score and a class, 0 or 1, per node, and both classes.")
    order = np.argsort(-values, kind="stable")
    last = np.flatnonzero(np.diff(values[order], append=np.nan) != 0)
    return np.cumsum(labels[order], dtype=np.int64)[last], last + 1


METRICS: dict[str, Metric] = {
    "accuracy": Metric("accuracy", accuracy),
    "macro_f1": Metric("macro F1", lambda logits, y: macro_f1(class_counts(logits, y))),
    "balanced_accuracy": Metric("balanced accuracy", lambda logits, y: balanced_accuracy(class_counts(logits, y))),
    "roc_auc": Metric("ROC-AUC", lambda logits, y: roc_auc(margins(logits), y.numpy()), for_two_classes=True),
    "average_precision": Metric(
        "average precision", lambda logits, y: average_precision(margins(logits), y.numpy()), for_two_classes=True
    ),
}


@dataclass(frozen=True)
class Calibration:
    """How sure predictions are beside how often they are right, by bins of equal width over [0, 1]."""

    counts: tuple[int, ...]
    confidence: tuple[float, ...]  # mean probability of the predicted class, 0 in an empty bin
    accuracy: tuple[float, ...]  # share that is right, 0 in an empty bin
    error: float  # expected calibration error: the mean distance of the two, weighted by the counts


def calibration(probabilities: ArrayLike, y: ArrayLike, num_bins: int = 15) -> Calibration:
    """Compares the probability of each predicted class with how often it is right, by default as most papers do.

    ``probabilities`` have one row per node and one column per class; ``y`` is the right class of each node.
    """
    shares, labels = np.asarray(probabilities, dtype=np.float64), np.asarray(y)
    if shares.ndim != 2 or labels.shape != shares.shape[:1] or not len(labels) or num_bins < 1:
        raise InputError(f"calibration: {shares.shape} probabilities and {labels.shape} labels do not fit.")
    sure, right = shares.max(1), shares.argmax(1) == labels
    places = np.clip(np.ceil(sure * num_bins).astype(int) - 1, 0, num_bins - 1)
    counts = np.bincount(places, minlength=num_bins)
    means = [np.bincount(places, each, num_bins) / np.maximum(counts, 1) for each in (sure, right)]
    error = float(counts @ np.abs(means[0] - means[1]) / len(labels))
    return Calibration(tuple(counts.tolist()), tuple(means[0].tolist()), tuple(means[1].tolist()), error)


def temperature(logits: ArrayLike, y: ArrayLike) -> float:
    r"""The number by which logits are divided so that their probabilities fit the labels best.

    .. math:: \min_T \; -\sum_i \log \mathrm{softmax}(z_i / T)_{y_i} + \tfrac12 (\log T)^2

    The order of the classes stays, and with it every prediction. Above 1 the model was too sure, below 1 not enough.
    The last term, a normal prior of :math:`\log T`, matters where there are few nodes, which might all be right.
    The nodes, one row of ``logits`` and one class in ``y`` each, must not have trained the model.
    """
    scores, labels = np.asarray(logits, dtype=np.float64), np.asarray(y)
    if scores.ndim != 2 or labels.shape != scores.shape[:1] or not len(labels):
        raise InputError(f"temperature: {scores.shape} logits and {labels.shape} labels do not fit.")
    right = scores[np.arange(len(labels)), labels]

    def loss(log_t: float) -> float:
        scale = np.exp(-log_t)
        return float((logsumexp(scores * scale, axis=1) - right * scale).sum() + log_t**2 / 2)

    bounds = np.log(0.05), np.log(20.0)
    return float(np.exp(minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-6}).x))
