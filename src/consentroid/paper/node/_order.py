"""The order rule, n·(m_k − m_l) ≥ 0 with n = r_k − r_l for k < l, and its multipliers.

With multipliers u ≥ 0, one a pair, the rule only shifts prices,

    p'_k = p_k − Σ_{l>k} u_kl n_kl + Σ_{l<k} u_lk n_lk,

so the unconstrained minimum under p' is a bound for *any* u ≥ 0. For a fixed assigned part a good u is the maximum of a
concave piecewise quadratic, found by Newton steps:

    max_{u ≥ 0}  Σ_kd min_{lo ≤ m ≤ hi} [W_k m² − 2 (S_kd − p'_kd(u)/2) m] + τ Σ_kl u_kl

Its gradient is τ − n_kl·(m_k − m_l), its curvature Σ n n / (2 W_k) over the coordinates that are not at a box face.
The margin τ keeps the centroids inside the rule when they are rounded. Empty clusters have no curvature; they borrow a
small weight around their last centroid (a proximal step), which steers u but enters no bound: any u ≥ 0 gives one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.compile import bare, inlined, kernel
from ._kernels import ROUNDING, clamp
from ._state import ABSOLUTE_SUM, FARTHEST, WEIGHT_SUM, farthest_side, least_weight_row, nearest_side

WEIGHT, SQUARE, TOTAL = 0, 1, 2  # places in an assigned part (K, D+2): weight, squares, weighted sum


class Pairs(NamedTuple):
    """The rule's pairs, without those that ask nothing of their own, and scratch arrays for `ascend_order`."""

    first: np.ndarray  # (P,) k
    second: np.ndarray  # (P,) l
    normals: np.ndarray  # (P, D) r_k − r_l, exact
    weight: np.ndarray  # (K,) from here on: scratch
    pull: np.ndarray  # (K, D)
    pulled: np.ndarray  # (K, D)
    anchor: np.ndarray  # (K, D)
    hessian: np.ndarray  # (P, P)
    step: np.ndarray  # (P,)
    trial: np.ndarray  # (P,)
    slack: np.ndarray  # (P,)
    active: np.ndarray  # (P,)


@kernel
def make_pairs(references, used):
    """Without `used` there are no pairs: nothing is asked."""
    n_clusters, n_features = references.shape
    most = n_clusters * (n_clusters - 1) // 2 if used else 0
    first, second, normals = np.empty(most, np.int64), np.empty(most, np.int64), np.empty((most, n_features))
    n = 0
    for k in range(n_clusters if used else 0):
        for l in range(k + 1, n_clusters):
            length = 0.0
            for d in range(n_features):
                normals[n, d] = references[k, d] - references[l, d]
                length += abs(normals[n, d])
            implied = False  # by other pairs: on a line, where a reference lies between the two
            for j in range(n_clusters if n_features == 1 else 0):
                implied = implied or (references[k, 0] - references[j, 0]) * (references[j, 0] - references[l, 0]) > 0.0
            if length > 0.0 and not implied:
                first[n], second[n] = k, l
                n += 1
    shape = (n_clusters, n_features)
    return Pairs(
        first[:n], second[:n], normals[:n], np.empty(n_clusters), np.empty(shape), np.empty(shape), np.empty(shape),
        np.empty((n, n)), np.empty(n), np.empty(n), np.empty(n), np.empty(n, np.int64),
    )  # fmt: skip


@bare
def order_violation(pairs, m, target):
    """max over pairs of target − n·(m_k − m_l), at least 0."""
    worst = 0.0
    for p in range(len(pairs.first)):
        k, l, slack = pairs.first[p], pairs.second[p], 0.0
        for d in range(m.shape[1]):
            slack += pairs.normals[p, d] * (m[k, d] - m[l, d])
        worst = max(worst, target - slack)
    return worst


@bare
def shift_price(price, pairs, u, out):
    """p' of the module text; returns Σ u so that callers see whether any multiplier is active."""
    n_clusters, n_features = price.shape
    for k in range(n_clusters):
        for d in range(n_features):
            out[k, d] = price[k, d]
    total = 0.0
    for p in range(len(u)):
        if u[p] > 0.0:
            total += u[p]
            for d in range(n_features):
                move = u[p] * pairs.normals[p, d]
                out[pairs.first[p], d] -= move
                out[pairs.second[p], d] += move
    return total


@bare
def relative_rounding(n_rows, n_clusters, n_features):
    """Relative error of an assigned part of n rows, before equal ones were merged: docs/numerics.md, section 3."""
    return (4 * n_rows + 4 * n_clusters * n_features + 128) * ROUNDING


