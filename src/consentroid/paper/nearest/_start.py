"""The nearest rule's problem in scaled units, and good solutions to begin with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.compile import kernel
from ..node._kernels import ROUNDING, clamp, copy_into
from ..node._order import TOTAL, WEIGHT
from ..node._start import assign
from ..node._state import BEST, BEST_COST, THRESHOLD
from ._rule import NEAREST_TOLERANCE, ascend, farthest, force_nearest, obeys_nearest, squared_distance, tighten

MANY_ROWS = 20_000  # no descents from price-free solutions above
SOFT = 0.05  # of a cluster's mean weight: below it a weight is too small to steer by


class Task(NamedTuple):
    """The priced problem in scaled units, and what its rows may do."""

    y: np.ndarray  # (n, D)
    w: np.ndarray  # (n,)
    tail: np.ndarray  # (n+1,) proven bounds on T_s
    allowed: np.ndarray  # (n, K) clusters each row may join
    near: np.ndarray  # (n, K) weighted least distance to each box
    price: np.ndarray  # (K, D)
    references: np.ndarray  # (K, D)
    lo: np.ndarray  # (K, D), cut to what the rule leaves
    hi: np.ndarray
    offset: float  # price·centre
    gap: float
    soft: float


@kernel
def make_task(rows, model, references, gap):
    """The task, and whether intervals leave it any centroids that obey the rule."""
    n, n_features = rows.y.shape
    n_clusters = len(model.price)
    r, lo, hi = np.empty_like(references), model.lo.copy(), model.hi.copy()
    offset, weight = 0.0, 0.0
    for k in range(n_clusters):
        for d in range(n_features):
            r[k, d] = (references[k, d] - rows.centre[d]) / rows.scale
            offset += model.price[k, d] * (rows.centre[d] / rows.scale)
    for j in range(n):
        weight += rows.w[j]
    possible = True
    for _ in range(4):
        possible = possible and tighten(r, lo, hi)
    allowed, near, tail = np.empty((n, n_clusters), np.bool_), np.empty((n, n_clusters)), np.zeros(n + 1)
    for s in range(n - 1, -1, -1):
        least_reach, least_near = np.inf, np.inf
        for k in range(n_clusters):
            near[s, k] = 0.0
            for d in range(n_features):
                apart = max(max(lo[k, d] - rows.y[s, d], rows.y[s, d] - hi[k, d]), 0.0)
                near[s, k] += apart * apart
            least_reach = min(least_reach, farthest(rows.y[s], lo[k], hi[k]))
        for k in range(n_clusters):
            allowed[s, k] = near[s, k] <= least_reach * (1.0 + 64.0 * ROUNDING * (n_features + 1))
            near[s, k] *= rows.w[s]
            if allowed[s, k]:
                least_near = min(least_near, near[s, k])
        tail[s] = tail[s + 1] + least_near
    for s in range(n):
        tail[s] = max(tail[s], rows.tail[s])
    soft = SOFT * max(weight, 1.0) / n_clusters
    return Task(rows.y, rows.w, tail, allowed, near, model.price, r, lo, hi, offset, gap, soft), possible


@kernel
def propose(task, m, part, best, numbers):
    """Take centroids that obey rule and boxes as incumbent if they are better."""
    cost, paid = assign(task.y, task.w, m, part), 0.0
    for k in range(m.shape[0]):
        for d in range(m.shape[1]):
            paid += task.price[k, d] * m[k, d]
    value = cost + paid
    if value < numbers[BEST]:
        numbers[BEST], numbers[BEST_COST] = value, cost
        numbers[THRESHOLD] = value - 0.5 * task.gap * max(abs(value + task.offset), cost)
        copy_into(best, m)
        return True
    return False


@kernel
def settle(task, plain, v, m):
    """Local solution for fixed clusters from m: proximal steps for those whose weight the multipliers take away."""
    n_clusters, n_features = m.shape
    held, near = np.zeros(n_clusters), np.empty_like(plain)
    shifted, anchor = np.empty_like(plain), m.copy()
    for _ in range(12):
        for k in range(n_clusters):
            near[k, 0] = plain[k, 0] + held[k]
            for d in range(n_features):
                near[k, 1 + d] = plain[k, 1 + d] + held[k] * anchor[k, d]
        ascend(near, task.references, task.lo, task.hi, 20, task.soft, np.inf, v, shifted, m)
        obeys, settled = obeys_nearest(task.references, m, NEAREST_TOLERANCE), True
        for k in range(n_clusters):
            if held[k] > 0.0:
                for d in range(n_features):
                    settled = settled and abs(m[k, d] - anchor[k, d]) < 1e-4
            if not obeys and shifted[k, 0] < task.soft:
                held[k] = 2.0 * held[k] + task.soft
        if obeys and settled:
            break
        if obeys:
            copy_into(anchor, m)
    return force_nearest(task.references, task.lo, task.hi, m)


@kernel
def descend(task, m, iterations, best, numbers):
    """Lloyd steps under the rule from m, which need not obey it; improves the incumbent."""
    n_clusters, n_features = m.shape
    part = np.empty((n_clusters, n_features + 2))
    plain, v = np.empty((n_clusters, 1 + n_features)), np.zeros((n_clusters, n_clusters))
    assign(task.y, task.w, m, part)
    last = np.inf
    for _ in range(iterations):
        for k in range(n_clusters):
            plain[k, 0] = part[k, WEIGHT]
            for d in range(n_features):
                plain[k, 1 + d] = part[k, TOTAL + d] - 0.5 * task.price[k, d]
        if not settle(task, plain, v, m):
            break
        cost, paid = assign(task.y, task.w, m, part), 0.0
        for k in range(n_clusters):
            for d in range(n_features):
                paid += task.price[k, d] * m[k, d]
        if cost + paid >= last - 1e-9 * abs(last):
            break
        last = cost + paid
        propose(task, m, part, best, numbers)
    return last


@kernel
def _label(task, seed, weight, out):
    """Label a price-free solution: swap two labels as long as price and rule gain by it."""
    n_clusters, n_features = seed.shape
    copy_into(out, seed)
    last = _label_score(task, out, weight)
    improved = True
    while improved:
        improved = False
        for k in range(n_clusters):
            for l in range(k + 1, n_clusters):
                for d in range(n_features):
                    out[k, d], out[l, d] = out[l, d], out[k, d]
                score = _label_score(task, out, weight)
                if score < last - 1e-12 * abs(last):
                    last, improved = score, True
                else:
                    for d in range(n_features):
                        out[k, d], out[l, d] = out[l, d], out[k, d]


@kernel
def _label_score(task, m, weight):
    n_clusters, n_features = m.shape
    score = 0.0
    for k in range(n_clusters):
        own = squared_distance(m[k], task.references[k])
        for d in range(n_features):
            c = clamp(m[k, d], task.lo[k, d], task.hi[k, d])
            score += task.price[k, d] * c + weight * (m[k, d] - c) ** 2
        for l in range(n_clusters):
            score += weight * max(own - squared_distance(m[l], task.references[k]), 0.0)
    return score


@kernel
def find_start(rows, task, start, best, numbers):
    """Descents from the start, the references and the price-free solutions, labelled for price and rule."""
    n_clusters, n_features = task.price.shape
    trial = np.empty((n_clusters, n_features))
    weight = task.soft / SOFT  # of a mean cluster
    numbers[BEST], numbers[BEST_COST], numbers[THRESHOLD] = np.inf, np.inf, np.inf
    for i in range(-2, len(rows.seeds) if len(rows.w) <= MANY_ROWS else 0):
        if i == -2 and len(start) == 0:
            continue
        if i >= 0:
            _label(task, rows.seeds[i], weight, trial)
        for k in range(n_clusters):
            for d in range(n_features):
                if i == -2:
                    trial[k, d] = (start[k, d] - rows.centre[d]) / rows.scale
                elif i == -1:
                    trial[k, d] = task.references[k, d]
                trial[k, d] = clamp(trial[k, d], task.lo[k, d], task.hi[k, d])
        descend(task, trial, 10, best, numbers)
