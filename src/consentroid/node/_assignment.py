"""Depth-first search over assignments: exact for few undecided rows.

A search node has assigned the first t rows (in a fixed order). Whatever the rest does,

    objective ≥ min_m [assigned rows at m + price·m]  +  tail_t,
    tail_t = optimal price-free cost of the remaining rows alone        (Koontz, Narendra, Fukunaga; Brusco's RBBA)

or, with small boxes, the sum of the remaining rows' least distances to the boxes. A second bound looks ahead: with
m* the minimiser and W_k the weights of the assigned part, that part exceeds its minimum by at least Σ_k W_k |m_k − m*_k|²;
sharing this curvature equally among the R remaining rows, row j pays at least

    min_k  w_j θ / (w_j + θ) · |y_j − m*_k|²,   θ = W_k / R.

Under the order rule the assigned part carries the rule's multipliers (see `_kernels`), improved where they matter and
inherited by children. The search keeps an explicit stack: it can stop after any number of nodes and go on later.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ._kernels import (
    ORDER,
    ROUNDING,
    clamp,
    cluster_cost,
    kernel,
    minimiser,
    order_violation,
    price_margin,
)
from ._order import ascend_order

# positions in Stack.numbers and Stack.counters
BEST, PRUNED, THRESHOLD, TOLERANCE, BASE_MARGIN = 0, 1, 2, 3, 4
DEPTH, NODES, STATE = 0, 1, 2
RUNNING, FINISHED = 1, 2

ACCEPTED_VIOLATION = 1e-10  # of the order rule while searching; `recover` restores it exactly before a value is told


class Stack(NamedTuple):
    """State of a search, one entry a depth; allocated once and reused."""

    weight: np.ndarray  # (n+1, K)
    total: np.ndarray  # (n+1, K, D)
    square: np.ndarray  # (n+1, K)
    cost: np.ndarray  # (n+1, K) least priced cost of each cluster
    centroids: np.ndarray  # (n+1, K, D) minimisers
    assigned: np.ndarray  # (n+1,) sum of `cost` less the multipliers' margin
    price: np.ndarray  # (n+1, K, D) price shifted by the rule's multipliers
    multipliers: np.ndarray  # (n+1, K, K)
    slack: np.ndarray  # (n+1,) extra error margin owed to the multipliers
    increase: np.ndarray  # (n+1, K)
    queue: np.ndarray  # (n+1, K) children, best first
    n_queue: np.ndarray  # (n+1,)
    at: np.ndarray  # (n+1,) next child
    best: np.ndarray  # (K, D) incumbent
    scratch: np.ndarray  # (4, K, D)
    numbers: np.ndarray
    counters: np.ndarray


class Model(NamedTuple):
    """The priced problem in scaled units; boxes rounded outward."""

    price: np.ndarray  # (K, D)
    lo: np.ndarray
    hi: np.ndarray
    references: np.ndarray  # (K, D); differences are exact
    reach: np.ndarray  # (K, D) max |m|
    magnitudes: np.ndarray  # (3 + K, D), see `price_margin`
    least_weight: float
    rule: int
    symmetric: bool  # clusters are interchangeable: open at most one empty cluster
    target: float  # slack at which the order rule counts as kept, against rounding when mapped back


@kernel
def make_stack(n, n_clusters, n_features):
    k, d = n_clusters, n_features
    return Stack(
        np.zeros((n + 1, k)), np.zeros((n + 1, k, d)), np.zeros((n + 1, k)), np.zeros((n + 1, k)),
        np.zeros((n + 1, k, d)), np.zeros(n + 1), np.zeros((n + 1, k, d)), np.zeros((n + 1, k, k)), np.zeros(n + 1),
        np.zeros((n + 1, k)), np.zeros((n + 1, k), np.int64), np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64),
        np.zeros((k, d)), np.zeros((4, k, d)), np.zeros(8), np.zeros(4, np.int64),
    )  # fmt: skip


@kernel
def _expand(t, y, w, allowed, model, stack):
    """Least increase of each child, sorted."""
    n_clusters, n_features = model.price.shape
    found, opened = 0, False
    for k in range(n_clusters):
        if not allowed[t, k]:
            continue
        weight = stack.weight[t, k]
        if weight == 0.0 and model.symmetric:
            if opened:
                continue
            opened = True
        weight += w[t]
        value = stack.square[t, k]
        for d in range(n_features):
            x = y[t, d]
            value += w[t] * x * x
            a = stack.total[t, k, d] + w[t] * x - 0.5 * stack.price[t, k, d]
            m = clamp(a / weight, model.lo[k, d], model.hi[k, d])
            value += (weight * m - 2.0 * a) * m
        increase = value - stack.cost[t, k]
        stack.increase[t, k] = increase
        i = found
        while i > 0 and stack.increase[t, stack.queue[t, i - 1]] > increase:
            stack.queue[t, i] = stack.queue[t, i - 1]
            i -= 1
        stack.queue[t, i] = k
        found += 1
    stack.n_queue[t] = found
    stack.at[t] = 0


@kernel
def _push(t, k, y, w, model, stack):
    """State of the child that puts row t into cluster k."""
    n_clusters, n_features = model.price.shape
    n = t + 1
    stack.slack[n] = stack.slack[t]
    for c in range(n_clusters):
        stack.weight[n, c] = stack.weight[t, c]
        stack.square[n, c] = stack.square[t, c]
        stack.cost[n, c] = stack.cost[t, c]
        for d in range(n_features):
            stack.total[n, c, d] = stack.total[t, c, d]
            stack.centroids[n, c, d] = stack.centroids[t, c, d]
            stack.price[n, c, d] = stack.price[t, c, d]
    if model.rule == ORDER:
        for c in range(n_clusters):
            for l in range(c + 1, n_clusters):
                stack.multipliers[n, c, l] = stack.multipliers[t, c, l]
    stack.weight[n, k] += w[t]
    for d in range(n_features):
        stack.total[n, k, d] += w[t] * y[t, d]
        stack.square[n, k] += w[t] * y[t, d] * y[t, d]
    stack.cost[n, k] = cluster_cost(
        stack.weight[n, k], stack.total[n, k], stack.square[n, k], stack.price[n, k], model.lo[k], model.hi[k],
        stack.centroids[n, k],
    )  # fmt: skip
    value = -stack.slack[n]
    for c in range(n_clusters):
        value += stack.cost[n, c]
    stack.assigned[n] = value


@kernel
def _ahead(t, y, w, allowed, near, model, stack):
    """The look-ahead bound on what the rows from t on pay beyond the assigned part's minimum."""
    n, n_features = y.shape
    n_clusters = len(model.price)
    remaining = n - t
    total = 0.0
    for j in range(t, n):
        least = np.inf
        for k in range(n_clusters):
            if not allowed[j, k]:
                continue
            share = stack.weight[t, k] / remaining
            squared = 0.0
            for d in range(n_features):
                difference = y[j, d] - stack.centroids[t, k, d]
                squared += difference * difference
            pay = w[j] * share / (w[j] + share) * squared
            least = min(least, max(pay, near[j, k]))
            if least == 0.0:
                break
        total += least
    return total


