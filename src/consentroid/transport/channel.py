"""One exchange per round: number it, send it, insist on a full set of valid replies.

A sum with a missing part is not a number: if a node fails, the round is repeated, then abandoned with an error that
names the node. Nothing is ever filled in for it. A site that answers "out of step" (it restarted, or lost a message) is
sent again all that changed its prices since the coordinates were set, and the run goes on: a site's prices depend on
its rows and these messages only.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from ..core.arrays import Array
from ..core.errors import InvalidInput, NodeFailed
from ..core.problem import Domain, check_n_clusters
from ..protocol.demand import demand_of
from ..protocol.messages import (
    Describe,
    Description,
    Evaluate,
    Failure,
    PriceQuery,
    PriceReply,
    Query,
    Reply,
    Request,
    Response,
)
from ..protocol.transport import Transport

OUT_OF_STEP = "out of step"  # how the reason of such a failure begins

Answer = TypeVar("Answer", Reply, PriceReply)
log = logging.getLogger(__name__)


class Channel:
    """The coordinator's view of all nodes."""

    def __init__(self, transport: Transport, retries: int = 1) -> None:
        self._transport = transport
        self._retries = retries
        self.round = 0
        self.exchanges = 0  # all of them, repetitions included
        self.described: list[Description] = []
        self.asked = np.zeros(3)  # questions, boxes and points since then
        self._changes: list[list[PriceQuery]] = []  # per step since the coordinates, one query per node

    @property
    def nodes(self) -> tuple[str, ...]:
        return self._transport.nodes

    @property
    def bytes_up(self) -> int:
        return self._transport.bytes_up

    @property
    def bytes_down(self) -> int:
        return self._transport.bytes_down

    def agree(self, n_clusters: int, domain: Domain | None, features: Sequence[str] = ()) -> Domain:
        """Before round 1: fix the domain and make sure that every node can take part."""
        check_n_clusters(n_clusters)
        lower, upper = (None, None) if domain is None else (domain.lower, domain.upper)
        request = Describe(n_clusters, lower, upper, tuple(features))
        described: list[Description] = []
        for name, response in zip(self.nodes, self._exchange([request] * len(self.nodes)), strict=True):
            if not isinstance(response, Description):
                reason = response.reason if isinstance(response, Failure) else "sent no description"
                raise NodeFailed(name, reason)
            described.append(response)
        _check_descriptions(described, n_clusters)
        self.described, self.asked = described, np.zeros(3)
        if domain is not None:
            return domain
        return Domain(
            np.min([_required(d.lower, d.node) for d in described], axis=0),
            np.max([_required(d.upper, d.node) for d in described], axis=0),
        )

    @property
    def allowed(self) -> Array:
        """Questions, boxes and points that every site answers in this run."""
        told = [one.allowed for one in self.described if one.allowed is not None]
        return np.min([np.full(3, np.inf), *told], axis=0)

    # ------------------------------------------------------------------ rounds

    def ask(self, queries: Sequence[Query]) -> list[Reply]:
        """Send one query to each node; all replies, or an error that names the node."""
        self.round += 1
        return self._replies([replace(query, round=self.round) for query in queries], Reply)

    def evaluate(self, candidates: Array) -> list[Reply]:
        """Ask only for the cost of candidates."""
        return self.ask([Query(0, evaluate=Evaluate(candidates))] * len(self.nodes))

    def ask_prices(self, query: PriceQuery | Sequence[PriceQuery]) -> list[PriceReply]:
        """Send one query to all sites, or to each its own; all replies, or an error that names the site."""
        self.round += 1
        if isinstance(query, PriceQuery):
            queries = [replace(query, round=self.round)] * len(self.nodes)
        else:
            queries = [replace(one, round=self.round) for one in query]
        replies = self._replies(queries, PriceReply)
        if any(one.coordinates is not None for one in queries):
            self._changes.clear()
        if any(one.changes for one in queries):
            self._changes.append([one.change for one in queries])
        return replies

    def _replies(self, requests: Sequence[Query | PriceQuery], kind: type[Answer]) -> list[Answer]:
        failure: Failure | None = None
        for _ in range(self._retries + 1):
            replies, failures = self._sorted(requests, self._exchange(requests), kind)
            behind = [i for i, failure in failures.items() if failure.reason.startswith(OUT_OF_STEP)]
            if behind:
                self._bring_up_to_date(behind)
                replies, failures = self._sorted(requests, self._exchange(requests), kind)
            if not failures:
                return replies
            failure = next(iter(failures.values()))
            if failure.final:
                break
        assert failure is not None
        raise NodeFailed(failure.node, failure.reason)

    def _sorted(
        self, requests: Sequence[Query | PriceQuery], responses: Sequence[Response], kind: type[Answer]
    ) -> tuple[list[Answer], dict[int, Failure]]:
        """Replies to these very requests, and by number of the node what is none."""
        replies: list[Answer] = []
        failures: dict[int, Failure] = {}
        for i, (name, request, response) in enumerate(zip(self.nodes, requests, responses, strict=True)):
            if isinstance(response, kind) and response.round == request.round:
                replies.append(response)
            elif isinstance(response, Failure):
                failures[i] = replace(response, node=name)
            else:
                failures[i] = Failure(name, "answered out of turn", request.round)
        return replies, failures

    def _bring_up_to_date(self, behind: Sequence[int]) -> None:
        """Send these sites all changes since the coordinates once more; the others are asked for nothing."""
        for i in behind:
            log.info("site '%s' is out of step; it is sent %d steps again", self.nodes[i], len(self._changes))
        for step in self._changes:
            responses = self._exchange(
                [change if i in behind else PriceQuery(change.round, change.step) for i, change in enumerate(step)]
            )
            for i in behind:
                response = responses[i]
                if not isinstance(response, PriceReply):
                    reason = response.reason if isinstance(response, Failure) else "answered out of turn"
                    raise NodeFailed(self.nodes[i], f"could not be brought up to date: {reason}")

    def _exchange(self, requests: Sequence[Request]) -> list[Response]:
        self.exchanges += 1
        demands = [demand_of(request) for request in {id(request): request for request in requests}.values()]
        self.asked += [1, max(demand.boxes for demand in demands), max(demand.points for demand in demands)]
        return self._transport.exchange(requests)


def _check_descriptions(described: list[Description], n_clusters: int) -> None:
    first = described[0]
    for other in described[1:]:
        if other.n_features != first.n_features:
            raise InvalidInput(
                f"node '{other.node}' has {other.n_features} features, node '{first.node}' has {first.n_features}"
            )
        if other.features and first.features and other.features != first.features:
            column = next((a, b) for a, b in zip(first.features, other.features, strict=True) if a != b)
            raise InvalidInput(
                f"node '{other.node}' has column '{column[1]}' where node '{first.node}' has '{column[0]}'; "
                "select and order the columns alike at every node"
            )
    distinct = sum(d.n_distinct for d in described)
    if distinct < n_clusters:
        raise InvalidInput(f"n_clusters={n_clusters} exceeds the {distinct} distinct rows of all nodes")


def _required(side: Array | None, node: str) -> Array:
    if side is None:
        raise NodeFailed(node, "reported no extremes although no domain was agreed")
    return side
