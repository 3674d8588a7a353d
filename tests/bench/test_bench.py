"""The solver bench on a problem of a few rows: what it measures, shows, writes and keeps on an interrupt."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from consentroid.bench import solvers, tables
from consentroid.bench.solver_records import GrowthPoint, SolverBench, SolverComparison
from consentroid.bench.solvers import Effort, run_solver_bench
from consentroid.core.errors import InvalidInput
from consentroid.paper.instances import generate, write_npz
from consentroid.paper.node.base import Budget
from consentroid.paper.solvers import solver_named

SHORT = Effort(comparison=60.0, their_limit=5.0, growth_limit=0.05, growth_until=0.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for label, seed in (((2, 2, 2), 1), ((1, 1, 2), 3)):
        instance = generate(*label, seed, points_per_cluster=2)
        write_npz(instance, tmp_path / "instances" / instance.name)
    return tmp_path / "instances"


def silent() -> Console:
    return Console(file=io.StringIO(), width=140)


def comparison(label: str, ours: float, gurobi: float, status: str = "optimal") -> SolverComparison:
    return SolverComparison(f"{label}_1", label, "node1", 1, ours, ours, 1.0, 1.0, gurobi, 1.5, status)


def test_the_bench_writes_what_it_measured(folder: Path, tmp_path: Path) -> None:
    console = silent()
    effort = Effort(60.0, 5.0, 0.02, 6.0)
    result = run_solver_bench(folder, tmp_path / "out" / "b.json", tmp_path / "plots", console, effort)
    written = json.loads((tmp_path / "out" / "b.json").read_text())
    assert {record["class"] for record in written["ratios"]} == {"2N2D2K", "1N1D2K"}
    assert {record["solver"] for record in written["ratios"]} == {"gurobi", "scip"}
    for record in written["ratios"]:
        assert 0 < record["worst"] <= record["median"]
        assert record["value_difference"] < 1e-5
    for record in written["records"]:
        assert record["ours_bound"] <= min(record[f"{name}_value"] for name in ("ours", "gurobi", "scip"))
        assert record["ours_seconds"] > 0
        assert {"instance", "node", "round", "gurobi_seconds", "scip_seconds"} <= set(record)
    assert len(written["growth"]) == len(result.growth)
    assert not written["interrupted"]
    drawn = {path.name for path in (tmp_path / "plots").iterdir()}
    assert drawn == {"solvers.png"} | {f"node_growth_{point.curve}.png" for point in result.growth}
    assert isinstance(console.file, io.StringIO)
    assert "2N2D2K" in console.file.getvalue()


def test_rounds_of_a_trajectory_share_one_order_rule_and_start_unpriced() -> None:
    instance = generate(2, 2, 3, seed=4, points_per_cluster=2)
    problems = solvers.trajectory_problems(instance)
    rounds = sorted({number for number, *_ in problems})
    assert rounds[0] == 1
    assert len(problems) == 2 * len(rounds)
    references = problems[0][2].symmetry.references
    for number, node, problem in problems:
        assert problem.symmetry.rule == "order"
        assert np.array_equal(problem.symmetry.references, references)
        assert np.array_equal(problem.points, node.points)
        assert (number == 1) == (not problem.price.any())
    totals = [np.sum([p.price for n, _, p in problems if n == number], axis=0) for number in rounds]
    assert not np.any(totals)


def test_ratios_take_median_and_worst_by_class() -> None:
    measured = SolverBench(
        [
            comparison("A", 0.001, 1.0),
            comparison("A", 0.001, 3.0),
            comparison("A", 0.01, 1.0, "time limit"),
            comparison("B", 1.0, 4.0),
        ],
        [],
    )
    first, second = measured.ratios
    assert (first.instance_class, first.solver, first.problems, first.out_of_time) == ("A", "gurobi", 3, 1)
    assert first.median == pytest.approx(1000)
    assert first.worst == pytest.approx(100)
    assert first.value_difference == pytest.approx(0.5)
    assert second.median == pytest.approx(4)


def test_json_has_no_nan_where_every_solve_ran_out_of_time() -> None:
    measured = SolverBench([comparison("A", 1.0, 2.0, "time limit")], [])
    text = json.dumps(measured.as_dict(), allow_nan=False)
    assert json.loads(text)["ratios"][0]["value_difference"] is None


def test_an_interrupt_keeps_what_was_reached(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grow = solvers.grow

    def interrupted(case: tuple[str, int, int, int], seconds: float) -> GrowthPoint:
        if seconds == SHORT.growth_limit:
            raise KeyboardInterrupt
        return grow(case, seconds)

    monkeypatch.setattr(solvers, "grow", interrupted)
    effort = Effort(20.0, 5.0, SHORT.growth_limit, math.inf)
    result = run_solver_bench(folder, tmp_path / "b.json", None, silent(), effort)
    assert result.interrupted
    written = json.loads((tmp_path / "b.json").read_text())
    assert written["interrupted"]
    assert len(written["records"]) == len(result.comparisons) > 0


def test_a_file_that_cannot_be_written_is_named_before_any_work(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="file"):
        run_solver_bench(folder, tmp_path / "file" / "b.json", None, silent(), SHORT)


def test_growth_problems_have_the_size_they_claim() -> None:
    for _, rows, features, clusters in solvers.growth_cases()[:6] + solvers.growth_cases()[-8:]:
        problem = solvers.growth_problem(rows, features, clusters)
        assert problem.points.shape == (rows, features)
        assert problem.price.shape == (clusters, features)
        assert problem.symmetry.satisfied(problem.symmetry.references)
    small = solvers.growth_problem(15, 2, 3)
    solution = solver_named("exact").solve(small, Budget())
    assert solvers.grow(("rows", 15, 2, 3), 5.0).gap <= solvers.GROWTH_GAP
    assert solution.bound <= solution.value


def test_pictures_of_curves_that_ran_out_of_time(tmp_path: Path) -> None:
    points = [GrowthPoint("rows", n, 2, 3, 0.01 * n, gap, 1e-4, 1.0) for n, gap in ((10, 0.0), (100, 0.3))]
    (path,) = tables.draw(SolverBench([], points), tmp_path)
    assert path.stat().st_size > 5000
