"""Everything that can go wrong between coordinator and nodes, one fault at a time, over the real transport.

Only the wire is simulated here: calls travel by function instead of by TLS, so that a fault strikes at a known moment.
`test_faults_processes.py` kills real processes. After each fault the run ends with the certificate of an undisturbed
run, at once or resumed from its journal, and where it stops it names the node and the reason.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nvflare")

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply

from consentroid.core.errors import NodeFailed
from consentroid.core.problem import Problem
from consentroid.federation.desk import serve
from consentroid.federation.protocol import DONE
from consentroid.federation.site_log import SiteLog
from consentroid.protocol import codec
from consentroid.protocol.messages import Describe, Failure, PriceReply, Request, Response
from consentroid.site.worker import SiteWorker
from consentroid.transport.checked import CheckedTransport
from consentroid.transport.inprocess import InProcessTransport
from consentroid.transport.journal import JournalTransport
from engine_runs import Outcome, run_engine
from wire import FOLDER, LIMITS, NODES, VICTIM, Fault, Wire, desk_of, round_of

LATE = 6  # a round in the middle of the run


@pytest.fixture(scope="module")
def problem() -> Problem:
    rng = np.random.default_rng(4)
    return Problem.checked({name: rng.normal(size=(8, 2)) + 3 * rng.integers(0, 2, (8, 1)) for name in NODES}, 2)


@pytest.fixture(scope="module")
def undisturbed(problem: Problem) -> Outcome:
    result = run_engine(InProcessTransport.of(problem), problem)
    assert result.rounds > LATE + 2, "faults strike in the middle and need a run that goes on from there"
    return result


def once_in_round(number: int, strike: Fault) -> Fault:
    """The fault strikes one call of a round; all others go through."""
    struck = threading.Event()

    def fault(line: Wire, name: str, request: Shareable) -> Shareable:
        if not struck.is_set() and round_of(request) == number:
            struck.set()
            return strike(line, name, request)
        return serve(line.desks[name], request)

    return fault


def from_round(number: int, strike: Fault) -> Fault:
    """From some round on the fault strikes every call."""
    reached = threading.Event()

    def fault(line: Wire, name: str, request: Shareable) -> Shareable:
        if round_of(request) >= number:
            reached.set()
        return strike(line, name, request) if reached.is_set() else serve(line.desks[name], request)

    return fault


def timeout(line: Wire, name: str, request: Shareable) -> Shareable:
    return make_reply(ReturnCode.TIMEOUT)


def reply_lost(line: Wire, name: str, request: Shareable) -> Shareable:
    serve(line.desks[name], request)  # the node works, its answer is lost on the way
    return make_reply(ReturnCode.COMMUNICATION_ERROR)


def restarted(line: Wire, name: str, request: Shareable) -> Shareable:
    serve(line.desks[name], request)
    line.restart(name)
    return make_reply(ReturnCode.COMMUNICATION_ERROR)


def duplicated(line: Wire, name: str, request: Shareable) -> Shareable:
    first = serve(line.desks[name], request)
    second = serve(line.desks[name], request)
    assert first["data"] == second["data"], "the same request must not be worked on twice"
    return second


def envelope(request: Shareable, response: Response | bytes) -> Shareable:
    reply = make_reply(ReturnCode.OK)
    data = response if isinstance(response, bytes) else codec.encode(response)
    reply.update({"id": request["id"], "state": DONE, "data": data})
    return reply


def finished(line: Wire, name: str, request: Shareable) -> bytes:
    while True:
        reply = serve(line.desks[name], request)
        if reply["state"] == DONE:
            return bytes(reply["data"])


def altered(change: Callable[[PriceReply], PriceReply]) -> Fault:
    def strike(line: Wire, name: str, request: Shareable) -> Shareable:
        reply = codec.decode_response(finished(line, name, request))
        assert isinstance(reply, PriceReply)
        return envelope(request, change(reply))

    return strike


def late(line: Wire, name: str, request: Shareable) -> Shareable:
    """The answer to an earlier call arrives in place of this one's."""
    reply = serve(line.desks[name], request)
    reply["id"] = "an earlier request"
    return reply


