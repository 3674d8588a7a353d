"""Prices on pairs and triangles of rows: a bound that does not search, for rows with many features.

With B_ij = Σ_k [i, j in cluster k] / (weight of cluster k) a clustering costs

    Σ_j w_j |x_j|² − Σ_ij w_i w_j B_ij x_i·x_j,

which is linear in B. Let q = √w, Z_ij = q_i q_j B_ij, y_j = q_j x_j. For every clustering Z is a projection of rank at
most K, Z q = q, and

    Z_ij ≥ 0 for all pairs,     B_ij + B_ik ≤ B_ii + B_jk for all triangles      (Peng and Wei 2007)

(if i shares its cluster with j and with k, these share theirs). Any prices π_ij, v_t ≥ 0 on these make a bound, the
least of ⟨−Y Yᵀ − Π + Σ_t v_t T_t, Z⟩ over all projections, which is a matter of eigenvalues (`proof.py`). Here good
prices are found, by the alternating direction method of multipliers: Z is the nearest projection, or mixture of such,
to

    W + Π − Σ_t v_t T_t + Y Yᵀ / ρ,

and W the nearest matrix to Z − Π + Σ_t v_t T_t that obeys pairs and the triangles known. That is a sweep over these,
one after the other, from the prices of the step before (Hildreth 1957); how far W was moved by each is its new price.
Triangles that W violates join from time to time, those that cost nothing leave.

A diagonal number of W could give way to every triangle at its row, and would do so in place of the many others, by a
little in each step: prices would take as many steps as there are rows. So it gives way by a small part (`EASE`) of what
it should, as if moving it cost more: that hurries. Later the part grows, then ρ falls, and steps come to rest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from ...core.arrays import Array
from ..kernels.pairs import (
    TILE,
    mirror,
    settle,
    spread_triangles,
    sweep_pairs,
    sweep_triangles,
    violated_triangles,
)
from ..parallel import Pool, in_parallel
from .proof import PairProof, PairRows, lowest_space, prove
from .top_space import TopSpace

FIRST_RHO, LAST_RHO, FEW_ROWS = 0.3, 0.05, 1000  # in units of the norm of Y Yᵀ; the last one where rows are few
BEYOND = 1.6  # Z counts so many times as much as it should, which takes fewer steps
BEFORE_TRIANGLES, BETWEEN = 30, 20  # steps before the first triangles, and from one search for them to the next
EASE = 75.0  # over the number of rows: what a diagonal gives way by, beside other numbers of W
CALMER = 1.33  # times as much, after so many steps
FOR_EACH = 60  # new triangles for each row
CANDIDATES = 250  # rows among which the other two of a triangle are sought
VIOLATED = 1e-4  # of 1 / (rows in a cluster)
Floats = NDArray[np.float32]
Work = Callable[[int, int], None]
ONE_THREAD = 1500  # rows below which BLAS is faster on one thread: others wait for each other by spinning
BLAS = ThreadpoolController().select(user_api="blas")


class PairPrices:
    """State of one run at one site: x and w are its rows, all of positive weight."""

    def __init__(self, x: Array, w: Array, n_clusters: int, pool: Pool = None) -> None:
        n = len(x)
        self.n_clusters, self.pool, self.n = n_clusters, pool, n
        self._rows = PairRows.of(x, w)
        y, q = self._rows.y, self._rows.q
        self._norm = float(np.linalg.norm(y.T @ y)) or 1.0
        self._unit, self._phi = (q / np.linalg.norm(q)).astype(np.float32), (1.0 / q).astype(np.float32)
        self._w: Floats = np.outer(self._unit, self._unit)
        self.pairs: Floats = np.zeros((n, n), np.float32)  # π, below the diagonal
        self.triangles: NDArray[np.int32] = np.empty((0, 3), np.int32)  # of rows
        self.prices: Array = np.empty(0)  # v
        self._between, self._of = np.zeros((n, n), np.float32), np.zeros(n, np.float32)  # Σ v T
        self._full: Floats = self._w.copy()  # W + Π − Σ v T, both halves; during a step other matrices of all pairs
        self._space = TopSpace(self._unit, n_clusters + 4)
        self._rng = np.random.default_rng(0)
        self.steps = 0
        self._ease = min(1.0, EASE / n)
        self._lowest = lowest_space(self._rows, n_clusters)
        self._scale = 1.0
        self._use(FIRST_RHO)

    def improve(self, steps: int) -> None:
        with self.threads():
            for _ in range(steps):
                self._step()

    def proof(self) -> PairProof:
        with self.threads():
            return prove(
                self._rows, self.pairs, self._scale, self.triangles, self.prices, self.n_clusters, self._lowest
            )

    @contextlib.contextmanager
    def threads(self) -> Iterator[None]:
        with BLAS.limit(limits=1 if self.n < ONE_THREAD else None):
            yield

    def _use(self, rho: float) -> None:
        """The same prices in units of another ρ."""
        before, self._scale = self._scale, rho * self._norm
        self._rho = rho
        self._low_rank = (self._rows.y / np.sqrt(self._scale)).astype(np.float32)
        self.pairs *= np.float32(before / self._scale)
        self.prices *= before / self._scale

    def _calm_down(self) -> None:
        """From quick steps to those that come to rest."""
        if self._ease < 1.0:
            self._ease = min(1.0, CALMER * self._ease)
        elif self._rho > LAST_RHO and self.n <= FEW_ROWS:
            self._use(max(self._rho / CALMER, LAST_RHO))

    def _step(self) -> None:
        self.steps += 1
        factor = self._nearest_projection() * np.float32(np.sqrt(BEYOND))
        np.matmul(factor, factor.T, out=self._full)  # Z, and more of it
        self._rowwise(lambda a, b: sweep_pairs(self._w, self.pairs, self._full, np.float32(1.0 - BEYOND), a, b))
        since = self.steps - BEFORE_TRIANGLES
        if since >= 0 and since % BETWEEN == 0:
            self._find_triangles()
            self._calm_down()
            spread_triangles(self.triangles, self.prices, self._phi, self._between, self._of)
        sweep_triangles(self._w, self.triangles, self.prices, self._phi, self._ease, self._between, self._of)
        self._tiled(lambda a, b: settle(self._w, self.pairs, self._between, self._of, a, b, self._full))

    def _nearest_projection(self) -> Floats:
        """A factor of Z."""
        values, vectors = self._space.of(self._multiply)
        weights = clipped_to(values, self.n_clusters - 1.0)
        used = self._space.size = int(np.count_nonzero(weights))
        return np.column_stack([self._unit, vectors[:, :used] * np.sqrt(weights[:used]).astype(np.float32)])

    def _multiply(self, vectors: Floats) -> Floats:
        """(W + Π − Σ v T + Y Yᵀ/ρ) times vectors, projected to what is orthogonal to q."""
        image = self._full @ vectors + self._low_rank @ (self._low_rank.T @ vectors)
        return np.asarray(image - np.outer(self._unit, self._unit @ image))

    def _rowwise(self, work: Work) -> None:
        in_parallel(work, self.n, self.pool, self.n**2 // 4)

    def _tiled(self, work: Work) -> None:
        in_parallel(work, -(-self.n // TILE), self.pool, self.n**2 // 4)

    def _find_triangles(self) -> None:
        """Triangles without a price leave, those that W violates most join."""
        priced, n = self.prices > 0.0, self.n
        self.triangles, self.prices = self.triangles[priced], self.prices[priced]
        b = self._full  # which nobody needs now
        self._tiled(lambda first, last: mirror(self._w, self._phi, first, last, b))
        candidates = np.tile(np.arange(n, dtype=np.int32), (n, 1))
        if n > CANDIDATES:
            candidates = self._rng.integers(n, size=(n, CANDIDATES), dtype=np.int32)
        third, amounts = np.empty(candidates.shape, np.int32), np.empty(candidates.shape, np.float32)
        least = np.float32(VIOLATED * self.n_clusters / n)

        def work(first: int, last: int) -> None:
            violated_triangles(b, candidates, first, last, least, third, amounts)

        in_parallel(work, n, self.pool, n * candidates.shape[1] ** 2)
        worst = np.argpartition(-amounts, min(FOR_EACH, n - 1), axis=1)[:, :FOR_EACH]
        i, at = np.nonzero(np.take_along_axis(amounts, worst, axis=1))
        place = worst[i, at]
        new = np.stack([i, candidates[i, place], third[i, place]], axis=1).astype(np.int32)
        new = new[np.unique(_numbers(new, n), return_index=True)[1]]
        new = new[~np.isin(_numbers(new, n), _numbers(self.triangles, n))]
        self.triangles = np.concatenate([self.triangles, new])
        self.prices = np.concatenate([self.prices, np.zeros(len(new))])


def _numbers(triangles: NDArray[np.int32], n: int) -> NDArray[np.int64]:
    """One number for each triangle; its last two may change places."""
    i, j, k = triangles.T.astype(np.int64)
    return np.asarray((i * n + np.minimum(j, k)) * n + np.maximum(j, k))


def clipped_to(values: Array, total: float) -> Array:
    """The nearest numbers between 0 and 1 with this sum: all are lowered by the same amount, then clipped."""
    low, high = float(values.min()) - 1.0, float(values.max())
    for _ in range(60):
        middle = 0.5 * (low + high)
        if np.clip(values - middle, 0.0, 1.0).sum() > total:
            low = middle
        else:
            high = middle
    return np.asarray(np.clip(values - high, 0.0, 1.0))
