"""One feature: dynamic programming against enumeration and against the other searches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consentroid.core.symmetry import Symmetry
from consentroid.paper.node.base import Budget, NodeProblem, Status
from consentroid.paper.node.exact import ExactSolver
from oracle import optimum
from test_exact_truth import check


def line(points: np.ndarray, n_clusters: int, weights: np.ndarray | None = None, rule: str = "none") -> NodeProblem:
    boxes = np.stack([np.full((n_clusters, 1), points.min()), np.full((n_clusters, 1), points.max())])
    references = None if rule == "none" else np.linspace(points.max(), points.min(), n_clusters)[:, None]
    w = np.ones(len(points)) if weights is None else weights
    return NodeProblem(points[:, None], w, np.zeros((n_clusters, 1)), boxes, Symmetry(rule, references))  # type: ignore[arg-type]


@given(seed=st.integers(0, 10**6), n_clusters=st.integers(1, 3), scale=st.sampled_from([1.0, 1e-130, 1e9]))
def test_the_line_is_solved_exactly(seed: int, n_clusters: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    points = rng.normal(size=6) * scale if seed % 2 else rng.integers(0, 4, 6) * scale
    rule = "order" if n_clusters == 2 else "none"
    problem = line(points, n_clusters, rng.choice([0.0, 0.5, 1.0, 3.0], 6), rule)
    solution = ExactSolver().solve(problem, Budget())
    check(problem, solution, optimum(problem))
    assert solution.status is Status.OPTIMAL


@pytest.mark.parametrize(("n", "n_clusters"), [(40, 4), (300, 3), (300, 6)])
def test_it_agrees_with_the_other_searches(n: int, n_clusters: int) -> None:
    rng = np.random.default_rng(n)
    problem = line(np.concatenate([rng.normal(size=n // 2), rng.normal(size=n - n // 2) * 0.3 + 5]), n_clusters)
    fast = ExactSolver().solve(problem, Budget())
    slow = ExactSolver("boxes").solve(problem, Budget(gap=1e-4, search_nodes=3000))
    assert slow.bound <= fast.value
    assert fast.bound <= slow.value
    assert fast.value - fast.bound <= 1e-9 * fast.value


def test_a_hundred_thousand_rows_far_from_zero() -> None:
    points = np.random.default_rng(1).normal(size=100_000) + 1e6
    solution = ExactSolver().solve(line(points, 5), Budget())
    assert solution.status is Status.OPTIMAL
    assert 0 < solution.bound <= solution.value <= solution.bound * (1 + 1e-8)
