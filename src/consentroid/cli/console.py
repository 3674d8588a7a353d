"""What the commands share: two consoles, notices, strict JSON, the progress line."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console

from ..report.files import to_json
from ..report.progress import live_progress
from ..report.wording import safe

__all__ = ["compile_first", "console", "live_progress", "messages", "notify", "print_json"]

console = Console(width=None if sys.stdout.isatty() else 120)  # tables in files are not cut to 80 columns
messages = Console(stderr=True)  # all that is not the result: stdout can be piped


PATIENCE = 2.0  # seconds before somebody who waits is told why


def compile_first(paper: bool = False) -> None:
    """Have the kernels ready before the clock of a run starts; told if it takes long, as it does once on a machine."""
    from threading import Timer

    from ..warmup import prepare_nearest, prepare_paper, prepare_solver

    takes = "some minutes" if paper else "some twenty seconds"
    said = f"Compiling the kernels; this happens once on a machine and takes {takes}."
    timer = Timer(PATIENCE, lambda: messages.print(said))
    timer.start()
    try:
        prepare_solver()
        if paper:
            prepare_paper()
            prepare_nearest()
    finally:
        timer.cancel()


def notify(notices: Iterable[str]) -> None:
    """What was left out or guessed, on stderr."""
    for notice in notices:
        messages.print(f"[yellow]note:[/] {safe(notice)}", highlight=False, soft_wrap=True)


def print_json(document: Any) -> None:
    """Strict JSON on stdout, and nothing else there."""
    typer.echo(to_json(document))
