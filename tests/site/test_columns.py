"""Columns as bits against sets of row numbers in plain Python."""

from __future__ import annotations

import numpy as np
import pytest

from consentroid.core.errors import NodeRefused
from consentroid.protocol.messages import Coordinates, MakeColumns, MovePrices, StartPrices
from consentroid.site.guard import Guard
from consentroid.site.prices import PricedRows


def priced(n: int, weighted: bool, least: int = 1) -> PricedRows:
    random = np.random.default_rng(n)
    weights = random.uniform(0.5, 2.0, n) if weighted else np.full(n, 1.5)
    rows = PricedRows(random.normal(size=(n, 2)), weights, guard=Guard(least))
    rows.locate(Coordinates(np.zeros(2), np.eye(2), 1.0))
    rows.start(StartPrices(0, np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])))
    return rows


def sets(rows: PricedRows, points: np.ndarray, prices: np.ndarray) -> list[set[int]]:
    return [set(np.flatnonzero(((rows.y - point) ** 2).sum(axis=1) < prices).tolist()) for point in points]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [1, 63, 64, 65, 128, 1000])
def test_sums_over_columns_equal_those_over_sets(n: int, weighted: bool) -> None:
    rows = priced(n, weighted)
    points = np.random.default_rng(1).normal(size=(7, 2)) * 0.7
    first = rows.make_columns(MakeColumns(0, 0, np.zeros(0, bool), points[:4]))
    members = sets(rows, points, rows.slots[0])
    assert first.overlaps.shape == (4, 4)
    kept = np.array([True, False, True, True])
    sums = rows.make_columns(MakeColumns(0, 0, kept, points[4:]))
    members = [members[0], *members[2:]]
    w, prices = rows.weights, rows.slots[0]
    for q, own in enumerate(members[3:]):
        at = sorted(own)
        assert sums.sizes[q] == pytest.approx(w[at].sum())
        assert sums.prices[q] == pytest.approx((w * prices)[at].sum())
        assert sums.costs[q] == pytest.approx((w * ((rows.y - points[4 + q]) ** 2).sum(axis=1))[at].sum())
        for c, other in enumerate(members):
            assert sums.overlaps[q, c] == pytest.approx(w[sorted(own & other)].sum())
    z, tau = np.array([0.5, 0.0, 1.0, 0.25, 0.75, 0.0]), 0.3
    got = rows.move(MovePrices(1, 0, tau, z))
    expected = np.array(
        [max(0.0, prices[j] + tau * (1.0 - sum(z[c] for c in range(6) if j in members[c]))) for j in range(n)]
    )
    np.testing.assert_allclose(rows.slots[1], expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        got.column_prices, [(w * expected)[sorted(own)].sum() for own in members], rtol=1e-12, atol=1e-12
    )


def test_a_small_column_tells_no_weight_and_still_moves_prices() -> None:
    rows = priced(200, weighted=True, least=20)
    far = np.array([[3.2, 0.0]])
    alone = sets(rows, far, rows.slots[0])[0]
    assert 0 < len(alone) < 20
    sums = rows.make_columns(MakeColumns(0, 0, np.zeros(0, bool), far))
    assert sums.sizes[0] == 0.0
    rows.move(MovePrices(1, 0, 0.1, np.array([1.0])))
    stayed = rows.slots[1] == rows.slots[0]
    assert set(np.flatnonzero(stayed).tolist()) == alone


def test_marks_and_weights_must_be_as_many_as_columns() -> None:
    rows = priced(10, weighted=False)
    with pytest.raises(NodeRefused, match="2 marks for 0 columns"):
        rows.make_columns(MakeColumns(0, 0, np.ones(2, bool), np.zeros((1, 2))))
    with pytest.raises(NodeRefused, match="3 weights for 0 columns"):
        rows.move(MovePrices(1, 0, 1.0, np.zeros(3)))
