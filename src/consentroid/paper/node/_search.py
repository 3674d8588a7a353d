"""Depth-first search over assignments: exact for few undecided rows.

A search node has assigned the first s rows of a fixed order. Whatever the rest does,

    objective ≥ min_m [assigned rows at m + price·m]  +  T_s,

T_s = optimal price-free cost of the remaining rows alone (the repetitive branch and bound of Koontz, Narendra, Fukunaga
and Brusco), computed once from the last row upwards and kept; with small boxes, the sum of the remaining rows' least
distances to them. A second bound looks ahead from the assigned part, see `_ahead`.

Under the order rule the assigned part carries the rule's multipliers (see `_order`), improved where they matter and
inherited by children. Interchangeable empty clusters have equal optima, so only one of them is opened. The search keeps
an explicit stack: it can stop after any number of nodes and go on later.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.compile import bare, inlined, kernel
from ._kernels import clamp, copy_into
from ._order import SQUARE, TOTAL, WEIGHT, Pairs, ascend_order, order_violation, price_margin, shift_price
from ._order_interior import settle_order
from ._separation import MOST_FEATURES, n_cones, separable
from ._state import BEST, BEST_COST, DEPTH, FINISHED, NODES, NONE, PRUNED, RUNNING, STATE, THRESHOLD

COARSE = 1e-6  # precision of multipliers above the leaves
FEW_STEPS, ALL_STEPS, ONE_ROUND, ALL_ROUNDS = np.int64(3), np.int64(40), np.int64(1), np.int64(12)
SOLVED = 1e-11  # relative gap at which a leaf's multipliers are good enough
ACCEPTED_VIOLATION = 1e-10  # of the order rule while searching; `recover` restores it exactly before a value is told


class Stack(NamedTuple):
    """State of a search, one entry a depth; allocated once and reused."""

    state: np.ndarray  # (n+1, K, D+2): weight, squares and weighted sum of the assigned rows
    price: np.ndarray  # (n+1, K, D): price shifted by the rule's multipliers
    multipliers: np.ndarray  # (n+1, K(K−1)/2), one a pair of the rule
    bounds: np.ndarray  # (n+1, K+1): bound of each child, and the multipliers' error margin last
    queue: np.ndarray  # (n+1, K+2): children, best first; how many; the next one
    best: np.ndarray  # (K, D): incumbent
    numbers: np.ndarray
    counters: np.ndarray
    label: np.ndarray  # (n,) cluster of each assigned row
    cones: np.ndarray  # (n+1, pairs, 4), see `_separation`
    trial: np.ndarray  # (K(K−1)/2,) from here on: scratch
    shifted: np.ndarray  # (K, D)
    m: np.ndarray  # (K, D)
    trial_m: np.ndarray  # (K, D)
    primal: np.ndarray  # (K, D)
    base: np.ndarray  # (K,)


class Model(NamedTuple):
    """The priced problem in scaled units; boxes rounded outward."""

    price: np.ndarray  # (K, D)
    lo: np.ndarray
    hi: np.ndarray
    references: np.ndarray  # (K, D); differences are exact
    pairs: Pairs
    magnitudes: np.ndarray  # see `price_margin`
    rule: int
    symmetric: bool  # clusters are interchangeable
    target: float  # slack at which the order rule counts as kept, against rounding when mapped back
    rounding: float  # relative error of an assigned part, see `relative_rounding`


class Left(NamedTuple):
    """The rows left to the search, in its order."""

    y: np.ndarray  # (n, D)
    w: np.ndarray  # (n,)
    allowed: np.ndarray  # (n, K) clusters each row may join
    near: np.ndarray  # (n, K) weighted least distance to each box
    tail: np.ndarray  # (n+1,) proven lower bounds on T_s


def new_stack(n, n_clusters, n_features):
    k, d = n_clusters, n_features
    pairs = k * (k - 1) // 2
    return Stack(
        np.zeros((n + 1, k, d + 2)), np.zeros((n + 1, k, d)), np.zeros((n + 1, pairs)), np.zeros((n + 1, k + 1)),
        np.zeros((n + 1, k + 2), np.int64), np.zeros((k, d)), np.zeros(8), np.zeros(4, np.int64), np.zeros(n, np.int64),
        np.zeros((n + 1, n_cones(k, d), 4)), np.zeros(pairs), np.zeros((k, d)), np.zeros((k, d)), np.zeros((k, d)),
        np.zeros((k, d)), np.zeros(k),
    )  # fmt: skip


make_stack = kernel(new_stack)


@inlined
def enqueue(k, found, bounds, queue):
    """Put child k behind those of the `found` queued ones that are no worse."""
    i = found
    while i > 0 and bounds[queue[i - 1]] > bounds[k]:
        queue[i] = queue[i - 1]
        i -= 1
    queue[i] = k


@inlined
def _expand(s, n_clusters, n_features, left, model, stack, base, symmetric):
    """Bounds of the children that assign row s, sorted into the queue."""
    together = left.tail[s + 1] - stack.bounds[s, n_clusters]
    w = left.w[s]
    for k in range(n_clusters):
        weight, value = stack.state[s, k, WEIGHT], stack.state[s, k, SQUARE]
        joined = value
        for d in range(n_features):
            lo, hi = model.lo[k, d], model.hi[k, d]
            a = stack.state[s, k, TOTAL + d] - 0.5 * stack.price[s, k, d]
            m = clamp(a / weight, lo, hi) if weight > 0.0 else (hi if a > 0.0 else lo)
            value += (weight * m - 2.0 * a) * m
            x = left.y[s, d]
            a += w * x
            m = clamp(a / (weight + w), lo, hi)
            joined += w * x * x + ((weight + w) * m - 2.0 * a) * m
        together += value
        base[k] = joined - value
    found, opened = 0, False
    for k in range(n_clusters):
        if not left.allowed[s, k]:
            continue
        if symmetric and stack.state[s, k, WEIGHT] == 0.0:
            if opened:
                continue
            opened = True
        stack.bounds[s, k] = together + base[k]
        enqueue(k, found, stack.bounds[s], stack.queue[s])
        found += 1
    stack.queue[s, n_clusters] = found
    stack.queue[s, n_clusters + 1] = 0


@inlined
def _push(s, k, n_clusters, n_features, left, stack, n_pairs):
    """State of the child that puts row s into cluster k."""
    for c in range(n_clusters):
        for i in range(n_features + 2):
            stack.state[s + 1, c, i] = stack.state[s, c, i]
        for d in range(n_features):
            stack.price[s + 1, c, d] = stack.price[s, c, d]
    for p in range(n_pairs):
        stack.multipliers[s + 1, p] = stack.multipliers[s, p]
    stack.bounds[s + 1, n_clusters] = stack.bounds[s, n_clusters]
    w = left.w[s]
    stack.state[s + 1, k, WEIGHT] += w
    for d in range(n_features):
        x = left.y[s, d]
        stack.state[s + 1, k, SQUARE] += w * x * x
        stack.state[s + 1, k, TOTAL + d] += w * x


@inlined
def _assigned_part(s, n_clusters, n_features, state, price, model, m):
    """Least cost of the rows assigned at depth s plus price·m; fills the minimiser."""
    total = 0.0
    for k in range(n_clusters):
        weight = state[s, k, WEIGHT]
        total += state[s, k, SQUARE]
        for d in range(n_features):
            lo, hi = model.lo[k, d], model.hi[k, d]
            a = state[s, k, TOTAL + d] - 0.5 * price[k, d]
            if weight > 0.0:
                x = clamp(a / weight, lo, hi)
            elif a != 0.0:
                x = hi if a > 0.0 else lo
            else:
                x = clamp(0.0, lo, hi)
            m[k, d] = x
            total += (weight * x - 2.0 * a) * x
    return total


@inlined
def _hold_order(s, n_clusters, n_features, at_leaf, goal, model, stack, m, primal):
    """Improve the order rule's multipliers at depth s. Returns (bound on the assigned part, primal violation).

    Above the leaves it ends when the bound reaches `goal`, or after a few steps. `m` is left at the minimiser of the
    bound, `primal` at centroids that nearly obey the rule.
    """
    pairs = model.pairs
    violation = 0.0
    value = _assigned_part(s, n_clusters, n_features, stack.state, stack.price[s], model, m)
    value -= stack.bounds[s, n_clusters]
    idle = True
    for p in range(len(pairs.first)):
        idle = idle and stack.multipliers[s, p] == 0.0
    if idle and order_violation(pairs, m, 0.0) <= 0.0:
        copy_into(primal, m)
    else:
        squares, steps, rounds, precision = 0.0, ALL_STEPS, ALL_ROUNDS, 0.0
        if not at_leaf:
            steps, rounds, precision = FEW_STEPS, ONE_ROUND, COARSE
            for k in range(n_clusters):
                squares += stack.state[s, k, SQUARE]
        u = stack.trial[: len(pairs.first)]
        for p in range(len(u)):
            u[p] = stack.multipliers[s, p]
        for attempt in range(2):
            if attempt == 0:
                violation = ascend_order(
                    pairs, stack.state[s], model.price, model.lo, model.hi, model.target, steps, rounds, goal - squares,
                    precision, u, stack.shifted, primal,
                )  # fmt: skip
            else:
                settle_order(pairs, stack.state[s], model.price, model.lo, model.hi, model.target, u, primal)
                shift_price(model.price, pairs, u, stack.shifted)
                violation = order_violation(pairs, primal, 0.5 * model.target)
            margin = model.rounding * price_margin(model.price, pairs, u, model.magnitudes)
            improved = _assigned_part(s, n_clusters, n_features, stack.state, stack.shifted, model, stack.trial_m)
            improved -= margin
            if not at_leaf:
                break
            shown = 0.0  # what the centroids attain: a leaf is solved where that is the bound
            for k in range(n_clusters):
                shown += stack.state[s, k, SQUARE]
                for d in range(n_features):
                    x = primal[k, d]
                    a = stack.state[s, k, TOTAL + d] - 0.5 * model.price[k, d]
                    shown += (stack.state[s, k, WEIGHT] * x - 2.0 * a) * x
            if violation <= ACCEPTED_VIOLATION and shown - improved <= SOLVED * (1.0 + abs(shown)):
                break
        if improved > value:
            value = improved
            for p in range(len(u)):
                stack.multipliers[s, p] = u[p]
            copy_into(stack.price[s], stack.shifted)
            copy_into(m, stack.trial_m)
            stack.bounds[s, n_clusters] = margin
    return value, violation


@inlined
def _ahead(s, n, n_clusters, n_features, missing, left, stack, m, factor):
    """What the rows from s on pay at least on top of the assigned part's minimum, which is at m; stops at `missing`.

    That part exceeds its minimum by Σ_k W_k |m_k − m*_k|² or more. Shared among the R remaining rows, row j pays at
    least min_k w_j θ / (w_j + θ) |y_j − m*_k|² with θ = W_k / R, and never less than its distance to the box.
    """
    value, w = 0.0, -1.0
    for j in range(s, n):
        if left.w[j] != w:
            w = left.w[j]
            for k in range(n_clusters):
                share = stack.state[s, k, WEIGHT] / (n - s)
                factor[k] = w * share / (w + share)
        least = np.inf
        for k in range(n_clusters):
            if left.allowed[j, k]:
                squared = 0.0
                for d in range(n_features):
                    difference = left.y[j, d] - m[k, d]
                    squared += difference * difference
                least = min(least, max(factor[k] * squared, left.near[j, k]))
        value += least
        if value >= missing:
            break
    return value


@inlined
def _leaf(n, n_clusters, n_features, bound, violation, offset, gap, model, stack, primal):
    """All rows assigned: the assigned part is the subtree's bound, its minimiser a candidate."""
    stack.numbers[PRUNED] = min(stack.numbers[PRUNED], bound)
    if violation <= ACCEPTED_VIOLATION:
        value, paid = 0.0, 0.0
        for k in range(n_clusters):
            value += stack.state[n, k, SQUARE]
            for d in range(n_features):
                x = primal[k, d]
                value += (stack.state[n, k, WEIGHT] * x - 2.0 * stack.state[n, k, TOTAL + d]) * x
                paid += model.price[k, d] * x
        if value + paid < stack.numbers[BEST]:
            stack.numbers[BEST] = value + paid
            stack.numbers[BEST_COST] = value
            stack.numbers[THRESHOLD] = value + paid - 0.5 * gap * max(abs(value + paid + offset), value)
            copy_into(stack.best, primal)


