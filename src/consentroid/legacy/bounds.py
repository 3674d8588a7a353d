"""The cheap bound on a box from the nodes' decided-row statistics, summed over nodes.

With counts n_k, sums s_k (about the box centre c_k) and constant q, over centroids m in the boxes,

    cost(m) ≥ Σ_k [ n_k |m_k − c_k|² − 2 s_k·(m_k − c_k) ] + q ,

a separable quadratic: its minimum is taken coordinate by coordinate. With a price p_k the linear term is p_k·m_k
more (prices of all nodes sum to zero, so the coordinator uses none). `docs/numerics.md` argues the margins: a node's
constant already pays for the rounding of its own sums and of adding up to 1,000 nodes; here only this evaluation is
rounded down.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array
from ..core.topology import balanced

ROUNDING = 2.0**-53


def statistics_bound(
    counts: Array, sums: Array, constants: Array, boxes: Array, prices: Array | None = None
) -> NDArray[np.float64]:
    """Lower bound for each box (rounded down): counts (B, K), sums (B, K, D), constants (B,), boxes (B, 2, K, D)."""
    lo, hi = boxes[:, 0], boxes[:, 1]
    centre = 0.5 * (lo + hi)  # the very doubles the nodes measured from
    linear = sums if prices is None else sums - 0.5 * prices
    weight = np.broadcast_to(counts[:, :, None], sums.shape)
    below, above = lo - centre, hi - centre
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        free = np.where(weight > 0, linear / weight, np.where(linear > 0, np.inf, np.where(linear < 0, -np.inf, 0.0)))
        step = np.clip(free, below, above)
        quadratic, product = weight * step**2, linear * step
        terms = quadratic - 2.0 * product
        magnitude = np.abs(quadratic) + 2.0 * np.abs(product)
        # rounding of the box ends about the centre moves the minimum by at most |derivative| · |end| · 2^-53
        magnitude += 4.0 * (weight * np.abs(step) + np.abs(linear)) * np.maximum(np.abs(below), np.abs(above))
        total, size = terms.sum(axis=(1, 2)) + constants, magnitude.sum(axis=(1, 2)) + np.abs(constants)
        if prices is not None:
            total = total + (prices * centre).sum(axis=(1, 2))
            size = size + np.abs(prices * centre).sum(axis=(1, 2))
        n_terms = sums.shape[1] * sums.shape[2] * 2 + 16
        bound = np.nextafter(total - 2 * n_terms * ROUNDING * size - 1e-300 * (size > 0), -np.inf)
    bound = np.where(np.isfinite(bound), bound, -np.inf)
    return np.maximum(bound, 0.0) if prices is None else bound


def price_statistics(counts: Array, sums: Array, constants: Array, boxes: Array) -> tuple[Array, Array]:
    """The cheap bound as a proof of the usual kind: prices (B, N, K, D) and the nodes' bounds (B, N).

    Inputs have the nodes in front: counts (N, B, K), sums (N, B, K, D), constants (N, B). With m* the minimiser of the
    nodes' summed quadratics in the box and p_i = −∇q_i(m*) + mean, every node's priced quadratic has its minimum at m*
    too (its gradient there is that of the sum, divided by N), so nothing is lost by splitting the sum over the nodes.
    """
    weight, linear = counts.sum(axis=0)[:, :, None], sums.sum(axis=0)
    half = 0.5 * (boxes[:, 1] - boxes[:, 0])
    with np.errstate(divide="ignore", invalid="ignore"):
        step = np.where(weight > 0, linear / weight, 0.0)
    step = np.clip(step, -half, half)
    prices = balanced(2.0 * (sums - counts[..., None] * step))
    nodes = zip(counts, sums, constants, prices, strict=True)
    bounds = [statistics_bound(count, total, constant, boxes, price) for count, total, constant, price in nodes]
    return np.moveaxis(prices, 0, 1), np.stack(bounds, axis=1)
