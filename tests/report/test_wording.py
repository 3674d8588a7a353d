"""Verdicts are true: from the two bounds alone, rounded in the safe direction, failing closed."""

from __future__ import annotations

import doctest
import math
import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from consentroid.core.result import StopReason
from consentroid.report import wording
from consentroid.report.wording import REASONS, REMEDIES, at_least, percent, safe, verdict_on

ANY = st.floats(allow_nan=True, allow_infinity=True)


@pytest.mark.parametrize(
    ("lower", "upper", "asked", "said"),
    [
        (5.0, 5.0, 1e-4, r"Proven optimal: no other 3 centroids cost less than these\."),
        (0.0, 0.0, 1e-4, r"Proven optimal"),
        (5.0 * (1 - 1e-12), 5.0, 1e-4, r"Proven optimal: .* more than 1e-10 %"),
        (5.0 * (1 - 1e-8), 5.0, 1e-4, r"Certified: no other 3 centroids can save more than [12]e-06 % of this cost\."),
        (93.0, 100.0, 0.01, r"Not certified: .* 7\.00 % .*; 1\.00 % was asked for, but the time limit .*--time-limit"),
        (0.0, 5.0, 1e-4, "Nothing is proven"),
        (-math.inf, 5.0, math.inf, "Nothing is proven"),
        (math.nan, 5.0, 1.0, "Nothing is proven"),
        (6.0, 5.0, 1.0, "Nothing is proven"),
        (1e308, math.inf, 1.0, "Nothing is proven"),
    ],
)
def test_verdicts(lower: float, upper: float, asked: float, said: str) -> None:
    assert re.match(said, verdict_on(lower, upper, asked, "time_limit", 3))


def test_the_rule_of_the_paper_proves_nothing() -> None:
    assert verdict_on(5.0, 5.0, 1e-4, "gap", 3, sound=False).startswith("Nothing is proven")


@given(ANY, ANY, ANY)
def test_proven_optimal_needs_two_equal_finite_numbers(lower: float, upper: float, asked: float) -> None:
    said = verdict_on(lower, upper, asked, "gap", 2)
    if said.startswith("Proven optimal"):
        assert math.isfinite(lower)
        assert math.isfinite(upper)
        assert lower <= upper
        assert upper - max(lower, 0.0) <= 1e-9 * upper


@given(st.floats(0, 1))
def test_per_cent_is_rounded_up(gap: float) -> None:
    assert Decimal(percent(gap).removesuffix(" %")) >= 100 * Decimal(repr(gap)) * (1 - Decimal("1e-15"))


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_a_printed_bound_is_proven(bound: float) -> None:
    assert Decimal(at_least(bound)) <= Decimal(bound)


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_a_printed_interval_holds_the_proven_one(one: float, other: float) -> None:
    low, high = min(one, other), max(one, other)
    printed = wording.interval(low, high).replace("−", "-").replace(",", "").split(" … ")
    if low < high:
        assert Decimal(printed[0]) <= Decimal(repr(low))
        assert Decimal(printed[1]) >= Decimal(repr(high))


def test_every_reason_has_words_and_a_remedy() -> None:
    assert set(REASONS) == set(REMEDIES) == set(StopReason)
    assert wording.stop_reason("gap") == REASONS[StopReason.GAP]
    assert wording.stop_reason("of\x1bold") == "of\\x1bold"


def test_names_cannot_write_on_the_terminal() -> None:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(f"[bold]{safe('x[/b] [red]a' + chr(27) + '[2J' + chr(10) + 'Verified: all')}[/bold]")
    assert "x[/b] [red]a\\x1b[2J\\nVerified: all" in captured.get()
    assert captured.get().count("\n") == 1


def test_what_is_said_about_disclosure() -> None:
    assert "a cluster of one row is that row" in wording.DISCLOSURE
    assert "never a row" not in wording.DISCLOSURE


def test_examples_in_docstrings() -> None:
    from consentroid.core import extras, names

    for module in (wording, names, extras):
        outcome = doctest.testmod(module)
        assert outcome.attempted
        assert outcome.failed == 0
