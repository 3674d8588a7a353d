"""Where can the centroids of an optimal clustering be? Boxes that hold them all.

A clustering into S_1..S_K with means m_k that costs at most U has Σ_k q_k ≤ U − Σ w λ, where
q_k = Σ_{S_k} w (|y − m_k|² − λ) ≥ f(m_k) ≥ t (with fees: q_k with those that S_k pays, and
Σ w λ − Σ φ in place of Σ w λ). So each of its clusters has

    q_k ≤ τ = U − Σ w λ − (K − 1) t.

The search below covers the means of all such sets. They need not be the sets that f chooses, so every row counts as
undecided; but a mean is a mean, so shift and cuts hold. What survives falls apart into small boxes; if there are K of
them and none can hold two centroids (the profit of two centroids in one box is at most that of the box's points nearest
to each row, Σ_j w min(0, a_j − λ_j)), each holds exactly one centroid of every such clustering.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array
from ..core.result import Regions
from ..protocol.messages import Examine, PriceQuery
from .cells import Cell, Node
from .judge import OPEN
from .search import CellSearch, Judged
from .session import OutOfTime, Session
from .tree import Cut

MOST_BOXES = 12_000
STALLED = 0.8  # a box that cuts leave larger than this share is taken as it is, once it is small enough
NEAR = 16.0  # diameters below which a box is near one
FINE = 4.0  # diameters of the set of means about one centroid at which a box is small enough


class RegionSearch(CellSearch):
    """Covers the means of all sets with q ≤ target; `survivors` are the boxes that are left."""

    any_set = True

    def __init__(self, session: Session, root: Cell, node: Node, target: float, radius: float) -> None:
        super().__init__(session, root, root, node.slot, target, session.weight / max(node.total, 1e-300))
        self.survivors: list[tuple[Array, Array]] = []
        self.radius = radius

    def cover(self) -> None:
        """After so many boxes, or so much effort, those still open are taken as they are."""
        try:
            while self.open and len(self.tree) <= MOST_BOXES:
                self.session.check_time()
                self._round()
        except OutOfTime:
            pass
        self.survivors += [(self.tree.lower[box[1]], self.tree.upper[box[1]]) for box in self.open]

    def _held(self, lower: Array, upper: Array) -> NDArray[np.bool_]:
        """The shift closes what is far from a centroid; near one, the rows' own curvature cuts better."""
        near = np.max(upper - lower, axis=1) <= NEAR * self.radius
        return np.repeat(near[:, None], lower.shape[1], axis=1)

    def _settle(self, b: int, box: int, judged: Judged, cuts: list[Cut], steepness: float) -> None:
        small = np.max(judged.upper[b] - judged.lower[b]) <= FINE * self.radius
        whole = judged.axes[b] < 0  # no number lies between its sides
        if judged.verdicts[b] == OPEN and (whole or (small and judged.shrunk[b] > STALLED)):
            self.survivors.append((judged.lower[b].copy(), judged.upper[b].copy()))
            return
        super()._settle(b, box, judged, cuts, steepness)


def find_regions(session: Session, node: Node, root: Cell, tolerance: float) -> Regions | None:
    """Boxes in the original features, one per centroid in the incumbent's order; None where they do not fall apart."""
    if session.centroids is None or len(node.targets) != 1 or not np.isfinite(node.targets).all():
        return None
    n_clusters, t = session.n_clusters, float(node.targets[0])
    most = session.axes.bound_needed(session.upper * (1.0 + tolerance))
    tau = most - node.total - (n_clusters - 1) * t
    tau += 1e-12 * (abs(most) + abs(node.total) + n_clusters * abs(t))
    if tau >= 0.0:
        return None
    assert session.counts is not None
    radius = 2.0 * math.sqrt(max(tau - t, 0.0) / max(float(session.counts.max()), 1e-300))
    search = RegionSearch(session, root, node, tau, max(radius, 1e-12))
    search.cover()
    groups = _together(search.survivors, session.axes.forward(session.centroids))
    if groups is None:
        return None
    lower, upper = groups
    if n_clusters > 1 and not _one_each(session, node, lower, upper, most, t):
        return None
    return _original(session, lower, upper, tolerance)


def _together(survivors: list[tuple[Array, Array]], centroids: Array) -> tuple[Array, Array] | None:
    """Hulls of survivors, each with the centroid nearest to it; None unless the hulls stay apart."""
    lower, upper = centroids.copy(), centroids.copy()
    for low, high in survivors:
        outside = np.maximum(np.maximum(low - centroids, centroids - high), 0.0)
        k = int(np.argmin((outside**2).sum(axis=1)))
        lower[k], upper[k] = np.minimum(lower[k], low), np.maximum(upper[k], high)
    for k in range(len(centroids)):
        for i in range(k):
            if np.all(lower[k] <= upper[i]) and np.all(lower[i] <= upper[k]):
                return None
    return lower, upper


def _one_each(session: Session, node: Node, lower: Array, upper: Array, most: float, t: float) -> bool:
    """Whether no hull can hold two centroids of a clustering that costs at most `most`."""
    n = len(lower)
    query = PriceQuery(
        0,
        examine=Examine(
            node.slot, lower, upper, np.ones(lower.shape, dtype=bool), np.ones(n),
            np.arange(n, dtype=np.int64) + session.boxes_done + MOST_BOXES, np.full(n, -1, dtype=np.int64),
            any_set=True,  # no row is decided, so `worth` is the profit of the points nearest to each row
        ),
    )  # fmt: skip
    sums = session.totals.ask(query).boxes
    assert sums is not None
    bound = node.total - sums.worth + (n - 2) * t - 1e-12 * (node.total + sums.worth + n * abs(t))
    return bool(np.all(bound > most * (1.0 + 1e-12)))


def _original(session: Session, lower: Array, upper: Array, tolerance: float) -> Regions:
    """The boxes in the original features, outward: their hull after turning back, and what rounding can move."""
    axes, domain = session.axes, session.domain
    c = axes.coordinates
    centre = axes.back(0.5 * (lower + upper))
    reach = (0.5 * (upper - lower)) @ np.abs(c.basis).T / c.scale * (1.0 + 1e-9)
    n_features = len(c.origin)
    extent = np.abs(domain.lower - c.origin) + np.abs(domain.upper - c.origin)
    rounding = 64.0 * n_features**2 * 2.0**-52 * (float(extent.sum()) + np.abs(c.origin))
    exact = not c.origin.any() and np.array_equal(c.basis, np.eye(n_features))
    reach = reach + (4.0 * 2.0**-52 * np.abs(centre) if exact else rounding)
    return Regions(np.maximum(centre - reach, domain.lower), np.minimum(centre + reach, domain.upper), tolerance)
