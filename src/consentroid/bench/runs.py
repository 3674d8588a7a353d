"""One measured run of the row-price engine, and the data sets that benchmarks read."""

from __future__ import annotations

import math
import os
import platform
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..core.arrays import Array
from ..core.errors import CertificateInvalid, InvalidInput
from ..core.result import FitResult, StopReason, relative_gap
from ..fitting import fit
from ..report.files import versions
from ..rowprices.session import OnStep
from ..verify import verify

N_SITES = 3  # rows without sites of their own: row i belongs to site i mod 3
PHASES = ("incumbent", "prices", "search", "branch", "pairs", "regions", "certificate")
Rows = Mapping[str, Array]


class NoData(Exception):
    """A data set is not here; the text says which, and where it would have to be."""


@dataclass(frozen=True)
class Run:
    """What one call of `fit` cost and reached, and what the independent checker says of its certificate."""

    name: str
    n_rows: int
    n_features: int
    n_clusters: int
    n_sites: int
    gap_asked: float
    time_limit: float
    seconds: float  # of the whole call, by the clock on the wall
    cpu_seconds: float  # of this process in the same time: what the clock would show on an idle core, or more with two
    lower: float
    upper: float
    stop_reason: str
    root_gap: float  # before the first branch
    tree_nodes: int
    boxes: int
    exchanges: int
    bytes_per_site: int  # up and down
    phases: dict[str, float] = field(default_factory=dict)
    verified: bool | None = None  # None: not asked for, or there is no certificate
    verified_gap: float | None = None
    verify_seconds: float | None = None
    note: str = ""

    @property
    def gap(self) -> float:
        return relative_gap(self.lower, self.upper)

    @property
    def proven(self) -> bool:
        return self.gap <= self.gap_asked

    @property
    def over_limit(self) -> float:
        """Seconds beyond what a time limit forgives (5 % or half a second); 0 where it was kept."""
        return max(0.0, self.seconds - self.time_limit - max(0.05 * self.time_limit, 0.5))


def measure(
    name: str,
    rows: Rows,
    n_clusters: int,
    *,
    gap: float = 1e-4,
    time_limit: float = 60.0,
    check: bool = False,
    on_step: OnStep | None = None,
    check_seconds: float = 600.0,
) -> Run:
    """Fit once and, with `check`, pass the certificate through the independent checker with all rows and prices."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if check else None
        wall, cpu = time.perf_counter(), time.process_time()
        result = fit(rows, n_clusters, gap=gap, time_limit=time_limit, folder=folder, on_step=on_step)
        seconds, cpu_seconds = time.perf_counter() - wall, time.process_time() - cpu
        if result.stop_reason == StopReason.INTERRUPTED:
            raise KeyboardInterrupt
        run = Run(
            name=name,
            n_rows=sum(len(table) for table in rows.values()),
            n_features=result.centroids.shape[1],
            n_clusters=n_clusters,
            n_sites=len(rows),
            gap_asked=gap,
            time_limit=time_limit,
            seconds=seconds,
            cpu_seconds=cpu_seconds,
            lower=result.lower_bound,
            upper=result.upper_bound,
            stop_reason=str(result.stop_reason),
            root_gap=root_gap(result),
            tree_nodes=1 + result.cells,
            boxes=result.boxes,
            exchanges=result.rounds,
            bytes_per_site=(result.bytes_up + result.bytes_down) // len(rows),
            phases=dict(result.phases),
        )
        if folder is None or result.certificate is None:
            return run
        return _checked(run, result, rows, folder, check_seconds)


def _checked(run: Run, result: FitResult, rows: Rows, folder: Path, seconds: float) -> Run:
    prices = {name: folder / f"prices-{name}.npz" for name in rows}
    began = time.perf_counter()
    try:
        report = verify(result.certificate, rows, prices, time_limit=seconds)
    except CertificateInvalid as reason:
        return replace(run, verified=False, verify_seconds=time.perf_counter() - began, note=f"refuted: {reason}")
    note = "" if report.finished else f"the checker did not end in {seconds:g} s"
    return replace(
        run,
        verified=report.verified,
        verified_gap=report.gap if math.isfinite(report.gap) else None,
        verify_seconds=time.perf_counter() - began,
        note=note,
    )


def root_gap(result: FitResult) -> float:
    """What was left when the first branch was made; without any, what is left at the end."""
    for step in result.trace:
        if step.phase == "branch":
            return relative_gap(step.lower, result.upper_bound)
    return result.gap


# ---------------------------------------------------------------------------------------------------- data


def read_published(folder: Path | None, name: str) -> Array:
    """A file of the published data sets: a first line `rows features`, then one row a line."""
    if folder is None:
        raise NoData(f"{name}: no folder of data sets given (--data)")
    path = folder / f"{name}.txt"
    if not path.is_file():
        raise NoData(f"{name}: no file {path.name} in the folder of data sets")
    try:
        with path.open(encoding="utf-8") as file:
            shape = tuple(int(part) for part in file.readline().split())
            rows = np.loadtxt(file, ndmin=2)
    except ValueError as reason:
        raise InvalidInput(f"'{path}' is not a data set: {reason}") from None
    if rows.shape != shape:
        raise InvalidInput(f"'{path}' promises rows and features {shape} and holds {rows.shape}")
    return rows


def in_sites(rows: Array, n_sites: int = N_SITES) -> dict[str, Array]:
    """Dealt in turn, so that a site is a sample of the whole."""
    return {f"site{i + 1}": rows[i::n_sites] for i in range(min(n_sites, len(rows)))}


def standardised(rows: Array) -> Array:
    spread = rows.std(axis=0)
    return np.asarray((rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def mixture(
    n_rows: int, n_features: int, n_clusters: int, spread: float, seed: int = 0, apart: float | None = None
) -> Array:
    """Normal clusters with standard deviation `spread` around centres drawn from a standard normal distribution, scaled
    so that the mean square of their distance is `apart`² whatever the number of features, if given."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(n_clusters, n_features))
    if apart is not None:
        centres *= apart / math.sqrt(2 * n_features)
    labels = random.integers(0, n_clusters, n_rows)
    return np.asarray(centres[labels] + spread * random.normal(size=(n_rows, n_features)))


def loaded(read: Callable[[], Rows]) -> Rows:
    """Data that ship in a package which is not installed are missing, not wrong."""
    try:
        return read()
    except InvalidInput as reason:
        raise NoData(str(reason)) from None


# ---------------------------------------------------------------------------------------------------- what is written


def document_of(bench: str, **parts: Any) -> dict[str, Any]:
    """The JSON of a benchmark: which, when, where, and what it measured."""
    return {"bench": bench, "date": date.today().isoformat(), "machine": machine(), **parts}


def machine() -> dict[str, Any]:
    """What the figures depend on; no name of the computer."""
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "system": platform.system(),
        "python": platform.python_version(),
        "consentroid": __version__,
        "packages": versions(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
