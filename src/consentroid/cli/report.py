"""`consentroid report`: a run as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .inputs import DecimalOption, JsonOption, SeparatorOption, read_sites


def report(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN", help="Folder that `consentroid fit` wrote.")],
    out: Annotated[Path | None, typer.Option(help="File to write; default: report.html in the folder.")] = None,
    node: Annotated[
        list[str] | None, typer.Option(help="NAME=FILE: draw these rows too. Only for a report that stays at the site.")
    ] = None,
    separator: SeparatorOption = None,
    decimal: DecimalOption = None,
    least: Annotated[int, typer.Option(help="Hide counts of rows below this.")] = 5,
    as_json: JsonOption = False,
) -> None:
    """Write a self-contained page: verdict, clusters, certified regions, sites, what was disclosed.

    Example: consentroid report run
    """
    from ..report.files import read_result
    from ..report.html import write_report
    from ..report.wording import safe, verdict_of
    from .console import console, notify, print_json

    document = read_result(run_dir)
    rows = None
    if node:
        filled = (document.get("scaling") or {}).get("fill")
        sites = read_sites(node, document["features"], separator=separator, decimal=decimal, missing=filled is not None)
        notify(sites.notices)
        rows = {
            name: table.rows if filled is None else _filled(table.rows, filled) for name, table in sites.tables.items()
        }
    path = write_report(run_dir, out, rows=rows, least=least)
    if as_json:
        print_json({"written": str(path), "verdict": verdict_of(document)})
    else:
        console.print(f"Written: {safe(path)}", highlight=False, soft_wrap=True)


def _filled(rows: object, fill: list[float]) -> object:
    import numpy as np

    from ..data.preprocessing import impute

    return impute(rows, np.array(fill))  # type: ignore[arg-type]
