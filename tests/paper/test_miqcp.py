"""MIQCP solvers against enumeration of all assignments: bound ≤ optimum ≤ value, for every rule."""

from __future__ import annotations

import itertools
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consentroid.core.errors import SolverUnavailable
from consentroid.core.problem import Domain
from consentroid.core.symmetry import Symmetry, align
from consentroid.paper.instances import read_instance
from consentroid.paper.node.base import Budget, NodeProblem, NodeSolver, Status
from consentroid.paper.node.gurobi import GurobiSolver
from consentroid.paper.node.miqcp import state
from consentroid.paper.node.polish import polished
from consentroid.paper.node.scip import ScipSolver
from consentroid.paper.solvers import SOLVERS, solver_named

MIQCP_SOLVERS: list[NodeSolver] = [ScipSolver(), GurobiSolver()]
each_solver = pytest.mark.parametrize("solver", MIQCP_SOLVERS, ids=lambda solver: solver.name)


def best_in_boxes(problem: NodeProblem, labels: tuple[int, ...], price: np.ndarray) -> np.ndarray:
    """Minimiser for fixed labels: every coordinate is a parabola or a line on an interval."""
    lower, upper = problem.boxes
    m = np.where(price > 0, lower, upper)
    for k in range(problem.n_clusters):
        members = np.array(labels) == k
        mass = problem.weights[members].sum()
        if mass > 0:
            m[k] = (problem.weights[members] @ problem.points[members] - price[k] / 2) / mass
    return np.clip(m, lower, upper)


def fixed_cost(problem: NodeProblem, labels: tuple[int, ...], m: np.ndarray, price: np.ndarray) -> float:
    squared = ((problem.points - m[list(labels)]) ** 2).sum(axis=1)
    return float(problem.weights @ squared + np.sum(price * m))


def enumerated(problem: NodeProblem) -> float:
    """Optimum over all K^J assignments; +inf where boxes and rule exclude each other."""
    assignments = itertools.product(range(problem.n_clusters), repeat=len(problem.points))
    if problem.symmetry.rule == "none":
        minimisers = ((labels, best_in_boxes(problem, labels, problem.price)) for labels in assignments)
        return min(fixed_cost(problem, labels, m, problem.price) for labels, m in minimisers)
    normal = problem.symmetry.normals(2)[0, 1]
    shift = np.stack([-normal, normal])
    if np.sum(np.minimum(shift * problem.boxes[0], shift * problem.boxes[1])) > 0:
        return math.inf
    return min(ordered_cost(problem, labels, shift) for labels in assignments)


def ordered_cost(problem: NodeProblem, labels: tuple[int, ...], shift: np.ndarray) -> float:
    """The order rule of two clusters has one multiplier u, which shifts the price; the dual in u is concave."""
    low, high = 0.0, 1e6
    for _ in range(90):
        u = 0.5 * (low + high)
        slope = np.sum(shift * best_in_boxes(problem, labels, problem.price + u * shift))
        low, high = (u, high) if slope > 0 else (low, u)
    price = problem.price + high * shift
    return fixed_cost(problem, labels, best_in_boxes(problem, labels, price), price)


coordinates = st.integers(-8, 8).map(lambda i: i / 4)


@st.composite
def problems(draw: st.DrawFn, rules: tuple[str, ...], max_rows: int = 5, n_clusters: int | None = None) -> NodeProblem:
    k = n_clusters or (draw(st.integers(1, 3)) if rules == ("none",) else 2)
    d, j = draw(st.integers(1, 2)), draw(st.integers(1, max_rows if k < 3 else 4))

    def table(rows: int) -> np.ndarray:
        return np.array(draw(st.lists(coordinates, min_size=rows * d, max_size=rows * d))).reshape(rows, d)

    offset, scale = draw(st.sampled_from([(0.0, 1.0), (1000.0, 1.0), (0.0, 1e-3), (-5.0, 300.0)]))
    points, price, references = table(j), table(k), table(k)
    weights = np.array(draw(st.lists(st.sampled_from([1.0, 1.0, 2.5, 0.0, 40.0]), min_size=j, max_size=j)))
    whole = np.stack([np.full((k, d), -2.0), np.full((k, d), 2.0)])
    boxes = np.sort(np.stack([table(k), table(k)]), axis=0) if draw(st.booleans()) else whole
    rule = draw(st.sampled_from(rules))
    symmetry = Symmetry() if rule == "none" else Symmetry(rule, offset + scale * references)
    return NodeProblem(offset + scale * points, weights, scale * price, offset + scale * boxes, symmetry)


@each_solver
@settings(max_examples=25)
@given(problem=problems(("none",)))
def test_without_a_rule_bound_and_value_enclose_the_optimum(solver: NodeSolver, problem: NodeProblem) -> None:
    check_against_enumeration(solver, problem)


@each_solver
@settings(max_examples=25)
@given(problem=problems(("order",)))
def test_under_order_bound_and_value_enclose_the_optimum(solver: NodeSolver, problem: NodeProblem) -> None:
    check_against_enumeration(solver, problem)


