"""A transport whose replies are judged: what contradicts its query or the node's earlier replies is a `Failure`."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ..protocol.messages import Describe, Description, Failure, Query, Reply, Request, Response
from ..protocol.plausibility import Contradiction, ReplyChecker
from ..protocol.transport import Transport

log = logging.getLogger(__name__)


class CheckedTransport:
    """Wraps any transport; `protocol/plausibility.py` has the rules."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._checkers = [ReplyChecker(node) for node in inner.nodes]

    @property
    def nodes(self) -> tuple[str, ...]:
        return self._inner.nodes

    @property
    def bytes_up(self) -> int:
        return int(getattr(self._inner, "bytes_up", 0))

    @property
    def bytes_down(self) -> int:
        return int(getattr(self._inner, "bytes_down", 0))

    def exchange(self, requests: Sequence[Request]) -> list[Response]:
        return self.judged(requests, self._inner.exchange(requests))

    def judged(self, requests: Sequence[Request], responses: Sequence[Response]) -> list[Response]:
        """Responses as they may be used; also for those replayed from a journal."""
        return [_judged(*three) for three in zip(self._checkers, requests, responses, strict=True)]

    def close(self) -> None:
        self._inner.close()


def _judged(checker: ReplyChecker, request: Request, response: Response) -> Response:
    if isinstance(response, Failure):
        return response
    try:
        if isinstance(request, Describe) and isinstance(response, Description):
            checker.check_description(request, response)
        elif isinstance(request, Query) and isinstance(response, Reply):
            checker.check(request, response)
        else:
            raise Contradiction(f"answered a {type(request).__name__} with a {type(response).__name__}")
    except Contradiction as contradiction:
        log.warning("reply of node '%s' refused: %s", checker.node, contradiction)
        return Failure(checker.node, f"contradictory reply: {contradiction}", getattr(request, "round", -1))
    return response
