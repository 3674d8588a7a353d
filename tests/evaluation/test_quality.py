"""Indices from sums over nodes equal scikit-learn's on pooled rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import calinski_harabasz_score, davies_bouldin_score, silhouette_score

from consentroid.core.arrays import nearest
from consentroid.core.errors import InvalidInput
from consentroid.evaluation.quality import quality


@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.integers(1, 4), st.integers(1, 4))
def test_equal_to_pooled(seed: int, n_clusters: int, n_nodes: int, n_features: int) -> None:
    rng = np.random.default_rng(seed)
    centres = 5 * rng.normal(size=(n_clusters, n_features)) + 100
    rows = {
        f"n{i}": centres[rng.integers(n_clusters, size=20)] + rng.normal(size=(20, n_features)) for i in range(n_nodes)
    }
    pooled = np.concatenate(list(rows.values()))
    candidates = centres + 0.3 * rng.normal(size=centres.shape)
    labels = nearest(pooled, candidates)
    ours = quality(rows, candidates)
    assert ours.inertia == pytest.approx(((pooled - candidates[labels]) ** 2).sum(), rel=1e-12)
    np.testing.assert_array_equal(ours.counts, np.bincount(labels, minlength=n_clusters))
    if len(np.unique(labels)) < 2:
        assert math.isnan(ours.silhouette)
        assert math.isnan(ours.calinski_harabasz)
        assert math.isnan(ours.davies_bouldin)
        return
    assert ours.calinski_harabasz == pytest.approx(calinski_harabasz_score(pooled, labels), rel=1e-10)
    assert ours.davies_bouldin == pytest.approx(davies_bouldin_score(pooled, labels), rel=1e-10)
    assert ours.silhouette == pytest.approx(silhouette_score(pooled, labels, metric="sqeuclidean"), rel=1e-7, abs=1e-9)


@given(st.integers(0, 2**32 - 1))
def test_weights_are_copies(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = {"a": rng.normal(size=(8, 2)), "b": 1 + rng.normal(size=(5, 2))}
    weights = {name: rng.integers(1, 4, len(table)).astype(float) for name, table in rows.items()}
    copies = {name: np.repeat(table, weights[name].astype(int), axis=0) for name, table in rows.items()}
    centroids = rng.normal(size=(3, 2))
    left, right = quality(rows, centroids, weights=weights), quality(copies, centroids)
    for name in ("inertia", "calinski_harabasz", "davies_bouldin", "silhouette"):
        np.testing.assert_allclose(getattr(left, name), getattr(right, name), rtol=1e-10)


def test_clusters_of_one_row_and_equal_rows() -> None:
    rows = {"a": np.array([[0.0], [0.0], [9.0]]), "b": np.array([[0.0]])}
    pooled, labels = np.concatenate(list(rows.values())), [0, 0, 1, 0]
    ours = quality(rows, [[0.0], [9.0]])
    assert ours.silhouette == silhouette_score(pooled, labels, metric="sqeuclidean")
    assert ours.davies_bouldin == davies_bouldin_score(pooled, labels) == 0
    assert ours.calinski_harabasz == calinski_harabasz_score(pooled, labels)


def test_features_must_agree() -> None:
    with pytest.raises(InvalidInput, match="node 'a' has 2 features, the centroids have 1"):
        quality({"a": np.zeros((3, 2))}, [[0.0]])
