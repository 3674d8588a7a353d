"""Replies are judged: honest ones pass whatever the rows are, and each way to contradict oneself is refused by name."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from consentroid.core.problem import NodeData, clustering_cost
from consentroid.core.symmetry import Symmetry, align
from consentroid.paper.worker import PaperWorker
from consentroid.protocol.messages import (
    Describe,
    Description,
    Evaluate,
    Failure,
    Query,
    Reply,
    Request,
    Response,
    Solve,
    Solved,
)
from consentroid.protocol.plausibility import Contradiction, ReplyChecker, box_is_empty
from consentroid.transport.checked import CheckedTransport

Array = NDArray[np.float64]
K, D = 2, 2


class Honest:
    """A node that tries all assignments; the best centroids of each are clipped means, coordinate by coordinate."""

    def __init__(self, points: Array) -> None:
        self.points = points
        self.worker = PaperWorker(NodeData.checked("north", points))

    def solve(self, boxes: Array, price: Array) -> tuple[float, Array]:
        best, at = np.inf, boxes[0]
        for labels in itertools.product(range(K), repeat=len(self.points)):
            m = np.empty((K, D))
            for k in range(K):
                mine = self.points[np.array(labels) == k]
                if len(mine):
                    m[k] = np.clip(mine.mean(axis=0) - price[k] / (2 * len(mine)), boxes[0, k], boxes[1, k])
                else:
                    m[k] = np.where(price[k] > 0, boxes[0, k], boxes[1, k])
            value = clustering_cost(self.points, np.ones(len(self.points)), m) + float(np.sum(price * m))
            if value < best:
                best, at = value, m
        return best, at

    def answer(self, query: Query) -> Reply:
        reply = self.worker.answer(replace(query, solve=None))
        assert isinstance(reply, Reply)
        if query.solve is None:
            return reply
        found = [self.solve(b, p) for b, p in zip(query.solve.boxes, query.solve.prices, strict=True)]
        values = np.array([value for value, _ in found])
        centroids = np.array([m for _, m in found])
        return replace(
            reply, solved=Solved(values - 1e-12 * np.abs(values), values, centroids, np.ones(len(found), bool))
        )


def a_query(rng: np.random.Generator, number: int, n_boxes: int = 2) -> Query:
    corners = np.sort(rng.uniform(-2, 2, size=(n_boxes, 2, K, D)), axis=1)
    corners[0] = np.stack([np.full((K, D), -2.0), np.full((K, D), 2.0)])
    prices = rng.normal(size=(n_boxes, K, D))
    candidates = rng.uniform(-2, 2, size=(2, K, D))
    return Query(number, solve=Solve(corners, prices), evaluate=Evaluate(candidates))


def a_conversation(seed: int = 0) -> tuple[ReplyChecker, Honest, np.random.Generator]:
    rng = np.random.default_rng(seed)
    node = Honest(rng.uniform(-2, 2, size=(5, D)))
    checker = ReplyChecker("north")
    request = Describe(K, np.full(D, -2.0), np.full(D, 2.0))
    checker.check_description(request, node.worker.answer(request))  # type: ignore[arg-type]
    return checker, node, rng


@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-6, 1.0, 1e6]))
def test_an_honest_node_is_never_refused(seed: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    node, checker = Honest(size * rng.uniform(-2, 2, size=(4, D))), ReplyChecker("north")
    for number in range(1, 4):
        query = a_query(rng, number)
        assert query.solve is not None
        assert query.evaluate is not None
        query = replace(
            query,
            solve=Solve(size * query.solve.boxes, size * query.solve.prices),
            evaluate=Evaluate(size * query.evaluate.candidates),
        )
        checker.check(query, node.answer(query))


def test_an_honest_run_of_the_exact_solver_under_the_order_rule_passes() -> None:
    rng = np.random.default_rng(3)
    points = rng.uniform(-2, 2, size=(9, D))
    worker, checker = PaperWorker(NodeData.checked("north", points)), ReplyChecker("north")
    references = align(rng.uniform(-1, 1, size=(K, D)), rng.uniform(-1, 1, size=(K, D)))
    for number in range(1, 8):
        query = replace(a_query(rng, number, n_boxes=4), rule="order", references=references)
        checker.check(query, worker.answer(query))  # type: ignore[arg-type]


def spoil(reply: Reply, **changes: object) -> Reply:
    """The reply with entries of its solved or evaluated part replaced."""
    for name in ("solved", "evaluated"):
        part = getattr(reply, name)
        mine = {key: value for key, value in changes.items() if hasattr(part, key)}
        reply = replace(reply, **{name: replace(part, **mine)})
    return reply


def cases() -> dict[str, tuple[object, str]]:
    def solved(reply: Reply) -> Solved:
        assert reply.solved is not None
        return reply.solved

    def evaluated(reply: Reply) -> object:
        return reply.evaluated

    return {
        "another round": (lambda r: replace(r, round=r.round - 1), "answered round 0 in round 1"),
        "another node": (lambda r: replace(r, node="south"), "under the name 'south'"),
        "a part missing": (lambda r: replace(r, solved=None), "'solved' was asked for"),
        "a box missing": (
            lambda r: replace(
                r,
                solved=Solved(
                    solved(r).bounds[:1], solved(r).values[:1], solved(r).centroids[:1], solved(r).optimal[:1]
                ),
            ),
            "shape",
        ),
        "bound above value": (lambda r: spoil(r, bounds=solved(r).values + 1e-3), "exceeds its own value"),
        "centroids outside": (lambda r: spoil(r, centroids=solved(r).centroids + 5.0), "outside the box"),
        "value too low": (lambda r: spoil(r, values=solved(r).values - 1e3), "negative cost"),
        "value of minus infinity": (lambda r: spoil(r, values=np.full(2, -np.inf)), "negative cost"),
        "a full box called empty": (
            lambda r: spoil(r, bounds=np.array([np.inf, 0.0]), values=np.array([np.inf, 1e3])),
            "called empty",
        ),
        "negative cost": (lambda r: spoil(r, costs=-evaluated(r).costs), "negative cost"),
        "negative count": (lambda r: spoil(r, counts=evaluated(r).counts - 9), "negative count"),
        "rows invented": (lambda r: spoil(r, counts=evaluated(r).counts + 1), "counts of 7 in all"),
        "offsets outside the domain": (
            lambda r: spoil(r, offsets=evaluated(r).offsets + 1e3),
            "no rows inside the domain",
        ),
    }


@pytest.mark.parametrize("case", cases())
def test_a_contradiction_within_a_reply_is_refused(case: str) -> None:
    change, reason = cases()[case]
    checker, node, rng = a_conversation()
    query = a_query(rng, 1)
    reply = node.answer(query)
    with pytest.raises(Contradiction, match=reason):
        checker.check(query, change(reply))  # type: ignore[operator]
    checker.check(query, reply)  # the refused reply left no trace


def test_a_part_that_was_not_asked_for_is_refused() -> None:
    checker, node, rng = a_conversation()
    query = a_query(rng, 1)
    with pytest.raises(Contradiction, match="'evaluated' was not asked for"):
        checker.check(replace(query, evaluate=None), node.answer(query))


def test_a_bound_above_a_point_attained_earlier_is_refused() -> None:
    checker, node, rng = a_conversation()
    first = a_query(rng, 1)
    checker.check(first, node.answer(first))
    second = replace(a_query(rng, 2), evaluate=None)
    reply = node.answer(second)
    assert reply.solved is not None
    lifted = reply.solved.values + 1e3  # bound and value lie together, so that only memory can tell
    with pytest.raises(Contradiction, match="breaks concavity"):
        checker.check(second, spoil_solved(reply, bounds=lifted, values=lifted))


def test_a_point_below_a_bound_proven_earlier_is_refused() -> None:
    checker, node, rng = a_conversation()
    first = replace(a_query(rng, 1), evaluate=None)
    reply = node.answer(first)
    assert reply.solved is not None
    lifted = reply.solved.values + 1e3
    checker.check(first, spoil_solved(reply, bounds=lifted, values=lifted))  # nothing speaks against it yet
    second = a_query(rng, 2)
    with pytest.raises(Contradiction, match="breaks concavity"):
        checker.check(second, node.answer(second))


def test_a_cost_told_for_candidates_binds_later_bounds() -> None:
    checker, node, rng = a_conversation()
    first = replace(a_query(rng, 1), solve=None)
    checker.check(first, node.answer(first))
    assert first.evaluate is not None
    candidate = first.evaluate.candidates[0]
    boxes = np.stack([candidate, candidate])[None]
    query = Query(2, solve=Solve(boxes, np.zeros((1, K, D))))
    reply = node.answer(query)
    assert reply.solved is not None
    lifted = reply.solved.values + 1.0
    with pytest.raises(Contradiction, match="breaks concavity"):
        checker.check(query, spoil_solved(reply, bounds=lifted, values=lifted))


def spoil_solved(reply: Reply, **changes: Array) -> Reply:
    assert reply.solved is not None
    return replace(reply, solved=replace(reply.solved, **changes))


def test_centroids_that_break_the_order_rule_are_refused() -> None:
    checker, node, rng = a_conversation()
    query = replace(a_query(rng, 1, n_boxes=1), evaluate=None)
    reply = node.answer(query)
    assert reply.solved is not None
    swapped = reply.solved.centroids[0][::-1]
    with pytest.raises(Contradiction, match="break the symmetry rule 'order'"):
        checker.check(replace(query, rule="order", references=swapped), reply)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"n_points": 0}, "describes 0 rows"),
        ({"weight": 0.0}, "weight 0"),
        ({"n_distinct": 9}, "9 distinct"),
        ({"node": "south"}, "under the name"),
        ({"features": ("x",)}, "names 1 of its 2"),
        ({"lower": None}, "no extremes"),
        ({"lower": np.full(D, 9.0)}, "do not enclose"),
        ({"allowed": np.array([5.0, -1.0, 5.0])}, "less than nothing"),
        ({"allowed": np.array([5.0, np.nan, 5.0])}, "less than nothing"),
    ],
)
def test_a_description_that_contradicts_itself_is_refused(changes: dict[str, object], reason: str) -> None:
    honest = Description("north", 5, D, 2, 5.0, ("x", "y"), np.zeros(D), np.ones(D))
    ReplyChecker("north").check_description(Describe(K), honest)
    with pytest.raises(Contradiction, match=reason):
        ReplyChecker("north").check_description(Describe(K), replace(honest, **changes))  # type: ignore[arg-type]


@given(st.integers(0, 2**32 - 1))
def test_an_empty_box_is_recognised_by_sampling(seed: int) -> None:
    """No sampled centroids of a box called empty obey the rule; a box around obedient centroids is not empty."""
    rng = np.random.default_rng(seed)
    symmetry = Symmetry("order", rng.normal(size=(K, D)))
    corners = np.sort(rng.normal(size=(2, K, D)), axis=0)
    if box_is_empty(corners, symmetry):
        samples = rng.uniform(corners[0], corners[1], size=(200, K, D))
        assert not any(symmetry.satisfied(m, -1e-6) for m in samples)
    obedient = align(rng.normal(size=(K, D)), symmetry.references)  # type: ignore[arg-type]
    assert not box_is_empty(np.stack([obedient - 0.1, obedient + 0.1]), symmetry)


def test_a_transport_turns_a_contradiction_into_a_failure_of_its_node() -> None:
    _, node, rng = a_conversation()

    class Lying:
        nodes = ("north",)
        bytes_up = bytes_down = 0

        def exchange(self, requests: list[Request]) -> list[Response]:
            reply = node.answer(requests[0])  # type: ignore[arg-type]
            assert reply.solved is not None
            return [spoil_solved(reply, bounds=reply.solved.values + 1.0)]

        def close(self) -> None: ...

    query = a_query(rng, 1)
    (answer,) = CheckedTransport(Lying()).exchange([query])
    assert isinstance(answer, Failure)
    assert (answer.node, answer.round) == ("north", 1)
    assert "exceeds its own value" in answer.reason
    (answer,) = CheckedTransport(Lying()).exchange([replace(query, round=2)])
    assert "contradictory reply" in answer.reason  # type: ignore[union-attr]
