"""Special cases, each with an answer that is known in another way."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from consentroid.core.errors import InvalidInput
from consentroid.core.problem import Domain, NodeData
from consentroid.fitting import fit
from consentroid.protocol.messages import Moments, MomentSums
from consentroid.rowprices.coordinates import spectral_bound
from consentroid.site.worker import SiteWorker
from oracle import clustering_optimum, exact
from row_problems import row_problem

RNG = np.random.default_rng(17)
ROWS = np.concatenate([RNG.normal(size=(12, 2)), RNG.normal(size=(12, 2)) + 5.0, RNG.normal(size=(12, 2)) - [6.0, 2.0]])


def line_optimum(x: np.ndarray, n_clusters: int) -> Fraction:
    """One feature: clusters are runs of the sorted rows."""
    rows = sorted(exact(x.ravel()))
    n = len(rows)

    def run(i: int, j: int) -> Fraction:
        part = rows[i:j]
        return sum(v * v for v in part) - sum(part) ** 2 / len(part)

    best = [run(0, j) if j else Fraction(0) for j in range(n + 1)]
    for _ in range(n_clusters - 1):
        best = [min([best[j], *(best[i] + run(i, j) for i in range(1, j))]) for j in range(n + 1)]
    return best[n]


def test_one_cluster_is_the_mean() -> None:
    result = fit({"a": ROWS[:10], "b": ROWS[10:]}, 1, gap=1e-9)
    assert result.certified
    np.testing.assert_allclose(result.centroids[0], ROWS.mean(axis=0), atol=1e-7)
    assert result.upper_bound == pytest.approx(((ROWS - ROWS.mean(axis=0)) ** 2).sum(), rel=1e-9)


def test_as_many_clusters_as_distinct_rows_cost_nothing() -> None:
    rows = np.array([[0.0, 1.0], [2.0, 3.0], [2.0, 3.0], [5.0, -1.0], [0.0, 1.0]])
    result = fit({"a": rows[:2], "b": rows[2:]}, 3)
    assert result.upper_bound == 0.0
    assert result.lower_bound == 0.0
    assert result.certified
    assert result.gap == 0.0


@pytest.mark.parametrize("n", [2, 5, 9])
def test_every_row_its_own_cluster(n: int) -> None:
    rows = np.random.default_rng(n).normal(size=(n, 2)) * 1e3
    result = fit({"a": rows}, n)
    assert result.upper_bound <= 1e-20
    assert result.upper_bound == 0.0 or not result.certified or result.gap <= 1e-4


def test_more_clusters_than_distinct_rows_are_refused() -> None:
    with pytest.raises(InvalidInput, match="n_clusters=3 exceeds the 2 distinct rows"):
        fit({"a": [[0.0], [0.0]], "b": [[1.0], [1.0]]}, 3)
    with pytest.raises(InvalidInput, match="distinct rows"):
        fit({"a": [[0.0], [1.0]]}, 2, weights={"a": [1.0, 0.0]})


def test_all_rows_equal() -> None:
    result = fit({"a": np.full((4, 3), 2.5), "b": np.full((2, 3), 2.5)}, 1)
    assert result.upper_bound == 0.0
    assert result.certified
    np.testing.assert_array_equal(result.centroids, np.full((1, 3), 2.5))


@pytest.mark.parametrize("seed", range(6))
def test_one_feature_against_dynamic_programming(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(24, 1)) * 3 if seed % 2 else rng.integers(0, 30, size=(24, 1)).astype(float)
    k = 2 + seed % 4
    result = fit({"a": x[:9], "b": x[9:]}, k, gap=1e-6, seed=seed)
    assert Fraction(result.lower_bound) <= line_optimum(x, k) <= Fraction(result.upper_bound)
    assert result.certified


def test_constant_features_change_nothing() -> None:
    wide = np.column_stack([ROWS[:, 0], np.full(len(ROWS), 1e6), ROWS[:, 1], np.zeros(len(ROWS))])
    result, plain = fit({"a": wide}, 3), fit({"a": ROWS}, 3)
    assert result.certified
    assert result.upper_bound == pytest.approx(plain.upper_bound, rel=1e-9)
    np.testing.assert_allclose(result.centroids[:, [0, 2]], plain.centroids, atol=1e-6)


def test_duplicates_are_weights() -> None:
    counts = np.random.default_rng(0).integers(1, 4, len(ROWS))
    copies = np.repeat(np.arange(len(ROWS)), counts)
    weighted = fit({"a": ROWS}, 3, weights={"a": counts.astype(float)}, gap=1e-6)
    repeated = fit({"a": ROWS[copies[::2]], "b": ROWS[copies[1::2]]}, 3, gap=1e-6)
    assert weighted.certified
    assert repeated.certified
    assert weighted.upper_bound == pytest.approx(repeated.upper_bound, rel=2e-6)
    np.testing.assert_allclose(weighted.centroids, repeated.centroids, atol=1e-4)


def test_rows_without_weight_count_for_nothing() -> None:
    far = np.concatenate([ROWS, [[1e6, -1e6]]])
    weights = np.append(np.ones(len(ROWS)), 0.0)
    result, plain = fit({"a": far}, 3, weights={"a": weights}), fit({"a": ROWS}, 3)
    assert result.certified
    np.testing.assert_allclose(result.centroids, plain.centroids, atol=1e-9)
    assert result.upper_bound == pytest.approx(plain.upper_bound, rel=1e-9)


def test_more_features_than_rows() -> None:
    rows = np.random.default_rng(4).normal(size=(6, 12))
    rows[3:] += 4.0
    result = fit({"a": rows[:2], "b": rows[2:]}, 2, gap=1e-6)
    assert result.certified
    assert Fraction(result.lower_bound) <= clustering_optimum(rows, np.ones(6), 2) <= Fraction(result.upper_bound)


def test_a_domain_with_nobody_in_most_of_it() -> None:
    domain = Domain(np.array([-1e4, -50.0]), np.array([30.0, 1e9]))
    result, plain = fit({"a": ROWS}, 3, domain=domain), fit({"a": ROWS}, 3)
    assert result.certified
    np.testing.assert_allclose(result.centroids, plain.centroids, atol=1e-6)


def test_the_bound_from_moments_is_below_the_optimum() -> None:
    positive = 0
    for seed in range(240):
        problem = row_problem(seed, most_rows=7)
        x, _ = problem.pooled
        reference = 0.5 * x.min(axis=0) + 0.5 * x.max(axis=0)
        parts = [
            SiteWorker(NodeData.checked(name, rows, problem.weights[name]))._moments(Moments(reference))
            for name, rows in problem.rows.items()
        ]
        sums = MomentSums(*(sum(getattr(part, name) for part in parts) for name in ("weight", "sums", "products")))
        bound = spectral_bound(sums, problem.n_clusters, len(x), len(parts), float(np.abs(x).max()))
        assert Fraction(bound) <= problem.optimum, seed
        positive += bound > 0.0
    assert positive > 60


@pytest.mark.parametrize("exponent", [-165, -160, -158, -156, -154, -150])
def test_the_bound_from_moments_knows_underflow(exponent: int) -> None:
    rows = np.random.default_rng(exponent + 200).normal(size=(6, 3)) * 10.0**exponent
    moments = SiteWorker(NodeData.checked("a", rows))._moments(Moments(np.zeros(3)))
    for k in (1, 2):
        bound = spectral_bound(moments, k, 6, 1, float(np.abs(rows).max()))
        assert Fraction(bound) <= clustering_optimum(rows, np.ones(6), k)
