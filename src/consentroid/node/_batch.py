"""Many priced problems on the same rows in one call: scale, reduce, search, map back.

For each box: rows whose cluster the boxes decide are merged first (row j cannot go to l if its farthest distance to box
k is below its least distance to box l for some k), a few priced Lloyd runs give the incumbent, and the search of
`_assignment` proves it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ._assignment import (
    BASE_MARGIN,
    BEST,
    FINISHED,
    STATE,
    THRESHOLD,
    Model,
    local_search,
    open_bound,
    run_search,
    set_incumbent,
    start_search,
)
from ._kernels import (
    NONE,
    ORDER,
    ROUNDING,
    TINY,
    clamp,
    down,
    kernel,
    least_payment,
    obeys_order,
    order_excludes,
    price_margin,
    relabel_to_order,
    up,
    value_above,
)
from ._order import ascend_order

INFEASIBLE, UNFINISHED, OPTIMAL = 2, 0, 1
LARGEST = 1.7976931348623157e308


class Rows(NamedTuple):
    """A node's rows, once as given and once prepared for the search; `prepare` in exact.py makes it."""

    points: np.ndarray  # (J, D) as given
    weights: np.ndarray  # (J,)
    y: np.ndarray  # (n, D) distinct rows, shifted and scaled, in search order
    w: np.ndarray  # (n,)
    centre: np.ndarray  # (D,)
    scale: float  # power of two
    weight_scale: float  # power of two
    tail: np.ndarray  # (n+1,) proven price-free cost of rows t, t+1, ... with K clusters
    seeds: np.ndarray  # (M, K, D) price-free solutions, best first, in scaled units


class Scratch(NamedTuple):
    """Work arrays of one box, reused from box to box."""

    order: np.ndarray  # (n,) rows left to the search
    y: np.ndarray  # (n, D)
    w: np.ndarray  # (n,)
    allowed: np.ndarray  # (n, K)
    near: np.ndarray  # (n, K)
    tail: np.ndarray  # (n+1,)
    labels: np.ndarray  # (n,)
    all_labels: np.ndarray  # (J,)
    price: np.ndarray  # (K, D)
    lo: np.ndarray
    hi: np.ndarray
    references: np.ndarray
    reach: np.ndarray
    magnitudes: np.ndarray  # (3 + K, D)
    sums: np.ndarray  # (K, D)
    weights: np.ndarray  # (K,)
    trial: np.ndarray  # (K, D)
    near_row: np.ndarray  # (2, K)
    permutation: np.ndarray  # (2, K)


@kernel
def make_scratch(n, n_points, n_clusters, n_features):
    k, d = n_clusters, n_features
    return Scratch(
        np.zeros(n, np.int64), np.zeros((n, d)), np.zeros(n), np.zeros((n, k), np.bool_), np.zeros((n, k)),
        np.zeros(n + 1), np.zeros(n, np.int64), np.zeros(n_points, np.int64), np.zeros((k, d)), np.zeros((k, d)),
        np.zeros((k, d)), np.zeros((k, d)), np.zeros((k, d)), np.zeros((3 + k, d)), np.zeros((k, d)), np.zeros(k),
        np.zeros((k, d)), np.zeros((2, k)), np.zeros((2, k), np.int64),
    )  # fmt: skip


@kernel
def _interchangeable(price, boxes):
    for k in range(1, price.shape[0]):
        for d in range(price.shape[1]):
            if price[k, d] != price[0, d] or boxes[0, k, d] != boxes[0, 0, d] or boxes[1, k, d] != boxes[1, 0, d]:
                return False
    return True


