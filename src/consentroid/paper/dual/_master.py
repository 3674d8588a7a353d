"""The master of the proximal bundle: a concave piecewise-linear model of every node's part, kept near a centre.

    max_p  Σ_i min_c (a_ic + ⟨p_i, m_ic⟩) − (u/2) Σ_i ‖p_i − p̂_i‖²    s.t.  Σ_i p_i = 0                        (M)

A cut is a pair (a, m): the node's cost a at centroids m that it may choose, hence a valid cut at *every* price. In
terms of the weights w_i ≥ 0, Σ_c w_ic = 1 on the cuts, with x_i = Σ_c w_ic m_ic and x̄ their mean over the nodes,

    min_w  Σ_i Σ_c w_ic (a_ic + ⟨p̂_i, m_ic⟩) + (1/2u) Σ_i ‖x_i − x̄‖²,          p_i = p̂_i + (x_i − x̄)/u.

So the prices of the next round follow the disagreement of the x_i, a primal point that the weights average.

Solved by an interior-point method that starts feasible and stays so; only the complementarity of weights and slacks
is driven to zero (Mehrotra's predictor and corrector). With q = p − p̂, θ_c = w_c/slack_c, m̄ the θ-mean of a node's
points and h the multiplier of Σ q_i = 0, Newton's step needs one small matrix per node:

    (I + Σ_c θ_c (m_c − m̄)(m_c − m̄)ᵀ) Δq_i = b_i − Δh,      Σ_i Δq_i = 0.

Work grows with N (C P² + P³), P = K·D. Everything is shifted and scaled to unit size first: common shifts of the
points cancel because prices sum to zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ...core.arrays import Array

Index = NDArray[np.int64]
STEPS = 60
TOLERANCE = 1e-13  # of the duality gap of the scaled master; prices are then good to its root


@dataclass(frozen=True)
class Master:
    prices: Array  # (N, K, D), sum to zero
    value: float  # the model at these prices, without the proximal term
    weights: Array  # (C,) of all cuts in order
    primal: Array  # (N, K, D): x_i, the weighted mean of node i's points


def solve_master(costs: Sequence[Array], points: Sequence[Array], centre: Array, proximity: float) -> Master:
    """(M) from lists with one entry per node: costs (C_i,) and points (C_i, K, D) or (C_i, K·D), C_i ≥ 1."""
    offsets = np.zeros(len(costs) + 1, dtype=np.int64)
    np.cumsum([len(c) for c in costs], out=offsets[1:])
    flat = np.concatenate([np.reshape(p, (len(c), -1)) for c, p in zip(costs, points, strict=True)])
    return solve_flat_master(np.concatenate(costs), flat, offsets, centre, proximity)


def solve_flat_master(costs: Array, points: Array, offsets: Index, centre: Array, proximity: float) -> Master:
    """(M) with the cuts of node i in rows offsets[i] to offsets[i + 1]."""
    n = len(offsets) - 1
    weights, primal, prices, value = _solve(
        np.ascontiguousarray(costs, dtype=np.float64),
        np.ascontiguousarray(points, dtype=np.float64),
        offsets,
        np.ascontiguousarray(centre, dtype=np.float64).reshape(n, -1),
        float(proximity),
    )
    return Master(prices.reshape(centre.shape), value, weights, primal.reshape(centre.shape))


@njit(cache=True)
def _solve(costs, points, offsets, centre, proximity):  # type: ignore[no-untyped-def]
    """Scale, solve, and read the model off at the new prices."""
    n_nodes, size = centre.shape
    n_cuts = len(costs)
    mean = np.zeros(size)
    for c in range(n_cuts):
        mean += points[c] / n_cuts
    shifted = points - mean
    spread = 0.0
    for c in range(n_cuts):
        spread = max(spread, np.sqrt(np.dot(shifted[c], shifted[c])))
    heights = np.empty(n_cuts)  # the cuts at the centre
    for i in range(n_nodes):
        for c in range(offsets[i], offsets[i + 1]):
            heights[c] = costs[c] + np.dot(centre[i], shifted[c])
    weights, steps = np.empty(n_cuts), np.zeros((n_nodes, size))
    if spread == 0.0:
        for i in range(n_nodes):
            first, last = offsets[i], offsets[i + 1]
            weights[first:last] = 0.0
            weights[first + np.argmin(heights[first:last])] = 1.0
    else:
        scaled = heights * (proximity / spread / spread)
        for i in range(n_nodes):
            first, last = offsets[i], offsets[i + 1]
            scaled[first:last] -= scaled[first:last].min()
        steps = _interior_point(scaled, shifted / spread, offsets, weights) * (spread / proximity)
        for a in range(size):
            steps[:, a] -= steps[:, a].mean()

    primal = np.zeros((n_nodes, size))
    for i in range(n_nodes):
        for c in range(offsets[i], offsets[i + 1]):
            primal[i] += weights[c] * shifted[c]
    prices = np.empty((n_nodes, size))
    value = 0.0
    for i in range(n_nodes):
        prices[i] = centre[i] + steps[i]
        lowest = np.inf
        for c in range(offsets[i], offsets[i + 1]):
            lowest = min(lowest, heights[c] + np.dot(steps[i], shifted[c]))
        value += lowest
        primal[i] += mean
    return weights, primal, prices, value


@njit(cache=True)
def _interior_point(heights, points, offsets, weights):  # type: ignore[no-untyped-def]
    """min Σ w·heights + ½ Σ ‖x_i − x̄‖² over the simplices; fills `weights`, returns q."""
    n_nodes, n_cuts, size = len(offsets) - 1, points.shape[0], points.shape[1]
    for i in range(n_nodes):
        weights[offsets[i] : offsets[i + 1]] = 1.0 / (offsets[i + 1] - offsets[i])
    step = _disagreement(points, offsets, weights)  # q
    drift = np.zeros_like(step)  # x_i − x̄ − q_i: zero but for rounding, which each step corrects
    slack = np.empty(n_cuts)
    span = 0.0
    for i in range(n_nodes):
        first, last = offsets[i], offsets[i + 1]
        for c in range(first, last):
            slack[c] = heights[c] + np.dot(step[i], points[c])
        span = max(span, slack[first:last].max() - slack[first:last].min())
        slack[first:last] -= slack[first:last].min()
    slack += max(0.1 * span, 1e-3)
    tolerance = TOLERANCE * n_nodes * max(min(heights.max(), 1.0), 1e-3)

    factors, inverse = np.empty((n_nodes, size, size)), np.empty((size, size))
    means = np.empty((n_nodes, size))
    theta, target, d_weights, d_slack = np.empty(n_cuts), np.empty(n_cuts), np.empty(n_cuts), np.empty(n_cuts)
    d_step = np.empty((n_nodes, size))
    gap = np.dot(weights, slack)
    for _ in range(STEPS):
        if gap <= tolerance:
            break
        for c in range(n_cuts):
            theta[c] = weights[c] / slack[c]
        total, sound = np.zeros((size, size)), True
        for i in range(n_nodes):
            _node_matrix(points, theta, offsets[i], offsets[i + 1], means[i], factors[i])
            sound = _factorise(factors[i]) and sound
            _invert(factors[i], inverse)
            total += inverse
        if not (sound and _factorise(total)):
            break
        for c in range(n_cuts):
            target[c] = -weights[c] * slack[c]
        _newton(points, offsets, slack, theta, target, means, factors, total, drift, d_weights, d_slack, d_step)
        length = _longest(weights, d_weights, slack, d_slack)
        predicted = 0.0
        for c in range(n_cuts):
            predicted += (weights[c] + length * d_weights[c]) * (slack[c] + length * d_slack[c])
        centring = (predicted / gap) ** 3 * gap / n_cuts
        for c in range(n_cuts):
            target[c] = centring - weights[c] * slack[c] - d_weights[c] * d_slack[c]
        _newton(points, offsets, slack, theta, target, means, factors, total, drift, d_weights, d_slack, d_step)
        length = min(1.0, 0.995 * _longest(weights, d_weights, slack, d_slack))
        for c in range(n_cuts):
            weights[c] += length * d_weights[c]
            slack[c] += length * d_slack[c]
        step += length * d_step
        drift = _disagreement(points, offsets, weights) - step
        smaller = np.dot(weights, slack)
        if not smaller < gap:  # rounding has the last word, also when it says nan
            break
        gap = smaller
    for i in range(n_nodes):
        first, last = offsets[i], offsets[i + 1]
        weights[first:last] /= weights[first:last].sum()
    return step


@njit(cache=True)
def _disagreement(points, offsets, weights):  # type: ignore[no-untyped-def]
    """x_i − x̄ for every node."""
    n_nodes, size = len(offsets) - 1, points.shape[1]
    result, mean = np.zeros((n_nodes, size)), np.zeros(size)
    for i in range(n_nodes):
        for c in range(offsets[i], offsets[i + 1]):
            result[i] += weights[c] * points[c]
        mean += result[i] / n_nodes
    return result - mean


@njit(cache=True)
def _node_matrix(points, theta, first, last, mean, matrix):  # type: ignore[no-untyped-def]
    """Fill the θ-mean of a node's points and the lower triangle of I + Σ θ (m − m̄)(m − m̄)ᵀ."""
    size = points.shape[1]
    mean[:] = 0.0
    total = 0.0
    for c in range(first, last):
        mean += theta[c] * points[c]
        total += theta[c]
    mean /= total
    for a in range(size):
        for b in range(size):
            matrix[a, b] = 1.0 if a == b else 0.0
    for c in range(first, last):
        for a in range(size):
            scaled = theta[c] * (points[c, a] - mean[a])
            for b in range(a + 1):
                matrix[a, b] += scaled * (points[c, b] - mean[b])


