"""Axes for the search: y = (x − origin) · basis · scale, and what a bound on y says about x.

Within-cluster scatter is the square of a seminorm of the rows, so with G ≥ ‖basis‖ and the rounding errors e_j of y_j

    √opt(y) ≤ scale · G · √opt(x) + √(Σ_j w_j |e_j|²),

whatever the basis is: a bad one loses gap, never truth. No term depends on the domain. Axes may be searched in part
only (`floors.py`): what is left out of them is bounded by its spectrum, and the two bounds add up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..core.arrays import Array
from ..core.problem import Domain
from ..protocol.messages import Coordinates, MomentSums

EPS = 2.0**-52


@dataclass(frozen=True)
class Axes:
    coordinates: Coordinates
    norm: float  # G · scale
    scatter_error: float = 0.0  # Σ_j w_j |e_j|²
    kept: Array | None = None  # (D,) the part of each axis that is searched; None: all of all
    rest: float = 0.0  # a bound on the cost of what is left out, in the rows' own units

    @classmethod
    def principal(cls, moments: MomentSums, reference: Array, floor: float = 0.0) -> Axes:
        """Principal axes about the mean, scaled so that a row's mean squared distance is about one; `floor`: so much of
        each axis's scatter is left out."""
        mean = moments.sums / moments.weight
        scatter = moments.products / moments.weight - np.outer(mean, mean)
        values, vectors = np.linalg.eigh(0.5 * (scatter + scatter.T))
        values, vectors = values[::-1], vectors[:, ::-1]
        if floor <= 0.0:
            return cls.of(reference + mean, vectors, float(np.trace(scatter)))
        searched = np.maximum(values - floor / moments.weight, 0.0)
        kept = searched / np.where(searched > 0.0, values, 1.0)
        return replace(cls.of(reference + mean, vectors * np.sqrt(kept), float(searched.sum())), kept=kept)

    @classmethod
    def plain(cls, n_features: int) -> Axes:
        """The features themselves: nothing is rounded."""
        return cls.of(np.zeros(n_features), np.eye(n_features), 1.0)

    @classmethod
    def of(cls, origin: Array, basis: Array, variance: float) -> Axes:
        scale = 2.0 ** -max(min(round(0.5 * math.log2(variance)), 500), -500) if variance > 0.0 else 1.0
        basis = np.ascontiguousarray(basis)
        gram = basis.T @ basis
        longer = max(float(np.diag(gram).max()) - 1.0, 0.0)
        deviation = longer + float(np.linalg.norm(gram - np.diag(np.diag(gram))))
        identity = bool(np.array_equal(basis, np.eye(len(basis))))
        norm = scale if identity else scale * (1.0 + deviation + 8.0 * len(basis) ** 2 * EPS)
        return cls(Coordinates(origin, basis, scale), norm)

    def with_error(self, scatter_error: float) -> Axes:
        return replace(self, scatter_error=scatter_error)

    def forward(self, x: Array) -> Array:
        return np.asarray((x - self.coordinates.origin) @ self.coordinates.basis * self.coordinates.scale)

    def back(self, y: Array) -> Array:
        y = y / self.coordinates.scale
        if self.kept is not None:  # along axes that are left out altogether, the mean
            y = np.divide(y, self.kept, out=np.zeros_like(y), where=self.kept > 0.0)
        return np.asarray(y @ self.coordinates.basis.T + self.coordinates.origin)

    def root(self, domain: Domain) -> tuple[Array, Array]:
        """A box that holds every row; sites and checkers test it against their rows."""
        middle, half = 0.5 * domain.lower + 0.5 * domain.upper, 0.5 * domain.upper - 0.5 * domain.lower
        c, basis = self.coordinates, np.abs(self.coordinates.basis)
        size = np.abs(domain.lower) + np.abs(domain.upper) + np.abs(c.origin)
        reach = (half + 1e-12 * size) @ basis * c.scale
        centre = self.forward(middle)
        return centre - reach, centre + reach

    def bound_on_rows(self, lower: float) -> float:
        """A bound on x from a bound on y, rounded down."""
        if not lower > 0.0 or not math.isfinite(lower):
            return self.rest
        root = math.sqrt(lower) * (1.0 - 4 * EPS) - math.sqrt(self.scatter_error) * (1.0 + 4 * EPS)
        searched = max(root / self.norm * (1.0 - 4 * EPS), 0.0) ** 2 * (1.0 - 4 * EPS)
        return searched if self.rest == 0.0 else (searched + self.rest) * (1.0 - 2 * EPS)

    def bound_needed(self, lower: float) -> float:
        """The bound on y that gives this bound on x."""
        lower -= self.rest
        return (math.sqrt(max(lower, 0.0)) * self.norm + math.sqrt(self.scatter_error)) ** 2 * (1.0 + 64 * EPS)


def spectral_bound(
    moments: MomentSums, n_clusters: int, n_rows: int, n_sites: int, reach: float, axes: Axes | None = None
) -> float:
    """opt ≥ trace(S) − the K − 1 greatest eigenvalues of the scatter matrix S: K means span K − 1 dimensions at most.

    With `axes` only what these leave out counts: R = I − AAᵀ/G² of the squared distances, SᵀTS with SSᵀ = R.
    Rounded down by what the sums and the eigenvalues can be off, relative to the squares that were summed; by what
    sums of N sites as integers can be off (`site/fixed_point.py`: N q ≤ 32 N³ 2^-96 of weight · reach², and 8 times
    that for all three moments together), `reach` being the largest |x|; and by underflow of weight times offset.
    """
    if not moments.weight > 0.0:
        return 0.0
    sums = moments.sums / math.sqrt(moments.weight)  # their squares underflow no sooner than the scatter does
    scatter = moments.products - np.outer(sums, sums)
    if not np.isfinite(scatter).all():
        return 0.0
    n_features, missed = len(scatter), 0.0
    if axes is not None:
        basis, norm = axes.coordinates.basis, axes.norm / axes.coordinates.scale
        rest = np.eye(n_features) - basis @ basis.T / norm**2
        roots, vectors = np.linalg.eigh(0.5 * (rest + rest.T))
        factor = vectors * np.sqrt(np.maximum(roots, 0.0))
        missed = float(np.linalg.norm(rest - factor @ factor.T)) + 32.0 * n_features**2 * EPS
        missed *= max(float(np.trace(scatter)), 0.0)
        scatter = factor.T @ scatter @ factor
    values = np.linalg.eigvalsh(0.5 * (scatter + scatter.T))[::-1]
    rounding = 16.0 * (n_rows + n_features**2 + 16) * EPS * float(np.trace(moments.products))
    rounding += n_features * (2.0**-86 * n_sites**3 * moments.weight * reach * reach + n_rows * (1.0 + reach) * 1e-320)
    bound = (
        float(values[n_clusters - 1 :].sum()) - 4.0 * n_features * rounding - 4.0 * missed - 1e-284
    )  # so that a checker agrees; products may underflow
    return bound if math.isfinite(bound) and bound > 0.0 else 0.0
