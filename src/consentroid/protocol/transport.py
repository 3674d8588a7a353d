"""One call: send each node its request, return each node's response or a `Failure`.

A transport knows nothing of K-means. It must return one response a request, in order, within finite time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .messages import Request, Response


class Transport(Protocol):
    @property
    def nodes(self) -> tuple[str, ...]:
        """Names, in the order in which `exchange` expects requests."""
        ...

    def exchange(self, requests: Sequence[Request]) -> list[Response]: ...

    def close(self) -> None: ...
