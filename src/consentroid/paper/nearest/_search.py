"""Search over assignments under the nearest rule, and over centroid boxes below an assignment.

A search node has assigned the first s rows of a fixed order, as in `_search`; whatever the rest does,

    objective ≥ least value of the assigned part under the rule's multipliers  +  T_s.

The multipliers (see `_rule`) are inherited by children and improved where that may prune. They move weight
between clusters, so a bound costs no more with them than without. At a leaf they mostly close the gap; where a light
cluster is left without weight they do not, and the leaf's boxes are split until they do. All state is kept in arrays:
the search can stop after any number of nodes, with a valid bound, and go on later.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.compile import entry, kernel
from ..node._kernels import ROUNDING, copy_into
from ..node._search import enqueue
from ..node._separation import MOST_FEATURES, first_cones, n_cones, separable
from ..node._state import BEST, DEPTH, FINISHED, NODES, OPEN, PRUNED, RUNNING, STATE, THRESHOLD
from ._rule import ascend_afresh, force_nearest, least_in_box, squared_distance, tighten
from ._start import propose

MOST_OPEN = 512  # boxes open below one leaf
NARROWEST = 1e-7  # scaled side below which a box is not split


class SearchPath(NamedTuple):
    """State of a search, one entry a depth, and the open boxes of the leaf under way."""

    plain: np.ndarray  # (n+1, K, 1+D): weights and linear parts of the assigned rows, the price in them
    shifted: np.ndarray  # the same with the multipliers
    v: np.ndarray  # (n+1, K, K)
    square: np.ndarray  # (n+1,) Σ w |y|² of the assigned rows, less the multipliers' rounding
    label: np.ndarray  # (n,) cluster of each assigned row
    cones: np.ndarray  # (n+1, pairs, 4), see `_separation`; the nearest rule implies the order rule
    bounds: np.ndarray  # (n+1, K) of each child
    queue: np.ndarray  # (n+1, K+2): children, best first; how many; the next one
    box_lo: np.ndarray  # (MOST_OPEN, K, D)
    box_hi: np.ndarray
    box_v: np.ndarray  # (MOST_OPEN, K, K)
    box_bound: np.ndarray  # (MOST_OPEN,)
    best: np.ndarray  # (K, D): incumbent
    numbers: np.ndarray
    counters: np.ndarray


@entry
def make_path(n, n_clusters, n_features):
    k, d = n_clusters, n_features
    return SearchPath(
        np.zeros((n + 1, k, 1 + d)), np.zeros((n + 1, k, 1 + d)), np.zeros((n + 1, k, k)), np.zeros(n + 1),
        np.zeros(n, np.int64), np.zeros((n + 1, n_cones(k, d), 4)), np.zeros((n + 1, k)),
        np.zeros((n + 1, k + 2), np.int64), np.zeros((MOST_OPEN, k, d)), np.zeros((MOST_OPEN, k, d)),
        np.zeros((MOST_OPEN, k, k)), np.zeros(MOST_OPEN), np.zeros((k, d)), np.full(4, np.inf), np.zeros(4, np.int64),
    )  # fmt: skip


@kernel
def multiplier_margin(task, lo, hi, v):
    """Rounding of a bound that multipliers add: proportional to v times the squares it multiplies."""
    n_clusters, n_features = task.price.shape
    total = 0.0
    for k in range(n_clusters):
        for l in range(n_clusters):
            if v[k, l] > 0.0:
                for d in range(n_features):
                    r = abs(task.references[k, d])
                    x = r + max(abs(lo[k, d]), abs(hi[k, d]))
                    z = r + max(abs(lo[l, d]), abs(hi[l, d]))
                    total += v[k, l] * (x * x + z * z)
    return (4 * len(task.w) + 8 * n_clusters * n_features + 128) * ROUNDING * total


@kernel
def start_path(task, path):
    """The root: no row assigned, no multipliers."""
    n_clusters, n_features = task.price.shape
    for k in range(n_clusters):
        path.plain[0, k, 0] = 0.0
        for d in range(n_features):
            path.plain[0, k, 1 + d] = -0.5 * task.price[k, d]
        for l in range(n_clusters):
            path.v[0, k, l] = 0.0
    first_cones(task.references, np.bool_(True), path.cones[0])
    copy_into(path.shifted[0], path.plain[0])
    path.square[0] = 0.0
    path.numbers[PRUNED] = np.inf
    path.counters[DEPTH], path.counters[NODES], path.counters[STATE] = 0, 0, RUNNING
    path.counters[OPEN] = 0


@kernel
def _expand(s, task, gain, path):
    """Bounds of the children that assign row s, sorted into the queue."""
    n_clusters, n_features = task.price.shape
    together = task.tail[s + 1] + path.square[s]
    w = task.w[s]
    for k in range(n_clusters):
        weight = path.shifted[s, k, 0]
        gain[k] = 0.0
        for d in range(n_features):
            a, y, lo, hi = path.shifted[s, k, 1 + d], task.y[s, d], task.lo[k, d], task.hi[k, d]
            x = least_in_box(weight, a, lo, hi)
            value = (weight * x - 2.0 * a) * x
            together += value
            a += w * y
            x = least_in_box(weight + w, a, lo, hi)
            gain[k] += w * y * y + ((weight + w) * x - 2.0 * a) * x - value
    found = 0
    for k in range(n_clusters):
        if task.allowed[s, k]:
            path.bounds[s, k] = together + gain[k]
            enqueue(k, found, path.bounds[s], path.queue[s])
            found += 1
    path.queue[s, n_clusters], path.queue[s, n_clusters + 1] = found, 0


@kernel
def _push(s, k, task, path):
    """State of the child that puts row s into cluster k."""
    copy_into(path.plain[s + 1], path.plain[s])
    copy_into(path.shifted[s + 1], path.shifted[s])
    copy_into(path.v[s + 1], path.v[s])
    w = task.w[s]
    path.square[s + 1] = path.square[s]
    path.plain[s + 1, k, 0] += w
    path.shifted[s + 1, k, 0] += w
    for d in range(task.y.shape[1]):
        y = task.y[s, d]
        path.square[s + 1] += w * y * y
        path.plain[s + 1, k, 1 + d] += w * y
        path.shifted[s + 1, k, 1 + d] += w * y


@kernel
def _ahead(s, task, m, path):
    """What the remaining rows pay at least, beyond the assigned part's minimum at m.

    Twice bounded: they cost T_s by themselves, and leaving m* costs W'_k |m_k − m*_k|² or more. A share α of their cost
    is put to the first bound, β = 1 − α to the second, whose excess the R remaining rows divide among them: row j pays
    min_k of β w θ / (β w + θ) |y − m*_k|², θ = W'_k / R, and never less than β times its distance to the box. Where θ
    is far below w, the second bound loses little for the α T_s that the first gains.
    """
    n, n_clusters = len(task.w), len(task.price)
    most = task.tail[s]
    third, half, all_of_it = 0.0, 0.0, 0.0
    for j in range(s, n):
        first, second, whole = np.inf, np.inf, np.inf
        w = task.w[j]
        for k in range(n_clusters):
            if task.allowed[j, k]:
                share = max(path.shifted[s, k, 0], 0.0) / (n - s)
                squared, near = squared_distance(task.y[j], m[k]), task.near[j, k]
                first = min(first, max(w * share / (0.3 * w + share) * squared, near))
                second = min(second, max(w * share / (0.6 * w + share) * squared, near))
                whole = min(whole, max(w * share / (w + share) * squared, near))
        third += 0.3 * first
        half += 0.6 * second
        all_of_it += whole
    return max(max(most, 0.7 * most + third), max(0.4 * most + half, all_of_it))


@kernel
def _improve(s, task, m, path):
    """Better multipliers at depth s; returns the bound on the assigned part."""
    square = path.square[s]
    enough = path.numbers[THRESHOLD] - square - task.tail[s]
    v = path.v[s]
    before = multiplier_margin(task, task.lo, task.hi, v)
    value = ascend_afresh(path.plain[s], task.references, task.lo, task.hi, 6, task.soft, enough, v, path.shifted[s], m)
    path.square[s] = square + before - multiplier_margin(task, task.lo, task.hi, v)
    return value + path.square[s]


@kernel
def _open_box(lo, hi, v, bound, path):
    """Put a box on the pile; without room its bound is kept instead."""
    i = path.counters[OPEN]
    if i == MOST_OPEN:
        path.numbers[PRUNED] = min(path.numbers[PRUNED], bound)
        return
    copy_into(path.box_lo[i], lo)
    copy_into(path.box_hi[i], hi)
    copy_into(path.box_v[i], v)
    path.box_bound[i] = bound
    path.counters[OPEN] = i + 1


@kernel
def _widest(task, shifted, lo, hi):
    """Which coordinate to split: where the relaxation bends the wrong way over the widest interval."""
    cluster, feature, most = 0, 0, -1.0
    for k in range(lo.shape[0]):
        bend = max(-shifted[k, 0], 0.0) + (task.soft if shifted[k, 0] < task.soft else 1e-6 * task.soft)
        for d in range(lo.shape[1]):
            width = hi[k, d] - lo[k, d]
            if bend * width * width > most:
                cluster, feature, most = k, d, bend * width * width
    return cluster, feature


@kernel
def _examine_box(task, m, part, shifted, path):
    """Bound the last box on the pile, try its minimiser, and split it where that is not enough."""
    n = len(task.w)
    i = path.counters[OPEN] - 1
    path.counters[OPEN] = i
    bound = path.box_bound[i]
    if bound >= path.numbers[THRESHOLD]:
        path.numbers[PRUNED] = min(path.numbers[PRUNED], bound)
        return
    lo, hi, v = path.box_lo[i].copy(), path.box_hi[i].copy(), path.box_v[i].copy()
    if not tighten(task.references, lo, hi):
        return
    square = path.square[n] + multiplier_margin(task, task.lo, task.hi, path.v[n])
    enough = path.numbers[THRESHOLD] - square
    value = ascend_afresh(path.plain[n], task.references, lo, hi, 20, task.soft, enough, v, shifted, m)
    bound = max(bound, value + square - multiplier_margin(task, lo, hi, v))
    if bound < path.numbers[THRESHOLD]:
        middle = m.copy()
        if force_nearest(task.references, task.lo, task.hi, middle):
            propose(task, middle, part, path.best, path.numbers)
    if bound >= path.numbers[THRESHOLD]:
        path.numbers[PRUNED] = min(path.numbers[PRUNED], bound)
        return
    k, d = _widest(task, shifted, lo, hi)
    left, right = lo[k, d], hi[k, d]
    at = 0.5 * (left + right)
    if right - left < NARROWEST:
        path.numbers[PRUNED] = min(path.numbers[PRUNED], bound)
        return
    upper_first = m[k, d] < at  # the one on top is examined next
    for turn in range(2):
        upper = upper_first == (turn == 0)
        lo[k, d], hi[k, d] = (at, right) if upper else (left, at)
        _open_box(lo, hi, v, bound, path)


@kernel
def run_path(task, quota, node_limit, path):
    """At most `quota` further nodes, `node_limit` in all; `open_bound` is valid at any time. Returns the work done."""
    n, (n_clusters, n_features) = len(task.w), task.price.shape
    m, gain = np.empty((n_clusters, n_features)), np.empty(n_clusters)
    part, few_features = np.empty((n_clusters, n_features + 2)), n_features <= MOST_FEATURES
    shifted = np.empty((n_clusters, 1 + n_features))
    spent, s = 0, path.counters[DEPTH]
    while path.counters[STATE] == RUNNING and spent < quota and path.counters[NODES] < node_limit:
        if path.counters[OPEN] > 0:
            spent += 1
            path.counters[NODES] += 1
            _examine_box(task, m, part, shifted, path)
            continue
        entering = path.counters[NODES] == 0
        if not entering:
            i = path.queue[s, n_clusters + 1]
            if n == 0 or i >= path.queue[s, n_clusters]:
                if s == 0:
                    path.counters[STATE] = FINISHED
                else:
                    s -= 1
                continue
            k = path.queue[s, i]
            if path.bounds[s, k] >= path.numbers[THRESHOLD]:
                path.numbers[PRUNED] = min(path.numbers[PRUNED], path.bounds[s, k])
                path.queue[s, n_clusters + 1] = n_clusters + 1  # sorted: the others are no better
                continue
            path.queue[s, n_clusters + 1] = i + 1
            if few_features and not separable(np.int64(0), s, k, n_clusters, task.y, path.label, path.cones):
                continue
            _push(s, k, task, path)
        spent += 1
        path.counters[NODES] += 1
        t = s if entering else s + 1
        if t == n:
            _open_box(task.lo, task.hi, path.v[n], -np.inf if entering else path.bounds[s, k], path)
            continue
        bound = _improve(t, task, m, path)
        bound += _ahead(t, task, m, path)
        if bound >= path.numbers[THRESHOLD]:
            path.numbers[PRUNED] = min(path.numbers[PRUNED], bound)
            if entering:
                path.counters[STATE] = FINISHED
            continue
        s = t
        _expand(s, task, gain, path)
    path.counters[DEPTH] = s
    return spent


@kernel
def open_bound(n_clusters, path):
    """Bound on the searched problem now: the least over pruned, solved and open subtrees (base margin not yet off)."""
    bound = min(path.numbers[PRUNED], path.numbers[BEST])
    if path.counters[STATE] == RUNNING:
        if path.counters[NODES] == 0:
            return -np.inf
        for s in range(path.counters[DEPTH] + 1):
            i = path.queue[s, n_clusters + 1]
            if i < path.queue[s, n_clusters]:
                bound = min(bound, path.bounds[s, path.queue[s, i]])
        for i in range(path.counters[OPEN]):
            bound = min(bound, path.box_bound[i])
    return bound
