"""`consentroid compare`: what other federated methods reach on the same rows, measured by our bound."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ..report.wording import percent
from .console import console
from .fit import node_files, read_nodes


def compare(
    node: Annotated[list[str], typer.Option(help="NAME=FILE: a node and its rows. Repeat.")],
    k: Annotated[int, typer.Option("-k", "--clusters", help="Number of clusters.")],
    columns: Annotated[str | None, typer.Option(help="Comma-separated columns to use, in this order.")] = None,
    gap: Annotated[float, typer.Option(help="Relative gap that consentroid has to prove.")] = 1e-4,
    time_limit: Annotated[float, typer.Option(help="Seconds for consentroid.")] = 60.0,
    seed: Annotated[int, typer.Option(help="Seed of every method's starts.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print numbers for machines.")] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the numbers to this file.")] = None,
) -> None:
    """Set consentroid beside federated Lloyd, plain averaging, k-FED and pooled scikit-learn.

    Example: consentroid compare --node a=a.csv --node b=b.csv -k 3
    """
    from ..evaluation.baselines import compare as compare_methods
    from ..report.files import check_writable

    check_writable(out)
    rows, _ = read_nodes(node_files(node), columns)
    comparison = compare_methods(rows, k, gap=gap, time_limit=time_limit, seed=seed)  # type: ignore[arg-type]
    text = json.dumps(comparison.as_dict(), indent=1)
    if out is not None:
        out.write_text(text + "\n")
    if as_json:
        typer.echo(text)
        return
    table = Table(title=f"proven lower bound {comparison.lower_bound:.8g}", caption="gap: to that bound")
    table.add_column("method")
    for heading in ("cost", "gap", "rounds", "bytes up", "bytes down", "seconds"):
        table.add_column(heading, justify="right")
    table.add_column("rows leave")
    for line in comparison.lines:
        table.add_row(
            line.method,
            f"{line.cost:.8g}",
            percent(line.gap),
            str(line.rounds),
            f"{line.bytes_up:,}",
            f"{line.bytes_down:,}",
            f"{line.seconds:.2f}",
            "yes" if line.rows_leave else "no",
        )
    console.print(table)
