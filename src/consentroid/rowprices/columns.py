"""The columns known to coordinator and sites: a point, the rows that it attracted, and sums over them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array, part
from ..protocol.messages import FindTriples, MakeColumns, PriceQuery
from .totals import Totals


@dataclass
class Columns:
    """The sites hold the members, in this order; here are only sums."""

    totals: Totals
    n_features: int
    points: Array = field(default_factory=lambda: np.empty((0, 0)))
    costs: Array = field(default_factory=lambda: np.empty(0))
    sizes: Array = field(default_factory=lambda: np.empty(0))
    overlaps: Array = field(default_factory=lambda: np.empty((0, 0)))
    idle: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # masters since last used

    def __post_init__(self) -> None:
        self.points = np.empty((0, self.n_features))

    def __len__(self) -> int:
        return len(self.costs)

    def add(self, points: Array, slot: int, centre: int, kept: NDArray[np.bool_] | None = None) -> tuple[Array, Array]:
        """New columns at these points under the prices in `slot`; their Σ_{S_c} w λ in `slot` and in `centre`."""
        kept = np.ones(len(self), np.bool_) if kept is None else kept
        reply = self.totals.ask(PriceQuery(0, columns=MakeColumns(slot, centre, kept, points)))
        new = reply.columns
        assert new is not None
        n = int(kept.sum())
        overlaps = np.empty((n + len(points), n + len(points)))
        overlaps[:n, :n] = self.overlaps if n == len(self) else part(self.overlaps, np.flatnonzero(kept))
        overlaps[n:, :] = new.overlaps
        overlaps[:, n:] = new.overlaps.T
        self.overlaps = overlaps
        self.points = np.concatenate([self.points[kept], points])
        self.costs = np.concatenate([self.costs[kept], new.costs])
        self.sizes = np.concatenate([self.sizes[kept], new.sizes])
        self.idle = np.concatenate([self.idle[kept], np.zeros(len(points), np.int64)])
        return new.prices, new.centre_prices

    def find_triples(self, z: Array, most: int) -> int:
        """Sites look for triples that the columns, mixed by z, violate; how many they found."""
        found = self.totals.ask(PriceQuery(0, triples=FindTriples(z, most))).triples
        assert found is not None
        self.overlaps = self.overlaps + found.overlaps
        self.sizes = self.sizes + np.diag(found.overlaps)
        return round(found.found)

    def worth_keeping(self, most: int) -> NDArray[np.bool_]:
        """At most `most`: those that the master used last."""
        kept = np.ones(len(self), np.bool_)
        kept[np.argsort(self.idle, kind="stable")[most:]] = False
        return kept
