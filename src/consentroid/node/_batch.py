"""Many priced problems on the same rows in one call: scale, reduce, start, search, map back.

For each box: rows whose cluster the boxes decide are merged first (row j cannot go to l if its farthest distance to box
k is below its least distance to box l for some k), a few priced Lloyd runs give the incumbent, and the search of
`_search` proves it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ._kernels import (
    NONE,
    ORDER,
    ROUNDING,
    TINY,
    clamp,
    copy_into,
    down,
    entry,
    kernel,
    least_payment,
    obeys_order,
    order_excludes,
    price_margin,
    relabel_to_order,
    shift_price,
    up,
    value_above,
)
from ._order import ascend_order
from ._search import (
    BEST,
    BEST_COST,
    FINISHED,
    NODES,
    RUNNING,
    SQUARE,
    STATE,
    THRESHOLD,
    TOTAL,
    WEIGHT,
    Model,
    open_bound,
    run_search,
)
from ._start import assign, local_search

INFEASIBLE, UNFINISHED, OPTIMAL = 2, 0, 1
LARGEST = 1.7976931348623157e308


class Rows(NamedTuple):
    """A node's rows, once as given and once prepared for the search; `Table` in exact.py makes it."""

    points: np.ndarray  # (J, D) as given
    weights: np.ndarray  # (J,)
    y: np.ndarray  # (n, D) distinct rows, shifted and scaled
    w: np.ndarray  # (n,)
    centre: np.ndarray  # (D,)
    scale: float  # power of two
    weight_scale: float  # power of two
    tail: np.ndarray  # (n+1,) proven price-free cost of rows s, s+1, ... with K clusters
    seeds: np.ndarray  # (M, K, D) price-free solutions, best first, in scaled units


@kernel
def _interchangeable(price, boxes):
    for k in range(1, price.shape[0]):
        for d in range(price.shape[1]):
            if price[k, d] != price[0, d] or boxes[0, k, d] != boxes[0, 0, d] or boxes[1, k, d] != boxes[1, 0, d]:
                return False
    return True


@kernel
def excluded(rule, references, box):
    """Whether the boxes hold no centroids that obey the rule, as far as intervals tell."""
    for k in range(box.shape[1]):
        for d in range(box.shape[2]):
            if box[0, k, d] > box[1, k, d]:
                return True
    return rule != NONE and order_excludes(references, box[0], box[1])


@kernel
def scaled_model(rows, price, boxes, rule, references):
    """The problem in scaled units, and whether its numbers are in a range where margins hold."""
    n_clusters, n_features = price.shape
    spread, far, fine = 0.0, 0.0, True
    if rule != NONE:
        for k in range(n_clusters):
            for d in range(n_features):
                spread = max(spread, abs(references[k, d] - references[0, d]))
    unit = math.ldexp(1.0, -math.frexp(spread)[1]) if spread > 0.0 else 1.0
    for d in range(n_features):
        far = max(far, abs(rows.centre[d] / rows.scale))
    p, r = np.empty((n_clusters, n_features)), np.zeros((n_clusters, n_features))
    lo, hi = np.empty((n_clusters, n_features)), np.empty((n_clusters, n_features))
    magnitudes = np.zeros((4 + 2 * n_clusters, n_features))
    for k in range(n_clusters):
        for d in range(n_features):
            p[k, d] = price[k, d] / rows.scale / rows.weight_scale
            lo[k, d] = down((boxes[0, k, d] - rows.centre[d]) / rows.scale)
            hi[k, d] = up((boxes[1, k, d] - rows.centre[d]) / rows.scale)
            if rule != NONE:
                r[k, d] = references[k, d] * unit
            magnitudes[3 + k, d] = max(0.0, max(lo[k, d], -hi[k, d]))
            magnitudes[3 + n_clusters + k, d] = max(abs(lo[k, d]), abs(hi[k, d]))
            if not (abs(p[k, d]) < 1e140 and abs(lo[k, d]) < 1e140 and abs(hi[k, d]) < 1e140):
                fine = False
    least = np.inf
    for j in range(len(rows.w)):
        least = min(least, rows.w[j])
        for d in range(n_features):
            x = abs(rows.y[j, d])
            magnitudes[0, d] += rows.w[j] * x
            magnitudes[1, d] += rows.w[j]
            magnitudes[2, d] = max(magnitudes[2, d], x)
    magnitudes[3 + 2 * n_clusters, 0] = least
    symmetric = _interchangeable(price, boxes)
    target = 256.0 * n_features * ROUNDING * (1.0 + far) if rule != NONE and not symmetric else 0.0
    return Model(p, lo, hi, r, magnitudes, NONE if symmetric else rule, symmetric, target), fine


