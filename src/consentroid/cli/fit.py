"""`consentroid fit`: rows in files, one a node, clustered with a certificate."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from ..core.errors import InvalidInput
from ..core.problem import Domain, Problem
from ..data.tables import read_table
from ..fitting import MOST_ROWS, FitResult, fit_problem
from ..paper.settings import Settings
from ..report.files import output_folder, result_as_dict, write_run
from ..report.wording import REASONS, percent, verdict
from .console import console, live_progress


def node_files(nodes: list[str]) -> dict[str, Path]:
    """NAME=FILE options as a mapping."""
    files: dict[str, Path] = {}
    for option in nodes:
        name, separator, file = option.partition("=")
        if not separator or not name or not file:
            raise InvalidInput(f"--node '{option}' must have the form NAME=FILE, as in --node berlin=berlin.csv")
        if name in files:
            raise InvalidInput(f"two files are given for node '{name}'; every node needs a name of its own")
        files[name] = Path(file)
    return files


def read_nodes(files: dict[str, Path], columns: str | None) -> tuple[dict[str, object], tuple[str, ...]]:
    """All tables, with one schema."""
    chosen = None if columns is None else [column.strip() for column in columns.split(",")]
    tables = {name: read_table(path, chosen) for name, path in files.items()}
    first_name, first = next(iter(tables.items()))
    for name, table in tables.items():
        if table.names != first.names:
            raise InvalidInput(
                f"node '{name}' has the columns {', '.join(table.names)}, node '{first_name}' has "
                f"{', '.join(first.names)}; choose common ones with --columns"
            )
    return {name: table.rows for name, table in tables.items()}, first.names


def fit(
    node: Annotated[list[str], typer.Option(help="NAME=FILE: a node and its rows (CSV, Parquet, npy, npz). Repeat.")],
    k: Annotated[int, typer.Option("-k", "--clusters", help="Number of clusters.")],
    out: Annotated[Path, typer.Option(help="Folder for result.json, certificate.json and trace.jsonl.")] = Path("run"),
    method: Annotated[str, typer.Option(help="proximal (default), sg, btm, qnda or qnda-epigraph.")] = "proximal",
    solver: Annotated[str, typer.Option(help="exact (default), scip or gurobi.")] = "exact",
    symmetry: Annotated[str, typer.Option(help="order (default) or none; nearest replays the paper.")] = "order",
    topology: Annotated[str, typer.Option(help="line, ring, star or complete.")] = "line",
    gap: Annotated[float, typer.Option(help="Stop when this relative gap is proven.")] = 1e-4,
    time_limit: Annotated[float | None, typer.Option(help="Stop after so many seconds.")] = None,
    max_rounds: Annotated[int | None, typer.Option(help="Stop after so many rounds.")] = None,
    columns: Annotated[str | None, typer.Option(help="Comma-separated columns to use, in this order.")] = None,
    domain: Annotated[
        str | None, typer.Option(help="Known range of each feature, as in 0:100,18:99; else the extremes are shared.")
    ] = None,
    most_rows: Annotated[
        int, typer.Option(help="A node with more rows takes part as several virtual ones; 0 leaves it whole.")
    ] = MOST_ROWS,
    seed: Annotated[int, typer.Option(help="Seed of the starts of the incumbent.")] = 0,
    resume: Annotated[Path | None, typer.Option(help="Continue the run whose checkpoint is in this folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print result.json instead of a table.")] = False,
) -> None:
    """Cluster rows that lie in several files, and prove how good the clusters are.

    Example: consentroid fit --node a=a.csv --node b=b.csv -k 3 --gap 1e-4 --out run
    """
    rows, features = read_nodes(node_files(node), columns)
    folder = output_folder(out if resume is None else resume)
    settings = Settings(
        n_clusters=k,
        method=method,
        solver=solver,
        symmetry=symmetry,  # type: ignore[arg-type]
        topology=topology,
        gap=gap,
        time_limit=math.inf if time_limit is None else time_limit,
        max_rounds=max_rounds,
        seed=seed,
    )
    problem = Problem.checked(rows, k, parse_domain(domain))  # type: ignore[arg-type]
    with live_progress(as_json) as on_round:
        result = fit_problem(
            problem,
            settings,
            features=features,
            most_rows=most_rows or None,
            on_round=on_round,
            checkpoint=folder / "checkpoint.npz",
            resume=resume is not None,
        )
    write_run(folder, result)
    if as_json:
        typer.echo(json.dumps(result_as_dict(result)))
    else:
        show(result, folder)
    if result.stop_reason == "interrupted":
        raise typer.Exit(130)


def parse_domain(text: str | None) -> Domain | None:
    """0:100,18:99 → one range a feature."""
    if text is None:
        return None
    try:
        sides = [tuple(float(side) for side in part.split(":")) for part in text.split(",")]
        lower, upper = zip(*sides, strict=True)
    except ValueError:
        raise InvalidInput(f"--domain '{text}' must give LOWER:UPPER for each feature, as in 0:100,18:99") from None
    return Domain(np.array(lower), np.array(upper))


def show(result: FitResult, folder: Path) -> None:
    """The result for people."""
    table = Table(title="nodes")
    table.add_column("node")
    for heading in ("rows", "cost", *(f"cluster {i}" for i in range(len(result.centroids)))):
        table.add_column(heading, justify="right")
    for name, rows, cost, counts in result.by_owner():
        table.add_row(name, str(rows), f"{cost:.6g}", *(f"{count:g}" for count in counts))
    console.print(table)
    console.print(f"proven lower bound  {result.lower_bound:.10g}")
    console.print(f"cost                {result.upper_bound:.10g}")
    console.print(f"gap                 {percent(result.gap)}  ({REASONS[result.stop_reason]})")
    console.print(
        f"effort              {result.rounds} rounds, {result.boxes} boxes, {result.bytes_up:,} bytes up, "
        f"{result.bytes_down:,} down, {result.seconds:.2f} s"
    )
    console.print(f"[bold]{verdict(result)}[/bold]")
    console.print(f"Written: {folder / 'result.json'}, certificate.json, trace.jsonl", highlight=False)
