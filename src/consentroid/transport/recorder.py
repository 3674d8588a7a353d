"""Listens to a transport and keeps the nodes' centroids and prices: for figures and benchmarks with rows at hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core.arrays import Array
from ..protocol.messages import Query, Reply, Request, Response
from ..protocol.transport import Transport


class Recorder:
    """`around(transport)` passes every message on and notes what was asked and answered on the whole domain."""

    def __init__(self) -> None:
        self.queries: list[list[Query]] = []
        self.centroids: list[Array] = []  # (N, K, D) a round

    @property
    def first(self) -> Array:
        return self.centroids[0]

    @property
    def last(self) -> Array:
        return self.centroids[-1]

    def around(self, transport: Transport) -> Transport:
        return _Recorded(transport, self)

    def note(self, requests: Sequence[Request], responses: Sequence[Response]) -> None:
        solved = [r.solved for r in responses if isinstance(r, Reply) and r.solved is not None]
        if len(solved) == len(requests) and all(len(part.values) == 1 for part in solved):
            self.queries.append([request for request in requests if isinstance(request, Query)])
            self.centroids.append(np.array([part.centroids[0] for part in solved]))


class _Recorded:
    def __init__(self, inner: Transport, recorder: Recorder) -> None:
        self._inner, self._recorder = inner, recorder

    @property
    def nodes(self) -> tuple[str, ...]:
        return self._inner.nodes

    def exchange(self, requests: Sequence[Request]) -> list[Response]:
        responses = self._inner.exchange(requests)
        self._recorder.note(requests, responses)
        return responses

    def close(self) -> None:
        self._inner.close()