def test_a_rule_that_leaves_a_single_point_is_kept() -> None:
    """SCIP's centroids break the rule by 1e-7 and cost less than the optimum by as much."""
    boxes = np.array([[[0.0], [0.0]], [[0.25], [0.0]]])
    symmetry = Symmetry("order", np.array([[0.0], [0.25]]))
    problem = NodeProblem(np.full((3, 1), 0.25), np.ones(3), np.zeros((2, 1)), boxes, symmetry)
    check_against_enumeration(ScipSolver(), problem)


def check_against_enumeration(solver: NodeSolver, problem: NodeProblem) -> None:
    optimum = enumerated(problem)
    solution = solver.solve(problem, Budget())
    if optimum == math.inf:
        assert solution.status is Status.INFEASIBLE
        return
    extent = float(np.ptp(np.concatenate([problem.points, *problem.boxes]), axis=0).max())
    tolerance = 1e-6 * (problem.weights.sum() + 1) * extent**2 + 1e-6 * np.abs(problem.price).sum() * extent
    rounding = 1e-12 * (1 + abs(optimum) + np.abs(problem.price * problem.boxes).sum())
    assert solution.status is Status.OPTIMAL
    assert solution.bound <= optimum + rounding
    assert optimum <= solution.value + rounding + (0 if problem.symmetry.rule == "none" else 1e-9)
    assert solution.value - solution.bound <= 1e-5 * max(abs(solution.value), abs(optimum)) + tolerance
    assert solution.value == problem.value(solution.centroids)
    assert np.all(solution.centroids >= problem.boxes[0])
    assert np.all(solution.centroids <= problem.boxes[1])
    assert problem.symmetry.satisfied(solution.centroids, 1e-6 * extent**2)


@each_solver
@settings(max_examples=15)
@given(problem=problems(("nearest",), max_rows=4))
def test_nearest_is_kept_and_never_beats_the_valid_rules(solver: NodeSolver, problem: NodeProblem) -> None:
    solution = solver.solve(problem, Budget())
    if solution.status is Status.INFEASIBLE:
        return
    extent = float(np.ptp(np.concatenate([problem.points, *problem.boxes]), axis=0).max())
    assert problem.symmetry.satisfied(solution.centroids, 1e-5 * max(extent, 1e-6) ** 2)
    order = NodeProblem(
        problem.points,
        problem.weights,
        problem.price,
        problem.boxes,
        Symmetry("order", problem.symmetry.references),
    )
    tolerance = 1e-5 * (problem.weights.sum() + np.abs(problem.price).sum() / max(extent, 1e-6) + 1) * extent**2
    assert solution.value >= enumerated(order) - tolerance


@settings(max_examples=15)
@given(problem=problems(("order",), n_clusters=3))
def test_no_solver_bounds_above_the_value_of_another(problem: NodeProblem) -> None:
    solutions = [solver_named(name).solve(problem, Budget()) for name in SOLVERS]
    attained = [s.value for s in solutions if problem.symmetry.satisfied(s.centroids)]
    rounding = 1e-12 * (np.abs(problem.price * problem.boxes).sum() + min(attained, default=0.0))
    for solution in solutions:
        assert solution.bound <= min(attained, default=math.inf) + rounding


@settings(max_examples=30)
@given(problem=problems(("none", "order")))
def test_big_m_frees_rows_that_are_not_assigned(problem: NodeProblem) -> None:
    model = state(problem)
    random = np.random.default_rng(0)
    centroids = random.uniform(*problem.boxes, size=(20, *problem.price.shape))
    for m in centroids:
        if problem.symmetry.rule == "order" and not problem.symmetry.satisfied(m):
            continue
        x = model.start(problem, m)
        assert np.all(x >= model.lower)
        assert np.all(x <= model.upper)
        for row in model.rows:
            left = sum(c * x[i] for i, c in row.linear) + sum(c * x[i] * x[j] for i, j, c in row.products)
            assert left <= row.upper + 1e-14 * (1 + 1000 / model.scale)  # the assigned row is tight
            assert not row.equality or left == row.upper
        assert model.in_units(float(model.objective @ x)) == pytest.approx(problem.value(m), rel=1e-9, abs=1e-9)


@settings(max_examples=25)
@given(problem=problems(("none", "order")), seed=st.integers(0, 2**16))
def test_polishing_never_loses(problem: NodeProblem, seed: int) -> None:
    lower, upper = problem.boxes
    m = np.random.default_rng(seed).uniform(lower, upper)
    if not problem.symmetry.satisfied(m):
        return
    better = polished(problem, m)
    assert problem.value(better) <= problem.value(m)
    assert problem.symmetry.satisfied(better)
    assert np.all((lower <= better) & (better <= upper))


def counterexample(rule: str, second: bool) -> NodeProblem:
    """DESIGN §3.2 with weights for repeated rows: node 1 holds {0, 1}, node 2 100 rows at 10 and 100 at 20."""
    points = np.array([[10.0], [20.0]]) if second else np.array([[0.0], [1.0]])
    weights = np.full(2, 100.0 if second else 1.0)
    domain = Domain(np.zeros(1), np.full(1, 20.0))
    symmetry = Symmetry(rule, None if rule == "none" else np.array([[0.0], [1.0]]))
    return NodeProblem(points, weights, np.zeros((2, 1)), domain.boxes(2), symmetry)


