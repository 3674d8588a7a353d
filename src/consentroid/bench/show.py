"""Progress of a benchmark, and what happens to an interrupt: what was reached is kept and shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ..core.result import Step
from ..report.wording import percent
from ..rowprices.session import OnStep
from ..warmup import prepare_checker, prepare_solver


class Watch:
    """A bar over all runs with what the present one does; an interrupt inside ends the block quietly."""

    def __init__(self, total: int, console: Console, *, checker: bool = False) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
        self._total, self._checker, self._console = total, checker, console
        self._task: TaskID | None = None
        self.interrupted = False

    def __enter__(self) -> Self:
        self._bar.__enter__()
        self._task = self._bar.add_task("compiling, or loading what was compiled", total=self._total)
        prepare_solver()  # before any clock starts
        if self._checker:
            prepare_checker()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._bar.__exit__(kind, error, trace)
        self.interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        if self.interrupted:
            self._console.print("Interrupted: what follows was measured until then.")
        return self.interrupted

    @contextmanager
    def task(self, name: str) -> Iterator[OnStep]:
        """One run; its steps show in the bar."""
        assert self._task is not None
        task = self._task

        def follow(step: Step) -> None:
            self._bar.update(task, description=f"{name:<24} {step.phase:<11} gap {percent(step.gap):>9}")

        self._bar.update(task, description=f"{name:<24}")
        yield follow
        self._bar.advance(task)
