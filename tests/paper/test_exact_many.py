"""Many boxes in one call, the decided-row statistics, and the bound that the coordinator makes of them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consentroid.core.problem import NodeData
from consentroid.core.symmetry import Symmetry
from consentroid.legacy.bounds import statistics_bound
from consentroid.paper.node.base import Budget, NodeProblem
from consentroid.paper.node.exact import ExactSolver
from consentroid.paper.worker import PaperWorker
from consentroid.protocol.messages import Query, Reply, Solve, Statistics
from oracle import optimum
from test_exact_truth import check


def random_boxes(rng: np.random.Generator, points: np.ndarray, n_boxes: int, n_clusters: int) -> np.ndarray:
    low, high = points.min(axis=0), points.max(axis=0)
    centre = rng.uniform(low, high, (n_boxes, n_clusters, points.shape[1]))
    half = 0.5 * (high - low) * rng.uniform(0.0, 0.6, (n_boxes, 1, 1)) ** 2
    return np.stack([np.maximum(centre - half, low), np.minimum(centre + half, high)], axis=1)


@pytest.mark.parametrize("rule", ["none", "order"])
def test_every_box_of_a_batch_is_told_the_truth(rule: str) -> None:
    rng = np.random.default_rng(11)
    points, weights = rng.uniform(-1, 1, (4, 2)), rng.choice([0.5, 1.0, 2.0], 4)
    boxes, prices = random_boxes(rng, points, 40, 2), rng.normal(size=(40, 2, 2))
    symmetry = Symmetry(rule, None if rule == "none" else rng.uniform(-1, 1, (2, 2)))  # type: ignore[arg-type]
    solver = ExactSolver()
    for budget in (Budget(), Budget(search_nodes=1), Budget(seconds=0.0)):
        batch = solver.solve_many(points, weights, prices, boxes, symmetry, budget)
        for b in range(40):
            problem = NodeProblem(points, weights, prices[b], boxes[b], symmetry)
            alone = solver.solve(problem, budget)
            told = replace(
                alone, bound=float(batch.bounds[b]), value=float(batch.values[b]), centroids=batch.centroids[b]
            )
            check(problem, told, optimum(problem))
            if budget.seconds > 0:
                assert (told.bound, told.value) == (alone.bound, alone.value)


def exact_statistics(points: np.ndarray, weights: np.ndarray, boxes: np.ndarray, m: np.ndarray) -> Fraction:
    """Cost of the rows at m in exact arithmetic."""
    rows = [[Fraction(float(x)) for x in row] for row in points]
    centroids = [[Fraction(float(x)) for x in row] for row in m]
    return sum(
        (
            Fraction(float(w)) * min(sum((a - b) ** 2 for a, b in zip(row, c)) for c in centroids)
            for row, w in zip(rows, weights)
        ),
        Fraction(0),
    )


@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1.0, 1e-3, 1e8]), offset=st.sampled_from([0.0, 1e6]))
def test_summed_statistics_bound_the_cost_of_all_nodes(seed: int, scale: float, offset: float) -> None:
    rng = np.random.default_rng(seed)
    nodes = [(rng.normal(size=(12, 2)) * scale + offset, rng.choice([0.0, 1.0, 2.5], 12)) for _ in range(3)]
    boxes = random_boxes(rng, np.concatenate([points for points, _ in nodes]), 6, 3)
    counted = [ExactSolver().count_many(points, weights, boxes) for points, weights in nodes]
    bounds = statistics_bound(
        sum(c.counts for c in counted), sum(c.sums for c in counted), sum(c.constants for c in counted), boxes
    )
    for b in range(6):
        for _ in range(3):
            m = rng.uniform(boxes[b, 0], boxes[b, 1])
            cost = sum((exact_statistics(*node, boxes[b], m) for node in nodes), Fraction(0))
            assert Fraction(float(bounds[b])) <= cost
    for c, (_, weights) in zip(counted, nodes):
        assert c.counts.sum(axis=1) + c.undecided == pytest.approx(np.full(6, weights.sum()))


def test_a_box_that_is_a_point_is_bounded_by_its_cost() -> None:
    rng = np.random.default_rng(2)
    points, m = rng.normal(size=(500, 2)), rng.normal(size=(3, 2))
    boxes = np.stack([m, m])[None]
    counted = ExactSolver().count_many(points, np.ones(500), boxes)
    cost = ((points[:, None] - m) ** 2).sum(axis=2).min(axis=1).sum()
    assert counted.undecided[0] == 0.0
    assert statistics_bound(counted.counts, counted.sums, counted.constants, boxes)[0] == pytest.approx(cost, rel=1e-9)


def test_a_price_enters_the_statistics_bound() -> None:
    counts, sums = np.array([[2.0]]), np.array([[[1.0]]])
    boxes = np.array([[[[0.0]], [[4.0]]]])  # centre 2: cost 2 (m−2)² − 2 (m−2) + 5, price 3 m
    bound = statistics_bound(counts, sums, np.array([5.0]), boxes, np.array([[[3.0]]]))
    assert bound[0] == pytest.approx(2 * 0.0625 + 0.5 + 5 + 3 * 1.75)


def test_the_worker_answers_solve_and_statistics() -> None:
    rng = np.random.default_rng(4)
    data = NodeData.checked("a", rng.normal(size=(15, 2)))
    boxes, prices = random_boxes(rng, data.points, 5, 3), rng.normal(size=(5, 3, 2)) * 0.1
    reply = PaperWorker(data).answer(Query(1, solve=Solve(boxes, prices), statistics=Statistics(boxes)))
    assert isinstance(reply, Reply)
    assert reply.solved is not None
    assert reply.counted is not None
    batch = ExactSolver().solve_many(data.points, data.weights, prices, boxes, Symmetry(), Budget())
    assert np.array_equal(reply.solved.bounds, batch.bounds)
    assert np.all(reply.solved.optimal)
    free = ExactSolver().solve_many(data.points, data.weights, 0 * prices, boxes, Symmetry(), Budget())
    bounds = statistics_bound(reply.counted.counts, reply.counted.sums, reply.counted.constants, boxes)
    assert np.all(bounds <= free.values)
