"""What must not change the answer (regime, repetition, translation, rotation), what may only raise it, odd shapes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consentroid.core.symmetry import Symmetry
from consentroid.paper.nearest.solver import NearestSolver
from consentroid.paper.node.base import Budget, NodeProblem, NodeSolution, Status
from consentroid.paper.node.exact import ExactSolver

GAP = 1e-5
RULES = ("none", "order")


def problem_of(seed: int, n: int = 10, n_clusters: int = 3, n_features: int = 2, rule: str = "none") -> NodeProblem:
    rng = np.random.default_rng(seed)
    points = (
        rng.normal(size=(n, n_features)) * 0.2
        + rng.uniform(-1, 1, (n_clusters, n_features))[rng.integers(0, n_clusters, n)]
    )
    low, high = points.min(axis=0) - 0.1, points.max(axis=0) + 0.1
    boxes = np.stack([np.tile(low, (n_clusters, 1)), np.tile(high, (n_clusters, 1))])
    references = None if rule == "none" else rng.uniform(low, high, (n_clusters, n_features))
    price = rng.normal(size=(n_clusters, n_features)) * float(rng.choice([0.0, 0.3, 1.0]))
    return NodeProblem(points, np.ones(n), price, boxes, Symmetry(rule, references))  # type: ignore[arg-type]


def solve(problem: NodeProblem, regime: str = "auto", gap: float = GAP) -> NodeSolution:
    return ExactSolver(regime).solve(problem, Budget(gap=gap, seconds=20.0))  # type: ignore[arg-type]


def same(a: NodeSolution, b: NodeSolution) -> bool:
    """Two enclosures of one number meet, and both are narrow."""
    width = 2 * GAP * max(abs(a.value), abs(b.value), 1.0)
    return a.bound <= b.value and b.bound <= a.value and abs(a.value - b.value) <= width


@given(seed=st.integers(0, 10**6), rule=st.sampled_from(RULES))
def test_the_two_searches_agree(seed: int, rule: str) -> None:
    problem = problem_of(seed, rule=rule)
    assert same(solve(problem, "assignments"), solve(problem, "boxes"))


@given(seed=st.integers(0, 10**6), rule=st.sampled_from(RULES))
def test_a_weighted_row_is_the_row_repeated(seed: int, rule: str) -> None:
    problem = problem_of(seed, n=7, rule=rule)
    times = np.random.default_rng(seed).integers(1, 4, 7)
    repeated = replace(problem, points=np.repeat(problem.points, times, axis=0), weights=np.ones(times.sum()))
    assert same(solve(replace(problem, weights=times.astype(float))), solve(repeated))


@given(seed=st.integers(0, 10**6), rule=st.sampled_from(RULES), offset=st.sampled_from([0.5, -3.0, 1e3, 1e6]))
def test_translation_moves_the_answer_along(seed: int, rule: str, offset: float) -> None:
    problem = problem_of(seed, rule=rule)
    references = problem.symmetry.references
    moved = replace(
        problem,
        points=problem.points + offset,
        boxes=problem.boxes + offset,
        symmetry=Symmetry(problem.symmetry.rule, None if references is None else references + offset),
    )
    here, there = solve(problem), solve(moved)
    paid = float(problem.price.sum() * offset)
    tolerance = 2 * GAP * max(abs(here.value), 1.0) + GAP * abs(there.value)
    assert there.value - paid == pytest.approx(here.value, abs=tolerance)


@given(seed=st.integers(0, 10**6), angle=st.floats(0.1, 3.0))
def test_rotation_of_the_rows_turns_the_answer(seed: int, angle: float) -> None:
    problem = problem_of(seed)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    wide = np.stack([np.full((3, 2), -4.0), np.full((3, 2), 4.0)])
    problem = replace(problem, boxes=wide, price=np.zeros((3, 2)))  # neither boxes nor prices of empty clusters turn
    assert same(solve(problem), solve(replace(problem, points=problem.points @ turn.T)))


@given(seed=st.integers(0, 10**6), rule=st.sampled_from(RULES))
def test_smaller_boxes_never_cost_less(seed: int, rule: str) -> None:
    rng = np.random.default_rng(seed)
    problem, last = problem_of(seed, rule=rule), -np.inf
    for _ in range(5):
        solution = solve(problem)
        assert solution.value >= last
        last = solution.bound
        k, d = int(rng.integers(3)), int(rng.integers(2))
        boxes = problem.boxes.copy()
        boxes[int(rng.integers(2)), k, d] = boxes[:, k, d].mean()
        problem = replace(problem, boxes=boxes)


@pytest.mark.parametrize("regime", ["auto", "assignments", "boxes"])
@pytest.mark.parametrize("n_clusters", [4, 5, 7])
def test_no_more_distinct_rows_than_clusters_cost_nothing(regime: str, n_clusters: int) -> None:
    points = np.repeat(np.array([[0.1, 3.0], [0.7, -1.0], [1e6, 2.0], [1e6 + 0.1, 2.0]]), 3, axis=0)
    boxes = np.stack([np.tile(points.min(axis=0), (n_clusters, 1)), np.tile(points.max(axis=0), (n_clusters, 1))])
    problem = NodeProblem(points, np.ones(12), np.zeros((n_clusters, 2)), boxes)
    solution = solve(problem, regime)
    assert solution.bound == 0.0
    assert solution.value == 0.0
    assert solution.status is Status.OPTIMAL


@pytest.mark.parametrize("regime", ["auto", "assignments", "boxes"])
def test_one_cluster_sits_where_price_and_rows_balance(regime: str) -> None:
    points, price = np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]]), np.array([[3.0, -60.0]])
    boxes = np.array([[[0.0, 0.0]], [[4.0, 5.0]]])
    solution = solve(NodeProblem(points, np.ones(3), price, boxes), regime, gap=1e-9)
    assert solution.centroids[0] == pytest.approx([1.5, 5.0])  # mean − price / 2n, cut off at the domain's edge
    assert solution.value == pytest.approx(8.0 + 0.75 + 48.0 + 4.5 - 300.0)


@pytest.mark.parametrize("regime", ["auto", "assignments", "boxes"])
def test_a_large_price_drives_an_empty_cluster_to_the_edge(regime: str) -> None:
    points = np.linspace(-1, 1, 6)[:, None] * [1.0, 0.0]  # collinear, and constant in the second feature
    boxes = np.stack([np.full((2, 2), -2.0), np.full((2, 2), 2.0)])
    price = np.array([[0.0, 0.0], [1e4, -1e4]])
    solution = solve(NodeProblem(points, np.ones(6), price, boxes), regime, gap=1e-9)
    assert solution.centroids[1] == pytest.approx([-2.0, 2.0])
    assert solution.value == pytest.approx(2 * -2e4 + float((points**2).sum()))


def test_boxes_that_exclude_the_rule_are_proven_infeasible() -> None:
    boxes = np.array([[[0.0], [2.0]], [[1.0], [3.0]]])
    problem = NodeProblem(
        np.array([[0.5], [2.5]]), np.ones(2), np.zeros((2, 1)), boxes, Symmetry("order", np.array([[5.0], [0.0]]))
    )
    for regime in ("auto", "assignments", "boxes"):
        solution = solve(problem, regime)
        assert solution.status is Status.INFEASIBLE
        assert solution.bound == np.inf


def test_a_start_is_used_and_cannot_hurt() -> None:
    problem = problem_of(3, n=12)
    without = solve(problem, gap=1e-9)
    with_start = ExactSolver().solve(problem, Budget(gap=1e-9), start=without.centroids)
    assert with_start.value == pytest.approx(without.value, rel=1e-9)
    at_once = ExactSolver().solve(problem, Budget(search_nodes=1), start=without.centroids)
    assert at_once.value <= without.value * (1 + 1e-12) + 1e-12


def test_labels_are_the_nearest_centroids() -> None:
    problem = problem_of(5, n=14)
    solution = solve(problem)
    squared = ((problem.points[:, None] - solution.centroids[None]) ** 2).sum(axis=2)
    assert np.array_equal(solution.labels, squared.argmin(axis=1))


@pytest.mark.parametrize("rule", ["none", "order"])
def test_answers_do_not_depend_on_earlier_questions(rule: str) -> None:
    problem, other = problem_of(8, rule=rule), problem_of(9, rule=rule)
    fresh = ExactSolver().solve(problem, Budget())
    solver = ExactSolver()
    solver.solve(other, Budget())
    solver.solve(replace(problem, price=-problem.price), Budget())
    again = solver.solve(problem, Budget())
    assert (again.bound, again.value) == (fresh.bound, fresh.value)
    assert np.array_equal(again.centroids, fresh.centroids)


def test_under_the_nearest_rule_the_centroids_obey_it() -> None:
    for seed in range(10):
        problem = problem_of(seed, n=9)
        references = np.random.default_rng(seed).uniform(problem.boxes[0, 0], problem.boxes[1, 0], (3, 2))
        nearest = replace(problem, symmetry=Symmetry("nearest", references))
        order = replace(problem, symmetry=Symmetry("order", references))
        solution = NearestSolver().solve(nearest, Budget(gap=1e-3, search_nodes=20_000))
        assert nearest.symmetry.satisfied(solution.centroids, 1e-8)
        assert solution.value >= solve(order).bound  # the rule implies the order rule


def test_many_rows_are_searched_by_boxes() -> None:
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [1.0, 0.0], [0.3, 1.0]])
    points = centres[rng.integers(0, 3, 3000)] + rng.normal(size=(3000, 2)) * 0.15
    boxes = np.stack([np.tile(points.min(axis=0), (3, 1)), np.tile(points.max(axis=0), (3, 1))])
    solution = solve(NodeProblem(points, np.ones(3000), np.zeros((3, 2)), boxes), gap=1e-3)
    assert solution.status is Status.OPTIMAL
    assert solution.value - solution.bound <= 1e-3 * solution.value
