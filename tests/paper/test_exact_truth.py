"""bound ≤ exact optimum ≤ value, without tolerance, against enumeration in rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from consentroid.core.symmetry import Symmetry
from consentroid.paper.node.base import Budget, NodeProblem, NodeSolution, Status
from consentroid.paper.node.exact import ExactSolver
from draws import draws
from oracle import exact_slacks, exact_value, optimum

REGIMES = ("auto", "assignments", "boxes")


def random_problem(rng: np.random.Generator, rule: str) -> NodeProblem:
    """Small enough to enumerate, varied enough to meet every branch: grids (ties), scales, offsets, empty clusters."""
    n_clusters, n_features = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    n = int(rng.integers(1, 6))
    if rule == "order":  # the oracle enumerates 3^(KD) faces
        n_clusters, n_features = (2, int(rng.integers(1, 3))) if rng.random() < 0.8 else (3, 1)
        n = int(rng.integers(1, 5 if n_clusters == 2 else 4))
    points = rng.uniform(-1, 1, (n, n_features)) if rng.random() < 0.6 else rng.integers(-2, 3, (n, n_features)) / 2.0
    scale = float(rng.choice([1.0, 1.0, 1e-3, 1e6, 1e-120, 1e120]))
    offset = float(rng.choice([0.0, 0.0, 0.0, 1e6])) * scale
    points = points * scale + offset
    weights = np.ones(n) if rng.random() < 0.5 else rng.choice([0.0, 0.25, 1.0, 3.0, 0.1], n)
    price = np.zeros((n_clusters, n_features))
    if rng.random() < 0.7:
        price = rng.normal(size=price.shape) * scale * float(rng.choice([0.1, 1.0, 10.0]))
    low, high = points.min(axis=0) - 0.1 * scale, points.max(axis=0) + 0.1 * scale
    boxes = np.stack([np.tile(low, (n_clusters, 1)), np.tile(high, (n_clusters, 1))])
    if rng.random() < 0.4:
        a, b = (rng.uniform(low, high, price.shape) for _ in range(2))
        boxes = np.stack([np.minimum(a, b), np.maximum(a, b)])
    references = None if rule == "none" else rng.uniform(low, high, price.shape)
    return NodeProblem(points, weights, price, boxes, Symmetry(rule, references))  # type: ignore[arg-type]


def check(problem: NodeProblem, solution: NodeSolution, best: Fraction | None) -> None:
    """The solution tells the truth about a problem with the given exact optimum (None: infeasible)."""
    if solution.status is Status.INFEASIBLE:
        assert best is None
        assert solution.bound == np.inf
        return
    if best is None:
        assert solution.value == np.inf
        return
    assert solution.bound == -np.inf or Fraction(solution.bound) <= best
    if solution.value < np.inf:
        assert best <= Fraction(solution.value)
        assert exact_value(problem, solution.centroids) <= Fraction(solution.value)
        assert np.all(solution.centroids >= problem.boxes[0])
        assert np.all(solution.centroids <= problem.boxes[1])
        if problem.symmetry.rule == "order":
            assert all(slack >= 0 for slack in exact_slacks(problem.symmetry.references, solution.centroids))


def relative_gap(problem: NodeProblem, solution: NodeSolution) -> float:
    size = max(abs(solution.value), float(np.abs(problem.price * solution.centroids).sum()), 1e-270)
    return (solution.value - solution.bound) / size


@pytest.mark.parametrize(("rule", "n_problems"), [("none", draws(300)), ("order", draws(60))])
@pytest.mark.parametrize("seed", [0, 1])
def test_bound_and_value_enclose_the_exact_optimum(rule: str, n_problems: int, seed: int) -> None:
    rng = np.random.default_rng([seed, n_problems])
    solvers = {regime: ExactSolver(regime) for regime in REGIMES}  # type: ignore[arg-type]
    loose = dict.fromkeys(REGIMES, 0)
    for _ in range(n_problems):
        problem = random_problem(rng, rule)
        best = optimum(problem)
        for regime, solver in solvers.items():
            for budget in (Budget(search_nodes=1), Budget(search_nodes=25), Budget(search_nodes=2000)):
                solution = solver.solve(problem, budget)
                check(problem, solution, best)
            loose[regime] += best is not None and relative_gap(problem, solution) > 1e-6
    # the searches must also be any good: nearly all of these are solved within two thousand search nodes
    assert max(loose.values()) <= 0.05 * n_problems, loose


@pytest.mark.parametrize("regime", REGIMES)
def test_an_early_stop_costs_tightness_never_truth(regime: str) -> None:
    rng = np.random.default_rng(7)
    solver = ExactSolver(regime)  # type: ignore[arg-type]
    for _ in range(20):
        problem = random_problem(rng, "none")
        best = optimum(problem)
        check(problem, solver.solve(problem, Budget(seconds=0.0)), best)
        bounds = [solver.solve(problem, Budget(search_nodes=2**i)).bound for i in range(0, 12, 3)]
        assert best is None or max(bounds) <= best
