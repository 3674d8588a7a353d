"""Prices on pairs and triangles: bounds against all clusterings in fractions, every fast path against a slow one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest

from consentroid.core.errors import NodeRefused
from consentroid.protocol.messages import ImprovePairs
from consentroid.site.guard import Guard
from consentroid.site.kernels.pairs import TILE, settle, spread_triangles, sweep_triangles, violated_triangles
from consentroid.site.pairs import prices as pair_prices
from consentroid.site.pairs import proof as pair_proof
from consentroid.site.pairs.prices import PairPrices, clipped_to
from consentroid.site.pairs.proof import PairFile, PairProof, PairRows, lowest_space, price_matrix, prove
from consentroid.site.pairs.site import SitePairs
from consentroid.site.pairs.top_space import TopSpace
from consentroid.verify import pairs as pair_checks
from consentroid.verify.pairs import checked, pairs_bound
from draws import draws
from reference_prover import exact_optimum


def by_the_checker(proof: PairProof, x: np.ndarray, w: np.ndarray, n_clusters: int) -> float:
    file = PairFile.of([(np.arange(len(x)), proof)])
    stored = checked({name.removeprefix("pair_"): array for name, array in file.arrays.items()}, "a")
    return pairs_bound(x, w, stored, n_clusters)


def problem(rng: np.random.Generator, seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Few rows: offsets, scales, weights, ties."""
    n, d = int(rng.integers(3, 8)), int(rng.integers(1, 4))
    x = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-3, 4) + rng.normal() * 10.0 ** rng.integers(-2, 5)
    if seed % 4 == 0:
        x[1] = x[0]
    if seed % 5 == 0:
        x += 1e3 * rng.integers(0, 2, size=(n, 1))
    w = rng.uniform(0.1, 3.0, n) if seed % 3 else np.ones(n)
    return x, w, int(rng.integers(2, min(4, n - 1) + 1))


def any_prices(rng: np.random.Generator, x: np.ndarray, w: np.ndarray, n_clusters: int) -> PairProof:
    """Pairs, triangles and their prices drawn at random."""
    n, rows = len(x), PairRows.of(x, w)
    pairs = (rng.exponential(size=(n, n)) * rng.integers(0, 2, (n, n))).astype(np.float32)
    triangles = np.array([rng.permutation(n)[:3] for _ in range(4)], np.int32)
    scale = float((rows.y**2).sum()) * 10.0 ** rng.integers(-4, 1)
    return prove(rows, pairs, scale, triangles, rng.exponential(size=4), n_clusters, lowest_space(rows, n_clusters))


@pytest.mark.parametrize("block", range(3))
def test_no_prices_prove_more_than_the_optimum(block: int) -> None:
    rng, proven = np.random.default_rng(block), 0
    for seed in range(draws(25)):
        x, w, k = problem(rng, seed)
        best = exact_optimum(x, w, k)
        improved = PairPrices(x, w, k)
        improved.improve(90)
        for proof in (improved.proof(), *(any_prices(rng, x, w, k) for _ in range(6))):
            checks = by_the_checker(proof, x, w, k)
            assert Fraction(proof.bound) <= best, seed
            assert Fraction(checks) <= best, seed
            assert proof.bound <= checks, "the checker agrees with what is told"
            proven += proof.bound > 0.5 * float(best)
    assert proven > 15  # so that a bound above the optimum would be seen


@pytest.mark.parametrize("scale", [1e-140, 1.0, 1e140])
def test_extreme_numbers_prove_nothing_false(scale: float) -> None:
    rng = np.random.default_rng(3)
    x = (rng.normal(size=(7, 2)) + 4.0 * rng.integers(0, 2, size=(7, 1))) * scale
    for w in (np.array([1e-6, 1.0, 1e6, 1.0, 2.0, 1e-3, 1.0]), np.array([1e-250, 1.0, 1e9, 1.0, 2.0, 1e-300, 1.0])):
        site = SitePairs(x, w, None, Guard())
        told, best = site.improve(ImprovePairs(2, 60), None), exact_optimum(x, w, 2)
        assert Fraction(told.bound) <= best
        for part in site._parts:
            assert told.bound <= Fraction(by_the_checker(part.best, x, w, 2)) <= best