@njit(cache=True)
def _newton(points, offsets, slack, theta, target, means, factors, total, drift, d_weights, d_slack, d_step):  # type: ignore
    """Fill the step that brings weight × slack to its present product plus `target`, keeping all equalities."""
    n_nodes, size = len(offsets) - 1, points.shape[1]
    sides, multiplier = np.zeros((n_nodes, size)), np.zeros(size)
    for i in range(n_nodes):
        sides[i] = drift[i]
        for c in range(offsets[i], offsets[i + 1]):
            sides[i] += (target[c] / slack[c]) * (points[c] - means[i])
        d_step[i] = sides[i]
        _substitute(factors[i], d_step[i])
        multiplier += d_step[i]
    _substitute(total, multiplier)
    for i in range(n_nodes):
        d_step[i] = sides[i] - multiplier
        _substitute(factors[i], d_step[i])
        lift, weight = 0.0, 0.0
        for c in range(offsets[i], offsets[i + 1]):
            lift += target[c] / slack[c]
            weight += theta[c]
        lift /= weight
        for c in range(offsets[i], offsets[i + 1]):
            d_slack[c] = lift
            for a in range(size):
                d_slack[c] += (points[c, a] - means[i, a]) * d_step[i, a]
            d_weights[c] = target[c] / slack[c] - theta[c] * d_slack[c]


