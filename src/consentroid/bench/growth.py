"""`consentroid bench growth`: time and memory against rows, features, clusters and sites, phase by phase.

Generated mixtures. Every run has a process of its own, so that its peak of memory is its own, too.
"""

from __future__ import annotations

import math
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from ..report.colours import PALETTE
from ..warmup import prepare_solver
from . import grids
from .drawing import blank, save
from .grids import Grid
from .runs import N_SITES, PHASES, Run, document_of, in_sites, measure, mixture
from .show import Watch

GAP = 1e-3
SPREAD = 0.25  # of a cluster, in every feature
APART = 2.0  # distance of centres, root mean square


@dataclass(frozen=True)
class Curve:
    name: str
    words: str
    sizes: tuple[int, ...]
    shape: Callable[[int], tuple[int, int, int, int]]  # rows, features, clusters, sites


CURVES = (
    Curve(
        "rows",
        "2 features, 4 clusters, 3 sites",
        (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000),
        lambda n: (n, 2, 4, N_SITES),
    ),
    Curve(
        "features",
        "1,000 rows, 3 clusters, 3 sites",
        (1, 2, 3, 4, 6, 8, 12, 16, 24),
        lambda d: (1_000, d, 3, N_SITES),
    ),
    Curve("clusters", "1,000 rows, 2 features, 3 sites", (2, 4, 8, 16, 32, 64), lambda k: (1_000, 2, k, N_SITES)),
    Curve("sites", "10,000 rows, 2 features, 4 clusters", (1, 2, 4, 8, 16, 32, 64, 128), lambda s: (10_000, 2, 4, s)),
)


@dataclass(frozen=True)
class GrowthRun:
    curve: str
    size: int
    run: Run
    megabytes: float  # peak of the process, Python and compiled code included

    def phase(self, name: str) -> float:
        return self.run.phases.get(name, 0.0)


def grow_all(curves: Sequence[str], most: int | None, seconds: float, watch: Watch) -> Iterator[GrowthRun]:
    """Sizes up to `most` of each curve (all unless given), smallest first."""
    for curve in CURVES:
        if curve.name not in curves:
            continue
        for size in curve.sizes[:most]:
            with watch.task(f"{size:,} {curve.name}"):
                context = get_context("spawn")
                with ProcessPoolExecutor(1, mp_context=context) as pool:
                    run, megabytes = pool.submit(grow, curve.name, size, curve.shape(size), seconds).result()
            yield GrowthRun(curve.name, size, run, megabytes)


def grow(curve: str, size: int, shape: tuple[int, int, int, int], seconds: float) -> tuple[Run, float]:
    """One mixture in this process, which does nothing else."""
    n_rows, n_features, n_clusters, n_sites = shape
    prepare_solver()
    rows = in_sites(mixture(n_rows, n_features, n_clusters, SPREAD, seed=2, apart=APART), n_sites)
    return measure(f"{curve} {size}", rows, n_clusters, gap=GAP, time_limit=seconds), peak_megabytes()


