"""Block principal pivoting: guess which columns are used, solve for these alone, exchange what contradicts the guess.

    min_z  zᵀ q + ½ zᵀ Q z,   z ≥ 0,  Σ_{c in cell} z_c ≤ count

A column that is used has reduced cost 0, one that is not has none below 0; a cell that is full has a worth v ≤ 0 of
another column, one that is not has v = 0. From the columns used in the master before, four to six guesses are enough as
a rule, and one or two factorisations for all of them (`factor.py`). If exchanging all leads nowhere, the last
contradiction alone is exchanged (Murty's rule; Júdice, Pires 1994). Where columns depend on each other, guesses may go
round in circles: then the minimum is approached in two steps that are each kept short by ρ/2 Σ Q_cc (z_c − ẑ_c)²
(proximal points).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError
from threadpoolctl import ThreadpoolController

from ..core.arrays import Array
from .factor import Factor

FIRST, MORE = 10, 40  # guesses, before and after steps are kept short
PATIENCE = 12  # exchanges of all contradictions that leave no fewer of them
STEADY, STEPS = 1e-4, 2  # ρ, and steps to the minimum where that is needed: to 1e-7 of it
WEIGHT, COST = 1e-7, 1e-9  # tolerances: of weights, and of reduced costs in units of the greatest linear term
BLAS = ThreadpoolController().select(user_api="blas")  # its threads wait for each other by spinning: one is faster
LARGE = 800  # columns used: some always depend on others then, and steps are kept short at once
Marks = NDArray[np.bool_]


def pivot(
    quadratic: Array, linear: Array, cell_of: NDArray[np.int64], counts: Array, used: Marks, ridge: Array | float = 0.0
) -> Array | None:
    """z, or None if no guess held; `used` is the first one, `ridge` is added to the diagonal of Q."""
    counts = counts.astype(float)
    with BLAS.limit(limits=1), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        large = np.count_nonzero(used) > LARGE
        z = None if large else _pivot(Factor(quadratic, ridge), linear, cell_of, counts, used.copy(), FIRST)
        diagonal = np.diag(quadratic) + ridge
        if z is not None or not np.isfinite(diagonal).all():
            return z
        short, nearby = STEADY * diagonal, np.zeros(len(linear))
        steadied = Factor(quadratic, ridge + short)
        for _ in range(STEPS):
            z = _pivot(steadied, linear - short * nearby, cell_of, counts, used.copy(), MORE)
            if z is None:
                return None
            nearby, used = z, z > 0.0
        return z


def _pivot(
    factor: Factor, linear: Array, cell_of: NDArray[np.int64], counts: Array, used: Marks, most: int
) -> Array | None:
    cost = COST * float(np.abs(linear).max(initial=0.0))
    full, fewest, patience = np.ones(len(counts), dtype=bool), len(linear) + len(counts) + 1, PATIENCE
    for _ in range(most):
        full &= np.bincount(cell_of, used, len(counts)) > 0  # a cell without a column has room
        z, worth = _solve(factor, linear, cell_of, counts, used, full)
        if z is None or worth is None:
            return None
        reduced = linear + factor.times(z) - worth[cell_of]
        if not np.isfinite(reduced).all():
            return None
        if factor.bordered and np.abs(reduced[used]).max(initial=0.0) > cost:
            factor.forget()  # too much was lost to rounding: factorise again
            continue
        wrong = np.where(used, z < -WEIGHT, reduced < -cost)
        spare = counts - np.bincount(cell_of, z, len(counts))
        wrong_cells = np.where(full, worth > cost, spare < -WEIGHT)
        n_wrong = int(wrong.sum() + wrong_cells.sum())
        if n_wrong == 0:
            z = np.maximum(z, 0.0)
            together = np.maximum(np.bincount(cell_of, z, len(counts)), 1e-300)
            return np.asarray(z * np.minimum(counts / together, 1.0)[cell_of])
        if n_wrong < fewest:
            fewest, patience = n_wrong, PATIENCE
        elif patience > 0:
            patience -= 1
        elif wrong.any():
            last = int(np.flatnonzero(wrong)[-1])
            wrong, wrong_cells = np.arange(len(wrong)) == last, np.zeros_like(full)
        used, full = used ^ wrong, full ^ wrong_cells
    return None


def _solve(
    factor: Factor, linear: Array, cell_of: NDArray[np.int64], counts: Array, used: Marks, full: Marks
) -> tuple[Array | None, Array | None]:
    """z of the columns used, and the worths of full cells, as if nothing else could be."""
    cells, worth = np.flatnonzero(full), np.zeros(len(counts))
    if not used.any():
        return np.zeros(len(linear)), worth
    serves = (cell_of[:, None] == cells).astype(float)
    try:
        sides = factor.solve(used, np.column_stack([serves, -linear]))
        of_cells, of_costs = np.split(sides, [len(cells)], 1)
        if len(cells):
            worth[cells] = np.linalg.solve(serves.T @ of_cells, counts[cells] - serves.T @ of_costs[:, 0])
    except (LinAlgError, np.linalg.LinAlgError, ValueError):
        return None, None
    z = of_costs[:, 0] + of_cells @ worth[cells]
    return (z, worth) if np.isfinite(z).all() else (None, None)
