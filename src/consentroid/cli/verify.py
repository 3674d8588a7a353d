"""`consentroid verify`: does a certificate prove what it claims?"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ..core.errors import CertificateInvalid
from ..legacy.verify import Report
from ..legacy.verify import verify as verify_certificate
from ..legacy.virtual_nodes import split_again
from ..report.wording import percent
from .console import console
from .fit import node_files, read_nodes

NOT_FINISHED = 4  # exit code


def verify(
    certificate: Annotated[Path, typer.Argument(help="A certificate.json.")],
    node: Annotated[
        list[str] | None, typer.Option(help="NAME=FILE: a node's rows, to re-check its numbers. Repeat.")
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Comma-separated columns to use, as for the run.")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Stop after so many seconds.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes for large certificates; all cores by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Re-check a certificate with code that shares nothing with the solvers.

    Without rows: the leaves cover the domain, prices cancel, sums are right. With --node also that node's numbers.
    Exit codes: 0 no claim is wrong, 1 refuted, 4 time was too short.

    Example: consentroid verify run/certificate.json --node a=a.csv --node b=b.csv
    """
    files = node_files(node or [])
    rows: dict[str, Any] = _parts(dict(read_nodes(files, columns)[0]), certificate) if files else {}
    try:
        report = verify_certificate(
            certificate,
            rows,
            time_limit=math.inf if time_limit is None else time_limit,
            workers=workers or os.cpu_count() or 1,
        )
    except CertificateInvalid as error:
        if as_json:
            typer.echo(json.dumps({"outcome": "refuted", "reason": str(error)}))
            raise typer.Exit(1) from None
        raise
    if as_json:
        typer.echo(json.dumps(report_as_dict(report)))
    else:
        show(report)
    if not report.finished:
        raise typer.Exit(NOT_FINISHED)


def _parts(rows: dict[str, Any], certificate: Path) -> dict[str, Any]:
    """A large node took part as several virtual ones: split its rows as it did."""
    try:
        told = json.loads(certificate.read_text())
        names, n_clusters = [str(name) for name in told["nodes"]], int(told["n_clusters"])
    except (OSError, ValueError, KeyError, TypeError):
        return rows  # the verifier says what is wrong with the file
    parts = [split_again(name, table, names, n_clusters) for name, table in rows.items()]
    return {name: table for part in parts for name, table in part.items()}


def outcome(report: Report) -> str:
    if not report.finished:
        return "not finished"
    return "verified" if report.verified else "verified in part"


def report_as_dict(report: Report) -> dict[str, Any]:
    return {
        "outcome": outcome(report),
        "fingerprint": report.fingerprint,
        "lower_bound": report.lower_bound,
        "upper_bound": report.upper_bound,
        "gap": report.gap,
        "tolerance": report.tolerance,
        "leaves": report.n_leaves,
        "excluded": report.n_excluded,
        "nodes": [
            {
                "name": node.name,
                "rows": node.n_rows,
                "leaf_checks": node.n_claims,
                "leaf_checks_done": node.n_confirmed,
                "complete": node.complete,
            }
            for node in report.nodes
        ],
        "seconds": report.seconds,
    }


def sentence(report: Report) -> str:
    """The outcome in words."""
    here = [node for node in report.nodes if node.n_rows is not None]
    absent = [node.name for node in report.nodes if node.n_rows is None]
    if not report.finished:
        done, due = sum(node.n_confirmed for node in here), sum(node.n_claims for node in here)
        return f"Not re-checked in time: {done} of {due} leaf checks done, none failed; allow more with --time-limit."
    if report.verified:
        return (
            f"Verified: no clustering of these rows costs less than {report.lower_bound:.10g} "
            f"(within {report.tolerance:.1g}), {percent(report.gap)} below the centroids given."
        )
    held = "The certificate is consistent: leaves cover the domain, prices cancel, sums are right."
    numbers = f" The numbers of {', '.join(node.name for node in here)} hold on the rows given." if here else ""
    return f"{held}{numbers} Not re-checked, for want of rows: the numbers of {', '.join(absent)}."


def show(report: Report) -> None:
    table = Table(title="re-checked")
    table.add_column("node")
    for heading in ("rows", "cost", "leaf bounds"):
        table.add_column(heading, justify="right")
    for node in report.nodes:
        if node.n_rows is None:
            table.add_row(node.name, "not given", "–", "–")
        else:
            table.add_row(node.name, str(node.n_rows), "holds", f"{node.n_confirmed} of {node.n_claims} hold")
    console.print(table)
    console.print(f"leaves       {report.n_leaves}, of which {report.n_excluded} excluded by the order rule")
    console.print(f"lower bound  {report.lower_bound:.10g}")
    console.print(f"cost         {report.upper_bound:.10g}")
    console.print(f"gap          {percent(report.gap)}")
    console.print(f"fingerprint  {report.fingerprint}", highlight=False)
    console.print(f"[bold]{sentence(report)}[/bold]")
