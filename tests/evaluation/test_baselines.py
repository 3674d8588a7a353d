"""Baselines do what their papers say."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans

from consentroid.core.errors import InvalidInput
from consentroid.core.problem import clustering_cost
from consentroid.evaluation.baselines import BASELINES, run_baseline


def blobs(seed: int, sizes: tuple[int, ...] = (12, 9, 14)) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])
    return {f"n{i}": centres[rng.integers(3, size=n)] + rng.normal(size=(n, 2)) for i, n in enumerate(sizes)}


def test_federated_lloyd_ends_in_a_fixed_point_of_pooled_lloyd() -> None:
    rows = blobs(0)
    outcome = run_baseline("lloyd", rows, 3)
    pooled = np.concatenate(list(rows.values()))
    again = KMeans(3, init=outcome.centroids, n_init=1, max_iter=300, tol=0).fit(pooled)
    np.testing.assert_allclose(again.cluster_centers_, outcome.centroids, rtol=1e-9)
    assert outcome.cost == pytest.approx(again.inertia_, rel=1e-12)


@pytest.mark.parametrize("method", BASELINES)
def test_every_baseline_reports_its_true_cost_and_traffic(method: str) -> None:
    rows = blobs(1)
    outcome = run_baseline(method, rows, 3, seed=4)
    pooled = np.concatenate(list(rows.values()))
    assert outcome.centroids.shape == (3, 2)
    assert outcome.cost == pytest.approx(clustering_cost(pooled, np.ones(len(pooled)), outcome.centroids), rel=1e-12)
    assert outcome.rows_leave == (method == "pooled")
    if method == "pooled":
        assert (outcome.rounds, outcome.bytes_up) == (1, 8 * pooled.size)
    elif method == "k-fed":
        assert (outcome.rounds, outcome.bytes_up, outcome.bytes_down) == (1, 8 * 3 * 3 * 2, 0)
    else:
        assert outcome.rounds > 1
    repeated = run_baseline(method, rows, 3, seed=4)
    np.testing.assert_array_equal(repeated.centroids, outcome.centroids)


@pytest.mark.parametrize("method", BASELINES)
def test_weights_equal_copies_on_separated_clusters(method: str) -> None:
    rows = blobs(2)
    weights = {name: 1.0 + np.arange(len(table)) % 2 for name, table in rows.items()}
    copies = {name: np.repeat(table, weights[name].astype(int), axis=0) for name, table in rows.items()}
    left, right = run_baseline(method, rows, 3, weights=weights), run_baseline(method, copies, 3)
    # k-FED projects unweighted rows, so its seeds may differ; well separated clusters make them agree.
    np.testing.assert_allclose(left.centroids, right.centroids, rtol=1e-6, atol=1e-9)


def test_k_fed_finds_clusters_that_no_node_has_all_of() -> None:
    rng = np.random.default_rng(3)
    centres = np.array([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0], [20.0, 20.0]])
    rows = {f"n{i}": centre + rng.normal(size=(15, 2)) for i, centre in enumerate(centres)}
    outcome = run_baseline("k-fed", rows, 4, local_clusters=1)
    means = np.array([table.mean(axis=0) for table in rows.values()])
    np.testing.assert_allclose(outcome.centroids, means[np.lexsort(means.T[::-1])], rtol=1e-12)
    assert outcome.bytes_up == 4 * 2 * 8


def test_nodes_with_fewer_distinct_rows_than_clusters() -> None:
    rows = {"a": np.zeros((4, 1)), "b": np.array([[1.0], [1.0], [5.0]])}
    for method in BASELINES:
        assert run_baseline(method, rows, 3).cost == pytest.approx(0.0, abs=1e-12), method


def test_unknown_baseline() -> None:
    with pytest.raises(InvalidInput, match="unknown baseline 'magic'; choose one of lloyd"):
        run_baseline("magic", {"a": [[0.0]]}, 1)
