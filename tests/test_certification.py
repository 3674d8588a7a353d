"""Somebody else's centroids: cost, bound and gap, against all partitions in fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from sklearn.cluster import KMeans

from consentroid import certify
from oracle import clustering_optimum, exact


def exact_cost(rows: np.ndarray, centroids: np.ndarray) -> Fraction:
    m = exact(centroids)
    return sum(min(sum((a - b) ** 2 for a, b in zip(row, c)) for c in m) for row in exact(rows))


def test_bounds_and_costs_are_true() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(8, 2)) + (1e6 if seed % 3 == 0 else 0.0)
        given = rows[rng.choice(8, 2, replace=False)] if seed % 2 else KMeans(2, random_state=0).fit(rows)
        centroids = given if isinstance(given, np.ndarray) else given.cluster_centers_
        verdict = certify(given, rows, np.arange(8) % 2)
        optimum = clustering_optimum(rows, np.ones(8), 2)
        assert Fraction(verdict.lower_bound) <= optimum
        assert exact_cost(rows, centroids) <= Fraction(verdict.cost)
        assert exact_cost(rows, verdict.best_centroids) <= Fraction(verdict.best_cost)
        assert verdict.certified == (verdict.gap <= 1e-4)
        if verdict.certified:
            assert exact_cost(rows, centroids) * (1 - Fraction(1, 9_999)) <= optimum
        else:
            assert verdict.improvable


def test_centroids_outside_the_rows_are_judged_as_they_are() -> None:
    rows = np.random.default_rng(1).normal(size=(10, 2))
    far = np.array([[100.0, 0.0], [-100.0, 0.0]])
    verdict = certify(far, rows)
    assert Fraction(verdict.cost) >= exact_cost(rows, far)
    assert verdict.improvable
    assert verdict.gap > 0.9
    assert verdict.best_cost <= float(clustering_optimum(rows, np.ones(10), 2)) * 1.001
