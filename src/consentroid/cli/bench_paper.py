"""`consentroid bench solvers` and `bench rounds`: the paper's node solver and dual, beside other solvers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.extras import require
from .bench import OutOption, bench_app
from .inputs import JsonOption

if TYPE_CHECKING:
    from rich.console import Console


@bench_app.command("solvers")
def solvers(
    instances: Annotated[Path, typer.Option(help="Folder with .jld2 or .npz instances.")],
    out: OutOption = None,
    plots: Annotated[Path | None, typer.Option(help="Draw the growth curves here.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One minute in all.")] = False,
    minutes: Annotated[float | None, typer.Option(help="About so many minutes; default: to the end.")] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds allowed to a MIQCP solve; at the limit its ratio is a lower limit.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Our node solver against Gurobi and SCIP on node problems met along real λ trajectories, and its growth.

    Example: consentroid bench solvers --instances DIR --out solvers.json --plots plots --quick
    """
    _check_extras(plots)
    from ..bench.solvers import Effort, run_solver_bench

    effort = Effort.quick() if quick else Effort.full() if minutes is None else Effort.minutes(minutes)
    if time_limit is not None:
        effort = replace(effort, their_limit=time_limit)
    _told(lambda file, console: run_solver_bench(instances, file, plots, console, effort), out, as_json)


@bench_app.command("rounds")
def rounds(
    instances: Annotated[Path | None, typer.Option(help="Folder with instances, beside generated ones.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Generated problems for each number of nodes.")] = 3,
    out: OutOption = None,
    plots: Annotated[Path | None, typer.Option(help="Draw rounds and traffic here.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Rounds until the bound is within 1e-3 of the dual optimum, and rounds and bytes of a proof, by number of nodes.

    Example: consentroid bench rounds --instances DIR --out rounds.json --plots plots
    """
    _check_extras(plots)
    from ..bench.rounds import run_rounds_bench
    from ..paper.instances import load_folder

    problems = [] if instances is None else load_folder(instances)
    _told(lambda file, console: run_rounds_bench(problems, seeds, file, plots, console), out, as_json)


def _check_extras(plots: Path | None) -> None:
    if plots is not None:
        require("matplotlib", "plots", "drawing (--plots)")


def _told(measure: Callable[[Path | None, Console], object], out: Path | None, as_json: bool) -> None:
    """Tables for people; with --json the same figures on standard output, and tables on the other one."""
    from .console import console, messages

    if not as_json:
        measure(out, console)
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "figures.json") if out is None else out
        measure(file, messages)
        typer.echo(file.read_text(encoding="utf-8"), nl=False)
