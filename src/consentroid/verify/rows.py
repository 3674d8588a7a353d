"""A site's rows and prices as the checker uses them: coordinates with their rounding error, cost, and Σ w λ.

Everything here is computed from the rows. From the certificate come only the coordinate system, the root box and the
centroids, and none of them can make a bound too large: a bad choice costs bound, never truth.
"""

from __future__ import annotations

import math
import zipfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from ..certificate.document import Certificate, price_digest
from ..core.arrays import Array
from ..core.errors import CertificateInvalid, InvalidInput
from .kernels import UNIT
from .spectrum import RowMoments

OUTSIDE_ROOT = 1e-10  # of the root's size: rounding; such a row is moved onto the root, at a cost
LARGEST = 1e150
HEADER = 4096  # bytes of a numpy header, at most


class PricesUnknown(Exception):
    """The price file is missing or is not the certificate's: the site's numbers cannot be checked."""


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
    prices: Array | None  # (L, n); None: the claims cannot be checked
    reason: str = ""  # why there are no prices
    moments: RowMoments | None = None  # about the origin, where the certificate rests on them

    def total(self, number: int) -> float:
        """Σ w λ, rounded down: products round once, and their sum once."""
        if self.prices is None or number >= len(self.prices):
            raise CertificateInvalid(f"prices {number}: the price file of site '{self.name}' has no such row")
        total = math.fsum(self.w * self.prices[number]) * (1.0 - 4.0 * UNIT) - len(self.w) * 1e-300
        if not math.isfinite(total):
            raise CertificateInvalid(f"site '{self.name}': its prices overflow")
        return max(total, 0.0)


def site_rows(
    certificate: Certificate, name: str, rows: ArrayLike, weights: ArrayLike | None, prices: Path | ArrayLike | None
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
    known, reason = None, ""
    try:
        known = _prices(certificate, name, prices, len(x))
    except PricesUnknown as why:
        reason = str(why)
    return SiteRows(name, n_rows, y, w, errors, scatter_error, least_cost, cost, known, reason, moments)


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


def _prices(certificate: Certificate, name: str, source: Path | ArrayLike | None, n_rows: int) -> Array:
    """The site's prices, if they are those that the certificate names; refuted if one is negative."""
    if source is None:
        raise PricesUnknown("no price file was given; it stays with the site that took part in the run")
    most = len(certificate.leaves)  # never what a leaf's own number says: that would let a file of any size in
    prices = _read(source, most, n_rows) if isinstance(source, (str, Path)) else np.array(source, dtype=float)
    if price_digest(prices) != certificate.price_files[name]:
        raise PricesUnknown("the price file is not the one that the certificate names; give that of the same run")
    if prices.ndim != 2 or prices.shape[1] != n_rows:
        raise InvalidInput(
            f"site '{name}': its price file is for {prices.shape[-1]} rows, {n_rows} of positive weight are given; "
            "give the rows of the run in their order"
        )
    if not np.all((prices >= 0.0) & (prices <= 1e300)):
        raise CertificateInvalid(f"site '{name}': a price is negative or no number")
    return np.ascontiguousarray(prices)


def _read(path: Path | str, n_vectors: int, n_rows: int) -> Array:
    """Array 'prices' of an npz file; its size is bounded before it is read."""
    most = 8 * max(n_vectors, 1) * n_rows * 4 + HEADER  # a file may hold vectors that this certificate does not use
    try:
        with zipfile.ZipFile(path) as archive, archive.open("prices.npy") as entry:
            raw = entry.read(most + 1)
    except FileNotFoundError:
        raise PricesUnknown("there is no price file; it is written beside the site's rows when the run ends") from None
    except (OSError, KeyError, EOFError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zipfile.LargeZipFile):
        raise PricesUnknown("the price file cannot be read") from None
    except Exception as error:  # decompressors have errors of their own (zlib.error, lzma.LZMAError)
        raise PricesUnknown(f"the price file cannot be read ({type(error).__name__})") from None
    if len(raw) > most:
        raise PricesUnknown("the price file is larger than the rows and the certificate allow")
    file = BytesIO(raw)
    try:
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = header(file)
    except Exception:  # whatever stands there, it is no header
        raise PricesUnknown("the price file holds no plain array") from None
    body = raw[file.tell() :]
    table = len(shape) == 2 and all(type(size) is int and 0 <= size <= len(body) for size in shape)
    if dtype != np.dtype("<f8") or fortran or not table or math.prod(shape) * 8 != len(body):
        raise PricesUnknown("the price file holds no table of doubles")
    return np.frombuffer(body, dtype="<f8").reshape(shape).astype(np.float64)
