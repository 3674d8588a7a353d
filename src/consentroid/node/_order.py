"""The order rule's multipliers for a fixed assigned part: a concave piecewise quadratic maximised by Newton steps.

    max_{u ≥ 0}  Σ_kd min_{lo ≤ m ≤ hi} [W_k m² − 2 (S_kd − p'_kd(u)/2) m] + τ Σ_kl u_kl

Its gradient is τ − n_kl·(m_k − m_l), its curvature Σ n n / (2 W_k) over the coordinates that are not at a box face.
The margin τ keeps the centroids inside the rule when they are rounded. Empty clusters have no curvature; they borrow a
small weight around their last centroid (a proximal step), which steers u but enters no bound: any u ≥ 0 gives one.
"""

from __future__ import annotations

import numpy as np

from ._kernels import clamp, kernel, order_violation, shift_price


@kernel
def _dual(weight, a, normals, first, second, lo, hi, target, u, m, slack):
    """Dual value at u; fills centroids and slacks."""
    n_clusters, n_features = a.shape
    n_pairs = len(u)
    value = 0.0
    for k in range(n_clusters):
        for d in range(n_features):
            b = a[k, d]
            for p in range(n_pairs):
                if u[p] != 0.0:
                    if first[p] == k:
                        b += 0.5 * u[p] * normals[p, d]
                    elif second[p] == k:
                        b -= 0.5 * u[p] * normals[p, d]
            x = clamp(b / weight[k], lo[k, d], hi[k, d])
            m[k, d] = x
            value += (weight[k] * x - 2.0 * b) * x
    for p in range(n_pairs):
        value += target * u[p]
        s = 0.0
        for d in range(n_features):
            s += normals[p, d] * (m[first[p], d] - m[second[p], d])
        slack[p] = s
    return value


@kernel
def _residual(u, slack, target):
    """How far u is from optimal: the largest |gradient| over multipliers that may still move."""
    worst = 0.0
    for p in range(len(u)):
        g = target - slack[p]
        if u[p] > 0.0 or g > 0.0:
            worst = max(worst, abs(g))
    return worst


@kernel
def _solve_symmetric(h, g, n):
    """h x = g by elimination for a small positive definite h; overwrites both, x in g."""
    for i in range(n):
        pivot = h[i, i]
        for r in range(i + 1, n):
            f = h[r, i] / pivot
            if f != 0.0:
                for c in range(i, n):
                    h[r, c] -= f * h[i, c]
                g[r] -= f * g[i]
    for i in range(n - 1, -1, -1):
        x = g[i]
        for c in range(i + 1, n):
            x -= h[i, c] * g[c]
        g[i] = x / h[i, i]


@kernel
def _sweep(weight, a, normals, first, second, lo, hi, target, u, m, slack):
    """Maximise over one multiplier after the other: slower than Newton, but never stuck at a kink."""
    value = 0.0
    for p in range(len(u)):
        left, at_left, right, at_right, bracketed = 0.0, 0.0, max(2.0 * u[p], 1e-3), 0.0, False
        u[p] = 0.0
        for i in range(120):
            value = _dual(weight, a, normals, first, second, lo, hi, target, u, m, slack)
            at = slack[p] - target
            if i == 0:
                if at >= 0.0:
                    break
                at_left = at
                u[p] = right
                continue
            if at >= 0.0:
                bracketed, right, at_right = True, u[p], at
                if at <= 0.2 * target or right - left <= 1e-16 * right:
                    break
            else:
                left, at_left = u[p], at
                if not bracketed:
                    if i > 60:
                        break
                    u[p] *= 4.0
                    continue
                if right - left <= 1e-16 * right:
                    u[p] = right
                    continue
            u[p] = right - at_right * (right - left) / (at_right - at_left)
            if i % 3 == 2 or not left < u[p] < right:
                u[p] = 0.5 * (left + right)
                if not left < u[p] < right:
                    u[p] = right
    return value


@kernel
def _newton_step(weight, lo, hi, m, normals, first, second, target, u, slack, index, hessian, step):
    """Solve curvature · step = gradient over the multipliers that may move; returns how many do.

    Returns 0 where some multiplier meets no curvature: all its coordinates sit at box faces, and a sweep must find out
    how far to go.
    """
    n_features, n_active, diagonal = len(normals[0]), 0, 0.0
    for p in range(len(u)):
        if u[p] > 0.0 or slack[p] < target:
            index[n_active] = p
            step[n_active] = target - slack[p]
            n_active += 1
    for i in range(n_active):
        for j in range(i, n_active):
            h = 0.0
            for side in range(4):
                p, q = index[i], index[j]
                k = first[p] if side < 2 else second[p]
                if k == (first[q] if side % 2 == 0 else second[q]):
                    sign = 1.0 if side == 0 or side == 3 else -1.0
                    for d in range(n_features):
                        if lo[k, d] < m[k, d] < hi[k, d]:
                            h += sign * normals[p, d] * normals[q, d] / (2.0 * weight[k])
            hessian[i, j] = h
            hessian[j, i] = h
        diagonal = max(diagonal, hessian[i, i])
    for i in range(n_active):
        if hessian[i, i] <= 1e-9 * diagonal:
            return 0
        hessian[i, i] += 1e-10 * diagonal
    _solve_symmetric(hessian, step, n_active)
    return n_active


