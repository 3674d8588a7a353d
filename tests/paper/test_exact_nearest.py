"""The paper's rule `nearest` by the exact solver against slow oracles: it is not convex, and often far from `order`."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.optimize import minimize

from clocks import Clock
from consentroid.core.errors import InvalidInput, SolverUnavailable
from consentroid.core.symmetry import Symmetry
from consentroid.paper.nearest import solver as nearest
from consentroid.paper.nearest.solver import NearestSolver
from consentroid.paper.node import regimes
from consentroid.paper.node.base import Budget, NodeProblem, Status
from consentroid.paper.node.exact import ExactSolver
from consentroid.paper.solvers import solver_named

GAP = 1e-4  # NEAREST_GAP


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """The first solve on a machine compiles, which no time limit should meet."""
    points, boxes = np.array([[0.0, 0.0], [1.0, 1.0]]), np.stack([np.zeros((2, 2)), np.ones((2, 2))])
    for rule in ("order", "nearest"):
        problem = NodeProblem(points, np.ones(2), np.ones((2, 2)), boxes, Symmetry(rule, points))
        solver_named("exact", rule).solve(problem, Budget())


def slacks(references: np.ndarray, m: np.ndarray) -> np.ndarray:
    """‖m_l − r_k‖² − ‖m_k − r_k‖² for k ≠ l: the rule wants them ≥ 0."""
    squared = ((m[None, :, :] - references[:, None, :]) ** 2).sum(axis=2)
    return (squared - np.diag(squared)[:, None])[~np.eye(len(m), dtype=bool)]


def slack_slopes(references: np.ndarray, m: np.ndarray) -> np.ndarray:
    k_clusters, n_features = m.shape
    rows = []
    for k in range(k_clusters):
        for other in range(k_clusters):
            if other != k:
                row = np.zeros((k_clusters, n_features))
                row[other] += 2 * (m[other] - references[k])
                row[k] -= 2 * (m[k] - references[k])
                rows.append(row.ravel())
    return np.array(rows).reshape(-1, m.size)


def oracle(problem: NodeProblem, n_starts: int, seed: int) -> float:
    """Enumerate assignments; solve each one's programme by SLSQP from several starts. Best value, inf if none."""
    rng = np.random.default_rng(seed)
    shape, (lo, hi) = problem.price.shape, problem.boxes
    references = problem.symmetry.references
    assert references is not None
    starts = [np.clip(references, lo, hi)] + [rng.uniform(lo, hi) for _ in range(n_starts)]
    rule = {
        "type": "ineq",
        "fun": lambda x: slacks(references, x.reshape(shape)),
        "jac": lambda x: slack_slopes(references, x.reshape(shape)),
    }
    best = np.inf
    seen = set()
    for labels in product(range(problem.n_clusters), repeat=len(problem.points)):
        one_hot = np.eye(problem.n_clusters)[list(labels)] * problem.weights[:, None]
        if one_hot.tobytes() in seen:
            continue
        seen.add(one_hot.tobytes())
        counts, sums = one_hot.sum(axis=0), one_hot.T @ problem.points
        square = float((problem.weights[:, None] * problem.points**2).sum())
        linear = problem.price - 2 * sums
        relaxed = np.where(
            counts[:, None] > 0, -linear / np.maximum(2 * counts[:, None], 1e-300), -np.sign(linear) * 1e9
        )
        relaxed = np.clip(relaxed, lo, hi)
        least = square + float((counts[:, None] * relaxed**2 + linear * relaxed).sum())
        if least >= best:  # cannot win even without the rule
            continue
        for start in starts:
            found = minimize(
                lambda x, c=counts, g=linear: float((c[:, None] * x.reshape(shape) ** 2 + g * x.reshape(shape)).sum()),
                start.ravel(),
                jac=lambda x, c=counts, g=linear: (2 * c[:, None] * x.reshape(shape) + g).ravel(),
                bounds=list(zip(lo.ravel(), hi.ravel())),
                constraints=[rule] if problem.n_clusters > 1 else [],
                method="SLSQP",
                options={"ftol": 1e-12, "maxiter": 100},
            )
            m = np.clip(found.x.reshape(shape), lo, hi)
            if problem.symmetry.satisfied(m, 1e-9):
                best = min(best, problem.value(m))
    return best


