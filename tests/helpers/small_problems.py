"""Small clustering problems with certificates by the reference prover, for tests of the checker."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from consentroid.certificate.document import Certificate
from reference_prover import exact_optimum, prove


@dataclass
class Small:
    rows: dict[str, np.ndarray]
    weights: dict[str, np.ndarray]
    certificate: Certificate
    prices: dict[str, np.ndarray]
    optimum: Fraction


def lloyd(x: np.ndarray, w: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    for _ in range(20):
        nearest = ((x[:, None] - centroids[None]) ** 2).sum(2).argmin(1)
        centroids = np.array([
            np.average(x[nearest == k], axis=0, weights=w[nearest == k]) if (nearest == k).any() else centroids[k]
            for k in range(len(centroids))
        ])  # fmt: skip
    return centroids


def rotation(rng: np.random.Generator, n_features: int) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(n_features, n_features)))[0]


def random_problem(seed: int) -> Small:
    """Every kind of small problem: one to three features and clusters, ties, offsets, weights, axes, branches."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(3, 8)), int(rng.integers(1, 4))
    x = np.round(rng.normal(size=(n, d)) * 4) / 4
    if seed % 4 == 1:
        x = rng.normal(size=(n, d)) + 1e4
    elif seed % 4 == 2:  # two groups: prices are tight
        x = x * 0.25 + 8.0 * rng.integers(0, 2, size=(n, 1))
    w = rng.integers(1, 4, n).astype(float) if seed % 3 else rng.uniform(0.1, 2.0, n)
    k = min(int(rng.integers(1, 4)), len(np.unique(x, axis=0)))
    centroids = lloyd(x, w, np.unique(x, axis=0)[rng.choice(len(np.unique(x, axis=0)), k, replace=False)])
    turned = seed % 2 == 1
    cut = max(1, n // 2)
    rows, weights = {"a": x[:cut], "b": x[cut:]}, {"a": w[:cut], "b": w[cut:]}
    certificate, prices = prove(
        rows, centroids, weights=weights, basis=rotation(rng, d) if turned else None,
        origin=x.mean(0) if turned else None, scale=2.0 ** int(rng.integers(-3, 4)),
        shift=(0.0, 31 / 64, 0.4)[seed % 3], cuts=bool(seed % 5), branches=seed % 3, wobble=0.1 * (seed % 7 == 1),
        share=(0.3, 0.8, 2.0)[seed % 3], most_boxes=120, seed=seed,
    )  # fmt: skip
    return Small(rows, weights, certificate, prices, exact_optimum(x, w, k))


def tight_problem(seed: int, *, branches: int = 0, d: int = 2, cuts: bool = True) -> Small:
    """Two or three clear groups: the bound is the optimum up to 1e-4, so that whatever raises it is false.

    The centroids stated are not the best, so that there is room between the optimum and their cost for a false bound.
    """
    rng = np.random.default_rng(seed)
    k = 2 + seed % 2
    centres = 4.0 * np.stack([np.arange(k), (np.arange(k) * 7) % 3], axis=1)[:, :d]
    x = np.round((np.repeat(centres, 3, axis=0) + 0.5 * rng.normal(size=(3 * k, d))) * 64) / 64
    w = rng.integers(1, 4, len(x)).astype(float)
    rows, weights = {"a": x[::2], "b": x[1::2]}, {"a": w[::2], "b": w[1::2]}
    turned = seed % 2 == 1
    centroids = lloyd(x, w, centres)
    certificate, prices = prove(
        rows, centroids, stated=centroids + 0.4, weights=weights, basis=rotation(rng, d) if turned else None,
        origin=x.mean(0) if turned else None, scale=0.5, branches=branches, slack=1e-6, most_boxes=4000, seed=seed,
        cuts=cuts,
    )  # fmt: skip
    return Small(rows, weights, certificate, prices, exact_optimum(x, w, k))
