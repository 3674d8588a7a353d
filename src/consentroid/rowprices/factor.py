"""Solve Q x = b on some of the columns, then on others of which most are the same.

One Cholesky factorisation Q_FF = L Lᵀ serves all sets near F. For F without D ⊂ F and with A besides,

    | Q_FF  C | |x_F|   | b_F |        C = [Q_FA, E_D],  E_D the unit vectors of D: x_D = 0
    | Cᵀ    G | | u | = | b_A |        G = Q_AA in the place of A, 0 in that of D, and so for b

is solved by V = L⁻¹ C and (VᵀV − G) u = Vᵀ L⁻¹ b_F − b_A: one triangular solution for each column that changed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from ..core.arrays import Array, part

WORTH_A_BORDER = 100  # columns: fewer are factorised at once
MOST_CHANGED = 0.35  # share of the columns that a border may replace: with more, factorising again is as fast


class Factor:
    """Of Q and a ridge on its diagonal, which is never added to Q itself: Q is large."""

    def __init__(self, quadratic: Array, ridge: Array | float = 0.0) -> None:
        self._quadratic, self._ridge = quadratic, np.broadcast_to(ridge, len(quadratic))
        self.forget()

    def times(self, z: Array) -> Array:
        return np.asarray(self._quadratic @ z + self._ridge * z)

    def forget(self) -> None:
        self._factorise(np.zeros(len(self._quadratic), np.bool_))

    def solve(self, used: NDArray[np.bool_], right: Array) -> Array:
        """x for each right-hand side, 0 for columns that are not used; LinAlgError where Q is not positive there."""
        changed = np.flatnonzero(used != self.marks)
        if not self._can_border(changed):
            self._factorise(used)
            changed = changed[:0]
        self.bordered = len(changed) > 0
        out, ours = np.zeros(right.shape), self._through(right[self.columns])
        if self.bordered:
            places, added = self._border(changed), used[changed]
            border, gram = self._v[:, places], part(self._gram, places)
            sides = border.T @ ours
            gram[np.ix_(added, added)] -= self._part(changed[added])
            sides[added] -= right[changed[added]]
            u = np.linalg.solve(gram, sides)
            out[changed[added]] = u[added]
            ours -= border @ u
        out[self.columns] = solve_triangular(self.lower, ours, lower=True, trans=1, check_finite=False)
        out[~used] = 0.0
        return out

    def _factorise(self, used: NDArray[np.bool_]) -> None:
        self.marks, self.columns = used.copy(), np.flatnonzero(used)
        self.lower = cholesky(self._part(self.columns), lower=True, overwrite_a=True, check_finite=False)
        n = len(self.columns)
        most = int(MOST_CHANGED * n) if n >= WORTH_A_BORDER else 0
        self._v, self._gram, self._known = np.empty((n, most), order="F"), np.empty((most, most)), 0
        self._place = np.full(len(used), -1)  # in V, of the columns that have changed once
        self.bordered = False

    def _part(self, columns: NDArray[np.int64]) -> Array:
        square, diagonal = part(self._quadratic, columns), np.arange(len(columns))
        square[diagonal, diagonal] += self._ridge[columns]
        return square

    def _can_border(self, changed: NDArray[np.int64]) -> bool:
        return self._known + int(np.count_nonzero(self._place[changed] < 0)) <= self._v.shape[1]

    def _border(self, changed: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of these in V, with VᵀV brought up to date."""
        new = changed[self._place[changed] < 0]
        if len(new):
            sides = np.where(self.marks[new], self.columns[:, None] == new, self._quadratic[np.ix_(self.columns, new)])
            before, self._known = self._known, self._known + len(new)
            self._place[new] = np.arange(before, self._known)
            self._v[:, before : self._known] = self._through(sides)
            products = self._v[:, : self._known].T @ self._v[:, before : self._known]
            self._gram[: self._known, before : self._known] = products
            self._gram[before : self._known, : self._known] = products.T
        return np.asarray(self._place[changed])

    def _through(self, sides: Array) -> Array:
        """L⁻¹ times these."""
        return np.asarray(solve_triangular(self.lower, sides, lower=True, check_finite=False))
