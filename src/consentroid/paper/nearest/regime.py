"""How the exact solver drives the search under the nearest rule, with an eye on the clock."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from ..node._batch import INFEASIBLE, OPTIMAL, UNFINISHED
from ..node._kernels import ORDER
from ..node.regimes import Request, Result
from ._search import NODES, make_trail
from ._solve import begin_nearest, end_nearest, grow_nearest

FIRST_QUOTA = 200  # search nodes before the first look at the clock
LOOK_AT_CLOCK = 0.005  # seconds between two looks


def relaxed_to_order(request: Request) -> Request:
    """The same request under the order rule, which the nearest rule implies, for half of the time."""
    now = time.perf_counter()
    return request._replace(
        rule=ORDER, budget=replace(request.budget, gap=request.gap), deadline=now + 0.5 * (request.deadline - now)
    )


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
    trail = make_trail(len(rows.w), *price.shape)
    task, margin, possible = begin_nearest(rows, price, box, request.references, start, request.gap, trail)
    quota, more = FIRST_QUOTA, possible and most_nodes > 0
    while more and time.perf_counter() < request.deadline:
        began = time.perf_counter()
        more = grow_nearest(task, quota, most_nodes, trail)
        took = time.perf_counter() - began
        quota = max(int(quota * min(max(LOOK_AT_CLOCK / max(took, 1e-6), 0.5), 2.0)), 1)
    bound, value, allowance = end_nearest(
        rows, price, box, request.gap, margin, trail, result.centroids[b], result.labels
    )
    result.nodes[b] = trail.counters[NODES]
    if not possible or bound == np.inf:
        bound, state = np.inf, INFEASIBLE
    else:
        bound = min(max(bound, known_bound), value)
        state = OPTIMAL if value < np.inf and value - bound <= allowance else UNFINISHED
    result.bounds[b], result.values[b], result.states[b] = bound, value, state
