"""The exact node solver: search over assignments for few rows, over centroid boxes for many.

Bounds are rounded outward and values recomputed from the rows, so bound ≤ optimum ≤ value holds without tolerance
(`docs/numerics.md`). What depends on the rows alone is computed once and kept as long as the same array is asked about.
Results depend on the arguments only, never on earlier calls, unless a time limit strikes.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..messages import Counted, Solved
from ..symmetry import Symmetry
from ._batch import INFEASIBLE, OPTIMAL, UNFINISHED, solve_batch
from ._boxes import EXAMINED, OPEN, begin_forest, end_forest, grow_forest, make_forest
from ._cache import drop_stale
from ._kernels import NEAREST, NONE, ORDER
from ._nearest import NEAREST_GAP
from ._one_feature import cluster_line
from ._scaling import Rows
from ._search import make_left, make_stack
from ._start import lloyd_seeds
from ._tails import spread_order, tail_bounds
from ._tree import Tree, build_tree, count_batch
from .base import Budget, NodeProblem, NodeSolution, Status

Array = NDArray[np.float64]
Regime = Literal["auto", "assignments", "boxes"]

drop_stale()

RULES = {"none": NONE, "order": ORDER, "nearest": NEAREST}
MOST_WITH_TAILS = 256  # rows up to which the price-free tails are worth their search
MOST_ASSIGNED = 256  # rows up to which assignments are searched first
TENTATIVE_NODES = 100_000
MOST_MEMORY = 300_000_000  # bytes for open boxes
SMALL_QUOTA = 4096  # search nodes between two looks at the clock: a few milliseconds


class ExactSolver:
    """See the module text; `regime` forces one of the two searches."""

    name = "exact"

    def __init__(self, regime: Regime = "auto") -> None:
        self.regime = regime
        self._tables: OrderedDict[tuple[int, int], tuple[Array, Array, Table]] = OrderedDict()

    def solve(self, problem: NodeProblem, budget: Budget, start: Array | None = None) -> NodeSolution:
        started = time.perf_counter()
        solved, states, labels = self._run(
            problem.points, problem.weights, problem.price[None], problem.boxes[None], problem.symmetry, budget, start
        )
        seconds = time.perf_counter() - started
        if states[0] == INFEASIBLE:
            status = Status.INFEASIBLE
        elif states[0] == OPTIMAL:
            status = Status.OPTIMAL
        else:
            status = Status.TIME_LIMIT if seconds >= budget.seconds else Status.NODE_LIMIT
        return NodeSolution(
            float(solved.bounds[0]), float(solved.values[0]), solved.centroids[0], status, seconds, labels
        )

    def solve_many(
        self, points: Array, weights: Array, prices: Array, boxes: Array, symmetry: Symmetry, budget: Budget
    ) -> Solved:
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
    ) -> tuple[Solved, NDArray[np.int64], NDArray[np.int64]]:
        deadline = time.perf_counter() + budget.seconds
        # owned copies: one array type to compile for
        prices, boxes = np.array(prices, dtype=float, order="C"), np.array(boxes, dtype=float, order="C")
        n_boxes, n_clusters, n_features = prices.shape
        table = self._table(points, weights)
        references = np.zeros((n_clusters, n_features)) if symmetry.references is None else symmetry.references
        rows = table.rows(n_clusters)
        if len(rows.w) <= 1:  # without a spread of their own, the boxes set the scale
            rows = rows._replace(scale=power_above(float(np.max(np.abs(boxes - rows.centre), initial=0.0))))
        request = Request(
            table, rows, prices, boxes, RULES[symmetry.rule], np.array(references, order="C"),
            np.zeros((0, n_features)) if start is None else np.array(start, dtype=float, order="C"), budget, deadline,
        )  # fmt: skip
        result = Result(
            np.full(n_boxes, -np.inf), np.full(n_boxes, np.inf), np.empty(prices.shape), np.zeros(n_boxes, np.int64),
            np.zeros(n_boxes, np.int64), np.zeros(len(points), np.int64),
        )  # fmt: skip
        if n_features == 1 and self.regime == "auto" and symmetry.rule != "nearest":
            search_line(request, result)
        few = len(table.w) <= (MOST_ASSIGNED if self.regime == "auto" else 0)
        if self.regime == "assignments" or few:
            search_assignments(request, result, self.regime == "auto")
        if self.regime != "assignments":
            for b in np.flatnonzero(result.states == UNFINISHED):
                search_boxes(request, result, int(b))
        solved = Solved(result.bounds, result.values, result.centroids, result.states != UNFINISHED)
        return solved, result.states, result.labels

    def count_many(self, points: Array, weights: Array, boxes: Array) -> Counted:
        """Decided-row statistics of each box (B, 2, K, D): sums about the box centres 0.5 (lo + hi)."""
        n_boxes, _, n_clusters, n_features = boxes.shape
        table = self._table(points, weights)
        counts, sums = np.zeros((n_boxes, n_clusters)), np.zeros((n_boxes, n_clusters, n_features))
        constants, undecided = np.zeros(n_boxes), np.zeros(n_boxes)
        if len(table.w):
            count_batch(
                table.tree, table.centre, table.scale, table.weight_scale, len(table.weights),
                np.array(boxes, dtype=float, order="C"), 0, n_boxes, counts, sums, constants, undecided,
            )  # fmt: skip
        return Counted(counts, sums, constants, undecided)

    def _table(self, points: Array, weights: Array) -> Table:
        key = (id(points), id(weights))
        if key not in self._tables:
            # holding the arrays keeps their ids theirs
            self._tables[key] = (points, weights, Table.of(points, weights))
        self._tables.move_to_end(key)
        while len(self._tables) > 4:
            self._tables.popitem(last=False)
        return self._tables[key][2]


class Request(NamedTuple):
    """One call's arguments, as the kernels take them."""

    table: Table
    rows: Rows
    prices: Array
    boxes: Array
    rule: int
    references: Array
    start: Array
    budget: Budget
    deadline: float


