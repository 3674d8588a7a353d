"""Naive oracles in exact rational arithmetic: slow, obvious, and right to the last bit.

A node problem is minimised by enumerating all assignments. For each, without a rule, the optimum is a sum of clamped
one-dimensional quadratics; under the order rule it is a small convex quadratic programme, solved exactly by enumerating
active sets.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np

from consentroid.paper.node.base import NodeProblem


def exact(array: np.ndarray) -> list:
    """An array as nested lists of fractions."""
    return [exact(row) for row in array] if np.ndim(array) else Fraction(float(array))


def exact_value(problem: NodeProblem, centroids: np.ndarray) -> Fraction:
    """Objective at the given centroids."""
    points, weights, price, m = map(exact, (problem.points, problem.weights, problem.price, centroids))
    cost = sum(w * min(sum((a - b) ** 2 for a, b in zip(y, c)) for c in m) for y, w in zip(points, weights))
    return cost + sum(p * x for pk, mk in zip(price, m) for p, x in zip(pk, mk))


def exact_slacks(references: np.ndarray, centroids: np.ndarray) -> list[Fraction]:
    """(r_k − r_l)·(m_k − m_l) for all k < l."""
    r, m = exact(references), exact(centroids)
    pairs = [(k, j) for k in range(len(m)) for j in range(k + 1, len(m))]
    return [sum((a - b) * (x - y) for a, b, x, y in zip(r[k], r[j], m[k], m[j])) for k, j in pairs]


def optimum(problem: NodeProblem) -> Fraction | None:
    """The exact optimum under the rules none and order; None if infeasible."""
    points, weights, price = map(exact, (problem.points, problem.weights, problem.price))
    (lo, hi), n_clusters = map(exact, problem.boxes), problem.n_clusters
    n_features = len(lo[0])
    candidates = []
    for labels in product(range(n_clusters), repeat=len(points)):
        weight = [Fraction(0)] * n_clusters
        linear = [list(p) for p in price]
        constant = Fraction(0)
        for y, w, k in zip(points, weights, labels):
            weight[k] += w
            for d in range(n_features):
                linear[k][d] -= 2 * w * y[d]
                constant += w * y[d] ** 2
        unconstrained, m = Fraction(0), []
        for k in range(n_clusters):
            row = []
            for d in range(n_features):
                x = _clamped(weight[k], linear[k][d], lo[k][d], hi[k][d])
                row.append(x)
                unconstrained += weight[k] * x * x + linear[k][d] * x
            m.append(row)
        candidates.append((unconstrained + constant, constant, weight, linear, m))
    candidates.sort(key=lambda candidate: candidate[0])
    if problem.symmetry.rule == "none":
        return candidates[0][0]
    best = None
    for relaxed, constant, weight, linear, m in candidates:
        if best is not None and relaxed >= best:
            break
        value = _ordered(problem, weight, linear, lo, hi, m, relaxed - constant)
        if value is not None and (best is None or value + constant < best):
            best = value + constant
    return best


def _clamped(weight: Fraction, linear: Fraction, lo: Fraction, hi: Fraction) -> Fraction:
    if weight > 0:
        return min(max(-linear / (2 * weight), lo), hi)
    return lo if linear >= 0 else hi


def _ordered(problem, weight, linear, lo, hi, m, unconstrained) -> Fraction | None:
    """min of the separable quadratic under boxes and order rule, by enumeration of active sets (KKT)."""
    r = exact(problem.symmetry.references)
    n_clusters, n_features = len(m), len(m[0])
    index = [(k, d) for k in range(n_clusters) for d in range(n_features)]
    rows = []
    for k in range(n_clusters):
        for j in range(k + 1, n_clusters):
            row = {}
            for d in range(n_features):
                row[(k, d)] = r[k][d] - r[j][d]
                row[(j, d)] = r[j][d] - r[k][d]
            rows.append([row.get(i, Fraction(0)) for i in index])
    flat = [m[k][d] for k, d in index]
    if all(sum(a * x for a, x in zip(row, flat)) >= 0 for row in rows):
        return unconstrained
    w = [weight[k] for k, _ in index]
    q = [linear[k][d] for k, d in index]
    low, high = [lo[k][d] for k, d in index], [hi[k][d] for k, d in index]
    best = None
    for faces in product((0, -1, 1), repeat=len(index)):  # 0: free, −1: at lower, 1: at upper
        free = [i for i, f in enumerate(faces) if f == 0]
        fixed = [low[i] if f < 0 else high[i] if f > 0 else None for i, f in enumerate(faces)]
        for active in product((False, True), repeat=len(rows)):
            chosen = [row for row, a in zip(rows, active) if a]
            x = _stationary(free, fixed, chosen, w, q)
            if x is None:
                continue
            if any(not low[i] <= x[i] <= high[i] for i in range(len(x))):
                continue
            if any(sum(a * b for a, b in zip(row, x)) < 0 for row in rows):
                continue
            value = sum(wi * xi * xi + qi * xi for wi, qi, xi in zip(w, q, x))
            if best is None or value < best:
                best = value
    return best


def _stationary(free, fixed, chosen, w, q):
    """A stationary point with the given faces and active rows, or None; every minimiser is one for some choice.

    Singular systems (empty clusters) are skipped: a linear objective attains its minimum at a vertex, which another
    choice of faces and rows describes by a regular system.
    """
    n, c = len(free), len(chosen)
    size = n + c
    matrix = [[Fraction(0)] * (size + 1) for _ in range(size)]
    for a, i in enumerate(free):
        matrix[a][a] = 2 * w[i]
        matrix[a][size] = -q[i]
        for b, row in enumerate(chosen):
            matrix[a][n + b] = -row[i]
    for b, row in enumerate(chosen):
        rest = Fraction(0)
        for i, value in enumerate(fixed):
            if value is not None:
                rest += row[i] * value
        for a, i in enumerate(free):
            matrix[n + b][a] = row[i]
        matrix[n + b][size] = -rest
    for i in range(size):
        pivot = next((p for p in range(i, size) if matrix[p][i] != 0), None)
        if pivot is None:
            return None
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        lead = matrix[i][i]
        matrix[i] = [v / lead for v in matrix[i]]
        for p in range(size):
            if p != i and matrix[p][i] != 0:
                f = matrix[p][i]
                matrix[p] = [v - f * u for v, u in zip(matrix[p], matrix[i])]
    x = [value if value is not None else Fraction(0) for value in fixed]
    for a, i in enumerate(free):
        x[i] = matrix[a][size]
    return x


def clustering_optimum(points: np.ndarray, weights: np.ndarray, n_clusters: int) -> Fraction:
    """The least cost of all partitions into at most K clusters, over all subsets of rows, exactly."""
    kept = np.asarray(weights) > 0
    x, w = exact(np.asarray(points)[kept]), exact(np.asarray(weights)[kept])
    costs = [Fraction(0)] + [
        scatter([x[j] for j in range(len(x)) if s >> j & 1], [w[j] for j in range(len(x)) if s >> j & 1])
        for s in range(1, 1 << len(x))
    ]
    # the same over integers: much faster, as long as there is a common denominator of reasonable length
    common = 1
    for cost in costs:
        common = common * cost.denominator // math.gcd(common, cost.denominator)
        if common.bit_length() > 20_000:
            return Fraction(_cheapest(costs, n_clusters))
    return Fraction(_cheapest([cost.numerator * (common // cost.denominator) for cost in costs], n_clusters), common)


def _cheapest(costs: list, n_clusters: int):
    """Least sum of the costs of at most K disjoint sets that cover everything; a set's cost grows with the set."""
    best = list(costs)
    everything = len(costs) - 1
    for left in range(n_clusters - 1):
        wanted = [everything] if left == n_clusters - 2 else range(1, len(costs))
        new = list(best)
        for whole in wanted:
            lowest = whole & -whole
            part = whole
            while part:
                if part & lowest and costs[part] + best[whole ^ part] < new[whole]:
                    new[whole] = costs[part] + best[whole ^ part]
                part = (part - 1) & whole
        best = new
    return best[everything]