@njit(cache=True)
def _longest(weights, d_weights, slack, d_slack):  # type: ignore[no-untyped-def]
    """The longest step that keeps weights and slacks from turning negative."""
    length = 1.0
    for c in range(len(weights)):
        if d_weights[c] < 0.0:
            length = min(length, -weights[c] / d_weights[c])
        if d_slack[c] < 0.0:
            length = min(length, -slack[c] / d_slack[c])
    return length


@njit(cache=True)
def _factorise(matrix):  # type: ignore[no-untyped-def]
    """Cholesky factor in place of the lower triangle; False where the matrix is not positive definite."""
    n = matrix.shape[0]
    for a in range(n):
        for b in range(a + 1):
            value = matrix[a, b]
            for k in range(b):
                value -= matrix[a, k] * matrix[b, k]
            if a > b:
                matrix[a, b] = value / matrix[b, b]
            elif value > 0.0:
                matrix[a, a] = np.sqrt(value)
            else:
                return False
    return True


@njit(cache=True)
def _substitute(factor, x):  # type: ignore[no-untyped-def]
    """Solve L Lᵀ x = x in place."""
    n = factor.shape[0]
    for a in range(n):
        for k in range(a):
            x[a] -= factor[a, k] * x[k]
        x[a] /= factor[a, a]
    for a in range(n - 1, -1, -1):
        for k in range(a + 1, n):
            x[a] -= factor[k, a] * x[k]
        x[a] /= factor[a, a]


@njit(cache=True)
def _invert(factor, inverse):  # type: ignore[no-untyped-def]
    """Fill the lower triangle of (L Lᵀ)⁻¹."""
    n = factor.shape[0]
    for a in range(n):  # L⁻¹ first
        inverse[a, a] = 1.0 / factor[a, a]
        for b in range(a):
            value = 0.0
            for k in range(b, a):
                value += factor[a, k] * inverse[k, b]
            inverse[a, b] = -value * inverse[a, a]
    for a in range(n):  # then L⁻ᵀ L⁻¹, row by row: row a needs only rows from a on
        for b in range(a + 1):
            value = 0.0
            for k in range(a, n):
                value += inverse[k, a] * inverse[k, b]
            inverse[a, b] = value
