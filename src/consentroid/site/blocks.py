"""Rows in blocks of neighbours, so that work near a point or box touches only the rows near it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array
from .kernels.blocks import halve

ROWS_PER_BLOCK = 32


@dataclass(frozen=True)
class Blocks:
    """Parts of rows that stand in the order of `neighbours`."""

    starts: NDArray[np.int64]  # (blocks + 1,)
    low: Array  # (blocks, D) least and greatest coordinates
    high: Array

    @classmethod
    def of(cls, y: Array, starts: NDArray[np.int64] | None = None) -> Blocks:
        """Of rows in that order; without the starts found there, so many at a time."""
        if starts is None:
            starts = np.append(np.arange(0, len(y), ROWS_PER_BLOCK), len(y))
        low = np.minimum.reduceat(y, starts[:-1], axis=0)
        high = np.maximum.reduceat(y, starts[:-1], axis=0)
        return cls(starts, low, high)

    def greatest(self, values: Array) -> Array:
        """The greatest value in each block."""
        return np.asarray(np.maximum.reduceat(values, self.starts[:-1]))


def neighbours(y: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row numbers, neighbours together, and where their blocks start."""
    order, starts = np.arange(len(y)), np.empty(len(y) + 1, np.int64)
    n_blocks = halve(np.ascontiguousarray(y), np.int64(ROWS_PER_BLOCK), order, starts)
    return order, starts[: n_blocks + 1].copy()
