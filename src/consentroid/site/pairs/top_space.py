"""The greatest eigenvalues of a symmetric matrix that changes a little from step to step, and their vectors.

Up to a few hundred rows by a full decomposition. Beyond, a space of vectors is kept and filtered by Chebyshev
polynomials, which grow fastest for the eigenvalues above an interval (Zhou, Saad, Tiago, Chelikowsky 2006): one filter
a step is enough to follow the matrix. What comes out steers; no bound rests on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from ...core.arrays import Array

Vectors = NDArray[Any]  # all of one precision
Multiply = Callable[[Vectors], Vectors]

SMALL = 400  # rows up to which everything is decomposed
DEGREE = 4
SPARE, TOO_MANY = 8, 24  # vectors beside those that are wanted: at least, and at most
FIRST_ROUNDS, LANCZOS = 3, 12
LOOK_AGAIN = 20  # steps after which the lower end of the spectrum is estimated anew
NARROWEST = 1e-3  # of the greatest eigenvalue: the interval that is filtered out


class TopSpace:
    """`without` is a unit vector that all vectors are orthogonal to, in the precision to compute with; `size` is how
    many vectors are wanted and may be changed between steps."""

    def __init__(self, without: Vectors, size: int, seed: int = 0) -> None:
        self.without, self.size = without, size
        self._rng = np.random.default_rng(seed)
        self._vectors: Vectors = np.empty((len(without), 0), without.dtype)
        self._bottom, self._cut = 0.0, np.inf  # the interval that is filtered out
        self.steps = 0

    @property
    def exact(self) -> bool:
        """Everything is decomposed: to ask again brings nothing new."""
        return len(self.without) <= SMALL

    def of(self, multiply: Multiply) -> tuple[Array, Vectors]:
        """Eigenvalues, the greatest first, and vectors: all, or as many as are wanted and a few more."""
        if self.exact:
            return self._all(multiply)
        if self.steps % LOOK_AGAIN == 0:
            self._bottom = self._lowest(multiply)
        self._fit_size()
        for _ in range(FIRST_ROUNDS if self.steps == 0 else 0):
            self._follow(multiply)
        self.steps += 1
        return self._follow(multiply)

    def _all(self, multiply: Multiply) -> tuple[Array, Vectors]:
        kind = self.without.dtype.type
        full = multiply(self._apart(np.eye(len(self.without), dtype=kind)))
        below = kind(2.0) * np.abs(full).sum(axis=1).max() + kind(1.0)  # puts `without` last, which is left out
        full = kind(0.5) * (full + full.T) - below * np.outer(self.without, self.without)
        values, vectors = eigh(full, driver="evd", overwrite_a=True)
        return values[:0:-1].astype(np.float64), np.ascontiguousarray(vectors[:, :0:-1])

    def _follow(self, multiply: Multiply) -> tuple[Array, Vectors]:
        """One filter and one Rayleigh–Ritz step."""
        vectors = self._filtered(multiply) if self._cut < np.inf else self._vectors
        basis, _ = np.linalg.qr(self._apart(vectors))
        small = (basis.T @ multiply(basis)).astype(np.float64)
        values, turn = np.linalg.eigh(0.5 * (small + small.T))
        values, turn = values[::-1], turn[:, ::-1].astype(basis.dtype)
        self._vectors = np.ascontiguousarray(basis @ turn)
        self._cut = float(values[-1])
        self._bottom = min(self._bottom, self._cut - NARROWEST * max(float(np.abs(values).max()), 1e-300))
        return values, self._vectors

    def _filtered(self, multiply: Multiply) -> Vectors:
        """Chebyshev polynomial of the matrix with [bottom, cut] as its interval, times the vectors."""
        kind = self._vectors.dtype.type
        half, middle = kind(0.5 * (self._cut - self._bottom)), kind(0.5 * (self._cut + self._bottom))
        before, now = self._vectors, (multiply(self._vectors) - middle * self._vectors) / half
        for _ in range(DEGREE - 1):
            before, now = now, (multiply(now) - middle * now) * (kind(2.0) / half) - before
            largest = np.abs(now).max()
            before, now = before / largest, now / largest
        return now

    def _lowest(self, multiply: Multiply) -> float:
        """An estimate from below of the least eigenvalue, by Lanczos' method."""
        vector = self._random(1)
        vector /= np.linalg.norm(vector)
        before, beta, diagonal, beside = np.zeros_like(vector), 0.0, [0.0], [0.0]
        for _ in range(LANCZOS):
            image = multiply(vector)
            diagonal.append(float((vector.T @ image)[0, 0]))
            image = self._apart(image - diagonal[-1] * vector - beta * before)
            beta = float(np.linalg.norm(image))
            beside.append(beta)
            if beta < 1e-6 * max(abs(diagonal[-1]), 1e-300):
                break
            before, vector = vector, image / self._vectors.dtype.type(beta)
        tridiagonal = np.diag(diagonal[1:]) + np.diag(beside[1:-1], 1) + np.diag(beside[1:-1], -1)
        return float(np.linalg.eigvalsh(tridiagonal)[0]) - beside[-1]

    def _fit_size(self) -> None:
        have, most = self._vectors.shape[1], len(self.without) // 2
        if have < min(self.size + SPARE, most):
            more = self._random(min(self.size + SPARE, most) - have)
            self._vectors = np.concatenate([self._vectors, more], axis=1)
        elif have > self.size + TOO_MANY:
            self._vectors = self._vectors[:, : self.size + SPARE]

    def _random(self, n: int) -> Vectors:
        return self._apart(self._rng.standard_normal((len(self.without), n)).astype(self.without.dtype))

    def _apart(self, vectors: Vectors) -> Vectors:
        """Orthogonal to `without`."""
        return np.asarray(vectors - np.outer(self.without, self.without @ vectors))
