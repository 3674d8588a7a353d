"""The paper's symmetry rule (`Symmetry_Constraint`) for replay: ‖m_k − r_k‖² ≤ ‖m_l − r_k‖² for all k, l.

The rule is not convex, but it implies the order rule (add the constraints of (k, l) and (l, k)), so the order-ruled
problem is a relaxation: where its optimum obeys `nearest` too, the usual case, nothing is left to do. Otherwise the box
is split between the two centroids at odds until the optimum of the relaxation obeys the rule to `TOLERANCE`, in units
of the squared diameter of the boxes. Whatever comes out proves nothing about the clustering problem.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Relaxed = Callable[[Array], tuple[float, float, Array]]
"""Boxes (2, K, D) → bound, value and centroids under the order rule; bound +inf where nothing is left."""

TOLERANCE = 1e-4
MOST_BOXES = 400


def solve_nearest(
    relaxed: Relaxed, value_at: Callable[[Array], float], boxes: Array, references: Array, gap: float
) -> tuple[float, float, Array, bool]:
    """Bound, value, centroids under the rule, and whether they meet within `gap`; the references obey it themselves."""
    slack = TOLERANCE * float(np.sum((boxes[1] - boxes[0]).max(axis=0) ** 2))
    proven, best_centroids = np.inf, np.clip(references, *boxes)
    best = value_at(best_centroids)
    serial = itertools.count()
    first = relaxed(boxes)
    heap = [(first[0], next(serial), boxes, first)]
    for _ in range(MOST_BOXES):
        if not heap or heap[0][0] >= best - gap * max(abs(best), 1e-300):
            break
        bound, _, box, (_, value, centroids) = heapq.heappop(heap)
        pair = _at_odds(centroids, references, slack)
        if pair is None:
            proven = min(proven, bound)
            if value < best:
                best, best_centroids = value, centroids
            continue
        for child in _halves(box, centroids, *pair):
            if _possible(child, references, slack):
                answer = relaxed(child)
                if answer[0] < best:
                    heapq.heappush(heap, (answer[0], next(serial), child, answer))
    bound = min(heap[0][0] if heap else np.inf, proven, best)
    return bound, best, best_centroids, bool(best - bound <= gap * max(abs(best), 1e-300))


def _at_odds(centroids: Array, references: Array, slack: float) -> tuple[int, int] | None:
    """The pair (k, l) with m_l nearest to r_k in place of m_k, if there is one."""
    squared = ((centroids[None, :, :] - references[:, None, :]) ** 2).sum(axis=2)  # [k, l] = ‖m_l − r_k‖²
    excess = np.diag(squared)[:, None] - squared
    k, l = np.unravel_index(int(np.argmax(excess)), excess.shape)
    return (int(k), int(l)) if excess[k, l] > slack else None


def _halves(box: Array, centroids: Array, k: int, l: int) -> list[Array]:
    """The box in two, cut where m_k and m_l are farthest apart, through the wider of their two boxes."""
    width = box[1] - box[0]
    d = int(np.argmax(np.abs(centroids[k] - centroids[l]) * np.maximum(width[k], width[l])))
    cluster = k if width[k, d] >= width[l, d] else l
    edge = 0.1 * width[cluster, d]
    at = np.clip(0.5 * (centroids[k, d] + centroids[l, d]), box[0, cluster, d] + edge, box[1, cluster, d] - edge)
    lower, upper = box.copy(), box.copy()
    lower[1, cluster, d] = at
    upper[0, cluster, d] = at
    return [lower, upper]


def _possible(box: Array, references: Array, slack: float) -> bool:
    """Whether centroids in the box can obey the rule: no m_l must be nearer to r_k than any m_k can be."""
    offset = np.maximum(np.maximum(box[0][None] - references[:, None], references[:, None] - box[1][None]), 0.0)
    near = (offset**2).sum(axis=2)  # [k, l]: least ‖m_l − r_k‖²
    far = np.maximum(np.abs(box[0][None] - references[:, None]), np.abs(box[1][None] - references[:, None]))
    return bool(np.all(np.diag(near)[:, None] <= (far**2).sum(axis=2) + slack))
