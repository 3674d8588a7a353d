"""A transport whose replies are judged: what contradicts its query or the node's earlier replies is a `Failure`.

For networks, where a node's word is all there is; in one process it would only take time.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ..protocol.messages import Describe, Description, Failure, PriceQuery, PriceReply, Query, Reply, Request, Response
from ..protocol.plausibility import Contradiction, ReplyChecker
from ..protocol.transport import Transport
from .wrapper import Wrapper

log = logging.getLogger(__name__)


class CheckedTransport(Wrapper):
    """`protocol/plausibility.py` and `protocol/price_rules.py` have the rules."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self._checkers = [ReplyChecker(node) for node in inner.nodes]

    def exchange(self, requests: Sequence[Request]) -> list[Response]:
        responses = super().exchange(requests)
        return [_judged(*three) for three in zip(self._checkers, requests, responses, strict=True)]


def _judged(checker: ReplyChecker, request: Request, response: Response) -> Response:
    if isinstance(response, Failure):
        return response
    try:
        if isinstance(request, Describe) and isinstance(response, Description):
            checker.check_description(request, response)
        elif isinstance(request, Query) and isinstance(response, Reply):
            checker.check(request, response)
        elif isinstance(request, PriceQuery) and isinstance(response, PriceReply):
            checker.check_prices(request, response)
        else:
            raise Contradiction(f"answered a {type(request).__name__} with a {type(response).__name__}")
    except Contradiction as contradiction:
        log.warning("reply of node '%s' refused: %s", checker.node, contradiction)
        return Failure(checker.node, f"contradictory reply: {contradiction}", round_of(request))
    return response


def round_of(request: Request) -> int:
    return -1 if isinstance(request, Describe) else request.round
