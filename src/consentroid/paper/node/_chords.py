"""The bound on one tuple of centroid boxes.

Rows decided by the boxes cost an exact quadratic. For a row that clusters C may win, any weights a_k ≥ 0, Σ_C a_k = 1,
give

    min_k f_k ≥ Σ_k a_k f_k + min_k Σ_l a_l min_box (f_k − f_l),        f_k = |y − m_k|²,

(replace the minimum by a chord): also a quadratic, exact as soon as the row is decided. Whole cells of the kd-tree are
treated as one row where they are small beside the boxes, since f_k − f_l is linear in y. In wide boxes the chord can
promise less than the row's least distance to them, which then takes its place. The sum is a separable quadratic; its
minimum over the boxes, price and order rule included, is the bound, and

    quadratic(m_kd) − its minimum ≤ best value − bound

cuts the boxes down before they are split.
"""

from __future__ import annotations

import math

import numpy as np

from ...core.compile import kernel
from ._kernels import ROUNDING, TINY, clamp, copy_into
from ._order import TOTAL, WEIGHT, ascend_order, order_violation, price_margin
from ._state import LOST, NONE, SPENT

SOME_STEPS, SOME_ROUNDS = np.int64(20), np.int64(4)
CONSTANT = 1  # place in a quadratic (K, D+2), laid out like an assigned part
CELL = 0.35  # size of the cells treated as one row, in widths of the widest box


@kernel
def _least_difference(low, high, lo_k, hi_k, lo_l, hi_l):
    """min of |y − m_k|² − |y − m_l|² over y in [low, high] and centroids in their boxes, one coordinate at a time.

    Linear in y for given centroids, so the least is at an end.
    """
    total = 0.0
    for d in range(len(low)):
        least = np.inf
        for end in range(2):
            y = low[d] if end == 0 else high[d]
            gap = max(max(lo_k[d] - y, y - hi_k[d]), 0.0)
            reach = max(hi_l[d] - y, y - lo_l[d])
            least = min(least, gap * gap - reach * reach)
        total += least
    return total


@kernel
def _owner(low, high, mean, lo, hi, middle, share):
    """Cluster that wins every row in [low, high], or −1; then share[k] = 1 marks the clusters that may win some."""
    n_clusters, n_features = lo.shape
    owner, closest = 0, np.inf
    for k in range(n_clusters):
        squared = 0.0
        for d in range(n_features):
            squared += (mean[d] - middle[k, d]) ** 2
        if squared < closest:
            owner, closest = k, squared
    decided = True
    for k in range(n_clusters):
        share[k] = 0.0
        if k == owner or _least_difference(low, high, lo[k], hi[k], lo[owner], hi[owner]) <= 0.0:
            share[k] = 1.0
            decided = decided and k == owner
    return owner if decided else -1


@kernel
def _chord(low, high, lo, hi, share, difference):
    """Weights of the chord for the clusters marked in `share`, in place; returns its constant (≤ 0).

    A cluster's weight is in proportion to what it can win by against its strongest rival.
    """
    n_clusters = len(lo)
    total = 0.0
    for k in range(n_clusters):
        if share[k] > 0.0:
            rival = -np.inf
            for l in range(n_clusters):
                if l != k and share[l] > 0.0:
                    difference[k, l] = _least_difference(low, high, lo[k], hi[k], lo[l], hi[l])
                    rival = max(rival, difference[k, l])
            difference[k, k] = max(-rival, 0.0)
            total += difference[k, k]
    marked = 0
    for k in range(n_clusters):
        if share[k] > 0.0:
            marked += 1
    for k in range(n_clusters):
        if share[k] > 0.0:
            share[k] = difference[k, k] / total if total > 0.0 else 1.0 / marked
            if share[k] == 0.0:
                share[k] = 1e-300  # still a candidate: its differences bound the constant
    constant = 0.0
    for k in range(n_clusters):
        if share[k] > 0.0:
            loss = 0.0
            for l in range(n_clusters):
                if l != k and share[l] > 0.0:
                    loss += share[l] * difference[k, l]
            constant = min(constant, loss)
    return constant


@kernel
def _blame(weight, loss, low, high, lo, hi, share, score):
    """Charge the chord's loss to the coordinates whose width causes it."""
    n_clusters, n_features = lo.shape
    total = 0.0
    for turn in range(2):
        for k in range(n_clusters):
            if share[k] > 0.0:
                for d in range(n_features):
                    width = hi[k, d] - lo[k, d]
                    middle = 0.5 * (lo[k, d] + hi[k, d])
                    range_kd = width * (2.0 * max(abs(high[d] - middle), abs(low[d] - middle)) + width)
                    if turn == 0:
                        total += range_kd
                    elif total > 0.0:
                        score[k, d] += weight * loss * range_kd / total


