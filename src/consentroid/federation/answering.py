"""From a question that passed the gate to an answer: policy, approval, the worker on the rows, a line in the log."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgpack
import numpy as np

from ..core.errors import InvalidInput, MalformedMessage, NodeRefused, SolverUnavailable
from ..core.problem import NodeData
from ..data.tables import read_table
from ..protocol import codec
from ..protocol.messages import Describe, Failure, PriceQuery, PriceReply, Query, Request
from ..site.guard import Guard
from ..site.masks import Hello, SiteMasks
from ..site.policy import Meter, Policy, Size, refusal, size_of
from ..site.worker import SiteWorker
from ..transport.metered import encoded
from .approval import Approvals, Asked
from .kit import DATA_FILE
from .protocol import LONGEST_SOLVE
from .secure import MET, unpacked
from .signing import HELLO, REQUEST, Question
from .site_log import ANSWERED, DAY, Entry, SiteLog

PRICES_FOLDER = "prices"  # in the kit: what `consentroid node verify` needs, and nobody else
log = logging.getLogger(__name__)


@dataclass
class Answering:
    """Answers for one site in one job."""

    site: str
    open_worker: Callable[[str], SiteWorker]  # for a run
    policy: Policy
    book: SiteLog
    approvals: Approvals
    who: str = "unknown"  # submitted the job
    masks: SiteMasks | None = None  # None: the site cannot mask
    _worker: SiteWorker | None = None
    _meter: Meter | None = None
    _approved: bool = False

    def __call__(self, question: Question) -> bytes:
        started, size, outcome = time.time(), Size(question.kind), ANSWERED
        round = -1
        try:
            if question.kind == REQUEST:
                request = within_limits(codec.decode_request(question.content))
                round = getattr(request, "round", -1)
                size = size_of(request)
                self._admit(question, request, size)
                data = self._answer(question, request)
            else:
                data = self._agree(question)
        except Exception as error:  # a failing site is a value to the coordinator, never a crash
            if not isinstance(error, NodeRefused):
                log.warning("request failed: %s: %s", type(error).__name__, error)
            outcome = public_reason(error)
            data = encoded(self.site, Failure(self.site, outcome, round, final=isinstance(error, NodeRefused)))
        self._note(question, size, started, outcome)
        return data

    def _admit(self, question: Question, request: Request, size: Size) -> None:
        if self._meter is None:
            self._meter = Meter(self.policy, self.book.earlier(question.run))
        self._meter.admit(request, question.n_sites, masked=self._masked)
        if self.policy.approval == "hand" and not self._approved:  # each job, also one that resumes a run
            described = request if isinstance(request, Describe) else None
            self.approvals.wait(
                Asked(
                    job=question.job,
                    run=question.run,
                    who=self.who,
                    n_sites=question.n_sites,
                    n_clusters=size.n_clusters,
                    features=[] if described is None else list(described.features),
                    domain_given=described is None or described.lower is not None,
                    masked=self._masked,
                    resumes=described is None,
                    time=time.time(),
                )
            )
            self._approved = True

    @property
    def _masked(self) -> bool:
        return self.masks is not None and self.masks.ready

    def _open(self, run: str) -> SiteWorker:
        if self._worker is None:
            self._worker = self.open_worker(run)
        return self._worker

    def _answer(self, question: Question, request: Request) -> bytes:
        response = self._open(question.run).answer(request)
        if self.masks is not None and self.masks.ready and isinstance(response, PriceReply):
            assert isinstance(request, PriceQuery)
            return self.masks.mask(request, response, question.number, question.digest).packed()
        return encoded(self.site, response)

    def _agree(self, question: Question) -> bytes:
        """The two steps that agree on masks: a signed key of this site, then the keys of all."""
        if self.masks is None:
            raise NodeRefused("this site has no key to sign with, so it cannot mask its sums")
        told = unpacked(question.content)
        if question.kind == HELLO:
            weight, largest = extent(self._open(question.run))
            if told is not None:  # a domain is known: no need to look at the rows
                largest = largest_of(told)
            return bytes(msgpack.packb(self.masks.hello(weight, largest).packed()))
        if not isinstance(told, list):
            raise MalformedMessage("the keys for masks are no list")
        self.masks.meet([Hello.unpacked(one) for one in told], question.n_sites)
        return MET

    def _note(self, question: Question, size: Size, started: float, outcome: str) -> None:
        self.book.add(
            Entry(
                time=started,
                who=self.who,
                run=question.run,
                job=question.job,
                number=question.number,
                kind=size.kind,
                n_clusters=size.n_clusters,
                boxes=size.boxes,
                points=size.points,
                smallest_group=None if self._worker is None else self._worker.guard.take_smallest(),
                digest=question.digest.hex(),
                seconds=time.time() - started,
                outcome=outcome,
            )
        )


def extent(worker: SiteWorker) -> tuple[float, float]:
    """Weight of the rows and their largest |x|; only powers of two above them are told."""
    return float(worker.rows.weights.sum()), float(np.abs(worker.rows.points).max())


def largest_of(sides: object) -> float:
    """The largest |x| that a stated domain admits; the rows are held to it when the run is described."""
    try:
        largest = float(np.abs(np.array(sides, dtype=float)).max())
    except (ValueError, TypeError):
        raise MalformedMessage("the domain is not made of numbers") from None
    if not np.isfinite(largest):
        raise MalformedMessage("the domain is not finite")
    return largest


def within_limits(request: Request) -> Request:
    """The site's own limit on time; a solve that reaches it replies with the bound it has by then."""
    if isinstance(request, Query) and request.solve is not None:
        seconds = min(request.solve.seconds, LONGEST_SOLVE)
        return replace(request, solve=replace(request.solve, seconds=seconds))
    return request


def public_reason(error: Exception) -> str:
    """What may be told of an error: other messages can quote rows, so they stay in the site's log."""
    if isinstance(error, NodeRefused | MalformedMessage | SolverUnavailable):
        return str(error)
    return f"{type(error).__name__}; the site's own log has the details"


def open_worker(kit: Path, name: str, policy: Policy, run: str) -> SiteWorker:
    """The site's worker on the private table that `consentroid node start` wrote down."""
    try:
        told = json.loads((kit / "local" / DATA_FILE).read_text())
        path, columns = Path(told["data"]), told.get("columns")
    except (OSError, ValueError, KeyError) as error:
        raise NodeRefused(
            "no private table is set up at this node; run `consentroid node start KIT --data FILE` there"
        ) from error
    try:
        table = read_table(path, columns)
        data = NodeData.checked(name, table.rows)
    except InvalidInput as error:
        log.warning("private table: %s", error)
        raise NodeRefused("the private table cannot be read; the site's own log has the details") from None
    if len(data.points) < policy.least_rows:
        raise refusal("least_rows", "; the site has fewer rows than it may report on")
    if policy.paper_methods:
        from ..paper.worker import PaperWorker

        return PaperWorker(data, table.names)
    prices = kit / PRICES_FOLDER
    prices.mkdir(mode=0o700, exist_ok=True)
    return SiteWorker(data, table.names, prices / f"{run}.npz", Guard(policy.least_rows))


def forget_prices(kit: Path, keep_days: int) -> None:
    """Prices of earlier runs are needed to verify their certificates, for as long as the policy says."""
    oldest = time.time() - keep_days * DAY
    for path in (kit / PRICES_FOLDER).glob("*.npz"):
        if path.stat().st_mtime < oldest:
            path.unlink(missing_ok=True)
