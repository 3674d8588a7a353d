"""The exact node solver: search over assignments for few rows, over centroid boxes for many.

Bounds are rounded outward and values recomputed from the rows, so bound ≤ optimum ≤ value holds without tolerance
(`docs/numerics.md`). It knows the rules none and order; `nearest/solver.py` solves under the paper's own. What depends
on the rows alone is computed once and kept as long as the same array is asked about. Results depend on the arguments
only, never on earlier calls, unless a time limit strikes.
"""

from __future__ import annotations

import time
from typing import Literal

import numpy as np

from ...core.arrays import Array
from ...core.kernel_cache import drop_stale
from ...core.symmetry import Symmetry
from ._state import INFEASIBLE, OPTIMAL, UNFINISHED
from .base import Budget, NodeProblem, NodeSolution, NodeSolutions, Status
from .prepared_rows import PreparedRows
from .regimes import TENTATIVE_NODES, Request, Result, search_assignments, search_both, search_line

Regime = Literal["auto", "assignments", "boxes"]

MOST_ASSIGNED = 64, 256  # rows up to which assignments are searched first: in up to two features, in more

drop_stale("paper")


class ExactSolver:
    """See the module text; `regime` forces one of the two searches."""

    name = "exact"

    def __init__(self, regime: Regime = "auto") -> None:
        self.regime = regime
        self._tables: dict[tuple[int, int], tuple[Array, Array, PreparedRows]] = {}

    def solve(self, problem: NodeProblem, budget: Budget, start: Array | None = None) -> NodeSolution:
        started = time.perf_counter()
        result = self._run(
            problem.points, problem.weights, problem.price[None], problem.boxes[None], problem.symmetry, budget, start
        )
        seconds = time.perf_counter() - started
        if result.states[0] == INFEASIBLE:
            status = Status.INFEASIBLE
        elif result.states[0] == OPTIMAL:
            status = Status.OPTIMAL
        else:
            status = Status.TIME_LIMIT if seconds >= budget.seconds else Status.NODE_LIMIT
        return NodeSolution(
            float(result.bounds[0]), float(result.values[0]), result.centroids[0], status, seconds, result.labels
        )

    def solve_many(
        self, points: Array, weights: Array, prices: Array, boxes: Array, symmetry: Symmetry, budget: Budget
    ) -> NodeSolutions:
        """One problem per box, prices (B, K, D), boxes (B, 2, K, D); `budget.seconds` is for all of them together."""
        result = self._run(points, weights, prices, boxes, symmetry, budget, None)
        return NodeSolutions(result.bounds, result.values, result.centroids, result.states != UNFINISHED)

    def _run(
        self,
        points: Array,
        weights: Array,
        prices: Array,
        boxes: Array,
        symmetry: Symmetry,
        budget: Budget,
        start: Array | None,
    ) -> Result:
        request = Request.of(self._table(points, weights), prices, boxes, symmetry, budget, start)
        result = Result.empty(request)
        self._search(request, result)
        return result

    def _search(self, request: Request, result: Result) -> None:
        """All boxes, by the searches that suit them."""
        n_features, auto = request.prices.shape[2], self.regime == "auto"
        if auto and n_features == 1:
            search_line(request, result)
        few = len(request.rows.w) <= (MOST_ASSIGNED[n_features > 2] if auto else 0)
        if few or self.regime == "assignments":
            search_assignments(request, result, TENTATIVE_NODES if auto else request.budget.search_nodes)
        if self.regime != "assignments":
            for b in np.flatnonzero(result.states == UNFINISHED):
                search_both(request, result, int(b), alternate=auto and few)

    def _table(self, points: Array, weights: Array) -> PreparedRows:
        """Kept for the rows of the last few calls; holding the arrays keeps their ids theirs."""
        key = (id(points), id(weights))
        kept = self._tables.pop(key, None) or (points, weights, PreparedRows.of(points, weights))
        self._tables[key] = kept  # the youngest, also where threads take turns here
        for oldest in tuple(self._tables)[:-4]:
            self._tables.pop(oldest, None)
        return kept[2]
