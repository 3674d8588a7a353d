"""The bound on what axes leave out, against all partitions of few rows in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from consentroid.core.errors import CertificateInvalid
from consentroid.verify.arithmetic import basis_norm
from consentroid.verify.spectrum import RowMoments, added, rest_bound

Exact = list[list[Fraction]]


def exact(matrix: np.ndarray) -> Exact:
    return [[Fraction(float(entry)) for entry in row] for row in np.atleast_2d(matrix)]


def least_rest(x: np.ndarray, w: np.ndarray, basis: np.ndarray, norm: float, k: int) -> Fraction:
    """min_P Σ_clusters Σ w v ᵀ(I − AAᵀ/G²) v, v = x − mean of its cluster; every number as it is."""
    rows, weights, a = exact(x), [Fraction(float(one)) for one in w], exact(basis)
    d, best = x.shape[1], None
    for labels in product(range(k), repeat=len(x)):
        if any(label > max(labels[:i], default=-1) + 1 for i, label in enumerate(labels)):
            continue  # the same partition under other names
        cost = Fraction(0)
        for cluster in range(k):
            members = [i for i, label in enumerate(labels) if label == cluster]
            mass = sum(weights[i] for i in members)
            if not mass:
                continue
            mean = [sum(weights[i] * rows[i][f] for i in members) / mass for f in range(d)]
            for i in members:
                v = [rows[i][f] - mean[f] for f in range(d)]
                kept = sum(sum(v[f] * a[f][e] for f in range(d)) ** 2 for e in range(len(a[0])))
                cost += weights[i] * (sum(one * one for one in v) - kept / Fraction(norm) ** 2)
        best = cost if best is None else min(best, cost)
    assert best is not None
    return best


def problem(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, 7)), int(rng.integers(1, 5))
    x = rng.normal(size=(n, d)) * rng.choice([1.0, 1e-3, 30.0], size=d)
    if seed % 4 == 1:
        x = rng.integers(0, 3, size=(n, d)).astype(float)
    elif seed % 4 == 2:
        x = x * 10.0 ** rng.integers(-60, 60) + (seed % 8 == 2) * 1e3
    elif seed % 4 == 3:
        x += 10.0 ** rng.integers(2, 9)
    w = 2.0 ** rng.integers(-3, 4, n) if seed % 3 == 0 else np.ones(n)
    turned = np.linalg.qr(rng.normal(size=(d, d)))[0]
    kept = rng.choice([0.0, 0.3, 0.9, 1.0], size=d) if seed % 5 else np.zeros(d)
    return x, w, turned * np.sqrt(kept), int(rng.integers(1, 4))


@pytest.mark.parametrize("block", range(6))
def test_never_above_what_the_best_partition_costs(block: int) -> None:
    useful = 0
    for seed in range(block * 25, block * 25 + 25):
        x, w, basis, k = problem(seed)
        norm = basis_norm(basis)
        origin = x.mean(axis=0) if seed % 2 else x[0] + 1.0
        half = len(x) // 2
        parts = [RowMoments.of(x[i:j], w[i:j], origin) for i, j in ((0, half), (half, len(x))) if j > i]
        bound = rest_bound(added(parts), basis, norm, k)
        assert Fraction(bound) <= least_rest(x, w, basis, norm, k), seed
        useful += bound > 0.0
    assert useful >= 5


def test_one_cluster_is_bounded_by_its_own_scatter() -> None:
    x = np.random.default_rng(1).normal(size=(40, 3))
    bound = rest_bound(RowMoments.of(x, np.ones(40), x.mean(axis=0)), np.zeros((3, 3)), 1.0, 1)
    assert bound == pytest.approx(((x - x.mean(axis=0)) ** 2).sum(), rel=1e-12)


def test_moments_that_may_be_off_prove_less() -> None:
    x = np.random.default_rng(2).normal(size=(40, 3))
    moments = RowMoments.of(x, np.ones(40), x.mean(axis=0))
    sure = rest_bound(moments, np.zeros((3, 3)), 1.0, 2)
    doubtful = rest_bound(added([moments], (0.0, 0.0, 0.1)), np.zeros((3, 3)), 1.0, 2)
    assert 0.0 < doubtful < sure - 0.1
    assert rest_bound(added([moments], (41.0, 0.0, 0.0)), np.zeros((3, 3)), 1.0, 2) == 0.0  # no weight for sure


def test_as_many_clusters_as_axes_leave_nothing() -> None:
    x = np.random.default_rng(3).normal(size=(20, 2))
    moments = RowMoments.of(x, np.ones(20), x.mean(axis=0))
    assert rest_bound(moments, np.zeros((2, 2)), 1.0, 2) > 0.0
    assert rest_bound(moments, np.zeros((2, 2)), 1.0, 3) == 0.0


def test_the_norm_of_shortened_axes() -> None:
    turned = np.linalg.qr(np.random.default_rng(4).normal(size=(5, 5)))[0]
    for kept in (np.zeros(5), np.array([1.0, 0.5, 0.0, 1.0, 1e-9])):
        basis = turned * np.sqrt(kept)
        assert np.linalg.norm(basis, 2) <= basis_norm(basis) <= 1.0 + 1e-11
    with pytest.raises(CertificateInvalid, match="orthogonal"):
        basis_norm(turned * 1.1)
    with pytest.raises(CertificateInvalid, match="orthogonal"):
        basis_norm(np.array([[1.0, 0.5], [0.0, 0.5]]))
