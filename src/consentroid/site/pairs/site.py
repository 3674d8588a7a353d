"""A site's answers about prices on pairs of its rows: steps, the best proof so far, and the private file of it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...core.arrays import Array
from ...core.errors import NodeRefused
from ...protocol.messages import ImprovePairs, PairBound
from ..guard import Guard
from ..parallel import Pool
from .anticlusters import deal
from .prices import BLAS, PairPrices
from .proof import PairFile, PairProof

MOST_ROWS = 8_000  # of which all pairs take 1 GB, and 2 GB more while they are proven
MOST_STEPS = 100  # of one request
MOST_UNEQUAL = 1e12  # weights
NO_FILE = hashlib.sha256().hexdigest()


class Anticluster:
    """Prices on the pairs of some of the rows, and the best of what they have proven."""

    def __init__(self, x: Array, w: Array, rows: NDArray[np.int64], n_clusters: int, pool: Pool) -> None:
        self.rows, self._prices = rows, PairPrices(x[rows], w[rows], n_clusters, pool)
        self.best: PairProof | None = None

    def improve(self, steps: int) -> PairProof:
        self._prices.improve(steps)
        found = self._prices.proof()
        if self.best is None or found.bound > self.best.bound:
            self.best = found
        return self.best


class SitePairs:
    """State of one run at one site; x and w are its rows, all of positive weight."""

    def __init__(self, x: Array, w: Array, pool: Pool, guard: Guard) -> None:
        self.x, self.w, self.pool, self.guard = x, w, pool, guard
        self._asked = (0, 0)
        self._dealt: list[NDArray[np.int64]] = []  # rows of each anticluster
        self._reach = 0.0  # about what these cost by themselves
        self._parts: list[Anticluster] = []  # made with the first steps

    def improve(self, request: ImprovePairs, path: Path | None) -> PairBound:
        if request.n_clusters < 1 or not 0 <= request.steps <= MOST_STEPS or request.most_rows < 0:
            raise NodeRefused(
                f"{request.steps} steps for {request.n_clusters} clusters of {request.most_rows} rows at most; "
                f"at most {MOST_STEPS} at once"
            )
        if request.centroids is not None and (len(request.centroids), self.x.shape[1]) != request.centroids.shape:
            raise NodeRefused(f"centroids of {request.centroids.shape} for rows with {self.x.shape[1]} features")
        if not self._possible(request):
            return PairBound(0.0, NO_FILE if request.keep else "")
        if self._asked != (request.n_clusters, request.most_rows):
            self._begin(request)
        reach = self.guard.cost(self._reach)
        if request.steps == 0 and not request.keep and not self._parts:
            return PairBound(0.0, reach=reach)
        if request.steps or not self._parts:
            self._improve(request)
        file = PairFile.of([(part.rows, part.best) for part in self._parts if part.best is not None])
        bound = self.guard.bound(file.bound)
        if not request.keep:
            return PairBound(bound, reach=reach)
        write(file, path)
        return PairBound(bound, file.digest, reach)

    def _begin(self, request: ImprovePairs) -> None:
        self._dealt, self._reach, self._parts = [np.arange(len(self.x))], 0.0, []
        if request.centroids is not None and len(request.centroids):
            self._dealt, self._reach = deal(self.x, self.w, request.centroids, self._together(request))
        self._asked = (request.n_clusters, request.most_rows)

    def _improve(self, request: ImprovePairs) -> None:
        if not self._parts:
            pool = self.pool if len(self._dealt) == 1 else None  # else each is the work of one thread
            self._parts = [Anticluster(self.x, self.w, rows, request.n_clusters, pool) for rows in self._dealt]
        if len(self._parts) == 1 or self.pool is None:
            for part in self._parts:
                part.improve(request.steps)
            return
        with BLAS.limit(limits=1):
            for done in [self.pool.submit(part.improve, request.steps) for part in self._parts]:
                done.result()

    def _together(self, request: ImprovePairs) -> int:
        """Rows of an anticluster, at most: all, where they cannot be dealt."""
        dealt = request.centroids is not None and len(request.centroids) > 0 and request.most_rows > 0
        return min(request.most_rows, len(self.x)) if dealt else len(self.x)

    def _possible(self, request: ImprovePairs) -> bool:
        """More rows than clusters, not too many pairs, and weights that single precision can hold side by side. Where
        groups of few rows are not told, nor are clusters of so few: nearly as many clusters as rows would tell of one
        pair."""
        n, n_clusters = len(self.x), request.n_clusters
        most = self._together(request)
        if not 1 < n_clusters < n or n * most > MOST_ROWS**2:
            return False
        least = n // -(-n // most)  # rows of an anticluster
        enough = n_clusters < least and n_clusters * self.guard.least <= least
        return enough and bool(self.w.max() <= MOST_UNEQUAL * self.w.min())


def write(proof: PairFile, path: Path | None) -> None:
    """A file that only its owner may read."""
    if path is not None:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            np.savez_compressed(file, **proof.arrays)  # type: ignore[arg-type]
