"""Exact centroids for an assignment that a MIQCP solver has found.

The cost is flat around its minimum: a tolerance of 1e-6 in the squared distances leaves centroids wrong by 1e-3. For
fixed labels the node problem is convex and separates over clusters and features unless the order rule couples them,

    min_m  Σ_k W_k ‖m_k − μ_k‖² + ⟨price_k, m_k⟩,   boxes,   (r_k − r_l)·(m_k − m_l) ≥ 0,

so it is solved again to full accuracy. The result obeys boxes and rule exactly, and so its value is attained.
"""

from __future__ import annotations

import clarabel
import numpy as np
from scipy import sparse

from ...core.arrays import Array
from ...core.symmetry import align
from .base import NodeProblem

_INWARD = (0.0, 1e-9, 1e-7, 1e-5)  # how far inside the order rule to aim, in units of the boxes


def polished(problem: NodeProblem, centroids: Array) -> Array:
    """The best centroids that keep the labels of the given ones, or the given ones where that fails."""
    lower, upper = problem.boxes
    given = np.clip(centroids, lower, upper)
    counts, means = _clusters(problem, given)
    candidates = [_separate(problem, counts, means)]
    if not problem.symmetry.satisfied(candidates[0]):
        candidates = []
        if problem.symmetry.rule == "order":
            candidates += [_ordered(problem, counts, means, inward) for inward in _INWARD]
    candidates.append(given)
    attained = [m for m in candidates if problem.symmetry.satisfied(m)]
    return min(attained, key=problem.value) if attained else given


def some_centroids(problem: NodeProblem) -> Array:
    """Centroids to report when the solver found none; they obey the rule whenever the boxes are alike."""
    lower, upper = problem.boxes
    middle = 0.5 * (lower + upper)
    references = problem.symmetry.references
    if references is None:
        return polished(problem, middle)
    for candidate in (np.clip(references, lower, upper), np.clip(align(middle, references), lower, upper)):
        if problem.symmetry.satisfied(candidate):
            return polished(problem, candidate)
    return middle


def _clusters(problem: NodeProblem, centroids: Array) -> tuple[Array, Array]:
    """Weight and mean of every cluster; the mean of an empty cluster is its centroid and weighs nothing."""
    squared = ((problem.points[:, None, :] - centroids[None, :, :]) ** 2).sum(axis=2)
    labels = squared.argmin(axis=1)
    counts, means = np.zeros(len(centroids)), centroids.copy()
    for k in range(len(centroids)):
        members = (labels == k) & (problem.weights > 0)
        if members.any():
            counts[k] = problem.weights[members].sum()
            means[k] = np.average(problem.points[members], axis=0, weights=problem.weights[members])
    return counts, means


def _separate(problem: NodeProblem, counts: Array, means: Array) -> Array:
    """Minimum over the boxes alone: a parabola or, for an empty cluster, a line in every coordinate."""
    lower, upper = problem.boxes
    mass = np.where(counts > 0, counts, 1.0)[:, None]
    edge = np.where(problem.price > 0, lower, np.where(problem.price < 0, upper, means))
    return np.clip(np.where(counts[:, None] > 0, means - problem.price / (2 * mass), edge), lower, upper)


def _ordered(problem: NodeProblem, counts: Array, means: Array, inward: float) -> Array:
    """Minimum over boxes and order rule, aimed `inward` so that rounding cannot leave the rule."""
    lower, upper = problem.boxes
    k, d = means.shape
    centre = 0.5 * (lower.min(axis=0) + upper.max(axis=0))
    scale = float(np.max(upper - lower, initial=0.0)) or 1.0
    heaviest = float(counts.max(initial=0.0)) or 1.0
    mean, low, high = ((side - centre) / scale for side in (means, lower, upper))
    weight = np.repeat(counts / heaviest, d)
    price = (problem.price / (heaviest * scale)).reshape(-1)
    normals = problem.symmetry.normals(k)
    rows = []
    for a in range(k):
        for b in range(a + 1, k):
            length = np.linalg.norm(normals[a, b])
            if length > 0:
                row = np.zeros((k, d))
                row[a], row[b] = -normals[a, b] / length, normals[a, b] / length
                rows.append(row.reshape(-1))
    order = np.array(rows).reshape(-1, k * d)
    eye = np.eye(k * d)
    matrix = sparse.csc_matrix(np.concatenate([order, eye, -eye]))
    limits = np.concatenate([np.full(len(order), -inward), high.reshape(-1), -low.reshape(-1)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    solution = clarabel.DefaultSolver(
        sparse.csc_matrix(np.diag(2 * weight)),
        price - 2 * weight * mean.reshape(-1),
        matrix,
        limits,
        [clarabel.NonnegativeConeT(len(limits))],
        settings,
    ).solve()
    m = np.nan_to_num(np.array(solution.x), nan=0.0, posinf=0.0, neginf=0.0).reshape(k, d)
    return np.clip(centre + scale * m, lower, upper)
