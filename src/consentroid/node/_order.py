"""The order rule's multipliers for a fixed assigned part: a concave piecewise quadratic maximised by Newton steps.

    max_{u ≥ 0}  Σ_kd min_{lo ≤ m ≤ hi} [W_k m² − 2 (S_kd − p'_kd(u)/2) m] + τ Σ_kl u_kl

Its gradient is τ − n_kl·(m_k − m_l), its curvature Σ n n / (2 W_k) over the coordinates that are not at a box face.
The margin τ keeps the centroids inside the rule when they are rounded. Empty clusters have no curvature; they borrow a small
weight around their last centroid (a proximal step), which steers u but enters no bound: any u ≥ 0 gives one.
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
    value = _dual(weight, a, normals, first, second, lo, hi, target, u, m, slack)
    for p in range(len(u)):
        if slack[p] >= target and u[p] == 0.0:
            continue
        left, right = 0.0, max(2.0 * u[p], 1e-3)
        u[p] = 0.0
        value = _dual(weight, a, normals, first, second, lo, hi, target, u, m, slack)
        if slack[p] >= target:
            continue
        at_left = slack[p] - target
        for _ in range(50):
            u[p] = right
            value = _dual(weight, a, normals, first, second, lo, hi, target, u, m, slack)
            if slack[p] >= target:
                break
            left, at_left, right = right, slack[p] - target, 4.0 * right
        at_right = slack[p] - target
        for i in range(60):
            if abs(at_right) <= 0.2 * target or right - left <= 1e-16 * right:
                break
            u[p] = right - at_right * (right - left) / (at_right - at_left)
            if i % 3 == 2 or not left < u[p] < right:
                u[p] = 0.5 * (left + right)
            value = _dual(weight, a, normals, first, second, lo, hi, target, u, m, slack)
            if slack[p] >= target:
                right, at_right = u[p], slack[p] - target
            else:
                left, at_left = u[p], slack[p] - target
        u[p] = right
        value = _dual(weight, a, normals, first, second, lo, hi, target, u, m, slack)
    return value


@kernel
def ascend_order(weight, total, price, references, lo, hi, target, steps, rounds, multipliers, shifted, m):
    """At most `steps` Newton steps in each of `rounds` proximal rounds, from the given multipliers (K, K), in place.

    Leaves the shifted price and the centroids; returns their worst violation of n·(m_k − m_l) ≥ target/2.
    """
    n_clusters, n_features = price.shape
    n_pairs = 0
    normals = np.empty((n_clusters * (n_clusters - 1) // 2, n_features))
    first, second = np.empty(len(normals), np.int64), np.empty(len(normals), np.int64)
    u = np.empty(len(normals))
    for k in range(n_clusters):
        for l in range(k + 1, n_clusters):
            length = 0.0
            for d in range(n_features):
                normals[n_pairs, d] = references[k, d] - references[l, d]
                length += abs(normals[n_pairs, d])
            if length > 0.0:
                first[n_pairs], second[n_pairs], u[n_pairs] = k, l, multipliers[k, l]
                n_pairs += 1
    u, trial, slack = u[:n_pairs], np.empty(n_pairs), np.empty(n_pairs)
    everything, empty = 0.0, False
    for k in range(n_clusters):
        everything += weight[k]
    floor = 1e-2 * everything / n_clusters if everything > 0.0 else 1.0
    effective, a = np.empty(n_clusters), np.empty((n_clusters, n_features))
    borrowed, anchor = np.zeros(n_clusters, np.bool_), np.zeros((n_clusters, n_features))
    for k in range(n_clusters):
        effective[k] = weight[k]
        for d in range(n_features):
            a[k, d] = total[k, d] - 0.5 * price[k, d]
        borrowed[k] = weight[k] < 1e-9 * floor
        if borrowed[k]:
            empty = True
            effective[k] = floor
            for d in range(n_features):
                x = clamp(0.0, lo[k, d], hi[k, d])
                if a[k, d] != 0.0:
                    x = hi[k, d] if a[k, d] > 0.0 else lo[k, d]
                anchor[k, d] = x
                a[k, d] += floor * x
    hessian, step, step_from = np.empty((n_pairs, n_pairs)), np.empty(n_pairs), np.empty(n_pairs)
    index = np.empty(n_pairs, np.int64)
    for r in range(rounds if empty else 1):
        value = _dual(effective, a, normals, first, second, lo, hi, target, u, m, slack)
        for _ in range(steps):
            n_active, residual = 0, _residual(u, slack, target)
            for p in range(n_pairs):
                if u[p] > 0.0 or slack[p] < target:
                    index[n_active] = p
                    n_active += 1
            if residual <= 0.25 * target:
                break
            diagonal = 0.0
            for i in range(n_active):
                p = index[i]
                step[i] = target - slack[p]
                for j in range(i, n_active):
                    q, h = index[j], 0.0
                    for side in range(2):
                        k = first[p] if side == 0 else second[p]
                        sign = 0.0
                        if first[q] == k:
                            sign = 1.0
                        elif second[q] == k:
                            sign = -1.0
                        if sign != 0.0:
                            if side == 1:
                                sign = -sign
                            for d in range(n_features):
                                if lo[k, d] < m[k, d] < hi[k, d]:
                                    h += sign * normals[p, d] * normals[q, d] / (2.0 * effective[k])
                    hessian[i, j] = h
                    hessian[j, i] = h
                diagonal = max(diagonal, hessian[i, i])
            if diagonal == 0.0:
                diagonal = 1.0 / max(floor, 1e-300)
            for i in range(n_active):
                hessian[i, i] += 1e-10 * diagonal + (diagonal if hessian[i, i] < 1e-9 * diagonal else 0.0)
            _solve_symmetric(hessian, step, n_active)
            length, improved = 1.0, False
            while length > 1e-6:
                for p in range(n_pairs):
                    trial[p] = u[p]
                for i in range(n_active):
                    p = index[i]
                    trial[p] = max(0.0, u[p] + length * step[i])
                new = _dual(effective, a, normals, first, second, lo, hi, target, trial, m, slack)
                # near the maximum the value is flat to rounding; the residual still tells better from worse
                if new > value + 1e-12 * abs(value) or (
                    new > value - 1e-12 * abs(value) and _residual(trial, slack, target) < 0.9 * residual
                ):
                    improved = True
                    break
                length *= 0.35
            if not improved:
                value = _sweep(effective, a, normals, first, second, lo, hi, target, u, m, slack)
                if _residual(u, slack, target) >= 0.9 * residual:
                    break
                continue
            value = new
            for p in range(n_pairs):
                step_from[p] = u[p]
                u[p] = trial[p]
            grown = length == 1.0
            while grown:  # where everything sits at box faces the dual is linear and a Newton step far too short
                length *= 4.0
                for p in range(n_pairs):
                    trial[p] = step_from[p]
                for i in range(n_active):
                    p = index[i]
                    trial[p] = max(0.0, step_from[p] + length * step[i])
                new = _dual(effective, a, normals, first, second, lo, hi, target, trial, m, slack)
                grown = new > value + 1e-12 * abs(value) and length < 1e12
                if grown:
                    value = new
                    for p in range(n_pairs):
                        u[p] = trial[p]
            if length > 1.0:
                _dual(effective, a, normals, first, second, lo, hi, target, u, m, slack)
        if empty and r + 1 < rounds:
            moved = 0.0
            lower = max(0.1 * floor, 1e-5 * everything)  # ever longer proximal steps converge fast
            for k in range(n_clusters):
                if borrowed[k]:
                    effective[k] = lower
                    for d in range(n_features):
                        moved = max(moved, abs(anchor[k, d] - m[k, d]))
                        anchor[k, d] = m[k, d]
                        a[k, d] = total[k, d] - 0.5 * price[k, d] + lower * m[k, d]
            if moved <= 1e-14:
                break
            floor = lower
    for p in range(n_pairs):
        multipliers[first[p], second[p]] = u[p]
    shift_price(price, references, multipliers, shifted)
    return order_violation(references, m, 0.5 * target)
