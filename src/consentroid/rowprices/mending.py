"""Prices that ask for columns nobody knew, put right: lower those of the rows in such columns, and of no others.

A column found late lies by some δ below the least f known, and the bound Σ w λ + K min f falls by K δ. Lowering the
prices of its rows by δ in all costs δ alone. And as f only rises where prices fall, no other column can turn up by it.

    min_{y, e ≥ 0}  Σ_c size_c y_c + Σ_cells count · e_cell
    so that  reduced_c + Σ_c' overlap_cc' y_c' + e_cell ≥ least_cell      for each column c below the least of its cell

The rows of column c are lowered by y_c, and `least` by e where that is cheaper. To the sites it is a move of prices as
any other: λ̂ + τ (1 − Σ z) − Σ y = λ̂ + τ (1 − Σ (z + y/τ)).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from ..core.arrays import Array, part
from .columns import Columns

MOST = 1500  # columns at once: beyond these, prices are so far off that the next master is the better cure
LOWER = 1e-12  # by which a column is below the least, in units of it


class Prices(NamedTuple):
    """What the coordinator knows of prices at the sites."""

    total: float  # Σ w λ − Σ φ
    of_columns: Array  # Σ_{S_c} w λ
    least: Array  # f found in each cell

    def value(self, counts: Array) -> float:
        return self.total + float(counts @ self.least)


def too_cheap(reduced: Array, cells: NDArray[np.int64], least: Array) -> NDArray[np.int64]:
    """Places of columns below the least of their cell."""
    return np.flatnonzero(reduced < least[cells] - LOWER * np.abs(least[cells]))


def lowered(
    columns: Columns, which: NDArray[np.int64], cells: NDArray[np.int64], reduced: Array, least: Array, counts: Array
) -> Array | None:
    """y of all columns, from those `which` that are too cheap and their cells; None if there is no such y."""
    n, y = len(which), np.zeros(len(columns))
    if not 0 < n <= MOST:
        return None
    overlaps, sizes = part(columns.overlaps, which), columns.sizes[which]
    unit, scale = float(sizes.max()), float((least[cells] - reduced).max())
    if not (0.0 < unit < np.inf and 0.0 < scale < np.inf):
        return None
    rises = np.hstack([overlaps / unit, cells[:, None] == np.arange(len(counts))])
    costs = np.concatenate([sizes / unit, counts])
    solved = linprog(costs, A_ub=-rises, b_ub=-(least[cells] - reduced) / scale, bounds=(0.0, None), method="highs")
    if solved.x is None or not np.isfinite(solved.x).all():
        return None
    np.add.at(y, which, solved.x[:n] * (scale / unit))
    return y
