"""`consentroid bench`: what the engine reaches, beside figures asked for, other solvers, and its own growth."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.extras import require
from .inputs import JsonOption, listed

if TYPE_CHECKING:
    from rich.console import Console

    from ..bench.grids import Grid

bench_app = typer.Typer(
    help="Measure the engine: figures asked for, published problems, growth.",
    no_args_is_help=True,
    add_completion=False,
)

OutOption = Annotated[Path | None, typer.Option(help="File for the figures as JSON.")]
DataOption = Annotated[
    Path | None, typer.Option(help="Folder of the published data sets; what is not there is skipped.")
]
InstancesOption = Annotated[Path | None, typer.Option(help="Folder with the paper's .jld2 or .npz instances.")]
LimitOption = Annotated[float, typer.Option(help="Seconds allowed to one run.")]  # --time-limit, as everywhere
PlotsOption = Annotated[Path | None, typer.Option(help="Draw here.")]


@bench_app.command("figures")
def figures(
    data: DataOption = None,
    instances: InstancesOption = None,
    time_limit: LimitOption = 60.0,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """The figures that the engine is held to, what is measured, and whether they hold.

    Example: consentroid bench figures --data DIR --instances DIR
    """
    from ..bench import figures
    from ..bench.show import Watch
    from .console import messages

    figures.check_folder(data, "--data")
    figures.check_folder(instances, "--instances")
    _check_out(out)
    held: list[Any] = []
    with Watch(figures.count(data), messages) as watch:
        for one in figures.check_all(data, instances, time_limit, watch):
            held.append(one)
            _keep(out, figures.document(held))
    _finish(figures.document(held), [figures.grid_of(held)], figures.summary(held), as_json, watch.interrupted)


@bench_app.command("published")
def published(
    data: Annotated[Path, typer.Option(help="Folder of the published data sets and published.csv.")],
    time_limit: Annotated[float, typer.Option("--time-limit", "--limit", help="Seconds allowed to one run.")] = 60.0,
    only: Annotated[str | None, typer.Option(help="Only these, as in glass,pr299:8.")] = None,
    out: OutOption = None,
    gap: Annotated[float, typer.Option(min=0.0, help="Gap to prove.")] = 1e-4,
    sites: Annotated[
        int | None, typer.Option(min=1, help="Sites that rows are dealt to; 3, and for some problems 1, if not given.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Keep what is in --out, and solve only the rest.")] = False,
    plots: PlotsOption = None,
    as_json: JsonOption = False,
    file: Annotated[Path | None, typer.Argument(help="With --json: write it here, as with --out.")] = None,
) -> None:
    """Problems of the published exact solvers: ours beside SOS-SDP and CG+DCA; every certificate is checked.

    Example: consentroid bench published --data DIR --time-limit 60 --out published.json --plots plots
    """
    if file is not None:
        if not as_json or out is not None:
            raise typer.BadParameter(f"'{file}' is a file for --json, or give it as --out")
        out, as_json = file, False
    from ..bench import published
    from ..bench.figures import check_folder
    from ..bench.show import Watch
    from .console import messages

    check_folder(data, "--data")
    _check_out(out, plots)
    problems = published.problems_in(data, listed(only))
    solved: list[Any] = _solved_before(out, time_limit, gap) if resume else []
    known = {one.problem.name for one in solved}
    remaining = [problem for problem in problems if problem.name not in known]
    missing: list[str] = []
    with Watch(len(remaining), messages, checker=True) as watch:
        for one in published.solve_all(data, remaining, time_limit, watch, gap, sites):
            if isinstance(one, published.SolvedProblem):
                solved.append(one)
                _keep(out, published.document(solved, missing, time_limit, gap))
            else:
                missing.append(str(one))
    told = published.document(solved, missing, time_limit, gap)
    _draw(plots, messages, lambda folder: [published.draw(solved, folder / "published.png")])
    said = [*published.summary(solved, gap), *(f"Skipped: {reason}" for reason in missing)]
    _finish(told, [published.grid_of(solved, gap)], said, as_json, watch.interrupted)


def _solved_before(out: Path | None, time_limit: float, gap: float) -> list[Any]:
    """What an interrupted measurement left; with another time limit or gap it would not compare."""
    from ..bench import published
    from ..core.errors import InvalidInput
    from ..report.files import read_json

    if out is None:
        raise InvalidInput("--resume goes on from the figures in --out; give the file")
    if not out.exists():
        return []
    again = "choose another --out, or leave --resume out to measure all again"
    told = read_json(out, again)
    if (told.get("bench"), told.get("time_limit"), told.get("gap")) != ("published", time_limit, gap):
        raise InvalidInput(
            f"'{out}' holds no published problems with --time-limit {time_limit:g} and --gap {gap:g}; {again}"
        )
    return published.solved_in(told)


@bench_app.command("growth")
def growth(
    curves: Annotated[str, typer.Option(help="Comma-separated: rows, features, clusters, sites.")] = (
        "rows,features,clusters,sites"
    ),
    sizes: Annotated[int | None, typer.Option(min=1, help="Only the first so many sizes of each curve.")] = None,
    time_limit: LimitOption = 120.0,
    out: OutOption = None,
    plots: PlotsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time of each phase and memory against rows, features, clusters and sites, on generated mixtures.

    Example: consentroid bench growth --curves rows,sites --plots plots
    """
    from ..bench import growth
    from ..bench.show import Watch
    from ..core.errors import InvalidInput
    from .console import messages

    chosen = listed(curves) or []
    known = [curve.name for curve in growth.CURVES]
    for name in chosen:
        if name not in known:
            raise InvalidInput(f"--curves '{name}' is unknown; choose from {', '.join(known)}")
    _check_out(out, plots)
    points: list[Any] = []
    total = sum(len(curve.sizes[:sizes]) for curve in growth.CURVES if curve.name in chosen)
    with Watch(total, messages) as watch:
        for point in growth.grow_all(chosen, sizes, time_limit, watch):
            points.append(point)
            _keep(out, growth.document(points))
    _draw(plots, messages, lambda folder: growth.draw(points, folder))
    _finish(growth.document(points), growth.grids_of(points), [], as_json, watch.interrupted)


