"""How much of every axis to leave out of a search that does not end: what is left out is bounded by its spectrum.

Of the scatter σ_d² of the rows along a principal axis, min(σ_d², μ) is left out: an axis below the floor μ need not be
searched at all, and rows look less noisy along the others. With ω_d = 1 − min(1, μ/σ_d²) and for any μ ≥ 0

    opt(x) ≥ opt(√ω x) + opt(√(1 − ω) x) ≥ (bound of the search) + Σ_d min(σ_d², μ) − (the K − 1 greatest of these).

μ = 0 is row prices alone, μ = ∞ the spectral bound alone. By how much the best of all searches then falls short of a
clustering is known beforehand, from the clustering's own scatter within clusters along each axis: the *loss*.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..core.arrays import Array

RATIO = 0.6  # of the loss of a rung to that before it
HALVINGS = 60
NOTHING_LEFT = 1.0 - 1e-6  # of the greatest scatter: the floor from which the spectrum is all there is


def loss_of(floor: float, scatters: Array, within: Array, n_clusters: int) -> float:
    """Cost of a clustering, less what the bounds can add up to; `within`: its scatter within clusters along each axis.

    >>> loss_of(0.0, np.array([4.0, 1.0]), np.array([1.0, 1.0]), 2)
    0.0
    >>> loss_of(1.0, np.array([4.0, 1.0]), np.array([1.0, 1.0]), 2)
    0.25
    """
    left_out = np.minimum(scatters, floor)
    share = np.divide(left_out, scatters, out=np.zeros_like(left_out), where=scatters > 0.0)
    spectral = float(np.sort(left_out)[: max(len(left_out) - n_clusters + 1, 0)].sum())
    return float(share @ within) - spectral


def floors(scatters: Array, within: Array, n_clusters: int, most: float, least: float) -> Iterator[tuple[float, float]]:
    """Floors with their losses, falling from below `most` to below `least`; each leaves something to search."""
    loss = most
    while loss > least:
        loss *= RATIO
        floor = _floor_with(loss, scatters, within, n_clusters)
        if floor < NOTHING_LEFT * scatters.max():
            yield floor, loss_of(floor, scatters, within, n_clusters)


def _floor_with(loss: float, scatters: Array, within: Array, n_clusters: int) -> float:
    """The greatest floor that loses no more: the loss grows with it."""
    low, high = 0.0, float(scatters.max())
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if loss_of(middle, scatters, within, n_clusters) <= loss:
            low = middle
        else:
            high = middle
    return low