@kernel
def base_margin(n_rows, model):
    """Error margin of every bound of this problem (docs/numerics.md, section 3)."""
    n_clusters, n_features = model.price.shape
    size = price_margin(model.price, model.references, np.zeros((n_clusters, n_clusters)), model.magnitudes)
    for d in range(n_features):
        size += model.magnitudes[0, d] * model.magnitudes[2, d]
    return (4 * n_rows + 4 * n_clusters * n_features + 128) * ROUNDING * size + TINY


@kernel
def reduce_rows(rows, model, left, root):
    """Candidates of each row; merges decided rows into `root` (K, D+2). Returns the number of rows left.

    Where few rows are decided they stay in place instead, with one candidate: the price-free tails then still apply.
    """
    n, n_features = rows.y.shape
    n_clusters = len(model.price)
    near, far = np.empty(n_clusters), np.empty(n_clusters)
    only = np.empty(n, np.int64)
    decided = 0
    for j in range(n):
        smallest_far = np.inf
        for k in range(n_clusters):
            near[k], far[k] = 0.0, 0.0
            for d in range(n_features):
                below, above = model.lo[k, d] - rows.y[j, d], rows.y[j, d] - model.hi[k, d]
                gap = max(below, above)
                if gap > 0.0:
                    near[k] += gap * gap
                reach = max(-below, -above)
                far[k] += reach * reach
            smallest_far = min(smallest_far, far[k])
        threshold = smallest_far * (1.0 + 64.0 * ROUNDING * (n_features + 1))
        count = 0
        for k in range(n_clusters):
            allowed = near[k] <= threshold
            left.allowed[j, k] = allowed
            left.near[j, k] = rows.w[j] * near[k]
            if allowed:
                count += 1
                only[j] = k
        if count == 1:
            decided += 1
        else:
            only[j] = -1
    for k in range(n_clusters):
        for i in range(n_features + 2):
            root[k, i] = 0.0
    merge = 3 * decided > n
    kept = 0
    for j in range(n):
        k = only[j]
        if merge and k >= 0:
            root[k, WEIGHT] += rows.w[j]
            for d in range(n_features):
                root[k, SQUARE] += rows.w[j] * rows.y[j, d] * rows.y[j, d]
                root[k, TOTAL + d] += rows.w[j] * rows.y[j, d]
            continue
        left.w[kept] = rows.w[j]
        for d in range(n_features):
            left.y[kept, d] = rows.y[j, d]
        for k in range(n_clusters):
            left.allowed[kept, k] = left.allowed[j, k]
            left.near[kept, k] = left.near[j, k]
        kept += 1
    left.tail[kept] = 0.0
    for s in range(kept - 1, -1, -1):
        least = np.inf
        for k in range(n_clusters):
            if left.allowed[s, k]:
                least = min(least, left.near[s, k])
        left.tail[s] = left.tail[s + 1] + least
    if kept == n:
        for s in range(n):
            left.tail[s] = max(left.tail[s], rows.tail[s])
    return kept


@kernel
def start_root(n_rows, model, u, root, stack):
    """Depth 0 from the merged rows, with the order rule's multipliers of the incumbent."""
    n_clusters, n_features = model.price.shape
    copy_into(stack.state[0], root)
    copy_into(stack.multipliers[0], u)
    stack.bounds[0, n_clusters] = 0.0
    if shift_price(model.price, model.references, u, stack.price[0]) > 0.0:
        extra = price_margin(model.price, model.references, u, model.magnitudes)
        stack.bounds[0, n_clusters] = (4 * n_rows + 4 * n_clusters * n_features + 128) * ROUNDING * extra
    stack.counters[STATE] = RUNNING
    stack.counters[NODES] = 0


