"""Scalar arithmetic of the checker: sums as fractions, roots rounded outward, from searched coordinates to rows."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from ..core.arrays import Array
from ..core.errors import CertificateInvalid
from .kernels import UNIT

MOST_SKEW = 1e-6  # of a basis: what its columns lack to being orthogonal, or have beyond length 1


def rounded_down(exact: Fraction) -> float:
    """A double that is not above."""
    try:
        near = float(exact)
    except OverflowError:
        return -math.inf if exact < 0 else math.nextafter(math.inf, 0.0)
    return near if Fraction(near) <= exact else math.nextafter(near, -math.inf)


def rounded_up(exact: Fraction) -> float:
    return -rounded_down(-exact)


def exact_sum(numbers: Array) -> Fraction:
    return sum((Fraction(float(number)) for number in numbers), Fraction(0))


def basis_norm(basis: Array) -> float:
    """An upper bound on ‖basis‖₂ ≥ 1: of basisᵀ basis, the greatest diagonal entry and the norm of all others."""
    n_features = len(basis)
    if np.array_equal(basis, np.eye(n_features)):
        return 1.0
    if np.abs(basis).max() > 2.0:
        raise CertificateInvalid("coordinates.basis: is not orthogonal")
    size = np.abs(basis).T @ np.abs(basis)
    gram, rounding = basis.T @ basis, 2.0 * (n_features + 4) * UNIT * (size + 1.0)
    longer = float((np.diag(gram) - 1.0 + np.diag(rounding)).max())
    skew = (np.abs(gram) + rounding) * (1.0 - np.eye(n_features))
    norm = max(longer, 0.0) + float(np.sqrt((skew**2).sum())) * (1.0 + 4.0 * (n_features + 4) ** 2 * UNIT)
    if not norm <= MOST_SKEW:
        raise CertificateInvalid(f"coordinates.basis: is not orthogonal (by {norm:.1g}, at most {MOST_SKEW:g})")
    return (1.0 + norm) * (1.0 + 4.0 * UNIT)


def bound_on_rows(lower: float, scatter_error: float, norm: float, scale: float) -> float:
    """opt ≥ ((√lower − √E) / (scale · G))², rounded down; 0 where nothing is proven."""
    if not (math.isfinite(lower) and math.isfinite(scatter_error) and lower > 0.0 and scatter_error >= 0.0):
        return 0.0
    root = math.sqrt(lower) * (1.0 - 4.0 * UNIT) - math.sqrt(scatter_error) * (1.0 + 4.0 * UNIT)
    if not root > 0.0:
        return 0.0
    root = root * (1.0 - 4.0 * UNIT) / (scale * norm) * (1.0 - 8.0 * UNIT)
    # relative margins hold only away from underflow
    result = root * root * (1.0 - 8.0 * UNIT) - 1e-322
    return result if math.isfinite(result) and result > 0.0 else 0.0


def relative_gap(lower: float, upper: float) -> float:
    """(upper − lower) / upper; infinite unless both can be bounds. A cost of exactly zero is optimal."""
    if not (math.isfinite(lower) and math.isfinite(upper)) or lower < 0.0 or upper < lower:
        return math.inf
    return 0.0 if upper == 0.0 else (upper - lower) / upper
