"""How the exact solver drives its kernels: which search, in which turns, with an eye on the clock.

Kernels run a set amount of work and return; their state stays in arrays, so the next call goes on where the last one
stopped. That is how a time limit is kept without a clock inside the kernels.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.arrays import Array
from ...core.errors import InvalidInput
from ...core.symmetry import Symmetry
from ._batch import solve_batch
from ._boxes import begin_pool, end_pool, grow_pool, make_pool
from ._one_feature import cluster_line
from ._prepare import power_above
from ._scaling import ScaledRows
from ._state import EXAMINED, NONE, OPEN, OPTIMAL, ORDER, UNFINISHED
from .base import Budget
from .prepared_rows import PreparedRows

Integers = NDArray[np.int64]

RULES = {"none": NONE, "order": ORDER}
TENTATIVE_NODES = 150_000  # a first search over assignments, before boxes are tried
LOOK_AT_CLOCK = 4096  # search nodes between two looks: a few milliseconds
MANY_ROWS = 20_000  # fewer starts above
MOST_MEMORY = 300_000_000  # bytes for open boxes


class Request(NamedTuple):
    """One call's arguments, as the kernels take them."""

    table: PreparedRows
    rows: ScaledRows
    prices: Array  # (B, K, D)
    boxes: Array  # (B, 2, K, D)
    rule: int
    references: Array  # (K, D)
    start: Array  # (K, D), or no rows at all
    budget: Budget
    deadline: float

    @classmethod
    def of(
        cls, table: PreparedRows, prices: Array, boxes: Array, symmetry: Symmetry, budget: Budget, start: Array | None
    ) -> Request:
        """Owned copies: kernels are compiled for one array type."""
        if symmetry.rule not in RULES:
            raise InvalidInput(f"the exact solver does not know the rule '{symmetry.rule}'")
        deadline = time.perf_counter() + budget.seconds
        prices, boxes = np.array(prices, dtype=float, order="C"), np.array(boxes, dtype=float, order="C")
        _, n_clusters, n_features = prices.shape
        references = np.zeros((n_clusters, n_features)) if symmetry.references is None else symmetry.references
        rows = table.rows(n_clusters, budget.seconds)
        if len(rows.w) <= 1:  # without a spread of their own, the boxes set the scale
            rows = rows._replace(scale=power_above(float(np.max(np.abs(boxes - rows.centre), initial=0.0))))
        return cls(
            table, rows, prices, boxes, RULES[symmetry.rule], np.array(references, order="C"),
            np.zeros((0, n_features)) if start is None else np.array(start, dtype=float, order="C"), budget, deadline,
        )  # fmt: skip

    @property
    def gap(self) -> float:
        return self.budget.gap


class Result(NamedTuple):
    """Filled by the searches; `labels` belong to the last box and stay at the node."""

    bounds: Array  # (B,)
    values: Array  # (B,)
    centroids: Array  # (B, K, D)
    states: Integers  # (B,) OPTIMAL, UNFINISHED or INFEASIBLE
    nodes: Integers  # (B,) search nodes
    labels: Integers  # (J,)

    @classmethod
    def empty(cls, request: Request) -> Result:
        n_boxes = len(request.prices)
        bounds, values = np.empty(n_boxes), np.empty(n_boxes)
        bounds.fill(-np.inf)
        values.fill(np.inf)
        states, nodes = np.zeros(n_boxes, np.int64), np.zeros(n_boxes, np.int64)  # all UNFINISHED
        labels = np.zeros(len(request.rows.points), np.int64)
        return cls(bounds, values, np.zeros(request.prices.shape), states, nodes, labels)

    def improve(self, b: int, bound: float, value: float, centroids: Array, state: int, labels: Integers) -> None:
        """Keep the better bound and the better value; both hold."""
        self.bounds[b] = max(self.bounds[b], bound)
        if value < self.values[b] or self.values[b] == np.inf:
            self.values[b], self.centroids[b] = value, centroids
            self.labels[:] = labels
        if state != UNFINISHED:
            self.states[b] = state


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


