"""Good solutions to begin with: priced Lloyd steps inside boxes and order rule, and price-free local optima."""

from __future__ import annotations

import numpy as np

from ._kernels import ORDER, clamp, copy_into, entry, kernel, minimiser, order_violation
from ._order import ascend_order
from ._search import ACCEPTED_VIOLATION


@kernel
def assign(y, w, m, weights, sums):
    """Cost of the rows at centroids m; fills each cluster's weight and weighted sum."""
    n, n_features = y.shape
    n_clusters = len(m)
    cost = 0.0
    weights[:] = 0.0
    sums[:, :] = 0.0
    for j in range(n):
        least, label = np.inf, 0
        for k in range(n_clusters):
            squared = 0.0
            for d in range(n_features):
                difference = y[j, d] - m[k, d]
                squared += difference * difference
            if squared < least:
                least, label = squared, k
        cost += w[j] * least
        weights[label] += w[j]
        for d in range(n_features):
            sums[label, d] += w[j] * y[j, d]
    return cost


@kernel
def local_search(y, w, model, m, u, iterations):
    """Priced Lloyd steps from m, in place; returns (value, cost), leaves the order rule's multipliers in u (K, K)."""
    n_clusters, n_features = m.shape
    weights, sums = np.empty(n_clusters), np.empty((n_clusters, n_features))
    shifted, trial = np.empty((n_clusters, n_features)), np.empty((n_clusters, n_features))
    trial_u = np.zeros((n_clusters, n_clusters))
    for k in range(n_clusters):
        for d in range(n_features):
            trial[k, d] = clamp(m[k, d], model.lo[k, d], model.hi[k, d])
    last, last_cost = np.inf, np.inf
    u[:, :] = 0.0
    for i in range(iterations + 1):
        feasible = True
        if model.rule == ORDER:
            trial_u[:, :] = 0.0
            feasible = order_violation(model.references, trial, 0.5 * model.target) <= ACCEPTED_VIOLATION
            if not feasible and i > 0:
                violation = ascend_order(
                    weights, sums, model.price, model.references, model.lo, model.hi, model.target, 40, 6, trial_u,
                    shifted, trial,
                )  # fmt: skip
                feasible = violation <= ACCEPTED_VIOLATION
        cost, paid = assign(y, w, trial, weights, sums), 0.0
        for k in range(n_clusters):
            for d in range(n_features):
                paid += model.price[k, d] * trial[k, d]
        if feasible:
            improved = cost + paid < last - 1e-14 * abs(last)
            if cost + paid < last:
                last, last_cost = cost + paid, cost
                copy_into(m, trial)
                copy_into(u, trial_u)
            if not improved and i > 0:
                break
        elif i > 5 and last < np.inf:
            break
        for k in range(n_clusters):
            for d in range(n_features):
                a = sums[k, d] - 0.5 * model.price[k, d]
                if weights[k] > 0.0 or a != 0.0:
                    trial[k, d] = minimiser(weights[k], a, model.lo[k, d], model.hi[k, d])
    return last, last_cost


@entry
def lloyd_seeds(y, w, n_clusters, n_runs, n_seeds):
    """Distinct local optima of the price-free problem from greedy random starts, best first (fixed generator)."""
    n, n_features = y.shape
    weights, sums = np.empty(n_clusters), np.empty((n_clusters, n_features))
    seeds = np.zeros((n_seeds, n_clusters, n_features))
    values = np.full(n_seeds, np.inf)
    state = np.uint64(88172645463325252)
    nearest = np.empty(n)
    m = np.empty((n_clusters, n_features))
    for _ in range(n_runs):
        nearest[:] = np.inf
        for k in range(n_clusters):
            total = 0.0
            for j in range(n):
                if k > 0:
                    squared = 0.0
                    for d in range(n_features):
                        squared += (y[j, d] - m[k - 1, d]) ** 2
                    nearest[j] = min(nearest[j], squared)
                total += w[j] * (nearest[j] if k > 0 else 1.0)
            state ^= state << np.uint64(13)
            state ^= state >> np.uint64(7)
            state ^= state << np.uint64(17)
            draw = (state >> np.uint64(11)) * 2.0**-53 * total
            chosen = n - 1
            for j in range(n):
                draw -= w[j] * (nearest[j] if k > 0 else 1.0)
                if draw < 0.0:
                    chosen = j
                    break
            m[k] = y[chosen]
        value = np.inf
        for _step in range(100):
            cost = assign(y, w, m, weights, sums)
            if cost >= value * (1.0 - 1e-12):
                break
            value = cost
            for k in range(n_clusters):
                if weights[k] > 0.0:
                    m[k] = sums[k] / weights[k]
        known = False
        for s in range(n_seeds):
            known = known or abs(values[s] - value) <= 1e-9 * abs(value)
        i = n_seeds
        while i > 0 and value < values[i - 1]:
            i -= 1
        if i < n_seeds and not known:
            for s in range(n_seeds - 1, i, -1):
                values[s] = values[s - 1]
                seeds[s] = seeds[s - 1]
            values[i] = value
            seeds[i] = m
    found = 0
    for s in range(n_seeds):
        found += values[s] < np.inf
    return seeds[:found].copy()
