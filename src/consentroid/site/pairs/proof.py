"""From prices on pairs and triangles to a proven bound: one Cholesky factorisation, whatever the prices are.

Let A = −Y Yᵀ − U with U = Π − Σ_t v_t T_t, so that ⟨U, Z⟩ ≥ 0 for every clustering's Z (`prices.py`). Z = e eᵀ + S,
with e = q/|q| and S a projection of rank K − 1 at most for which S q = 0. For any θ ≤ 0, any vectors V and any h, if

    M = A + V Vᵀ + q hᵀ + h qᵀ − θ I   is positive semidefinite,                                       (a)

then ⟨A, S⟩ = ⟨M, S⟩ − ⟨V Vᵀ, S⟩ + θ tr S ≥ (K − 1) θ − |V|², and so

    opt ≥ |Y|² + eᵀ A e + (K − 1) θ − |V|².                                                            (b)

The best V are the K − 1 lowest eigenvectors of A, √(θ − μ) long for eigenvalue μ; the best h takes the parts between e
and the rest out of A. (a) is shown by a Cholesky factorisation that comes to its end: then M is positive semidefinite
but for (n + 1) ε tr M (Rump 2006: Verification of positive definiteness) and what rounding can have changed in M.
docs/numerics.md has the margins; here they are twice what the checker takes off, so that it agrees.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.arrays import Array
from .top_space import TopSpace

UNIT = 2.0**-53
TRIES, LOOSER = 12, 4.0  # how much looser from one try to the next
FIRST = 1e-3  # of what the lowest vectors are off
FIRST_ROUNDS, ROUNDS = 12, 5  # filters of the space of the lowest eigenvectors: a new one, and one from a proof before
SPARE = 24  # vectors more than are needed
MOST_TRIANGLES = 200  # for each row: what the checker reads
TINY = 1e-290  # more than all underflow
HALVES = 2.0**10  # greatest pair price, in its own unit: half precision holds 65,504


@dataclass(frozen=True)
class PairProof:
    """What a checker needs beside the rows of one anticluster, all of positive weight; it stays with the site. Bad
    numbers make a weak bound, never a wrong one."""

    pairs: NDArray[np.float16]  # (n (n − 1) / 2,) π / unit below the diagonal, row by row
    triangles: NDArray[np.int32]  # (T, 3) of rows
    prices: Array  # (T,) v
    vectors: Array  # (n, K − 1)
    beside: Array  # (n,) h
    origin: Array  # (D,)
    numbers: Array  # (3,) θ, unit of pairs, scale of rows: a power of two
    bound: float


@dataclass(frozen=True)
class PairFile:
    """Proofs of a site's anticlusters (`anticlusters.py`), as its private file has them: one after the other."""

    arrays: dict[str, NDArray[Any]]  # by their names in the file
    bound: float  # of all rows, rounded down

    @classmethod
    def of(cls, proofs: Sequence[tuple[NDArray[np.int64], PairProof]]) -> PairFile:
        """From the rows of each anticluster and its proof."""
        parts = [proof for _, proof in proofs]
        arrays: dict[str, NDArray[Any]] = {
            "sizes": np.array([(len(rows), len(proof.prices)) for rows, proof in proofs], np.int32),
            "order": np.concatenate([rows for rows, _ in proofs]).astype(np.int32),
        }
        for name in ("pairs", "triangles", "prices", "vectors", "beside"):
            arrays[name] = np.concatenate([getattr(part, name) for part in parts])
        for name in ("origin", "numbers"):
            arrays[name] = np.stack([getattr(part, name) for part in parts])
        bound = math.fsum(part.bound for part in parts)
        if len(parts) > 1:
            bound *= 1.0 - 4.0 * UNIT
        return cls({f"pair_{name}": array for name, array in arrays.items()}, bound)

    @property
    def digest(self) -> str:
        """sha256 over the arrays in this order: each its shape as int64, then its numbers, little-endian."""
        digest = hashlib.sha256()
        for array in self.arrays.values():
            digest.update(np.array(array.shape, dtype="<i8").tobytes())
            digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class PairRows:
    """Rows as this file takes them: y = q · (x − origin) · scale, weights q² of mean one."""

    y: Array  # (n, D)
    q: Array  # (n,)
    origin: Array
    scale: float  # a power of two
    weight: float  # mean of the weights

    @classmethod
    def of(cls, x: Array, w: Array) -> PairRows:
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
        root = max(math.sqrt(bound) - 32.0 * UNIT * math.sqrt(scatter) - TINY, 0.0)
        exact = root * root * (1.0 - 256.0 * UNIT)
        quotient = exact / self.scale / self.scale
        told = quotient * self.weight * (1.0 - 32.0 * UNIT)
        far = exact > 1e-200 and quotient > 1e-280 and told > 1e-280  # from underflow
        return told if math.isfinite(told) and far else 0.0


