"""A clock that tests wind by hand: what a time limit does is then the same on every machine, however busy."""

from __future__ import annotations

from collections.abc import Sequence

from consentroid.protocol.messages import Request, Response
from consentroid.transport.inprocess import InProcessTransport


class Clock:
    """Takes the place of the module `time` where it is looked at: each look takes so many seconds."""

    def __init__(self, per_look: float = 0.0) -> None:
        self.now, self.per_look = 1000.0, per_look

    def perf_counter(self) -> float:
        self.now += self.per_look
        return self.now


class SlowSites(InProcessTransport):
    """Every exchange takes so many seconds of the clock; `ended` are the times at which they were over."""

    clock: Clock
    per_exchange: float
    ended: list[float]

    def exchange(self, requests: Sequence[Request]) -> list[Response]:
        responses = super().exchange(requests)
        self.clock.now += self.per_exchange
        self.ended.append(self.clock.now)
        return responses
