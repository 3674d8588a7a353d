"""Each wrapper changes one thing around any transport, wrapped or not."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from consentroid.core.problem import NodeData
from consentroid.protocol import codec
from consentroid.protocol.messages import (
    Describe,
    Evaluate,
    Evaluated,
    Failure,
    PriceQuery,
    PriceReply,
    Request,
    Response,
)
from consentroid.protocol.sizes import size_of
from consentroid.protocol.transport import Transport
from consentroid.site.worker import SiteWorker
from consentroid.transport.checked import CheckedTransport
from consentroid.transport.inprocess import InProcessTransport
from consentroid.transport.journal import JournalTransport
from consentroid.transport.metered import MeteredTransport, WireTransport
from consentroid.transport.recorder import Recorder

ROWS = np.random.default_rng(0).normal(size=(6, 2))
QUERY = PriceQuery(1, evaluate=Evaluate(ROWS[None, :3]))


def sites() -> InProcessTransport:
    return InProcessTransport([SiteWorker(NodeData.checked(name, ROWS)) for name in ("a", "b")])


def layers(path: Path) -> dict[str, Callable[[Transport], Transport]]:
    return {
        "checked": CheckedTransport,
        "metered": MeteredTransport,
        "wire": WireTransport,
        "journal": lambda inner: JournalTransport(inner, path / "journal.msgpack"),
        "recorded": Recorder().around,
    }


@pytest.mark.parametrize("pair", list(itertools.permutations(layers(Path()), 2)), ids="-".join)
def test_wrappers_go_around_each_other_in_any_order(pair: tuple[str, str], tmp_path: Path) -> None:
    transport: Transport = sites()
    for name in pair:
        transport = layers(tmp_path)[name](transport)
    transport.exchange([Describe(2)] * 2)
    replies = transport.exchange([QUERY] * 2)
    direct = sites().exchange([QUERY] * 2)
    for reply, expected in zip(replies, direct, strict=True):
        assert isinstance(reply, PriceReply)
        assert isinstance(expected, PriceReply)
        np.testing.assert_array_equal(reply.evaluated.costs, expected.evaluated.costs)  # type: ignore[union-attr]
    assert transport.nodes == ("a", "b")
    assert (transport.bytes_up > 0) == bool({"metered", "wire"} & set(pair))
    transport.close()


def test_the_bytes_of_both_directions_are_counted() -> None:
    wire, metered = WireTransport(sites(), record=True), MeteredTransport(sites())
    replies = wire.exchange([QUERY] * 2)
    assert wire.bytes_down == 2 * len(codec.encode(QUERY))
    assert wire.bytes_up == sum(len(codec.encode(reply)) for reply in replies)
    assert wire.recorded is not None
    assert sum(map(len, wire.recorded)) == wire.bytes_up + wire.bytes_down
    replies = metered.exchange([QUERY] * 2)
    assert metered.bytes_down == 2 * size_of(QUERY)
    assert metered.bytes_up == sum(map(size_of, replies))


def test_a_message_is_encoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[str] = []
    pack = codec._pack
    monkeypatch.setattr(
        codec, "_pack", lambda message, sizes: packed.append(type(message).__name__) or pack(message, sizes)
    )
    transport = JournalTransport(WireTransport(sites()), tmp_path / "journal.msgpack")
    transport.exchange([replace(QUERY)] * 2)
    assert packed.count("PriceQuery") == 1
    assert packed.count("PriceReply") == 2


class Counting:
    """Answers every query with the number of exchanges so far; fails where told to."""

    nodes = ("a", "b")
    bytes_up = bytes_down = 0

    def __init__(self, failing: tuple[int, ...] = (), bad: tuple[int, ...] = ()) -> None:
        self.exchanges, self.failing, self.bad = 0, failing, bad

    def exchange(self, requests: list[Request]) -> list[Response]:
        self.exchanges += 1
        if self.exchanges in self.failing:
            return [Failure("a", "lost"), PriceReply(requests[1].round, "b")]  # type: ignore[union-attr]
        cost = -1.0 if self.exchanges in self.bad else float(self.exchanges)
        evaluated = Evaluated(np.array([cost]), np.ones((1, 1)), np.zeros((1, 1, 1)), np.zeros((1, 1)))
        return [PriceReply(one.round, node, evaluated=evaluated) for node, one in zip(self.nodes, requests)]  # type: ignore[union-attr]

    def close(self) -> None: ...


def told(responses: list[Response]) -> float | None:
    first = responses[0]
    return float(first.evaluated.costs[0]) if isinstance(first, PriceReply) and first.evaluated is not None else None


def asked(number: int) -> list[PriceQuery]:
    return [PriceQuery(number)] * 2


def test_a_journal_replays_what_was_answered_and_goes_on_live(tmp_path: Path) -> None:
    path, inner = tmp_path / "journal.msgpack", Counting(failing=(2,))
    first = JournalTransport(inner, path)
    assert [told(first.exchange(asked(i))) for i in (1, 2, 2, 3)] == [1.0, None, 3.0, 4.0]
    assert path.stat().st_mode & 0o777 == 0o600
    again = JournalTransport(Counting(), path)
    assert again.resumable == 3
    assert [told(again.exchange(asked(i))) for i in (1, 2, 3, 4)] == [1.0, 3.0, 4.0, 1.0]
    assert (again.replayed, again.resumable) == (3, 0)
    assert JournalTransport(Counting(), path).resumable == 4


def test_records_that_are_not_asked_for_are_passed_over(tmp_path: Path) -> None:
    """A restarted site was sent earlier steps again; the resumed run does not ask for them."""
    path = tmp_path / "journal.msgpack"
    first = JournalTransport(Counting(), path)
    for i in (1, 2, 11, 12, 3):
        first.exchange(asked(i))
    again = JournalTransport(Counting(), path)
    assert [told(again.exchange(asked(i))) for i in (1, 2, 3)] == [1.0, 2.0, 5.0]


def test_a_run_that_departs_from_its_journal_goes_on_live(tmp_path: Path) -> None:
    path = tmp_path / "journal.msgpack"
    first = JournalTransport(Counting(), path)
    for i in (1, 2, 3):
        first.exchange(asked(i))
    again = JournalTransport(Counting(), path)
    assert [told(again.exchange(asked(i))) for i in (1, 9, 3)] == [1.0, 1.0, 2.0]
    third = JournalTransport(Counting(), path)
    assert [told(third.exchange(asked(i))) for i in (1, 9, 3)] == [1.0, 1.0, 2.0]


def test_answers_of_no_use_are_asked_for_again_after_a_restart_too(tmp_path: Path) -> None:
    path = tmp_path / "journal.msgpack"
    first = JournalTransport(Counting(bad=(2, 3)), path)
    assert [told(first.exchange(asked(i))) for i in (1, 2, 2)] == [1.0, -1.0, -1.0]
    assert JournalTransport(Counting(), path).resumable == 2
    again = JournalTransport(Counting(), path)
    assert [told(again.exchange(asked(i))) for i in (1, 2, 2, 3)] == [1.0, -1.0, 1.0, 2.0]
    assert [told(JournalTransport(Counting(), path).exchange(asked(i))) for i in (1, 2)] == [1.0, 1.0]


def test_a_torn_record_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "journal.msgpack"
    first = JournalTransport(Counting(), path)
    for i in (1, 2):
        first.exchange(asked(i))
    path.write_bytes(path.read_bytes()[:-5])
    again = JournalTransport(Counting(), path)
    assert [told(again.exchange(asked(i))) for i in (1, 2)] == [1.0, 1.0]
    assert JournalTransport(Counting(), path).resumable == 2


def test_a_refusal_is_final_and_a_crash_is_not() -> None:
    class Crashing(SiteWorker):
        def answer(self, request: Request) -> Response:
            raise RuntimeError("no memory")

    data = NodeData.checked("a", ROWS)
    (refused,) = InProcessTransport([SiteWorker(data)]).exchange([Describe(2, np.zeros(2), np.zeros(2))])
    (crashed,) = InProcessTransport([Crashing(data)]).exchange([Describe(2)])
    assert isinstance(refused, Failure)
    assert isinstance(crashed, Failure)
    assert (refused.final, crashed.final) == (True, False)
