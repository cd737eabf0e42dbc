r"""Sums over the spectrum of a symmetric operator, exact or estimated.

.. math:: \sum_i f(\lambda_i) = \mathrm{Tr} f(A) \approx \frac N P \sum_{p=1}^P \sum_{j=1}^m \tau_{pj}^2 f(\theta_{pj})

Small operators are diagonalised. For large ones, stochastic Lanczos quadrature (Ubaru, Chen and Saad, 2017): a probe of
random signs starts :math:`m` Lanczos steps, whose tridiagonal matrix has eigenvalues :math:`\theta` and first
components :math:`\tau` of its eigenvectors. All probes advance together, so that every product is sparse times dense.

Vectors are not orthogonalised again: doing so would keep ``num_steps`` blocks instead of three. Rounding then makes
copies of eigenvalues that have converged, but shares their weight among the copies, so that the sums stay right
(Greenbaum, 1989); ``tests/ops/test_spectrum.py`` holds that against exact quadratic forms, long after copies appear.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from adagpr.errors import InputError

MAX_EXACT = 5_000
NUM_PROBES = 16
NUM_STEPS = 64

# Numbers in a block of probes: 256 MB.
_BLOCK = 1 << 25


@dataclass(frozen=True)
class Estimate:
    """A number and how far it may be off: both errors are 0 where it is exact."""

    value: float
    # Standard error over the probes.
    stderr: float = 0.0
    # How much the number moves when only half of the Lanczos steps are taken, which overstates what the other half
    # leaves; almost 0 for polynomials.
    quadrature_error: float = 0.0

    @property
    def error(self) -> float:
        """Both errors together; the second is no chance, so they are added."""
        return self.stderr + self.quadrature_error

    def sqrt(self) -> Estimate:
        """The square root, its errors to first order."""
        root = math.sqrt(max(self.value, 0.0))
        slope = 0.5 / root if root > 0 else 0.0
        return Estimate(root, slope * self.stderr, slope * self.quadrature_error)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Points in place of the eigenvalues of an operator, and how many of these each represents, one row per probe."""

    num_nodes: int
    # The eigenvalues in one row where they are exact, else the points of each probe's quadrature.
    points: np.ndarray
    weights: np.ndarray
    # Points and weights after half of the steps; none where the eigenvalues are exact.
    half: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the points are the eigenvalues themselves."""
        return self.half is None

    def total(self, function: Callable[[np.ndarray], np.ndarray]) -> Estimate:
        """The sum of ``function`` over all eigenvalues."""
        each = (self.weights * function(self.points)).sum(axis=1)
        if self.half is None:
            return Estimate(float(each[0]))
        points, weights = self.half
        coarse = (weights * function(points)).sum(axis=1)
        stderr = float(each.std(ddof=1)) / math.sqrt(len(each))
        return Estimate(float(each.mean()), stderr, abs(float(coarse.mean() - each.mean())))

    def powers(self, num_coeffs: int) -> list[Estimate]:
        r""":math:`\sum_i |\lambda_i|^k` for ``k = 0..num_coeffs - 1``; at odd ``k`` that is no trace of a power."""
        counted = Estimate(float(self.num_nodes))
        return [counted, *(self.total(lambda x, k=k: np.abs(x) ** k) for k in range(1, num_coeffs))][:num_coeffs]  # type: ignore[misc]

    def absolute_sum(self, coeffs: Sequence[float]) -> Estimate:
        r""":math:`\sum_i \sum_k |\mu_k| |\lambda_i|^k`, the spectrum term of the paper's Theorem 1."""
        mu = np.abs(np.asarray(coeffs, dtype=np.float64))
        if not mu[1:].any():
            return Estimate(float(mu[0]) * self.num_nodes)
        return self.total(lambda x: np.polynomial.polynomial.polyval(np.abs(x), mu))

    def squared_trace(self, coeffs: Sequence[float]) -> Estimate:
        r""":math:`\mathrm{Tr}[A(\mu)^2] = \sum_i (\sum_k \mu_k \lambda_i^k)^2`."""
        mu = np.asarray(coeffs, dtype=np.float64)
        if not mu[1:].any():
            return Estimate(float(mu[0]) ** 2 * self.num_nodes)
        return self.total(lambda x: np.polynomial.polynomial.polyval(x, mu) ** 2)


