"""Virtual nodes are balanced and mutually similar, and it pays: the bound is tighter than with a random split."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris

from consentroid.core.errors import InvalidInput
from consentroid.legacy.virtual_nodes import split_nodes, virtual_nodes


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


def test_every_large_node_is_split_and_no_row_is_lost() -> None:
    rng = np.random.default_rng(8)
    rows = {"big": rng.normal(size=(45, 2)), "small": rng.normal(size=(7, 2)), "same": np.ones((25, 2))}
    weights = {name: rng.uniform(1, 2, len(table)) for name, table in rows.items()}
    tables, masses = split_nodes(rows, 3, most_rows=20, weights=weights)
    assert list(tables) == ["big/1", "big/2", "big/3", "small", "same/1", "same/2"]
    assert masses is not None
    for name, table in rows.items():
        parts = [part for part in tables if part.split("/")[0] == name]
        found = np.concatenate([np.column_stack([tables[part], masses[part]]) for part in parts])
        expected = np.column_stack([table, weights[name]])
        np.testing.assert_array_equal(found[np.lexsort(found.T)], expected[np.lexsort(expected.T)])
    assert split_nodes(rows, 3, most_rows=50)[1] is None
    with pytest.raises(InvalidInput, match="most_rows=0"):
        split_nodes(rows, 3, most_rows=0)
