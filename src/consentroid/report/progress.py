"""What people see while they wait: one line that follows a run, on a terminal and in a notebook."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .wording import at_least, percent

OnStep = Callable[[Any], None]


def progress_line(step: Any) -> str:
    """A `Step`, or a round of the paper, which has the same first fields."""
    upper = f"{step.upper:.6g}" if math.isfinite(step.upper) else "–"
    return (
        f"round {step.round:>4}  {step.phase:<10}  boxes {step.boxes_done:>6} done, {step.boxes_open:>6} open  "
        f"proven {at_least(step.lower, 6)}  cost {upper}  gap {percent(step.gap)}  {step.seconds:.1f} s"
    )


@contextmanager
def live_progress(quiet: bool = False) -> Iterator[OnStep]:
    """A line that follows the run where somebody looks, and silence elsewhere."""
    if quiet:
        yield lambda step: None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield lambda step: None
        return
    with Live(Text("starting"), console=console, refresh_per_second=8, transient=True) as live:
        yield lambda step: live.update(Text(progress_line(step)))