class Result(NamedTuple):
    bounds: Array
    values: Array
    centroids: Array
    states: NDArray[np.int64]
    nodes: NDArray[np.int64]
    labels: NDArray[np.int64]


def search_assignments(request: Request, result: Result, tentative: bool) -> None:
    """All boxes by the depth-first search; a tentative one gives up early, for the other search to take over."""
    n, (n_boxes, n_clusters, n_features) = len(request.rows.w), request.prices.shape
    left, stack = make_left(n, n_clusters, n_features), make_stack(n, n_clusters, n_features)
    root, cursor = np.zeros((n_clusters, n_features + 2)), np.zeros(3, np.int64)
    limit = int(request.budget.search_nodes)
    if tentative:
        limit = min(limit, TENTATIVE_NODES)
    while cursor[0] < n_boxes:
        solve_batch(
            request.rows, request.prices, request.boxes, request.rule, request.references, request.start, 4,
            request.budget.gap, limit, cursor, SMALL_QUOTA, left, stack, root, result.bounds, result.values,
            result.centroids, result.states, result.nodes, result.labels,
        )  # fmt: skip
        if time.perf_counter() >= request.deadline:
            limit = 0  # what is under way stops where it stands; the rest gets its root bound


def search_boxes(request: Request, result: Result, b: int) -> None:
    """One box by the search over centroid boxes; keeps whichever bound and value are better."""
    price, box, rule, references = request.prices[b], request.boxes[b], request.rule, request.references
    n_clusters, n_features = price.shape
    limit = int(request.budget.search_nodes) - int(result.nodes[b])
    now = time.perf_counter()
    if result.values[b] < np.inf and (limit <= 0 or now >= request.deadline):
        return
    gap = max(request.budget.gap, NEAREST_GAP) if rule == NEAREST else request.budget.gap
    rows, tree = request.rows, request.table.tree
    capacity = max(MOST_MEMORY // (16 * n_clusters * n_features + 40), 64)
    forest = make_forest(min(capacity, max(limit, 2)), n_clusters, n_features)
    start = request.start if result.values[b] == np.inf else result.centroids[b].copy()
    model, offset, fine = begin_forest(rows, price, box, rule, references, start, 4, gap, forest)
    quota = 20_000.0
    while fine and (forest.counters[EXAMINED] == 0 or forest.counters[OPEN] > 0):
        began = time.perf_counter()
        if forest.counters[EXAMINED] > 0 and (began >= request.deadline or forest.counters[EXAMINED] >= limit):
            break
        grow_forest(len(rows.weights), tree, model, offset, gap, limit, quota, forest)
        took = time.perf_counter() - began
        quota *= min(max(0.01 / max(took, 1e-6), 0.5), 2.0)  # a look at the clock every ten milliseconds
    centroids, labels = np.empty(price.shape), np.zeros_like(result.labels)
    bound, value, state = end_forest(
        rows, price, box, rule, references, model, fine, gap, forest, centroids, labels
    )
    result.bounds[b] = max(result.bounds[b], bound)
    result.nodes[b] += forest.counters[EXAMINED]
    if value < result.values[b] or result.values[b] == np.inf:
        result.values[b], result.centroids[b] = value, centroids
        result.labels[:] = labels
    result.states[b] = state


def search_line(request: Request, result: Result) -> None:
    """One feature: boxes without a price that hold all rows are solved outright."""
    rows = request.rows
    if len(rows.w) == 0:
        return
    kept = rows.points[rows.weights > 0]
    for b, (price, box) in enumerate(zip(request.prices, request.boxes, strict=True)):
        all_inside = np.all(box[0] <= kept.min()) and np.all(box[1] >= kept.max())
        if all_inside and not price.any() and not np.ptp(box, axis=1).any():
            result.bounds[b], result.values[b] = cluster_line(
                rows, price, box, request.rule, request.references, result.centroids[b], result.labels
            )
            result.states[b] = OPTIMAL


class Table:
    """What depends on a node's rows alone, computed once: scaled rows, kd-tree, and per K the starts."""

    def __init__(
        self, points: Array, weights: Array, y: Array, w: Array, centre: Array, scale: float, weight_scale: float
    ) -> None:
        self.points, self.weights, self.y, self.w = points, weights, y, w
        self.centre, self.scale, self.weight_scale = centre, scale, weight_scale
        self._rows: dict[int, Rows] = {}

    @classmethod
    def of(cls, points: Array, weights: Array) -> Table:
        """Shift, scale, merge equal rows, order for the search."""
        points, weights = np.array(points, dtype=float, order="C"), np.array(weights, dtype=float)
        kept = weights > 0
        distinct, inverse = np.unique(points[kept], axis=0, return_inverse=True)
        w = np.bincount(inverse.ravel(), weights[kept], minlength=len(distinct)).astype(float)
        n_features = points.shape[1]
        if len(distinct) == 0:
            scale = power_above(float(np.max(np.abs(points), initial=0.0)))
            return cls(points, weights, np.zeros((0, n_features)), w, np.zeros(n_features), scale, 1.0)
        # a row's own coordinate as centre: y − centre is then exact for rows close together, however far from zero
        centre = np.sort(distinct, axis=0)[len(distinct) // 2]
        with np.errstate(over="ignore"):
            shifted = distinct - centre
        if not np.isfinite(shifted).all():
            centre, shifted = np.zeros(n_features), distinct
        spread = float(np.max(np.abs(shifted))) or float(np.max(np.abs(centre)))
        scale, weight_scale = power_above(spread), power_above(float(w.max()))
        y, w = shifted / scale, w / weight_scale
        y, w = np.ascontiguousarray(y), np.ascontiguousarray(w)
        if len(y) <= 1000:
            order = spread_order(y, w)
            y, w = y[order], w[order]
        return cls(points, weights, y, w, centre, scale, weight_scale)

    @cached_property
    def tree(self) -> Tree:
        return build_tree(self.y, self.w, 8)

    def rows(self, n_clusters: int) -> Rows:
        """With starts for K clusters."""
        if n_clusters not in self._rows:
            y, w = self.y, self.w
            seeds = np.zeros((0, n_clusters, y.shape[1]))
            if len(y) > 0:
                step = max(len(y) // 4000, 1)  # a sample finds the same valleys
                seeds = lloyd_seeds(y[::step].copy(), w[::step].copy(), n_clusters, 20, 3)
            tail, best = np.zeros(len(y) + 1), np.zeros((n_clusters, y.shape[1]))
            if 0 < len(y) <= MOST_WITH_TAILS:
                tail_bounds(y, w, len(self.weights), n_clusters, seeds, 20_000, 400_000, tail, best)
                seeds = np.concatenate([best[None], seeds])
            self._rows[n_clusters] = Rows(
                self.points, self.weights, y, w, self.centre, self.scale, self.weight_scale, tail, seeds
            )
        return self._rows[n_clusters]


def power_above(x: float) -> float:
    """The power of two just above x, kept away from the ends of the range."""
    return math.ldexp(1.0, min(max(math.frexp(x)[1], -1000), 1000)) if x > 0 else 1.0
