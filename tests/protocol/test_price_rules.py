"""Replies about prices are judged: honest ones pass whatever the rows are, each broken rule is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consentroid.core.arrays import Array
from consentroid.core.problem import NodeData
from consentroid.protocol.messages import (
    Claim,
    Coordinates,
    Describe,
    Evaluate,
    Examine,
    FindTriples,
    ImprovePairs,
    KeepPrices,
    MakeColumns,
    Moments,
    MovePrices,
    PriceQuery,
    PriceReply,
    StartPrices,
    Trim,
)
from consentroid.protocol.plausibility import Contradiction, ReplyChecker
from consentroid.site.worker import SiteWorker

D, K, N_NEW = 2, 2, 3


def queries(rng: np.random.Generator, rows: Array) -> list[PriceQuery]:
    """A short run: coordinates, prices, columns, then all that is asked about them."""
    basis = np.linalg.qr(rng.normal(size=(D, D)))[0]
    at = Coordinates(rows.mean(axis=0), basis, 0.5)
    y = (rows - at.origin) @ at.basis * at.scale
    low, high = y.min(axis=0), y.max(axis=0)
    points = rng.uniform(low, high, (N_NEW, D))
    lower = np.minimum(points, points[::-1])
    upper = np.maximum(points, points[::-1])
    held, keys = rng.random((N_NEW, D)) < 0.5, np.arange(N_NEW)
    cuts = (
        np.array([0, 1]),
        np.array([0, 1]),
        np.array([0, 1]),
        np.array([upper[0, 0], lower[1, 1]]),
        np.array([0.0, 0.1]),
    )
    return [
        PriceQuery(1, 0, moments=Moments(rows.mean(axis=0))),
        PriceQuery(2, 1, coordinates=at, start=StartPrices(0, points[:K])),
        PriceQuery(3, 2, columns=MakeColumns(0, 0, np.zeros(0, bool), points)),
        PriceQuery(4, 3, move=MovePrices(1, 0, 0.1, rng.random(N_NEW))),
        PriceQuery(5, 4, columns=MakeColumns(1, 0, np.array([True, False, True]), points[:2])),
        PriceQuery(
            6,
            4,
            trim=Trim(1, points),
            examine=Examine(1, lower, upper, held, np.ones(N_NEW), keys, np.full(N_NEW, -1)),
            claim=Claim(1, lower, upper, held, *cuts),
            evaluate=Evaluate(rng.uniform(rows.min(axis=0), rows.max(axis=0), (2, K, D))),
            keep=KeepPrices(np.array([0, 1])),
        ),
        PriceQuery(7, 5, triples=FindTriples(rng.choice([0.4, 0.5, 1.0], 4), 10)),
        PriceQuery(8, 5, pairs=ImprovePairs(K, 10, False, rng.uniform(rows.min(axis=0), rows.max(axis=0), (K, D)), 6)),
    ]


def a_run(seed: int, size: float = 1.0) -> tuple[ReplyChecker, list[tuple[PriceQuery, PriceReply]]]:
    rng = np.random.default_rng(seed)
    rows = size * (rng.normal(size=(12, D)) + rng.normal(size=D) * 5)
    worker, checker = SiteWorker(NodeData.checked("north", rows, rng.integers(1, 4, 12))), ReplyChecker("north")
    request = Describe(K)
    checker.check_description(request, worker.answer(request))  # type: ignore[arg-type]
    pairs = []
    for query in queries(rng, rows):
        reply = worker.answer(query)
        assert isinstance(reply, PriceReply), reply
        pairs.append((query, reply))
    return checker, pairs


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-6, 1.0, 1e6]))
def test_an_honest_site_is_never_refused(seed: int, size: float) -> None:
    checker, pairs = a_run(seed, size)
    for query, reply in pairs:
        checker.check_prices(query, reply)


def bent(reply: PriceReply, part: str, **changes: Any) -> PriceReply:
    """The reply with fields of one part replaced; a function is applied to the field."""
    told = getattr(reply, part)
    new = {name: change(getattr(told, name)) if callable(change) else change for name, change in changes.items()}
    return replace(reply, **{part: replace(told, **new)})


def first_negative(array: Array) -> Array:
    array = array.copy()
    array.flat[0] = -1.0
    return array


BROKEN = {
    "another weight": (0, "moments", {"weight": 5.0}, "the weight 5 after"),
    "rows far away": (0, "moments", {"sums": lambda a: a + 1e4}, "no rows inside"),
    "spread too large": (0, "moments", {"products": lambda a: a * 1e4}, "no rows inside"),
    "negative square": (0, "moments", {"products": lambda a: -a}, "no rows inside"),
    "rounding that costs much": (1, "located", {"scatter_error": 1.0}, "rounding its coordinates costs 1"),
    "negative rounding": (1, "located", {"scatter_error": -1e-40}, "rounding"),
    "negative prices": (1, "priced", {"total": -1.0}, "-1 in all"),
    "a column above all": (3, "priced", {"column_prices": lambda a: a + 1e6}, "a column that has more"),
    "one column price missing": (3, "priced", {"column_prices": lambda a: a[1:]}, "shape"),
    "sizes above all": (2, "columns", {"sizes": lambda a: a + 1e6}, "for rows of weight"),
    "negative size": (2, "columns", {"sizes": first_negative}, "negative"),
    "overlap above size": (4, "columns", {"overlaps": lambda a: a + 20.0}, "overlaps"),
    "overlaps missing": (4, "columns", {"overlaps": lambda a: a[:, 1:]}, "shape"),
    "a column that loses": (2, "columns", {"costs": lambda a: a + 1e6}, "costs more than its rows offer"),
    "a loss": (5, "trimmed", {"values": lambda a: -a + 1.0}, "negative"),
    "offsets far away": (5, "trimmed", {"offsets": lambda a: a + 1e6}, "no rows inside"),
    "a minorant of negative weight": (5, "boxes", {"minorants": first_negative}, "negative"),
    "more inside than there are": (5, "boxes", {"undecided": lambda a: a + 1e6}, "inside and undecided"),
    "negative score": (5, "boxes", {"scores": first_negative}, "negative"),
    "an inside that the minorant misses": (
        5,
        "claimed",
        {"insides": lambda a: a + np.eye(1, D + 2), "minorants": lambda a: 0 * a},
        "leaves out rows|no rows inside",
    ),
    "cuts missing": (5, "claimed", {"cuts": lambda a: a[1:]}, "shape"),
    "a digest with a newline": (5, "kept", {"digest": "0" * 63 + "\n"}, "sha256"),
    "negative totals": (5, "kept", {"totals": first_negative}, "negative"),
    "more triples than rows make": (6, "triples", {"overlaps": lambda a: a + 1e6}, "for rows of weight"),
    "triples shared and not served": (6, "triples", {"overlaps": lambda a: 0 * a + np.eye(4, k=1)}, "no rows can make"),
    "fewer triples than none": (6, "triples", {"found": -1.0}, "no rows can make"),
    "triples of other columns": (6, "triples", {"overlaps": lambda a: a[1:]}, "shape"),
    "bound above any cost": (7, "pairs", {"bound": 1e9}, "cost at least"),
    "bound that is no number": (7, "pairs", {"bound": np.nan}, "cost at least"),
    "negative reach": (7, "pairs", {"reach": -1.0}, "can cost -1"),
    "reach that is no number": (7, "pairs", {"reach": np.nan}, "can cost nan"),
    "reach without end": (7, "pairs", {"reach": np.inf}, "can cost inf"),
    "digest that nobody asked for": (7, "pairs", {"digest": "0" * 64}, "nobody asked for"),
    "negative cost": (5, "evaluated", {"costs": first_negative}, "negative cost"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_rule_is_named(case: str) -> None:
    at, part, changes, reason = BROKEN[case]
    checker, pairs = a_run(7)
    for query, reply in pairs[:at]:
        checker.check_prices(query, reply)
    query, reply = pairs[at]
    with pytest.raises(Contradiction, match=reason):
        checker.check_prices(query, bent(reply, part, **changes))
    checker.check_prices(query, reply)


def test_only_what_was_asked_is_answered_and_in_turn() -> None:
    checker, pairs = a_run(7)
    query, reply = pairs[1]
    with pytest.raises(Contradiction, match="'located' was asked for"):
        checker.check_prices(query, replace(reply, located=None))
    with pytest.raises(Contradiction, match="round 2, step 0 in round 2, step 1"):
        checker.check_prices(query, replace(reply, step=0))
    with pytest.raises(Contradiction, match="before it was sent coordinates"):
        checker.check_prices(*pairs[5])
    with pytest.raises(Contradiction, match="before it described itself"):
        ReplyChecker("north").check_prices(query, reply)
