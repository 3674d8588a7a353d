"""All nodes in this process, side by side in threads (kernels release the interpreter's lock). Nothing is encoded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol

from ..core.problem import NodeData, Problem
from ..protocol.messages import Query, Request, Response
from ..site.worker import SiteWorker


class AnsweringSite(Protocol):
    @property
    def name(self) -> str: ...

    def answered(self, request: Request) -> Response:
        """The answer, or a `Failure`; never raises."""
        ...


class InProcessTransport:
    bytes_down = 0  # nothing crosses a border; `MeteredTransport` says what would
    bytes_up = 0

    def __init__(self, workers: Iterable[AnsweringSite], n_threads: int | None = None) -> None:
        self._workers = tuple(workers)
        width = min(len(self._workers), n_threads or os.cpu_count() or 1)
        self._share = width / len(self._workers)  # of an exchange's time that a node gets when nodes take turns
        self._pool = ThreadPoolExecutor(width, thread_name_prefix="node") if width > 1 else None

    @classmethod
    def of(
        cls,
        problem: Problem,
        worker: Callable[[NodeData], SiteWorker] = SiteWorker,
        n_threads: int | None = None,
    ) -> InProcessTransport:
        return cls((worker(node) for node in problem.nodes), n_threads)

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(worker.name for worker in self._workers)

    def exchange(self, requests: Sequence[Request]) -> list[Response]:
        side_by_side = map if self._pool is None else self._pool.map
        fair = [self._fair(request) for request in requests]
        return list(side_by_side(lambda site, request: site.answered(request), self._workers, fair))

    def _fair(self, request: Request) -> Request:
        if isinstance(request, Query) and request.solve is not None:
            return replace(request, solve=replace(request.solve, seconds=request.solve.seconds * self._share))
        return request

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
