"""The proximal master: which mixture of columns would serve every row exactly once?

    min_z  Σ_c z_c (cost_c − Σ_{S_c} w λ̂) + τ/2 Σ_j w_j (1 − Σ_{c∋j} z_c)²,   z ≥ 0,  Σ_{c in cell} z_c = count

solved accurately; the next prices are λ̂ + τ (1 − Σ z). Each cell also has an empty column (a centroid that serves
nobody), which costs nothing. A column on a face between cells may count for each.

Pivoting from the columns that were used last mostly ends in a few steps (`pivoting.py`). Where it does not, PIQP's
interior-point method takes over: with the columns used last and others that join where their reduced cost asks for it,
until none does (sifting), if few are used; else with all at once, sparsely where most pairs of columns share no row.
"""

from __future__ import annotations

import numpy as np
import piqp
from numpy.typing import NDArray
from scipy import sparse

from ..core.arrays import Array, part
from .pivoting import pivot

FEW = 0.4  # share of columns that were used last, below which the master begins with them
SPARSE = 0.2  # share of pairs of columns that overlap, below which the factorisation is sparse
ACCURACY = 1e-9
VIOLATED = 1e-7  # reduced cost, in units of the greatest linear term, at which a column joins
RIDGE = 1e-8  # of a column's size, on the diagonal: columns with the same rows do not make it singular
JOINING = 50  # at least, at a time
Indices = NDArray[np.int64]


def solve_master(
    overlaps: Array,
    costs: Array,
    sizes: Array,
    prices: Array,
    places: tuple[Indices, Indices],
    counts: Array,
    tau: float,
    likely: NDArray[np.bool_] | None = None,
) -> Array:
    """z of every place, a pair of column and cell (those of the empty columns are left out).

    `likely` marks the columns with which to begin."""
    which, cell_of = places
    all_once = np.array_equal(which, np.arange(len(overlaps)))
    quadratic, ridge = overlaps if all_once else part(overlaps, which), RIDGE * sizes[which]
    linear = (costs - prices)[which] / tau - sizes[which]
    pivoted = pivot(
        quadratic, linear, cell_of, counts, np.ones(len(which), bool) if likely is None else likely[which], ridge
    )
    if pivoted is not None:
        return pivoted
    scale = max(float(np.abs(linear).max(initial=0.0)), 1e-300)
    linear, quadratic = linear / scale, quadratic / scale
    quadratic[np.diag_indices(len(which))] += ridge / scale
    if likely is not None and np.count_nonzero(likely) < FEW * len(likely):
        z = _sift(quadratic, linear, cell_of, counts, np.flatnonzero(likely[which]))
    else:
        sparsely = bool(np.count_nonzero(overlaps) < SPARSE * overlaps.size)
        z, _ = _solve(quadratic, linear, cell_of, counts, sparsely=sparsely)
    if not np.isfinite(z).all():
        return np.zeros(len(which))
    return z


def _sift(quadratic: Array, linear: Array, cell_of: Indices, counts: Array, works: Indices) -> Array:
    """The solution from a few columns and those that they leave unsatisfied."""
    z = np.zeros(len(linear))
    while True:
        some, worth = _solve(quadratic[np.ix_(works, works)], linear[works], cell_of[works], counts, sparsely=False)
        reduced = linear + quadratic[:, works] @ some - worth[cell_of]
        reduced[works] = 0.0
        joining = np.flatnonzero(reduced < -VIOLATED)
        if len(joining) == 0 or not np.isfinite(some).all():
            z[works] = some
            return z
        joining = joining[np.argsort(reduced[joining], kind="stable")[: max(JOINING, len(works) // 2)]]
        works = np.union1d(works, joining)  # nobody leaves, so it ends


def _solve(quadratic: Array, linear: Array, cell_of: Indices, counts: Array, *, sparsely: bool) -> tuple[Array, Array]:
    """z, and what another column is worth in each cell."""
    n, n_cells = len(linear), len(counts)
    whole = np.zeros((n + n_cells, n + n_cells))
    whole[:n, :n] = quadratic
    cells = np.concatenate([cell_of, np.arange(n_cells)])
    rows = np.zeros((n_cells, n + n_cells))
    rows[cells, np.arange(n + n_cells)] = 1.0
    solver = piqp.SparseSolver() if sparsely else piqp.DenseSolver()
    solver.settings.eps_abs = solver.settings.eps_rel = ACCURACY
    made = sparse.csc_matrix if sparsely else np.asarray
    solver.setup(
        made(whole), np.concatenate([linear, np.zeros(n_cells)]), made(rows), counts.astype(float),
        None, None, None, np.zeros(n + n_cells), None,
    )  # fmt: skip
    solver.solve()
    z = np.maximum(np.array(solver.result.x), 0.0)
    together = np.bincount(cells, z, n_cells)
    z *= (counts / np.maximum(together, 1e-300))[cells]
    return z[:n], -np.array(solver.result.y)
