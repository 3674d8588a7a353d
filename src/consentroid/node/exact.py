"""The exact node solver: search over assignments for few rows, over centroid boxes for many.

Bounds are rounded outward and values recomputed from the rows, so bound ≤ optimum ≤ value holds without tolerance
(`docs/numerics.md`). What depends on the rows alone is computed once and kept as long as the same array is asked about.
Results depend on the arguments only, never on earlier calls, unless a time limit strikes.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..symmetry import Symmetry
from ._assignment import make_stack
from ._batch import INFEASIBLE, OPTIMAL, Rows, make_scratch, solve_batch
from ._kernels import NEAREST, NONE, ORDER
from ._tails import lloyd_seeds, spread_order, tail_bounds
from .base import Budget, NodeProblem, NodeSolution, Status

Array = NDArray[np.float64]
Regime = Literal["auto", "assignments", "boxes"]

RULES = {"none": NONE, "order": ORDER, "nearest": NEAREST}
SMALL_QUOTA = 4096  # search nodes between two looks at the clock: a few milliseconds


@dataclass(frozen=True)
class Batch:
    """Results of `solve_many`, one entry a box."""

    bounds: Array  # (B,)
    values: Array  # (B,)
    centroids: Array  # (B, K, D)
    optimal: NDArray[np.bool_]  # (B,) gap reached, or proven infeasible
    infeasible: NDArray[np.bool_]  # (B,)


class ExactSolver:
    """See the module text; `regime` forces one of the two searches."""

    name = "exact"

    def __init__(self, regime: Regime = "auto") -> None:
        self.regime = regime
        self._rows: OrderedDict[tuple[int, int, int], tuple[Array, Array, Rows]] = OrderedDict()

    def solve(self, problem: NodeProblem, budget: Budget, start: Array | None = None) -> NodeSolution:
        started = time.perf_counter()
        batch, labels = self._run(
            problem.points, problem.weights, problem.price[None], problem.boxes[None], problem.symmetry, budget, start
        )
        seconds = time.perf_counter() - started
        if batch.infeasible[0]:
            status = Status.INFEASIBLE
        elif batch.optimal[0]:
            status = Status.OPTIMAL
        else:
            status = Status.TIME_LIMIT if seconds >= budget.seconds else Status.NODE_LIMIT
        return NodeSolution(
            float(batch.bounds[0]), float(batch.values[0]), batch.centroids[0], status, seconds, labels
        )

    def solve_many(
        self, points: Array, weights: Array, prices: Array, boxes: Array, symmetry: Symmetry, budget: Budget
    ) -> Batch:
        """One problem a box, prices (B, K, D), boxes (B, 2, K, D); `budget.seconds` is for all of them together."""
        return self._run(points, weights, prices, boxes, symmetry, budget, None)[0]

    def _run(
        self,
        points: Array,
        weights: Array,
        prices: Array,
        boxes: Array,
        symmetry: Symmetry,
        budget: Budget,
        start: Array | None,
    ) -> tuple[Batch, NDArray[np.int64]]:
        deadline = time.perf_counter() + budget.seconds
        prices, boxes = np.array(prices, dtype=float, order="C"), np.array(boxes, dtype=float, order="C")  # owned: one array type to compile for
        n_boxes, n_clusters, n_features = prices.shape
        rows = self._prepared(points, weights, n_clusters)
        references = symmetry.references if symmetry.references is not None else np.zeros((n_clusters, n_features))
        references = np.array(references, order="C")
        bounds, values = np.empty(n_boxes), np.empty(n_boxes)
        centroids = np.empty((n_boxes, n_clusters, n_features))
        states, nodes = np.zeros(n_boxes, np.int64), np.zeros(n_boxes, np.int64)
        cursor = np.zeros(4, np.int64)
        scratch = make_scratch(len(rows.w), len(rows.points), n_clusters, n_features)
        stack = make_stack(len(rows.w), n_clusters, n_features)
        first = np.zeros((0, n_features)) if start is None else np.array(start, dtype=float, order="C")
        quota, limit = SMALL_QUOTA, int(budget.search_nodes)
        while cursor[0] < n_boxes:
            solve_batch(
                rows, prices, boxes, RULES[symmetry.rule], references, first, 4, budget.gap, limit, True, cursor,
                quota, scratch, stack, bounds, values, centroids, states, nodes,
            )  # fmt: skip
            if time.perf_counter() >= deadline:
                limit = 0  # what is under way stops where it stands; the rest gets its root bound
        batch = Batch(bounds, values, centroids, (states == OPTIMAL) | (states == INFEASIBLE), states == INFEASIBLE)
        return batch, scratch.all_labels

    def _prepared(self, points: Array, weights: Array, n_clusters: int) -> Rows:
        key = (id(points), id(weights), n_clusters)
        if key in self._rows:
            self._rows.move_to_end(key)
            return self._rows[key][2]
        rows = prepare(points, weights, n_clusters)
        self._rows[key] = (points, weights, rows)  # holding the arrays keeps their ids theirs
        while len(self._rows) > 4:
            self._rows.popitem(last=False)
        return rows


def prepare(points: Array, weights: Array, n_clusters: int) -> Rows:
    """Shift, scale, merge equal rows, order for the search, tail bounds and starts."""
    points, weights = np.array(points, dtype=float, order="C"), np.array(weights, dtype=float)
    kept = weights > 0
    distinct, inverse = np.unique(points[kept], axis=0, return_inverse=True)
    w = np.bincount(inverse.ravel(), weights[kept], minlength=len(distinct))
    n_features = points.shape[1]
    if len(distinct) == 0:
        empty = np.zeros((0, n_features))
        return Rows(
            points, weights, empty, w, np.zeros(n_features), 1.0, 1.0, np.zeros(1), np.zeros((0, n_clusters, n_features))
        )
    # a row's own coordinate as centre: y − centre is then exact for rows close together, however far from zero
    centre = np.sort(distinct, axis=0)[len(distinct) // 2]
    shifted = distinct - centre
    spread = float(np.max(np.abs(shifted)))
    if not math.isfinite(spread):
        centre = np.zeros(n_features)
        shifted = distinct
        spread = float(np.max(np.abs(shifted)))
    scale, weight_scale = power_above(spread), power_above(float(w.max()))
    y, w = shifted / scale, w / weight_scale
    order = spread_order(y, w)
    y, w = np.ascontiguousarray(y[order]), np.ascontiguousarray(w[order])
    n = len(y)
    seeds = lloyd_seeds(y, w, n_clusters, 20, 3)
    tail, best = np.zeros(n + 1), np.zeros((n_clusters, n_features))
    if n <= 64:
        tail_bounds(y, w, len(points), n_clusters, seeds, 20_000, 400_000, tail, best)
        seeds = np.concatenate([best[None], seeds])
    return Rows(points, weights, y, w, centre, scale, weight_scale, tail, seeds)


def power_above(x: float) -> float:
    """The power of two just above x, kept away from the ends of the range."""
    return math.ldexp(1.0, min(max(math.frexp(x)[1], -1000), 1000)) if x > 0 else 1.0
