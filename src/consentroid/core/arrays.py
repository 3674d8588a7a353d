"""The one name of an array of doubles, the one squared-distance routine, and parts of square matrices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def squared_distances(points: Array, centroids: Array) -> Array:
    """‖y_j − m_k‖² for all rows and centroids, (J, K).

    Differences rather than ‖y‖² − 2⟨y, m⟩ + ‖m‖²: rows far from zero keep their digits. One column per centroid bounds
    the memory by that of the table and the result.
    """
    if len(centroids) == 0:
        return np.empty((len(points), 0))
    return np.stack([((points - centroid) ** 2).sum(axis=1) for centroid in centroids], axis=1)


def nearest(points: Array, centroids: Array) -> NDArray[np.intp]:
    """Number of the nearest centroid of each row, the first one on ties."""
    return np.asarray(squared_distances(points, centroids).argmin(axis=1))


def part(matrix: Array, which: NDArray[np.int64]) -> Array:
    """Rows and columns of a square matrix: several times as fast as an index of both at once."""
    return matrix.take(which, 0).take(which, 1)