def not_finite(line: Wire, name: str, request: Shareable) -> Shareable:
    """NaN in place of the first number of a reply; what has none goes through."""
    data = finished(line, name, request)
    reply = codec.decode_response(data)
    if not isinstance(reply, PriceReply) or reply.evaluated is None:
        return envelope(request, data)
    return envelope(request, data.replace(reply.evaluated.costs[:1].tobytes(), np.full(1, np.nan).tobytes(), 1))


def disturbed(problem: Problem, fault: Fault | None, journal: Path) -> Outcome:
    line = Wire(problem, fault)
    transport = line.transport()
    try:
        return run_engine(CheckedTransport(JournalTransport(transport, journal)), problem)
    finally:
        transport.close()
        line.close()


def assert_same(result: Outcome, expected: Outcome) -> None:
    """The same clusters, proven as well: the clock decides how many boxes a question has, so steps may differ."""
    assert result.upper == expected.upper
    assert np.array_equal(result.centroids, expected.centroids)
    assert result.upper * (1 - 1e-6) <= result.lower <= result.upper


GOES_ON: dict[str, Fault] = {
    "no fault": once_in_round(-2, timeout),
    "one call times out": once_in_round(3, timeout),
    "the reply is lost": once_in_round(3, reply_lost),
    "the connection is cut and restored": once_in_round(2, lambda l, n, r: time.sleep(0.5) or timeout(l, n, r)),
    "the request arrives twice": once_in_round(3, duplicated),
    "a late reply to an earlier call": once_in_round(3, late),
    "the node forgets everything": once_in_round(3, restarted),
    "a malformed reply, once": once_in_round(3, lambda l, n, r: envelope(r, b"\xc1garbage")),
    "a reply of another round, once": once_in_round(3, altered(lambda reply: replace(reply, round=2))),
}

STOPS: dict[str, tuple[Fault, str]] = {
    "a node that never answers": (from_round(3, timeout), "gave no sign of life"),
    "a node that never joins": (timeout, "gave no sign of life"),
    "a malformed reply": (from_round(3, lambda l, n, r: envelope(r, b"\xc1garbage")), "malformed message"),
    "a truncated reply": (from_round(3, lambda l, n, r: envelope(r, finished(l, n, r)[:-20])), "malformed message"),
    "a reply with NaN": (from_round(2, not_finite), "malformed message: Evaluated.costs holds nan"),
    "a reply of another round": (
        from_round(3, altered(lambda reply: replace(reply, round=reply.round - 1))),
        "round",
    ),
    "a reply of another node": (
        from_round(3, altered(lambda reply: replace(reply, node="north"))),
        "under the name 'north'",
    ),
    "a refusal": (
        from_round(3, lambda l, n, r: envelope(r, Failure(n, "out of memory", 3))),
        "out of memory",
    ),
}


@pytest.mark.parametrize("name", GOES_ON)
def test_the_run_goes_on(name: str, problem: Problem, undisturbed: Outcome, tmp_path: Path) -> None:
    assert_same(disturbed(problem, GOES_ON[name], tmp_path / "journal"), undisturbed)


@pytest.mark.parametrize("name", STOPS)
def test_the_run_stops_with_node_and_reason_and_resumes(
    name: str, problem: Problem, undisturbed: Outcome, tmp_path: Path
) -> None:
    fault, reason = STOPS[name]
    with pytest.raises(NodeFailed, match=reason) as caught:
        disturbed(problem, fault, tmp_path / "journal")
    assert caught.value.node == VICTIM
    assert_same(disturbed(problem, None, tmp_path / "journal"), undisturbed)


