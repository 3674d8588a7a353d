"""Lower bound ≤ optimum ≤ cost, strictly: against all partitions, in rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from consentroid.core.result import FitResult, StopReason
from draws import draws
from oracle import clustering_optimum, exact
from row_problems import KINDS, RowProblem, row_problem, solved

N_BLOCKS = draws(12)
N_PROBLEMS = N_BLOCKS * len(KINDS)
pytestmark = pytest.mark.xdist_group("solved")  # one worker solves them, for other tests, too
BEYOND_DOUBLES = ("far", "mixed weights", "scale")  # where rounding may leave a gap: 1e20 beside 1, 1e-150


def assert_true(problem: RowProblem, result: FitResult, seed: int) -> None:
    lower, upper = Fraction(result.lower_bound), Fraction(result.upper_bound)
    assert lower <= problem.optimum <= upper, (seed, problem.kind)
    assert result.upper_bound >= 0.0
    points, weights = problem.pooled
    centroids = exact(result.centroids)
    cost = sum(
        w * min(sum((a - b) ** 2 for a, b in zip(row, m)) for m in centroids)
        for row, w in zip(exact(points), exact(weights))
    )
    assert cost <= upper, (seed, problem.kind)
    gap = (upper - lower) / upper if upper else Fraction(0)
    assert abs(gap - Fraction(result.gap)) <= Fraction(1, 10**12)
    assert result.certified == (result.gap <= result.gap_asked)
    if result.certified:
        assert upper * (1 - Fraction(result.gap_asked) - Fraction(1, 10**12)) <= problem.optimum


@pytest.mark.parametrize("block", range(N_BLOCKS))
def test_bounds_enclose_the_optimum(block: int) -> None:
    for seed in range(block * len(KINDS), (block + 1) * len(KINDS)):
        one = solved(seed)
        assert_true(one.problem, one.result, seed)


def test_almost_all_of_them_are_certified() -> None:
    results = [solved(seed) for seed in range(N_PROBLEMS)]
    ordinary = [one.result.certified for one in results if one.problem.kind not in BEYOND_DOUBLES]
    assert np.mean(ordinary) > 0.97
    assert np.mean([one.result.certified for one in results]) > 0.8


def test_with_no_time_at_all_the_bounds_are_true() -> None:
    reasons = set()
    for seed in range(36):
        problem = row_problem(seed, most_rows=7)
        for limit in (1e-9, 3e-3, 2e-2):
            result = problem.solved(gap=1e-6, time_limit=limit, seed=seed)
            assert_true(problem, result, seed)
            reasons.add(result.stop_reason)
    assert reasons == {StopReason.TIME_LIMIT, StopReason.GAP} or StopReason.EXHAUSTED in reasons


@pytest.mark.parametrize("exponent", [-170, -160, -155, -150, -100, 100, 140, 148])
def test_scales_at_the_ends_of_the_range(exponent: int) -> None:
    rows = np.array([[1.0, 2.0], [1.5, 2.25], [5.0, 1.0], [5.5, 1.5], [9.0, 9.0]]) * 10.0**exponent
    problem = RowProblem("scale", {"a": rows[:2], "b": rows[2:]}, {"a": np.ones(2), "b": np.ones(3)}, 2, None)
    result = problem.solved(gap=1e-4, time_limit=1.0)
    assert_true(problem, result, exponent)


def test_the_oracle_knows_simple_optima() -> None:
    line = np.array([[0.0], [1.0], [10.0], [11.0]])
    assert clustering_optimum(line, np.ones(4), 2) == 1
    assert clustering_optimum(line, np.ones(4), 4) == 0
    assert clustering_optimum(line, np.array([1.0, 1.0, 0.0, 1.0]), 2) == Fraction(1, 2)