@bare
def price_margin(price, pairs, u, magnitudes):
    """Magnitude of a priced assigned part under multipliers u, which rounding errors are proportional to.

    `magnitudes` holds rows of D numbers: Σ w |y|, Σ w, max |y|; K rows distance of 0 to the box; K rows max |m| in the
    box; least weight. See docs/numerics.md, section 3.
    """
    n_clusters, n_features = price.shape
    least_weight = magnitudes[least_weight_row(n_clusters), 0]
    size = pairs.pulled
    for k in range(n_clusters):
        for d in range(n_features):
            size[k, d] = abs(price[k, d])
    for p in range(len(u)):
        if u[p] > 0.0:
            for d in range(n_features):
                move = u[p] * abs(pairs.normals[p, d])
                size[pairs.first[p], d] += move
                size[pairs.second[p], d] += move
    total = 0.0
    for k in range(n_clusters):
        for d in range(n_features):
            p, reach = size[k, d], magnitudes[farthest_side(n_clusters, k), d]
            m = min(reach, max(magnitudes[FARTHEST, d] + p / (2.0 * least_weight), magnitudes[nearest_side(k), d]))
            total += p * reach + 2.0 * magnitudes[ABSOLUTE_SUM, d] * m + magnitudes[WEIGHT_SUM, d] * m * m
    return total


@inlined
def _dual(pairs, lo, hi, target, u, m):
    """Dual value at u for the weights and pulls in `pairs`; fills centroids and slacks."""
    n_clusters, n_features = lo.shape
    value = 0.0
    for k in range(n_clusters):
        for d in range(n_features):
            pairs.pulled[k, d] = pairs.pull[k, d]
    for p in range(len(u)):
        if u[p] != 0.0:
            value += target * u[p]
            for d in range(n_features):
                move = 0.5 * u[p] * pairs.normals[p, d]
                pairs.pulled[pairs.first[p], d] += move
                pairs.pulled[pairs.second[p], d] -= move
    for k in range(n_clusters):
        for d in range(n_features):
            x = clamp(pairs.pulled[k, d] / pairs.weight[k], lo[k, d], hi[k, d])
            m[k, d] = x
            value += (pairs.weight[k] * x - 2.0 * pairs.pulled[k, d]) * x
    for p in range(len(u)):
        k, l, slack = pairs.first[p], pairs.second[p], 0.0
        for d in range(n_features):
            slack += pairs.normals[p, d] * (m[k, d] - m[l, d])
        pairs.slack[p] = slack
    return value


@inlined
def _residual(pairs, u, target):
    """How far u is from optimal: the largest |gradient| over multipliers that may still move."""
    worst = 0.0
    for p in range(len(u)):
        g = target - pairs.slack[p]
        if u[p] > 0.0 or g > 0.0:
            worst = max(worst, abs(g))
    return worst


@inlined
def solve_symmetric(h, g, n):
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


@bare
def _sweep(pairs, lo, hi, target, precision, u, m):
    """Maximise over one multiplier after the other: slower than Newton, but never stuck at a kink."""
    value = 0.0
    flat, narrow = max(0.2 * target, precision), max(1e-16, precision)
    for p in range(len(u)):
        left, at_left, right, at_right, bracketed = 0.0, 0.0, max(2.0 * u[p], 1e-3), 0.0, False
        u[p] = 0.0
        for i in range(120):
            value = _dual(pairs, lo, hi, target, u, m)
            at = pairs.slack[p] - target
            if i == 0:
                if at >= 0.0:
                    break
                at_left = at
                u[p] = right
                continue
            if at >= 0.0:
                bracketed, right, at_right = True, u[p], at
                if at <= flat or right - left <= narrow * right:
                    break
            else:
                left, at_left = u[p], at
                if not bracketed:
                    if i > 60:
                        break
                    u[p] *= 4.0
                    continue
                if right - left <= narrow * right:
                    u[p] = right
                    continue
            u[p] = right - at_right * (right - left) / (at_right - at_left)
            if i % 3 == 2 or not left < u[p] < right:
                u[p] = 0.5 * (left + right)
                if not left < u[p] < right:
                    u[p] = right
    return value


