"""From a good solution in scaled units to centroids that obey boxes and rule exactly, and what they cost."""

from __future__ import annotations

import numpy as np

from ...core.compile import kernel
from ._kernels import ROUNDING, clamp, copy_into, inner_sign, obeys_order, relabel_to_order, value_above
from ._order_interior import settle_order
from ._start import assign
from ._state import NONE

NUDGES = 60  # sweeps over the pairs


@kernel
def _map_back(rows, boxes, scaled, out):
    for k in range(out.shape[0]):
        for d in range(out.shape[1]):
            out[k, d] = clamp(rows.centre[d] + rows.scale * scaled[k, d], boxes[0, k, d], boxes[1, k, d])


@kernel
def _snap(rows, price, boxes, out, labels):
    """A cluster whose rows coincide sits exactly on them (if no price pulls it away): its cost is then exactly 0."""
    n, n_features = rows.points.shape
    for k in range(out.shape[0]):
        first, same = -1, True
        for d in range(n_features):
            if price[k, d] != 0.0:
                same = False
        for j in range(n):
            if labels[j] == k and same and rows.weights[j] > 0.0:
                if first < 0:
                    first = j
                for d in range(n_features):
                    if rows.points[j, d] != rows.points[first, d]:
                        same = False
        if first >= 0 and same:
            for d in range(n_features):
                out[k, d] = clamp(rows.points[first, d], boxes[0, k, d], boxes[1, k, d])


@kernel
def _told(rows, price, boxes, rule, references, out, labels):
    """Value of centroids that obey the rule, after snapping clusters onto coinciding rows where that helps."""
    value, _ = value_above(rows.points, rows.weights, price, out, labels)
    kept = out.copy()
    _snap(rows, price, boxes, out, labels)
    if rule == NONE or obeys_order(references, out):
        snapped, snapped_cost = value_above(rows.points, rows.weights, price, out, labels)
        if snapped <= value:
            return snapped, snapped_cost
    copy_into(out, kept)
    return value_above(rows.points, rows.weights, price, out, labels)


@kernel
def _blend(references, tight, safe, target, out):
    """The point nearest to `tight` on the way to `safe` whose slacks all reach `target`."""
    n_clusters, n_features = tight.shape
    share = 0.0
    for k in range(n_clusters):
        for l in range(k + 1, n_clusters):
            a, b = 0.0, 0.0
            for d in range(n_features):
                n = references[k, d] - references[l, d]
                a += n * (tight[k, d] - tight[l, d])
                b += n * (safe[k, d] - safe[l, d])
            if a < target:
                share = max(share, (target - a) / (b - a) if b > target else 1.0)
    for k in range(n_clusters):
        for d in range(n_features):
            out[k, d] = tight[k, d] + min(share, 1.0) * (safe[k, d] - tight[k, d])


@kernel
def _nudge(references, boxes, out):
    """Draw pairs that break the rule by a rounding error together, by as little; whether all obey it then, exactly."""
    n_clusters, n_features = out.shape
    normal = np.empty(n_features)
    for _ in range(NUDGES):
        obeyed = True
        for k in range(n_clusters):
            for l in range(k + 1, n_clusters):
                missing, least, length = 0.0, 0.0, 0.0
                for d in range(n_features):
                    normal[d] = references[k, d] - references[l, d]
                    missing -= normal[d] * (out[k, d] - out[l, d])
                    least += 4.0 * ROUNDING * abs(normal[d]) * (abs(out[k, d]) + abs(out[l, d]))
                    length += normal[d] * normal[d]
                if inner_sign(normal, out[k], out[l]) < 0:
                    obeyed = False
                    share = 0.5 * max(missing, least) / length
                    for d in range(n_features):
                        out[k, d] = clamp(out[k, d] + share * normal[d], boxes[0, k, d], boxes[1, k, d])
                        out[l, d] = clamp(out[l, d] - share * normal[d], boxes[0, l, d], boxes[1, l, d])
        if obeyed:
            return True
    return False


@kernel
def recover(rows, price, boxes, rule, references, model, best, out, labels):
    """Centroids in original units that obey boxes and rule exactly, and their (value, cost) rounded up; inf if none."""
    n_clusters, n_features = price.shape
    _map_back(rows, boxes, best, out)
    if rule != NONE and model.symmetric and not relabel_to_order(references, out):
        return np.inf, np.inf
    if rule == NONE or obeys_order(references, out) or _nudge(references, boxes, out):
        return _told(rows, price, boxes, rule, references, out, labels)
    u, part = np.zeros(len(model.pairs.first)), np.empty((n_clusters, n_features + 2))
    tight, safe, trial = best.copy(), np.empty((n_clusters, n_features)), np.empty((n_clusters, n_features))
    assign(rows.y, rows.w, best, part)
    target = model.target
    for attempt in range(10):
        aim = 0.0 if attempt == 9 else target
        settle_order(model.pairs, part, model.price, model.lo, model.hi, aim, u, safe)
        if attempt == 0:
            copy_into(tight, safe)
        for blended in range(2):
            if blended == 0:
                _blend(model.references, tight, safe, model.target, trial)
            _map_back(rows, boxes, trial if blended == 0 else safe, out)
            if obeys_order(references, out):
                return _told(rows, price, boxes, rule, references, out, labels)
        target *= 30.0
    return np.inf, np.inf
