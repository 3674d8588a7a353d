"""A result for people at a terminal, from what `result.json` holds: the same for local and federated runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .wording import as_number, at_least, effort, percent, safe, stop_reason, verdict_of

if TYPE_CHECKING:
    from rich.console import Console

FEW = "·"


def show_result(document: Mapping[str, Any], folder: Path, console: Console) -> None:
    from rich.table import Table

    table = Table(title="sites")
    table.add_column("site")
    for heading in ("rows", "cost", *(f"cluster {i}" for i in range(int(document["n_clusters"])))):
        table.add_column(heading, justify="right")
    for site in document["sites"]:
        cost = "–" if site["cost"] is None else f"{site['cost']:.6g}"
        counts = ["–"] * int(document["n_clusters"])
        if site["counts"] is not None:
            counts = [FEW if count == 0 and site.get("withheld") else f"{count:g}" for count in site["counts"]]
        table.add_row(safe(site["name"]), f"{site['n_rows']:,}", cost, *counts)
    if len(document["sites"]) > 1:
        table.add_section()
        least = "≥ " if document.get("withheld") else ""  # some site's part of any cluster may be left out
        totals = [f"{least}{count:g}" if count or not least else FEW for count in document["counts"]]
        table.add_row("all", f"{document['n_rows']:,}", f"{as_number(document['upper_bound'], math.inf):.6g}", *totals)
    console.print(table)
    if document.get("withheld"):
        console.print(
            f"Suppressed: rows of weight {document['withheld']:g} are in groups too small to be reported by their "
            f"sites' policy; {FEW} stands for none or few.",
            highlight=False,
            soft_wrap=True,
        )
    lower, upper = as_number(document["lower_bound"], -math.inf), as_number(document["upper_bound"], math.inf)
    gap = as_number(document["gap"], math.inf)
    for name, value in (
        ("proven lower bound", f"{at_least(lower)}  (from {document['bound_from']})"),
        ("cost", f"{upper:.10g}"),
        ("gap", f"{percent(gap)}  ({stop_reason(document['stop_reason'])})"),
        ("effort", effort(document)),
    ):
        console.print(f"{name:<20}{safe(value)}", highlight=False, soft_wrap=True)
    console.print(f"[bold]{safe(verdict_of(document))}[/bold]", highlight=False, soft_wrap=True)
    written = ", ".join(name for name in ("certificate.json", "trace.jsonl") if (folder / name).exists())
    console.print(f"Written: {safe(folder / 'result.json')}, {written}", highlight=False, soft_wrap=True)