@inlined
def _newton_step(pairs, lo, hi, m, target, u):
    """Solve curvature · step = gradient over the multipliers that may move; returns how many do.

    Returns 0 where some multiplier meets no curvature: all its coordinates sit at box faces, and a sweep must find out
    how far to go.
    """
    n_clusters, n_features = m.shape
    n_active, diagonal = 0, 0.0
    for p in range(len(u)):
        if u[p] > 0.0 or pairs.slack[p] < target:
            pairs.active[n_active] = p
            pairs.step[n_active] = target - pairs.slack[p]
            n_active += 1
    give = pairs.pulled  # how far a coordinate moves when pulled
    for k in range(n_clusters):
        for d in range(n_features):
            give[k, d] = 0.5 / pairs.weight[k] if lo[k, d] < m[k, d] < hi[k, d] else 0.0
    for i in range(n_active):
        p = pairs.active[i]
        k, l = pairs.first[p], pairs.second[p]
        for j in range(i, n_active):
            q, h = pairs.active[j], 0.0
            at_k = 1.0 if k == pairs.first[q] else (-1.0 if k == pairs.second[q] else 0.0)
            at_l = 1.0 if l == pairs.second[q] else (-1.0 if l == pairs.first[q] else 0.0)
            if at_k != 0.0 or at_l != 0.0:
                for d in range(n_features):
                    h += pairs.normals[p, d] * pairs.normals[q, d] * (at_k * give[k, d] + at_l * give[l, d])
            pairs.hessian[i, j] = h
            pairs.hessian[j, i] = h
        diagonal = max(diagonal, pairs.hessian[i, i])
    for i in range(n_active):
        if pairs.hessian[i, i] <= 1e-9 * diagonal:
            return 0
        pairs.hessian[i, i] += 1e-10 * diagonal
    solve_symmetric(pairs.hessian, pairs.step, n_active)
    return n_active


@inlined
def _climb(pairs, lo, hi, target, steps, goal, precision, u, m):
    """At most `steps` Newton steps from u, in place, with a sweep where they do not improve; none beyond `goal`."""
    value, residual, n_active, length, taken = -np.inf, np.inf, 0, 0.0, 0
    while taken <= steps:
        for p in range(len(u)):
            pairs.trial[p] = u[p]
        for i in range(n_active):
            p = pairs.active[i]
            pairs.trial[p] = max(0.0, u[p] + length * pairs.step[i])
        new = _dual(pairs, lo, hi, target, pairs.trial, m)
        new_residual = _residual(pairs, pairs.trial, target)
        # near the maximum the value is flat to rounding; the residual still tells better from worse
        rounding = 1e-12 * abs(value) if taken > 0 else 0.0
        if not (new > value + rounding or (new > value - rounding and new_residual < 0.9 * residual)):
            length *= 0.35
            if length > 1e-4:
                continue
            new = _sweep(pairs, lo, hi, target, precision, u, m)
            new_residual = _residual(pairs, u, target)
            if new_residual >= 0.9 * residual:
                return
            for p in range(len(u)):
                pairs.trial[p] = u[p]
        value, residual = new, new_residual
        for p in range(len(u)):
            u[p] = pairs.trial[p]
        taken += 1
        if residual <= 0.25 * target or taken > steps or value >= goal:
            return
        n_active = _newton_step(pairs, lo, hi, m, target, u)
        length = 1.0 if n_active > 0 else 0.0


@bare
def ascend_order(pairs, part, price, lo, hi, target, steps, rounds, goal, precision, u, shifted, m):
    """At most `steps` Newton steps in each of `rounds` proximal rounds for an assigned part (K, D+2), from u, in place.

    It may stop when the value reaches `goal`; `precision` is what sweeps settle for, 0 for all that doubles give.
    Leaves the shifted price and the centroids; returns their worst violation of n·(m_k − m_l) ≥ target/2.
    """
    n_clusters, n_features = price.shape
    everything, empty = 0.0, False
    for k in range(n_clusters):
        everything += part[k, WEIGHT]
    floor = 1e-2 * everything / n_clusters if everything > 0.0 else 1.0
    lowest, light = 1e-3 * floor, 1e-9 * floor
    for k in range(n_clusters):
        borrows = part[k, WEIGHT] < light
        empty = empty or borrows
        pairs.weight[k] = floor if borrows else part[k, WEIGHT]
        for d in range(n_features):
            a = part[k, TOTAL + d] - 0.5 * price[k, d]
            pairs.pull[k, d] = a
            if borrows:
                at = clamp(0.0, lo[k, d], hi[k, d]) if a == 0.0 else (hi[k, d] if a > 0.0 else lo[k, d])
                pairs.anchor[k, d] = at
                pairs.pull[k, d] = a + floor * at
    if empty:
        goal = np.inf  # what is borrowed counts towards the value, but not towards a bound
    for r in range(rounds if empty else 1):
        _climb(pairs, lo, hi, target, steps, goal, precision, u, m)
        if empty and r + 1 < rounds:
            moved = 0.0
            floor = max(0.1 * floor, lowest)  # ever longer proximal steps converge fast
            for k in range(n_clusters):
                if part[k, WEIGHT] < light:
                    pairs.weight[k] = floor
                    for d in range(n_features):
                        moved = max(moved, abs(pairs.anchor[k, d] - m[k, d]))
                        pairs.anchor[k, d] = m[k, d]
                        pairs.pull[k, d] = part[k, TOTAL + d] - 0.5 * price[k, d] + floor * m[k, d]
            if moved <= 1e-14:
                break
    shift_price(price, pairs, u, shifted)
    return order_violation(pairs, m, 0.5 * target)