def search_assignments(request: Request, result: Result, most_nodes: int) -> None:
    """All unfinished boxes by the depth-first search, each up to `most_nodes`."""
    n_boxes, n_clusters, _ = request.prices.shape
    workspace = request.table.borrow_workspace(n_clusters)
    workspace.cursor.fill(0)
    limit = int(min(request.budget.search_nodes, most_nodes))
    while workspace.cursor[0] < n_boxes:
        solve_batch(
            request.rows, request.prices, request.boxes, request.rule, request.references, request.start, 4,
            request.budget.gap, limit, LOOK_AT_CLOCK, workspace, result.bounds, result.values, result.centroids,
            result.states, result.nodes, result.labels,
        )  # fmt: skip
        if time.perf_counter() >= request.deadline:
            limit = 0  # what is under way stops where it stands; the rest gets its root bound
    request.table.return_workspace(n_clusters, workspace)


class BoxSearch:
    """The search over centroid boxes for one box of a request; can stop and go on."""

    def __init__(self, request: Request, b: int, start: Array | None) -> None:
        self._request, self._b = request, b
        rows, (_, n_clusters, n_features) = request.rows, request.prices.shape
        capacity = min(MOST_MEMORY // (16 * n_clusters * n_features + 40), max(2 * request.budget.search_nodes, 64))
        self._pool = make_pool(int(capacity), n_clusters, n_features)
        self._model, self._offset, self._fine = begin_pool(
            rows, request.prices[b], request.boxes[b], request.rule, request.references,
            request.start if start is None else start, 4 if len(rows.w) <= MANY_ROWS else 2, request.gap, self._pool,
        )  # fmt: skip
        self._quota = 20_000.0

    @property
    def examined(self) -> int:
        return int(self._pool.counters[EXAMINED])

    @property
    def over(self) -> bool:
        """Nothing left to examine."""
        return not self._fine or (self.examined > 0 and self._pool.counters[OPEN] == 0)

    def run(self, until: float, most_boxes: int) -> None:
        """Examine at least one box, then more until the clock shows `until` or `most_boxes` were examined."""
        request = self._request
        while not self.over:
            began = time.perf_counter()
            if self.examined > 0 and (began >= until or self.examined >= most_boxes):
                return
            grow_pool(
                len(request.rows.weights), request.table.tree, self._model, self._offset, request.gap, most_boxes,
                self._quota, self._pool,
            )  # fmt: skip
            took = time.perf_counter() - began
            self._quota *= min(max(0.01 / max(took, 1e-6), 0.5), 2.0)  # look at the clock every ten milliseconds

    def report_to(self, result: Result) -> None:
        request, b = self._request, self._b
        centroids, labels = np.empty(request.prices.shape[1:]), np.zeros_like(result.labels)
        bound, value, state = end_pool(
            request.rows, request.prices[b], request.boxes[b], request.rule, request.references, self._model,
            self._fine, request.gap, self._pool, centroids, labels,
        )  # fmt: skip
        result.improve(b, bound, value, centroids, state, labels)


def search_both(request: Request, result: Result, b: int, alternate: bool) -> None:
    """One box by the search over boxes; with `alternate` in turns with ever longer searches over assignments.

    Neither search knows beforehand which of them will be fast: clustered rows favour assignments, few features boxes.
    """
    limit = int(request.budget.search_nodes) - int(result.nodes[b])
    known = result.values[b] < np.inf
    if known and (limit <= 0 or time.perf_counter() >= request.deadline):
        return
    boxes = BoxSearch(request, b, result.centroids[b].copy() if known else None)
    alone = request._replace(prices=request.prices[b : b + 1], boxes=request.boxes[b : b + 1])
    most_nodes, turn = TENTATIVE_NODES, 0.3
    while True:
        boxes.run(min(request.deadline, time.perf_counter() + turn if alternate else math.inf), limit)
        boxes.report_to(result)
        began = time.perf_counter()
        if result.states[b] != UNFINISHED or boxes.over or boxes.examined >= limit or began >= request.deadline:
            return
        most_nodes *= 4
        again = Result.empty(alone)
        search_assignments(alone._replace(start=result.centroids[b].copy()), again, most_nodes)
        result.improve(b, again.bounds[0], again.values[0], again.centroids[0], again.states[0], again.labels)
        if result.states[b] != UNFINISHED or again.nodes[0] >= request.budget.search_nodes:
            return
        turn = time.perf_counter() - began
