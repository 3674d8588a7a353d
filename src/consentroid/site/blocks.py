"""Rows in blocks of neighbours, so that work near a point or box touches only the rows near it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array

ROWS_PER_BLOCK = 32


@dataclass(frozen=True)
class Blocks:
    order: NDArray[np.int64]  # (n,) row numbers, block by block
    starts: NDArray[np.int64]  # (blocks + 1,)
    low: Array  # (blocks, D) least and greatest coordinates
    high: Array

    @classmethod
    def of(cls, y: Array) -> Blocks:
        """Halve along the widest coordinate until the parts are small."""
        pending, parts = [np.arange(len(y))], []
        while pending:
            part = pending.pop()
            if len(part) <= ROWS_PER_BLOCK:
                parts.append(part)
                continue
            feature = int(np.argmax(np.ptp(y[part], axis=0)))
            middle = len(part) // 2
            part = part[np.argpartition(y[part, feature], middle)]
            pending += [part[middle:], part[:middle]]
        starts = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
        order = np.concatenate(parts)
        sorted_rows = y[order]
        low = np.minimum.reduceat(sorted_rows, starts[:-1], axis=0)
        high = np.maximum.reduceat(sorted_rows, starts[:-1], axis=0)
        return cls(order, starts, low, high)

    def greatest(self, values: Array) -> Array:
        """The greatest value in each block."""
        return np.asarray(np.maximum.reduceat(values, self.starts[:-1]))
