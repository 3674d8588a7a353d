"""What a run would cost on a network, measured without one.

`MeteredTransport` counts the bytes of every message of another transport. `WireTransport` also passes each message
through its encoding, as a network does, and can keep the bytes: hundreds of nodes can then be simulated on one machine
with the messages of a real federation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..core.errors import MalformedMessage
from ..protocol import codec
from ..protocol.messages import Failure, Request, Response
from ..protocol.transport import Transport


class MeteredTransport:
    """Counts bytes: `bytes_down` from coordinator to nodes, `bytes_up` from nodes to coordinator, over all nodes."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.bytes_down = 0
        self.bytes_up = 0
        self.exchanges = 0

    @property
    def nodes(self) -> tuple[str, ...]:
        return self._inner.nodes

    def exchange(self, requests: Sequence[Request]) -> list[Response]:
        self.exchanges += 1
        self.bytes_down += sum(len(codec.encode(request)) for request in requests)
        responses = self._inner.exchange(requests)
        self.bytes_up += sum(len(encoded(node, one)) for node, one in zip(self.nodes, responses, strict=True))
        return responses

    def close(self) -> None:
        self._inner.close()


class WireTransport(MeteredTransport):
    """Every message crosses as bytes. With `record`, `recorded` keeps them in order."""

    def __init__(self, inner: Transport, record: bool = False) -> None:
        super().__init__(inner)
        self.recorded: list[bytes] | None = [] if record else None

    def exchange(self, requests: Sequence[Request]) -> list[Response]:
        self.exchanges += 1
        sent = [codec.encode(request) for request in requests]
        answers = self._inner.exchange([codec.decode_request(data) for data in sent])
        received = [encoded(node, answer) for node, answer in zip(self.nodes, answers, strict=True)]
        self.bytes_down += sum(map(len, sent))
        self.bytes_up += sum(map(len, received))
        if self.recorded is not None:
            self.recorded += sent + received
        return [decoded(node, data) for node, data in zip(self.nodes, received, strict=True)]


def encoded(node: str, response: Response) -> bytes:
    """A response as bytes; one that cannot be written down becomes a failure of its node."""
    try:
        return codec.encode(response)
    except MalformedMessage as error:
        return codec.encode(Failure(node, f"could not encode its reply: {error}", getattr(response, "round", -1)))


def decoded(node: str, data: bytes) -> Response:
    """A response from bytes; what cannot be read becomes a failure of its node."""
    try:
        response = codec.decode_response(data)
        return replace(response, node=node) if isinstance(response, Failure) else response  # it can blame no other
    except MalformedMessage as error:
        return Failure(node, f"sent a malformed message: {error}")
