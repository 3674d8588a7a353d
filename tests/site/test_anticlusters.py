"""Rows dealt into parts that are alike: every row once, means that agree; what a site tells of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from consentroid.core.arrays import nearest
from consentroid.core.errors import NodeRefused
from consentroid.protocol.messages import ImprovePairs
from consentroid.site.guard import Guard
from consentroid.site.kernels.dealing import exchange
from consentroid.site.pairs import site as site_pairs
from consentroid.site.pairs.anticlusters import deal
from consentroid.site.pairs.site import SitePairs
from reference_prover import exact_optimum


def mixture(n: int, d: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = 3.0 * rng.normal(size=(k, d))
    return rng.normal(size=(n, d)) + centres[rng.integers(k, size=n)], centres


def cost_of(x: np.ndarray, w: np.ndarray, label: np.ndarray) -> float:
    means = {k: np.average(x[label == k], axis=0, weights=w[label == k]) for k in np.unique(label)}
    return sum(float(w[label == k] @ ((x[label == k] - mean) ** 2).sum(axis=1)) for k, mean in means.items())


@pytest.mark.parametrize(("n", "most"), [(301, 100), (300, 7), (10, 9), (50, 1)])
def test_every_row_is_dealt_once(n: int, most: int) -> None:
    x, centres = mixture(n, 4, 3)
    parts, _ = deal(x, np.ones(n), centres, most)
    assert sorted(np.concatenate(parts)) == list(range(n))
    sizes = [len(part) for part in parts]
    assert len(sizes) == -(-n // most)
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1


def test_all_together_if_there_is_room() -> None:
    x, centres = mixture(20, 2, 2)
    (rows,), _ = deal(x, np.ones(20), centres, 20)
    assert rows.tolist() == list(range(20))


def test_means_of_clusters_agree() -> None:
    """What the parts cost by themselves, with the common clusters, is next to what all cost; far less so if rows are
    dealt at random."""
    x, centres = mixture(1_200, 6, 4)
    w, rng = np.random.default_rng(1).uniform(0.5, 2.0, 1_200), np.random.default_rng(2)
    label = nearest(x, centres)
    whole = cost_of(x, w, label)
    lost = []
    for parts in (deal(x, w, centres, 200)[0], np.array_split(rng.permutation(1_200), 6)):
        lost.append(1.0 - sum(cost_of(x[part], w[part], label[part]) for part in parts) / whole)
    assert 0.0 <= lost[0] < 1e-4
    assert lost[1] > 50.0 * lost[0]


def test_rows_that_are_all_alike_or_all_of_one_cluster() -> None:
    for x in (np.zeros((30, 3)), np.random.default_rng(0).normal(size=(30, 3))):
        parts, _ = deal(x, np.ones(30), np.array([[0.0, 0.0, 0.0], [99.0, 99.0, 99.0]]), 8)
        assert sorted(np.concatenate(parts)) == list(range(30))


def unlike(offsets: np.ndarray, dealt: np.ndarray) -> float:
    return sum(float((offsets[dealt == part].sum(axis=0) ** 2).sum()) for part in np.unique(dealt))


def test_an_exchange_is_made_where_it_brings_sums_nearer_to_zero() -> None:
    """Against a slow oracle that adds up everything anew."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        n, n_parts = 12, 3
        offsets, order, dealt = rng.normal(size=(n, 2)), rng.permutation(n), rng.integers(n_parts, size=n)
        partners = rng.integers(1, 5, n)
        slow = dealt.copy()
        for at in range(n):
            if at + partners[at] < n:
                i, j = order[at], order[at + partners[at]]
                other = slow.copy()
                other[i], other[j] = slow[j], slow[i]
                if unlike(offsets, other) < unlike(offsets, slow):
                    slow = other
        sums = np.stack([offsets[dealt == part].sum(axis=0) for part in range(n_parts)])
        exchange(offsets, order, partners, dealt, sums)
        assert dealt.tolist() == slow.tolist()
        np.testing.assert_allclose(sums, [offsets[dealt == part].sum(axis=0) for part in range(n_parts)], atol=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_anticlusters_never_prove_more_than_the_optimum(seed: int) -> None:
    x, centres = mixture(9, 2, 2, seed)
    w = np.random.default_rng(seed).uniform(0.5, 2.0, 9)
    site = SitePairs(x, w, ThreadPoolExecutor(2) if seed % 2 else None, Guard())
    told = site.improve(ImprovePairs(2, 90, False, centres, 5), None)
    parts, _ = deal(x, w, centres, 5)
    assert 0.0 <= told.bound <= float(sum(exact_optimum(x[part], w[part], 2) for part in parts))
    assert told.bound <= float(exact_optimum(x, w, 2))


def test_reach_is_about_what_the_parts_cost_and_needs_no_step() -> None:
    """Here Lloyd's method finds the best clusterings of the parts, and prices come close to them."""
    x, centres = mixture(120, 4, 3)
    w = np.random.default_rng(0).uniform(0.5, 2.0, 120)
    for most in (120, 40):
        site = SitePairs(x, w, None, Guard())
        before = site.improve(ImprovePairs(3, 0, False, centres, most), None)
        after = site.improve(ImprovePairs(3, 90, False, centres, most), None)
        assert before.bound == 0.0
        assert before.reach == after.reach
        assert 0.98 * after.reach <= after.bound <= after.reach
    rough = SitePairs(x, w, None, Guard(least=2)).improve(ImprovePairs(3, 0, False, centres, 40), None)
    assert after.reach < rough.reach < 1.01 * after.reach


def test_anticlusters_of_too_few_rows_tell_nothing() -> None:
    x, centres = mixture(60, 3, 2)
    for guard, most, tells in ((Guard(), 20, True), (Guard(least=5), 20, True), (Guard(least=11), 20, False)):
        told = SitePairs(x, np.ones(60), None, guard).improve(ImprovePairs(2, 60, False, centres, most), None)
        assert (told.bound > 0.0) == tells
    assert SitePairs(x, np.ones(60), None, Guard()).improve(ImprovePairs(2, 60, False, centres, 2), None).bound == 0.0


def test_rows_that_are_not_dealt_are_not_taken_for_dealt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that names a size but no centroids would have a site make all pairs of any number of rows."""
    monkeypatch.setattr(site_pairs, "MOST_ROWS", 40)
    x, centres = mixture(60, 3, 2)
    for centroids, tells in ((centres, True), (None, False), (centres[:0], False)):
        told = SitePairs(x, np.ones(60), None, Guard()).improve(ImprovePairs(2, 60, False, centroids, 20), None)
        assert (told.bound > 0.0) == tells


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_rows_whose_squares_overflow_are_dealt_all_the_same() -> None:
    x, centres = mixture(60, 3, 2)
    assert sorted(np.concatenate(deal(1e160 * x, np.ones(60), centres, 20)[0])) == list(range(60))


def test_what_cannot_be_asked_is_refused() -> None:
    x, centres = mixture(60, 3, 2)
    site = SitePairs(x, np.ones(60), None, Guard())
    for request in (ImprovePairs(2, 1, False, centres[:, :2], 20), ImprovePairs(2, 1, False, centres, -1)):
        with pytest.raises(NodeRefused):
            site.improve(request, None)
