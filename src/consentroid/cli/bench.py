"""`consentroid bench`: speed as ratios in one run on the same work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from .console import console

bench_app = typer.Typer(help="Measure speed, as ratios in one run on the same work.", no_args_is_help=True)


@bench_app.command("solvers")
def solvers(
    instances: Annotated[Path, typer.Option(help="Folder with .jld2 or .npz instances.")],
    json_file: Annotated[Path | None, typer.Option("--json", help="Write ratios and records here.")] = None,
    plots: Annotated[Path | None, typer.Option(help="Draw the growth curves here.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One minute in all.")] = False,
    minutes: Annotated[float | None, typer.Option(help="About so many minutes; default: to the end.")] = None,
    limit: Annotated[
        float | None, typer.Option(help="Seconds allowed to a MIQCP solve; at the limit its ratio is a lower limit.")
    ] = None,
) -> None:
    """Our node solver against Gurobi and SCIP on node problems met along real λ trajectories, and its growth.

    Example: consentroid bench solvers --instances DIR --json solvers.json --plots plots --quick
    """
    from ..bench.solvers import Effort, run_solver_bench

    effort = Effort.quick() if quick else Effort.full() if minutes is None else Effort.minutes(minutes)
    if limit is not None:
        effort = replace(effort, their_limit=limit)
    run_solver_bench(instances, json_file, plots, console, effort)


@bench_app.command("rounds")
def rounds(
    instances: Annotated[Path | None, typer.Option(help="Folder with instances, beside generated ones.")] = None,
    seeds: Annotated[int, typer.Option(help="Generated problems for each number of nodes.")] = 3,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures here.")] = None,
    plots: Annotated[Path | None, typer.Option(help="Draw rounds and traffic here.")] = None,
) -> None:
    """Rounds until the bound is within 1e-3 of the dual optimum, and rounds and bytes of a proof, by number of nodes.

    Example: consentroid bench rounds --instances DIR --json rounds.json --plots plots
    """
    from ..bench.rounds import run_rounds_bench
    from ..paper.instances import load_folder

    run_rounds_bench([] if instances is None else load_folder(instances), seeds, json_file, plots, console)