def price_matrix(
    pairs: NDArray[np.float16], unit: float, triangles: NDArray[np.int32], prices: Array, q: Array
) -> tuple[Array, float, int]:
    """U in full, the greatest sum of the absolute values of its terms in a row, and how many terms a number has."""
    n, at, phi = len(q), 0, 1.0 / q
    u = np.zeros((n, n))
    for i in range(1, n):
        u[i, :i] = pairs[at : at + i]
        at += i
    u *= unit
    u += u.T
    i, j, k = triangles.T.astype(np.int64)
    places = np.concatenate([i * n + j, j * n + i, i * n + k, k * n + i, j * n + k, k * n + j])
    half = 0.5 * prices
    terms = np.bincount(places, np.tile(half, 6), n * n).reshape(n, n)
    half = np.concatenate([half, half, half, half, -half, -half])
    between = np.bincount(places, half, n * n).astype(np.float64, copy=False).reshape(n, n)  # of none: integers
    own = np.bincount(i, prices, n) * phi * phi
    sums = u.sum(axis=1) + phi * (terms @ phi) + own
    between *= phi
    between *= phi[:, None]
    u -= between
    u[np.arange(n), np.arange(n)] += own
    most = max(int(np.bincount(places, minlength=1).max()), int(np.bincount(i, minlength=1).max()))
    return u, float(sums.max()), most + 4


@dataclass(frozen=True)
class PricedMatrix:
    """The matrix A of (a), and what is known of it beforehand."""

    a: Array
    known: float  # |Y|² + eᵀ A e, rounded down
    scatter: float  # |Y|²
    row_sum: float  # greatest sum of absolute terms in a row of U
    n_terms: int  # of a number of A

    @classmethod
    def of(cls, rows: PairRows, u: Array, row_sum: float, n_terms: int) -> PricedMatrix:
        """`u` is used up."""
        (n, d), y, q = rows.y.shape, rows.y, rows.q
        scatter, along = float((y * y).sum()), float(q @ q)
        mean = np.abs(y.T @ q) + (n + 4) * 2.0 * UNIT * (np.abs(y).T @ q)
        known = scatter * (1.0 - (n * d + 8) * 2.0 * UNIT) - float(mean @ mean) / along * (1.0 + 64.0 * UNIT)
        slack = (4 * n + n_terms + 64) * 8.0 * UNIT * float(q.sum()) * row_sum * float(q.max())
        known -= (float(q @ (u @ q)) + slack) / along
        u += y @ y.T
        return cls(np.negative(u, out=u), known, scatter, row_sum, n_terms + d)

    def shortfall(self, v: Array, q: Array, h: Array, theta: float) -> float | None:
        """By how much M can fall short of being positive semidefinite; None if it was not factorised."""
        n = len(q)
        m = self.a + v @ v.T
        m += np.outer(q, h)
        m += np.outer(h, q)
        m[np.arange(n), np.arange(n)] -= theta
        trace = float(np.abs(np.diag(m)).sum())
        beside = 2.0 * float(np.linalg.norm(q) * np.linalg.norm(h))
        size = self.scatter + float((v * v).sum()) + beside + self.row_sum - theta
        try:
            np.linalg.cholesky(m)
        except np.linalg.LinAlgError:
            return None
        return (self.n_terms + v.shape[1] + 32) * 16.0 * UNIT * size + (n + 8) * 16.0 * UNIT * trace + TINY