def scatter(rows: list[list[Fraction]], weights: list[Fraction]) -> Fraction:
    """Σ w |x − mean|²."""
    weight, total = sum(weights), Fraction(0)
    for column in zip(*rows):
        first = sum(w * x for w, x in zip(weights, column))
        total += sum(w * x * x for w, x in zip(weights, column)) - first * first / weight
    return total


def price_function(y: np.ndarray, w: np.ndarray, prices: np.ndarray, point: list[Fraction]) -> Fraction:
    """f(m) = Σ w min(0, |y − m|² − λ)."""
    total = Fraction(0)
    for row, weight, price in zip(exact(y), exact(w), exact(prices)):
        total += weight * min(Fraction(0), sum((a - b) ** 2 for a, b in zip(row, point)) - price)
    return total


def cell_minimum(
    y: np.ndarray, w: np.ndarray, prices: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> tuple[Fraction, list[list[Fraction]]]:
    """min f over a box, and all its minimisers among the means of subsets cut off at the box (one is the best)."""
    low, high, rows, mass = exact(lower), exact(upper), exact(y), exact(w)
    found: dict[tuple[Fraction, ...], Fraction] = {}
    for chosen in product([False, True], repeat=len(rows)):
        part = [(row, weight) for row, weight, one in zip(rows, mass, chosen) if one]
        if not part:
            continue
        weight = sum(weight for _, weight in part)
        mean = [sum(v * row[d] for row, v in part) / weight for d in range(len(low))]
        point = tuple(min(max(x, a), b) for x, a, b in zip(mean, low, high))
        if point not in found:
            found[point] = price_function(y, w, prices, list(point))
    least = min(found.values(), default=Fraction(0))
    return min(least, Fraction(0)), [list(point) for point, value in found.items() if value == least]
