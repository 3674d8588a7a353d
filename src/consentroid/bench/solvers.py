"""The exact node solver against MIQCP solvers, and its growth with rows, features and clusters.

Node problems are those a run really meets: the bundle trust method under the order rule visits λ(1), λ(2), ..., and
the problems of all nodes in its first, middle and last round are solved again by every solver, one after the other on
one thread. The MIQCP solvers stop at a relative gap of 1e-4, ours at 1e-9: the comparison leans to their side. Ours is
the best of several calls of `ExactSolver.solve` in the state it has in a run: fresh in round 1; later it has met the
node's rows and keeps what depends on them alone. The first call by a fresh solver is reported for every round as well.
The others are called once, since they take long enough and keep nothing. A ratio is theirs / ours; where a solver ran
out of time its ratio is a lower limit.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..core.errors import SolverUnavailable
from ..core.problem import NodeData
from ..core.symmetry import Symmetry
from ..paper.instances import Instance, generate, load_folder
from ..paper.loop import maximise_dual
from ..paper.node.base import Budget, NodeProblem, NodeSolution, NodeSolver
from ..paper.settings import PaperSettings
from ..paper.solvers import solver_named
from ..paper.worker import PaperWorker
from ..report.files import check_writable, output_folder
from ..transport.channel import Channel
from ..transport.inprocess import InProcessTransport
from ..transport.recorder import Recorder
from . import tables
from .solver_records import GROWTH_GAP, OUR_GAP, THEIR_GAP, THEIRS, GrowthPoint, SolverBench, SolverComparison

LONG = 0.5  # seconds after which a measurement is not repeated
QUICK_SECONDS = 50.0  # of a minute; the rest is loading and drawing


@dataclass(frozen=True)
class Effort:
    """How long a bench may take, in all and for each solve."""

    comparison: float  # seconds for all comparisons
    their_limit: float  # seconds a MIQCP solve
    growth_limit: float  # seconds a growth point
    growth_until: float  # seconds since the start after which no growth point is begun
    growth_step: int = 1  # every so many growth points

    @classmethod
    def quick(cls) -> Effort:
        return cls(0.7 * QUICK_SECONDS, 4.0, 0.5, QUICK_SECONDS, 2)

    @classmethod
    def minutes(cls, minutes: float) -> Effort:
        """About so long: comparisons in turn over the classes, then the growth curves."""
        return cls(0.7 * 60 * minutes, 30.0, 20.0, 60 * minutes)

    @classmethod
    def full(cls) -> Effort:
        return cls(math.inf, 120.0, 20.0, math.inf)


def trajectory_problems(
    instance: Instance, method: str = "btm", time_limit: float = math.inf
) -> list[tuple[int, NodeData, NodeProblem]]:
    """Node problems of the first, middle and last round of a run, all under the run's order rule.

    The run itself needs no rule at λ = 0 and finds its references there; the bench imposes them on round 1 as well.
    """
    recorder = Recorder()
    transport = recorder.around(InProcessTransport.of(instance.problem, PaperWorker))
    settings = PaperSettings.of_the_paper(instance.problem.n_clusters, method, time_limit=time_limit)
    try:
        channel = Channel(transport)
        maximise_dual(channel, channel.agree(settings.n_clusters, instance.problem.domain), settings)
    finally:
        transport.close()
    rounds = recorder.queries
    last = rounds[-1][0]
    symmetry = Symmetry("order", last.references) if last.references is not None else Symmetry()
    problems = []
    for number in dict.fromkeys((len(rounds) // 2, len(rounds) - 1, 0)):  # a bench cut short has met priced ones
        for node, query in zip(instance.problem.nodes, rounds[number], strict=True):
            assert query.solve is not None
            price, boxes = query.solve.prices[0], query.solve.boxes[0]
            problems.append((number + 1, node, NodeProblem(node.points, node.weights, price, boxes, symmetry)))
    return problems


def time_ours(problem: NodeProblem, budget: Budget, first_round: bool) -> tuple[float, float, NodeSolution]:
    """Seconds in a run, seconds of a fresh solver, and the solution; what takes long is not repeated."""
    fresh, (first, solution) = _best_of(lambda: solver_named("exact"), problem, budget)
    if first_round or first > LONG:
        return first, first, solution
    fresh.solve(replace(problem, price=np.zeros_like(problem.price)), budget)  # meets the rows, not this price
    _, (later, solution) = _best_of(lambda: fresh, problem, budget)
    return later, first, solution


def _best_of(
    make: Callable[[], NodeSolver], problem: NodeProblem, budget: Budget, repeats: int = 25
) -> tuple[NodeSolver, tuple[float, NodeSolution]]:
    best, spent = math.inf, 0.0
    for _ in range(repeats):
        solver = make()
        began = time.perf_counter()
        solution = solver.solve(problem, budget)
        seconds = time.perf_counter() - began
        best, spent = min(best, seconds), spent + seconds
        if spent > LONG:
            break
    return solver, (best, solution)


def compare(
    instance: Instance, seconds: float, solvers: dict[str, NodeSolver], deadline: float
) -> Iterator[SolverComparison]:
    """Every node problem of an instance by every solver, until the deadline."""
    remaining = deadline - time.perf_counter()
    if remaining <= 0:
        return
    for number, node, problem in trajectory_problems(instance, time_limit=remaining / 10):
        if time.perf_counter() > deadline:
            return
        ours, first, solution = time_ours(problem, Budget(gap=OUR_GAP, seconds=seconds), number == 1)
        record = SolverComparison(
            instance.name, instance.label, node.name, number, ours, first, solution.value, solution.bound
        )
        for name, solver in list(solvers.items()):
            allowed = min(seconds, max(deadline - time.perf_counter(), 1.0))
            began = time.perf_counter()
            try:
                theirs = solver.solve(problem, Budget(gap=THEIR_GAP, seconds=allowed))
            except SolverUnavailable:
                continue
            measured = {"seconds": time.perf_counter() - began, "value": theirs.value, "status": str(theirs.status)}
            record = replace(record, **{f"{name}_{key}": value for key, value in measured.items()})  # type: ignore[arg-type]
        yield record


def growth_cases() -> list[tuple[str, int, int, int]]:
    """(curve, rows, features, clusters)."""
    rows = (15, 30, 60, 120, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
    cases = [("rows", n, 2, 3) for n in rows]
    cases += [("features", 60, d, 3) for d in range(1, 11)]
    cases += [("clusters", 60, 2, k) for k in range(2, 9)]
    return cases


def growth_problem(rows: int, features: int, clusters: int, seed: int = 1) -> NodeProblem:
    """One node of the paper's recipe under a price of the size that a few rows of disagreement cause."""
    per_cluster = -(-rows // clusters)
    instance = generate(1, features, clusters, seed, points_per_cluster=per_cluster)
    node = instance.problem.nodes[0]
    references = node.points.reshape(clusters, per_cluster, features).mean(axis=1)
    points = node.points[np.sort(np.random.default_rng(seed).permutation(len(node.points))[:rows])]
    price = 0.02 * per_cluster * np.random.default_rng(seed + 1).normal(size=(clusters, features))
    boxes = instance.problem.domain.boxes(clusters)
    return NodeProblem(points, np.ones(len(points)), price, boxes, Symmetry("order", references))


def grow(case: tuple[str, int, int, int], seconds: float) -> GrowthPoint:
    curve, rows, features, clusters = case
    problem = growth_problem(rows, features, clusters)
    _, (taken, solution) = _best_of(lambda: solver_named("exact"), problem, Budget(gap=GROWTH_GAP, seconds=seconds), 2)
    cost = solution.value - float(np.sum(problem.price * solution.centroids))
    scale = max(abs(solution.value), cost, 1e-300)  # as `Budget.gap`
    gap = max(solution.value - solution.bound, 0.0) / scale
    return GrowthPoint(curve, rows, features, clusters, taken, gap, GROWTH_GAP, seconds)


def run_solver_bench(
    instances_dir: Path,
    json_path: Path | None,
    plots_dir: Path | None,
    console: Console,
    effort: Effort,
) -> SolverBench:
    """Measure, show the tables, write the JSON and the plots; an interrupt keeps what was reached."""
    check_writable(json_path)
    folder = None if plots_dir is None else output_folder(plots_dir)
    instances = load_folder(instances_dir)
    bench = SolverBench([], [])
    try:
        _measure(bench, instances, growth_cases()[:: effort.growth_step], effort, console)
    except KeyboardInterrupt:
        bench.interrupted = True
        console.print("Interrupted: what follows was measured until then.")
    if json_path is not None:
        json_path.write_text(json.dumps(bench.as_dict(), indent=1) + "\n")
    tables.show(bench, console)
    if folder is not None:
        for path in tables.draw(bench, folder):
            console.print(f"Drawn: {path}", highlight=False)
    return bench


def _measure(
    bench: SolverBench,
    instances: list[Instance],
    cases: list[tuple[str, int, int, int]],
    effort: Effort,
    console: Console,
) -> None:
    solvers = _available(console)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        preparing = progress.add_task("compiling, once for all runs", total=2)
        for rows in (15, 300):  # one problem for each regime of the solver
            grow(("rows", rows, 2, 3), 1.0)
            progress.advance(preparing)
        began = time.perf_counter()
        n_problems = sum(3 * len(instance.problem.nodes) for instance in instances)
        comparing = progress.add_task("comparing solvers", total=n_problems)
        for record in _in_turn(instances, effort, solvers, began + effort.comparison):
            bench.comparisons.append(record)
            progress.update(comparing, advance=1, description=f"compared on {record.instance}, {record.node}")
        growing = progress.add_task("growth", total=len(cases))
        for case in cases:
            if time.perf_counter() - began > effort.growth_until:
                break
            progress.update(growing, description=f"growth, {case[1]} rows, {case[2]} features, {case[3]} clusters")
            bench.growth.append(grow(case, effort.growth_limit))
            progress.advance(growing)


def _in_turn(
    instances: list[Instance], effort: Effort, solvers: dict[str, NodeSolver], deadline: float
) -> Iterator[SolverComparison]:
    """A problem of every class, then the next of every class: a bench cut short has seen them all."""

    def of_class(label: str) -> Iterator[SolverComparison]:
        for instance in instances:
            if instance.label == label:
                yield from compare(instance, effort.their_limit, solvers, deadline)

    streams = [of_class(label) for label in dict.fromkeys(instance.label for instance in instances)]
    for records in zip_longest(*streams):
        yield from (record for record in records if record is not None)


def _available(console: Console) -> dict[str, NodeSolver]:
    """Solvers that can solve a problem of one row here; the others are named and left out."""
    problem = NodeProblem(np.zeros((1, 1)), np.ones(1), np.zeros((1, 1)), np.array([[[0.0]], [[1.0]]]))
    solvers = {}
    for name in THEIRS:
        solver = solver_named(name)
        try:
            solver.solve(problem, Budget())
        except SolverUnavailable as error:
            console.print(f"Left out: {error}")
        else:
            solvers[name] = solver
    return solvers