@kernel
def _violated(t, model, stack):
    """Whether the multipliers at depth t are worth improving: a broken pair, or one held apart without need."""
    n_clusters, n_features = model.price.shape
    for k in range(n_clusters):
        for l in range(k + 1, n_clusters):
            slack = 0.0
            for d in range(n_features):
                n = model.references[k, d] - model.references[l, d]
                slack += n * (stack.centroids[t, k, d] - stack.centroids[t, l, d])
            if slack < 0.0 or (stack.multipliers[t, k, l] > 0.0 and slack > 2.0 * model.target + 1e-9):
                return True
    return False


@kernel
def _hold_order(t, steps, rounds, model, stack):
    """Improve the multipliers at depth t; keeps the better of old and new. Returns the primal violation."""
    n_clusters, n_features = model.price.shape
    u = stack.multipliers[t]
    old = np.empty((n_clusters, n_clusters))
    for k in range(n_clusters):
        for l in range(k + 1, n_clusters):
            old[k, l] = u[k, l]
    shifted, primal, m = stack.scratch[0], stack.scratch[1], stack.scratch[2]
    worst = ascend_order(
        stack.weight[t], stack.total[t], model.price, model.references, model.lo, model.hi, model.target, steps, rounds, u,
        shifted, primal,
    )  # fmt: skip
    extra = price_margin(model.price, model.references, u, model.reach, model.magnitudes, model.least_weight)
    slack = (4 * len(stack.weight) + 4 * n_clusters * n_features + 128) * ROUNDING * extra
    value = -slack
    for k in range(n_clusters):
        stack.scratch[3, k, 0] = cluster_cost(
            stack.weight[t, k], stack.total[t, k], stack.square[t, k], shifted[k], model.lo[k], model.hi[k], m[k]
        )
        value += stack.scratch[3, k, 0]
    if value > stack.assigned[t]:
        stack.assigned[t] = value
        stack.slack[t] = slack
        for k in range(n_clusters):
            stack.cost[t, k] = stack.scratch[3, k, 0]
            for d in range(n_features):
                stack.price[t, k, d] = shifted[k, d]
                stack.centroids[t, k, d] = m[k, d]
    else:
        for k in range(n_clusters):
            for l in range(k + 1, n_clusters):
                u[k, l] = old[k, l]
    return worst


