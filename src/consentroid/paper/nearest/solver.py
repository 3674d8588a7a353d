"""Node problems under the paper's rule 'nearest': drives its search with an eye on the clock."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from ...core.arrays import Array
from ...core.errors import InvalidInput
from ...core.kernel_cache import drop_stale
from ...core.symmetry import Symmetry
from ..node._state import INFEASIBLE, NODES, OPTIMAL, UNFINISHED
from ..node.base import Budget
from ..node.exact import MOST_ASSIGNED, ExactSolver
from ..node.regimes import Request, Result
from ._rule import NEAREST_GAP
from ._search import make_path
from ._solve import begin_nearest, end_nearest, grow_nearest

FIRST_QUOTA = 200  # search nodes before the first look at the clock
LOOK_AT_CLOCK = 0.005  # seconds between two looks

drop_stale("paper")


class NearestSolver(ExactSolver):
    """The exact solver for problems under the rule nearest, values to a relative `NEAREST_GAP`."""

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
        if symmetry.rule != "nearest":
            raise InvalidInput(f"this solver knows the rule nearest only, not '{symmetry.rule}'")
        order = Symmetry("order", symmetry.references)  # which the rule implies
        budget = replace(budget, gap=max(budget.gap, NEAREST_GAP))
        request = Request.of(self._table(points, weights), prices, boxes, order, budget, start)
        result = Result.empty(request)
        few = len(request.rows.w) <= MOST_ASSIGNED[points.shape[1] > 2]
        if not few:  # too many for a search of its own: the bound under the order rule holds, for half of the time
            now = time.perf_counter()
            self._search(request._replace(deadline=now + 0.5 * (request.deadline - now)), result)
        search_nearest(request, result, budget.search_nodes if few else 0)
        return result


def search_nearest(request: Request, result: Result, most_nodes: int) -> None:
    """All boxes, each up to `most_nodes`; what `result` holds already is taken as solved under the order rule."""
    for b in range(len(request.prices)):
        if result.states[b] == INFEASIBLE:
            continue
        start = result.centroids[b].copy() if result.values[b] < np.inf else request.start
        _search_one(request, result, b, result.bounds[b], start, most_nodes)


def _search_one(
    request: Request, result: Result, b: int, known_bound: float, start: np.ndarray, most_nodes: int
) -> None:
    rows, price, box = request.rows, request.prices[b], request.boxes[b]
    path = make_path(len(rows.w), *price.shape)
    task, margin, possible = begin_nearest(rows, price, box, request.references, start, request.gap, path)
    quota, more = FIRST_QUOTA, possible and most_nodes > 0
    while more and time.perf_counter() < request.deadline:
        began = time.perf_counter()
        more = grow_nearest(task, quota, most_nodes, path)
        took = time.perf_counter() - began
        quota = max(int(quota * min(max(LOOK_AT_CLOCK / max(took, 1e-6), 0.5), 2.0)), 1)
    bound, value, allowance = end_nearest(
        rows, price, box, request.gap, margin, path, result.centroids[b], result.labels
    )
    result.nodes[b] = path.counters[NODES]
    if not possible or bound == np.inf:
        bound, state = np.inf, INFEASIBLE
    else:
        bound = min(max(bound, known_bound), value)
        state = OPTIMAL if value < np.inf and value - bound <= allowance else UNFINISHED
    result.bounds[b], result.values[b], result.states[b] = bound, value, state
