"""What the commands share: the console, the progress line, the verdict in words."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ..api import FitResult
from ..coordinator import OnRound
from ..trace import RoundRecord

console = Console(width=None if sys.stdout.isatty() else 120)  # tables in files are not cut to 80 columns
messages = Console(stderr=True)

REASONS = {
    "gap": "the gap asked for is proven",
    "residual": "the nodes agree (consensus residual below tolerance)",
    "max_rounds": "the limit of rounds was reached",
    "time_limit": "the time limit was reached",
    "dual_optimal": "no prices give a better bound",
    "dual_stalled": "further prices promise little",
    "interrupted": "interrupted by the user",
}


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


def percent(gap: float) -> str:
    """A gap for people: enough digits to tell it from zero."""
    if gap <= 0:
        return "0 %"
    return f"{100 * gap:.2f} %" if gap >= 1e-3 else f"{100 * gap:.1g} %"


def verdict(result: FitResult) -> str:
    """The gap in words."""
    if result.settings.symmetry == "nearest":
        return "The rule 'nearest' can exclude the optimum: nothing is proven beyond the first round."
    if result.gap <= 1e-9:
        return "Proven optimal: no clustering of these rows costs less."
    text = f"Proven: no clustering of these rows costs less than {result.lower_bound:.8g}; "
    text += f"this one is within {percent(result.gap)} of that"
    return text + (", as asked." if result.certified else f" ({REASONS[result.stop_reason]}).")