@kernel
def set_incumbent(value, cost, offset, gap, centroids, stack):
    """Record a solution; the pruning threshold follows. `offset` = price·centre belongs to the value."""
    stack.numbers[BEST] = value
    stack.best[:, :] = centroids
    tolerance = 0.5 * gap * max(abs(value + offset), cost)
    stack.numbers[TOLERANCE] = tolerance
    stack.numbers[THRESHOLD] = value - tolerance


@kernel
def _leaf(t, offset, gap, model, stack):
    """All rows assigned: the assigned part is the subtree's bound, its minimiser a candidate."""
    n_clusters, n_features = model.price.shape
    primal = stack.centroids[t]
    worst = 0.0
    if model.rule == ORDER and _violated(t, model, stack):
        worst = _hold_order(t, 40, 12, model, stack)
        primal = stack.scratch[1]
    stack.numbers[PRUNED] = min(stack.numbers[PRUNED], stack.assigned[t])
    if worst > ACCEPTED_VIOLATION:
        return
    value, paid = 0.0, 0.0
    for k in range(n_clusters):
        value += stack.square[t, k]
        for d in range(n_features):
            m = primal[k, d]
            value += (stack.weight[t, k] * m - 2.0 * stack.total[t, k, d]) * m
            paid += model.price[k, d] * m
    if value + paid < stack.numbers[BEST]:
        set_incumbent(value + paid, value, offset, gap, primal, stack)


@kernel
def start_search(n, y, w, allowed, tail, model, stack):
    """Root from whatever is merged into depth 0 (weight, total, square)."""
    n_clusters = len(model.price)
    stack.slack[0] = 0.0
    stack.multipliers[0, :, :] = 0.0
    stack.price[0, :, :] = model.price
    value = 0.0
    for k in range(n_clusters):
        stack.cost[0, k] = cluster_cost(
            stack.weight[0, k], stack.total[0, k], stack.square[0, k], model.price[k], model.lo[k], model.hi[k],
            stack.centroids[0, k],
        )  # fmt: skip
        value += stack.cost[0, k]
    stack.assigned[0] = value
    stack.numbers[PRUNED] = np.inf
    stack.counters[DEPTH] = 0
    stack.counters[NODES] = 0
    stack.counters[STATE] = RUNNING


@kernel
def run_search(n, y, w, allowed, near, tail, model, offset, gap, node_limit, quota, look, stack):
    """Search on; at most `quota` further nodes and `node_limit` in all. Returns the nodes spent.

    Rows y (n, D) in search order; `allowed` (n, K) candidates; `near` (n, K) weighted least distances to the boxes;
    `tail` (n+1,) proven bounds on rows t, t+1, ... Afterwards `open_bound` is valid.
    """
    spent = 0
    if stack.counters[NODES] == 0:
        if model.rule == ORDER and _violated(0, model, stack):
            _hold_order(0, 20, 3, model, stack)
        stack.counters[NODES] = 1
        spent = 1
        if n == 0:
            _leaf(0, offset, gap, model, stack)
            stack.counters[STATE] = FINISHED
            return spent
        bound = stack.assigned[0] + max(tail[0], _ahead(0, y, w, allowed, near, model, stack))
        if bound >= stack.numbers[THRESHOLD]:
            stack.numbers[PRUNED] = bound
            stack.counters[STATE] = FINISHED
            return spent
        _expand(0, y, w, allowed, model, stack)
    while stack.counters[STATE] == RUNNING and spent < quota and stack.counters[NODES] < node_limit:
        t = stack.counters[DEPTH]
        i = stack.at[t]
        if i >= stack.n_queue[t]:
            if t == 0:
                stack.counters[STATE] = FINISHED
            else:
                stack.counters[DEPTH] = t - 1
            continue
        k = stack.queue[t, i]
        bound = stack.assigned[t] + stack.increase[t, k] + tail[t + 1]
        if bound >= stack.numbers[THRESHOLD]:
            stack.numbers[PRUNED] = min(stack.numbers[PRUNED], bound)
            stack.at[t] = stack.n_queue[t]
            continue
        stack.at[t] = i + 1
        _push(t, k, y, w, model, stack)
        spent += 1
        stack.counters[NODES] += 1
        if t + 1 == n:
            _leaf(t + 1, offset, gap, model, stack)
            continue
        if look:
            bound = stack.assigned[t + 1] + _ahead(t + 1, y, w, allowed, near, model, stack)
            if bound >= stack.numbers[THRESHOLD]:
                stack.numbers[PRUNED] = min(stack.numbers[PRUNED], bound)
                continue
        if model.rule == ORDER and _violated(t + 1, model, stack):
            _hold_order(t + 1, 3, 1, model, stack)
            bound = stack.assigned[t + 1] + tail[t + 1]
            if look:
                bound = max(bound, stack.assigned[t + 1] + _ahead(t + 1, y, w, allowed, near, model, stack))
            if bound >= stack.numbers[THRESHOLD]:
                stack.numbers[PRUNED] = min(stack.numbers[PRUNED], bound)
                continue
        _expand(t + 1, y, w, allowed, model, stack)
        stack.counters[DEPTH] = t + 1
    return spent