def test_many_features_are_proven_tight() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 20)) + 2.5 * rng.normal(size=(3, 20))[rng.integers(0, 3, 60)]
    labels = ((x[:, None] - x[None, [0, 1, 2]]) ** 2).sum(axis=2).argmin(axis=1)
    for _ in range(50):
        centroids = np.array([x[labels == k].mean(axis=0) if (labels == k).any() else x[k] for k in range(3)])
        labels = ((x[:, None] - centroids) ** 2).sum(axis=2).argmin(axis=1)
    cost = ((x - centroids[labels]) ** 2).sum()
    improved = PairPrices(x, np.ones(60), 3)
    improved.improve(240)
    assert improved.proof().bound > 0.0
    other = PairPrices(np.repeat(x, 2, axis=0), np.full(120, 0.5), 3)  # a row twice is a row of twice the weight
    other.improve(240)
    assert improved.proof().bound <= cost * (1.0 + 1e-9)
    assert other.proof().bound == pytest.approx(improved.proof().bound, rel=2e-3)


def test_triangles_close_what_pairs_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(5).normal(size=(40, 6))
    bounds = []
    for before in (10**9, 60):
        monkeypatch.setattr(pair_prices, "BEFORE_TRIANGLES", before)
        improved = PairPrices(x, np.ones(40), 4)
        improved.improve(300)
        bounds.append(improved.proof().bound)
    assert bounds[1] > bounds[0] * 1.01


def test_two_threads_prove_what_one_does() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(700, 5)) + 3.0 * rng.normal(size=(3, 5))[np.arange(700) % 3]
    w, bounds = rng.uniform(0.5, 2.0, 700), []
    for pool in (None, ThreadPoolExecutor(2)):
        improved = PairPrices(x, w, 3, pool)
        improved.improve(60)
        proof = improved.proof()
        bounds.append(proof.bound)
        assert 0.0 < proof.bound <= by_the_checker(proof, x, w, 3)
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-4)


