"""Triples with fees at a site, against sets of rows in plain Python."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from consentroid.core.errors import NodeRefused
from consentroid.protocol.messages import (
    Coordinates,
    Examine,
    FindTriples,
    MakeColumns,
    MovePrices,
    PriceQuery,
    PriceReply,
    StartPrices,
    Trim,
)
from consentroid.protocol.price_rules import PriceRules
from consentroid.site import clumps
from consentroid.site.guard import Guard
from consentroid.site.kernels.triples import least_loss
from consentroid.site.price_files import SitePrices
from consentroid.site.prices import PricedRows
from consentroid.site.triples import ChosenTriples
from consentroid.verify import stored_prices
from consentroid.verify.stored_prices import clumps_of

POINTS = np.random.default_rng(5).normal(size=(9, 2)) * 0.8


def priced(n: int, seed: int = 0, guard: Guard | None = None) -> PricedRows:
    random = np.random.default_rng(seed)
    rows = PricedRows(random.normal(size=(n, 2)), random.uniform(0.5, 2.0, n), guard=guard or Guard())
    rows.locate(Coordinates(np.zeros(2), np.eye(2), 1.0))
    rows.start(StartPrices(0, np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])))
    return rows


def tied(n: int, n_triples: int, seed: int = 0) -> PricedRows:
    """With fees in slot 0 and columns made before there were triples; with odd seeds these share rows."""
    rows, random = priced(n, seed), np.random.default_rng(seed + 100)
    rows.make_columns(MakeColumns(0, 0, np.zeros(0, bool), POINTS[:4]))
    triples = random.permutation(n)[: 3 * n_triples].reshape(-1, 3)
    for i in range(1, n_triples, 2):
        triples[i, seed % 2 :] = triples[i - 1, seed % 2 :] if seed % 2 else triples[i]
    rows.triples.add(triples, rows.columns.bits)
    rows.triples.slots[0] = random.exponential(size=n_triples) * random.choice([0.0, 0.1, 1.0], n_triples)
    return rows


def best_set(rows: PricedRows, m: np.ndarray, slot: int = 0) -> tuple[float, set[int]]:
    """f(m) over all sets: rows for themselves, clumps of triples over all their subsets."""
    value = rows.weights * (((rows.y - m) ** 2).sum(axis=1) - rows.slots[slot])
    fees, in_triples = rows.triples.fees(slot), set(rows.triples.rows.ravel().tolist())
    chosen = {j for j in np.flatnonzero(value < 0.0).tolist() if j not in in_triples}
    total = sum(value[j] for j in chosen)
    for tied_rows, numbers in clumps_of(rows.triples.rows).items():
        due = [(set(rows.triples.rows[t].tolist()), fees[t]) for t in numbers]
        subsets = [some for n in range(len(tied_rows) + 1) for some in combinations(tied_rows, n)]
        costs = [
            sum(value[j] for j in some) + sum(fee for three, fee in due if len(three & set(some)) >= 2)
            for some in subsets
        ]
        total += min(costs)
        chosen |= set(subsets[int(np.argmin(costs))])
    return total, chosen


@pytest.mark.parametrize(("n", "n_triples"), [(3, 1), (6, 4), (9, 14), (12, 30)])
def test_the_least_loss_is_that_of_all_sets(n: int, n_triples: int) -> None:
    rng = np.random.default_rng(n)
    for _ in range(20):
        gains, masks, fees = random_clump(rng, n, n_triples)
        least, loss, served = least_loss(gains, n, masks, fees, np.empty((3, n)))
        assert least == loss == pytest.approx(loss_of(gains, masks, fees, served), rel=1e-12)
        assert least == pytest.approx(min(loss_of(gains, masks, fees, some) for some in range(1 << n)), rel=1e-12)


def test_rows_at_the_end_of_the_largest_clump_count_as_those_at_its_beginning() -> None:
    """Where a clump has more rows than half a word has bits."""
    rng, n, before = np.random.default_rng(5), 9, clumps.MOST_TIED - 9
    for _ in range(15):
        gains, masks, fees = random_clump(rng, n, 12)
        least, loss, served = least_loss(gains, n, masks, fees, np.empty((3, n)))
        behind = np.concatenate([np.zeros(before), gains])
        same = least_loss(behind, len(behind), masks << before, fees, np.empty((3, len(behind))))
        assert same == (least, loss, served << before)


def test_where_too_many_sets_are_good_the_least_loss_is_a_bound() -> None:
    rng, stopped = np.random.default_rng(1), 0
    for _ in range(30):
        gains, masks, fees = random_clump(rng, clumps.MOST_TIED, clumps.MOST_SHARED)
        least, loss, served = least_loss(gains, len(gains), masks, fees, np.empty((3, len(gains))))
        assert least <= loss == pytest.approx(loss_of(gains, masks, fees, served), rel=1e-12)
        for some in rng.integers(1 << len(gains), size=300).tolist():
            assert least <= loss_of(gains, masks, fees, some) * (1.0 + 1e-12)
            one_more = min(loss_of(gains, masks, fees, served ^ (1 << i)) for i in range(len(gains)))
            assert least <= one_more * (1.0 + 1e-12)
        stopped += least < loss
    assert 0 < stopped < 30


def random_clump(rng: np.random.Generator, n: int, n_triples: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    gains = np.maximum(rng.exponential(size=n) - 0.1, 0.0)
    masks = np.array([sum(1 << j for j in rng.choice(n, 3, replace=False).tolist()) for _ in range(n_triples)])
    return gains, masks, rng.exponential(size=n_triples) * rng.choice([0.3, 1.0, 3.0]) * n / (3 * n_triples)


def loss_of(gains: np.ndarray, masks: np.ndarray, fees: np.ndarray, served: int) -> float:
    left_out = sum(gain for i, gain in enumerate(gains) if not (served >> i) & 1)
    return left_out + sum(fee for mask, fee in zip(masks.tolist(), fees) if (mask & served).bit_count() >= 2)


def members(rows: PricedRows) -> list[set[int]]:
    bits = np.unpackbits(rows.columns.bits.view(np.uint8), axis=1, bitorder="little")
    return [set(np.flatnonzero(one).tolist()) for one in bits]


@pytest.mark.parametrize("seed", range(4))
def test_steps_of_trimmed_lloyd_pay_fees(seed: int) -> None:
    rows = tied(60, 12, seed)
    got = rows.trim(Trim(0, POINTS))
    for m, value, weight, offset in zip(POINTS, got.values, got.weights, got.offsets):
        expected, chosen = best_set(rows, m)
        at = sorted(chosen)
        assert value == pytest.approx(expected, rel=1e-12)
        assert weight == pytest.approx(rows.weights[at].sum(), rel=1e-12)
        np.testing.assert_allclose(offset, rows.weights[at] @ (rows.y[at] - m), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_columns_with_triples_equal_sets(seed: int) -> None:
    rows = tied(70, 20, seed)
    w, prices, three = rows.weights, rows.slots[0], rows.triples.rows.tolist()
    before = members(rows)
    kept = np.array([True, False, True, True])
    sums = rows.make_columns(MakeColumns(0, 0, kept, POINTS[4:]))
    sets = members(rows)
    assert sets[:3] == [before[0], *before[2:]]
    assert sets[3:] == [best_set(rows, m)[1] for m in POINTS[4:]]
    fees, weight = rows.triples.fees(0), rows.triples.weight
    served = [{t for t, one in enumerate(three) if len(own & set(one)) >= 2} for own in sets]
    assert any(served)
    for q, (own, of_own) in enumerate(zip(sets[3:], served[3:])):
        at = sorted(own)
        assert sums.sizes[q] == pytest.approx(w[at].sum() + weight * len(of_own))
        assert sums.prices[q] == pytest.approx((w * prices)[at].sum() - fees[sorted(of_own)].sum())
        assert sums.costs[q] - sums.prices[q] == pytest.approx(best_set(rows, POINTS[4 + q])[0])
        for c, (other, of_other) in enumerate(zip(sets, served)):
            shared = w[sorted(own & other)].sum() + weight * len(of_own & of_other)
            assert sums.overlaps[q, c] == pytest.approx(shared)
    z, tau, sigma = np.linspace(0.0, 1.2, len(sets)), 0.05, rows.triples.prices(0)
    got = rows.move(MovePrices(1, 0, tau, z))
    moved = [
        max(0.0, s + tau * (sum(z[c] for c in range(len(z)) if t in served[c]) - 1.0)) for t, s in enumerate(sigma)
    ]
    np.testing.assert_allclose(rows.triples.prices(1), moved, rtol=1e-12, atol=1e-15)
    of_rows = [(w * rows.slots[1])[sorted(own)].sum() for own in sets]
    paid = [rows.triples.fees(1)[sorted(of_own)].sum() for of_own in served]
    np.testing.assert_allclose(got.column_prices, np.subtract(of_rows, paid), rtol=1e-12)
    assert got.total == pytest.approx(float(w @ rows.slots[1]) - weight * sum(moved), rel=1e-12)


def odd_cycle(guard: Guard | None = None) -> tuple[PricedRows, np.ndarray]:
    """Three rows and three columns, each with another two of them, at z = 1/2: every row is served once, and no
    clustering does so."""
    rows = PricedRows(np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.8], [9.0, 9.0]]), np.ones(4), guard=guard or Guard())
    rows.locate(Coordinates(np.zeros(2), np.eye(2), 1.0))
    rows.start(StartPrices(0, np.array([[0.5, 0.3], [9.0, 9.0]])))
    rows.slots[0] = np.full(4, 0.4)
    first = rows.y[[0, 1, 2]] if rows.y[3, 0] == 9.0 else rows.y[[j for j in range(4) if rows.y[j, 0] < 9.0]]
    points = np.array([(first[a] + first[b]) / 2 for a, b in ((0, 1), (1, 2), (0, 2))] + [[9.0, 9.0]])
    rows.make_columns(MakeColumns(0, 0, np.zeros(0, bool), points))
    assert sorted(len(one) for one in members(rows)) == [1, 2, 2, 2]
    return rows, np.array([0.5, 0.5, 0.5, 1.0])


def test_the_triple_that_a_mixture_violates_is_found_once() -> None:
    rows, z = odd_cycle()
    found = rows.find_triples(FindTriples(z, 10))
    assert found.found == 1.0
    assert sorted(rows.triples.rows[0].tolist()) == [j for j in range(4) if rows.y[j, 0] < 9.0]
    np.testing.assert_array_equal(found.overlaps, np.diag([0.0, 0.0, 0.0, 0.0]) + np.pad(np.ones((3, 3)), (0, 1)))
    assert rows.find_triples(FindTriples(z, 10)).found == 0.0  # it is there already
    before = rows.total(0)
    rows.move(MovePrices(1, 0, 0.1, z))
    np.testing.assert_allclose(rows.triples.fees(1), [0.1 * 0.5])  # Σ z = 1.5 of the columns with two
    assert rows.total(1) == pytest.approx(before - 0.05)


def test_a_whole_clustering_violates_none_and_few_are_asked_for() -> None:
    rows, _ = odd_cycle()
    assert rows.find_triples(FindTriples(np.array([1.0, 0.0, 0.0, 1.0]), 10)).found == 0.0
    assert rows.find_triples(FindTriples(np.array([0.5, 0.5, 0.5, 1.0]), 0)).found == 0.0
    with pytest.raises(NodeRefused, match="2 weights for 4 columns"):
        rows.find_triples(FindTriples(np.ones(2), 10))


@pytest.mark.parametrize(("guard", "found"), [(Guard(5), 0.0), (Guard(5, masked=True), 1.0)])
def test_where_small_groups_are_not_told_there_are_none_in_the_open(guard: Guard, found: float) -> None:
    rows, z = odd_cycle(guard)
    assert rows.find_triples(FindTriples(z, 10)).found == found


def test_a_mixture_that_no_master_makes_does_not_keep_a_site_busy() -> None:
    """Rows that are served ten times make thousands of pairs, each of thousands of columns."""
    rows, z = odd_cycle()
    points = np.tile(rows.y[rows.y[:, 0] < 9.0].mean(axis=0), (20, 1))
    rows.slots[0] = np.full(4, 9.0)
    rows.make_columns(MakeColumns(0, 0, np.ones(4, bool), points))
    assert rows.find_triples(FindTriples(np.concatenate([z, np.full(20, 0.5)]), 10)).found == 0.0
    assert rows.find_triples(FindTriples(np.concatenate([z, np.zeros(20)]), 10)).found == 1.0


def test_fees_that_eat_up_the_prices_are_dropped() -> None:
    rows, z = odd_cycle()
    rows.find_triples(FindTriples(z, 10))
    got = rows.move(MovePrices(1, 0, 1e6, z))
    assert not rows.triples.fees(1).any()
    assert got.total >= 0.0


def test_clumps_are_what_the_checker_takes_them_for() -> None:
    assert (clumps.MOST_TIED, clumps.MOST_SHARED) == (stored_prices.MOST_TIED, stored_prices.MOST_SHARED)
    random = np.random.default_rng(3)
    for _ in range(50):
        triples = np.array([random.permutation(14)[:3] for _ in range(random.integers(1, 4))])
        fees = random.choice([0.0, 1.0, 2.0], len(triples))
        ours, expected = clumps.Clumps.of(triples, fees), clumps_of(triples[fees > 0.0])
        assert {tuple(sorted(row for row in one if row >= 0)) for one in ours.rows.tolist()} == set(expected)
        told = [
            (sorted(int(one[i]) for i in range(len(one)) if mask >> i & 1), fee)
            for one, masks, due in zip(ours.rows, ours.masks.tolist(), ours.fees.tolist())
            for mask, fee in zip(masks, due)
            if mask
        ]
        assert sorted(told) == sorted((sorted(three), fee) for three, fee in zip(triples.tolist(), fees) if fee > 0)


def test_rows_in_no_triple_come_first_and_clumps_stay_small() -> None:
    choice = ChosenTriples([[0, 1, 2], [2, 3, 4], [4, 5, 6]], 10, largest=8)

    def take(patterns: list[int], rows: list[list[int]]) -> None:
        choice.take(patterns, dict(zip(patterns, rows)))  # type: ignore[arg-type]

    take([0, 1, 2], [[1, 7], [8], [9]])
    assert choice.chosen == [[7, 8, 9]]
    take([3, 4, 5], [[1], [8], [10]])  # seven rows, three and one
    take([6, 7, 8], [[0], [1], [2]])  # is there already
    assert choice.chosen == [[7, 8, 9]]
    take([3, 4, 5], [[1], [2], [10]])
    assert choice.chosen[1:] == [[1, 2, 10]]
    take([3, 9, 10], [[7], [8], [11]])
    take([3, 9, 10], [[7], [9], [11]])  # a third one with rows of this kind
    assert choice.chosen[2:] == [[7, 8, 11]]
    assert not choice.full


def test_where_rows_are_few_no_row_is_in_two() -> None:
    choice = ChosenTriples([[0, 1, 2]], 10, largest=3)
    choice.take([0, 1, 2], [[2], [3], [4]])
    choice.take([1, 2, 3], [[0], [3], [4], [5]])
    assert choice.chosen == [[3, 4, 5]]


def test_parts_of_a_site_have_their_triples_one_after_the_other(tmp_path) -> None:
    parts = [SitePrices(np.ones((2, n)), np.array([[0, 1, n - 1]]), np.full((2, 1), 0.5 + n)) for n in (4, 6)]
    whole = SitePrices.together(parts)
    np.testing.assert_array_equal(whole.triples, [[0, 1, 3], [4, 5, 9]])
    np.testing.assert_array_equal(whole.fees, [[4.5, 6.5]] * 2)
    whole.write(tmp_path / "prices.npz")
    stored = np.load(tmp_path / "prices.npz")
    assert {name: stored[name].shape for name in stored} == {"prices": (2, 10), "triples": (2, 3), "fees": (2, 2)}
    free = SitePrices.of(whole.prices, whole.triples, np.zeros((2, 2)))
    assert len(free.triples) == 0
    assert free.digest != whole.digest


def test_a_move_that_is_refused_changes_nothing() -> None:
    """Boxes remembered rest on prices and fees together: with other fees, a child would look up triples that are not
    there."""
    rows = tied(12, 4, seed=1)
    rows.triples.slots[0] = np.array([0.0, 0.1, 0.0, 0.3])
    lower, upper, held = rows.y.min(axis=0)[None], rows.y.max(axis=0)[None], np.zeros((1, 2), bool)

    def examined(key: int, parent: int) -> np.ndarray:
        query = Examine(0, lower, upper, held, np.ones(1), np.array([key]), np.array([parent]))
        return rows.examine(query).minorants

    before, total = examined(1, -1), rows.total(0)
    with pytest.raises(NodeRefused, match="overflow"):
        rows.move(MovePrices(0, 0, 1e308, np.array([-10.0, -10.0, 0.0, 0.0])))
    np.testing.assert_array_equal(rows.triples.prices(0), [0.0, 0.1, 0.0, 0.3])
    assert rows.total(0) == total
    np.testing.assert_allclose(examined(2, 1), before, rtol=1e-12)
    rows.move(MovePrices(0, 0, 0.0, np.zeros(4)))  # one that is done forgets them
    assert rows.boxes.get(2) is None


def test_columns_with_fees_obey_the_rules_of_replies() -> None:
    """Also columns of one row at its own point, and sets that would not pay at the centre's prices."""
    random = np.random.default_rng(1)
    for _ in range(100):
        rows = PricedRows(random.normal(size=(12, 2)), np.ones(12))
        rows.locate(Coordinates(np.zeros(2), np.eye(2), 1.0))
        rows.slots |= {0: random.uniform(0.5, 3.0, 12), 1: random.uniform(0.0, 1.0, 12)}
        rows.make_columns(MakeColumns(0, 0, np.zeros(0, bool), rows.y[:3]))
        rows.triples.add(random.permutation(12).reshape(4, 3), rows.columns.bits)
        rows.triples.slots |= {0: random.uniform(0.0, 6.0, 4), 1: np.full(4, 0.9)}
        query = PriceQuery(1, columns=MakeColumns(0, 1, np.ones(3, bool), rows.y[3:9].copy()))
        assert query.columns is not None
        reply = PriceReply(1, "a", columns=rows.make_columns(query.columns))
        PriceRules(12.0, (rows.y.min(axis=0), rows.y.max(axis=0)), None).check(query, reply)
