"""Where a site takes requests in: each is checked at the gate, worked on once, and kept for a coordinator that lost it.

The conversation is made of short calls: the coordinator *asks* under an identifier, the digest of its signed request;
if the answer is ready within `POLL` seconds it comes back at once, otherwise the site says "working", a sign of life,
and the coordinator *collects* under the same identifier later. Asking twice under one identifier starts the work once:
a lost or repeated call changes nothing. Who has no signed request gets no answer, and no word why.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply

from ..core.errors import NodeRefused
from .protocol import ASK, COLLECT, DONE, POLL, REFUSED, UNKNOWN, WAITING, WORKING
from .signing import Gate, Question, identifier_of

KEPT = 4  # answers kept for a coordinator that lost one
LENGTH = 64  # of an identifier

log = logging.getLogger(__name__)
Answer = Callable[[Question], bytes]


class Desk:
    """Answers one request at a time, in a thread of its own."""

    def __init__(
        self, gate: Gate, answer: Answer, poll: float = POLL, waiting: Callable[[], bool] = lambda: False
    ) -> None:
        self._gate = gate
        self._answer = answer
        self._poll = poll
        self._waiting = waiting  # whether the site waits for its owner's approval
        self._answers: OrderedDict[str, Future[bytes]] = OrderedDict()
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="site")

    def ask(self, identifier: str, data: bytes) -> tuple[str, bytes]:
        if identifier != identifier_of(data):
            return REFUSED, b""
        with self._lock:
            if identifier not in self._answers:
                try:
                    question = self._gate.open(data)
                except NodeRefused as refusal:
                    log.warning("a request was refused at the gate: %s", refusal)
                    return REFUSED, b""
                self._answers[identifier] = self._thread.submit(self._answer, question)
                while len(self._answers) > KEPT:
                    self._answers.popitem(last=False)[1].cancel()
        return self.collect(identifier)

    def collect(self, identifier: str) -> tuple[str, bytes]:
        with self._lock:
            answer = self._answers.get(identifier)
        if answer is None:
            return UNKNOWN, b""
        try:
            return DONE, answer.result(self._poll)
        except CancelledError:  # the job has ended
            return UNKNOWN, b""
        except NotYet:
            return (WAITING if self._waiting() else WORKING), b""

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


def serve(desk: Desk, request: Shareable) -> Shareable:
    """One call from the coordinator, in FLARE's envelope."""
    call, identifier, data = request.get("call"), request.get("id"), request.get("data")
    if not isinstance(identifier, str) or len(identifier) != LENGTH:
        return make_reply(ReturnCode.BAD_REQUEST_DATA)
    if call == ASK and isinstance(data, bytes):
        state, answer = desk.ask(identifier, data)
    elif call == COLLECT:
        state, answer = desk.collect(identifier)
    else:
        return make_reply(ReturnCode.BAD_REQUEST_DATA)
    reply = make_reply(ReturnCode.OK)
    reply.update({"id": identifier, "state": state, "data": answer})
    return reply