def peak_megabytes() -> float:
    """Of this process since it began, without what the process that started it had, where the system tells that."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024
    except (OSError, StopIteration):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (1024**2 if sys.platform == "darwin" else 1024)


def exponent(points: Sequence[GrowthRun], taken: Callable[[GrowthRun], float]) -> float:
    """Slope of log seconds over log size in the larger half of the curve, proven runs only; NaN where too few."""
    chosen = [point for point in points if point.run.proven]
    chosen = chosen[len(chosen) // 2 :] if len(chosen) > 4 else chosen
    pairs = [(point.size, taken(point)) for point in chosen]
    pairs = [(size, seconds) for size, seconds in pairs if seconds > 1e-3]
    if len(pairs) < 3:
        return math.nan
    sizes, seconds = np.log(np.array(pairs)).T
    return float(np.polyfit(sizes, seconds, 1)[0])


def document(points: Sequence[GrowthRun]) -> dict[str, Any]:
    return document_of("growth", gap=GAP, points=[asdict(point) for point in points])


def points_in(told: dict[str, Any]) -> list[GrowthRun]:
    return [GrowthRun(**{**point, "run": Run(**point["run"])}) for point in told["points"]]


def grids_of(points: Sequence[GrowthRun]) -> list[Grid]:
    found = []
    for curve in CURVES:
        own = [point for point in points if point.curve == curve.name]
        if not own:
            continue
        grid = Grid(
            f"Growth with {curve.name} ({curve.words})",
            (curve.name, "gap", "seconds", "CPU s", *PHASES, "memory, MB", "boxes", "exchanges", "MB a site"),
            caption=f"until gap {GAP:g}; last line: exponent of the growth in the larger half of the sizes",
            left=0,
        )
        for point in own:
            run = point.run
            phases = [f"{point.phase(phase):.3g}" for phase in PHASES]
            grid.add(
                [f"{point.size:,}", grids.gap(run.gap), grids.seconds(run.seconds), grids.seconds(run.cpu_seconds),
                 *phases, f"{point.megabytes:,.0f}", f"{run.boxes:,}", f"{run.exchanges:,}",
                 grids.megabytes(run.bytes_per_site)]
            )  # fmt: skip
        measures: list[Callable[[GrowthRun], float]] = [lambda p: p.run.seconds, lambda p: p.run.cpu_seconds]
        measures += [lambda p, phase=phase: p.phase(phase) for phase in PHASES]  # type: ignore[misc]
        slopes = [exponent(own, taken) for taken in measures]
        grid.add(["exponent", "", *("–" if math.isnan(slope) else f"{slope:.2f}" for slope in slopes), "", "", "", ""])
        found.append(grid)
    return found


def draw(points: Sequence[GrowthRun], folder: Path) -> list[Path]:
    """One picture a curve: seconds of each phase above, memory below; hollow where the gap was not proven."""
    paths = []
    for curve in CURVES:
        own = [point for point in points if point.curve == curve.name]
        if own:
            paths.append(_draw(curve, own, folder / f"growth_{curve.name}.png"))
    return paths


def _draw(curve: Curve, own: Sequence[GrowthRun], path: Path) -> Path:
    figure, axes = blank(7.0, 5.6, 2, 1, sharex=True, height_ratios=(3, 1))
    upper, lower = axes[:, 0]
    sizes = [point.size for point in own]
    for phase, colour in zip(PHASES, PALETTE, strict=False):
        heights = [point.phase(phase) or math.nan for point in own]
        if not all(map(math.isnan, heights)):
            upper.plot(sizes, heights, color=colour, lw=1.4, marker=".", label=phase)
    totals = [point.run.seconds for point in own]
    upper.plot(sizes, totals, color="0.2", lw=1.8, label="in all")
    upper.plot(sizes, [point.run.cpu_seconds for point in own], color="0.2", lw=1, ls=":", label="seconds of processor")
    faces = ["0.2" if point.run.proven else "white" for point in own]
    upper.scatter(sizes, totals, c=faces, edgecolors="0.2", zorder=3)
    if not all(point.run.proven for point in own):
        upper.scatter([], [], facecolor="white", edgecolor="0.2", label="not proven in time")
    lower.plot(sizes, [point.megabytes for point in own], color=PALETTE[5], lw=1.4, marker="o")
    upper.set(xscale="log", yscale="log", ylabel="seconds")
    upper.set_title(f"Growth with {curve.name} ({curve.words}), gap {GAP:g}", fontsize=10.5)
    upper.legend(fontsize="small", ncols=2)
    lower.set(ylabel="memory, MB", xlabel=curve.name, ylim=(0, None))
    lower.set_xticks(sizes, [f"{size:,}" for size in sizes], minor=False)
    lower.set_xticks([], minor=True)
    return save(figure, path)
