"""One problem under the nearest rule from the request's units and back: begin, go on, end."""

from __future__ import annotations

import numpy as np

from ...core.compile import entry
from ..node._kernels import clamp, least_payment, value_above
from ..node._scaling import base_margin, excluded, scaled_model, unscale_down
from ..node._state import BEST, FINISHED, NODES, NONE, ORDER, PRUNED, STATE
from ._search import open_bound, run_trail, start_trail
from ._start import find_start, make_task


@entry
def begin_nearest(rows, price, boxes, references, start, gap, trail):
    """The task, its rounding margin (infinite where numbers are out of range) and whether it may be feasible."""
    model, fine = scaled_model(rows, price, boxes, NONE, references)
    margin = base_margin(model) if fine else np.inf
    task, possible = make_task(rows, model, references, gap)
    possible = possible and not excluded(ORDER, references, boxes)
    start_trail(task, trail)
    if margin >= 1e200:
        trail.counters[STATE] = FINISHED
        trail.numbers[PRUNED] = -np.inf
    elif possible:
        find_start(rows, task, start, trail.best, trail.numbers)
    return task, margin, possible or margin >= 1e200


@entry
def grow_nearest(task, quota, most_nodes, trail):
    """Search on; returns whether there is more to do."""
    run_trail(task, quota, most_nodes, trail)
    return trail.counters[STATE] != FINISHED and trail.counters[NODES] < most_nodes


@entry
def end_nearest(rows, price, boxes, gap, margin, trail, out, labels):
    """(bound, value, difference at which they count as equal) in original units, as far as the search got.

    A complete search whose bound is only held back by its rounding margin has done what can be done.
    """
    value, cost, rounding = np.inf, np.inf, 0.0
    found = trail.numbers[BEST] < np.inf
    for k in range(out.shape[0]):
        for d in range(out.shape[1]):
            x = rows.centre[d] + rows.scale * trail.best[k, d] if found else 0.5 * (boxes[0, k, d] + boxes[1, k, d])
            out[k, d] = clamp(x, boxes[0, k, d], boxes[1, k, d])
    if found:
        value, cost = value_above(rows.points, rows.weights, price, out, labels)
    bound = open_bound(len(price), trail)
    if -np.inf < bound < np.inf:
        if trail.counters[STATE] == FINISHED:
            rounding = unscale_down(rows, price, bound) - unscale_down(rows, price, bound - 8.0 * margin)
        bound = unscale_down(rows, price, bound - margin)
    bound = max(bound, least_payment(price, boxes[0], boxes[1]))
    return bound, value, gap * max(abs(value), cost) + rounding