def test_a_step_is_what_the_method_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against matrices of all triangles, in doubles, without tiles or halves."""
    monkeypatch.setattr(pair_prices, "BEFORE_TRIANGLES", 3)
    monkeypatch.setattr(pair_prices, "BETWEEN", 10**9)
    monkeypatch.setattr(pair_prices, "CALMER", 1.0)
    rng = np.random.default_rng(4)
    x, w, k = rng.normal(size=(12, 3)), rng.uniform(0.5, 2.0, 12), 3
    fast = PairPrices(x, w, k)
    rows = PairRows.of(x, w)
    n, e = 12, rows.q / np.linalg.norm(rows.q)
    matrices: list[np.ndarray] = []
    slow_w, pairs, prices = np.outer(e, e), np.zeros((n, n)), np.zeros(0)
    for step in range(1, 8):
        fast.improve(1)
        target = slow_w + pairs - sum((v * t for v, t in zip(prices, matrices)), np.zeros((n, n)))
        target += rows.y @ rows.y.T / fast._scale
        inner = np.eye(n) - np.outer(e, e)
        values, vectors = np.linalg.eigh(inner @ target @ inner)
        z = np.outer(e, e) + (vectors * clipped_to(values, k - 1.0)) @ vectors.T
        slow_w = pair_prices.BEYOND * z + (1.0 - pair_prices.BEYOND) * slow_w
        slow_w, pairs = _not_negative(slow_w, pairs)
        if step == 3:
            matrices = [_triangle(n, rows.q, *three) for three in fast.triangles.tolist()]
            prices = np.zeros(len(matrices))
        for t, matrix in enumerate(matrices):
            norm = (matrix**2).sum() + (fast._ease - 1.0) * (np.diag(matrix) ** 2).sum()
            price = max(0.0, prices[t] + (matrix * slow_w).sum() / norm)
            eased = matrix + (fast._ease - 1.0) * np.diag(np.diag(matrix))
            slow_w, prices[t] = slow_w - (price - prices[t]) * eased, price
        if len(matrices):
            slow_w, pairs = _not_negative(slow_w, pairs)
        lower = np.tril_indices(n, -1)
        np.testing.assert_allclose(np.tril(fast._w), np.tril(slow_w), atol=2e-6)
        np.testing.assert_allclose(fast.pairs[lower], pairs[lower], atol=2e-6)
        np.testing.assert_allclose(fast.prices, prices, atol=2e-5)
    assert len(matrices) > 10
    assert prices.max() > 0.0


def _not_negative(w: np.ndarray, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    new = np.maximum(pairs - w, 0.0) * (1.0 - np.eye(len(w)))
    return w + new - pairs, new


def _triangle(n: int, q: np.ndarray, i: int, j: int, k: int) -> np.ndarray:
    t = np.zeros((n, n))
    for a, b, sign in ((i, j, 0.5), (i, k, 0.5), (j, k, -0.5)):
        t[a, b] = t[b, a] = sign / (q[a] * q[b])
    t[i, i] = -1.0 / q[i] ** 2
    return t


def test_triangles_are_the_most_violated_ones() -> None:
    rng = np.random.default_rng(6)
    b = rng.uniform(0.0, 1.0, (9, 9)).astype(np.float32)
    b += b.T
    candidates = np.tile(np.arange(9, dtype=np.int32), (9, 1))
    third, amounts = np.full((9, 9), -1, np.int32), np.empty((9, 9), np.float32)
    violated_triangles(b, candidates, 0, 9, np.float32(1e-3), third, amounts)
    for i in range(9):
        for j in set(range(9)) - {i}:
            over = {k: b[i, j] + b[i, k] - b[i, i] - b[j, k] for k in set(range(9)) - {i, j}}
            best = max(over, key=lambda k: over[k])
            assert amounts[i, j] == pytest.approx(max(over[best], 0.0) if over[best] > 1e-3 else 0.0, abs=1e-6)
            assert third[i, j] == best or over[best] <= 1e-3
        assert amounts[i, i] == 0.0


@pytest.mark.parametrize("n", [5, TILE, 2 * TILE + 7])
def test_what_triangles_take_off_is_kept_up_to_date(n: int) -> None:
    """And the matrix of the next step is W + Π − Σ v T of all of them, whatever tile a pair is in."""
    rng = np.random.default_rng(7)
    phi = rng.uniform(0.5, 2.0, n).astype(np.float32)
    w = np.tril(rng.normal(size=(n, n))).astype(np.float32)
    before, pairs = w.copy(), np.tril(rng.exponential(size=(n, n)), -1).astype(np.float32)
    triangles, prices = np.array([rng.permutation(n)[:3] for _ in range(4 * n)], np.int32), np.zeros(4 * n)
    between, of = np.zeros((n, n), np.float32), np.zeros(n, np.float32)
    for _ in range(3):
        sweep_triangles(w, triangles, prices, phi, 1.0, between, of)
    assert prices.max() > 0.0
    anew, of_anew = np.empty_like(between), np.empty_like(of)
    spread_triangles(triangles, prices, phi, anew, of_anew)
    np.testing.assert_allclose(between, anew, atol=1e-4)
    np.testing.assert_allclose(of, of_anew, atol=1e-4)
    np.testing.assert_allclose(w, before - between + np.diag(of), atol=1e-4)
    moved, new = _not_negative(w.astype(float), pairs.astype(float))
    full = np.empty_like(w)
    settle(w, pairs, between, of, 0, -(-n // TILE), full)
    lower = np.tril_indices(n, -1)
    np.testing.assert_allclose(w[lower], moved[lower], atol=1e-5)
    np.testing.assert_allclose(pairs[lower], new[lower], atol=1e-5)
    whole = np.tril(w + pairs - between, -1)
    np.testing.assert_allclose(full, whole + whole.T + np.diag(np.diag(w) + of), atol=1e-5)


def test_the_price_matrix_is_the_sum_of_all_terms() -> None:
    rng = np.random.default_rng(8)
    n, q = 9, rng.uniform(0.5, 2.0, 9)
    halves = rng.uniform(0.0, 2.0, n * (n - 1) // 2).astype(np.float16)
    triangles, prices = np.array([rng.permutation(n)[:3] for _ in range(7)], np.int32), rng.uniform(0.0, 1.0, 7)
    u, row_sum, n_terms = price_matrix(halves, 0.25, triangles, prices, q)
    slow = np.zeros((n, n))
    slow[np.tril_indices(n, -1)] = halves * 0.25
    slow += slow.T
    for three, price in zip(triangles.tolist(), prices):
        slow -= price * _triangle(n, q, *three)
    np.testing.assert_allclose(u, slow, atol=1e-12)
    assert row_sum >= np.abs(slow).sum(axis=1).max() * (1.0 - 1e-12)
    assert n_terms >= 4


@pytest.mark.parametrize("n", [50, 450])
def test_the_top_space_follows_a_matrix(n: int) -> None:
    rng = np.random.default_rng(9)
    turn = np.linalg.qr(rng.normal(size=(n, n)))[0]
    without = turn[:, 0].copy()
    space = TopSpace(without, 5)
    for step in range(12):
        values = np.concatenate([[50.0], 10.0 - np.arange(8), rng.uniform(-3.0, 1.0, n - 9)])
        matrix = (turn * values) @ turn.T
        found, vectors = space.of(lambda v, m=matrix: m @ v - np.outer(without, without @ (m @ v)))
        if step > 8:
            np.testing.assert_allclose(found[:5], 10.0 - np.arange(5), rtol=1e-4)
            assert np.abs(without @ vectors).max() < 1e-6


def test_clipping_keeps_the_sum() -> None:
    values = np.random.default_rng(11).normal(size=30)
    for total in (0.5, 3.0, 29.0):
        clipped = clipped_to(values, total)
        assert clipped.sum() == pytest.approx(total)
        assert clipped.min() >= 0.0
        assert clipped.max() <= 1.0


def test_a_site_keeps_its_best_proof(tmp_path) -> None:
    rng = np.random.default_rng(12)
    x, w = rng.normal(size=(30, 5)), np.ones(30)
    site = SitePairs(x, w, None, Guard())
    bounds = [site.improve(ImprovePairs(3, 30), None).bound for _ in range(4)]
    assert bounds == sorted(bounds)
    kept = site.improve(ImprovePairs(3, 0, keep=True), tmp_path / "prices.npz")
    assert kept.bound == bounds[-1]
    assert (tmp_path / "prices.npz").stat().st_mode & 0o077 == 0
    with np.load(tmp_path / "prices.npz") as stored:
        arrays = {name.removeprefix("pair_"): stored[name] for name in stored}
    assert pairs_bound(x, w, checked(arrays, "a"), 3) >= kept.bound
    coarse = SitePairs(x, w, None, Guard(least=5))
    assert bounds[0] * (1 - 2.0**-12) <= coarse.improve(ImprovePairs(3, 30), None).bound <= bounds[0]


def test_a_file_holds_no_more_triangles_than_the_checker_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pair_proof.MOST_TRIANGLES == pair_checks.MOST_TRIANGLES
    x = np.random.default_rng(5).normal(size=(40, 6))
    improved = PairPrices(x, np.ones(40), 4)
    improved.improve(150)
    whole = improved.proof()
    monkeypatch.setattr(pair_proof, "MOST_TRIANGLES", 2)
    part = improved.proof()
    assert len(part.prices) == 80 < len(whole.prices)
    assert part.prices.min() >= np.sort(whole.prices)[-80]
    assert part.bound <= by_the_checker(part, x, np.ones(40), 4) < whole.bound


def test_nearly_as_many_clusters_as_rows_tell_nothing_of_a_pair_of_rows() -> None:
    x = np.random.default_rng(13).normal(size=(12, 2))
    assert SitePairs(x, np.ones(12), None, Guard()).improve(ImprovePairs(11, 60), None).bound > 0.0
    for masked in (False, True):
        careful = SitePairs(x, np.ones(12), None, Guard(least=5, masked=masked))
        assert careful.improve(ImprovePairs(11, 60), None).bound == 0.0
        assert careful.improve(ImprovePairs(3, 60), None).bound == 0.0
        assert careful.improve(ImprovePairs(2, 60), None).bound > 0.0


def test_a_site_that_cannot_says_nothing_and_refuses_nonsense() -> None:
    site = SitePairs(np.zeros((3, 2)), np.ones(3), None, Guard())
    for k in (1, 3, 7):
        assert site.improve(ImprovePairs(k, 30), None).bound == 0.0
    for request in (ImprovePairs(0, 30), ImprovePairs(2, -1), ImprovePairs(2, 10**6)):
        with pytest.raises(NodeRefused):
            site.improve(request, None)
    assert site.improve(ImprovePairs(2, 30), None).bound == 0.0  # all rows in one place