@kernel
def open_bound(n, y, w, allowed, near, tail, model, stack):
    """Bound on the whole problem now: the least over pruned, solved and open subtrees (margins not yet taken off)."""
    bound = min(stack.numbers[PRUNED], stack.numbers[BEST])
    if stack.counters[STATE] != RUNNING:
        return bound
    if stack.counters[NODES] <= 1:
        return min(bound, stack.assigned[0] + max(tail[0], _ahead(0, y, w, allowed, near, model, stack)))
    for t in range(stack.counters[DEPTH] + 1):
        if stack.at[t] < stack.n_queue[t]:
            k = stack.queue[t, stack.at[t]]
            bound = min(bound, stack.assigned[t] + max(stack.increase[t, k], 0.0) + tail[t + 1])
    return bound


@kernel
def local_search(y, w, model, m, labels, sums, weights, iterations):
    """Priced Lloyd steps in the boxes and under the order rule, from m, in place; returns (value, cost)."""
    n, n_features = y.shape
    n_clusters = len(m)
    u = np.zeros((n_clusters, n_clusters))
    shifted = np.empty((n_clusters, n_features))
    last = np.inf
    trial = np.empty((n_clusters, n_features))
    best_cost = np.inf
    for k in range(n_clusters):
        for d in range(n_features):
            trial[k, d] = clamp(m[k, d], model.lo[k, d], model.hi[k, d])
    for i in range(iterations + 1):
        feasible = True
        if model.rule == ORDER:
            feasible = order_violation(model.references, trial, 0.5 * model.target) <= ACCEPTED_VIOLATION
            if not feasible and i > 0:
                u[:, :] = 0.0
                worst = ascend_order(
                    weights, sums, model.price, model.references, model.lo, model.hi, model.target, 40, 6, u, shifted,
                    trial,
                )  # fmt: skip
                feasible = worst <= ACCEPTED_VIOLATION
        cost, paid = 0.0, 0.0
        weights[:] = 0.0
        sums[:, :] = 0.0
        for j in range(n):
            least, label = np.inf, 0
            for k in range(n_clusters):
                squared = 0.0
                for d in range(n_features):
                    difference = y[j, d] - trial[k, d]
                    squared += difference * difference
                if squared < least:
                    least, label = squared, k
            labels[j] = label
            cost += w[j] * least
            weights[label] += w[j]
            for d in range(n_features):
                sums[label, d] += w[j] * y[j, d]
        for k in range(n_clusters):
            for d in range(n_features):
                paid += model.price[k, d] * trial[k, d]
        if feasible:
            if cost + paid >= last - 1e-15 * abs(last):
                if cost + paid < last:
                    last, best_cost = cost + paid, cost
                    m[:, :] = trial
                break
            last, best_cost = cost + paid, cost
            m[:, :] = trial
        elif i > 5 and last < np.inf:
            break
        for k in range(n_clusters):
            for d in range(n_features):
                a = sums[k, d] - 0.5 * model.price[k, d]
                if weights[k] == 0.0 and a == 0.0:
                    continue
                trial[k, d] = minimiser(weights[k], a, model.lo[k, d], model.hi[k, d])
    return last, best_cost
