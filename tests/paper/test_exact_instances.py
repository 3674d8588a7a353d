"""Node problems of the published instances against the MIQCP back ends, within their tolerances."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from consentroid.core.errors import SolverUnavailable
from consentroid.core.symmetry import Symmetry
from consentroid.paper.node.base import Budget, NodeProblem, Status
from consentroid.paper.node.exact import ExactSolver
from consentroid.paper.solvers import solver_named

pytestmark = pytest.mark.instances


def node_problem(folder: Path, instance: str, node: int, n_clusters: int, size: float) -> NodeProblem:
    with h5py.File(folder / f"{instance}.jld2") as file:
        nodes = [np.array(file[name]).T for name in sorted(file)]
    pooled = np.concatenate(nodes)
    low, high = pooled.min(axis=0), pooled.max(axis=0)
    rng = np.random.default_rng(node)
    price = rng.normal(size=(n_clusters, 2)) * size
    boxes = np.stack([np.tile(low, (n_clusters, 1)), np.tile(high, (n_clusters, 1))])
    references = rng.uniform(low, high, (n_clusters, 2))
    points = np.ascontiguousarray(nodes[node])
    return NodeProblem(points, np.ones(len(points)), price, boxes, Symmetry("order", references))


@pytest.mark.parametrize(
    ("back_end", "instance", "size"),
    [("gurobi", "2N2D3K_1", 0.2), ("gurobi", "3N2D3K_2", 0.05), ("scip", "2N2D3K_1", 0.2)],
)
def test_miqcp_solvers_confirm_the_optimum(instances_dir: Path, back_end: str, instance: str, size: float) -> None:
    pytest.importorskip({"gurobi": "gurobipy", "scip": "pyscipopt"}[back_end])
    problem = node_problem(instances_dir, instance, 1, 3, size)
    ours = ExactSolver().solve(problem, Budget())
    try:
        theirs = solver_named(back_end).solve(problem, Budget(seconds=20.0, gap=1e-4))
    except SolverUnavailable as reason:
        pytest.skip(str(reason))
    assert ours.status is Status.OPTIMAL
    tolerance = 2e-4 * max(1.0, abs(ours.value))
    assert theirs.bound <= ours.value + tolerance
    if theirs.status is Status.OPTIMAL:
        assert theirs.value == pytest.approx(ours.value, abs=tolerance)
    assert ours.bound <= theirs.value + tolerance


@pytest.mark.parametrize("instance", ["2N2D3K_1", "2N2D4K_2", "3N2D4K_1", "4N2D3K_2"])
def test_every_node_problem_is_solved_to_the_default_gap(instances_dir: Path, instance: str) -> None:
    n_clusters = int(instance[4])
    solver = ExactSolver()
    for node in range(int(instance[0])):
        for size in (0.0, 0.05, 0.3):
            problem = node_problem(instances_dir, instance, node, n_clusters, size)
            solution = solver.solve(problem, Budget(search_nodes=200_000))
            assert solution.status is Status.OPTIMAL
            assert solution.value - solution.bound <= 1e-8 * max(abs(solution.value), 1.0)
            assert problem.symmetry.satisfied(solution.centroids)
