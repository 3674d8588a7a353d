"""What people see of a federation: a live table of its nodes, and the result."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from ..report.wording import as_number, percent
from .administrator import Progress

console = Console()


class follow:
    """A live table of the nodes; silent for machines, and line by line where there is no terminal."""

    def __init__(self, silent: bool = False, target: Console | None = None) -> None:
        self._silent = silent
        self._console = target or console
        self._live: Live | None = None
        self._last = ""

    def __enter__(self) -> follow:
        if not self._silent and self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, progress: Progress) -> None:
        line = headline(progress)
        if self._live is not None:
            self._live.update(status_table(progress))
        if not self._silent and progress.phase in ("interrupted", "waiting for nodes") and line != self._last:
            self._console.print(line, highlight=False)
        self._last = line


def headline(progress: Progress) -> str:
    record = (progress.status or {}).get("record")
    text = f"job {progress.job}: {progress.phase}"
    if progress.note:
        text = f"job {progress.job}: {progress.note}"
    elif record:
        gap = as_number(record["gap"], math.inf)
        text += f", {record['phase']}, round {record['round']}, " + (
            f"proven gap {percent(gap)}" if math.isfinite(gap) else "nothing proven yet"
        )
    return text


def status_table(progress: Progress) -> Table:
    table = Table(title=headline(progress), title_justify="left")
    for heading in ("node", "state", "round", "last reply"):
        table.add_column(heading)
    status: dict[str, Any] = progress.status or {}
    for name, node in status.get("nodes", {}).items():
        ago = f"{max(status['time'] - node['heard'], 0.0):.0f} s ago" if node["heard"] else "none yet"
        table.add_row(name, node["state"], str(node["round"]), ago)
    return table
