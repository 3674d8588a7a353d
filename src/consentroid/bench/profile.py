"""`consentroid bench profile`: ten typical problems, or six large and hard ones, and where their time goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..report.colours import PALETTE
from . import grids
from .drawing import blank, save
from .figures import birds, insured, iris, wine
from .grids import Grid
from .runs import PHASES, NoData, Rows, Run, document_of, in_sites, measure, mixture, read_published
from .show import Watch

Case = tuple[str, Callable[[], Rows], int, float]


def cases(data: Path | None) -> list[Case]:
    """(name, rows, clusters, gap)."""

    def file(name: str) -> Callable[[], Rows]:
        return lambda: in_sites(read_published(data, name))

    return [
        ("penguins by island K=3", birds, 3, 1e-4),
        ("iris K=3", iris, 3, 1e-4),
        ("wine standardised K=3", wine, 3, 1e-4),
        ("glass K=6", file("glass"), 6, 1e-4),
        ("pr299 K=8", file("pr299"), 8, 1e-4),
        ("fl417 K=10", file("fl417"), 10, 1e-4),
        ("u1060 K=30", file("u1060"), 30, 1e-4),
        ("RAND HIE by site K=4", insured, 4, 1e-3),
        ("pulsar K=2", file("pulsar"), 2, 1e-3),
        ("mixture 100,000×2 K=5", lambda: in_sites(mixture(100_000, 2, 5, 0.3)), 5, 1e-3),
    ]


def large_cases() -> list[Case]:
    """Mixtures with many rows, and two whose clusters overlap so much that hardly anything can be proven."""
    sizes = (
        (1_000_000, 2, 5, 0.3),
        (200_000, 8, 4, 0.5),
        (100_000, 5, 6, 0.5),
        (58_000, 9, 7, 0.3),  # the size of Shuttle
        (2_000, 8, 4, 1.0),
        (100_000, 10, 5, 1.0),
    )

    def made(n: int, d: int, k: int, spread: float) -> Case:
        return f"{n:,}×{d} K={k}, spread {spread:g}", lambda: in_sites(mixture(n, d, k, spread)), k, 1e-3

    return [made(*size) for size in sizes]


def profile_all(chosen: Sequence[Case], seconds: float, watch: Watch) -> Iterator[Run | NoData]:
    for name, read, k, gap in chosen:
        with watch.task(name) as on_step:
            try:
                rows = read()
            except NoData as missing:
                yield missing
                continue
            run = measure(name, rows, k, gap=gap, time_limit=seconds, on_step=on_step)
        yield run


def document(runs: Sequence[Run], missing: Sequence[str], large: bool = False) -> dict[str, Any]:
    return document_of("large" if large else "profile", runs=[asdict(run) for run in runs], missing=list(missing))


def runs_in(told: dict[str, Any]) -> list[Run]:
    return [Run(**run) for run in told["runs"]]


def grid_of(runs: Sequence[Run]) -> Grid:
    grid = Grid(
        "Where the time goes",
        ("problem", "asked", "gap", "seconds", "CPU s", *PHASES, "boxes", "exchanges"),
        caption="seconds by the clock in each phase",
    )
    for run in runs:
        phases = [f"{run.phases.get(phase, 0.0):.2f}" for phase in PHASES]
        grid.add(
            [run.name, f"{run.gap_asked:g}", grids.gap(run.gap), grids.seconds(run.seconds),
             grids.seconds(run.cpu_seconds), *phases, f"{run.boxes:,}", f"{run.exchanges:,}"]
        )  # fmt: skip
    return grid


def draw(runs: Sequence[Run], path: Path) -> Path:
    """Shares of the phases, one bar a problem."""
    figure, ((axes,),) = blank(7.5, 1.2 + 0.38 * len(runs))
    places = list(range(len(runs)))[::-1]
    left = [0.0] * len(runs)
    for phase, colour in zip(PHASES, PALETTE, strict=False):
        if not any(run.phases.get(phase) for run in runs):
            continue
        shares = [100 * run.phases.get(phase, 0.0) / max(sum(run.phases.values()), 1e-9) for run in runs]
        axes.barh(places, shares, left=left, color=colour, height=0.65, label=phase)
        left = [a + b for a, b in zip(left, shares, strict=True)]
    axes.set_yticks(places, [f"{run.name}, {grids.seconds(run.seconds)} s" for run in runs])
    axes.set(xlabel="share of the time, %", xlim=(0, 100))
    axes.grid(visible=False, axis="y")
    axes.legend(
        ncols=len(PHASES), loc="lower center", bbox_to_anchor=(0.35, 1.0), frameon=False, fontsize="small",
        columnspacing=1.2, handlelength=1.2,
    )  # fmt: skip
    return save(figure, path)
