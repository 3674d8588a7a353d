"""One exchange a round: number it, send it, insist on a full set of valid replies.

A sum with a missing part is not a number: if a node fails, the round is repeated, then abandoned with an error that
names the node. Nothing is ever filled in for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..core.arrays import Array
from ..core.errors import InvalidInput, NodeFailed
from ..core.problem import Domain, check_n_clusters
from ..protocol.messages import Describe, Description, Evaluate, Failure, Query, Reply
from ..protocol.transport import Transport


class Channel:
    """The coordinator's view of all nodes."""

    def __init__(self, transport: Transport, retries: int = 1) -> None:
        self._transport = transport
        self._retries = retries
        self.round = 0
        self.described: list[Description] = []
        self._bytes_before = (0, 0)  # up and down, of earlier sessions

    @property
    def nodes(self) -> tuple[str, ...]:
        return self._transport.nodes

    @property
    def bytes_up(self) -> int:
        return self._bytes_before[0] + int(getattr(self._transport, "bytes_up", 0))

    @property
    def bytes_down(self) -> int:
        return self._bytes_before[1] + int(getattr(self._transport, "bytes_down", 0))

    def continue_from(self, round: int, bytes_up: int, bytes_down: int) -> None:
        """Number and count on from a checkpoint."""
        self.round, self._bytes_before = round, (bytes_up, bytes_down)

    def agree(self, n_clusters: int, domain: Domain | None, features: Sequence[str] = ()) -> Domain:
        """Before round 1: fix the domain and make sure that every node can take part."""
        check_n_clusters(n_clusters)
        lower, upper = (None, None) if domain is None else (domain.lower, domain.upper)
        request = Describe(n_clusters, lower, upper, tuple(features))
        described: list[Description] = []
        for name, response in zip(self.nodes, self._transport.exchange([request] * len(self.nodes)), strict=True):
            if not isinstance(response, Description):
                reason = response.reason if isinstance(response, Failure) else "sent no description"
                raise NodeFailed(name, reason)
            described.append(response)
        _check_descriptions(described, n_clusters)
        self.described = described
        if domain is not None:
            return domain
        return Domain(
            np.min([_required(d.lower, d.node) for d in described], axis=0),
            np.max([_required(d.upper, d.node) for d in described], axis=0),
        )

    def resolution(self, domain: Domain) -> float:
        """Cost that rounding the centroids to floating point can cause: weight × (2^-50 of the largest coordinate)²."""
        largest = np.maximum(np.abs(domain.lower), np.abs(domain.upper))
        return float(sum(d.weight for d in self.described) * np.sum((largest * 2.0**-50) ** 2))

    def ask(self, queries: Sequence[Query]) -> list[Reply]:
        """Send one query to each node; all replies, or an error that names the node."""
        self.round += 1
        numbered = [replace(query, round=self.round) for query in queries]
        failure: Failure | None = None
        for _ in range(self._retries + 1):
            responses = self._transport.exchange(numbered)
            replies: list[Reply] = []
            failure = None
            for name, query, response in zip(self.nodes, numbered, responses, strict=True):
                if isinstance(response, Reply):
                    replies.append(response)
                else:
                    reason = response.reason if isinstance(response, Failure) else "answered out of turn"
                    failure = failure or Failure(name, reason, query.round)
            if failure is None:
                return replies
        assert failure is not None
        raise NodeFailed(failure.node, failure.reason)

    def evaluate(self, candidates: Array) -> list[Reply]:
        """Ask only for the cost of candidates."""
        return self.ask([Query(0, evaluate=Evaluate(candidates))] * len(self.nodes))


def _check_descriptions(described: list[Description], n_clusters: int) -> None:
    first = described[0]
    for other in described[1:]:
        if other.n_features != first.n_features:
            raise InvalidInput(
                f"node '{other.node}' has {other.n_features} features, node '{first.node}' has {first.n_features}"
            )
        if other.features and first.features and other.features != first.features:
            column = next(
                (a, b) for a, b in zip(first.features, other.features, strict=True) if a != b
            )
            raise InvalidInput(
                f"node '{other.node}' has column '{column[1]}' where node '{first.node}' has '{column[0]}'; "
                "select and order the columns alike at every node"
            )
    distinct = sum(d.n_distinct for d in described)
    if distinct < n_clusters:
        raise InvalidInput(f"n_clusters={n_clusters} exceeds the {distinct} distinct rows of all nodes")


def _required(side: Array | None, node: str) -> Array:
    if side is None:
        raise NodeFailed(node, "told no extremes although no domain was agreed")
    return side
