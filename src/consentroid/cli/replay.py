"""`consentroid replay`: the paper's benchmark, our rows beside its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.errors import InvalidInput
from ..core.extras import require
from ..core.result import FitResult, Step, StopReason
from .choices import Solver, SymmetryRule
from .inputs import JsonOption, listed

if TYPE_CHECKING:
    from ..core.problem import Problem
    from ..paper.instances import Instance
    from ..paper.replay import Record


def replay(
    instances: Annotated[Path | None, typer.Option(help="Folder with .jld2 or .npz instances.")] = None,
    generate_classes: Annotated[
        str | None, typer.Option("--generate", help="Make instances of these classes instead, as in 3N4D3K,4N3D4K.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds for --generate, as in 0,1,2 or 0-4.")] = "0-4",
    radius: Annotated[float, typer.Option(help="Radius of the generated clusters.")] = 0.25,
    methods: Annotated[
        str, typer.Option(help="Comma-separated: sg, btm, qnda, qnda-epigraph, proximal, proof (ours).")
    ] = "sg,btm,qnda,qnda-epigraph",
    solver: Annotated[Solver, typer.Option(help="Node solver.")] = Solver.EXACT,
    symmetry: Annotated[
        SymmetryRule, typer.Option(help="Rule of the paper's methods; nearest is the paper's and proves nothing.")
    ] = SymmetryRule.ORDER,
    gap: Annotated[float | None, typer.Option(help="Stop at this gap instead of the method's own (0.0025).")] = None,
    node_seconds: Annotated[float, typer.Option(help="Longest turn of a node in one round.")] = 60.0,
    first: Annotated[int | None, typer.Option(min=1, help="Take only the first so many instances.")] = None,
    only: Annotated[str | None, typer.Option(help="Only instances named like this, as in '2N2D*'.")] = None,
    out: Annotated[Path | None, typer.Option(help="File for one JSON record per instance and method.")] = None,
    plots_dir: Annotated[Path | None, typer.Option("--plots", help="Draw the paper's figures here.")] = None,
    central_seconds: Annotated[float, typer.Option(help="Time for the central solver in the last figure.")] = 20.0,
    as_json: JsonOption = False,
) -> None:
    """Solve the paper's benchmark problems by its methods and ours.

    Examples: consentroid replay --instances DIR --methods sg,btm,qnda --out replay.json;
    consentroid replay --generate 3N4D3K,4N4D4K --seeds 0-4 --methods proof --gap 1e-4
    """
    from ..paper.replay import check_method, table_of
    from ..report.files import check_writable, output_folder, to_json, write_text
    from .console import compile_first, console, messages, print_json

    problems = _instances(instances, generate_classes, seeds, radius, only)[:first]
    chosen = listed(methods) or []
    if not chosen:
        raise InvalidInput("--methods is empty; give at least one, as in --methods btm,proof")
    for method in chosen:
        check_method(method, solver.value, symmetry.value, gap)  # type: ignore[arg-type]
    check_writable(out)
    if plots_dir is not None:
        require("matplotlib", "plots", "drawing the paper's figures (--plots)")
        output_folder(plots_dir)
    compile_first(any(method != "proof" for method in chosen))
    records = _replay(problems, chosen, solver.value, symmetry.value, gap, node_seconds)
    told = [asdict(record) for record in records]
    if out is not None:
        write_text(out, to_json(told, indent=1) + "\n")
    if as_json:
        print_json(told)
    elif records:
        console.print(table_of(records, chosen))
    where = messages if as_json else console
    if out is not None:
        where.print(f"Written: {out}", highlight=False, soft_wrap=True)
    if len(records) < len(problems) * len(chosen):
        messages.print(f"Interrupted: {len(records)} of {len(problems) * len(chosen)} runs finished, shown above.")
        raise typer.Exit(130)
    if plots_dir is not None:
        for path in draw(problems[0], chosen, solver.value, symmetry.value, plots_dir, central_seconds):
            where.print(f"Drawn: {path}", highlight=False, soft_wrap=True)


def prove(problem: Problem, gap: float, on_step: Callable[[Step], None] | None) -> FitResult:
    """The method 'proof': row prices on the same rows, to their end."""
    from ..fitting import fit

    rows = {node.name: node.points for node in problem.nodes}
    weights = {node.name: node.weights for node in problem.nodes}
    return fit(
        rows, problem.n_clusters, weights=weights, domain=problem.domain, gap=gap, time_limit=None, on_step=on_step
    )


def _replay(
    problems: list[Instance], methods: list[str], solver: str, symmetry: str, gap: float | None, node_seconds: float
) -> list[Record]:
    """All runs with a progress bar; an interrupt keeps what is finished."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from ..paper.replay import replay_one
    from ..report.wording import percent
    from .console import messages

    records: list[Record] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=messages, disable=not messages.is_terminal, transient=True) as bar:
        task = bar.add_task("", total=len(problems) * len(methods))

        def follow(name: str) -> Callable[[Step], None]:
            return lambda step: bar.update(
                task, description=f"{name:<22} round {step.round:>3}  gap {percent(step.gap):>9}"
            )

        try:
            for instance in problems:
                for method in methods:
                    record, result = replay_one(
                        instance, method, solver, symmetry, gap,  # type: ignore[arg-type]
                        follow(f"{instance.name} {method}"), node_seconds, prove=prove,
                    )  # fmt: skip
                    if result.stop_reason == StopReason.INTERRUPTED:
                        return records
                    records.append(record)
                    bar.advance(task)
        except KeyboardInterrupt:
            return records
    return records


