"""Sums on a fixed grid, so that two groups which differ by one row do not tell that row. Used by `guard.py` alone.

The step of a vector sum Σ w (y − o) is a share of one row's: with the heaviest weight ŵ and the spread σ_d of the
site's rows about their mean o,

    step_d = share · ŵ σ_d,   step of scalars (Σ w |y − m|², Σ w λ) = share / 64 · ŵ Σ_d σ_d²    (powers of two below).

The grid is about o whatever point a question is about: the same group gives the same sum on the grid however often and
wherever it is asked about, so that asking again narrows nothing down. What a mean of n rows loses is step / n, a cost
step² / n. In a quadratic of a box the move of V can cost 2 |move| · half-width, which is taken off C; C is rounded down
and cuts up. Steps of 0 (rows that all agree, or no grain) leave everything as it is, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.arrays import Array

EPS = 2.0**-52
COST_DIGITS = 13  # binary digits of a cost: its rounding is below 2^-12 of it, which a checker knows


@dataclass(frozen=True)
class Grain:
    origin: Array  # (D,) the site's mean, never told
    steps: Array  # (D,) of vector sums
    scalar: float  # step of scalar sums

    @classmethod
    def of(cls, rows: Array, weights: Array, share: float) -> Grain:
        if share <= 0.0 or len(rows) == 0:
            return cls(np.zeros(rows.shape[1]), np.zeros(rows.shape[1]), 0.0)
        mass = weights / weights.sum()
        origin = mass @ rows
        with np.errstate(over="ignore"):
            variances = mass @ (rows - origin) ** 2
        heaviest = float(weights.max())
        steps = power_below(share * heaviest * np.sqrt(variances))
        scalar = power_below(np.array(share / 64.0 * heaviest * variances.sum()))
        return cls(origin, steps, float(scalar))

    def vectors(self, weights: Array, sums: Array, points: Array, times: Array | float = 1.0) -> Array:
        """Sums Σ w (y − m) about points, moved so that Σ w (y − o) lies on the grid of so many `times` its steps."""
        about = sums + weights[..., None] * (points - self.origin)
        by = on_grid(np.rint, about, self.steps * np.asarray(times)[..., None]) - about
        return np.asarray(np.where(weights[..., None] > 0.0, sums + by, sums))

    def scalars(self, values: Array) -> Array:
        """To the nearest step; keeps signs and order."""
        return on_grid(np.rint, values, self.scalar)

    def quadratics(self, sums: Array, centre: Array, half: Array, times: Array | float = 1.0) -> Array:
        """(W, V, C) with V on the grid and C lower by what that can cost within the box, then rounded down; where there
        are no rows, as it is. The shift of a minorant only makes the cost of V smaller."""
        offsets = self.vectors(sums[:, 0], sums[:, 1:-1], centre, times)
        by = np.abs(offsets - sums[:, 1:-1]) + EPS * (np.abs(offsets) + np.abs(sums[:, 1:-1])) * (self.steps > 0.0)
        lost = 2.0 * (by * half).sum(axis=1) * (1.0 + 64 * EPS)
        least = np.where(lost > 0.0, sums[:, -1] - lost - 4 * EPS * np.abs(sums[:, -1]), sums[:, -1])
        told = np.column_stack([sums[:, 0], offsets, self.down(least)])
        return np.asarray(np.where(sums[:, :1] > 0.0, told, sums))

    def down(self, values: Array) -> Array:
        """Scalars rounded down."""
        return on_grid(np.floor, values, self.scalar)


def costs_above(costs: Array) -> Array:
    """Rounded up to `COST_DIGITS` binary digits."""
    return digits_above(costs, COST_DIGITS)


def costs_below(costs: Array) -> Array:
    """Rounded down to as many."""
    mantissa, exponent = np.frexp(np.maximum(costs, 0.0))
    return np.asarray(np.ldexp(np.floor(np.ldexp(mantissa, COST_DIGITS)), exponent - COST_DIGITS))


def digits_above(values: Array, digits: int) -> Array:
    """Numbers that are not negative, rounded up to so many binary digits.

    >>> digits_above(np.array([0.0, 1.0, 1.01, 6.7]), 3).tolist()
    [0.0, 1.0, 1.25, 7.0]
    """
    mantissa, exponent = np.frexp(np.maximum(values, 0.0))
    return np.asarray(np.ldexp(np.ceil(np.ldexp(mantissa, digits)), exponent - digits))


def power_above(values: Array) -> Array:
    """The least power of two that is not below a number; 0 for 0.

    >>> power_above(np.array([0.0, 0.3, 1.0, 5.0])).tolist()
    [0.0, 0.5, 1.0, 8.0]
    """
    mantissa, exponent = np.frexp(np.maximum(values, 0.0))
    power = np.ldexp(1.0, np.where(mantissa == 0.5, exponent - 1, exponent))
    return np.asarray(np.where(mantissa == 0.0, 0.0, power))


def power_below(values: Array) -> Array:
    """The greatest power of two that is not above a number; 0 for 0.

    >>> power_below(np.array([0.0, 0.3, 1.0, 5.0])).tolist()
    [0.0, 0.25, 1.0, 4.0]
    """
    mantissa, exponent = np.frexp(np.maximum(values, 0.0))
    return np.asarray(np.where(mantissa == 0.0, 0.0, np.ldexp(1.0, exponent - 1)))


def on_grid(rounding: np.ufunc, values: Array, steps: Array | float) -> Array:
    """Rounded to multiples of the steps, which are powers of two: no further error. Numbers too large for that have no
    digits below a step and stay."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        multiples = values / np.asarray(steps)
        rounded = rounding(multiples) * steps
    return np.asarray(np.where(np.isfinite(multiples) & np.isfinite(rounded), rounded, values))