def prove(
    rows: PairRows, pairs: NDArray[np.float32], scale: float, triangles: NDArray[np.int32], prices: Array,
    n_clusters: int, space: TopSpace,
) -> PairProof:  # fmt: skip
    """The bound of these prices, all in units of `scale`; of `pairs` only what lies below the diagonal counts. `space`:
    of a proof before this one, or a new one (`lowest_space`)."""
    n, k, q = len(rows.q), n_clusters - 1, rows.q
    most = float(pairs.max(initial=0.0))
    unit = scale * 2.0 ** math.frexp(most / HALVES)[1] if most > 0.0 else 1.0
    halves = np.concatenate([(pairs[i, :i] * (scale / unit)).astype(np.float16) for i in range(1, n)])
    dearest = np.sort(np.argsort(-prices, kind="stable")[: min(MOST_TRIANGLES * n, np.count_nonzero(prices > 0.0))])
    triangles, prices = triangles[dearest], prices[dearest] * scale
    priced = PricedMatrix.of(rows, *price_matrix(halves, unit, triangles, prices, q))
    values, vectors, off = _lowest(priced.a, q, n_clusters, space)
    e = q / np.linalg.norm(q)
    image = priced.a @ e
    # takes the parts between e and the rest out of A, and leaves e the eigenvalue |Y|²
    h = (0.5 * (priced.scatter + float(image @ e)) * e - image) / np.linalg.norm(q)
    v, theta, bound = np.zeros((n, k)), 0.0, 0.0
    loose = max(FIRST * off, 1e-10 * priced.scatter)
    for _ in range(TRIES):
        theta = min(float(values[k]) - max(0.5 * float(values[k] - values[k - 1]), loose), 0.0)
        v = vectors[:, :k] * np.sqrt(np.maximum(theta + loose - values[:k], 0.0))
        lost = priced.shortfall(v, q, h, theta)
        if lost is not None:
            rest = k * (theta - lost) * (1.0 + 8.0 * UNIT) - float((v * v).sum()) * (1.0 + (n * k + 8) * 2.0 * UNIT)
            rest -= 256.0 * UNIT * (priced.scatter + abs(priced.known) + abs(rest))
            bound = rows.on_rows(priced.known + rest, priced.scatter)
            break
        loose *= LOOSER
    numbers = np.array([theta, unit, rows.scale])
    return PairProof(halves, triangles, prices, v, h, rows.origin, numbers, bound)


def lowest_space(rows: PairRows, n_clusters: int) -> TopSpace:
    return TopSpace(rows.q / np.linalg.norm(rows.q), n_clusters + SPARE)


def _lowest(a: Array, q: Array, n_clusters: int, space: TopSpace) -> tuple[Array, Array, float]:
    """The K lowest eigenvalues of A among vectors orthogonal to q, vectors, and how far off these are."""
    e = q / np.linalg.norm(q)

    def multiply(vectors: Array) -> Array:
        image = -(a @ vectors)
        return np.asarray(image - np.outer(e, e @ image))

    k = n_clusters - 1
    for _ in range(1 if space.exact else ROUNDS if space.steps else FIRST_ROUNDS):
        values, vectors = space.of(multiply)
    off = multiply(vectors[:, :k]) - vectors[:, :k] * values[:k]
    return -values[:n_clusters], vectors[:, :n_clusters], float(np.linalg.norm(off))