@bench_app.command("profile")
def profile(
    data: DataOption = None,
    large: Annotated[bool, typer.Option("--large", help="Five large and hard mixtures instead.")] = False,
    time_limit: LimitOption = 60.0,
    out: OutOption = None,
    plots: PlotsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ten typical problems, or six large ones: seconds in each phase.

    Example: consentroid bench profile --data DIR --plots plots
    """
    from ..bench import profile
    from ..bench.figures import check_folder
    from ..bench.runs import Run
    from ..bench.show import Watch
    from .console import messages

    check_folder(data, "--data")
    _check_out(out, plots)
    runs: list[Run] = []
    missing: list[str] = []
    chosen = profile.large_cases() if large else profile.cases(data)
    with Watch(len(chosen), messages) as watch:
        for one in profile.profile_all(chosen, time_limit, watch):
            if isinstance(one, Run):
                runs.append(one)
                _keep(out, profile.document(runs, missing, large))
            else:
                missing.append(str(one))
    _draw(plots, messages, lambda folder: [profile.draw(runs, folder / ("large.png" if large else "profile.png"))])
    said = [f"Skipped: {reason}" for reason in missing]
    _finish(profile.document(runs, missing, large), [profile.grid_of(runs)], said, as_json, watch.interrupted)


@bench_app.command("disclosure")
def disclosure(
    data: Annotated[str, typer.Option(help="Comma-separated: generated, lung, penguins.")] = "generated,lung,penguins",
    time_limit: LimitOption = 20.0,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rows that attacks recover from what a coordinator sees, with and without guard and masks, and the gap it costs.

    Example: consentroid bench disclosure --out disclosure.json
    """
    from ..bench import disclosure
    from ..bench.show import Watch
    from .console import messages

    chosen = listed(data) or []
    disclosure.check_names(chosen)
    _check_out(out)
    told: list[Any] = []
    with Watch(disclosure.count(chosen), messages) as watch:
        for one in disclosure.measure_all(chosen, time_limit, watch):
            told.append(one)
            _keep(out, disclosure.document(told))
    _finish(disclosure.document(told), [disclosure.grid_of(told)], [], as_json, watch.interrupted)


def _check_out(out: Path | None, plots: Path | None = None) -> None:
    from ..report.files import check_writable, output_folder

    check_writable(out)
    if plots is not None:
        require("matplotlib", "plots", "drawing (--plots)")
        output_folder(plots)


def _keep(out: Path | None, told: dict[str, Any]) -> None:
    """After every run: hours of measurement are not lost to a power cut."""
    from ..report.files import to_json, write_text

    if out is not None:
        write_text(out, to_json(told, indent=1) + "\n")


def _draw(plots: Path | None, where: Console, drawing: Callable[[Path], Iterable[Path]]) -> None:
    if plots is not None:
        for path in drawing(plots):
            where.print(f"Drawn: {path}", highlight=False, soft_wrap=True)


def _finish(told: dict[str, Any], grids: list[Grid], said: list[str], as_json: bool, interrupted: bool) -> None:
    from rich.console import Console

    from .console import console, print_json

    if as_json:
        print_json(told)
    else:
        wide = console if console.is_terminal else Console(width=240)
        for grid in grids:
            wide.print(grid.for_terminal())
        for sentence in said:
            console.print(sentence, highlight=False, soft_wrap=True)
    if interrupted:
        raise typer.Exit(130)
