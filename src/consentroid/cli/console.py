"""What the commands share: the console and the progress line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ..paper.loop import OnRound
from ..paper.trace import RoundRecord
from ..report.wording import percent

console = Console(width=None if sys.stdout.isatty() else 120)  # tables in files are not cut to 80 columns
messages = Console(stderr=True)


def progress_line(record: RoundRecord) -> str:
    upper = f"{record.upper:.6g}" if record.upper < float("inf") else "–"
    return (
        f"round {record.round:>3}  {record.phase:<9}  boxes open {record.boxes_open:>5}  "
        f"lower {record.lower:.6g}  upper {upper}  gap {percent(record.gap)}"
    )


@contextmanager
def live_progress(quiet: bool = False) -> Iterator[OnRound]:
    """A line that follows the run on a terminal, and silence elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield lambda record: None
        return
    with Live(Text("starting"), console=messages, refresh_per_second=8, transient=True) as live:
        yield lambda record: live.update(Text(progress_line(record)))
