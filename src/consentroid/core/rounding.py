"""Sums that are rounded to the safe side."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .arrays import Array


def sum_down(terms: Sequence[float] | Array) -> float:
    """A number not above the exact sum; `fsum` rounds correctly, so one step down suffices."""
    return math.nextafter(math.fsum(terms), -math.inf) if np.any(terms) else 0.0


def sum_up(terms: Sequence[float] | Array) -> float:
    """A number not below the exact sum."""
    return math.nextafter(math.fsum(terms), math.inf) if np.any(terms) else 0.0
