"""Shared pieces of the exact solver's kernels: rounding, exact signs, values and payments.

Kernels work in *scaled* coordinates: rows are shifted by a centre and divided by a power of two, so that they lie in
[−1, 1] whatever the unit; weights likewise. `docs/numerics.md` argues the error margins used here.

A cluster that holds weight W, weighted sum S and squares Q pays, with price p and box [lo, hi],

    min_m  W m² − 2 a m + Q,   a = S − p/2,   lo ≤ m ≤ hi      (one coordinate at a time)
"""

from __future__ import annotations

import math

import numpy as np

from ...core.compile import bare, kernel

ROUNDING = 2.0**-53
TINY = 1e-290  # absolute floor of every margin in scaled units: covers underflow


@bare
def copy_into(target, source):
    """target[:, :] = source for matrices; the slice assignment costs a second to compile each time it is written."""
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[i, j] = source[i, j]


@bare
def clamp(x, lo, hi):
    return min(max(x, lo), hi)


@bare
def down(x):
    """The next double below: an exact lower bound of anything that rounds to x."""
    return np.nextafter(x, -np.inf)


@bare
def up(x):
    return np.nextafter(x, np.inf)


@kernel
def _two_product(a, b):
    """a·b = p + e exactly (Dekker), away from overflow and underflow."""
    p = a * b
    t = 134217729.0 * a
    a1 = t - (t - a)
    a2 = a - a1
    t = 134217729.0 * b
    b1 = t - (t - b)
    b2 = b - b1
    return p, ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2


@kernel
def _grow(expansion, n, x):
    """Add x to a nonoverlapping expansion (Shewchuk); exact."""
    q = x
    for i in range(n):
        s = q + expansion[i]
        v = s - q
        expansion[i] = (q - (s - v)) + (expansion[i] - v)
        q = s
    expansion[n] = q
    return n + 1


@kernel
def inner_sign(normal, left, right):
    """Sign of normal·(left − right), exactly; the first test settles nearly every call."""
    value, magnitude, n_features = 0.0, 0.0, len(normal)
    for d in range(n_features):
        term = normal[d] * (left[d] - right[d])
        value += term
        magnitude += abs(term)
    if magnitude == 0.0:
        exact_zero = True
        for d in range(n_features):
            if normal[d] != 0.0 and left[d] != right[d]:
                exact_zero = False
        if exact_zero:
            return 0
    if abs(value) > (2 * n_features + 8) * ROUNDING * magnitude and abs(value) > TINY:
        return 1 if value > 0 else -1
    biggest_n, biggest_m = 0.0, 0.0
    difference, rest = np.empty(n_features), np.empty(n_features)  # left − right = difference + rest, exactly (Knuth)
    for d in range(n_features):
        biggest_m = max(biggest_m, max(abs(left[d]), abs(right[d])))
    shrink = 0.25 if biggest_m > 1e300 else 1.0  # differences stay finite
    biggest_m = 0.0
    for d in range(n_features):
        a, b = left[d] * shrink, right[d] * shrink
        difference[d] = a - b
        back = difference[d] - a
        rest[d] = (a - (difference[d] - back)) - (b + back)
        biggest_n = max(biggest_n, abs(normal[d]))
        biggest_m = max(biggest_m, abs(difference[d]))
    sn = math.ldexp(1.0, -math.frexp(biggest_n)[1]) if biggest_n > 0 else 1.0
    sm = math.ldexp(1.0, -max(math.frexp(biggest_m)[1], -1000)) if biggest_m > 0 else 1.0
    expansion, n = np.zeros(4 * n_features + 1), np.int64(0)
    for d in range(n_features):
        p, e = _two_product(normal[d] * sn, difference[d] * sm)
        n = _grow(expansion, n, p)
        n = _grow(expansion, n, e)
        p, e = _two_product(normal[d] * sn, rest[d] * sm)
        n = _grow(expansion, n, p)
        n = _grow(expansion, n, e)
    for i in range(n - 1, -1, -1):
        if expansion[i] != 0.0:
            return 1 if expansion[i] > 0 else -1
    return 0


