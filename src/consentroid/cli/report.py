"""`consentroid report`: a run as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import console


def report(
    run_dir: Annotated[Path, typer.Argument(help="Folder that `consentroid fit` wrote.")],
    out: Annotated[Path | None, typer.Option(help="File to write; default: report.html in the folder.")] = None,
    node: Annotated[
        list[str] | None, typer.Option(help="NAME=FILE: draw these rows too. Only for a report that stays at the node.")
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Columns to use with --node.")] = None,
) -> None:
    """Write a self-contained page: verdict, gap, nodes and clusters, what was disclosed by whom.

    Example: consentroid report run
    """
    from ..report.html import write_report
    from .fit import node_files, read_nodes

    rows = read_nodes(node_files(node), columns)[0] if node else None
    console.print(f"Written: {write_report(run_dir, out, rows=rows)}", highlight=False)
