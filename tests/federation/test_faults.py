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
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare")

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply

from consentroid.core.errors import NodeFailed
from consentroid.core.problem import Problem
from consentroid.federation.protocol import ASK, DONE, Limits
from consentroid.federation.site import Desk, serve
from consentroid.federation.transport import FlareTransport
from consentroid.fitting import FitResult, run
from consentroid.paper.settings import Settings
from consentroid.paper.worker import PaperWorker
from consentroid.protocol import codec
from consentroid.protocol.messages import Describe, Failure, Reply, Request, Response
from consentroid.transport.checked import CheckedTransport
from consentroid.transport.inprocess import InProcessTransport
from consentroid.transport.journal import JournalTransport

NODES = ("north", "south", "west")
VICTIM = "south"
SOLVING = 4  # a round whose query asks for a solve; rounds 2 and 3 ask for costs only
LIMITS = Limits(call=1.0, silence=1.0, slack=1.0, start=1.0, longest=20.0)
SETTINGS = Settings(2, gap=1e-6)


@pytest.fixture(scope="module")
def problem() -> Problem:
    rng = np.random.default_rng(4)
    return Problem.checked({name: rng.normal(size=(8, 2)) + 3 * rng.integers(0, 2, (8, 1)) for name in NODES}, 2)


@pytest.fixture(scope="module")
def undisturbed(problem: Problem) -> FitResult:
    result = run(InProcessTransport.of(problem, PaperWorker), SETTINGS, domain=problem.domain)
    assert result.rounds > 6, "faults strike in round 3 and need a run that goes on from there"
    return result


class Wire:
    """Carries calls from a `FlareTransport` to desks as FLARE's engine does; `fault` sees each call to the victim."""

    def __init__(self, problem: Problem, fault: Fault | None = None) -> None:
        self.problem = problem
        self.fault = fault
        self.desks = {data.name: self._desk(data.name) for data in problem.nodes}

    def _desk(self, name: str) -> Desk:
        data = next(one for one in self.problem.nodes if one.name == name)
        return Desk(name, lambda: PaperWorker(data), poll=0.2)

    def restart(self, name: str) -> None:
        """The node comes back without any memory."""
        self.desks[name].close()
        self.desks[name] = self._desk(name)

    def send_aux_request(self, targets: list[str], request: Shareable, **_: Any) -> dict[str, Shareable]:
        (name,) = targets
        if self.fault is None or name != VICTIM:
            return {name: serve(self.desks[name], request)}
        return {name: self.fault(self, name, request)}

    def close(self) -> None:
        for desk in self.desks.values():
            desk.close()


Fault = Callable[[Wire, str, Shareable], Shareable]


def round_of(request: Shareable) -> int:
    return -1 if request["call"] != ASK else getattr(codec.decode_request(request["data"]), "round", 0)


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


def altered(change: Callable[[Reply], Reply]) -> Fault:
    def strike(line: Wire, name: str, request: Shareable) -> Shareable:
        reply = codec.decode_response(finished(line, name, request))
        assert isinstance(reply, Reply)
        return envelope(request, change(reply))

    return strike


def solved(reply: Reply, **changes: Callable[[Any], Any]) -> Reply:
    assert reply.solved is not None
    return replace(reply, solved=replace(reply.solved, **{k: f(getattr(reply.solved, k)) for k, f in changes.items()}))


def late(line: Wire, name: str, request: Shareable) -> Shareable:
    """The answer to an earlier call arrives in place of this one's."""
    reply = serve(line.desks[name], request)
    reply["id"] = "an earlier request"
    return reply


def not_finite(line: Wire, name: str, request: Shareable) -> Shareable:
    data = finished(line, name, request)
    reply = codec.decode_response(data)
    assert isinstance(reply, Reply)
    assert reply.solved is not None
    return envelope(request, data.replace(reply.solved.values.tobytes(), np.full(1, np.nan).tobytes(), 1))


def disturbed(problem: Problem, fault: Fault | None, journal: Path, settings: Settings = SETTINGS) -> FitResult:
    line = Wire(problem, fault)
    transport = FlareTransport(line, FLContext(), NODES, LIMITS)
    try:
        return run(JournalTransport(CheckedTransport(transport), journal), settings, domain=problem.domain)
    finally:
        transport.close()
        line.close()


def assert_same(result: FitResult, expected: FitResult) -> None:
    """The same trace but for its times, so the same certificate."""
    for mine, theirs in zip(result.history, expected.history, strict=True):
        for name in ("round", "phase", "lower", "upper", "gap", "dual_value", "residual", "boxes_open", "boxes_done"):
            assert getattr(mine, name) == getattr(theirs, name), name
    assert np.array_equal(result.centroids, expected.centroids)
    mine, theirs = result.certificate.as_dict(), expected.certificate.as_dict()
    assert mine == theirs


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
    "a reply with NaN": (from_round(SOLVING, not_finite), "malformed message: Solved.values holds nan"),
    "a reply of another round": (
        from_round(3, altered(lambda reply: replace(reply, round=reply.round - 1))),
        "answered round 2 in round 3",
    ),
    "a reply of another node": (
        from_round(3, altered(lambda reply: replace(reply, node="north"))),
        "under the name 'north'",
    ),
    "a bound above its value": (
        from_round(SOLVING, altered(lambda reply: solved(reply, bounds=lambda b: b + 1.0))),
        "exceeds its own value",
    ),
    "centroids outside the domain": (
        from_round(SOLVING, altered(lambda reply: solved(reply, centroids=lambda m: m + 100.0))),
        "outside the box",
    ),
    "a value that breaks concavity": (
        from_round(SOLVING, altered(lambda reply: solved(reply, bounds=lambda b: b + 50.0, values=lambda v: v + 50.0))),
        "breaks concavity",
    ),
    "a refusal": (
        from_round(3, lambda l, n, r: envelope(r, Failure(n, "out of memory", 3))),
        "out of memory",
    ),
}