@bare
def run_search(t, n, left, model, offset, gap, node_limit, quota, stack):
    """Search the problem of rows t..n−1 on; at most `quota` further nodes and `node_limit` in all.

    Depth t must hold the root (state, price, multipliers, margin), numbers the incumbent and threshold; counters[STATE]
    = RUNNING, counters[NODES] = 0 at first. Returns the nodes spent; `open_bound` is valid at any time.
    """
    n_clusters, n_features = model.price.shape
    spent, few_features = 0, n_features <= MOST_FEATURES
    m, primal, base = stack.m, stack.primal, stack.base
    entering, s = stack.counters[NODES] == 0, stack.counters[DEPTH]
    if entering:
        stack.numbers[PRUNED] = np.inf
        s = t - 1
    while stack.counters[STATE] == RUNNING and (entering or (spent < quota and stack.counters[NODES] < node_limit)):
        if not entering:
            i = stack.queue[s, n_clusters + 1]
            if i >= stack.queue[s, n_clusters]:
                if s == t:
                    stack.counters[STATE] = FINISHED
                else:
                    s -= 1
                continue
            k = stack.queue[s, i]
            if stack.bounds[s, k] >= stack.numbers[THRESHOLD]:
                stack.numbers[PRUNED] = min(stack.numbers[PRUNED], stack.bounds[s, k])
                stack.queue[s, n_clusters + 1] = n_clusters + 1  # sorted: the others are no better
                continue
            stack.queue[s, n_clusters + 1] = i + 1
            if few_features and not separable(t, s, k, n_clusters, left.y, stack.label, stack.cones):
                continue
            _push(s, k, n_clusters, n_features, left, stack, len(model.pairs.first))
        spent += 1
        stack.counters[NODES] += 1
        at_leaf = s + 1 == n
        if at_leaf or not entering:
            if model.rule != NONE:
                goal = np.inf if at_leaf else stack.numbers[THRESHOLD] - left.tail[s + 1]
                assigned, violation = _hold_order(s + 1, n_clusters, n_features, at_leaf, goal, model, stack, m, primal)
            else:
                violation = 0.0
                assigned = _assigned_part(s + 1, n_clusters, n_features, stack.state, stack.price[s + 1], model, primal)
                copy_into(m, primal)
            if at_leaf:
                _leaf(n, n_clusters, n_features, assigned, violation, offset, gap, model, stack, primal)
                if entering:
                    stack.counters[STATE] = FINISHED
                continue
            bound = assigned + left.tail[s + 1]
            if bound < stack.numbers[THRESHOLD]:
                missing = stack.numbers[THRESHOLD] - assigned
                bound = assigned + _ahead(s + 1, n, n_clusters, n_features, missing, left, stack, m, base)
            if bound >= stack.numbers[THRESHOLD]:
                stack.numbers[PRUNED] = min(stack.numbers[PRUNED], bound)
                continue
        s += 1
        _expand(s, n_clusters, n_features, left, model, stack, base, model.symmetric)
        entering = False
    stack.counters[DEPTH] = s
    return spent


@bare
def open_bound(t, n_clusters, stack):
    """Bound on the searched problem now: the least over pruned, solved and open subtrees (base margin not yet off)."""
    bound = min(stack.numbers[PRUNED], stack.numbers[BEST])
    if stack.counters[STATE] == RUNNING:
        for s in range(t, stack.counters[DEPTH] + 1):
            i = stack.queue[s, n_clusters + 1]
            if i < stack.queue[s, n_clusters]:
                bound = min(bound, stack.bounds[s, stack.queue[s, i]])
    return bound
