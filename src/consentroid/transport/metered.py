"""What a run would cost on a network, measured without one.

`MeteredTransport` counts the bytes that every message would take, from the sizes of its arrays. `WireTransport` passes
each message through its encoding, as a network does, counts exactly and can keep the bytes: hundreds of nodes can then
be simulated on one machine with the messages of a real federation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..core.errors import MalformedMessage
from ..protocol import codec
from ..protocol.messages import Describe, Description, Failure, Request, Response
from ..protocol.sizes import size_of
from ..protocol.transport import Transport
from .wrapper import Wrapper


class _Counting(Wrapper):
    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self._down = self._up = self.exchanges = 0

    @property
    def bytes_down(self) -> int:
        return self._down

    @property
    def bytes_up(self) -> int:
        return self._up


class MeteredTransport(_Counting):
    def exchange(self, requests: Sequence[Request]) -> list[Response]:
        responses = super().exchange(requests)
        self.exchanges += 1
        sizes = {id(request): size_of(request) for request in requests}  # mostly one request for all
        self._down += sum(sizes[id(request)] for request in requests)
        self._up += sum(map(size_of, responses))
        return responses


class WireTransport(_Counting):
    """Every message crosses as bytes. With `record`, `recorded` keeps them in order."""

    def __init__(self, inner: Transport, record: bool = False) -> None:
        super().__init__(inner)
        self.recorded: list[bytes] | None = [] if record else None

    def exchange(self, requests: Sequence[Request]) -> list[Response]:
        sent = [codec.encode(request) for request in requests]
        answers = super().exchange([codec.decode_request(data) for data in sent])
        received = [encoded(node, answer) for node, answer in zip(self.nodes, answers, strict=True)]
        self.exchanges += 1
        self._down += sum(map(len, sent))
        self._up += sum(map(len, received))
        if self.recorded is not None:
            self.recorded += sent + received
        return [decoded(node, data) for node, data in zip(self.nodes, received, strict=True)]


def encoded(node: str, response: Response) -> bytes:
    """A response as bytes; one that cannot be written down becomes a failure of its node."""
    try:
        return codec.encode(response)
    except MalformedMessage as error:
        number = -1 if isinstance(response, Describe | Description) else response.round
        return codec.encode(Failure(node, f"could not encode its reply: {error}", number))


def decoded(node: str, data: bytes) -> Response:
    """A response from bytes; what cannot be read becomes a failure of its node."""
    try:
        response = codec.decode_response(data)
        return replace(response, node=node) if isinstance(response, Failure) else response  # it can blame no other
    except MalformedMessage as error:
        return Failure(node, f"sent a malformed message: {error}")
