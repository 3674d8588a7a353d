"""Numbers near the ends of the range of doubles, where factors underflow or overflow on the way: still no tolerance."""

from __future__ import annotations

import numpy as np
import pytest

from consentroid.core.symmetry import Symmetry
from consentroid.paper.node.base import Budget, NodeProblem
from consentroid.paper.node.exact import ExactSolver
from oracle import optimum
from test_exact_truth import REGIMES, check


def problem(points, weights, price, lo, hi, references=None) -> NodeProblem:
    points, price = np.array(points, dtype=float), np.array(price, dtype=float)
    boxes = np.stack([np.broadcast_to(np.array(side, dtype=float), price.shape) for side in (lo, hi)])
    rule = Symmetry() if references is None else Symmetry("order", np.array(references, dtype=float))
    return NodeProblem(points, np.array(weights, dtype=float), price, boxes, rule)


FIVE = np.random.default_rng(0).uniform(-1, 1, (5, 2))
SMALL = np.array([[0, 0], [0.06, 0], [0.5, 0.5], [0.4, 0.3], [0.1, 0.2]])
NARROW = [[1e20, 1e-310], [1e20, 2e-310]]
NONE = np.zeros((2, 2))

EXTREMES = {
    "rows that cannot be scaled into [-1, 1]": problem(
        np.vstack([FIVE, -FIVE[:1]]) * 9e304, [1e-305] * 6, [[1.1, -0.3], [0.6, -0.3]], -2e305, 2e305
    ),
    "a price that underflows when divided by the scale alone": problem(
        [[-1e30], [1e30]], [1e-301] * 2, [[0], [0], [-1e-300]], -2e30, [[2e30], [2e30], [1e50]]
    ),
    "a bound that is subnormal on its way back": problem(FIVE * 1e140, [1e-315] * 5, NONE, -2e140, 2e140),
    "weights so small that costs underflow": problem(SMALL[:3], [1e-322] * 3, NONE, -1, 1),
    "rows and weights so small that costs underflow": problem(SMALL * 1e-120, [1e-83] * 5, NONE, -1e-120, 1e-120),
    "a payment that underflows": problem(np.zeros((0, 1)), [], [[1e-200]], [[1e-200]], [[2e-200]]),
    "a rule broken by a subnormal amount": problem([[1e20, 0]], [1], NONE, NARROW, NARROW, [[0, 1], [0, 0]]),
}


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_numbers_are_told_the_truth_about(regime: str, name: str) -> None:
    extreme = EXTREMES[name]
    best = optimum(extreme)
    for budget in (Budget(search_nodes=1), Budget(search_nodes=50), Budget(search_nodes=3000)):
        solution = ExactSolver(regime).solve(extreme, budget)  # type: ignore[arg-type]
        check(extreme, solution, best)
        assert not np.isnan(solution.value)


@pytest.mark.parametrize("regime", REGIMES)
def test_payments_that_overflow_both_ways_are_no_value(regime: str) -> None:
    rng = np.random.default_rng(2)
    price = np.array([[1e180, -3e179], [-1e181, 2e180]])
    huge = problem(rng.normal(size=(4, 2)) - 2.58e135, [1e60] * 4, price, -4e135, 4e135)
    solution = ExactSolver(regime).solve(huge, Budget(search_nodes=500))  # type: ignore[arg-type]
    assert not np.isnan(solution.value)
    assert solution.bound <= solution.value


@pytest.mark.parametrize("regime", REGIMES)
def test_references_too_far_apart_to_subtract_end_at_once(regime: str) -> None:
    far = problem(SMALL[:3], [1] * 3, [[1, 2], [-3, 1]], -1, 1, [[1.7e308, 1e308], [-1.7e308, 0]])
    solution = ExactSolver(regime).solve(far, Budget())  # type: ignore[arg-type]
    assert solution.bound <= -6.0  # the least payment, less rounding
