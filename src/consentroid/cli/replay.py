"""`consentroid replay`: the paper's benchmark, our rows beside its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..core.errors import InvalidInput
from ..paper.instances import Instance, generate, load_folder
from ..paper.loop import OnRound
from ..paper.replay import METHODS, NODE_SECONDS, Record, replay_one, settings_for, table_of, write_json
from ..paper.trace import RoundRecord
from ..report.files import check_writable, output_folder
from ..report.wording import percent
from ..transport.recorder import Recorder
from .console import console, messages


def replay(
    instances: Annotated[Path | None, typer.Option(help="Folder with .jld2 or .npz instances.")] = None,
    generate_classes: Annotated[
        str | None, typer.Option("--generate", help="Make instances of these classes instead, as in 3N4D3K,4N3D4K.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds for --generate, as in 0,1,2 or 0-4.")] = "0-4",
    radius: Annotated[float, typer.Option(help="Radius of the generated clusters.")] = 0.25,
    methods: Annotated[str, typer.Option(help="Comma-separated: " + ", ".join(METHODS))] = "sg,btm,qnda,qnda-epigraph",
    solver: Annotated[str, typer.Option(help="Node solver: exact, scip or gurobi.")] = "exact",
    symmetry: Annotated[str, typer.Option(help="order, none, or nearest (the paper's; proves nothing).")] = "order",
    gap: Annotated[float | None, typer.Option(help="Stop at this gap instead of the method's own (0.0025).")] = None,
    node_seconds: Annotated[float, typer.Option(help="Longest turn of a node in one round.")] = NODE_SECONDS,
    limit: Annotated[int | None, typer.Option(help="Take only the first so many instances.")] = None,
    only: Annotated[str | None, typer.Option(help="Only instances named like this, as in '2N2D*'.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write one record per instance and method.")] = None,
    plots_dir: Annotated[Path | None, typer.Option("--plots", help="Draw the paper's figures here.")] = None,
    central_seconds: Annotated[float, typer.Option(help="Time for the central solver in the last figure.")] = 20.0,
) -> None:
    """Solve the paper's benchmark problems by its methods and ours.

    Examples: consentroid replay --instances DIR --methods sg,btm,qnda --json replay.json;
    consentroid replay --generate 3N4D3K,4N4D4K --seeds 0-4 --methods proof --gap 1e-4
    """
    problems = _instances(instances, generate_classes, seeds, radius, only)[:limit]
    chosen = [method.strip() for method in methods.split(",") if method.strip()]
    for method in chosen:  # a wrong name or rule is told before any work
        settings_for(method, 2, solver, symmetry, gap)  # type: ignore[arg-type]
    check_writable(json_file)
    if plots_dir is not None:
        output_folder(plots_dir)
    records = _replay(problems, chosen, solver, symmetry, gap, node_seconds)
    if json_file is not None:
        write_json(json_file, records)
    if records:
        console.print(table_of(records, chosen))
    if json_file is not None:
        console.print(f"Written: {json_file}", highlight=False)
    if len(records) < len(problems) * len(chosen):
        messages.print(f"Interrupted: {len(records)} of {len(problems) * len(chosen)} runs finished, shown above.")
        raise typer.Exit(130)
    if plots_dir is not None:
        for path in draw(problems[0], chosen, solver, symmetry, plots_dir, central_seconds):
            console.print(f"Drawn: {path}", highlight=False)


def _replay(
    problems: list[Instance],
    methods: list[str],
    solver: str,
    symmetry: str,
    gap: float | None,
    node_seconds: float,
) -> list[Record]:
    """All runs with a progress bar; an interrupt keeps what is finished."""
    records: list[Record] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=messages, disable=not messages.is_terminal, transient=True) as bar:
        task = bar.add_task("", total=len(problems) * len(methods))
        try:
            for instance in problems:
                for method in methods:
                    follow = _follower(bar, task, f"{instance.name} {method}")
                    record, result = replay_one(
                        instance, method, solver, symmetry, gap, follow, node_seconds  # type: ignore[arg-type]
                    )
                    if result.stop_reason == "interrupted":
                        return records
                    records.append(record)
                    bar.advance(task)
        except KeyboardInterrupt:
            return records
    return records


def _follower(bar: Progress, task: object, name: str) -> OnRound:
    def follow(record: RoundRecord) -> None:
        bar.update(task, description=f"{name:<22} round {record.round:>3}  gap {percent(record.gap):>9}")  # type: ignore[arg-type]

    return follow


def draw(
    instance: Instance, methods: list[str], solver: str, symmetry: str, folder: Path, central_seconds: float
) -> list[Path]:
    """The paper's three figures for one instance."""
    from ..report import plots

    histories, drawn = {}, []
    recorder = Recorder()
    method = "qnda" if "qnda" in methods else methods[0]
    for name in methods:
        wrap = recorder.around if name == method else (lambda transport: transport)
        _, result = replay_one(instance, name, solver, symmetry, wrap=wrap)  # type: ignore[arg-type]
        histories[name] = result.history
    name, last = instance.name, histories[method]
    drawn.append(plots.gap_over_rounds(histories, folder / f"gap_{name}.png", f"{name}, {solver} at the nodes"))
    stages = {"round 1": recorder.first, f"round {last[-1].round}": recorder.last}
    drawn.append(plots.node_clusters(instance.problem, stages, folder / f"clusters_{name}.png", f"{name}, {method}"))
    curves = {f"{method}, {solver} at the nodes": ([r.seconds for r in last], [r.gap for r in last])}
    curves |= _central_curves(instance, central_seconds)
    drawn.append(plots.gap_over_time(curves, folder / f"central_{name}.png", f"{name}: nodes against central solver"))
    return drawn


def _central_curves(instance: Instance, seconds: float) -> dict[str, tuple[list[float], list[float]]]:
    from ..core.errors import SolverUnavailable
    from ..paper.central import solve_central

    for solver in ("gurobi", "scip"):
        try:
            central = solve_central(instance.problem, solver, seconds=seconds)
        except SolverUnavailable as reason:
            messages.print(f"central {solver}: {reason}")
        else:
            return {f"central {solver}": (list(central.seconds), list(central.gap))}
    return {}


def _instances(
    folder: Path | None, classes: str | None, seeds: str, radius: float, only: str | None
) -> list[Instance]:
    if (folder is None) == (classes is None):
        raise InvalidInput("give either --instances DIR or --generate CLASSES, as in --generate 3N4D3K")
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
