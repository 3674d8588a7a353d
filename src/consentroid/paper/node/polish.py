"""Exact centroids for an assignment that a MIQCP solver has found.

The cost is flat around its minimum: a tolerance of 1e-6 in the squared distances leaves centroids wrong by 1e-3. For
fixed labels the node problem is convex and separates over clusters and features unless the order rule couples them,

    min_m  Σ_k W_k ‖m_k − μ_k‖² + ⟨price_k, m_k⟩,   boxes,   (r_k − r_l)·(m_k − m_l) ≥ 0,

so it is solved again to full accuracy, aiming inside the rule, or where the rule has no inside, moved back until it is
obeyed. The result obeys boxes and order rule exactly, and so its value is attained; where no such centroids are found,
there are none to report. The rule nearest is not convex: centroids keep to it as closely as the solver does.
"""

from __future__ import annotations

import clarabel
import numpy as np
from scipy import sparse

from ...core.arrays import Array, nearest
from ...core.symmetry import align
from .base import NodeProblem

_INWARD = (0.0, 1e-9, 1e-7, 1e-5)  # how far inside the order rule to aim, in units of the boxes
_SWEEPS = 60  # over the pairs that break the order rule


def polished(problem: NodeProblem, centroids: Array) -> Array | None:
    """The best centroids with the labels of the given ones, or the given ones; None if none obey the order rule."""
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
    if not attained and problem.symmetry.rule == "order":
        moved = [_moved_back(problem, m) for m in candidates]
        attained = [m for m in moved if problem.symmetry.satisfied(m)]
    if attained:
        return min(attained, key=problem.value)
    return given if problem.symmetry.rule == "nearest" else None


def some_centroids(problem: NodeProblem) -> Array | None:
    """Centroids to report when the solver found none; they obey the rule whenever the boxes are alike."""
    lower, upper = problem.boxes
    middle = 0.5 * (lower + upper)
    references = problem.symmetry.references
    if references is None:
        return polished(problem, middle)
    for candidate in (np.clip(references, lower, upper), np.clip(align(middle, references), lower, upper)):
        if problem.symmetry.satisfied(candidate):
            return polished(problem, candidate)
    return None


def _clusters(problem: NodeProblem, centroids: Array) -> tuple[Array, Array]:
    """Weight and mean of every cluster; the mean of an empty cluster is its centroid and weighs nothing."""
    labels = nearest(problem.points, centroids)
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


def _moved_back(problem: NodeProblem, centroids: Array) -> Array:
    """Nearby centroids that obey the order rule, if sweeps over the broken pairs find them.

    A pair is moved onto its half-space along the coordinates in which the boxes leave room, a hair too far: rounding
    then ends on the right side, or at the side of a box.
    """
    lower, upper = problem.boxes
    normals = problem.symmetry.normals(len(centroids))
    m = centroids.copy()
    for _ in range(_SWEEPS):
        for a, b in np.ndindex(normals.shape[:2]):
            normal = normals[a, b]
            broken = -float(normal @ (m[a] - m[b]))
            if a < b and broken > 0:
                moves = np.stack([normal, -normal])  # of a and of b
                pair = [a, b]
                room = np.where(moves > 0, upper[pair] - m[pair], m[pair] - lower[pair])
                moves = np.where(room > 0, moves, 0.0)
                size = float((moves**2).sum())
                if size > 0:
                    m[pair] = np.clip(m[pair] + moves * (broken / size * (1 + 1e-12)), lower[pair], upper[pair])
        if problem.symmetry.satisfied(m):
            break
    return m
