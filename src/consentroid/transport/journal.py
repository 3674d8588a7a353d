"""A checkpoint of the conversation: every complete exchange is kept, and a restarted run hears the same answers again.

The coordinator is deterministic, so replaying the answers of the nodes repeats the run λ for λ up to the exchange where
it broke off, without asking any node twice; from there on it is live. An answer is replayed only to the very request
it answered (compared by digest, the time budget aside): answers of different rounds can never mix.

A record of the file is msgpack [digest, [response, ...]]. A torn last record, as a killed coordinator leaves it, is
dropped.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgpack

from ..core.errors import MalformedMessage
from ..protocol import codec
from ..protocol.messages import Failure, Query, Request, Response
from ..protocol.transport import Transport
from .checked import CheckedTransport
from .metered import encoded

log = logging.getLogger(__name__)


class JournalTransport:
    """Wraps a transport; `replayed` counts the exchanges answered from the journal."""

    def __init__(self, inner: Transport, path: Path) -> None:
        self._inner = inner
        self._path = path
        self._pending, self._good_bytes = _read(path, len(inner.nodes))
        self.replayed = 0
        self.bytes_down = 0
        self.bytes_up = 0

    @property
    def nodes(self) -> tuple[str, ...]:
        return self._inner.nodes

    @property
    def resumable(self) -> int:
        """Exchanges that are still to be replayed."""
        return len(self._pending)

    def exchange(self, requests: Sequence[Request]) -> list[Response]:
        digest = digest_of(requests)
        if self._pending and self._pending[0][0] == digest:
            answers = self._pending.pop(0)[1]
            self.replayed += 1
            if isinstance(self._inner, CheckedTransport):  # what a node said before binds it after a restart, too
                self._inner.judged(requests, [codec.decode_response(data) for data in answers])
        else:
            if self._pending:
                log.warning("the run departs from its journal after %d exchanges; going on live", self.replayed)
                self._forget_rest()
            answers = [encoded(node, one) for node, one in zip(self.nodes, self._inner.exchange(requests), strict=True)]
            if not any(isinstance(codec.decode_response(data), Failure) for data in answers):
                self._keep(digest, answers)
        self.bytes_down += sum(len(codec.encode(request)) for request in requests)
        self.bytes_up += sum(map(len, answers))
        return [codec.decode_response(data) for data in answers]

    def close(self) -> None:
        self._inner.close()

    def _keep(self, digest: bytes, answers: list[bytes]) -> None:
        record = bytes(msgpack.packb([digest, answers]))
        with self._path.open("r+b" if self._path.exists() else "wb") as file:
            file.seek(self._good_bytes)
            file.truncate()
            file.write(record)
        self._good_bytes += len(record)

    def _forget_rest(self) -> None:
        rest = sum(len(bytes(msgpack.packb([digest, answers]))) for digest, answers in self._pending)
        self._good_bytes -= rest
        self._pending.clear()


def digest_of(requests: Sequence[Request]) -> bytes:
    """What the nodes are asked, leaving aside how long they may take: that depends on the clock."""
    hasher = hashlib.sha256()
    for request in requests:
        if isinstance(request, Query) and request.solve is not None:
            request = replace(request, solve=replace(request.solve, seconds=0.0))
        hasher.update(codec.encode(request))
    return hasher.digest()


def _read(path: Path, n_nodes: int) -> tuple[list[tuple[bytes, list[bytes]]], int]:
    """All complete records, and the length of the file up to their end."""
    if not path.exists():
        return [], 0
    records, good = [], 0
    with path.open("rb") as file:
        unpacker = msgpack.Unpacker(file, raw=False, max_buffer_size=2**31 - 1)
        try:
            for digest, answers in unpacker:
                if len(answers) != n_nodes:
                    break
                for data in answers:
                    codec.decode_response(data)
                records.append((digest, list(answers)))
                good = unpacker.tell()
        except (ValueError, TypeError, MalformedMessage, msgpack.UnpackException):
            log.warning("%s is torn after %d exchanges; the rest is asked again", path, len(records))
    return records, good
