"""How good predictions are, and how well they know it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from torch import Tensor

from adagpr.errors import InputError


def accuracy(logits: Tensor, y: Tensor) -> float:
    """Share of rows whose largest logit is at the right class."""
    return int((logits.argmax(-1) == y).sum()) / len(y)


def macro_f1(logits: Tensor, y: Tensor) -> float:
    """The mean over the classes of ``y`` of the harmonic mean of precision and recall: rare classes count as much."""
    return macro_f1_of_counts(class_counts(logits, y))


def class_counts(logits: Tensor, y: Tensor) -> np.ndarray:
    """For each class how often it is right, how often it is predicted and how often it occurs, one row each."""
    predicted, num_classes = logits.argmax(-1), logits.shape[-1]
    found = (y[predicted == y], predicted, y)
    return np.stack([np.bincount(item.numpy(), minlength=num_classes) for item in found])


def macro_f1_of_counts(counts: np.ndarray) -> float:
    """What `macro_f1` is where `class_counts` are ``counts``, which may be added up over sets of nodes."""
    right, predicted, present = counts[:, counts[2] > 0]
    return float((2 * right / (predicted + present)).mean())


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
