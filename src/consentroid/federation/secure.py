"""The coordinator's side of masked sums: a transport that speaks for all sites together, since it knows no single one.

Whoever uses it sees one node, `ALL`: a query goes to every site, the masked replies are added up, and the total comes
back. The sites' descriptions (rows, weight, columns) stay open; they are merged into one.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgpack
import numpy as np

from ..certificate.document import Certificate
from ..certificate.signatures import Checker
from ..core.arrays import Array
from ..core.errors import InvalidInput, MalformedMessage, NodeFailed, NodeRefused
from ..core.problem import Domain
from ..core.result import SiteShare
from ..protocol import codec
from ..protocol.messages import Describe, Description, Failure, PriceQuery, Query, Request, Response
from ..site.fixed_point import FeatureSums
from ..site.masks import Hello, MaskedReply, Unmasking, together
from ..transport.channel import OUT_OF_STEP
from .signing import FEATURES, HELLO, PEERS, REQUEST
from .transport import FlareTransport

ALL = "all sites"
MET = b"met"  # a site has accepted the keys of the others

log = logging.getLogger(__name__)


class SecureTransport:
    """Wraps the sites' transport; keys are agreed on before the first query of a job."""

    def __init__(
        self,
        sites: FlareTransport,
        domain: Domain | None,
        notes: Path | None = None,
        check: Checker | None = None,
    ) -> None:
        """`notes` keeps the sites' names and numbers of rows for a job that resumes and hears no descriptions; `check`
        says whether a key was signed by a site of the federation, also to the coordinator."""
        self._sites = sites
        self._domain = domain
        self._notes = notes
        self._check = check
        self._unmasking: Unmasking | None = None
        self.shares, self.price_files = _read_notes(notes)
        self.culprit: Failure | None = None  # the site whose failure was reported last

    @property
    def nodes(self) -> tuple[str, ...]:
        return (ALL,)

    @property
    def bytes_up(self) -> int:
        return self._sites.bytes_up

    @property
    def bytes_down(self) -> int:
        return self._sites.bytes_down

    def close(self) -> None:
        self._sites.close()

    def exchange(self, requests: Sequence[Request]) -> list[Response]:
        (request,) = requests
        if isinstance(request, Query):
            raise InvalidInput("the paper's methods need every site's own replies; ask with --open")
        failure = self.agree() if self._unmasking is None else None
        if failure is not None:
            return [failure]
        return [self._describe(request) if isinstance(request, Describe) else self._total(request)]

    def _describe(self, request: Describe) -> Response:
        responses = self._sites.exchange([request] * len(self._sites.nodes))
        described: list[Description] = []
        for node, response in zip(self._sites.nodes, responses, strict=True):
            if isinstance(response, Description) and response.node == node:
                described.append(response)
            else:
                return self._failed(node, response, "sent no description")
        self.shares = tuple(SiteShare(one.node, one.n_points, None, None) for one in described)
        self._write_notes()
        self.culprit = None
        return merged(described, request.n_clusters)

    def agree(self) -> Failure | None:
        """Collect every site's signed key, relay all of them; a failure if a site does not take part."""
        hellos: list[Hello] = []
        for node, answer in self._ask(HELLO, greeting(self._domain)):
            try:
                hellos.append(read_hello(node, answer, self._check))
            except NodeFailed as error:
                return self._failed(node, answer, error.reason)
        hellos.sort(key=lambda hello: hello.site)
        for node, answer in self._ask(PEERS, bytes(msgpack.packb([hello.packed() for hello in hellos]))):
            if answer != MET:
                return self._failed(node, answer, "did not accept the keys of the others")
        self._unmasking = Unmasking(hellos)
        return None

    def _total(self, query: PriceQuery) -> Response:
        assert self._unmasking is not None
        content = codec.encode(query)
        replies: list[MaskedReply] = []
        for node, answer in self._ask(REQUEST, content, query.round):
            try:
                reply = None if isinstance(answer, Failure) else MaskedReply.unpacked(answer)
            except MalformedMessage as error:
                return self._failed(node, Failure(node, f"sent a malformed message: {error}", query.round))
            if reply is None:
                return self._failed(node, answer, "sent an open reply")
            if reply.site != node:
                return self._failed(node, answer, "answered under another name")
            replies.append(reply)
        digest = hashlib.sha256(content).digest()
        try:
            total = self._unmasking.total(query, replies, self._sites.last_number, digest)
        except MalformedMessage as error:
            return Failure(ALL, str(error), query.round)
        if query.keep is not None or (query.pairs is not None and query.pairs.keep):
            self.price_files = {reply.site: reply.digest for reply in replies}
            self._write_notes()
        self.culprit = None
        return replace(total, node=ALL, seconds=0.0)

    def named(self, certificate: Certificate) -> Certificate:
        """The certificate of the totals under the sites' own names, with the digests of their price files; what a
        single site would have claimed is not in it."""
        names = tuple(share.name for share in self.shares)
        if certificate.price_files != {ALL: together(self.price_files)} or set(names) != set(self.price_files):
            log.warning("the sites' price files are not known: the certificate cannot be verified")
            return certificate
        return replace(
            certificate,
            sites=names,
            price_files=dict(self.price_files),
            site_costs=None,
            scatter_errors=None,
            leaves=tuple(replace(leaf, totals=None) for leaf in certificate.leaves),
            pairs=None if certificate.pairs is None else replace(certificate.pairs, bounds=None),
        )

    def _write_notes(self) -> None:
        if self._notes is not None:
            sites = [[share.name, share.n_rows] for share in self.shares]
            self._notes.write_text(json.dumps({"sites": sites, "price_files": self.price_files}))

    def features(self, reference: Array | None) -> FeatureSums:
        """Totals of every feature about a reference, for preparation; raises `NodeFailed`."""
        failed = self.agree() if self._unmasking is None else None
        content = bytes(msgpack.packb(None if reference is None else reference.tolist()))
        replies: list[MaskedReply] = []
        for node, answer in [] if failed is not None else self._ask(FEATURES, content):
            try:
                reply = None if isinstance(answer, Failure) else MaskedReply.unpacked(answer)
            except MalformedMessage:
                reply = None
            if reply is None:
                failed = failed or self._failed(node, answer, "sent no masked sums")
            else:
                replies.append(reply)
        if failed is not None:
            raise NodeFailed(failed.node if self.culprit is None else self.culprit.node, failed.reason)
        assert self._unmasking is not None
        try:
            return self._unmasking.features(replies, self._sites.last_number, hashlib.sha256(content).digest())
        except MalformedMessage as error:
            raise NodeFailed(ALL, str(error)) from None

    def _ask(self, kind: str, content: bytes, round: int = 0) -> list[tuple[str, bytes | Failure]]:
        n_sites = len(self._sites.nodes)
        answers = self._sites.ask(kind, [content] * n_sites, [round] * n_sites)
        return list(zip(self._sites.nodes, answers, strict=True))

    def _failed(self, node: str, answer: object, otherwise: str = "") -> Failure:
        """A site's failure under the name of all. A site that is out of step says so in words that the channel knows:
        all sites are brought up to date then."""
        failure = told_failure(node, answer) or Failure(node, otherwise, final=True)
        self.culprit = failure
        late = failure.reason.startswith(OUT_OF_STEP)
        return replace(failure, node=ALL, reason=failure.reason if late else f"site '{node}': {failure.reason}")