@kernel
def ascend_order(weight, total, price, references, lo, hi, target, steps, rounds, multipliers, shifted, m):
    """At most `steps` Newton steps in each of `rounds` proximal rounds, from the given multipliers (K, K), in place.

    Leaves the shifted price and the centroids; returns their worst violation of n·(m_k − m_l) ≥ target/2.
    """
    n_clusters, n_features = price.shape
    most = n_clusters * (n_clusters - 1) // 2
    normals, u = np.empty((most, n_features)), np.empty(most)
    first, second = np.empty(most, np.int64), np.empty(most, np.int64)
    n_pairs = 0
    for k in range(n_clusters):
        for l in range(k + 1, n_clusters):
            length = 0.0
            for d in range(n_features):
                normals[n_pairs, d] = references[k, d] - references[l, d]
                length += abs(normals[n_pairs, d])
            if length > 0.0:
                first[n_pairs], second[n_pairs], u[n_pairs] = k, l, multipliers[k, l]
                n_pairs += 1
    u = u[:n_pairs]
    everything, empty = 0.0, False
    for k in range(n_clusters):
        everything += weight[k]
    floor = 1e-2 * everything / n_clusters if everything > 0.0 else 1.0
    lowest = 1e-3 * floor
    effective, a = np.empty(n_clusters), np.empty((n_clusters, n_features))
    anchor = np.empty((n_clusters, n_features))
    for k in range(n_clusters):
        effective[k] = weight[k]
        for d in range(n_features):
            b = total[k, d] - 0.5 * price[k, d]
            a[k, d] = b
            if weight[k] < 1e-9 * floor:
                empty = True
                effective[k] = floor
                anchor[k, d] = clamp(0.0, lo[k, d], hi[k, d]) if b == 0.0 else (hi[k, d] if b > 0.0 else lo[k, d])
                a[k, d] = b + floor * anchor[k, d]
    hessian, step = np.empty((most, most)), np.empty(most)
    index, trial, slack = np.empty(most, np.int64), np.empty(n_pairs), np.empty(n_pairs)
    for r in range(rounds if empty else 1):
        value, residual, n_active, length, taken = -np.inf, np.inf, 0, 0.0, 0
        while taken <= steps:
            for p in range(n_pairs):
                trial[p] = u[p]
            for i in range(n_active):
                trial[index[i]] = max(0.0, u[index[i]] + length * step[i])
            new = _dual(effective, a, normals, first, second, lo, hi, target, trial, m, slack)
            # near the maximum the value is flat to rounding; the residual still tells better from worse
            rounding = 1e-12 * abs(value) if taken > 0 else 0.0
            better = new > value + rounding
            if not better and new > value - rounding:
                better = _residual(trial, slack, target) < 0.9 * residual
            if not better:
                length *= 0.35
                if length > 1e-4:
                    continue
                before = residual
                new = _sweep(effective, a, normals, first, second, lo, hi, target, u, m, slack)
                if _residual(u, slack, target) >= 0.9 * before:
                    break
                for p in range(n_pairs):
                    trial[p] = u[p]
            value, residual = new, _residual(trial, slack, target)
            for p in range(n_pairs):
                u[p] = trial[p]
            taken += 1
            if residual <= 0.25 * target:
                break
            n_active = _newton_step(
                effective, lo, hi, m, normals, first, second, target, u, slack, index, hessian, step
            )
            length = 1.0
        if empty and r + 1 < rounds:
            moved = 0.0
            floor = max(0.1 * floor, lowest)  # ever longer proximal steps converge fast
            for k in range(n_clusters):
                if effective[k] != weight[k]:
                    effective[k] = floor
                    for d in range(n_features):
                        moved = max(moved, abs(anchor[k, d] - m[k, d]))
                        anchor[k, d] = m[k, d]
                        a[k, d] = total[k, d] - 0.5 * price[k, d] + floor * m[k, d]
            if moved <= 1e-14:
                break
    for p in range(n_pairs):
        multipliers[first[p], second[p]] = u[p]
    shift_price(price, references, multipliers, shifted)
    return order_violation(references, m, 0.5 * target)