@kernel
def scaled_model(rows, price, boxes, rule, references, scratch):
    """The problem in scaled units. Returns (model, offset = price·centre, base margin); margin inf if out of range."""
    n_clusters, n_features = price.shape
    spread = 0.0
    if rule != NONE:
        for k in range(n_clusters):
            for d in range(n_features):
                spread = max(spread, abs(references[k, d] - references[0, d]))
    unit = math.ldexp(1.0, -math.frexp(spread)[1]) if spread > 0.0 else 1.0
    offset, far, fine = 0.0, 0.0, True
    magnitudes = scratch.magnitudes
    for d in range(n_features):
        far = max(far, abs(rows.centre[d] / rows.scale))
    for k in range(n_clusters):
        for d in range(n_features):
            p = price[k, d] / rows.scale / rows.weight_scale
            lo = down((boxes[0, k, d] - rows.centre[d]) / rows.scale)
            hi = up((boxes[1, k, d] - rows.centre[d]) / rows.scale)
            scratch.price[k, d] = p
            scratch.lo[k, d] = lo
            scratch.hi[k, d] = hi
            scratch.reach[k, d] = max(abs(lo), abs(hi))
            scratch.references[k, d] = references[k, d] * unit if rule != NONE else 0.0
            offset += p * (rows.centre[d] / rows.scale)
            magnitudes[3 + k, d] = max(0.0, max(lo, -hi))
            if not (abs(p) < 1e140 and abs(lo) < 1e140 and abs(hi) < 1e140):
                fine = False
    square, least, everything = 0.0, np.inf, 0.0
    magnitudes[:3, :] = 0.0
    for j in range(len(rows.w)):
        least = min(least, rows.w[j])
        everything += rows.w[j]
        for d in range(n_features):
            x = abs(rows.y[j, d])
            magnitudes[0, d] += rows.w[j] * x
            magnitudes[2, d] = max(magnitudes[2, d], x)
            square += rows.w[j] * x * x
    magnitudes[1, :] = everything
    symmetric = _interchangeable(price, boxes)
    target = 0.0
    if rule != NONE and not symmetric:
        target = 256.0 * n_features * ROUNDING * (1.0 + far)
    model = Model(
        scratch.price, scratch.lo, scratch.hi, scratch.references, scratch.reach, magnitudes, least,
        NONE if symmetric else rule, symmetric, target,
    )  # fmt: skip
    zero = np.zeros((n_clusters, n_clusters))
    extra = price_margin(scratch.price, scratch.references, zero, scratch.reach, magnitudes, least)
    factor = (4 * len(rows.weights) + 4 * n_clusters * n_features + 128) * ROUNDING
    margin = factor * (square + extra) + TINY
    if not fine or not margin < 1e200:
        margin = np.inf
    return model, offset, margin


@kernel
def _reduce(rows, model, scratch, stack):
    """Candidates of each row; merges decided rows into depth 0 of the stack. Returns the number of rows left."""
    n, n_features = rows.y.shape
    n_clusters = len(model.price)
    stack.weight[0, :] = 0.0
    stack.square[0, :] = 0.0
    stack.total[0, :, :] = 0.0
    near, far = scratch.near_row[0], scratch.near_row[1]
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
        count = 0
        for k in range(n_clusters):
            keep = near[k] * (1.0 - 64.0 * ROUNDING * (n_features + 1)) <= smallest_far
            scratch.allowed[j, k] = keep
            scratch.near[j, k] = rows.w[j] * near[k]
            count += keep
        scratch.labels[j] = count
        decided += count == 1
    merge = 3 * decided > n
    left = 0
    for j in range(n):
        if merge and scratch.labels[j] == 1:
            for k in range(n_clusters):
                if scratch.allowed[j, k]:
                    stack.weight[0, k] += rows.w[j]
                    for d in range(n_features):
                        stack.total[0, k, d] += rows.w[j] * rows.y[j, d]
                        stack.square[0, k] += rows.w[j] * rows.y[j, d] * rows.y[j, d]
            continue
        scratch.order[left] = j
        scratch.w[left] = rows.w[j]
        for d in range(n_features):
            scratch.y[left, d] = rows.y[j, d]
        for k in range(n_clusters):
            scratch.allowed[left, k] = scratch.allowed[j, k]
            scratch.near[left, k] = scratch.near[j, k]
        left += 1
    scratch.tail[left] = 0.0
    for t in range(left - 1, -1, -1):
        least = np.inf
        for k in range(n_clusters):
            if scratch.allowed[t, k]:
                least = min(least, scratch.near[t, k])
        scratch.tail[t] = scratch.tail[t + 1] + least
    if left == n:
        for t in range(n):
            scratch.tail[t] = max(scratch.tail[t], rows.tail[t])
    return left


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
def _best_labelling(seed, everything, model, scratch):
    """Label a price-free solution for this price, these boxes and this rule; the result is a start only."""
    n_clusters, n_features = seed.shape
    p, best = scratch.permutation[0], scratch.permutation[1]
    for k in range(n_clusters):
        p[k] = k
        best[k] = k
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
            scratch.trial[k, d] = seed[best[k], d]