def greeting(domain: Domain | None) -> bytes:
    """Asks for a site's key: the content of a `HELLO`."""
    return bytes(msgpack.packb(None if domain is None else [domain.lower.tolist(), domain.upper.tolist()]))


def read_hello(node: str, answer: bytes | Failure, check: Checker | None = None) -> Hello:
    try:
        hello = Hello.unpacked(unpacked(answer))
    except MalformedMessage:
        failure = told_failure(node, answer)
        raise NodeFailed(node, failure.reason if failure is not None else "sent no key for masks") from None
    if hello.site != node:
        raise NodeFailed(node, "sent a key for masks under another name")
    try:
        if check is not None:
            check(hello.certificate, hello.site, hello.statement(), hello.signature)
    except NodeRefused as refusal:
        raise NodeFailed(node, str(refusal)) from None
    return hello


def check_sites(sites: FlareTransport, check: Checker) -> None:
    """Before open sums: every site signs that it is one; masked sums begin with the same. The domain is no domain: it
    keeps the sites from telling how large their values are."""
    content = greeting(Domain(np.zeros(1), np.ones(1)))
    for node, answer in zip(sites.nodes, sites.ask(HELLO, [content] * len(sites.nodes)), strict=True):
        read_hello(node, answer, check)


def _read_notes(notes: Path | None) -> tuple[tuple[SiteShare, ...], dict[str, str]]:
    if notes is None or not notes.exists():
        return (), {}
    told = json.loads(notes.read_text())
    shares = tuple(SiteShare(str(name), int(n_rows), None, None) for name, n_rows in told["sites"])
    return shares, dict(told["price_files"])


def told_failure(node: str, answer: object) -> Failure | None:
    """The failure that a site sent in place of what was asked for, if it did."""
    if isinstance(answer, bytes):
        try:
            answer = codec.decode_response(answer)
        except MalformedMessage:
            return None
    return replace(answer, node=node) if isinstance(answer, Failure) else None


def unpacked(answer: bytes | Failure) -> object:
    if isinstance(answer, Failure):
        raise MalformedMessage(answer.reason)
    try:
        return msgpack.unpackb(answer, raw=False, strict_map_key=True, max_ext_len=0)
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException):
        raise MalformedMessage("not a msgpack message") from None


def merged(parts: Sequence[Description], n_clusters: int) -> Description:
    """What all sites hold together; the error names the first two that do not fit."""
    check_descriptions(list(parts))
    lower = [part.lower for part in parts if part.lower is not None]
    upper = [part.upper for part in parts if part.upper is not None]
    allowed = [part.allowed for part in parts if part.allowed is not None]
    return Description(
        node=ALL,
        n_points=sum(part.n_points for part in parts),
        n_features=parts[0].n_features,
        n_distinct=min(n_clusters, sum(part.n_distinct for part in parts)),
        weight=float(sum(part.weight for part in parts)),
        features=next((part.features for part in parts if part.features), ()),
        lower=np.min(lower, axis=0) if len(lower) == len(parts) else None,
        upper=np.max(upper, axis=0) if len(upper) == len(parts) else None,
        allowed=np.min(allowed, axis=0) if allowed else None,
    )


def check_descriptions(parts: Sequence[Description]) -> None:
    first = parts[0]
    for other in parts[1:]:
        named = first.features and other.features
        if other.n_features != first.n_features or (named and other.features != first.features):
            raise InvalidInput(
                f"node '{other.node}' has other columns than node '{first.node}'; select and order them alike"
            )