@pytest.mark.parametrize("name", GOES_ON)
def test_the_run_goes_on(name: str, problem: Problem, undisturbed: FitResult, tmp_path: Path) -> None:
    assert_same(disturbed(problem, GOES_ON[name], tmp_path / "journal"), undisturbed)


@pytest.mark.parametrize("name", STOPS)
def test_the_run_stops_with_node_and_reason_and_resumes(
    name: str, problem: Problem, undisturbed: FitResult, tmp_path: Path
) -> None:
    fault, reason = STOPS[name]
    with pytest.raises(NodeFailed, match=reason) as caught:
        disturbed(problem, fault, tmp_path / "journal")
    assert caught.value.node == VICTIM
    assert_same(disturbed(problem, None, tmp_path / "journal"), undisturbed)


def test_a_resumed_run_asks_no_node_twice(problem: Problem, undisturbed: FitResult, tmp_path: Path) -> None:
    with pytest.raises(NodeFailed):
        disturbed(problem, from_round(5, timeout), tmp_path / "journal")
    asked: list[int] = []

    def listening(line: Wire, name: str, request: Shareable) -> Shareable:
        asked.append(round_of(request))
        return serve(line.desks[name], request)

    assert_same(disturbed(problem, listening, tmp_path / "journal"), undisturbed)
    assert min(number for number in asked if number >= 0) == 5


def test_a_torn_journal_is_read_up_to_the_tear(problem: Problem, undisturbed: FitResult, tmp_path: Path) -> None:
    """A coordinator killed in the middle of writing."""
    journal = tmp_path / "journal"
    with pytest.raises(NodeFailed):
        disturbed(problem, from_round(5, timeout), journal)
    journal.write_bytes(journal.read_bytes()[:-7])
    assert_same(disturbed(problem, None, journal), undisturbed)


def test_a_journal_of_another_run_is_not_used(problem: Problem, undisturbed: FitResult, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    disturbed(problem, None, journal, replace(SETTINGS, seed=1, max_rounds=3))
    assert_same(disturbed(problem, None, journal), undisturbed)


class Slow(PaperWorker):
    """A node whose solver ignores its budget."""

    def answer(self, request: Request) -> Response:
        if getattr(request, "round", 0) >= 2:
            time.sleep(2.5)
        return super().answer(request)


def test_a_node_that_ignores_its_deadline_is_named_though_it_gives_signs_of_life(
    problem: Problem, tmp_path: Path
) -> None:
    line = Wire(problem)
    data = next(one for one in problem.nodes if one.name == VICTIM)
    line.desks[VICTIM] = Desk(VICTIM, lambda: Slow(data), poll=0.2)
    transport = FlareTransport(line, FLContext(), NODES, LIMITS)
    try:
        with pytest.raises(NodeFailed, match="did not answer within its budget of 0 s and 1 s of slack") as caught:
            run(CheckedTransport(transport), replace(SETTINGS, node_seconds=0.01), domain=problem.domain)
    finally:
        transport.close()
        line.close()
    assert caught.value.node == VICTIM


def test_a_long_solve_is_waited_for_beyond_the_limit_of_silence(problem: Problem, tmp_path: Path) -> None:
    """Signs of life keep a working node in the run: it may be silent for one second and works for longer."""
    line = Wire(problem)
    data = next(one for one in problem.nodes if one.name == VICTIM)
    line.desks[VICTIM] = Desk(VICTIM, lambda: Slow(data), poll=0.2)
    transport = FlareTransport(line, FLContext(), NODES, replace(LIMITS, slack=30.0))
    try:
        result = run(CheckedTransport(transport), replace(SETTINGS, max_rounds=1, prove=False), domain=problem.domain)
    finally:
        transport.close()
        line.close()
    assert result.lower_bound > 0


def test_a_node_slower_than_the_deadline_replies_with_the_bound_it_has(
    problem: Problem, undisturbed: FitResult, tmp_path: Path
) -> None:
    hurried = replace(SETTINGS, node_seconds=0.0, max_rounds=8)
    result = disturbed(problem, None, tmp_path / "journal", hurried)
    assert result.lower_bound <= undisturbed.upper_bound * (1 + 1e-12)
    assert result.upper_bound >= undisturbed.lower_bound


def test_the_node_keeps_a_log_of_what_it_was_asked(
    problem: Problem, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="consentroid.federation.site"):
        disturbed(problem, None, tmp_path / "journal", replace(SETTINGS, max_rounds=1, prove=False))
    said = [record.getMessage() for record in caplog.records]
    assert said.count("asked: a description, for 2 clusters") == len(NODES)
    assert said.count("asked: round 1, boxes solved: 1") == len(NODES)


def test_closing_the_transport_ends_every_conversation(problem: Problem) -> None:
    begun = threading.Event()

    def silent(line: Wire, name: str, request: Shareable) -> Shareable:
        begun.set()
        return timeout(line, name, request)

    line = Wire(problem, silent)
    transport = FlareTransport(line, FLContext(), NODES, replace(LIMITS, start=3600.0, slack=3600.0))
    answers: list[Response] = []
    asking = threading.Thread(target=lambda: answers.extend(transport.exchange([Describe(2)] * 3)))
    asking.start()
    assert begun.wait(10.0)
    transport.close()
    asking.join(10.0)
    line.close()
    assert [answer.node for answer in answers if isinstance(answer, Failure)] == [VICTIM]