@kernel
def obeys_order(references, centroids):
    """Whether centroids obey the order rule exactly, without tolerance."""
    n_clusters, n_features = centroids.shape
    normal = np.empty(n_features)
    for k in range(n_clusters):
        for l in range(k + 1, n_clusters):
            for d in range(n_features):
                normal[d] = references[k, d] - references[l, d]
            if inner_sign(normal, centroids[k], centroids[l]) < 0:
                return False
    return True


@kernel
def relabel_to_order(references, centroids):
    """Swap pairs that break the order rule; each swap lowers Σ_k |m_k − r_k|², so this ends."""
    n_clusters, n_features = centroids.shape
    normal = np.empty(n_features)
    for _ in range(1000):
        swapped = False
        for k in range(n_clusters):
            for l in range(k + 1, n_clusters):
                for d in range(n_features):
                    normal[d] = references[k, d] - references[l, d]
                if inner_sign(normal, centroids[k], centroids[l]) < 0:
                    for d in range(n_features):
                        x = centroids[k, d]
                        centroids[k, d] = centroids[l, d]
                        centroids[l, d] = x
                    swapped = True
        if not swapped:
            return True
    return obeys_order(references, centroids)


@kernel
def value_above(points, weights, price, centroids, labels):
    """(objective, cost), both rounded up, from the rows in original units; fills `labels`."""
    n, n_features = points.shape
    n_clusters = len(centroids)
    cost, underflow = 0.0, 0.0
    for j in range(n):
        least = np.inf
        for k in range(n_clusters):
            squared = 0.0
            for d in range(n_features):
                difference = points[j, d] - centroids[k, d]
                squared += difference * difference
            if squared < least:
                least = squared
                labels[j] = k
        if weights[j] > 0 and (least < TINY or weights[j] * least < TINY):
            for d in range(n_features):
                if points[j, d] != centroids[labels[j], d]:
                    underflow += (weights[j] + 1.0) * 5e-324 + 5e-324
        cost += weights[j] * least
    if cost > 0.0 or underflow > 0.0:
        cost = up(cost * (1.0 + (2 * n + 4 * n_features + 16) * ROUNDING)) + (2 * n_features + 2) * underflow
    priced, magnitude, paying = 0.0, 0.0, False
    for k in range(n_clusters):
        for d in range(n_features):
            term = price[k, d] * centroids[k, d]
            priced += term
            magnitude += abs(term)
            paying = paying or (price[k, d] != 0.0 and centroids[k, d] != 0.0)  # a product may underflow to 0
    if not paying:
        return cost, cost
    margin = (2 * n_clusters * n_features + 8) * ROUNDING * magnitude
    value = up(up(cost + up(priced + margin)) + 5e-324 * n_clusters * n_features)
    return (value if value == value else np.inf), cost  # payments may overflow both ways


@kernel
def least_payment(price, lo, hi):
    """Σ min(p lo, p hi) rounded down: what any centroids in the boxes pay at least; a bound, since costs are ≥ 0."""
    total, magnitude, n = 0.0, 0.0, 0
    for k in range(price.shape[0]):
        for d in range(price.shape[1]):
            p = price[k, d]
            if p != 0.0:
                term = p * lo[k, d] if p > 0 else p * hi[k, d]
                total += term
                magnitude += abs(term)
                n += 1
    if n == 0:
        return 0.0
    total = down(total - (2 * n + 8) * ROUNDING * magnitude - 5e-324 * n)
    return total if total == total else -np.inf


@bare
def minimiser(weight, a, lo, hi):
    """argmin of W m² − 2 a m on [lo, hi]."""
    if weight > 0.0:
        return clamp(a / weight, lo, hi)
    if a > 0.0:
        return hi
    if a < 0.0:
        return lo
    return clamp(0.0, lo, hi)


@kernel
def order_excludes(references, lo, hi):
    """Whether some pair of boxes cannot obey the order rule: proven, in original units."""
    n_clusters, n_features = lo.shape
    for k in range(n_clusters):
        for l in range(k + 1, n_clusters):
            most, magnitude = 0.0, 0.0
            for d in range(n_features):
                n = references[k, d] - references[l, d]
                term = n * (hi[k, d] - lo[l, d]) if n > 0.0 else n * (lo[k, d] - hi[l, d])
                most += term
                magnitude += abs(term)
            if most < -(2 * n_features + 8) * ROUNDING * magnitude - TINY:
                return True
    return False
