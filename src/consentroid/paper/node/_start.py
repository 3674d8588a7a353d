"""Good solutions to begin with: price-free local optima, labelled for the price, and priced Lloyd steps from there."""

from __future__ import annotations

import numpy as np

from ...core.compile import bare, entry, kernel
from ._kernels import clamp, copy_into, minimiser
from ._order import TOTAL, WEIGHT, ascend_order, order_violation
from ._search import ACCEPTED_VIOLATION, ALL_STEPS
from ._state import NONE, WEIGHT_SUM

LLOYD_ROUNDS = np.int64(6)


@bare
def assign(y, w, m, part):
    """Cost of the rows at centroids m; fills each cluster's weight and weighted sum in part (K, D+2)."""
    n, n_features = y.shape
    n_clusters = len(m)
    cost = 0.0
    for k in range(n_clusters):
        for i in range(n_features + 2):
            part[k, i] = 0.0
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
        part[label, WEIGHT] += w[j]
        for d in range(n_features):
            part[label, TOTAL + d] += w[j] * y[j, d]
    return cost


@kernel
def local_search(y, w, model, m, u, iterations):
    """Priced Lloyd steps from m, in place; returns (value, cost), leaves the order rule's multipliers in u (P,)."""
    n_clusters, n_features = m.shape
    part = np.empty((n_clusters, n_features + 2))
    shifted, trial = np.empty((n_clusters, n_features)), np.empty((n_clusters, n_features))
    trial_u = np.zeros(len(u))
    for k in range(n_clusters):
        for d in range(n_features):
            trial[k, d] = clamp(m[k, d], model.lo[k, d], model.hi[k, d])
    last, last_cost = np.inf, np.inf
    for p in range(len(u)):
        u[p] = 0.0
    for i in range(iterations + 1):
        feasible = True
        if model.rule != NONE:
            for p in range(len(u)):
                trial_u[p] = 0.0
            feasible = order_violation(model.pairs, trial, 0.5 * model.target) <= ACCEPTED_VIOLATION
            if not feasible and i > 0:
                violation = ascend_order(
                    model.pairs, part, model.price, model.lo, model.hi, model.target, ALL_STEPS, LLOYD_ROUNDS, np.inf,
                    0.0, trial_u, shifted, trial,
                )  # fmt: skip
                feasible = violation <= ACCEPTED_VIOLATION
        cost, paid = assign(y, w, trial, part), 0.0
        for k in range(n_clusters):
            for d in range(n_features):
                paid += model.price[k, d] * trial[k, d]
        if feasible:
            improved = cost + paid < last - 1e-14 * abs(last)
            if cost + paid < last:
                last, last_cost = cost + paid, cost
                copy_into(m, trial)
                for p in range(len(u)):
                    u[p] = trial_u[p]
            if not improved and i > 0:
                break
        elif i > 5 and last < np.inf:
            break
        for k in range(n_clusters):
            for d in range(n_features):
                a = part[k, TOTAL + d] - 0.5 * model.price[k, d]
                if part[k, WEIGHT] > 0.0 or a != 0.0:
                    trial[k, d] = minimiser(part[k, WEIGHT], a, model.lo[k, d], model.hi[k, d])
    return last, last_cost


@entry
def lloyd_seeds(y, w, n_clusters, n_runs, n_seeds):
    """Distinct local optima of the price-free problem from greedy random starts, best first (fixed generator)."""
    n, n_features = y.shape
    part = np.empty((n_clusters, n_features + 2))
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
            cost = assign(y, w, m, part)
            if cost >= value * (1.0 - 1e-12):
                break
            value = cost
            for k in range(n_clusters):
                if part[k, WEIGHT] > 0.0:
                    for d in range(n_features):
                        m[k, d] = part[k, TOTAL + d] / part[k, WEIGHT]
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
            if model.rule != NONE:
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
def find_incumbent(rows, model, start, n_seeds, iterations, best, u):
    """Priced Lloyd runs from the start, the price-free solutions and the boxes' centres; returns (value, cost).

    Fills the centroids `best` and the order rule's multipliers u.
    """
    n_clusters, n_features = model.price.shape
    trial, trial_u = np.empty((n_clusters, n_features)), np.zeros(len(u))
    least, least_cost = np.inf, np.inf
    same = True  # boxes with one common centre would start all clusters there
    for k in range(1, n_clusters):
        for d in range(n_features):
            same = same and model.lo[k, d] == model.lo[0, d] and model.hi[k, d] == model.hi[0, d]
    for p in range(len(u)):
        u[p] = 0.0
    for k in range(n_clusters):
        for d in range(n_features):
            best[k, d] = clamp(0.0, model.lo[k, d], model.hi[k, d])
    for i in range(-2, min(n_seeds, len(rows.seeds))):
        if (i == -2 and len(start) == 0) or (i == -1 and same):
            continue
        if i >= 0:
            _best_labelling(rows.seeds[i], model.magnitudes[WEIGHT_SUM, 0], model, trial)
        else:
            for k in range(n_clusters):
                for d in range(n_features):
                    if i == -2:
                        trial[k, d] = (start[k, d] - rows.centre[d]) / rows.scale
                    else:
                        trial[k, d] = 0.5 * (model.lo[k, d] + model.hi[k, d])
        value, cost = local_search(rows.y, rows.w, model, trial, trial_u, iterations)
        if value < least:
            least, least_cost = value, cost
            copy_into(best, trial)
            for p in range(len(u)):
                u[p] = trial_u[p]
    return least, least_cost
