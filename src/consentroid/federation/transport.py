"""The coordinator's side of a FLARE job: a transport over auxiliary messages.

Every wait ends. A request has `budget + slack` seconds in all, and a node that has given no sign of life for `silence`
seconds is lost; both come back as a `Failure` that names the node and the reason. A node that waits for its owner's
approval may take `approval` seconds. How a node answers: `desk.py`; what a request carries: `signing.py`.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from ..core.errors import NodeFailed
from ..protocol import codec
from ..protocol.messages import Failure, Query, Request, Response
from ..transport.metered import decoded
from .protocol import ASK, COLLECT, DONE, REFUSED, TOPIC, WAITING, WORKING, Limits
from .signing import REQUEST, Question, identifier_of

STOPPED = "FLARE stopped the job"
Seal = Callable[[Question], bytes]


@dataclass
class NodeStatus:
    """What the live table shows of a node."""

    state: str = "joining"
    round: int = 0
    heard: float = 0.0  # time of the last sign of life
    seconds: float = 0.0  # of the last answer


class FlareTransport:
    """`exchange` over FLARE; knows nothing of K-means."""

    def __init__(
        self, engine: Any, fl_ctx: FLContext, nodes: Sequence[str], seal: Seal, run: str, limits: Limits | None = None
    ) -> None:
        self._engine = engine
        self._ctx = fl_ctx
        self._nodes = tuple(nodes)
        self._seal, self._run = seal, run
        self._limits = limits or Limits()
        self._numbers = itertools.count(1)
        self.last_number = 0  # of the requests sent last
        self._job = str(fl_ctx.get_job_id())
        self._joined: set[str] = set()
        self._dead: set[str] = set()
        self.lost: dict[str, Failure] = {}  # nodes that will not come back in this job, and why
        self._closed = False
        self._last_exchange = -math.inf
        self._pool = ThreadPoolExecutor(len(self._nodes), thread_name_prefix="exchange")
        self.status = {node: NodeStatus() for node in self._nodes}
        self.bytes_down = 0
        self.bytes_up = 0
        self.exchanges = 0

    @property
    def nodes(self) -> tuple[str, ...]:
        return self._nodes

    def exchange(self, requests: Sequence[Request]) -> list[Response]:
        limited = [self._within_limits(request) for request in requests]
        rounds = [getattr(request, "round", 0) for request in limited]
        answers = self.ask(REQUEST, _encoded(limited), rounds, [_budget(request) for request in limited])
        responses: list[Response] = []
        for node, answer in zip(self._nodes, answers, strict=True):
            responses.append(answer if isinstance(answer, Failure) else decoded(node, answer))
            if isinstance(responses[-1], Failure):
                self.status[node].state = "failed" if node not in self.lost else "lost"
        return responses

    def ask(
        self,
        kind: str,
        contents: Sequence[bytes],
        rounds: Sequence[int] | None = None,
        budgets: Sequence[float] | None = None,
    ) -> list[bytes | Failure]:
        """One signed request to each node; what each answered, as bytes."""
        for failure in self.lost.values():  # FLARE does not bring a node back into a running job: asking again is idle
            raise NodeFailed(failure.node, failure.reason)
        time.sleep(max(self._limits.pace - (time.monotonic() - self._last_exchange), 0.0))
        self._last_exchange = time.monotonic()
        self.exchanges += 1
        number = self.last_number = next(self._numbers)
        n_sites = len(self._nodes)
        work: list[Future[bytes | Failure]] = []
        calls: list[_Call] = []
        for node, content, round, budget in zip(
            self._nodes, contents, rounds or [0] * n_sites, budgets or [0.0] * n_sites, strict=True
        ):
            question = Question(self._run, self._job, node, n_sites, number, kind, content)
            calls.append(_Call(question, round, budget))
            try:
                work.append(self._pool.submit(self._converse, node, calls[-1]))
            except RuntimeError:  # closed meanwhile
                work.append(Future())
                work[-1].set_result(Failure(node, STOPPED, round, final=True))
        answers = [one.result() for one in work]
        self.bytes_down += sum(len(call.data) for call in calls)
        self.bytes_up += sum(call.received for call in calls)
        return answers

    def close(self) -> None:
        """Conversations end at their next turn, also those that have not begun: `exchange` always returns."""
        self._closed = True
        self._pool.shutdown(wait=False)

    def report_dead(self, node: str) -> None:
        """FLARE has noticed that a node's process ended: no need to wait for its silence."""
        self._dead.add(node)

    def _within_limits(self, request: Request) -> Request:
        """A request without a budget gets one: the node then replies in time with the bound it has."""
        if isinstance(request, Query) and request.solve is not None:
            seconds = min(request.solve.seconds, self._limits.longest)
            return replace(request, solve=replace(request.solve, seconds=seconds))
        return request

    def _converse(self, node: str, call: _Call) -> bytes | Failure:
        """Ask, then collect until there is an answer or a reason to give up."""
        call.seal(self._seal)
        status = self.status[node]
        status.state, status.round = "working", call.round
        while True:
            sent = time.monotonic()
            state, data, trouble = self._call(node, call)
            now = time.monotonic()
            if trouble is None:
                self._joined.add(node)
                call.heard, status.heard = now, time.time()
            if state == DONE:
                call.received += len(data)
                status.state, status.seconds = "answered", now - call.started
                return data
            if state == REFUSED:
                status.state = "failed"
                return Failure(node, "does not accept who asks; its own log says why", call.round, final=True)
            call.collecting = state in (WORKING, WAITING)  # a node that knows nothing of the request is asked again
            call.approval = state == WAITING
            status.state = _shown(state, trouble, node in self._joined)
            reason = self._reason_to_give_up(node, call, now, trouble)
            if reason is not None:
                status.state = "lost"
                self.lost[node] = Failure(node, reason, call.round, final=True)
                return self.lost[node]
            if self._stopped():
                status.state = "stopped"
                return Failure(node, STOPPED, call.round, final=True)
            if now - sent < 0.2:  # an error that comes back at once: do not hammer the node
                time.sleep(0.5)

    def _call(self, node: str, call: _Call) -> tuple[str, bytes, str | None]:
        replies = self._engine.send_aux_request(
            targets=[node],
            topic=TOPIC,
            request=call.shareable(),
            timeout=self._limits.call,
            fl_ctx=self._ctx,
            optional=True,
        )
        return _state_of(replies.get(node) if replies else None, call.identifier)

    def _reason_to_give_up(self, node: str, call: _Call, now: float, trouble: str | None) -> str | None:
        limits = self._limits
        silence = limits.silence if node in self._joined else limits.start
        if now - call.heard > silence:
            return f"gave no sign of life for {now - call.heard:.0f} s ({trouble or 'no answer'})"
        if call.approval and now - call.started > limits.approval:
            return f"its owner has not approved the job within {limits.approval:.0f} s"
        if not call.approval and now - call.started > call.budget + limits.slack:
            return f"did not answer within its budget of {call.budget:.0f} s and {limits.slack:.0f} s of slack"
        if node in self._dead or (trouble is not None and self._aborted()):
            return f"its process ended ({trouble or 'FLARE reports it dead'})"
        return None

    def _stopped(self) -> bool:
        return self._closed or self._aborted()

    def _aborted(self) -> bool:
        signal = self._ctx.get_run_abort_signal()
        return bool(signal is not None and signal.triggered)


