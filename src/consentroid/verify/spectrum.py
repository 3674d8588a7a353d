"""What no clustering into K can avoid along the axes that the search leaves out: from the rows' moments alone.

Searched coordinates y = (x − o) A · scale keep AAᵀ of every squared distance. What is left, R = I − AAᵀ/G² ⪰ 0, adds

    opt(x) ≥ opt(x A) / G² + min_P tr(R W_P),     tr(R W_P) = tr(R T) − tr(R B_P) ≥ tr(SᵀTS) − λ_1 − … − λ_{K−1}

with G ≥ ‖A‖, T the scatter of all rows, W_P and B_P its parts within and between the clusters of P, R = SSᵀ, λ_i the
eigenvalues of SᵀTS in falling order: B_P = T^½ M T^½ with 0 ⪯ M ⪯ I of rank K − 1 (Zha, He, Ding, Gu, Simon 2001).
LAPACK is not trusted: its eigenvectors are multiplied out again, and what is off by Weyl's theorem is taken off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..core.arrays import Array
from .kernels import UNIT

BLOCK = 256  # rows whose products are added before they are added to those of others


@dataclass(frozen=True)
class RowMoments:
    """Σ w, Σ w (x − o) and Σ w (x − o)(x − o)ᵀ, and how far each entry can be off."""

    weight: float
    sums: Array  # (D,)
    products: Array  # (D, D)
    errors: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @classmethod
    def of(cls, x: Array, w: Array, origin: Array) -> RowMoments:
        offset = x - origin
        weighted = w[:, None] * offset
        sums = np.array([math.fsum(column) for column in weighted.T])
        lengths, squares = math.fsum(np.abs(weighted).sum(axis=1)), math.fsum((weighted * offset).sum(axis=1))
        n, longest = len(x) + 16.0, min(len(x), BLOCK) + 16.0
        # a difference, a product and a sum each; of products within blocks, whose sums round once; 1e-300 for underflow
        errors = (
            4.0 * UNIT * math.fsum(w), 16.0 * UNIT * lengths + n * 1e-300, 4.0 * longest * UNIT * squares + n * 1e-300,
        )  # fmt: skip
        blocks = [weighted[i : i + BLOCK].T @ offset[i : i + BLOCK] for i in range(0, len(x), BLOCK)]
        products = np.array([math.fsum(entry) for entry in np.array(blocks).reshape(len(blocks), -1).T])
        return cls(math.fsum(w), sums, products.reshape(x.shape[1], x.shape[1]), errors)

    @classmethod
    def read(cls, numbers: Array, n_features: int) -> RowMoments:
        """From the one row of numbers that certificates hold."""
        sums, products = numbers[1 : 1 + n_features], numbers[1 + n_features :]
        return cls(float(numbers[0]), sums, products.reshape(n_features, n_features))

    @property
    def row(self) -> Array:
        return np.concatenate([[self.weight], self.sums, self.products.ravel()])

    def near(self, other: RowMoments, limit: float) -> bool:
        """Whether another's entries are these up to rounding: relative to the sums of the moduli, as the errors are."""
        pairs = ((self.weight, other.weight), (self.sums, other.sums), (self.products, other.products))
        sizes = (self.weight, math.sqrt(self.weight * self._square), self._square)
        return all(
            bool(np.all(np.abs(np.asarray(a) - np.asarray(b)) <= limit * size + 4.0 * error + 1e-290))
            for (a, b), size, error in zip(pairs, sizes, self.errors, strict=True)
        )

    @property
    def _square(self) -> float:
        return float(np.trace(self.products))


