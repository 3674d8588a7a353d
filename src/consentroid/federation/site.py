"""What runs at a node inside a FLARE job: answers the coordinator from the private table named in the kit's local/.

The component takes no arguments, so a job cannot tell it what to read. The conversation is made of short calls: the
coordinator *asks* under an identifier; if the answer is ready within `POLL` seconds it comes back at once, otherwise
the node says "working", a sign of life, and the coordinator *collects* under the same identifier later. Asking twice
under one identifier starts the work once: a lost or repeated call changes nothing.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import replace
from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from ..core.errors import InvalidInput, MalformedMessage, NodeRefused, SolverUnavailable
from ..core.problem import NodeData
from ..data.tables import read_table
from ..paper.worker import PaperWorker
from ..protocol import codec
from ..protocol.messages import Failure, Query, Request, Response
from ..transport.metered import encoded
from .kit import DATA_FILE
from .protocol import ASK, COLLECT, DONE, LONGEST_SOLVE, POLL, TOPIC, UNKNOWN, WORKING

MAX_IDENTIFIER = 100
KEPT = 4  # answers kept for a coordinator that lost one

log = logging.getLogger(__name__)


class Desk:
    """Answers requests one at a time, in a thread of its own; knows nothing of FLARE."""

    def __init__(self, node: str, worker: Callable[[], PaperWorker], poll: float = POLL) -> None:
        self._node = node
        self._poll = poll
        self._open = worker
        self._worker: PaperWorker | None = None
        self._answers: OrderedDict[str, Future[bytes]] = OrderedDict()
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="node")

    def ask(self, identifier: str, data: bytes) -> tuple[str, bytes]:
        with self._lock:
            if identifier not in self._answers:
                self._answers[identifier] = self._thread.submit(self._answer, data)
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
        except NotYet:
            return WORKING, b""

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _answer(self, data: bytes) -> bytes:
        request: Request | None = None
        response: Response
        try:
            request = within_limits(codec.decode_request(data))
            log.info("asked: %s", in_words(request))
            if self._worker is None:
                self._worker = self._open()
            response = self._worker.answer(request)
        except Exception as error:  # a failing node is a value to the coordinator, never a crash
            log.warning("request refused: %s: %s", type(error).__name__, error)
            response = Failure(self._node, public_reason(error), getattr(request, "round", -1))
        return encoded(self._node, response)


def in_words(request: Request) -> str:
    """What the node's log keeps of a request: who holds rows can see how much was asked of them."""
    if not isinstance(request, Query):
        return f"a description, for {request.n_clusters} clusters"
    parts = (
        ("boxes solved", None if request.solve is None else len(request.solve.boxes)),
        ("boxes counted", None if request.statistics is None else len(request.statistics.boxes)),
        ("candidates evaluated", None if request.evaluate is None else len(request.evaluate.candidates)),
    )
    return f"round {request.round}, " + ", ".join(f"{what}: {n}" for what, n in parts if n is not None)


def within_limits(request: Request) -> Request:
    """The node's own limit on time; a solve that reaches it replies with the bound it has by then."""
    if isinstance(request, Query) and request.solve is not None:
        seconds = min(request.solve.seconds, LONGEST_SOLVE)
        return replace(request, solve=replace(request.solve, seconds=seconds))
    return request


def public_reason(error: Exception) -> str:
    """What may be told of an error: other messages can quote rows, so they stay in the node's log."""
    if isinstance(error, NodeRefused | MalformedMessage | SolverUnavailable):
        return str(error)
    return f"{type(error).__name__}; the node's own log has the details"


def open_worker(local: Path, name: str) -> PaperWorker:
    """The node's worker on the private table that `consentroid node start` wrote down."""
    try:
        told = json.loads((local / DATA_FILE).read_text())
        path, columns = Path(told["data"]), told.get("columns")
    except (OSError, ValueError, KeyError) as error:
        raise NodeRefused(
            "no private table is set up at this node; run `consentroid node start KIT --data FILE` there"
        ) from error
    try:
        table = read_table(path, columns)
        return PaperWorker(NodeData.checked(name, table.rows), table.names)
    except InvalidInput as error:
        log.warning("private table: %s", error)
        raise NodeRefused("the private table cannot be read; the node's own log has the details") from None


class ConsentroidSite(Executor):  # type: ignore[misc]
    """The component that a job names at every node; see `job.py`."""

    def __init__(self) -> None:
        super().__init__()
        self._desk: Desk | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.START_RUN:
            local = Path(fl_ctx.get_workspace().get_site_config_dir())
            name = str(fl_ctx.get_identity_name())
            self._desk = Desk(name, lambda: open_worker(local, name))
            fl_ctx.get_engine().register_aux_message_handler(TOPIC, self._handle)
        elif event_type == EventType.END_RUN and self._desk is not None:
            self._desk.close()

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        return make_reply(ReturnCode.TASK_UNKNOWN)

    def _handle(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        if self._desk is None:
            return make_reply(ReturnCode.BAD_REQUEST_DATA)
        return serve(self._desk, request)


def serve(desk: Desk, request: Shareable) -> Shareable:
    """One call from the coordinator, in FLARE's envelope."""
    call, identifier, data = request.get("call"), request.get("id"), request.get("data")
    if not isinstance(identifier, str) or len(identifier) > MAX_IDENTIFIER:
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
