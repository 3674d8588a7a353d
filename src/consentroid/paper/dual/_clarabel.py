"""Clarabel behind one call: min ½ xᵀPx + qᵀx subject to blocks (A, b, cone) that state b − Ax ∈ cone.

The rules state small dense programmes, already scaled to unit size; `None` means that no usable solution came back.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import clarabel
import numpy as np
from scipy import sparse

from ...core.arrays import Array


class Cone(Enum):
    ZERO = "zero"
    NONNEGATIVE = "nonnegative"
    SECOND_ORDER = "second order"


class Block(NamedTuple):
    """b − Ax ∈ cone."""

    matrix: Array
    rhs: Array
    cone: Cone


CONES = {
    Cone.ZERO: clarabel.ZeroConeT,
    Cone.NONNEGATIVE: clarabel.NonnegativeConeT,
    Cone.SECOND_ORDER: clarabel.SecondOrderConeT,
}
USABLE = (clarabel.SolverStatus.Solved, clarabel.SolverStatus.AlmostSolved)


def solve_conic(quadratic: Array | None, linear: Array, blocks: Sequence[Block]) -> Array | None:
    """The minimiser, or `None`."""
    n = len(linear)
    upper = sparse.csc_matrix((n, n)) if quadratic is None else sparse.triu(quadratic, format="csc")
    matrix = sparse.csc_matrix(np.concatenate([block.matrix for block in blocks]))
    rhs = np.concatenate([block.rhs for block in blocks])
    if not (np.isfinite(linear).all() and np.isfinite(rhs).all() and np.isfinite(matrix.data).all()):
        return None
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    cones = [CONES[block.cone](len(block.rhs)) for block in blocks]
    solution = clarabel.DefaultSolver(upper, linear, matrix, rhs, cones, settings).solve()
    x = np.asarray(solution.x, dtype=float)
    return x if solution.status in USABLE and np.isfinite(x).all() else None


def unit_ball(n: int, n_variables: int) -> Block:
    """‖(x_1, …, x_n)‖ ≤ 1 among `n_variables` variables."""
    matrix = np.zeros((n + 1, n_variables))
    matrix[1:, :n] = -np.eye(n)
    return Block(matrix, np.eye(n + 1)[0], Cone.SECOND_ORDER)
