"""From a question that passed the gate to an answer: policy, approval, the worker on the rows, a line in the log."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace

import msgpack
import numpy as np

from ..core.arrays import Array
from ..core.errors import MalformedMessage, NodeRefused, SolverUnavailable
from ..data.preprocessing import Recipe
from ..protocol import codec
from ..protocol.messages import Describe, Failure, PriceQuery, PriceReply, Query, Request
from ..site.masks import Hello, SiteMasks
from ..site.policy import Meter, Policy, Size, size_of
from ..site.worker import SiteWorker
from ..transport.metered import encoded
from .approval import Approvals, Asked
from .preparing import DONE
from .private_table import Source
from .protocol import LONGEST_SOLVE
from .secure import MET, unpacked
from .signing import FEATURES, HELLO, PEERS, REQUEST, Question
from .site_log import ANSWERED, Entry, SiteLog

log = logging.getLogger(__name__)


@dataclass
class Answering:
    """Answers for one site in one job."""

    site: str
    source: Source
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
                data = self._set_up(question)
        except Exception as error:  # a failing site is a value to the coordinator, never a crash
            if not isinstance(error, NodeRefused):
                log.warning("request failed: %s: %s", type(error).__name__, error)
            outcome = public_reason(error)
            data = encoded(self.site, Failure(self.site, outcome, round, final=isinstance(error, NodeRefused)))
        self._note(question, size, started, outcome)
        return data

    def _admit(self, question: Question, request: Request, size: Size) -> None:
        self._metered(question).admit(request, question.n_sites, masked=self._masked)
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
            self._worker = self.source.worker(run)
        return self._worker

    def _answer(self, question: Question, request: Request) -> bytes:
        response = self._open(question.run).answer(request)
        if self.masks is not None and self.masks.ready and isinstance(response, PriceReply):
            assert isinstance(request, PriceQuery)
            return self.masks.mask(request, response, question.number, question.digest).packed()
        return encoded(self.site, response)

    def _set_up(self, question: Question) -> bytes:
        """What comes before the messages of the protocol: masks, and one scale for all sites."""
        told = unpacked(question.content)
        self._metered(question).admit_set_up()
        if question.kind == HELLO:
            weight, largest = self.source.extent()
            if told is not None:  # a domain is known: no need to look at the rows
                largest = largest_of(told)
            return bytes(msgpack.packb(self._able_to_mask().hello(weight, largest).packed()))
        if question.kind == PEERS:
            if not isinstance(told, list):
                raise MalformedMessage("the keys for masks are no list")
            self._able_to_mask().meet([Hello.unpacked(one) for one in told], question.n_sites)
            return MET
        if question.kind == FEATURES:
            return self._features(question, told)
        if not isinstance(told, dict):
            raise MalformedMessage("the recipe is no mapping")
        self.source.transform(Recipe.from_dict(told))
        self._worker = None
        return DONE

    def _features(self, question: Question, told: object) -> bytes:
        self._metered(question).check_masks(question.n_sites, self._masked)
        sums = self.source.features(None if told is None else numbers(told))
        if self._masked:
            masks = self._able_to_mask()
            return masks.mask_parts({"features": sums}, 0, 0, question.number, question.digest).packed()
        return bytes(msgpack.packb([sums.total, sums.weights.tolist(), sums.sums.tolist(), sums.squares.tolist()]))

    def _able_to_mask(self) -> SiteMasks:
        if self.masks is None:
            raise NodeRefused("this site has no key to sign with, so it cannot mask its sums")
        return self.masks

    def _metered(self, question: Question) -> Meter:
        if self._meter is None:
            self._meter = Meter(self.policy, self.book.earlier(question.run))
        return self._meter

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


def numbers(told: object) -> Array:
    """Finite numbers that came over the wire."""
    try:
        array = np.array(told, dtype=float)
    except (ValueError, TypeError):
        raise MalformedMessage("these are not numbers") from None
    if not np.isfinite(array).all():
        raise MalformedMessage("these numbers are not finite")
    return array


def largest_of(sides: object) -> float:
    """The largest |x| that a stated domain admits; the rows are held to it when the run is described."""
    return float(np.abs(numbers(sides)).max(initial=0.0))


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