def draw(
    instance: Instance, methods: list[str], solver: str, symmetry: str, folder: Path, central_seconds: float
) -> list[Path]:
    """The paper's three figures for one instance."""
    from ..paper.replay import replay_one
    from ..report import plots
    from ..transport.recorder import Recorder

    histories: dict[str, Any] = {}
    recorder, drawn = Recorder(), []
    papers = [method for method in methods if method != "proof"]
    method = "qnda" if "qnda" in methods else papers[0] if papers else None
    for name in methods:
        wrap = recorder.around if name == method else (lambda transport: transport)
        _, result = replay_one(instance, name, solver, symmetry, wrap=wrap, prove=prove)  # type: ignore[arg-type]
        histories[name] = result.trace
    name = instance.name
    drawn.append(plots.gap_over_rounds(histories, folder / f"gap_{name}.png", f"{name}, {solver} at the nodes"))
    if method is None:
        return drawn
    last = histories[method]
    stages = {"round 1": recorder.first, f"round {last[-1].round}": recorder.last}
    drawn.append(plots.node_clusters(instance.problem, stages, folder / f"clusters_{name}.png", f"{name}, {method}"))
    curves = {f"{method}, {solver} at the nodes": ([r.seconds for r in last], [r.gap for r in last])}
    curves |= _central_curves(instance, central_seconds)
    drawn.append(plots.gap_over_time(curves, folder / f"central_{name}.png", f"{name}: nodes against central solver"))
    return drawn


def _central_curves(instance: Instance, seconds: float) -> dict[str, tuple[list[float], list[float]]]:
    from ..core.errors import SolverUnavailable
    from ..paper.central import solve_central
    from .console import messages

    for solver in ("gurobi", "scip"):
        try:
            central = solve_central(instance.problem, solver, seconds=seconds)
        except SolverUnavailable as reason:
            messages.print(f"central {solver}: {reason}")
        else:
            return {f"central {solver}": (list(central.seconds), list(central.gap))}
    return {}


def _instances(folder: Path | None, classes: str | None, seeds: str, radius: float, only: str | None) -> list[Instance]:
    if (folder is None) == (classes is None):
        raise InvalidInput("give either --instances DIR or --generate CLASSES, as in --generate 3N4D3K")
    from ..paper.instances import generate, load_folder

    if folder is not None:
        return load_folder(folder, only)
    assert classes is not None
    return [
        generate(*sizes_of(label.strip()), seed=seed, radius=radius)
        for label in classes.split(",")
        for seed in _numbers(seeds)
    ]


def sizes_of(label: str) -> tuple[int, int, int]:
    from ..paper.instances import InstanceClass

    parsed = InstanceClass.parse(label)
    return parsed.n_nodes, parsed.n_features, parsed.n_clusters


def _numbers(text: str) -> list[int]:
    try:
        numbers: list[int] = []
        for part in text.split(","):
            first, dash, last = part.partition("-")
            numbers.extend(range(int(first), int(last if dash else first) + 1))
        return numbers
    except ValueError:
        raise InvalidInput(f"--seeds '{text}' must list numbers, as in 0,1,2 or 0-4") from None
