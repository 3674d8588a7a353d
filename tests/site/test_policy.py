"""A site's policy: safe by default, refused by rule and never by value, held over all jobs of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consentroid.core.errors import ConsentroidError, InvalidInput, NodeRefused
from consentroid.protocol.demand import demand_of
from consentroid.protocol.messages import (
    Describe,
    Evaluate,
    Examine,
    Moments,
    PriceQuery,
    Query,
    Request,
    StartPrices,
    Trim,
)
from consentroid.site.policy import POLICY_FILE, Earlier, Meter, Policy

SIDES = (np.zeros(2), np.ones(2))
DESCRIBE = Describe(3, *SIDES, features=("x", "y"))


def boxes(n: int) -> PriceQuery:
    empty = np.zeros((n, 2))
    keys = np.zeros(n, np.int64)
    return PriceQuery(1, examine=Examine(0, empty, empty, empty > 0, np.ones(n), keys, keys))


def points(n: int) -> PriceQuery:
    return PriceQuery(1, trim=Trim(0, np.zeros((n, 2))))


def described(policy: Policy, earlier: Earlier | None = None) -> Meter:
    meter = Meter(policy, earlier)
    meter.admit(DESCRIBE, 3, masked=True)
    return meter


def test_the_defaults_admit_an_ordinary_run() -> None:
    meter = described(Policy())
    for request in (PriceQuery(1, moments=Moments(np.zeros(2))), boxes(500), points(40)):
        meter.admit(request, 3, masked=True)
    meter.admit(PriceQuery(1, start=StartPrices(0, np.zeros((3, 2)))), 2, masked=False)


@pytest.mark.parametrize(
    ("rule", "policy", "request_"),
    [
        ("largest_k", Policy(largest_k=2), DESCRIBE),
        ("require_domain", Policy(), Describe(3, features=("x", "y"))),
        ("require_features", Policy(require_features=True), Describe(3, *SIDES)),
        ("most_questions", Policy(most_questions=1), boxes(1)),
        ("most_boxes", Policy(most_boxes=9), boxes(10)),
        ("most_points", Policy(most_points=9), points(10)),
        ("most_points", Policy(most_points=9), PriceQuery(1, evaluate=Evaluate(np.zeros((5, 2, 2))))),
        ("largest_k", Policy(), PriceQuery(1, start=StartPrices(0, np.zeros((4, 2))))),
        ("largest_k", Policy(), PriceQuery(1, evaluate=Evaluate(np.zeros((1, 4, 2))))),
        ("paper_methods", Policy(), Query(1, evaluate=Evaluate(np.zeros((1, 3, 2))))),
    ],
)
def test_a_refusal_names_the_rule_and_no_value(rule: str, policy: Policy, request_: Request) -> None:
    meter = Meter(policy) if isinstance(request_, Describe) else described(policy)
    with pytest.raises(NodeRefused, match=f"rule '{rule}'") as caught:
        meter.admit(request_, 3, masked=True)
    assert not any(character.isdigit() for character in str(caught.value))


@pytest.mark.parametrize(
    ("masks", "n_sites", "masked", "good"),
    [
        ("three", 3, False, False), ("three", 3, True, True), ("three", 2, False, True), ("always", 2, False, False),
        ("always", 2, True, True), ("never", 9, False, True),
    ],
)  # fmt: skip
def test_masks_are_required_as_the_policy_says(masks: Any, n_sites: int, masked: bool, good: bool) -> None:
    meter = described(Policy(masks=masks))
    if good:
        meter.admit(boxes(1), n_sites, masked)
    else:
        with pytest.raises(NodeRefused, match="rule 'masks'"):
            meter.admit(boxes(1), n_sites, masked)


def test_a_run_is_described_before_anything_else() -> None:
    with pytest.raises(NodeRefused, match="must describe"):
        Meter(Policy()).admit(boxes(1), 3, masked=True)
    Meter(Policy(), Earlier(n_clusters=3)).admit(boxes(1), 3, masked=True)  # a job that resumes


def test_earlier_jobs_of_a_run_count() -> None:
    for earlier, rule in (
        (Earlier(questions=5000), "most_questions"),
        (Earlier(boxes=10**6), "most_boxes"),
        (Earlier(points=10**6), "most_points"),
        (Earlier(runs_today=51), "most_runs_per_day"),
    ):
        with pytest.raises(NodeRefused, match=rule):
            Meter(Policy(), earlier).admit(PriceQuery(1, trim=points(1).trim, examine=boxes(1).examine), 3, masked=True)


def test_many_small_questions_are_as_much_as_one_large() -> None:
    meter = described(Policy(most_boxes=100))
    for _ in range(10):
        meter.admit(boxes(10), 3, masked=True)
    with pytest.raises(NodeRefused, match="most_boxes"):
        meter.admit(boxes(1), 3, masked=True)


def test_what_was_written_is_read_back_and_missing_rules_have_their_defaults(tmp_path: Path) -> None:
    assert Policy.read(tmp_path) == Policy()
    chosen = Policy(largest_k=7, masks="always", approval="hand")
    chosen.write(tmp_path)
    assert Policy.read(tmp_path) == chosen
    assert (tmp_path / POLICY_FILE).stat().st_mode & 0o077 == 0
    (tmp_path / POLICY_FILE).write_text(json.dumps({"least_rows": 10}))
    assert Policy.read(tmp_path) == Policy(least_rows=10)


@pytest.mark.parametrize(
    ("told", "named"),
    [
        ([], "mapping"),
        ({"least_row": 5}, "unknown rule 'least_row'"),
        ({"least_rows": "5"}, "'least_rows' must be a whole number"),
        ({"least_rows": True}, "'least_rows' must be a whole number"),
        ({"least_rows": 0}, "at least 1"),
        ({"require_domain": 1}, "true or false"),
        ({"approval": "maybe"}, "one of rule, hand"),
        ({"masks": "some"}, "one of three, always, never"),
    ],
)
def test_a_policy_that_is_not_understood_admits_nothing(told: Any, named: str, tmp_path: Path) -> None:
    (tmp_path / POLICY_FILE).write_text(json.dumps(told))
    with pytest.raises(InvalidInput, match=named):
        Policy.read(tmp_path)


def test_an_unreadable_file_admits_nothing(tmp_path: Path) -> None:
    (tmp_path / POLICY_FILE).write_text("{")
    with pytest.raises(InvalidInput, match="cannot be read"):
        Policy.read(tmp_path)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@given(st.sampled_from(list(vars(Policy()))), json_like)
def test_whatever_a_rule_is_it_is_accepted_or_refused(rule: str, value: Any) -> None:
    try:
        Policy.checked({rule: value}).in_words()
    except ConsentroidError:
        return


def test_the_operator_reads_every_rule() -> None:
    """A rule that is changed changes what is shown at start."""
    for rule, value in vars(Policy()).items():
        other: Any = {"masks": "never", "approval": "hand"}.get(rule, not value if type(value) is bool else 7)
        assert Policy(**{rule: other}).in_words() != Policy().in_words(), rule


def test_sizes_count_what_is_asked() -> None:
    both = PriceQuery(1, trim=points(4).trim, examine=boxes(6).examine, evaluate=Evaluate(np.zeros((2, 3, 2))))
    size = demand_of(both)
    assert (size.kind, size.n_clusters, size.boxes, size.points) == ("trim+examine+evaluate", 3, 6, 10)
