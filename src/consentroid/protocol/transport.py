"""One call: send each node its request, return each node's response or a `Failure`.

A transport knows nothing of K-means. It must return one response per request, in order, within finite time. What a node
cannot answer is a `Failure`, a value and not a crash; one that is `final` cannot be healed by asking again.
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

    @property
    def bytes_down(self) -> int:
        """From coordinator to nodes so far; 0 where nothing crosses a border."""
        ...

    @property
    def bytes_up(self) -> int:
        """From nodes to coordinator so far."""
        ...

    def exchange(self, requests: Sequence[Request]) -> list[Response]: ...

    def close(self) -> None: ...
