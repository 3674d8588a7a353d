"""Under the order rule small problems are solved to the end, or proven to have no solution."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from consentroid.core.symmetry import Symmetry
from consentroid.paper.node._kernels import order_excludes
from consentroid.paper.node.base import Budget, NodeProblem, Status
from consentroid.paper.node.exact import ExactSolver
from draws import draws

pytestmark = pytest.mark.xdist_group("rule")  # the search for such problems takes longer than the tests


def random_problem(rng: np.random.Generator) -> NodeProblem:
    """Strong prices empty clusters and push centroids onto rule and box at once, where multipliers are hardest."""
    n_clusters, n_features, n = int(rng.integers(2, 5)), int(rng.integers(1, 4)), int(rng.integers(6, 11))
    points = rng.normal(size=(n, n_features))
    low, high = points.min(axis=0) - 0.5, points.max(axis=0) + 0.5
    shape = (n_clusters, n_features)
    boxes = np.stack([np.tile(low, (n_clusters, 1)), np.tile(high, (n_clusters, 1))])
    if rng.random() < 0.5:
        centre, half = rng.uniform(low, high, shape), rng.uniform(0.05, 0.5) * (high - low)
        boxes = np.stack([np.maximum(centre - half, low), np.minimum(centre + half, high)])
    price = rng.normal(size=shape) * 10.0 ** rng.uniform(-1, 1.5)
    return NodeProblem(points, np.ones(n), price, boxes, Symmetry("order", rng.uniform(low, high, shape)))


def largest_slack(problem: NodeProblem) -> float:
    """max over the boxes of the least n·(m_k − m_l), by linear programming."""
    references, (n_clusters, n_features) = problem.symmetry.references, problem.price.shape
    assert references is not None
    rows = []
    for k in range(n_clusters):
        for l in range(k + 1, n_clusters):
            row = np.zeros((n_clusters, n_features))
            row[k], row[l] = references[l] - references[k], references[k] - references[l]
            rows.append(np.append(row.ravel(), 1.0))
    sides = [*zip(problem.boxes[0].ravel(), problem.boxes[1].ravel(), strict=True), (None, None)]
    answer = linprog(np.append(np.zeros(problem.price.size), -1.0), A_ub=rows, b_ub=np.zeros(len(rows)), bounds=sides)
    return float(-answer.fun)


@pytest.mark.parametrize("seed", range(3))
def test_every_small_problem_is_decided(seed: int) -> None:
    rng = np.random.default_rng([7, seed])
    solver, infeasible = ExactSolver("assignments"), 0
    for _ in range(300):
        problem = random_problem(rng)
        solution = solver.solve(problem, Budget(search_nodes=10**6))
        if solution.status is Status.INFEASIBLE:
            infeasible += 1
            assert largest_slack(problem) < 1e-9
        else:
            assert solution.status is Status.OPTIMAL
            assert largest_slack(problem) > -1e-9
    assert infeasible > 0


@pytest.fixture(scope="module")
def excluded_together() -> list[NodeProblem]:
    """Problems of which each pair of clusters could obey the rule, and all three cannot: some in ten thousand."""
    rng, found = np.random.default_rng(1), []
    while len(found) < draws(6):
        problem = random_problem(rng)
        same = not np.ptp(problem.boxes, axis=1).any()  # boxes that are all the same exclude nothing
        if problem.n_clusters < 3 or same or order_excludes(problem.symmetry.references, *problem.boxes):
            continue
        if largest_slack(problem) <= -1e-6:
            found.append(problem)
    return found


@pytest.mark.parametrize("regime", ["auto", "assignments", "boxes"])
def test_boxes_that_exclude_the_rule_only_together_are_seen_at_once(
    regime: str, excluded_together: list[NodeProblem]
) -> None:
    solver = ExactSolver(regime)  # type: ignore[arg-type]
    for problem in excluded_together:
        solution = solver.solve(problem, Budget(search_nodes=5))
        assert solution.status is Status.INFEASIBLE
        assert solution.bound == np.inf