@kernel
def collect(tree, lo, hi, resolution, near, quadratic, score, pending):
    """The box's quadratic (K, D+2) and scores (K, D) for splitting. Returns (constant, what the bounds lost, work).

    `near` holds centroids at which the two bounds on an undecided row are compared; whichever is used, it is true.
    """
    n_clusters, n_features = lo.shape
    share, difference = np.empty(n_clusters), np.empty((n_clusters, n_clusters))
    middle = np.empty((n_clusters, n_features))
    for k in range(n_clusters):
        for d in range(n_features):
            middle[k, d] = 0.5 * (lo[k, d] + hi[k, d])
            score[k, d] = 0.0
        for i in range(n_features + 2):
            quadratic[k, i] = 0.0
    constant, lost, units = 0.0, 0.0, 0
    top = 1
    pending[0] = 0
    while top > 0:
        top -= 1
        c = pending[top]
        units += 1
        owner = _owner(tree.lo[c], tree.hi[c], tree.mean[c], lo, hi, middle, share)
        leaf = tree.right[c] == 0
        if owner < 0:
            diameter = 0.0
            for d in range(n_features):
                diameter = max(diameter, tree.hi[c, d] - tree.lo[c, d])
            if diameter > resolution and not leaf:
                pending[top] = tree.right[c]
                pending[top + 1] = c + 1
                top += 2
                continue
        by_rows = leaf and owner < 0
        first, last = (tree.first[c], tree.last[c]) if by_rows else (0, 1)
        for j in range(first, last):
            weight, spread = tree.weight[c], tree.spread[c]
            low, high, mean = tree.lo[c], tree.hi[c], tree.mean[c]
            if by_rows:
                weight, spread = tree.w[j], 0.0
                low, high, mean = tree.y[j], tree.y[j], tree.y[j]
                owner = _owner(low, high, mean, lo, hi, middle, share)
                units += 1
            if owner < 0:
                loss = _chord(low, high, lo, hi, share, difference)
                told, least, most = loss * weight, np.inf, np.inf
                for k in range(n_clusters):
                    if share[k] > 0.0:
                        close, here, far = 0.0, 0.0, 0.0
                        for d in range(n_features):
                            gap = max(max(lo[k, d] - high[d], low[d] - hi[k, d]), 0.0)
                            close += gap * gap
                            here += (mean[d] - near[k, d]) ** 2
                            far += max(hi[k, d] - low[d], high[d] - lo[k, d]) ** 2
                        least, most = min(least, close), min(most, far)
                        told += share[k] * (spread + weight * here)
                _blame(weight, -loss, low, high, lo, hi, share, score)
                if weight * least > told:  # the least distance to a box promises more than the chord
                    constant += weight * least
                    lost += weight * (most - least)
                    continue
                constant += weight * loss
                lost -= weight * loss
            else:
                for k in range(n_clusters):
                    share[k] = 0.0
                share[owner] = 1.0
            square = 0.0
            for d in range(n_features):
                square += mean[d] * mean[d]
            for k in range(n_clusters):
                if share[k] > 0.0:
                    part = share[k] * weight
                    quadratic[k, WEIGHT] += part
                    quadratic[k, CONSTANT] += share[k] * spread + part * square
                    for d in range(n_features):
                        quadratic[k, TOTAL + d] += part * mean[d]
    return constant, lost, units


@kernel
def _least(quadratic, price, lo, hi, m):
    """Minimum of the separable quadratic plus price·m over the boxes; fills the minimiser."""
    n_clusters, n_features = lo.shape
    value = 0.0
    for k in range(n_clusters):
        weight = quadratic[k, WEIGHT]
        value += quadratic[k, CONSTANT]
        for d in range(n_features):
            a = quadratic[k, TOTAL + d] - 0.5 * price[k, d]
            if weight > 0.0:
                x = clamp(a / weight, lo[k, d], hi[k, d])
            elif a != 0.0:
                x = hi[k, d] if a > 0.0 else lo[k, d]
            else:
                x = 0.5 * (lo[k, d] + hi[k, d])
            m[k, d] = x
            value += (weight * x - 2.0 * a) * x
    return value


@kernel
def _least_in_order(n_rows, model, quadratic, value, lo, hi, shifted, m):
    """The minimum under the order rule: a better bound than `value` with its shifted price and m, or `value` again.

    Returns (value, extra margin).
    """
    n_clusters, n_features = lo.shape
    u, trial = np.zeros(len(model.pairs.first)), np.empty((n_clusters, n_features))
    ascend_order(
        model.pairs, quadratic, model.price, lo, hi, 1e-13, SOME_STEPS, SOME_ROUNDS, np.inf, 0.0, u, shifted, trial
    )
    magnitude = price_margin(model.price, model.pairs, u, model.magnitudes)
    margin = (4 * n_rows + 16 * n_clusters * n_features + 256) * ROUNDING * magnitude
    improved = _least(quadratic, shifted, lo, hi, m)
    if improved - margin > value:
        copy_into(m, trial)  # the primal point: feasible, and the dual's minimiser wherever that is unique
        return improved, margin
    copy_into(shifted, model.price)
    return _least(quadratic, shifted, lo, hi, m), 0.0