def spectrum(
    matrix: sp.csr_array,
    *,
    max_exact: int = MAX_EXACT,
    num_probes: int = NUM_PROBES,
    num_steps: int = NUM_STEPS,
    generator: np.random.Generator,
) -> Spectrum:
    """The spectrum of a symmetric operator: exact up to ``max_exact`` nodes, estimated above.

    A dense solver takes 2 seconds and 60 MB for 2,708 nodes, its time is cubic and its memory square in them. An
    estimate takes ``num_steps`` products per probe, both at least 2; its standard error falls with the root of
    ``num_probes``.

    Example:
        >>> pair = sp.csr_array([[0.5, 0.5], [0.5, 0.5]])
        >>> [round(item.value, 6) for item in spectrum(pair, generator=np.random.default_rng(0)).powers(3)]
        [2.0, 1.0, 1.0]
    """
    num_nodes = matrix.shape[0]
    if num_nodes <= max_exact:
        values = scipy.linalg.eigvalsh(matrix.toarray(), overwrite_a=True, check_finite=False)
        return Spectrum(num_nodes, values[None, :], np.ones((1, num_nodes)))
    for name, number in (("num_probes", num_probes), ("num_steps", num_steps)):
        if number < 2:
            raise InputError(f"spectrum: {name} must be at least 2, got {number}.")
    num_steps = min(num_steps, max(num_nodes, 2))
    width = max(1, min(num_probes, _BLOCK // num_nodes))
    parts = []
    for first in range(0, num_probes, width):
        shape = (num_nodes, min(width, num_probes - first))
        signs = generator.integers(0, 2, size=shape, dtype=np.int8) * 2.0 - 1.0
        parts.append(_tridiagonal(matrix, signs, num_steps))
    diagonal, beside = (np.concatenate(rows) for rows in zip(*parts, strict=True))
    half = num_steps // 2
    coarse = _quadrature(diagonal[:, :half], beside[:, : half - 1], num_nodes)
    return Spectrum(num_nodes, *_quadrature(diagonal, beside, num_nodes), half=coarse)


def _tridiagonal(matrix: sp.csr_array, start: np.ndarray, num_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The matrices of Lanczos' recurrence from each column of ``start``: diagonals and what is beside them."""
    diagonals = np.zeros((start.shape[1], num_steps))
    besides = np.zeros((start.shape[1], num_steps - 1))
    v = start / np.linalg.norm(start, axis=0)
    before = np.zeros_like(v)
    beta = np.zeros(start.shape[1])
    for step in range(num_steps):
        w = matrix @ v
        before *= beta
        w -= before
        diagonals[:, step] = diagonal = np.einsum("ij,ij->j", v, w)
        if step + 1 == num_steps:
            break
        np.multiply(v, diagonal, out=before)
        w -= before
        besides[:, step] = beta = np.sqrt(np.einsum("ij,ij->j", w, w))
        # A probe that has ended continues as a zero vector, to which the rest of its matrix gives no weight.
        w *= np.divide(1.0, beta, out=np.zeros_like(beta), where=beta > 0)
        before, v = v, w
    return diagonals, besides


def _quadrature(diagonals: np.ndarray, besides: np.ndarray, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights of each row's matrix."""
    # This solver uses no threads, which cost more than such small matrices are worth.
    solved = [scipy.linalg.eigh_tridiagonal(*row) for row in zip(diagonals, besides, strict=True)]
    points, first = np.stack([values for values, _ in solved]), np.stack([vectors[0] for _, vectors in solved])
    return points, num_nodes * first**2
