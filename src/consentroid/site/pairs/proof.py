"""From prices on pairs and triangles to a proven bound: one Cholesky factorisation, whatever the prices are.

Let A = −Y Yᵀ − U with U = Π − Σ_t v_t T_t, so that ⟨U, Z⟩ ≥ 0 for every clustering's Z (`prices.py`). Z = e eᵀ + S, where
e = q/|q| and S is a projection of rank at most K − 1 with S q = 0. For any θ ≤ 0, any vectors V and any h, if

    M = A + V Vᵀ + q hᵀ + h qᵀ − θ I   is positive semidefinite,                                              (a)

then ⟨A, S⟩ = ⟨M, S⟩ − ⟨V Vᵀ, S⟩ + θ tr S ≥ (K − 1) θ − |V|², and so

    opt ≥ |Y|² + eᵀ A e + (K − 1) θ − |V|².                                                                      (b)

The best are the K − 1 lowest eigenvectors of A, those of eigenvalue μ as long as √(θ − μ), and the h that takes the parts
between e and the rest out of A. (a) is proven by a Cholesky factorisation that comes to its end: then M is positive
semidefinite but for (n + 2) ε tr M (Rump 2006), and for what rounding can have changed in M. docs/numerics.md has the
margins.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.arrays import Array
from .top_space import TopSpace

UNIT = 2.0**-53
TRIES, LOOSER = 12, 4.0  # how much looser from one try to the next
FIRST = 1e-3  # of what the lowest vectors are off
ROUNDS, SPARE = 12, 24  # filters of the space of the lowest eigenvectors, and vectors more than are needed
TINY = 1e-290  # more than all underflow
HALVES = 2.0**10  # greatest pair price, in its own unit: half precision holds 65,504


@dataclass(frozen=True)
class PairProof:
    """What a checker needs beside the rows, those of positive weight; it stays with the site. All of it may be anything:
    bad numbers make a weak bound."""

    order: NDArray[np.int32]  # (n,) the rows as they stand here
    group: NDArray[np.int32]  # (n,) of each row in this order
    pairs: NDArray[np.float16]  # (n (n − 1) / 2,) π / unit below the diagonal, row by row
    triangles: NDArray[np.int32]  # (T, 3) of groups
    prices: Array  # (T,) v
    vectors: Array  # (n, K − 1)
    beside: Array  # (n,) h
    origin: Array  # (D,)
    numbers: Array  # (3,) θ, unit of pairs, scale of rows: a power of two
    bound: float

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """By the names that a file has for them."""
        names = ("order", "group", "pairs", "triangles", "prices", "vectors", "beside", "origin", "numbers")
        return {f"pair_{name}": getattr(self, name) for name in names}

    @property
    def digest(self) -> str:
        """sha256 over the arrays in this order: each its shape as int64, then its numbers, little-endian."""
        digest = hashlib.sha256()
        for array in self.arrays.values():
            digest.update(np.array(array.shape, dtype="<i8").tobytes())
            digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Rows:
    """Rows as this file takes them: y = q · (x − origin) · scale, weights q² of mean one."""

    y: Array  # (n, D)
    q: Array  # (n,)
    origin: Array
    scale: float  # a power of two
    weight: float  # mean of the weights

    @classmethod
    def of(cls, x: Array, w: Array) -> Rows:
        weight = float(w.mean())
        origin = (w / weight) @ x / len(x)
        q, offset = np.sqrt(w / weight), x - origin
        largest = float(np.abs(q[:, None] * offset).max(initial=0.0))
        scale = 2.0 ** -max(min(math.frexp(largest)[1], 900), -900) if math.isfinite(largest) else 1.0
        return cls(q[:, None] * (offset * scale), q, origin, scale, weight)

    def on_rows(self, bound: float, scatter: float) -> float:
        """A bound in the rows' own units, for what q, y and the offsets were rounded by: each row is moved by less than
        4 ε of its length, each weight by less than 8 ε of it."""
        if not bound > 0.0:
            return 0.0
        root = max(math.sqrt(bound) - 8.0 * UNIT * math.sqrt(scatter) - TINY, 0.0)
        exact = root * root * (1.0 - 64.0 * UNIT)
        told = exact / self.scale / self.scale * self.weight * (1.0 - 8.0 * UNIT)
        return told if math.isfinite(told) and exact > 1e-200 else 0.0  # far from underflow


def price_matrix(
    pairs: NDArray[np.float16], unit: float, group: NDArray[np.int32], triangles: NDArray[np.int32], prices: Array,
    q: Array,
) -> tuple[Array, float]:  # fmt: skip
    """U in full, and the greatest sum of the absolute values of its terms in a row."""
    n, r, at = len(q), int(group.max()) + 1, 0
    u = np.zeros((n, n))
    for i in range(1, n):
        u[i, :i] = pairs[at : at + i]
        at += i
    u *= unit
    u += u.T
    weights = np.bincount(group, q * q, r)
    phi, of = q / weights[group], (np.bincount(triangles[:, 0], prices, r) / weights)[group]
    between, terms = np.zeros((r, r)), np.zeros((r, r))
    g, h, k = triangles.T
    for first, second, sign in ((g, h, 0.5), (g, k, 0.5), (h, k, -0.5)):
        for one, other in ((first, second), (second, first)):
            np.add.at(between, (one, other), sign * prices)
            np.add.at(terms, (one, other), 0.5 * prices)
    sums = u.sum(axis=1) + phi * (terms @ np.bincount(group, phi, r))[group] + of
    for number in np.flatnonzero(between.any(axis=1)):
        here = np.flatnonzero(group == number)
        u[here] -= phi[here, None] * (between[number, group] * phi)
    u[np.arange(n), np.arange(n)] += of
    return u, float(sums.max())


def prove(
    rows: Rows, order: NDArray[np.int32], group: NDArray[np.int32], pairs: NDArray[np.float32], scale: float,
    triangles: NDArray[np.int32], prices: Array, n_clusters: int,
) -> PairProof:  # fmt: skip
    """The bound of these prices, all in units of `scale`; of `pairs` only what lies below the diagonal counts."""
    n = len(rows.q)
    most = float(pairs.max(initial=0.0))
    unit = scale * 2.0 ** math.frexp(most / HALVES)[1] if most > 0.0 else 1.0
    halves = np.concatenate([(pairs[i, :i] * (scale / unit)).astype(np.float16) for i in range(1, n)])
    kept = prices > 0.0
    triangles, prices = triangles[kept], prices[kept] * scale
    u, row_sum = price_matrix(halves, unit, group, triangles, prices, rows.q)
    y, q = rows.y, rows.q
    scatter = float((y * y).sum())
    along = float(q @ q)
    taken = u @ q
    u += y @ y.T
    a = np.negative(u, out=u)
    values, vectors, residual = _lowest(a, q, n_clusters)
    e = q / math.sqrt(along)
    image = a @ e
    stay = (image @ e) * e
    # opt ≥ |Y|² + eᵀ A e + (K − 1) θ − |V|², each term rounded down
    mean = np.abs(y.T @ q) + (n + 4) * 2.0 * UNIT * (np.abs(y).T @ q)
    known = scatter * (1.0 - (n * y.shape[1] + 8) * 2.0 * UNIT) - float(mean @ mean) / along * (1.0 + 64.0 * UNIT)
    known -= (float(q @ taken) + (4 * n + len(prices) + 64) * 2.0 * UNIT * float(q.sum()) * row_sum * q.max()) / along
    best = PairProof(order, group, halves, triangles, prices, np.zeros((n, n_clusters - 1)), np.zeros(n), rows.origin,
                     np.array([0.0, unit, rows.scale]), 0.0)  # fmt: skip
    apart = values[n_clusters - 1] - values[n_clusters - 2]
    loose = max(FIRST * residual, 1e-10 * scatter)
    for _ in range(TRIES):
        theta = min(float(values[n_clusters - 1]) - max(0.5 * apart, loose), 0.0)
        long = np.sqrt(np.maximum(theta + loose - values[: n_clusters - 1], 0.0))
        v = vectors[:, : n_clusters - 1] * long
        h = (stay - image + (0.5 * (scatter - float(image @ e))) * e) / math.sqrt(along)
        lost = _lost(a, v, q, h, theta, row_sum, scatter, len(prices) + y.shape[1])
        if lost is not None:
            told = (n_clusters - 1) * (theta - lost) * (1.0 + 8.0 * UNIT)
            told -= float((v * v).sum()) * (1.0 + (n * n_clusters + 8) * 2.0 * UNIT)
            bound = known + told - 64.0 * UNIT * (scatter + abs(known) + abs(told))
            return replace(best, vectors=v, beside=h, numbers=np.array([theta, unit, rows.scale]),
                           bound=rows.on_rows(bound, scatter))  # fmt: skip
        loose *= LOOSER
    return best


def _lost(
    a: Array, v: Array, q: Array, h: Array, theta: float, row_sum: float, scatter: float, n_terms: int
) -> float | None:
    """By how much M can fall short of being positive semidefinite; None if it was not factorised."""
    n = len(q)
    m = a + v @ v.T
    m += np.outer(q, h)
    m += np.outer(h, q)
    m[np.arange(n), np.arange(n)] -= theta
    trace = float(np.abs(np.diag(m)).sum())
    size = scatter + float((v * v).sum()) + 2.0 * float(np.linalg.norm(q) * np.linalg.norm(h)) + row_sum - theta
    try:
        np.linalg.cholesky(m)
    except np.linalg.LinAlgError:
        return None
    return (n_terms + v.shape[1] + 32) * 4.0 * UNIT * size + (n + 8) * 4.0 * UNIT * trace + TINY


def _lowest(a: Array, q: Array, n_clusters: int) -> tuple[Array, Array, float]:
    """The K lowest eigenvalues of A among vectors orthogonal to q, vectors, and how far off these are."""
    e = q / np.linalg.norm(q)

    def multiply(vectors: Array) -> Array:
        image = -(a @ vectors)
        return np.asarray(image - np.outer(e, e @ image))

    space, k = TopSpace(e, n_clusters + SPARE), n_clusters - 1
    for _ in range(ROUNDS):
        values, vectors = space.of(multiply)
    off = multiply(vectors[:, :k]) - vectors[:, :k] * values[:k]
    return -values[:n_clusters], vectors[:, :n_clusters], float(np.linalg.norm(off))
