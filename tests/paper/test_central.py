"""The pooled MIQCP and its history: true numbers at every moment."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from consentroid.core.errors import InvalidInput, SolverUnavailable
from consentroid.core.problem import Problem, clustering_cost
from consentroid.paper.central import CENTRAL_SOLVERS, CentralSolution, solve_central
from consentroid.paper.instances import generate, read_instance
from consentroid.paper.node.base import NodeSolution, Status

each_solver = pytest.mark.parametrize("solver", CENTRAL_SOLVERS)


def check_history(central: CentralSolution, optimum: float) -> None:
    assert len(central.seconds) == len(central.lower) == len(central.upper) > 0
    assert np.all(np.diff(central.seconds) >= 0)
    assert np.all(np.diff(central.lower) >= 0)
    assert np.all(np.diff(central.upper[np.isfinite(central.upper)]) <= 0)
    assert np.all(central.lower <= optimum)
    assert np.all(central.upper >= optimum * (1 - 1e-12))
    assert np.all((central.gap >= 0) & (central.gap <= 1))
    assert central.lower[-1] >= central.solution.bound
    assert central.upper[-1] <= central.solution.value


@each_solver
@pytest.mark.parametrize("ordered", [False, True])
def test_the_optimum_of_two_pairs_a_node(solver: str, ordered: bool) -> None:
    left, right = [[0.0, 0.0], [1.0, 0.0]], [[9.0, 0.0], [10.0, 0.0]]
    problem = Problem.checked({"a": left + right, "b": left + right}, 2)
    references = np.array([[10.0, 0.0], [0.0, 0.0]]) if ordered else None
    central = solve_central(problem, solver, references=references)
    check_history(central, 2.0)  # four rows a cluster, each half a unit from its mean
    assert central.solution.status is Status.OPTIMAL
    assert central.solution.value == pytest.approx(2.0)
    assert central.gap[-1] <= 2e-4
    if ordered:
        assert central.solution.centroids[0, 0] == pytest.approx(9.5)


@each_solver
def test_a_time_limit_leaves_true_numbers(solver: str, instances_dir: Path, optima: dict[str, float]) -> None:
    problem = read_instance(instances_dir / "2N2D3K_1.jld2").problem
    central = solve_central(problem, solver, seconds=2.0)
    check_history(central, optima["2N2D3K_1"])
    pooled = problem.pooled
    assert central.solution.value == clustering_cost(pooled.points, pooled.weights, central.solution.centroids)


def test_a_model_beyond_the_licence_names_the_remedy() -> None:
    problem = generate(4, 2, 4, seed=1).problem
    try:
        central = solve_central(problem, "gurobi", seconds=1.0)
    except SolverUnavailable as error:
        assert "--solver scip" in str(error)  # noqa: PT017 - a full licence solves it instead
    else:
        assert central.lower[-1] <= central.upper[-1]


def test_only_mixed_integer_solvers_are_offered() -> None:
    with pytest.raises(InvalidInput, match="scip or gurobi, not by 'exact'"):
        solve_central(generate(1, 1, 1, seed=1).problem, "exact")


def test_the_gap_of_a_history_is_worst_until_both_sides_are_known() -> None:
    solution = NodeSolution(1.0, 2.0, np.zeros((1, 1)), Status.TIME_LIMIT, 3.0)
    history = CentralSolution(
        "scip", np.arange(3.0), np.array([0.0, 0.0, 1.0]), np.array([math.inf, 2.0, 2.0]), solution
    )
    assert history.gap.tolist() == [1.0, 1.0, 0.5]
