"""A checkpoint of the conversation: every complete exchange is kept, and a restarted run hears the same answers again.

The coordinator is deterministic, so replaying the answers of the nodes repeats the run up to the exchange where it
broke off, without asking any node twice; from there on it is live. An answer is replayed only to the very request it
answered (compared by digest, the time budget aside): answers of different rounds can never mix. Records that are not
asked for are passed over: they brought a restarted node up to date. A request that is repeated at once had answers of
no use: they are dropped, and the nodes are asked again.

A record of the file is msgpack [digest, [response, ...]]. A torn last record, as a killed coordinator leaves it, is
dropped. The file holds what every node sent, so only its owner can read it.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgpack

from ..core.errors import MalformedMessage
from ..protocol import codec
from ..protocol.messages import Failure, Query, Request, Response
from ..protocol.transport import Transport
from .metered import decoded, encoded
from .wrapper import Wrapper

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Record:
    digest: bytes
    answers: list[bytes]
    start: int  # place in the file
    end: int


class JournalTransport(Wrapper):
    """Wraps a transport; `replayed` counts the exchanges answered from the journal."""

    def __init__(self, inner: Transport, path: Path) -> None:
        super().__init__(inner)
        self._path = path
        self._pending = deque(_read(path, len(inner.nodes)))
        self._end = 0  # of the records in use
        self._last: _Record | None = None
        self._replayed_down = self._replayed_up = 0
        self.replayed = 0

    @property
    def bytes_down(self) -> int:
        return super().bytes_down + self._replayed_down

    @property
    def bytes_up(self) -> int:
        return super().bytes_up + self._replayed_up

    @property
    def resumable(self) -> int:
        """Exchanges that are still to be replayed."""
        return len(self._pending)

    def exchange(self, requests: Sequence[Request]) -> list[Response]:
        digest = digest_of(requests)
        if self._last is not None and self._last.digest == digest:
            self._end, self._last = self._last.start, None
            self._pending.clear()
        record = self._find(digest)
        if record is not None:
            self.replayed += 1
            self._end, self._last = record.end, record
            self._replayed_down += sum(len(codec.encode(request)) for request in requests)
            self._replayed_up += sum(map(len, record.answers))
            return [decoded(node, data) for node, data in zip(self.nodes, record.answers, strict=True)]
        responses = super().exchange(requests)
        if not any(isinstance(response, Failure) for response in responses):
            self._keep(digest, [encoded(node, one) for node, one in zip(self.nodes, responses, strict=True)])
        return responses

    def _find(self, digest: bytes) -> _Record | None:
        """The next record of this request, if there is one; otherwise the run is live from now on."""
        for i, record in enumerate(self._pending):
            if record.digest == digest:
                for _ in range(i + 1):
                    self._pending.popleft()
                return record
        if self._pending:
            log.warning("the run departs from its journal after %d exchanges; going on live", self.replayed)
            self._pending.clear()
        return None

    def _keep(self, digest: bytes, answers: list[bytes]) -> None:
        record = bytes(msgpack.packb([digest, answers]))
        with os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            file.seek(self._end)
            file.truncate()
            file.write(record)
        self._last = _Record(digest, [], self._end, self._end + len(record))
        self._end = self._last.end


def digest_of(requests: Sequence[Request]) -> bytes:
    """What the nodes are asked, leaving aside how long they may take: that depends on the clock."""
    hasher = hashlib.sha256()
    for request in requests:
        if isinstance(request, Query) and request.solve is not None:
            request = replace(request, solve=replace(request.solve, seconds=0.0))
        hasher.update(codec.encode(request))
    return hasher.digest()


def _read(path: Path, n_nodes: int) -> list[_Record]:
    """All complete records."""
    if not path.exists():
        return []
    records: list[_Record] = []
    end = 0
    with path.open("rb") as file:
        unpacker = msgpack.Unpacker(file, raw=False, max_buffer_size=2**31 - 1)
        try:
            for digest, answers in unpacker:
                if len(answers) != n_nodes:
                    break
                for data in answers:
                    codec.decode_response(data)
                start, end = end, unpacker.tell()
                records.append(_Record(digest, list(answers), start, end))
        except (ValueError, TypeError, MalformedMessage, msgpack.UnpackException):
            log.warning("%s is torn after %d exchanges; the rest is asked again", path, len(records))
    return records
