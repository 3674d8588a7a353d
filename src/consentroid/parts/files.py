"""Rows in many files: which files a pattern names, how they are dealt to parts, and how one part reads its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..core.arrays import Array
from ..core.errors import InvalidInput
from ..core.problem import NodeData
from ..data.tables import files_of, read_table


@dataclass(frozen=True)
class Portion:
    """What a part reads; it is sent to the part, the rows are not."""

    site: str
    files: tuple[str, ...]
    columns: tuple[str, ...] | None = None  # None: all
    weights: str | None = None  # column that holds the weights

    def read(self) -> tuple[NodeData, tuple[str, ...]]:
        """The rows, file by file, and the names of their features."""
        tables: list[Array] = []
        names: tuple[str, ...] = ()
        asked = None if self.columns is None else [*self.columns, *([self.weights] if self.weights else [])]
        for file in self.files:
            table = read_table(file, asked)
            if names and table.names != names:
                raise InvalidInput(f"'{file}' has columns {list(table.names)}, '{self.files[0]}' has {list(names)}")
            names = table.names
            tables.append(table.rows)
        rows = tables[0] if len(tables) == 1 else np.concatenate(tables)
        if self.weights is None:
            return NodeData.checked(self.site, rows), names
        if self.weights not in names:
            raise InvalidInput(f"'{self.files[0]}' has no column '{self.weights}' for the weights")
        features = tuple(name for name in names if name != self.weights)
        index = [names.index(name) for name in features]
        return NodeData.checked(self.site, rows[:, index], rows[:, names.index(self.weights)]), features


def deal(site: str, source: str, n_parts: int, columns: Sequence[str] | None, weights: str | None) -> list[Portion]:
    """The files of a source in their order, in at most `n_parts` runs of about the same size."""
    files = files_of(source)
    sizes = np.array([Path(file).stat().st_size for file in files])
    middles = np.cumsum(sizes) - 0.5 * sizes
    place = np.minimum(middles * n_parts / max(int(sizes.sum()), 1), n_parts - 1).astype(int)
    chosen = None if columns is None else tuple(columns)
    runs = [tuple(files[i] for i in np.flatnonzero(place == part)) for part in range(n_parts)]
    return [Portion(site, run, chosen, weights) for run in runs if run]
