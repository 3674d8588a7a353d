"""Leaving out assignments that no line separates loses nothing: against exact geometry and against all assignments."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from consentroid.core.symmetry import Symmetry
from consentroid.paper.node._separation import first_cones, n_cones, separable
from consentroid.paper.node.base import Budget, NodeProblem, Status
from consentroid.paper.node.exact import ExactSolver


def in_half_a_turn(directions: list[tuple[Fraction, Fraction]]) -> bool:
    """Whether some d ≠ 0 has v·d ≥ 0 for all v, exactly: if any, then one at right angles to a direction."""
    candidates = [d for x, y in directions for d in ((-y, x), (y, -x))] or [(Fraction(1), Fraction(0))]
    return any(any(d) and all(x * d[0] + y * d[1] >= 0 for x, y in directions) for d in candidates)


def truly_separable(points: np.ndarray, labels: list[int], normals: dict[tuple[int, int], np.ndarray]) -> bool:
    for (k, l), normal in normals.items():
        differences = [
            tuple(Fraction(float(a)) - Fraction(float(b)) for a, b in zip(points[i], points[j]))
            for i, j in product(range(len(labels)), repeat=2)
            if labels[i] == k and labels[j] == l
        ]
        if normal.any():
            differences.append(tuple(Fraction(float(a)) for a in normal))
        if points.shape[1] == 1:
            differences = [(*d, Fraction(0)) for d in differences]
            if any(d[0] > 0 for d in differences) and any(d[0] < 0 for d in differences):
                return False
        elif not in_half_a_turn(differences):  # type: ignore[arg-type]
            return False
    return True


@pytest.mark.parametrize("n_features", [1, 2])
@pytest.mark.parametrize("ruled", [False, True])
def test_what_is_left_out_is_not_separable(n_features: int, ruled: bool) -> None:
    rng = np.random.default_rng(n_features)
    n_clusters, left_out, missed = 3, 0, 0
    for turn in range(400):
        n = int(rng.integers(4, 8))
        grid = rng.permutation(49)[:n]  # distinct rows, many of them on common lines
        points = np.stack([grid % 7, grid // 7], axis=1)[:, :n_features] / 8.0
        points = np.unique(points, axis=0) if turn % 2 else rng.normal(size=(n, n_features))
        references = rng.normal(size=(n_clusters, n_features))
        label = np.zeros(len(points), np.int64)
        cones = np.zeros((len(points) + 1, n_cones(n_clusters, n_features), 4))
        first_cones(references, ruled, cones[0])
        labels, kept = [int(x) for x in rng.integers(0, n_clusters, len(points))], True
        for s, k in enumerate(labels):
            kept = kept and separable(0, s, k, n_clusters, points, label, cones)
        normals = {
            (k, l): (references[k] - references[l]) * ruled for k in range(n_clusters) for l in range(k + 1, n_clusters)
        }
        truth = truly_separable(points, labels, normals)
        assert kept or not truth
        left_out += not kept
        missed += kept and not truth
    assert left_out > 100
    assert missed < 0.2 * left_out  # rows in line are not always told apart; that costs time only


def least_of_all_assignments(problem: NodeProblem) -> float:
    """Every assignment at once: separable quadratics cut off at the boxes, no rule."""
    n, n_clusters = len(problem.points), problem.n_clusters
    labels = np.array(list(product(range(n_clusters), repeat=n)))
    member = (labels[:, :, None] == np.arange(n_clusters)) * problem.weights[:, None]
    weight = member.sum(axis=1)[:, :, None]
    pull = np.einsum("ajk,jd->akd", member, problem.points) - 0.5 * problem.price
    lo, hi = problem.boxes
    free = np.divide(pull, weight, out=np.where(pull > 0, np.inf, -np.inf), where=weight > 0)
    m = np.clip(free, lo, hi)
    squares = np.sum(problem.weights[:, None] * problem.points**2)
    return float(np.min(np.sum((weight * m - 2.0 * pull) * m, axis=(1, 2)) + squares))


@pytest.mark.parametrize("n_features", [1, 2])
def test_the_best_of_all_assignments_is_found(n_features: int) -> None:
    rng = np.random.default_rng(3)
    solver = ExactSolver("assignments")
    for turn in range(60):
        n_clusters = 2 + turn % 2
        points = rng.normal(size=(9 if n_clusters == 2 else 8, n_features))
        if turn % 3 == 0:
            points = np.round(2.0 * points) / 2.0  # ties, equal rows, rows in line
        price = rng.normal(size=(n_clusters, n_features)) * rng.choice([0.0, 0.3, 3.0])
        corners = np.sort(rng.uniform(-3, 3, (2, n_clusters, n_features)), axis=0)
        boxes = corners if turn % 4 == 0 else np.stack([np.full(price.shape, -3.0), np.full(price.shape, 3.0)])
        problem = NodeProblem(points, rng.choice([1.0, 2.5], len(points)), price, boxes, Symmetry())
        solution = solver.solve(problem, Budget())
        least = least_of_all_assignments(problem)
        assert solution.status is Status.OPTIMAL
        assert solution.value == pytest.approx(least, rel=1e-9, abs=1e-9)


def test_rule_and_separation_together_agree_with_the_search_over_boxes() -> None:
    rng = np.random.default_rng(5)
    for _ in range(25):
        points, references = rng.normal(size=(10, 2)), rng.normal(size=(3, 2))
        price = rng.normal(size=(3, 2)) * rng.choice([0.3, 3.0])
        boxes = np.stack([np.full((3, 2), -2.5), np.full((3, 2), 2.5)])
        problem = NodeProblem(points, np.ones(10), price, boxes, Symmetry("order", references))
        ours = ExactSolver("assignments").solve(problem, Budget())
        theirs = ExactSolver("boxes").solve(problem, Budget(gap=1e-7))
        assert ours.status is Status.OPTIMAL
        assert theirs.bound <= ours.value
        assert ours.bound <= theirs.value
        assert ours.value <= theirs.value + 1e-7 * max(abs(theirs.value), 1.0)
