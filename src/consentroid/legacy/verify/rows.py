"""What the search needs to know of a node's rows: shifted, merged, in a good order, with the cost of every tail.

All of it depends on the rows alone, so it is prepared once a node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...core.arrays import Array
from .order import Order
from .search import OPEN, Tasks, search

TAIL_EFFORT = 20_000  # partial assignments for one tail; where that is not enough the next tail is a valid stand-in
LONGEST_TAIL = 60  # rows: with more, leaves are small and most rows decided


@dataclass(frozen=True)
class Rows:
    centre: Array  # (D,) subtracted from all coordinates; a row's own, so that differences are exact or nearly so
    points: Array  # (J, D) distinct rows, far-apart ones first
    weights: Array  # (J,) how often each occurs
    tail: Array  # (J + 1,) never above the cost of clustering points[t:] alone
    variation: float  # Σ_j w_j ‖y_j − centre‖²

    @classmethod
    def prepared(cls, points: Array, weights: Array, n_clusters: int) -> Rows:
        kept = weights > 0
        distinct, which = np.unique(points[kept], axis=0, return_inverse=True)
        mass: Array = np.bincount(np.ravel(which), weights[kept], minlength=len(distinct)).astype(float)
        centre = np.sort(distinct, axis=0)[len(distinct) // 2]
        shifted = distinct - centre
        order = _far_apart_first(shifted, mass)
        shifted, mass = shifted[order], mass[order]
        variation = float(mass @ (shifted**2).sum(axis=1))
        return cls(centre, shifted, mass, _tails(shifted, mass, n_clusters, variation), variation)


def _far_apart_first(points: Array, weights: Array) -> NDArray[np.int64]:
    """Each row is the one farthest from those before it: early rows then open clusters, later ones add cost at once."""
    mean = weights @ points / weights.sum()
    chosen = [int(np.argmax(((points - mean) ** 2).sum(axis=1)))]
    nearest = np.full(len(points), np.inf)
    for _ in range(len(points) - 1):
        nearest = np.minimum(nearest, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
        nearest[chosen] = -1.0
        chosen.append(int(np.argmax(nearest)))
    return np.array(chosen)


def _tails(points: Array, weights: Array, n_clusters: int, variation: float) -> Array:
    """Least cost of the last rows alone, from the end: K rows cost nothing, and more rows never cost less."""
    n_rows, n_features = points.shape
    tail = np.zeros(n_rows + 1)
    rule = Order.of(None, n_clusters, n_features)
    box = np.broadcast_to(np.stack([points.min(axis=0), points.max(axis=0)])[:, None], (2, n_clusters, n_features))
    first = max(n_rows - LONGEST_TAIL, 0)
    for t in range(n_rows - n_clusters - 1, first - 1, -1):
        rest, mass = points[t:], weights[t:]
        task = Tasks(
            price=np.zeros((1, n_clusters, n_features)),
            lower=box[:1],
            upper=box[1:],
            cutoff=np.array([_lloyd_cost(rest, mass, n_clusters) * (1.0 + 1e-9) + 1e-300]),
            allowed=np.ones((1, len(rest), n_clusters), dtype=bool),
            order=np.arange(len(rest))[None],
            n_fixed=np.zeros(1, np.int64),
            tail=tail[None, t:].copy(),
            interchangeable=True,
        )
        outcome = search(rest, mass, task, rule, TAIL_EFFORT, improve=True)
        least = task.cutoff[0] if not np.isfinite(outcome.value[0]) else outcome.value[0]
        known = outcome.status[0] != OPEN
        tail[t] = max(tail[t + 1], least - 1e-12 * variation) if known else tail[t + 1]
    tail[:first] = tail[first]
    return tail


def _lloyd_cost(points: Array, weights: Array, n_clusters: int) -> float:
    """A cost that can be attained, from far-apart rows as seeds."""
    centroids = points[_far_apart_first(points, weights)[:n_clusters]]
    cost = np.inf
    for _ in range(20):
        squared = ((points[:, None] - centroids[None]) ** 2).sum(axis=2)
        cost = min(cost, float(weights @ squared.min(axis=1)))
        member = squared.argmin(axis=1)[:, None] == np.arange(len(centroids))
        mass = member.T @ weights
        sums = member.T @ (weights[:, None] * points)
        centroids = np.where(mass[:, None] > 0, sums / np.maximum(mass, 1e-300)[:, None], centroids)
    return cost
