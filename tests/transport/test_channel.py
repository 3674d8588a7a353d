"""A full set of replies or an error that names the site; a restarted site is brought back to the same prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from consentroid.core.arrays import Array
from consentroid.core.errors import NodeFailed
from consentroid.core.problem import NodeData
from consentroid.protocol.messages import (
    Coordinates,
    Evaluate,
    Failure,
    MakeColumns,
    MovePrices,
    PriceQuery,
    PriceReply,
    Query,
    Request,
    Response,
    StartPrices,
    Trim,
)
from consentroid.site.worker import SiteWorker
from consentroid.transport.channel import Channel
from consentroid.transport.inprocess import InProcessTransport

RNG = np.random.default_rng(1)
ROWS = {"north": RNG.normal(size=(30, 2)), "south": RNG.normal(size=(20, 2)) + 1}
POINTS = RNG.normal(size=(4, 2))
STEPS = [
    PriceQuery(0, 1, coordinates=Coordinates(np.zeros(2), np.eye(2), 1.0)),
    PriceQuery(0, 2, start=StartPrices(0, POINTS[:3])),
    PriceQuery(0, 3, columns=MakeColumns(0, 0, np.zeros(0, bool), POINTS)),
    PriceQuery(0, 4, move=MovePrices(1, 0, 0.3, np.array([0.5, 1.0, 0.2, 0.9])), trim=Trim(1, POINTS)),
    PriceQuery(0, 4, trim=Trim(1, POINTS)),
    PriceQuery(0, 5, columns=MakeColumns(1, 0, np.array([True, False, True, True]), POINTS[:2])),
    PriceQuery(0, 6, move=MovePrices(0, 1, 0.3, np.array([0.5, 1.0, 0.2, 0.9, 1.1]))),
    PriceQuery(0, 6, trim=Trim(0, POINTS), evaluate=Evaluate(POINTS[None, :3])),
]


class Unreliable:
    """Sites of which one is replaced by a fresh one, or loses its reply, before the exchange with a number."""

    bytes_up = bytes_down = 0

    def __init__(self, replaced: Sequence[int] = (), lost: Sequence[int] = (), deaf: Sequence[int] = ()) -> None:
        self.workers = [SiteWorker(NodeData.checked(name, rows)) for name, rows in ROWS.items()]
        self.replaced, self.lost, self.deaf = replaced, lost, deaf
        self.exchanges = 0

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(ROWS)

    def exchange(self, requests: Sequence[Request]) -> list[Response]:
        self.exchanges += 1
        if self.exchanges in self.replaced:
            self.workers[1] = SiteWorker(NodeData.checked("south", ROWS["south"]))
        if self.exchanges in self.deaf:
            answers = InProcessTransport(self.workers[:1]).exchange(requests[:1])
        else:
            answers = InProcessTransport(self.workers).exchange(requests)
        if self.exchanges in (*self.lost, *self.deaf):
            answers[1:] = [Failure("south", "no sign of life")]
        return answers

    def close(self) -> None: ...


def conversation(transport: Unreliable) -> list[Array]:
    channel = Channel(transport)
    replies = [channel.ask_prices(query) for query in STEPS]
    numbers: list[Array] = []
    for one in replies:
        for reply in one:
            numbers += [] if reply.trimmed is None else [reply.trimmed.values, reply.trimmed.offsets]
            numbers += [] if reply.priced is None else [np.array(reply.priced.total), reply.priced.column_prices]
            numbers += [] if reply.columns is None else [reply.columns.overlaps, reply.columns.prices]
    return numbers


@pytest.mark.parametrize("event", ["replaced", "lost", "deaf"])
@pytest.mark.parametrize("at", range(2, 9))
def test_a_site_that_was_replaced_or_silent_goes_on_with_the_same_prices(event: str, at: int) -> None:
    honest = conversation(Unreliable())
    for told, expected in zip(conversation(Unreliable(**{event: (at,)})), honest, strict=True):
        np.testing.assert_array_equal(told, expected)


def test_two_replacements_in_one_run() -> None:
    honest = conversation(Unreliable())
    for told, expected in zip(conversation(Unreliable(replaced=(4, 15))), honest, strict=True):
        np.testing.assert_array_equal(told, expected)


def test_only_the_site_that_is_behind_is_sent_the_steps_again() -> None:
    transport = Unreliable(replaced=(5,))
    seen: list[list[Request]] = []
    exchange = transport.exchange
    transport.exchange = lambda requests: seen.append(list(requests)) or exchange(requests)  # type: ignore[method-assign]
    channel = Channel(transport)
    for query in STEPS[:5]:
        channel.ask_prices(query)
    assert channel.exchanges == len(seen) == 5 + 4 + 1  # as planned, the steps again, the query again
    for north, south in seen[5:9]:
        assert isinstance(north, PriceQuery)
        assert isinstance(south, PriceQuery)
        assert not north.changes
        assert south.changes
        assert south.trim is None


def test_a_site_that_cannot_be_brought_back_is_named() -> None:
    class Wrong(Unreliable):
        def exchange(self, requests: Sequence[Request]) -> list[Response]:
            answers = super().exchange(requests)
            return [answers[0], Failure("south", "out of step: at 0, asked for 9")]

    channel = Channel(Wrong())
    with pytest.raises(NodeFailed, match="'south': out of step"):
        channel.ask_prices(STEPS[0])


def test_a_final_failure_is_not_asked_for_again() -> None:
    class Refusing(Unreliable):
        def exchange(self, requests: Sequence[Request]) -> list[Response]:
            self.exchanges += 1
            return [Failure("someone", "does not take part", final=True), *super().exchange(requests)[1:]]

    transport = Refusing()
    with pytest.raises(NodeFailed, match="'north': does not take part"):
        Channel(transport).ask_prices(STEPS[0])
    assert transport.exchanges == 2  # once, counted twice


def test_a_reply_to_another_round_is_none() -> None:
    class Late(Unreliable):
        def exchange(self, requests: Sequence[Request]) -> list[Response]:
            return [replace(answer, round=7) for answer in super().exchange(requests)]  # type: ignore[call-arg]

    channel = Channel(Late())
    with pytest.raises(NodeFailed, match="answered out of turn"):
        channel.ask([Query(0)] * 2)
    channel.round = 6
    assert all(isinstance(reply, PriceReply) for reply in channel.ask_prices(PriceQuery(0)))
