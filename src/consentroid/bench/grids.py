"""A table that can be shown on a terminal and written as Markdown: the pages and the commands show the same."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rich.table import Table

from ..report.wording import percent


@dataclass
class Grid:
    title: str
    headings: Sequence[str]
    caption: str = ""
    left: int = 1  # so many columns hold words, the others numbers
    rows: list[Sequence[str]] = field(default_factory=list)

    def add(self, cells: Iterable[str]) -> None:
        row = list(cells)
        assert len(row) == len(self.headings), (row, self.headings)
        self.rows.append(row)

    def for_terminal(self) -> Table:
        table = Table(title=self.title, caption=self.caption or None)
        for i, heading in enumerate(self.headings):
            table.add_column(heading, justify="left" if i < self.left else "right", no_wrap=i == 0)
        for row in self.rows:
            table.add_row(*row)
        return table

    def for_page(self) -> str:
        lines = [self.headings, ["---" if i < self.left else "---:" for i in range(len(self.headings))], *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def seconds(value: float | None) -> str:
    """Three digits; hours where they are what people would say."""
    if value is None or not math.isfinite(value):
        return "–"
    if value >= 3600:
        return f"{value / 3600:.3g} h"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def gap(value: float | None) -> str:
    return "–" if value is None or not math.isfinite(value) else percent(value)


def megabytes(value: float) -> str:
    return f"{value / 1e6:.3g}"


def times(value: float) -> str:
    """How many times faster."""
    if not math.isfinite(value):
        return "–"
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
