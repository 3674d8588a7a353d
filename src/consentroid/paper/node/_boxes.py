"""Best-first search over centroid boxes: for many rows, where assignments are too many.

A search node restricts every centroid to a box and is bounded by `_chords`. It is split where the chords lose most, and
closed when nothing is lost or the bound reaches the incumbent. Interchangeable clusters are kept in order by the order
rule with the incumbent as references: every solution has a labelling that obeys it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.compile import entry, kernel
from ._batch import middle_of
from ._chords import examine
from ._kernels import ROUNDING, copy_into, least_payment
from ._order import make_pairs
from ._order_interior import pairs_exclude
from ._recover import recover
from ._scaling import base_margin, excluded, scaled_model, unscale_down
from ._search import Model
from ._start import find_incumbent, local_search
from ._state import (
    BEST,
    BEST_COST,
    DROPPED,
    EXAMINED,
    INFEASIBLE,
    LAST_TRY,
    LOST,
    MARGIN,
    ON_FREE_LIST,
    OPEN,
    OPTIMAL,
    ORDER,
    PRUNED,
    SPENT,
    THRESHOLD,
    TRIED,
    UNFINISHED,
    USED,
    WORK,
)

LARGEST_REFERENCE = 2.0**20  # multiples of 2⁻³⁰ up to here have exact differences


class BoxPool(NamedTuple):
    """Open boxes in a heap ordered by bound."""

    lo: np.ndarray  # (M, K, D)
    hi: np.ndarray
    bound: np.ndarray  # (M,)
    branch: np.ndarray  # (M,) k·D + d to split
    heap: np.ndarray  # (M,) box numbers
    free: np.ndarray  # (M,) box numbers to reuse
    best: np.ndarray  # (K, D)
    trial: np.ndarray  # (K, D) minimiser of the last box examined
    numbers: np.ndarray
    counters: np.ndarray


@entry
def make_pool(capacity, n_clusters, n_features):
    k, d = n_clusters, n_features
    return BoxPool(
        np.empty((capacity, k, d)), np.empty((capacity, k, d)), np.empty(capacity), np.empty(capacity, np.int64),
        np.empty(capacity, np.int64), np.empty(capacity, np.int64), np.zeros((k, d)), np.zeros((k, d)), np.zeros(8),
        np.zeros(8, np.int64),
    )  # fmt: skip


@kernel
def push_box(pool, bound, branch, lo, hi):
    """Keep an open box; without room, only its bound is remembered."""
    if pool.counters[ON_FREE_LIST] > 0:
        pool.counters[ON_FREE_LIST] -= 1
        i = pool.free[pool.counters[ON_FREE_LIST]]
    elif pool.counters[USED] < len(pool.bound):
        i = pool.counters[USED]
        pool.counters[USED] += 1
    else:
        pool.numbers[DROPPED] = min(pool.numbers[DROPPED], bound)
        return
    copy_into(pool.lo[i], lo)
    copy_into(pool.hi[i], hi)
    pool.bound[i], pool.branch[i] = bound, branch
    at = pool.counters[OPEN]
    pool.counters[OPEN] += 1
    while at > 0 and pool.bound[pool.heap[(at - 1) // 2]] > bound:
        pool.heap[at] = pool.heap[(at - 1) // 2]
        at = (at - 1) // 2
    pool.heap[at] = i


@kernel
def pop_box(pool):
    """The open box with the least bound; its place may be reused after the next push."""
    top = pool.heap[0]
    n = pool.counters[OPEN] - 1
    pool.counters[OPEN] = n
    last = pool.heap[n]
    at = 0
    while 2 * at + 1 < n:
        child = 2 * at + 1
        if child + 1 < n and pool.bound[pool.heap[child + 1]] < pool.bound[pool.heap[child]]:
            child += 1
        if pool.bound[pool.heap[child]] >= pool.bound[last]:
            break
        pool.heap[at] = pool.heap[child]
        at = child
    pool.heap[at] = last
    pool.free[pool.counters[ON_FREE_LIST]] = top
    pool.counters[ON_FREE_LIST] += 1
    return top


@kernel
def _set_threshold(offset, gap, pool):
    """Boxes are closed this far below the incumbent; nothing within the rounding margin is worth a split."""
    value = pool.numbers[BEST]
    pool.numbers[THRESHOLD] = value
    if value < np.inf:
        size = max(abs(value + offset), pool.numbers[BEST_COST])
        pool.numbers[THRESHOLD] = value - 0.7 * gap * size - 2.0 * pool.numbers[MARGIN]


@kernel
def _try(tree, model, offset, gap, m, pool):
    """Improve the incumbent by priced Lloyd steps from m."""
    u = np.zeros(len(model.pairs.first))
    value, cost = local_search(tree.y, tree.w, model, m, u, np.int64(30))
    if value < pool.numbers[BEST]:
        pool.numbers[BEST], pool.numbers[BEST_COST] = value, cost
        _set_threshold(offset, gap, pool)
        copy_into(pool.best, m)


@kernel
def _consider(n_rows, tree, model, offset, gap, parent, lo, hi, pool, work):
    """Examine a box and keep it if it is still open."""
    quadratic, score, pending, m, effort = work
    pool.counters[EXAMINED] += 1
    threshold = pool.numbers[THRESHOLD]
    bound, split = examine(n_rows, tree, model, lo, hi, threshold, quadratic, score, pending, m, effort)
    bound = max(bound, parent)
    if bound == np.inf:
        return
    if bound < threshold:
        # a bound that lost little shows a solution nearly that good; else look now and then, for half the time at most
        room, affordable = threshold - bound, 2.0 * pool.numbers[TRIED] * len(tree.w) <= effort[SPENT]
        due = pool.counters[EXAMINED] >= 2 * pool.counters[LAST_TRY]
        exact = effort[LOST] <= 0.1 * (pool.numbers[BEST] - pool.numbers[THRESHOLD])
        if exact or (affordable and (due or effort[LOST] <= 0.5 * room)):
            pool.counters[LAST_TRY] = pool.counters[EXAMINED]
            pool.numbers[TRIED] += 30.0
            copy_into(pool.trial, m)
            _try(tree, model, offset, gap, pool.trial, pool)
        if exact or split < 0:  # nothing left to lose: splitting cannot raise the bound
            pool.numbers[PRUNED] = min(pool.numbers[PRUNED], bound)
            return
    if bound >= pool.numbers[THRESHOLD]:
        pool.numbers[PRUNED] = min(pool.numbers[PRUNED], bound)
    else:
        push_box(pool, bound, split, lo, hi)


@entry
def grow_pool(n_rows, tree, model, offset, gap, node_limit, quota, pool):
    """Search on until `quota` units of work are spent, `node_limit` boxes examined, or nothing is open.

    At first counters[EXAMINED] is 0 and the incumbent is set. Returns the work done (rows and cells looked at).
    """
    n_clusters, n_features = model.price.shape
    effort = np.zeros(2)
    work = (
        np.zeros((n_clusters, n_features + 2)), np.zeros((n_clusters, n_features)), np.zeros(512, np.int64),
        np.zeros((n_clusters, n_features)), effort,
    )  # fmt: skip
    lo, hi = np.empty((n_clusters, n_features)), np.empty((n_clusters, n_features))
    effort[SPENT] = pool.numbers[WORK]
    stop = effort[SPENT] + quota
    if pool.counters[EXAMINED] == 0:
        pool.counters[LAST_TRY] = 1
        copy_into(lo, model.lo)
        copy_into(hi, model.hi)
        least = 0.0
        for k in range(n_clusters):
            for d in range(n_features):
                least += min(model.price[k, d] * lo[k, d], model.price[k, d] * hi[k, d])
        if least != 0.0:
            least -= pool.numbers[MARGIN]
        _consider(n_rows, tree, model, offset, gap, least, lo, hi, pool, work)
    while pool.counters[OPEN] > 0 and effort[SPENT] < stop and pool.counters[EXAMINED] < node_limit:
        top = pool.heap[0]
        if pool.bound[top] >= pool.numbers[THRESHOLD]:
            pool.numbers[PRUNED] = min(pool.numbers[PRUNED], pool.bound[top])
            pool.counters[OPEN] = 0
            break
        top = pop_box(pool)
        k, d = pool.branch[top] // n_features, pool.branch[top] % n_features
        parent = pool.bound[top]
        middle = 0.5 * (pool.lo[top, k, d] + pool.hi[top, k, d])
        upper_lo, upper_hi = pool.lo[top].copy(), pool.hi[top].copy()
        copy_into(lo, upper_lo)
        copy_into(hi, upper_hi)
        hi[k, d] = middle
        upper_lo[k, d] = middle
        _consider(n_rows, tree, model, offset, gap, parent, lo, hi, pool, work)
        _consider(n_rows, tree, model, offset, gap, parent, upper_lo, upper_hi, pool, work)
        effort[SPENT] += 20.0
    done = effort[SPENT] - pool.numbers[WORK]
    pool.numbers[WORK] = effort[SPENT]
    return done


@kernel
def pool_bound(pool):
    """Proven bound now, margins taken off. Cuts remove what exceeds the threshold, so nothing above it is proven."""
    bound = min(min(pool.numbers[PRUNED], pool.numbers[DROPPED]), pool.numbers[THRESHOLD])
    if pool.counters[OPEN] > 0:
        bound = min(bound, pool.bound[pool.heap[0]])
    return bound


@kernel
def proven_empty(pool):
    """Whether every box was excluded and none is open: nothing obeys boxes and rule."""
    return pool.counters[EXAMINED] > 0 and pool.counters[OPEN] == 0 and pool_bound(pool) == np.inf


@entry
def begin_pool(rows, price, box, rule, references, start, n_seeds, gap, pool):
    """The scaled problem with an incumbent. Returns (model, offset, whether its numbers are in range)."""
    n_clusters, n_features = price.shape
    model, fine = scaled_model(rows, price, box, rule, references)
    u = np.zeros(len(model.pairs.first))
    offset = 0.0
    for k in range(n_clusters):
        for d in range(n_features):
            offset += model.price[k, d] * (rows.centre[d] / rows.scale)
    value, cost = np.inf, np.inf
    margin = base_margin(model)
    fine = fine and margin < 1e200
    if fine:
        iterations = np.int64(50 if len(rows.w) <= 20_000 else 10)
        value, cost = find_incumbent(rows, model, start, n_seeds, iterations, pool.best, u)
    ordered, largest = np.empty((n_clusters, n_features)), 0.0
    for k in range(n_clusters):
        for d in range(n_features):
            largest = max(largest, abs(pool.best[k, d]))
    if model.symmetric and largest <= LARGEST_REFERENCE:
        for k in range(n_clusters):
            for d in range(n_features):
                ordered[k, d] = np.round(pool.best[k, d] * 2.0**30) / 2.0**30  # differences are exact
        pairs, target = make_pairs(ordered, np.bool_(True)), 256.0 * n_features * ROUNDING
        model = Model(
            model.price, model.lo, model.hi, ordered, pairs, model.magnitudes, ORDER, True, target, model.rounding
        )
    for i in range(len(pool.numbers)):
        pool.numbers[i] = 0.0
        pool.counters[i] = 0
    pool.numbers[BEST], pool.numbers[BEST_COST] = value, cost
    pool.numbers[MARGIN] = margin
    _set_threshold(offset, gap, pool)
    pool.numbers[PRUNED] = np.inf
    pool.numbers[DROPPED] = np.inf
    if fine and value == np.inf and len(model.pairs.first) > 0 and pairs_exclude(model.pairs, model.lo, model.hi):
        pool.counters[EXAMINED] = 1  # and found empty
    return model, offset, fine


@entry
def end_pool(rows, price, box, rule, references, model, fine, gap, pool, out, labels):
    """(bound, value, state) in original units; fills centroids and labels."""
    if excluded(rule, references, box) or (fine and proven_empty(pool)):
        middle_of(box, out)
        return np.inf, np.inf, INFEASIBLE
    bound = least_payment(price, box[0], box[1])
    if fine and pool.counters[EXAMINED] > 0:
        bound = max(bound, unscale_down(rows, price, pool_bound(pool)))
    value, cost = recover(rows, price, box, rule, references, model, pool.best, out, labels)
    allowed = gap * max(abs(value), cost)
    if fine and pool.counters[EXAMINED] > 0 and pool.counters[OPEN] == 0 and pool.numbers[DROPPED] == np.inf:
        # complete: only rounding is between bound and value
        best = pool.numbers[BEST]
        allowed += unscale_down(rows, price, best) - unscale_down(rows, price, best - 4.0 * pool.numbers[MARGIN])
    return min(bound, value), value, OPTIMAL if value < np.inf and value - bound <= allowed else UNFINISHED