class _Call:
    """One request to one node, until its answer."""

    def __init__(self, question: Question, round: int, budget: float) -> None:
        self._question = question
        self.round, self.budget = round, budget
        self.identifier, self.data = "", b""
        self.started = self.heard = time.monotonic()
        self.collecting = self.approval = False
        self.received = 0

    def seal(self, seal: Seal) -> None:
        self.data = seal(self._question)
        self.identifier = identifier_of(self.data)

    def shareable(self) -> Shareable:
        message = Shareable()
        message.update({"call": COLLECT if self.collecting else ASK, "id": self.identifier})
        if not self.collecting:
            message["data"] = self.data
        return message


def _encoded(requests: Sequence[Request]) -> list[bytes]:
    """All sites are mostly asked the same: it is encoded once."""
    known: dict[int, bytes] = {}
    for request in requests:
        if id(request) not in known:
            known[id(request)] = codec.encode(request)
    return [known[id(request)] for request in requests]


def _budget(request: Request) -> float:
    return request.solve.seconds if isinstance(request, Query) and request.solve is not None else 0.0


def _shown(state: str, trouble: str | None, joined: bool) -> str:
    if trouble is not None:
        return "silent" if joined else "joining"
    return "waiting for approval" if state == WAITING else "working"


def _state_of(reply: Any, identifier: str) -> tuple[str, bytes, str | None]:
    """(state, data, trouble): trouble says why there is neither an answer nor a sign of life."""
    if not isinstance(reply, Shareable):
        return "", b"", "no reply"
    code = reply.get_return_code(ReturnCode.OK)
    if code != ReturnCode.OK:
        return "", b"", str(code).lower()
    data = reply.get("data", b"")
    if reply.get("id") != identifier or not isinstance(data, bytes):
        return "", b"", "a reply to another request"
    return str(reply.get("state")), data, None