@kernel
def _cut(quadratic, price, room, lo, hi, free_width):
    """quadratic(m_kd) − minimum ≤ room, coordinate by coordinate; returns the share of volume that is left."""
    n_clusters, n_features = lo.shape
    left_over = 1.0
    for k in range(n_clusters):
        weight = quadratic[k, WEIGHT]
        if weight <= 0.0:
            continue
        for d in range(n_features):
            centre = (quadratic[k, TOTAL + d] - 0.5 * price[k, d]) / weight
            outside = clamp(centre, lo[k, d], hi[k, d]) - centre
            radius = math.sqrt(room / weight + outside * outside) * (1.0 + 1e-12) + free_width
            width = hi[k, d] - lo[k, d]
            lo[k, d] = max(lo[k, d], min(centre - radius, hi[k, d]))
            hi[k, d] = min(hi[k, d], max(centre + radius, lo[k, d]))
            if width > 0.0:
                left_over *= (hi[k, d] - lo[k, d]) / width
    return left_over


@kernel
def tighten_order(references, lo, hi):
    """Cut boxes by n·(m_k − m_l) ≥ 0; returns False when a pair of boxes cannot obey it."""
    n_clusters, n_features = lo.shape
    for k in range(n_clusters):
        for l in range(k + 1, n_clusters):
            most, magnitude = 0.0, 0.0
            for d in range(n_features):
                n = references[k, d] - references[l, d]
                most += n * (hi[k, d] - lo[l, d]) if n > 0.0 else n * (lo[k, d] - hi[l, d])
                magnitude += abs(n) * (abs(lo[k, d]) + abs(hi[k, d]) + abs(lo[l, d]) + abs(hi[l, d]))
            most += (4 * n_features + 64) * ROUNDING * magnitude + TINY
            if most < 0.0:
                return False
            for d in range(n_features):
                n = references[k, d] - references[l, d]
                if n > 0.0:
                    lo[k, d], hi[l, d] = max(lo[k, d], hi[k, d] - most / n), min(hi[l, d], lo[l, d] + most / n)
                elif n < 0.0:
                    hi[k, d], lo[l, d] = min(hi[k, d], lo[k, d] - most / n), max(lo[l, d], hi[l, d] + most / n)
    return True


@kernel
def _box_margin(n_rows, tree, price, lo, hi):
    """Error margin of a box's bound (docs/numerics.md, section 4): every term is at most Σ w (|y| + |m|)² + |p||m|."""
    n_clusters, n_features = lo.shape
    size = 0.0
    for d in range(n_features):
        reach = 0.0
        for k in range(n_clusters):
            m = max(abs(lo[k, d]), abs(hi[k, d]))
            reach = max(reach, m)
            size += abs(price[k, d]) * m
        y = max(abs(tree.lo[0, d]), abs(tree.hi[0, d]))
        size += tree.weight[0] * (y + reach) ** 2
    return (4 * n_rows + 16 * n_clusters * n_features + 256) * ROUNDING * size + TINY


@kernel
def examine(n_rows, tree, model, lo, hi, threshold, quadratic, score, pending, m, effort):
    """Bound a box and cut it down, in place. Returns (bound, coordinate to split); +inf if it holds nothing feasible.

    `m` receives a minimiser of the relaxation, effort[SPENT] the work done on top, effort[LOST] what the chords lost.
    """
    n_clusters, n_features = lo.shape
    shifted = np.empty((n_clusters, n_features))
    best = -np.inf
    for k in range(n_clusters):
        for d in range(n_features):
            m[k, d] = 0.5 * (lo[k, d] + hi[k, d])
    for _ in range(4):
        if model.rule != NONE and not tighten_order(model.references, lo, hi):
            return np.inf, 0
        widest = 0.0
        for k in range(n_clusters):
            for d in range(n_features):
                if lo[k, d] > hi[k, d]:  # sides can cross by rounding only: keep what is between them
                    lo[k, d], hi[k, d] = hi[k, d], lo[k, d]
                widest = max(widest, hi[k, d] - lo[k, d])
        margin = _box_margin(n_rows, tree, model.price, lo, hi)
        constant, lost, work = collect(tree, lo, hi, CELL * widest, m, quadratic, score, pending)
        effort[SPENT] += work
        effort[LOST] = lost
        copy_into(shifted, model.price)
        value = _least(quadratic, shifted, lo, hi, m)
        extra = 0.0
        open_still = value + constant - margin < threshold
        if open_still and model.rule != NONE and order_violation(model.pairs, m, 0.0) > 0.0:
            value, extra = _least_in_order(n_rows, model, quadratic, value, lo, hi, shifted, m)
        bound = value + constant - margin - extra
        best = max(best, bound)
        if best >= threshold:
            return best, 0
        if _cut(quadratic, shifted, threshold - bound + margin, lo, hi, 4.0 * ROUNDING * (1.0 + widest)) > 0.5:
            break
    most, split = 0.0, -1
    for k in range(n_clusters):
        for d in range(n_features):
            if score[k, d] > most and hi[k, d] > lo[k, d]:
                most, split = score[k, d], k * n_features + d
    if split < 0:
        for k in range(n_clusters):
            for d in range(n_features):
                if hi[k, d] - lo[k, d] > most:
                    most, split = hi[k, d] - lo[k, d], k * n_features + d
    return best, split
