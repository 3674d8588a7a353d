"""How much of what sites answer in one run the search may use.

A site's policy limits questions, boxes and points of a run; it says when it is described how many are left. The
certificate asks once more about every box of a tree, and up to half of these have never been examined: three times the
boxes of the search in all. So the search ends in time, and the run with what was proven.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..core.arrays import Array

FOR_SEARCH = np.array([0.8, 0.3, 0.9])  # of questions, boxes, points
AT_ONCE = 0.02  # of the boxes, in one exchange


def _nothing() -> Array:
    return np.zeros(3)


@dataclass(frozen=True)
class Allowance:
    most: Array  # (3,) questions, boxes, points
    asked: Callable[[], Array] = _nothing  # so far

    @classmethod
    def unlimited(cls) -> Allowance:
        return cls(np.full(3, np.inf))

    @property
    def used(self) -> float:
        """Share of what the search may use; from 1 on it may use no more."""
        return float((self.asked() / np.maximum(FOR_SEARCH * self.most, 1.0)).max())

    @property
    def boxes_at_once(self) -> float:
        return max(AT_ONCE * float(self.most[1]), 1.0)
