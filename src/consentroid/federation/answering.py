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
from ..protocol.demand import Demand, demand_of
from ..protocol.messages import (
    Coordinates,
    Describe,
    Description,
    Failure,
    PriceQuery,
    PriceReply,
    Query,
    Request,
    Response,
)
from ..site.masks import Hello, SiteMasks
from ..site.policy import Meter, Policy, refusal
from ..site.worker import SiteWorker
from ..transport.metered import encoded
from .approval import Approvals, Asked
from .attesting import attest, check_of_this_run, read_certificate
from .kept_run import SUFFIX, KeptRun, RunNotes, coordinates_as_dict, digest_of_rows, find_run
from .preparing import DONE
from .private_table import Source
from .protocol import LONGEST_SOLVE
from .secure import MET, unpacked
from .signing import FEATURES, HELLO, PEERS, REQUEST, VERIFY, Question, Signer
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
    signer: Signer | None = None  # None: the site signs no statements
    _worker: SiteWorker | None = None
    _meter: Meter | None = None
    _approved: bool = False
    _coordinates: Coordinates | None = None  # of the run, as this job was told them

    def __call__(self, question: Question) -> bytes:
        started, size, outcome = time.time(), Demand(question.kind), ANSWERED
        round = -1
        try:
            if question.kind == REQUEST:
                request = within_limits(codec.decode_request(question.content))
                round = getattr(request, "round", -1)
                size = demand_of(request)
                self._admit(question, request, size)
                data = self._answer(question, request)
            elif question.kind == VERIFY:
                data = self._verify(question)
            else:
                data = self._set_up(question)
        except Exception as error:  # a failing site is a value to the coordinator, never a crash
            if not isinstance(error, NodeRefused):
                log.warning("request failed: %s: %s", type(error).__name__, error)
            outcome = public_reason(error)
            data = encoded(self.site, Failure(self.site, outcome, round, final=isinstance(error, NodeRefused)))
        self._note(question, size, started, outcome)
        return data

    def _admit(self, question: Question, request: Request, size: Demand) -> None:
        self._metered(question).admit(request, question.n_sites, masked=self._masked)
        described = request if isinstance(request, Describe) else None
        self._approve(
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

    def _approve(self, asked: Asked) -> None:
        """Each job by itself, also one that resumes a run."""
        if self.policy.approval == "hand" and not self._approved:
            self.approvals.wait(asked)
            self._approved = True

    @property
    def _masked(self) -> bool:
        return self.masks is not None and self.masks.ready

    def _open(self, run: str) -> SiteWorker:
        if self._worker is None:
            self._worker = self.source.worker(run)
        self._worker.guard.masked = self._masked
        return self._worker

    def _answer(self, question: Question, request: Request) -> bytes:
        response = self._open(question.run).answer(request)
        if isinstance(response, Description):
            response = replace(response, allowed=self._metered(question).left())
        self._keep(question.run, request, response)
        if self.masks is not None and self.masks.ready and isinstance(response, PriceReply):
            assert isinstance(request, PriceQuery)
            return self.masks.mask(request, response, question.number, question.digest).packed()
        return encoded(self.site, response)

    def _keep(self, run: str, request: Request, response: Response) -> None:
        """Note down, before an answer leaves, what the site must be able to stand by later."""
        folder = self.source.kept_runs()
        if not (isinstance(request, PriceQuery) and isinstance(response, PriceReply)) or folder is None:
            return
        self._coordinates = request.coordinates or self._coordinates
        kept = KeptRun(folder / f"{run}{SUFFIX}")
        if request.keep is not None and response.kept is not None:
            at = None if self._coordinates is None else coordinates_as_dict(self._coordinates)
            slots, rows = tuple(request.keep.slots.tolist()), digest_of_rows(self._open(run).rows)
            kept.begin(RunNotes(response.kept.digest, slots, rows, self.source.scaling(), at))
        if request.pairs is not None and response.pairs is not None and request.pairs.keep:
            data = self._open(run).rows
            plain = coordinates_as_dict(Coordinates(np.zeros(data.n_features), np.eye(data.n_features), 1.0))
            kept.begin(RunNotes(response.pairs.digest, (), digest_of_rows(data), self.source.scaling(), plain))
        if request.claim is not None and response.claimed is not None:
            kept.add(request.claim, response.claimed)

    def _verify(self, question: Question) -> bytes:
        """Check a certificate on the site's own rows, and sign what was found."""
        self._metered(question).admit_set_up()
        certificate, folder = read_certificate(question.content), self.source.kept_runs()
        n_sites, n_clusters = len(certificate.sites), certificate.n_clusters
        if self.signer is None or folder is None:
            raise NodeRefused("this site signs no statements: it has no key, or keeps no runs")
        if self.site not in certificate.sites or n_sites != question.n_sites:
            raise NodeRefused("the certificate is about other sites")
        if n_clusters > self.policy.largest_k:
            raise refusal("largest_k")
        if n_sites > 1 and not self._masked:
            raise NodeRefused("no masks have been agreed on")
        run = find_run(folder, certificate.price_files[self.site])
        self._approve(
            Asked(
                job=question.job, run=question.run, who=self.who, n_sites=n_sites, n_clusters=n_clusters, features=[],
                domain_given=True, masked=self._masked, resumes=False, time=time.time(),
                verifies=certificate.fingerprint,
            )
        )  # fmt: skip
        scaling = run.notes().scaling
        if scaling is not None:
            self.source.transform(Recipe.from_dict(scaling))
        rows = self.source.rows()
        check_of_this_run(certificate, run, digest_of_rows(rows))
        masks = self.masks if n_sites > 1 else None
        signer, coarse = self.signer, self.policy.guard().share > 0.0
        return attest(question, certificate, rows, run, scaling, masks, signer.sign, signer.certificate, coarse)

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

    def _note(self, question: Question, size: Demand, started: float, outcome: str) -> None:
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