@kernel
def _incumbent(rows, model, offset, gap, start, n_seeds, scratch, stack):
    """Priced Lloyd runs from the start, the price-free solutions and the boxes' centres."""
    n_clusters, n_features = model.price.shape
    everything = model.magnitudes[1, 0]
    stack.numbers[BEST] = np.inf
    stack.numbers[THRESHOLD] = np.inf
    for k in range(n_clusters):
        for d in range(n_features):
            stack.best[k, d] = clamp(0.0, model.lo[k, d], model.hi[k, d])
    runs = min(n_seeds, len(rows.seeds))
    for i in range(-2, runs):
        if i == -2:
            if len(start) == 0:
                continue
            for k in range(n_clusters):
                for d in range(n_features):
                    scratch.trial[k, d] = (start[k, d] - rows.centre[d]) / rows.scale
        elif i == -1:
            if model.symmetric:
                continue
            for k in range(n_clusters):
                for d in range(n_features):
                    scratch.trial[k, d] = 0.5 * (model.lo[k, d] + model.hi[k, d])
        else:
            _best_labelling(rows.seeds[i], everything, model, scratch)
        value, cost = local_search(
            rows.y, rows.w, model, scratch.trial, scratch.labels, scratch.sums, scratch.weights, 50
        )
        if value < stack.numbers[BEST]:
            set_incumbent(value, cost, offset, gap, scratch.trial, stack)


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
def recover(rows, price, boxes, rule, references, model, scratch, stack, out):
    """Centroids in original units that obey boxes and rule exactly, and their value rounded up (inf if none found)."""
    n_clusters, n_features = price.shape
    if not stack.numbers[BEST] < np.inf:
        _map_back(rows, boxes, stack.best, out)
        if rule == NONE or obeys_order(references, out):
            return value_above(rows.points, rows.weights, price, out, scratch.all_labels)
        return np.inf, np.inf
    _map_back(rows, boxes, stack.best, out)
    if rule == NONE or model.symmetric:
        value, _ = value_above(rows.points, rows.weights, price, out, scratch.all_labels)
        scratch.trial[:, :] = out
        _snap(rows, price, boxes, out, scratch.all_labels)
        snapped, _ = value_above(rows.points, rows.weights, price, out, scratch.all_labels)
        if not snapped <= value:
            out[:, :] = scratch.trial
        if rule != NONE and not relabel_to_order(references, out):
            return np.inf, np.inf
        return value_above(rows.points, rows.weights, price, out, scratch.all_labels)
    target = model.target
    u = np.zeros((n_clusters, n_clusters))
    for attempt in range(8):
        if obeys_order(references, out):
            value, _ = value_above(rows.points, rows.weights, price, out, scratch.all_labels)
            scratch.trial[:, :] = out
            _snap(rows, price, boxes, out, scratch.all_labels)
            if obeys_order(references, out):
                snapped, snapped_cost = value_above(rows.points, rows.weights, price, out, scratch.all_labels)
                if snapped <= value:
                    return snapped, snapped_cost
            out[:, :] = scratch.trial
            return value_above(rows.points, rows.weights, price, out, scratch.all_labels)
        scratch.weights[:] = 0.0
        scratch.sums[:, :] = 0.0
        for j in range(len(rows.w)):
            least, label = np.inf, 0
            for k in range(n_clusters):
                squared = 0.0
                for d in range(n_features):
                    difference = rows.y[j, d] - stack.best[k, d]
                    squared += difference * difference
                if squared < least:
                    least, label = squared, k
            scratch.weights[label] += rows.w[j]
            for d in range(n_features):
                scratch.sums[label, d] += rows.w[j] * rows.y[j, d]
        u[:, :] = 0.0
        ascend_order(
            scratch.weights, scratch.sums, model.price, model.references, model.lo, model.hi, target, 60, 20, u,
            stack.scratch[0], scratch.trial,
        )  # fmt: skip
        _map_back(rows, boxes, scratch.trial, out)
        target = 0.0 if attempt == 5 else target * 30.0
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