@kernel
def _next_permutation(p):
    i = len(p) - 2
    while i >= 0 and p[i] > p[i + 1]:
        i -= 1
    if i < 0:
        return False
    j = len(p) - 1
    while p[j] < p[i]:
        j -= 1
    p[i], p[j] = p[j], p[i]
    left, right = i + 1, len(p) - 1
    while left < right:
        p[left], p[right] = p[right], p[left]
        left += 1
        right -= 1
    return True


@kernel
def _best_labelling(seed, everything, model, out):
    """Label a price-free solution for this price, these boxes and this rule; the result is a start only."""
    n_clusters, n_features = seed.shape
    p, best = np.arange(n_clusters), np.arange(n_clusters)
    if not model.symmetric and n_clusters <= 6:
        least = np.inf
        while True:
            score = 0.0
            for k in range(n_clusters):
                for d in range(n_features):
                    x = seed[p[k], d]
                    c = clamp(x, model.lo[k, d], model.hi[k, d])
                    score += model.price[k, d] * c + everything / n_clusters * (x - c) * (x - c)
            if model.rule == ORDER:
                for k in range(n_clusters):
                    for l in range(k + 1, n_clusters):
                        slack, length = 0.0, 0.0
                        for d in range(n_features):
                            n = model.references[k, d] - model.references[l, d]
                            length += n * n
                            slack += n * (seed[p[k], d] - seed[p[l], d])
                        if slack < 0.0:
                            score += everything * slack * slack / length
            if score < least:
                least = score
                best[:] = p
            if not _next_permutation(p):
                break
    for k in range(n_clusters):
        for d in range(n_features):
            out[k, d] = seed[best[k], d]


@kernel
def find_incumbent(rows, model, start, n_seeds, best, u):
    """Priced Lloyd runs from the start, the price-free solutions and the boxes' centres; returns (value, cost).

    Fills the centroids `best` and the order rule's multipliers u.
    """
    n_clusters, n_features = model.price.shape
    trial, trial_u = np.empty((n_clusters, n_features)), np.zeros((n_clusters, n_clusters))
    least, least_cost = np.inf, np.inf
    for k in range(n_clusters):
        for l in range(n_clusters):
            u[k, l] = 0.0
    for k in range(n_clusters):
        for d in range(n_features):
            best[k, d] = clamp(0.0, model.lo[k, d], model.hi[k, d])
    for i in range(-2, min(n_seeds, len(rows.seeds))):
        if (i == -2 and len(start) == 0) or (i == -1 and model.symmetric):
            continue
        if i >= 0:
            _best_labelling(rows.seeds[i], model.magnitudes[1, 0], model, trial)
        else:
            for k in range(n_clusters):
                for d in range(n_features):
                    if i == -2:
                        trial[k, d] = (start[k, d] - rows.centre[d]) / rows.scale
                    else:
                        trial[k, d] = 0.5 * (model.lo[k, d] + model.hi[k, d])
        value, cost = local_search(rows.y, rows.w, model, trial, trial_u, 50)
        if value < least:
            least, least_cost = value, cost
            copy_into(best, trial)
            copy_into(u, trial_u)
    return least, least_cost


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
def recover(rows, price, boxes, rule, references, model, best, out, labels):
    """Centroids in original units that obey boxes and rule exactly, and their (value, cost) rounded up; inf if none."""
    n_clusters, n_features = price.shape
    _map_back(rows, boxes, best, out)
    if rule != NONE and model.symmetric and not relabel_to_order(references, out):
        return np.inf, np.inf
    if rule == NONE or obeys_order(references, out):
        return _told(rows, price, boxes, rule, references, out, labels)
    u, weights = np.zeros((n_clusters, n_clusters)), np.empty(n_clusters)
    sums, shifted = np.empty((n_clusters, n_features)), np.empty((n_clusters, n_features))
    tight, safe, trial = best.copy(), np.empty((n_clusters, n_features)), np.empty((n_clusters, n_features))
    assign(rows.y, rows.w, best, weights, sums)
    target = model.target
    for attempt in range(10):
        for k in range(n_clusters):
            for l in range(n_clusters):
                u[k, l] = 0.0
        aim = 0.0 if attempt == 9 else target
        ascend_order(weights, sums, model.price, model.references, model.lo, model.hi, aim, 60, 20, u, shifted, safe)
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


