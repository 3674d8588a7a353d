"""The order rule's multipliers by an interior-point method, for the few assigned parts where Newton's method stalls.

An empty cluster pays its price alone, so the dual of `_order` has kinks where its centroid sits on a rule and a box at
once, and ascent creeps along them. The primal

    min  Σ_kd W_k m² − 2 a_kd m    s.t.  lo ≤ m ≤ hi,   n_p·(m_k − m_l) ≥ τ

is a convex quadratic program with a diagonal Hessian: each step of the primal-dual method is one linear system in the
multipliers. Its u ≥ 0 gives a bound like any other, its m is a solution.
"""

from __future__ import annotations

import numpy as np

from ...core.compile import kernel
from ._kernels import ROUNDING, TINY
from ._order import TOTAL, WEIGHT, solve_symmetric

MOST_STEPS = 60
CENTRING = 0.1  # of the complementarity that the next step aims at


@kernel
def settle_order(pairs, part, price, lo, hi, target, u, m):
    """Multipliers u (P,) and centroids m (K, D) of an assigned part (K, D+2); both are overwritten."""
    n_clusters, n_features = price.shape
    n_pairs = len(pairs.first)
    shape = (n_clusters, n_features)
    at_lo, at_hi, pull = np.ones(shape), np.ones(shape), np.empty(shape)  # multipliers of the boxes; a
    slope, curve, move = np.empty(shape), np.empty(shape), np.empty(shape)
    slack, u_move, matrix = np.empty(n_pairs), np.empty(n_pairs), np.empty((n_pairs, n_pairs))
    for k in range(n_clusters):
        for d in range(n_features):
            m[k, d] = 0.5 * (lo[k, d] + hi[k, d])
            pull[k, d] = part[k, TOTAL + d] - 0.5 * price[k, d]
    for p in range(n_pairs):
        slack[p] = max(_product(pairs, p, m) - target, 0.1)
        u[p] = 1.0
    for _ in range(MOST_STEPS):
        gap, products, worst = 0.0, n_pairs, 0.0
        for p in range(n_pairs):
            gap += u[p] * slack[p]
            worst = max(worst, abs(slack[p] - _product(pairs, p, m) + target))
        for k in range(n_clusters):
            for d in range(n_features):
                if hi[k, d] > lo[k, d]:
                    gap += at_lo[k, d] * (m[k, d] - lo[k, d]) + at_hi[k, d] * (hi[k, d] - m[k, d])
                    products += 2
        if products == 0 or (gap <= 1e-15 * products and worst <= 1e-15):
            return
        aim = CENTRING * gap / products
        # curve · move − normals' u_move = slope, with the boxes' multipliers eliminated
        for k in range(n_clusters):
            for d in range(n_features):
                below, above = m[k, d] - lo[k, d], hi[k, d] - m[k, d]
                slope[k, d] = 2.0 * (pull[k, d] - part[k, WEIGHT] * m[k, d])
                if hi[k, d] > lo[k, d]:
                    slope[k, d] += aim / below - aim / above
                    curve[k, d] = 2.0 * part[k, WEIGHT] + at_lo[k, d] / below + at_hi[k, d] / above
                else:
                    slope[k, d], curve[k, d] = 0.0, np.inf
        for p in range(n_pairs):
            for d in range(n_features):
                slope[pairs.first[p], d] += u[p] * pairs.normals[p, d]
                slope[pairs.second[p], d] -= u[p] * pairs.normals[p, d]
        for p in range(n_pairs):
            k, l = pairs.first[p], pairs.second[p]
            u_move[p] = aim / u[p] - (_product(pairs, p, m) - target)
            for d in range(n_features):
                u_move[p] -= pairs.normals[p, d] * (slope[k, d] / curve[k, d] - slope[l, d] / curve[l, d])
            for q in range(n_pairs):
                matrix[p, q] = 0.0
                at_k = 1.0 if k == pairs.first[q] else (-1.0 if k == pairs.second[q] else 0.0)
                at_l = 1.0 if l == pairs.second[q] else (-1.0 if l == pairs.first[q] else 0.0)
                for d in range(n_features):
                    give = at_k / curve[k, d] + at_l / curve[l, d]
                    matrix[p, q] += pairs.normals[p, d] * pairs.normals[q, d] * give
            matrix[p, p] += slack[p] / u[p]
        solve_symmetric(matrix, u_move, n_pairs)
        for p in range(n_pairs):
            if not abs(u_move[p]) < np.inf:  # as far as doubles go
                return
        for k in range(n_clusters):
            for d in range(n_features):
                move[k, d] = slope[k, d]
        for p in range(n_pairs):
            for d in range(n_features):
                move[pairs.first[p], d] += u_move[p] * pairs.normals[p, d]
                move[pairs.second[p], d] -= u_move[p] * pairs.normals[p, d]
        step = 1.0
        for k in range(n_clusters):
            for d in range(n_features):
                move[k, d] /= curve[k, d]
        for p in range(n_pairs):
            slack_move = _product(pairs, p, m) + _product(pairs, p, move) - target - slack[p]
            step = min(step, _reach(slack[p], slack_move), _reach(u[p], u_move[p]))
        for k in range(n_clusters):
            for d in range(n_features):
                if hi[k, d] > lo[k, d]:
                    below, above = m[k, d] - lo[k, d], hi[k, d] - m[k, d]
                    down = (aim - at_lo[k, d] * (below + move[k, d])) / below
                    up = (aim - at_hi[k, d] * (above - move[k, d])) / above
                    step = min(step, _reach(below, move[k, d]), _reach(above, -move[k, d]))
                    step = min(step, _reach(at_lo[k, d], down), _reach(at_hi[k, d], up))
        if not step > 1e-12:
            return
        for p in range(n_pairs):
            slack_move = _product(pairs, p, m) + _product(pairs, p, move) - target - slack[p]
            slack[p] += step * slack_move
            u[p] += step * u_move[p]
        for k in range(n_clusters):
            for d in range(n_features):
                if hi[k, d] > lo[k, d]:
                    below, above = m[k, d] - lo[k, d], hi[k, d] - m[k, d]
                    at_lo[k, d] += step * (aim - at_lo[k, d] * (below + move[k, d])) / below
                    at_hi[k, d] += step * (aim - at_hi[k, d] * (above - move[k, d])) / above
                    m[k, d] += step * move[k, d]


