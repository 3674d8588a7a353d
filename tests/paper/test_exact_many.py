"""Many boxes in one call."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from consentroid.core.problem import NodeData
from consentroid.core.symmetry import Symmetry
from consentroid.paper.node.base import Budget, NodeProblem
from consentroid.paper.node.exact import ExactSolver
from consentroid.paper.worker import PaperWorker
from consentroid.protocol.messages import Query, Reply, Solve
from oracle import optimum
from test_exact_truth import check

N_BOXES = 20


def random_boxes(rng: np.random.Generator, points: np.ndarray, n_boxes: int, n_clusters: int) -> np.ndarray:
    low, high = points.min(axis=0), points.max(axis=0)
    centre = rng.uniform(low, high, (n_boxes, n_clusters, points.shape[1]))
    half = 0.5 * (high - low) * rng.uniform(0.0, 0.6, (n_boxes, 1, 1)) ** 2
    return np.stack([np.maximum(centre - half, low), np.minimum(centre + half, high)], axis=1)


@pytest.mark.parametrize("rule", ["none", "order"])
def test_every_box_of_a_batch_is_told_the_truth(rule: str) -> None:
    rng = np.random.default_rng(11)
    points, weights = rng.uniform(-1, 1, (4, 2)), rng.choice([0.5, 1.0, 2.0], 4)
    boxes, prices = random_boxes(rng, points, N_BOXES, 2), rng.normal(size=(N_BOXES, 2, 2))
    symmetry = Symmetry(rule, None if rule == "none" else rng.uniform(-1, 1, (2, 2)))  # type: ignore[arg-type]
    solver = ExactSolver()
    for budget in (Budget(), Budget(search_nodes=1), Budget(seconds=0.0)):
        batch = solver.solve_many(points, weights, prices, boxes, symmetry, budget)
        for b in range(N_BOXES):
            problem = NodeProblem(points, weights, prices[b], boxes[b], symmetry)
            alone = solver.solve(problem, budget)
            told = replace(
                alone, bound=float(batch.bounds[b]), value=float(batch.values[b]), centroids=batch.centroids[b]
            )
            check(problem, told, optimum(problem))
            if budget.seconds > 0:
                assert (told.bound, told.value) == (alone.bound, alone.value)


def test_the_worker_answers_with_what_its_solver_finds() -> None:
    rng = np.random.default_rng(4)
    data = NodeData.checked("a", rng.normal(size=(15, 2)))
    boxes, prices = random_boxes(rng, data.points, 5, 3), rng.normal(size=(5, 3, 2)) * 0.1
    reply = PaperWorker(data).answer(Query(1, solve=Solve(boxes, prices)))
    assert isinstance(reply, Reply)
    assert reply.solved is not None
    batch = ExactSolver().solve_many(data.points, data.weights, prices, boxes, Symmetry(), Budget())
    assert np.array_equal(reply.solved.bounds, batch.bounds)
    assert np.all(reply.solved.optimal)