@kernel
def solve_batch(
    rows, prices, boxes, rule, references, start, n_seeds, gap, node_limit, look, cursor, quota, scratch, stack,
    bounds, values, centroids, states, nodes,
):  # fmt: skip
    """Solve boxes from cursor[0] on until `quota` search nodes are spent; cursor[1] tells whether one is under way.

    Call again with the same arrays to go on. `states`: OPTIMAL, UNFINISHED or INFEASIBLE for each box.
    """
    spent = 0
    n_boxes = len(prices)
    while cursor[0] < n_boxes:
        b = cursor[0]
        price, box = prices[b], boxes[b]
        if cursor[1] == 0:
            excluded = rule != NONE and order_excludes(references, box[0], box[1])
            for k in range(price.shape[0]):
                for d in range(price.shape[1]):
                    if box[0, k, d] > box[1, k, d]:
                        excluded = True
            if excluded:
                for k in range(price.shape[0]):
                    for d in range(price.shape[1]):
                        centroids[b, k, d] = 0.5 * (box[0, k, d] + box[1, k, d])
                bounds[b], values[b], states[b], nodes[b] = np.inf, np.inf, INFEASIBLE, 0
                cursor[0] += 1
                continue
        model, offset, margin = scaled_model(rows, price, box, rule, references, scratch)
        stack.numbers[BASE_MARGIN] = margin
        if cursor[1] == 0:
            if margin < np.inf:
                cursor[2] = _reduce(rows, model, scratch, stack)
                _incumbent(rows, model, offset, gap, start, n_seeds, scratch, stack)
                start_search(cursor[2], scratch.y, scratch.w, scratch.allowed, scratch.tail, model, stack)
                spent += 20
            else:
                stack.numbers[BEST] = np.inf
                stack.best[:, :] = 0.0
            cursor[1] = 1
        n = cursor[2]
        y, w = scratch.y[:n], scratch.w[:n]
        bound = -np.inf
        if margin < np.inf:
            spent += run_search(
                n, y, w, scratch.allowed, scratch.near, scratch.tail, model, offset, gap, node_limit, quota - spent,
                look, stack,
            )  # fmt: skip
            if stack.counters[STATE] != FINISHED and stack.counters[1] < node_limit:
                return
            bound = open_bound(n, y, w, scratch.allowed, scratch.near, scratch.tail, model, stack) - margin
            bound = unscale_down(rows, price, bound)
        bound = max(bound, least_payment(price, box[0], box[1]))
        value, cost = recover(rows, price, box, rule, references, model, scratch, stack, centroids[b])
        bounds[b] = min(bound, value)
        values[b] = value
        nodes[b] = stack.counters[1]
        small = value - bound <= gap * max(abs(value), cost)
        states[b] = OPTIMAL if small or (margin < np.inf and stack.counters[STATE] == FINISHED) else UNFINISHED
        cursor[0] += 1
        cursor[1] = 0
        if spent >= quota:
            return
