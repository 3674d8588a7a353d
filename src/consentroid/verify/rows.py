"""A site's rows and prices as the checker uses them: coordinates with their rounding error, cost, and Σ w λ.

Everything here is computed from the rows. From the certificate come only the coordinate system, the root box and the
centroids, and none of them can make a bound too large: a bad choice costs bound, never truth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..certificate.document import Certificate
from ..core.arrays import Array
from ..core.errors import CertificateInvalid, InvalidInput
from .kernels import UNIT
from .pairs import pairs_bound
from .spectrum import RowMoments
from .stored_prices import PriceSource, PricesUnknown, StoredPrices, stored_pairs, stored_prices

OUTSIDE_ROOT = 1e-10  # of the root's size: rounding; such a row is moved onto the root, at a cost
LARGEST = 1e150


@dataclass(frozen=True)
class SiteRows:
    """Rows of positive weight."""

    name: str
    n_rows: int  # as given
    y: Array  # (n, D) searched coordinates, inside the root box
    w: Array  # (n,)
    error: Array  # (n,) bound on the rounding of y
    scatter_error: float  # Σ w |e|², rounded up
    least_cost: float  # of the certificate's centroids, rounded down
    cost: float  # rounded up
    prices: StoredPrices | None  # None: the claims cannot be checked
    reason: str = ""  # why there are no prices
    moments: RowMoments | None = None  # about the origin, where the certificate rests on them
    pairs_bound: float | None = None  # of its prices on pairs, where the certificate rests on them

    def total(self, number: int) -> float:
        """Σ w λ − Σ φ, rounded down: products round once, and sums once."""
        if self.prices is None or number >= len(self.prices.rows):
            raise CertificateInvalid(f"prices {number}: the price file of site '{self.name}' has no such row")
        total = math.fsum(self.w * self.prices.rows[number]) * (1.0 - 4.0 * UNIT) - len(self.w) * 1e-300
        fees = math.fsum(self.prices.fees[number]) * (1.0 + 4.0 * UNIT)
        if not (math.isfinite(total) and math.isfinite(fees)):
            raise CertificateInvalid(f"site '{self.name}': its prices overflow")
        if fees > 0.0 and not fees <= total:
            raise CertificateInvalid(f"site '{self.name}': its fees exceed its prices: nothing is proven")
        return max((total - fees) * (1.0 - 2.0 * UNIT), 0.0)


def site_rows(
    certificate: Certificate, name: str, rows: ArrayLike, weights: ArrayLike | None, prices: PriceSource | None
) -> SiteRows:
    """Validate the rows, locate them, and read the site's prices; overflow raises (`verify` traps it)."""
    x, w, n_rows = _checked(certificate, name, rows, weights)
    _inside_domain(certificate, name, x)
    try:
        y, errors = _located(certificate, name, x)
        scatter_error = math.fsum(w * errors**2) * (1.0 + 16.0 * UNIT)
        least_cost, cost = _cost(x, w, certificate.centroids)
        moments = None if certificate.rest is None else RowMoments.of(x, w, certificate.origin)
    except (FloatingPointError, OverflowError):
        raise CertificateInvalid(f"site '{name}': its rows overflow in the certificate's coordinates") from None
    known, bound, reason = None, None, ""
    try:
        if certificate.pairs is None:
            known = stored_prices(certificate, name, prices, len(x))
        else:
            pairs = stored_pairs(certificate, name, prices, len(x))
            bound = 0.0 if pairs is None else pairs_bound(x, w, pairs, certificate.n_clusters)
    except PricesUnknown as why:
        reason = str(why)
    return SiteRows(name, n_rows, y, w, errors, scatter_error, least_cost, cost, known, reason, moments, bound)


def _checked(
    certificate: Certificate, name: str, rows: ArrayLike, weights: ArrayLike | None
) -> tuple[Array, Array, int]:
    x = np.array(rows, dtype=float)
    n_features = len(certificate.features)
    if x.ndim != 2 or x.shape[1] != n_features or len(x) == 0:
        raise InvalidInput(
            f"site '{name}': a table of shape {x.shape} is given; the certificate is about {n_features} features; "
            "choose the same columns as for the run"
        )
    if not np.isfinite(x).all():
        raise InvalidInput(f"site '{name}': some entries are not finite numbers")
    w = np.ones(len(x)) if weights is None else np.array(weights, dtype=float)
    if w.shape != (len(x),) or not np.all(np.isfinite(w) & (w >= 0.0)) or not np.any(w > 0.0):
        raise InvalidInput(f"site '{name}': {len(x)} rows need as many finite, not negative weights")
    return np.ascontiguousarray(x[w > 0.0]), np.ascontiguousarray(w[w > 0.0]), len(x)


def _inside_domain(certificate: Certificate, name: str, x: Array) -> None:
    outside = (x < certificate.domain[0]) | (x > certificate.domain[1])
    if outside.any():
        j, d = (int(axis[0]) for axis in np.nonzero(outside))
        raise CertificateInvalid(
            f"site '{name}': a row lies outside the domain in feature {d} (row {j + 1} of positive weight): "
            "the certificate is about other rows"
        )


def _located(certificate: Certificate, name: str, x: Array) -> tuple[Array, Array]:
    """y = (x − origin) · scale · basis, summed feature by feature, and a bound on every row's |error|."""
    n_features = x.shape[1]
    offset = x - certificate.origin
    z = offset * certificate.scale
    y = np.zeros_like(x)
    for d in range(n_features):
        y += z[:, d : d + 1] * certificate.basis[d]
    plain = not certificate.origin.any() and np.array_equal(certificate.basis, np.eye(n_features))
    if plain and np.array_equal(z / certificate.scale, x):
        errors = np.zeros(len(x))
    else:  # a subtraction, D products and D sums, twice over; 1e-150 for underflow; ‖row of the basis‖ ≤ 1 + 1e-6
        errors = (n_features + 4) * 2.0 * UNIT * np.abs(z).sum(axis=1) * (1.0 + 1e-5) + 1e-150
    if not np.abs(y).max() <= LARGEST:
        raise FloatingPointError
    inside = np.clip(y, certificate.root[0], certificate.root[1])
    moved = np.abs(inside - y)
    if np.any(moved > OUTSIDE_ROOT * (np.abs(certificate.root).max() + np.abs(y).max())):
        raise CertificateInvalid(f"site '{name}': a row lies outside the root box: the certificate is about other rows")
    return np.ascontiguousarray(inside), (errors + moved.sum(axis=1)) * (1.0 + 4.0 * (n_features + 4) * UNIT)


def _cost(x: Array, w: Array, centroids: Array) -> tuple[float, float]:
    """Σ w min_k |x − m_k|², rounded down and up: all terms are positive."""
    nearest, same = np.full(len(x), np.inf), np.zeros(len(x), dtype=bool)
    for centroid in centroids:
        same |= (x == centroid).all(axis=1)
        nearest = np.minimum(nearest, ((x - centroid) ** 2).sum(axis=1))
    cost = math.fsum(w * nearest)
    margin = 2.0 * (x.shape[1] + 8) * UNIT
    tiny = 0.0 if same.all() else (len(x) + x.shape[1] * math.fsum(w)) * 1e-322  # squares may underflow, to 0 even
    return max(cost * (1.0 - margin) - tiny, 0.0), cost * (1.0 + margin) + tiny