@pytest.mark.parametrize("name", SOLVERS)
def test_nearest_can_exclude_the_optimum_and_order_cannot(name: str) -> None:
    """d(0) under `nearest` is 5000 although {0, 1, 10…} and {20…} cost less than 190 in all."""
    pooled = np.concatenate([counterexample("none", second).points for second in (False, True)])
    weights = np.concatenate([counterexample("none", second).weights for second in (False, True)])
    whole = NodeProblem(pooled, weights, np.zeros((2, 1)), counterexample("none", True).boxes)
    optimum = enumerated(whole)
    assert optimum < 190
    for rule in ("nearest", "order", "none"):
        solver = solver_named(name, rule)  # type: ignore[arg-type]
        nodes = [solver.solve(counterexample(rule, second), Budget()) for second in (False, True)]
        total = sum(node.value for node in nodes)
        if rule == "nearest":
            assert total == pytest.approx(5000, rel=1e-4)
        else:
            assert sum(node.bound for node in nodes) <= total <= optimum


@each_solver
def test_boxes_and_rule_that_exclude_each_other_are_infeasible(solver: NodeSolver) -> None:
    boxes = np.array([[[0.0], [5.0]], [[1.0], [6.0]]])  # m_0 ≤ 1 < 5 ≤ m_1, references the other way round
    symmetry = Symmetry("order", boxes[0][::-1])
    problem = NodeProblem(np.array([[0.5], [5.5]]), np.ones(2), np.zeros((2, 1)), boxes, symmetry)
    solution = solver.solve(problem, Budget())
    assert solution.status is Status.INFEASIBLE
    assert solution.bound == math.inf


@each_solver
@pytest.mark.parametrize("budget", [Budget(seconds=0.0), Budget(search_nodes=1)], ids=["seconds", "search nodes"])
def test_an_early_stop_leaves_true_numbers(solver: NodeSolver, budget: Budget) -> None:
    random = np.random.default_rng(3)
    points = random.uniform(-1, 1, size=(12, 2))
    boxes = Domain(np.full(2, -1.0), np.full(2, 1.0)).boxes(3)
    problem = NodeProblem(points, np.ones(12), random.normal(size=(3, 2)), boxes, Symmetry("order", points[:3]))
    early, full = solver.solve(problem, budget), solver.solve(problem, Budget())
    assert early.status in (Status.TIME_LIMIT, Status.NODE_LIMIT)
    assert early.bound <= full.value
    assert full.bound <= early.value
    assert early.bound <= early.value
    assert problem.symmetry.satisfied(early.centroids)
    assert math.isfinite(early.bound)
    assert math.isfinite(early.value)


@each_solver
def test_a_start_changes_no_optimum(solver: NodeSolver) -> None:
    points = np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0], [6.0, 5.0], [0.0, 4.0]])
    problem = NodeProblem(points, np.ones(5), np.zeros((2, 2)), Domain(points.min(0), points.max(0)).boxes(2))
    with_start = solver.solve(problem, Budget(), start=points[[0, 2]])
    assert with_start.value == pytest.approx(solver.solve(problem, Budget()).value, abs=1e-9)


def test_a_model_beyond_the_size_limited_licence_names_the_remedy() -> None:
    points = np.random.default_rng(0).normal(size=(400, 2))
    problem = NodeProblem(points, np.ones(400), np.zeros((3, 2)), Domain(points.min(0), points.max(0)).boxes(3))
    try:
        solution = GurobiSolver().solve(problem, Budget(seconds=1))
    except SolverUnavailable as error:
        assert "200 variables" in str(error)  # noqa: PT017 - a full licence solves it instead
        assert "--solver exact" in str(error)  # noqa: PT017
    else:
        assert solution.bound <= solution.value


@pytest.mark.parametrize(("package", "name"), [("pyscipopt", "scip"), ("gurobipy", "gurobi")])
def test_a_missing_package_names_the_remedy(package: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    problem = counterexample("none", second=False)
    with pytest.raises(SolverUnavailable, match=rf"pip install 'consentroid\[{name}\]'"):
        solver_named(name).solve(problem, Budget())


@pytest.mark.parametrize("rule", ["none", "order"])
def test_both_solvers_agree_on_a_published_node(instances_dir: Path, rule: str) -> None:
    problem = read_instance(instances_dir / "2N2D3K_1.jld2").problem
    node = problem.nodes[0]
    references = align(node.points[[0, 5, 10]], node.points[[10, 0, 5]])
    symmetry = Symmetry(rule, None if rule == "none" else references)
    price = np.array([[0.3, -0.2], [-0.1, 0.4], [0.05, 0.0]])
    priced = NodeProblem(node.points, node.weights, price, problem.domain.boxes(3), symmetry)
    scip, gurobi = (solver.solve(priced, Budget()) for solver in MIQCP_SOLVERS)
    assert scip.value == pytest.approx(gurobi.value, abs=1e-7)
    assert max(scip.bound, gurobi.bound) <= min(scip.value, gurobi.value)
