"""The proximal master: which mixture of columns would serve every row exactly once?

    min_z  Σ_c z_c (cost_c − Σ_{S_c} w λ̂) + τ/2 Σ_j w_j (1 − Σ_{c∋j} z_c)²,   z ≥ 0,  Σ_{c in cell} z_c = count

solved accurately by Clarabel's interior-point method; the next prices are λ̂ + τ (1 − Σ z). Each cell also has an empty
column (a centroid that serves nobody), which costs nothing. A column on a face between cells may count for each.
"""

from __future__ import annotations

import clarabel
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..core.arrays import Array


def solve_master(
    overlaps: Array,
    costs: Array,
    sizes: Array,
    prices: Array,
    places: tuple[NDArray[np.int64], NDArray[np.int64]],
    counts: Array,
    tau: float,
) -> Array:
    """z of every place, a pair of column and cell (those of the empty columns are left out)."""
    which, cell_of = places
    n, n_cells = len(which), len(counts)
    linear = np.concatenate([(costs - prices - tau * sizes)[which], np.zeros(n_cells)])
    scale = max(float(np.abs(linear).max()), 1e-300)
    quadratic = np.zeros((n + n_cells, n + n_cells))
    quadratic[:n, :n] = (tau * overlaps[np.ix_(which, which)] + 1e-10 * tau * np.diag(sizes[which])) / scale
    cells = np.concatenate([cell_of, np.arange(n_cells)])
    rows = sparse.csc_matrix((np.ones(n + n_cells), (cells, np.arange(n + n_cells))), shape=(n_cells, n + n_cells))
    constraints = sparse.vstack([rows, -sparse.eye(n + n_cells, format="csc")], format="csc")
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.ZeroConeT(n_cells), clarabel.NonnegativeConeT(n + n_cells)]
    right = np.concatenate([counts.astype(float), np.zeros(n + n_cells)])
    solver = clarabel.DefaultSolver(
        sparse.csc_matrix(np.triu(quadratic)), linear / scale, constraints, right, cones, settings
    )
    z = np.array(solver.solve().x)
    if not np.isfinite(z).all():
        return np.zeros(n)
    z = np.maximum(z, 0.0)
    together = np.bincount(cells, z, n_cells)
    return np.asarray(z * (counts / np.maximum(together, 1e-300))[cells])[:n]