@kernel
def _product(pairs, p, m):
    """n_p·(m_k − m_l)."""
    total = 0.0
    for d in range(m.shape[1]):
        total += pairs.normals[p, d] * (m[pairs.first[p], d] - m[pairs.second[p], d])
    return total


@kernel
def _reach(x, move):
    """Longest step that keeps x + step · move well above 0."""
    return -0.995 * x / move if move < 0.0 else np.inf


@kernel
def pairs_exclude(pairs, lo, hi):
    """Whether no centroids in the boxes obey all pairs together: proven by multipliers whose sum they cannot satisfy.

    For u ≥ 0, Σ_p u_p n_p·(m_k − m_l) ≥ 0 is implied by the rule; the boxes exclude it if its maximum is below 0.
    """
    n_clusters, n_features = lo.shape
    u, m = np.empty(len(pairs.first)), np.empty((n_clusters, n_features))
    nothing = np.zeros((n_clusters, n_features + 2))
    settle_order(pairs, nothing, np.zeros((n_clusters, n_features)), lo, hi, 0.0, u, m)
    pull, size = np.zeros((n_clusters, n_features)), np.zeros((n_clusters, n_features))
    for p in range(len(u)):
        for d in range(n_features):
            term = u[p] * pairs.normals[p, d]
            pull[pairs.first[p], d] += term
            pull[pairs.second[p], d] -= term
            size[pairs.first[p], d] += abs(term)
            size[pairs.second[p], d] += abs(term)
    most, magnitude = 0.0, 0.0
    for k in range(n_clusters):
        for d in range(n_features):
            most += max(pull[k, d] * lo[k, d], pull[k, d] * hi[k, d])
            magnitude += size[k, d] * max(abs(lo[k, d]), abs(hi[k, d]))
    return most < -(4 * len(u) + 4 * n_clusters * n_features + 16) * ROUNDING * magnitude - TINY
