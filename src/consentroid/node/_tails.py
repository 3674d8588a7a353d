"""What a node's rows cost by themselves: search order, price-free tail bounds and starts. Done once a node and K."""

from __future__ import annotations

import numpy as np

from ._assignment import (
    BEST,
    FINISHED,
    NODES,
    STATE,
    THRESHOLD,
    Model,
    local_search,
    make_stack,
    open_bound,
    run_search,
    set_incumbent,
    start_search,
)
from ._kernels import NONE, ROUNDING, TINY, kernel, price_margin


@kernel
def spread_order(y, w):
    """Rows from the outside in: each next row is the one farthest from those already taken."""
    n, n_features = y.shape
    order = np.empty(n, np.int64)
    nearest = np.full(n, np.inf)
    mean = np.zeros(n_features)
    for j in range(n):
        for d in range(n_features):
            mean[d] += y[j, d] / n
    first, farthest = 0, -1.0
    for j in range(n):
        squared = 0.0
        for d in range(n_features):
            squared += (y[j, d] - mean[d]) ** 2
        if squared > farthest:
            first, farthest = j, squared
    taken = np.zeros(n, np.bool_)
    for i in range(n):
        order[i] = first
        taken[first] = True
        best = -1.0
        following = -1
        for j in range(n):
            if taken[j]:
                continue
            squared = 0.0
            for d in range(n_features):
                squared += (y[j, d] - y[first, d]) ** 2
            nearest[j] = min(nearest[j], squared)
            if nearest[j] * w[j] > best:
                best, following = nearest[j] * w[j], j
        first = following
    return order


@kernel
def _free_model(y, w, n_clusters):
    n, n_features = y.shape
    k, d = n_clusters, n_features
    magnitudes = np.zeros((3 + k, d))
    square = 0.0
    for j in range(n):
        for f in range(d):
            magnitudes[0, f] += w[j] * abs(y[j, f])
            magnitudes[1, f] += w[j]
            magnitudes[2, f] = max(magnitudes[2, f], abs(y[j, f]))
            square += w[j] * y[j, f] ** 2
    model = Model(
        np.zeros((k, d)), np.full((k, d), -2.0), np.full((k, d), 2.0), np.zeros((k, d)), np.full((k, d), 2.0),
        magnitudes, w.min(), NONE, True, 0.0,
    )  # fmt: skip
    extra = price_margin(
        model.price, model.references, np.zeros((k, k)), model.reach, magnitudes, model.least_weight
    )
    return model, square + extra


@kernel
def lloyd_seeds(y, w, n_clusters, n_runs, n_seeds):
    """Distinct local optima of the price-free problem from greedy random starts, best first (fixed generator)."""
    n, n_features = y.shape
    model, _ = _free_model(y, w, n_clusters)
    labels, sums, weights = np.zeros(n, np.int64), np.zeros((n_clusters, n_features)), np.zeros(n_clusters)
    seeds = np.zeros((n_seeds, n_clusters, n_features))
    values = np.full(n_seeds, np.inf)
    state = np.uint64(88172645463325252)
    distance = np.empty(n)
    m = np.empty((n_clusters, n_features))
    for _ in range(n_runs):
        for k in range(n_clusters):
            total = 0.0
            for j in range(n):
                least = np.inf if k > 0 else 1.0
                for c in range(k):
                    squared = 0.0
                    for d in range(n_features):
                        squared += (y[j, d] - m[c, d]) ** 2
                    least = min(least, squared)
                distance[j] = w[j] * least
                total += distance[j]
            state ^= state << np.uint64(13)
            state ^= state >> np.uint64(7)
            state ^= state << np.uint64(17)
            draw = (state >> np.uint64(11)) * 2.0**-53 * total
            chosen = n - 1
            for j in range(n):
                draw -= distance[j]
                if draw < 0.0:
                    chosen = j
                    break
            m[k] = y[chosen]
        value, _cost = local_search(y, w, model, m, labels, sums, weights, 100)
        i = n_seeds
        known = False
        for s in range(n_seeds):
            if abs(values[s] - value) <= 1e-9 * abs(value):
                known = True
        if known:
            continue
        while i > 0 and value < values[i - 1]:
            i -= 1
        if i < n_seeds:
            for s in range(n_seeds - 1, i, -1):
                values[s] = values[s - 1]
                seeds[s] = seeds[s - 1]
            values[i] = value
            seeds[i] = m
    found = 0
    for s in range(n_seeds):
        found += values[s] < np.inf
    return seeds[:found].copy()


@kernel
def tail_bounds(y, w, n_original, n_clusters, seeds, node_limit, total_limit, tail, best):
    """Proven price-free cost of rows t, t+1, ... for every t, from the last row upwards.

    Each problem starts from the last one's solution; where `node_limit` stops the search, the open bound stands in.
    `best` receives the solution of the whole. Fills tail (n+1,), returns the nodes spent.
    """
    n, n_features = y.shape
    stack = make_stack(n, n_clusters, n_features)
    allowed = np.ones((n, n_clusters), np.bool_)
    near = np.zeros((n, n_clusters))
    labels, sums, weights = np.zeros(n, np.int64), np.zeros((n_clusters, n_features)), np.zeros(n_clusters)
    trial = np.zeros((n_clusters, n_features))
    best[:, :] = 0.0
    tail[n] = 0.0
    spent = 0
    for t in range(n - 1, -1, -1):
        rows, weight = y[t:], w[t:]
        model, size = _free_model(rows, weight, n_clusters)
        margin = (4 * n_original + 4 * n_clusters * n_features + 128) * ROUNDING * size + TINY
        stack.numbers[BEST] = np.inf
        stack.numbers[THRESHOLD] = np.inf
        for s in range(-1 - n_clusters, len(seeds)):
            if s >= 0:
                trial[:, :] = seeds[s]
            else:
                trial[:, :] = best
                if s > -1 - n_clusters:
                    trial[-s - 1] = y[t]
            value, cost = local_search(rows, weight, model, trial, labels, sums, weights, 100)
            if value < stack.numbers[BEST]:
                set_incumbent(value, cost, 0.0, 1e-12, trial, stack)
        stack.weight[0, :] = 0.0
        stack.square[0, :] = 0.0
        stack.total[0, :, :] = 0.0
        start_search(n - t, rows, weight, allowed, tail[t:], model, stack)
        limit = min(node_limit, total_limit - spent)
        tail[t] = tail[t + 1]  # the search's own root bound: more rows never cost less
        if limit > 0:
            run_search(n - t, rows, weight, allowed, near, tail[t:], model, 0.0, 1e-12, limit, limit, True, stack)
            bound = open_bound(n - t, rows, weight, allowed, near, tail[t:], model, stack) - margin
            spent += stack.counters[NODES]
            tail[t] = max(tail[t], bound)
        best[:, :] = stack.best
    return spent, stack.counters[STATE] == FINISHED
