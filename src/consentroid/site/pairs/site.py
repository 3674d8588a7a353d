"""A site's answers about prices on pairs of its rows: steps, the best proof so far, and the private file of it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np

from ...core.arrays import Array
from ...core.errors import NodeRefused
from ...protocol.messages import ImprovePairs, PairBound
from ..guard import Guard
from ..parallel import Pool
from .prices import PairPrices
from .proof import PairProof

MOST_ROWS = 8_000  # four matrices of all pairs of these, two of them in double precision, take 1.5 GB
MOST_STEPS = 100  # of one request
MOST_UNEQUAL = 1e12  # weights
NO_FILE = hashlib.sha256().hexdigest()


class SitePairs:
    """State of one run at one site; x and w are its rows, all of positive weight."""

    def __init__(self, x: Array, w: Array, pool: Pool, guard: Guard) -> None:
        self.x, self.w, self.pool, self.guard = x, w, pool, guard
        self._prices: PairPrices | None = None
        self._best: PairProof | None = None

    def improve(self, request: ImprovePairs, path: Path | None) -> PairBound:
        if request.n_clusters < 1 or not 0 <= request.steps <= MOST_STEPS:
            raise NodeRefused(f"{request.steps} steps for {request.n_clusters} clusters; at most {MOST_STEPS} at once")
        if not self._possible(request.n_clusters):
            return PairBound(0.0, NO_FILE if request.keep else "")
        if self._prices is None or self._prices.n_clusters != request.n_clusters:
            self._prices, self._best = PairPrices(self.x, self.w, request.n_clusters, self.pool), None
        if request.steps or self._best is None:
            self._prices.improve(request.steps)
            found = self._prices.proof()
            if self._best is None or found.bound > self._best.bound:
                self._best = found
        best = self._best
        assert best is not None
        bound = self.guard.bound(best.bound)
        if not request.keep:
            return PairBound(bound)
        write(best, path)
        return PairBound(bound, best.digest)

    def _possible(self, n_clusters: int) -> bool:
        """More rows than clusters, not too many, and weights that single precision can hold side by side. Where groups
        of few rows are not told, nor are clusters of so few: nearly as many clusters as rows would tell of one pair."""
        enough = n_clusters * self.guard.least <= len(self.x) <= MOST_ROWS
        return enough and 1 < n_clusters < len(self.x) and bool(self.w.max() <= MOST_UNEQUAL * self.w.min())


def write(proof: PairProof, path: Path | None) -> None:
    """A file that only its owner may read."""
    if path is not None:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            np.savez_compressed(file, **proof.arrays)  # type: ignore[arg-type]
