"""`fit_files`: rows in many files, larger than one process can hold, on the workers of dask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .core.result import FitResult
from .fitting import run
from .parts.cluster import Cluster
from .transport.inprocess import InProcessTransport
from .transport.metered import MeteredTransport


def fit_files(
    sources: Mapping[str, str],
    n_clusters: int,
    *,
    columns: Sequence[str] | None = None,
    weights: str | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: Cluster | None = None,
    folder: Path | None = None,
    **options: Any,
) -> FitResult:
    """Cluster the rows of each site's files; a source is a file, a folder or a pattern such as 'rows/*.parquet'.

    The files are dealt to the workers of the dask cluster at `scheduler` (tcp://host:8786), to `workers` processes of
    this machine, or to a `cluster` that is open already. A worker reads its own files and keeps them; only sums come
    back. `options` are those of `consentroid.fit`.
    """
    own = cluster is None
    cluster = cluster or Cluster(scheduler, workers)
    try:
        chosen = None if columns is None else list(columns)
        sites = [
            cluster.site(name, source, chosen, weights, None if folder is None else folder / f"prices-{name}.npz")
            for name, source in sources.items()
        ]
        # all sites are asked before the first answer is waited for: a thread for each
        transport = MeteredTransport(InProcessTransport(sites, len(sites)))
        try:
            return run(transport, n_clusters, **options)
        finally:
            transport.close()
    finally:
        if own:
            cluster.close()
