"""Sums over the in-rows of a box, which its children inherit: their places, a new centre, and what rounding costs."""

from __future__ import annotations

from ...core.compile import kernel

EPS = 2.0**-52
TINY = 1e-290  # more than all underflow in a site's sums: an operation loses 5e-324, times a weight
# places in a box's row of in-sums: how many, levels of shifts, weight, constant, Σ w λ, Σ w √λ; then offset, centre
N_IN, LEVELS, WEIGHT, CONSTANT, PRICES, ROOTS, OFFSET = 0, 1, 2, 3, 4, 5, 6


@kernel
def shift_sums(sums, centre):
    """In-sums about a new centre; every in-row has |u| ≤ √λ before and after, so that all terms are below 9 Σ w λ."""
    n_features = len(centre)
    constant = sums[CONSTANT]
    for d in range(n_features):
        by = centre[d] - sums[OFFSET + n_features + d]
        constant += by * (sums[WEIGHT] * by - 2.0 * sums[OFFSET + d])
        sums[OFFSET + d] -= sums[WEIGHT] * by
        sums[OFFSET + n_features + d] = centre[d]
    sums[CONSTANT] = constant
    sums[LEVELS] += 1.0


@kernel
def in_margin(sums, n_features):
    """A multiple of Σ w λ (or Σ w √λ) that covers all rounding in the in-sums."""
    return 16.0 * EPS * (sums[N_IN] + (n_features + 8) * (sums[LEVELS] + 1.0) + 8 * n_features + 64.0)
