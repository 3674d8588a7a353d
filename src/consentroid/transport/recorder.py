"""Listens to a transport and keeps the nodes' centroids and prices: for figures and benchmarks with rows at hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core.arrays import Array
from ..protocol.messages import Query, Reply, Request, Response
from ..protocol.transport import Transport
from .wrapper import Wrapper


class Recorder:
    """`around(transport)` passes every message on and notes what was asked and answered on the whole domain."""

    def __init__(self) -> None:
        self.queries: list[list[Query]] = []
        self.centroids: list[Array] = []  # (N, K, D) per round

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


class _Recorded(Wrapper):
    def __init__(self, inner: Transport, recorder: Recorder) -> None:
        super().__init__(inner)
        self._recorder = recorder

    def exchange(self, requests: Sequence[Request]) -> list[Response]:
        responses = super().exchange(requests)
        self._recorder.note(requests, responses)
        return responses