@kernel
def unscale_down(rows, price, scaled_bound):
    """A scaled bound in original units, rounded down."""
    value = scaled_bound * rows.weight_scale * rows.scale * rows.scale
    if not abs(value) < np.inf:
        value = LARGEST if scaled_bound > 0.0 else -np.inf
    value = down(down(value))
    offset, magnitude, n = 0.0, 0.0, 0
    for k in range(price.shape[0]):
        for d in range(price.shape[1]):
            if price[k, d] != 0.0 and rows.centre[d] != 0.0:
                term = price[k, d] * rows.centre[d]
                offset += term
                magnitude += abs(term)
                n += 1
    if n == 0:
        return value
    value = down(value + down(offset - (2 * n + 8) * ROUNDING * magnitude - 5e-324 * n))
    return value if value == value else -np.inf


@entry
def solve_batch(
    rows, prices, boxes, rule, references, start, n_seeds, gap, node_limit, cursor, quota, left, stack, root, bounds,
    values, centroids, states, nodes, labels,
):  # fmt: skip
    """Solve boxes from cursor[0] on until `quota` search nodes are spent; cursor[1] tells whether one is under way.

    Call again with the same arrays to go on. `states`: OPTIMAL, UNFINISHED or INFEASIBLE for each box.
    """
    spent = 0
    n_boxes, n_clusters, n_features = prices.shape
    u = np.zeros((n_clusters, n_clusters))
    while cursor[0] < n_boxes and spent < quota:
        b = cursor[0]
        price, box = prices[b], boxes[b]
        if cursor[1] == 0 and excluded(rule, references, box):
            for k in range(n_clusters):
                for d in range(n_features):
                    centroids[b, k, d] = 0.5 * (box[0, k, d] + box[1, k, d])
            bounds[b], values[b], states[b], nodes[b] = np.inf, np.inf, INFEASIBLE, 0
            cursor[0] += 1
            continue
        model, fine = scaled_model(rows, price, box, rule, references)
        margin, bound = np.inf, -np.inf
        if fine:
            margin = base_margin(len(rows.weights), model)
        if margin < 1e200:
            offset = 0.0
            for k in range(n_clusters):
                for d in range(n_features):
                    offset += model.price[k, d] * (rows.centre[d] / rows.scale)
            if cursor[1] == 0:
                value, cost = find_incumbent(rows, model, start, n_seeds, stack.best, u)
                stack.numbers[BEST], stack.numbers[BEST_COST] = value, cost
                stack.numbers[THRESHOLD] = value
                if value < np.inf:
                    stack.numbers[THRESHOLD] -= 0.5 * gap * max(abs(value + offset), cost)
                cursor[2] = reduce_rows(rows, model, left, root)
                start_root(len(rows.weights), model, u, root, stack)
                cursor[1] = 1
                spent += 20
            spent += run_search(0, cursor[2], left, model, offset, gap, node_limit, max(quota - spent, 1), stack)
            if stack.counters[STATE] != FINISHED and stack.counters[NODES] < node_limit:
                return
            bound = unscale_down(rows, price, open_bound(0, n_clusters, stack) - margin)
        else:
            copy_into(stack.best, np.zeros((n_clusters, n_features)))
        bound = max(bound, least_payment(price, box[0], box[1]))
        value, cost = recover(rows, price, box, rule, references, model, stack.best, centroids[b], labels)
        bounds[b] = min(bound, value)
        values[b] = value
        nodes[b] = stack.counters[NODES]
        states[b] = OPTIMAL if value - bound <= gap * max(abs(value), cost) else UNFINISHED
        if margin < 1e200 and stack.counters[STATE] == FINISHED and states[b] == UNFINISHED:
            # complete, but the margin alone exceeds the gap asked for: more work would change nothing
            best = stack.numbers[BEST]
            rounding = unscale_down(rows, price, best) - unscale_down(rows, price, best - 3.0 * margin)
            states[b] = OPTIMAL if value - bound <= gap * max(abs(value), cost) + 2.0 * rounding else UNFINISHED
        cursor[0] += 1
        cursor[1] = 0
