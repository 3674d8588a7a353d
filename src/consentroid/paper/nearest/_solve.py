"""One problem under the nearest rule from the request's units and back: begin, go on, end."""

from __future__ import annotations

import numpy as np

from ...core.compile import entry
from ..node._kernels import clamp, least_payment, value_above
from ..node._scaling import base_margin, excluded, scaled_model, unscale_down
from ..node._state import BEST, FINISHED, NODES, NONE, ORDER, PRUNED, STATE
from ._search import open_bound, run_path, start_path
from ._start import find_start, make_task


@entry
def begin_nearest(rows, price, boxes, references, start, gap, path):
    """The task, its rounding margin (infinite where numbers are out of range) and whether it may be feasible."""
    model, fine = scaled_model(rows, price, boxes, NONE, references)
    margin = base_margin(model) if fine else np.inf
    task, possible = make_task(rows, model, references, gap)
    possible = possible and not excluded(ORDER, references, boxes)
    start_path(task, path)
    if margin >= 1e200:
        path.counters[STATE] = FINISHED
        path.numbers[PRUNED] = -np.inf
    elif possible:
        find_start(rows, task, start, path.best, path.numbers)
    return task, margin, possible or margin >= 1e200


@entry
def grow_nearest(task, quota, most_nodes, path):
    """Search on; returns whether there is more to do."""
    run_path(task, quota, most_nodes, path)
    return path.counters[STATE] != FINISHED and path.counters[NODES] < most_nodes


@entry
def end_nearest(rows, price, boxes, gap, margin, path, out, labels):
    """(bound, value, difference at which they count as equal) in original units, as far as the search got.

    A complete search whose bound is only held back by its rounding margin has done what can be done.
    """
    value, cost, rounding = np.inf, np.inf, 0.0
    found = path.numbers[BEST] < np.inf
    for k in range(out.shape[0]):
        for d in range(out.shape[1]):
            x = rows.centre[d] + rows.scale * path.best[k, d] if found else 0.5 * (boxes[0, k, d] + boxes[1, k, d])
            out[k, d] = clamp(x, boxes[0, k, d], boxes[1, k, d])
    if found:
        value, cost = value_above(rows.points, rows.weights, price, out, labels)
    bound = open_bound(len(price), path)
    if -np.inf < bound < np.inf:
        if path.counters[STATE] == FINISHED:
            rounding = unscale_down(rows, price, bound) - unscale_down(rows, price, bound - 8.0 * margin)
        bound = unscale_down(rows, price, bound - margin)
    bound = max(bound, least_payment(price, boxes[0], boxes[1]))
    return bound, value, gap * max(abs(value), cost) + rounding
