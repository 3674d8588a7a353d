"""The base of all wrappers: a transport around a transport that changes one thing and passes on the rest.

Wrappers are orthogonal: each works around any transport, wrapped or not, and never asks what it wraps. Checks go
outside a journal, so that replayed responses are judged like fresh ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..protocol.messages import Request, Response
from ..protocol.transport import Transport


class Wrapper:
    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    @property
    def nodes(self) -> tuple[str, ...]:
        return self._inner.nodes

    @property
    def bytes_down(self) -> int:
        return self._inner.bytes_down

    @property
    def bytes_up(self) -> int:
        return self._inner.bytes_up

    def exchange(self, requests: Sequence[Request]) -> list[Response]:
        return self._inner.exchange(requests)

    def close(self) -> None:
        self._inner.close()
