"""All nodes in this process, side by side in threads (kernels release the interpreter's lock). Nothing is encoded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from ..core.errors import ConsentroidError
from ..core.problem import NodeData, Problem
from ..protocol.messages import Describe, Failure, Query, Request, Response
from ..site.worker import SiteWorker


class InProcessTransport:
    bytes_down = 0  # nothing crosses a border; `MeteredTransport` says what would
    bytes_up = 0

    def __init__(self, workers: Iterable[SiteWorker], n_threads: int | None = None) -> None:
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
        return list(side_by_side(_answer, self._workers, [self._fair(request) for request in requests]))

    def _fair(self, request: Request) -> Request:
        if isinstance(request, Query) and request.solve is not None:
            return replace(request, solve=replace(request.solve, seconds=request.solve.seconds * self._share))
        return request

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _answer(worker: SiteWorker, request: Request) -> Response:
    try:
        return worker.answer(request)
    except Exception as error:  # a failing node is a value to the coordinator, never a crash
        final = isinstance(error, ConsentroidError)  # refused on purpose: it would be again
        reason = f"{type(error).__name__}: {error}"
        return Failure(worker.name, reason, -1 if isinstance(request, Describe) else request.round, final)