def added(parts: Sequence[RowMoments], more: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> RowMoments:
    """Moments of all sites together; `more`: how far what was claimed can be off besides."""
    rows = np.array([part.row for part in parts])
    d = len(parts[0].sums)
    rounding = 2.0 * len(parts) * UNIT * np.abs(rows).sum(axis=0)
    own = np.array([part.errors for part in parts]).sum(axis=0) * (1.0 + 2.0 * len(parts) * UNIT) + more
    errors = (rounding[0] + own[0], rounding[1 : 1 + d].max() + own[1], rounding[1 + d :].max() + own[2])
    total = RowMoments.read(rows.sum(axis=0), d)
    return RowMoments(total.weight, total.sums, total.products, (float(errors[0]), float(errors[1]), float(errors[2])))


def rest_bound(moments: RowMoments, basis: Array, norm: float, n_clusters: int) -> float:
    """A bound on min_P tr(R W_P), rounded down; 0 where nothing is proven. `norm` ≥ ‖basis‖."""
    d = len(basis)
    scatter, off = _scatter(moments)
    if scatter is None or n_clusters > d:
        return 0.0
    rest = np.eye(d) - basis @ basis.T / norm**2
    values, vectors = np.linalg.eigh(0.5 * (rest + rest.T))
    factor = vectors * np.sqrt(np.maximum(values, 0.0))
    tiny = 8.0 * (d + 8) * UNIT
    missed = _size(rest - factor @ factor.T) + d * tiny * (2.0 + _size(factor) ** 2)  # ‖R − SSᵀ‖
    matrix = factor.T @ scatter @ factor
    matrix = 0.5 * (matrix + matrix.T)
    # SSᵀ = R up to `missed`, R ⪯ I: ‖S‖² ≤ 1 + missed, and |tr SᵀES| = |tr E SSᵀ| ≤ ‖E‖_F √d (1 + missed)
    rounding = 2.0 * tiny * _size(factor) ** 2 * _size(scatter)
    wrong = (1.0 + missed) * d * off + rounding  # ‖SᵀTS − matrix‖
    wrong_total = (1.0 + missed) * d * math.sqrt(d) * off * (1.0 + 8.0 * UNIT) + rounding
    roots, axes = np.linalg.eigh(matrix)
    skew = _size(axes.T @ axes - np.eye(d)) + d * tiny * (1.0 + _size(axes) ** 2)
    wrong_roots = _size(matrix - (axes * roots) @ axes.T) + tiny * _size(axes) ** 2 * _size(roots) + wrong
    avoided = float(np.sort(np.maximum(roots, 0.0))[::-1][: n_clusters - 1].sum())
    total, size = float(np.trace(matrix)), float(np.trace(scatter)) + d * off
    bound = total - avoided * (1.0 + skew) - (n_clusters - 1) * wrong_roots - wrong_total - missed * size
    bound -= 64.0 * d * UNIT * (abs(total) + avoided + size) + 1e-290  # products may underflow
    return bound if math.isfinite(bound) and bound > 0.0 else 0.0


def _scatter(moments: RowMoments) -> tuple[Array | None, float]:
    """About the mean, and how far each entry can be off; None where the weight may be 0."""
    e_weight, e_sums, e_products = moments.errors
    least = moments.weight - e_weight
    if not least > 0.0:
        return None, 0.0
    largest = float(np.abs(moments.sums).max(initial=0.0))
    scatter = moments.products - np.outer(moments.sums, moments.sums / moments.weight)
    off = e_products + (2.0 * largest * e_sums + e_sums**2) / least + largest**2 / least * (e_weight / least)
    off += 8.0 * UNIT * (float(np.abs(moments.products).max(initial=0.0)) + largest**2 / least) + 1e-290
    return 0.5 * (scatter + scatter.T), off * (1.0 + 64.0 * UNIT)


def _size(matrix: Array) -> float:
    """Frobenius norm, rounded up: at least the spectral one."""
    largest = float(np.abs(matrix).max(initial=0.0))
    if not largest > 0.0:
        return largest
    power = 2.0 ** max(min(math.frexp(largest)[1], 1000), -1000)  # squares neither overflow nor underflow to nothing
    return float(np.sqrt(((matrix / power) ** 2).sum())) * power * (1.0 + 4.0 * (matrix.size + 4) * UNIT)
