"""Virtual nodes are balanced and mutually similar, and it pays: the bound is tighter than with a random split."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris

from consentroid.errors import InvalidInput
from consentroid.virtual_nodes import virtual_nodes


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 7), st.integers(1, 4))
def test_sizes_differ_by_at_most_one(seed: int, n_rows: int, n_parts: int, n_clusters: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n_rows, 2))
    if n_parts > n_rows:
        with pytest.raises(InvalidInput, match=f"n_parts={n_parts}"):
            virtual_nodes(rows, n_parts)
        return
    part = virtual_nodes(rows, n_parts, centroids=rng.normal(size=(n_clusters, 2)), seed=1)
    sizes = np.bincount(part, minlength=n_parts)
    assert len(sizes) == n_parts
    assert np.ptp(sizes) <= 1


def lost(rows: np.ndarray, part: np.ndarray, model: KMeans) -> float:
    """Σ n_ik ‖c_ik − c_k‖², the part of the bound that a split gives away at least."""
    total = 0.0
    for k in range(model.n_clusters):
        cluster = rows[model.labels_ == k]
        for i in np.unique(part):
            mine = rows[(model.labels_ == k) & (part == i)]
            total += len(mine) * float(((mine.mean(axis=0) - cluster.mean(axis=0)) ** 2).sum())
    return total


def test_anticlusters_lose_far_less_than_random_parts() -> None:
    rows = load_iris().data
    model = KMeans(3, n_init=10, random_state=0).fit(rows)
    part = virtual_nodes(rows, 3, centroids=model.cluster_centers_)
    random = np.random.default_rng(0).permutation(np.arange(len(rows)) % 3)
    assert lost(rows, part, model) < 0.05 * lost(rows, random, model)
    bound = sum(KMeans(3, n_init=20, random_state=0).fit(rows[part == i]).inertia_ for i in range(3))
    loose = sum(KMeans(3, n_init=20, random_state=0).fit(rows[random == i]).inertia_ for i in range(3))
    assert loose < bound <= model.inertia_


def test_rows_of_unequal_weight_stay_apart() -> None:
    rng = np.random.default_rng(5)
    rows, weights = rng.normal(size=(40, 3)), rng.integers(1, 3, 40).astype(float)
    part = virtual_nodes(rows, 4, n_clusters=2, weights=weights)
    assert np.ptp(np.bincount(part)) == 0