def random_problem(rng: np.random.Generator, n_clusters: int, n_features: int, n: int) -> NodeProblem:
    points = rng.uniform(-1, 1, (n, n_features))
    weights = np.ones(n) if rng.random() < 0.5 else rng.choice([0.25, 1.0, 3.0], n)
    price = rng.normal(size=(n_clusters, n_features)) * float(rng.choice([0.0, 0.3, 1.0, 3.0]))
    boxes = np.stack([np.full_like(price, -1.2), np.full_like(price, 1.2)])
    if rng.random() < 0.3:
        a, b = rng.uniform(-1.2, 1.2, (2, *price.shape))
        boxes = np.stack([np.minimum(a, b), np.maximum(a, b)])
    return NodeProblem(points, weights, price, boxes, Symmetry("nearest", rng.uniform(-1, 1, price.shape)))


@pytest.mark.parametrize(
    ("n_clusters", "n_features", "n", "n_problems"), [(2, 1, 6, 25), (2, 2, 5, 25), (3, 1, 4, 20), (3, 2, 3, 12)]
)
def test_bound_and_value_enclose_what_the_oracle_finds(
    n_clusters: int, n_features: int, n: int, n_problems: int
) -> None:
    rng = np.random.default_rng(100 * n_clusters + n_features)
    binding = 0
    for i in range(n_problems):
        problem = random_problem(rng, n_clusters, n_features, int(rng.integers(1, n + 1)))
        solution = NearestSolver().solve(problem, Budget(seconds=2.0))
        best = oracle(problem, 3, i)
        if solution.status is Status.INFEASIBLE:
            assert best == np.inf
            continue
        scale = max(abs(best), 1.0) if best < np.inf else 1.0
        assert solution.bound <= best + 1e-7 * scale
        if best < np.inf:
            assert solution.status is Status.OPTIMAL
            assert solution.value <= best + GAP * max(abs(solution.value), scale)
        if solution.value < np.inf:
            assert problem.symmetry.satisfied(solution.centroids, 1e-8)
            assert np.all((solution.centroids >= problem.boxes[0]) & (solution.centroids <= problem.boxes[1]))
            assert solution.value == pytest.approx(problem.value(solution.centroids), rel=1e-12, abs=1e-12)
        order = replace(problem, symmetry=Symmetry("order", problem.symmetry.references))
        binding += ExactSolver().solve(order, Budget()).value < solution.value - 1e-3 * scale
    assert binding >= 3  # the order rule alone would not have been enough


def test_an_empty_cluster_keeps_off_the_other_reference() -> None:
    """All rows at the first reference, a price that draws the second, empty cluster there: the rule holds it off."""
    points = np.array([[0.0, 0.1], [0.1, 0.0], [0.0, -0.1]])
    price = np.array([[0.3, 0.0], [5.0, 0.0]])
    boxes = np.stack([np.full((2, 2), -1.0), np.full((2, 2), 1.0)])
    problem = NodeProblem(points, np.ones(3), price, boxes, Symmetry("nearest", np.array([[0.0, 0.0], [0.8, 0.2]])))
    solution = NearestSolver().solve(problem, Budget(seconds=5.0))
    assert solution.status is Status.OPTIMAL
    assert solution.value == pytest.approx(oracle(problem, 20, 0), rel=2e-4)


def test_two_references_that_share_a_centroid_force_the_others_together() -> None:
    """The counterexample to the rule: rows 10 and 20 under references 0 and 1 may only have one centroid."""
    points = np.repeat([[10.0], [20.0]], 100, axis=0)
    boxes = np.stack([np.full((2, 1), 0.0), np.full((2, 1), 20.0)])
    problem = NodeProblem(points, np.ones(200), np.zeros((2, 1)), boxes, Symmetry("nearest", np.array([[0.0], [1.0]])))
    solution = NearestSolver().solve(problem, Budget(seconds=5.0))
    assert solution.value == pytest.approx(5000.0, rel=1e-3)
    assert solution.bound == pytest.approx(5000.0, rel=1e-3)