def test_a_resumed_run_asks_no_node_twice(problem: Problem, undisturbed: Outcome, tmp_path: Path) -> None:
    with pytest.raises(NodeFailed):
        disturbed(problem, from_round(5, timeout), tmp_path / "journal")
    asked: list[int] = []

    def listening(line: Wire, name: str, request: Shareable) -> Shareable:
        asked.append(round_of(request))
        return serve(line.desks[name], request)

    assert_same(disturbed(problem, listening, tmp_path / "journal"), undisturbed)
    assert min(number for number in asked if number >= 0) == 5


def test_a_torn_journal_is_read_up_to_the_tear(problem: Problem, undisturbed: Outcome, tmp_path: Path) -> None:
    """A coordinator killed in the middle of writing."""
    journal = tmp_path / "journal"
    with pytest.raises(NodeFailed):
        disturbed(problem, from_round(5, timeout), journal)
    journal.write_bytes(journal.read_bytes()[:-7])
    assert_same(disturbed(problem, None, journal), undisturbed)


def test_a_journal_of_another_run_is_not_used(problem: Problem, undisturbed: Outcome, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    other = Problem.checked({node.name: node.points[:-1] for node in problem.nodes}, 2)
    disturbed(other, None, journal)
    assert_same(disturbed(problem, None, journal), undisturbed)


class Slow(SiteWorker):
    """A site that takes its time."""

    def answer(self, request: Request) -> Response:
        if getattr(request, "round", 0) == 2:
            time.sleep(2.5)
        return super().answer(request)


def with_a_slow_site(problem: Problem, slack: float) -> Outcome:
    line = Wire(problem)
    data = next(one for one in problem.nodes if one.name == VICTIM)
    line.desks[VICTIM] = desk_of(VICTIM, lambda: Slow(data))
    transport = line.transport(replace(LIMITS, slack=slack))
    try:
        return run_engine(CheckedTransport(transport), problem)
    finally:
        transport.close()
        line.close()


def test_a_node_that_ignores_its_deadline_is_named_though_it_gives_signs_of_life(problem: Problem) -> None:
    with pytest.raises(NodeFailed, match="did not answer within its budget of 0 s and 1 s of slack") as caught:
        with_a_slow_site(problem, slack=1.0)
    assert caught.value.node == VICTIM


def test_a_long_answer_is_waited_for_beyond_the_limit_of_silence(problem: Problem, undisturbed: Outcome) -> None:
    """Signs of life keep a working node in the run: it may be silent for one second and works for longer."""
    assert_same(with_a_slow_site(problem, slack=30.0), undisturbed)


def test_the_node_keeps_a_log_of_what_it_was_asked(problem: Problem, tmp_path: Path) -> None:
    before = time.time()
    result = disturbed(problem, None, tmp_path / "journal")
    for name in NODES:
        told = [entry for entry in SiteLog(FOLDER / f"{name}.jsonl").entries() if entry.time >= before]
        assert (told[0].kind, told[0].n_clusters) == ("describe", 2)
        assert sum(entry.boxes for entry in told) > 0
        assert {entry.outcome for entry in told} == {"answered"}
        assert [entry.number for entry in told] == list(range(1, result.rounds + 2))


def test_closing_the_transport_ends_every_conversation(problem: Problem) -> None:
    begun = threading.Event()

    def silent(line: Wire, name: str, request: Shareable) -> Shareable:
        begun.set()
        return timeout(line, name, request)

    line = Wire(problem, silent)
    transport = line.transport(replace(LIMITS, start=3600.0, slack=3600.0))
    request = Describe(2, problem.domain.lower, problem.domain.upper)
    answers: list[Response] = []
    asking = threading.Thread(target=lambda: answers.extend(transport.exchange([request] * 3)))
    asking.start()
    assert begun.wait(10.0)
    transport.close()
    asking.join(10.0)
    line.close()
    assert len(answers) == len(NODES)
    assert VICTIM in [answer.node for answer in answers if isinstance(answer, Failure)]  # on a slow machine others, too
    late = transport.exchange([request] * 3)  # and nothing is asked any more
    assert all(isinstance(answer, Failure) and answer.final for answer in late)
