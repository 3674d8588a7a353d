"""Tables and pictures of `consentroid bench solvers`."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from ..report.plots import COLOURS
from .solver_records import THEIRS, GrowthPoint, SolverBench

CURVES = {
    "rows": "Time against rows (2 features, 3 clusters)",
    "features": "Time against features (60 rows, 3 clusters)",
    "clusters": "Time against clusters (60 rows, 2 features)",
}


def show(bench: SolverBench, console: Console) -> None:
    if bench.comparisons:
        console.print(_ratio_table(bench))
    for curve in CURVES:
        points = [point for point in bench.growth if point.curve == curve]
        if points:
            console.print(_growth_table(curve, points))


def _ratio_table(bench: SolverBench) -> Table:
    table = Table(
        title="Node problems along the bundle trust method: how many times faster than MIQCP",
        caption="one thread; ours to gap 1e-9, theirs to 1e-4; † ratios of solves out of time are lower limits",
    )
    for heading in ("class", "solver"):
        table.add_column(heading)
    for heading in ("problems", "ours, ms", "first call, ms", "theirs, s", "median ×", "worst ×", "value differs by"):
        table.add_column(heading, justify="right")
    for ratio in bench.ratios:
        chosen = [c for c in bench.comparisons if c.instance_class == ratio.instance_class and c.ratio(ratio.solver)]
        ours = float(np.median([c.ours_seconds for c in chosen]))
        first = float(np.median([c.ours_first_seconds for c in chosen]))
        theirs = float(np.median([getattr(c, f"{ratio.solver}_seconds") for c in chosen]))
        table.add_row(
            ratio.instance_class,
            ratio.solver + ("†" if ratio.out_of_time else ""),
            str(ratio.problems),
            f"{1e3 * ours:.3f}",
            f"{1e3 * first:.3f}",
            f"{theirs:.2f}",
            f"{ratio.median:,.0f}",
            f"{ratio.worst:,.0f}",
            "–" if math.isnan(ratio.value_difference) else f"{ratio.value_difference:.0e}",
        )
    return table


def _growth_table(curve: str, points: list[GrowthPoint]) -> Table:
    first = points[0]
    table = Table(
        title=CURVES[curve], caption=f"until gap {first.gap_asked:g} or {first.seconds_allowed:g} s, one thread"
    )
    for heading in (curve, "seconds", "gap reached"):
        table.add_column(heading, justify="right")
    for point in points:
        table.add_row(f"{getattr(point, curve):,}", f"{point.seconds:.4g}", f"{point.gap:.1e}")
    return table


def draw(bench: SolverBench, folder: Path) -> list[Path]:
    """One picture of the comparison and one of each growth curve, where measured."""
    paths = [_draw_comparison(bench, folder / "solvers.png")] if bench.ratios else []
    for curve, title in CURVES.items():
        points = [point for point in bench.growth if point.curve == curve]
        if points:
            paths.append(_draw_growth(curve, title, points, folder / f"node_growth_{curve}.png"))
    return paths


def _draw_comparison(bench: SolverBench, path: Path) -> Path:
    figure = Figure(figsize=(6.4, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    every = []
    for solver, colour in zip(THEIRS, COLOURS, strict=False):
        pairs = [(c.ours_seconds, getattr(c, f"{solver}_seconds")) for c in bench.comparisons if c.ratio(solver)]
        if pairs:
            ours, theirs = zip(*pairs, strict=True)
            axes.scatter(ours, theirs, s=16, color=colour, alpha=0.7, lw=0, label=solver)
            every += pairs
    smallest, largest = np.min(every, axis=0), np.max(every, axis=0)
    (low, bottom), (high, top) = smallest / (1.5, 2.0), np.maximum(largest * (1.5, 2.0), smallest * 10)
    for factor in (10, 100, 1_000, 10_000, 100_000):
        axes.plot([low, high], [factor * low, factor * high], color="0.75", lw=0.8, zorder=0)
        at = min(high, top / factor)
        if at > low and factor * at > bottom:
            edge = "bottom" if at == high else "top"  # inside the frame
            axes.annotate(f"{factor:,}×", (at, factor * at), ha="right", va=edge, fontsize=8, color="0.45")
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(bottom, top))
    axes.set(xlabel="exact solver, seconds", ylabel="MIQCP solver, seconds", title="One node problem, two solvers")
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=150)
    return path


def _draw_growth(curve: str, title: str, points: list[GrowthPoint], path: Path) -> Path:
    """Time above, gap reached below; points that ran out of time are hollow."""
    figure = Figure(figsize=(6.4, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    sizes = [getattr(point, curve) for point in points]
    proven = [point.gap <= point.gap_asked for point in points]
    upper.plot(sizes, [point.seconds for point in points], color=COLOURS[0], lw=1.5)
    lower.plot(sizes, [max(point.gap, 1e-12) for point in points], color=COLOURS[1], lw=1.5)
    for axes, heights, colour in (
        (upper, [point.seconds for point in points], COLOURS[0]),
        (lower, [max(point.gap, 1e-12) for point in points], COLOURS[1]),
    ):
        faces = [colour if done else "white" for done in proven]
        axes.scatter(sizes, heights, c=faces, edgecolors=colour, zorder=3)
        axes.grid(alpha=0.25)
    limit, asked = points[0].seconds_allowed, points[0].gap_asked
    upper.axhline(limit, color="0.6", lw=0.8, ls="--")
    lower.axhline(asked, color="0.6", lw=0.8, ls="--")
    upper.set(yscale="log", ylabel="seconds")
    upper.set_title(f"{title}, until gap {asked:g} or {limit:g} s", fontsize=10.5)
    lower.set(yscale="log", ylabel="gap reached", xlabel=curve)
    if curve == "rows":
        lower.set_xscale("log")
    else:
        lower.set_xticks(sizes)
    if not all(proven):
        upper.scatter([], [], facecolor="white", edgecolor=COLOURS[0], label="out of time")
        upper.legend()
    figure.savefig(path, dpi=150)
    return path