def test_boxes_that_exclude_the_rule_are_infeasible() -> None:
    boxes = np.array([[[0.9, 0.9], [0.0, 0.0]], [[1.0, 1.0], [0.1, 0.1]]])  # cluster 1 far from r_1, cluster 2 on it
    problem = NodeProblem(
        np.zeros((3, 2)), np.ones(3), np.zeros((2, 2)), boxes, Symmetry("nearest", np.array([[0.0, 0.0], [1.0, 1.0]]))
    )
    solution = NearestSolver().solve(problem, Budget(seconds=5.0))
    assert solution.status is Status.INFEASIBLE
    assert solution.bound == np.inf


def test_a_time_limit_is_kept_and_what_is_told_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundredth of a second at every look: the clock then counts the rounds of the search."""
    rng = np.random.default_rng(5)
    problem = random_problem(rng, 5, 2, 40)
    problem = replace(problem, boxes=np.stack([np.full((5, 2), -1.2), np.full((5, 2), 1.2)]))
    solver = NearestSolver()
    solver.solve(problem, Budget(seconds=0.05))  # meets the rows, and compiles
    for seconds in (0.0, 0.2):
        clock = Clock(0.01)
        for module in (nearest, regimes):
            monkeypatch.setattr(module, "time", clock)
        solution = solver.solve(problem, Budget(seconds=seconds))
        assert clock.now - 1000.0 < seconds + 0.05
        assert solution.status is not Status.OPTIMAL  # without a limit the search goes on for longer
        assert solution.bound <= solution.value == pytest.approx(problem.value(solution.centroids), rel=1e-12)
        assert problem.symmetry.satisfied(solution.centroids, 1e-8)


def test_many_rows_get_the_bound_of_the_order_rule() -> None:
    rng = np.random.default_rng(6)
    centres = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    points = np.concatenate([c + 0.3 * rng.normal(size=(120, 2)) for c in centres])
    boxes = np.stack([np.tile(points.min(axis=0), (3, 1)), np.tile(points.max(axis=0), (3, 1))])
    problem = NodeProblem(points, np.ones(360), rng.normal(size=(3, 2)), boxes, Symmetry("nearest", centres))
    solution = NearestSolver().solve(problem, Budget(seconds=10.0))
    assert solution.status is Status.OPTIMAL  # the rule does not bind here
    assert solution.value - solution.bound <= 2 * GAP * abs(solution.value)


@pytest.mark.instances
@pytest.mark.parametrize(("instance", "node"), [("2N2D3K_2", 1), ("3N2D3K_2", 2), ("4N2D3K_3", 0)])
def test_gurobi_confirms_the_value_on_published_rows(instances_dir: Path, instance: str, node: int) -> None:
    pytest.importorskip("gurobipy")
    with h5py.File(instances_dir / f"{instance}.jld2") as file:
        nodes = [np.array(file[name]).T for name in sorted(file)]
    pooled, points = np.concatenate(nodes), np.ascontiguousarray(nodes[node][::2])
    rng = np.random.default_rng(node)
    boxes = np.stack([np.tile(pooled.min(axis=0), (3, 1)), np.tile(pooled.max(axis=0), (3, 1))])
    references = pooled[rng.choice(len(pooled), 3, replace=False)]
    problem = NodeProblem(
        points, np.ones(len(points)), 0.3 * rng.normal(size=(3, 2)), boxes, Symmetry("nearest", references)
    )
    ours = NearestSolver().solve(problem, Budget(seconds=10.0))
    try:
        theirs = solver_named("gurobi").solve(problem, Budget(seconds=6.0, gap=1e-3), start=ours.centroids)
    except SolverUnavailable as reason:
        pytest.skip(str(reason))
    assert ours.status is Status.OPTIMAL
    assert ours.bound <= theirs.value + 1e-5
    assert theirs.bound <= ours.value + 1e-5
    if theirs.status is Status.OPTIMAL:
        assert theirs.value == pytest.approx(ours.value, abs=2e-3 * max(1.0, abs(ours.value)))


def test_each_exact_solver_names_the_rule_it_does_not_know() -> None:
    problem = random_problem(np.random.default_rng(1), 2, 2, 4)
    with pytest.raises(InvalidInput, match="does not know the rule 'nearest'"):
        ExactSolver().solve(problem, Budget())
    with pytest.raises(InvalidInput, match="rule nearest only, not 'order'"):
        NearestSolver().solve(replace(problem, symmetry=Symmetry("order", problem.symmetry.references)), Budget())
