"""Parts on the workers of dask: one actor for each, on a cluster that runs already or on processes of this machine."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array
from ..core.errors import ConsentroidError, InvalidInput, NodeFailed
from ..core.extras import require
from ..protocol.messages import Describe, Failure, Request, Response
from ..site.price_files import SitePrices
from .files import Portion, deal
from .site import Part, SiteOfParts

PATIENCE = 5.0  # seconds between looks whether a silent worker is still there


class RemotePart:
    """A part that lives on a worker."""

    def __init__(self, client: Any, portion: Portion, worker: str, threads: int) -> None:
        self._client, self._site, self._worker = client, portion.site, worker
        made = client.submit(Part, portion, threads, actor=True, workers=[worker], pure=False)
        self._made = made
        self._actor: Any = None

    def wait(self) -> None:
        """Until its rows are read."""
        try:
            with self._client.as_current():  # by which an actor finds its way back
                self._actor = self._made.result()
                self._actor.distinct(1).result()
        except ConsentroidError:
            raise
        except Exception as error:
            raise NodeFailed(self._site, f"worker {self._worker} cannot hold its rows: {error}") from None

    def ask(self, request: Request) -> Callable[[], Response]:
        future = self._actor.answer(request)
        number = -1 if isinstance(request, Describe) else request.round

        def wait() -> Response:
            try:
                response: Response = self._result(future)
                return response
            except Exception as error:  # the rows and prices of a lost worker are gone: nothing to ask again
                return Failure(self._site, f"worker {self._worker} of the cluster is lost: {error}", number, final=True)

        return wait

    def prices(self, slots: NDArray[np.int64]) -> SitePrices:
        prices: SitePrices = self._result(self._actor.prices(slots))
        return prices

    def distinct(self, most: int) -> Array:
        return np.asarray(self._result(self._actor.distinct(most)))

    def _result(self, future: Any) -> Any:
        while True:
            try:
                return future.result(timeout=PATIENCE)
            except TimeoutError:
                if self._worker not in self._client.scheduler_info(n_workers=-1)["workers"]:
                    raise RuntimeError("it left while it was asked") from None


class Cluster:
    """Workers of a scheduler, or `n_workers` processes here; to be used as a context."""

    def __init__(self, scheduler: str | None = None, n_workers: int | None = None) -> None:
        distributed = require("distributed", "dask", "rows on several workers")
        self._local = None
        if scheduler is None:
            n = n_workers or os.cpu_count() or 1
            threads = max(1, (os.cpu_count() or 1) // n)
            self._local = distributed.LocalCluster(
                n_workers=n,
                threads_per_worker=threads,
                processes=True,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": False},
                silence_logs=logging.CRITICAL,
            )
        try:
            self._client = distributed.Client(self._local or scheduler, timeout="30s", set_as_default=False)
        except (OSError, ValueError) as error:
            raise InvalidInput(f"there is no dask scheduler at '{scheduler}' ({error}); start one with: dask scheduler"
                               ) from None  # fmt: skip
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        if not workers:
            self.close()
            raise InvalidInput(f"the scheduler at '{scheduler}' has no workers; start one: dask worker {scheduler}")
        self._threads = {address: int(worker["nthreads"]) for address, worker in sorted(workers.items())}

    def site(
        self, name: str, source: str, columns: list[str] | None, weights: str | None, price_file: Path | None
    ) -> SiteOfParts:
        """The rows of these files, dealt to all workers; returns when all are read."""
        workers = list(self._threads)
        portions = deal(name, source, len(workers), columns, weights)
        parts = [
            RemotePart(self._client, portion, worker, self._threads[worker])
            for portion, worker in zip(portions, workers, strict=False)
        ]
        for part in parts:
            part.wait()
        return SiteOfParts(name, parts, price_file)

    def peaks(self) -> dict[str, float]:
        """MB that each worker's process has held at most."""
        found: dict[str, float] = self._client.run(peak_megabytes)
        return found

    def close(self) -> None:
        self._client.close()
        if self._local is not None:
            self._local.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def peak_megabytes() -> float:
    import resource
    import sys

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)
