"""Pictures as files (matplotlib, from the extra `plots`): of a run, of a comparison, and the paper's figures.

A cluster has the same colour in all of them and in the report. Pictures that show rows are drawn only where all rows
are at hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.arrays import Array
from ..core.extras import require
from ..core.problem import NodeData, Problem
from .colours import ASKED, BOUND, COST, PALETTE, cluster_colour
from .picture_data import drawable, nearest_cluster, plane, regions_of, too_small
from .wording import percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = PALETTE
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
FLOOR = 1e-9  # gaps are drawn on a logarithmic axis


# ---------------------------------------------------------------------------------------------------- a run


def draw_run(
    folder: Path, result: Mapping[str, Any], trace: Sequence[Mapping[str, Any]], rows: Mapping[str, Array] | None = None
) -> list[Path]:
    """The pictures of a run in its folder, from what `result.json` and `trace.jsonl` hold."""
    drawn = [clusters(result, folder / "clusters.png", rows)]
    if len(drawable(trace)) > 1:
        drawn.append(bounds_over_time(trace, folder / "bounds.png"))
        drawn.append(gap_left(trace, folder / "gap.png", result.get("gap_asked")))
    return drawn


def clusters(result: Mapping[str, Any], path: Path, rows: Mapping[str, Array] | None = None) -> Path:
    """Centroids and their certified regions, over the rows if given: two features, or the two principal axes."""
    flat, regions = plane(result), regions_of(result)
    centroids = flat.project(np.array(result["centroids"], dtype=float))
    figure, axes = _figure()
    labels_of = nearest_cluster(result)
    several = rows is not None and len(rows) > 1
    for (site, table), marker in zip((rows or {}).items(), MARKERS * (1 + len(rows or {}) // len(MARKERS))):
        places = flat.project(np.asarray(table, dtype=float))
        colours = [cluster_colour(int(k)) for k in labels_of(table)]
        axes.scatter(*places.T, c=colours, marker=marker if several else "o", s=16, alpha=0.55, lw=0)
        if several:
            axes.scatter([], [], c="#777777", marker=marker, s=20, label=str(site))
    if regions is not None:
        shadows = [flat.shadow(low, high) for low, high in zip(*regions)]
        shown = flat.project(np.concatenate([np.asarray(t, dtype=float) for t in rows.values()])) if rows else centroids
        label = "certified region" + (" (smaller than the mark)" if too_small(shadows, np.ptp(shown, axis=0)) else "")
        for k, shadow in enumerate(shadows):
            corners = np.array(shadow)
            if len(result["features"]) == 1:
                left, right = corners[:, 0].min(), corners[:, 0].max()
                corners = np.array([[left, -0.2], [right, -0.2], [right, 0.2], [left, 0.2]])
            colour = cluster_colour(k)
            named = {"label": label} if k == 0 else {}
            axes.fill(*corners.T, facecolor=colour + "55", edgecolor="black", lw=1.1, zorder=3, **named)
    for k, (x, y) in enumerate(centroids):
        named = {"label": "centroid"} if k == 0 else {}
        axes.scatter(x, y, c=cluster_colour(k), marker="X", s=90, edgecolor="black", lw=0.8, zorder=4, **named)
        axes.annotate(str(k), (x, y), xytext=(7, 6), textcoords="offset points", weight="bold", zorder=5)
    axes.set(xlabel=flat.labels[0], ylabel=flat.labels[1], title=str(result.get("verdict", "")).partition(":")[0])
    if len(result["features"]) == 1:
        axes.set(ylim=(-1, 1), yticks=[])
    axes.legend(frameon=False, fontsize="small")
    return _save(figure, path)


def bounds_over_time(trace: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """How the proven bound and the cost close in on each other."""
    figure, axes = _figure()
    steps = drawable(trace)
    seconds, lower, upper = ([step[name] for step in steps] for name in ("seconds", "lower", "upper"))
    axes.fill_between(seconds, lower, upper, step="post", color=BOUND, alpha=0.12, lw=0)
    axes.step(seconds, upper, where="post", color=COST, lw=2, label="cost of the best centroids")
    axes.step(seconds, lower, where="post", color=BOUND, lw=2, label="proven lower bound")
    axes.set(xlabel="seconds", ylabel="cost")
    axes.legend(frameon=False)
    return _save(figure, path)


def gap_left(trace: Sequence[Mapping[str, Any]], path: Path, asked: float | None = None) -> Path:
    """What is left to prove, over time."""
    figure, axes = _figure()
    steps = drawable(trace)
    gaps = [100 * max(step["gap"], FLOOR) for step in steps]
    axes.step([step["seconds"] for step in steps], gaps, where="post", color=BOUND, lw=2, label="gap")
    if asked:
        axes.axhline(100 * asked, color=ASKED, ls=":", lw=1.5, label="asked for")
    axes.set(yscale="log", xlabel="seconds", ylabel="gap, %")
    axes.legend(frameon=False)
    return _save(figure, path)


# ---------------------------------------------------------------------------------------------------- a comparison


def comparison(document: Mapping[str, Any], path: Path) -> Path:
    """Costs of all methods above the bound that no method can fall below; `Comparison.as_dict()`."""
    lower, lines = float(document["lower_bound"]), sorted(document["methods"], key=lambda line: line["cost"])
    figure, axes = _figure(height=1.2 + 0.45 * len(lines))
    excess = [100 * (line["cost"] - lower) / lower if lower > 0 else 0.0 for line in lines]
    colours = [BOUND if line["proves"] else COST for line in lines]
    places = np.arange(len(lines))[::-1]
    axes.barh(places, excess, color=colours, height=0.6)
    room = max(*excess, 1e-9)
    for place, line, above in zip(places, lines, excess):
        said = f"{line['cost']:.6g}  (+{percent(above / 100)})" if above > 0 else f"{line['cost']:.6g}"
        axes.text(above + 0.015 * room, place, said, va="center", fontsize="small")
    axes.set_yticks(places, [line["method"] + (" (rows leave)" if line["rows_leave"] else "") for line in lines])
    axes.set(xlabel=f"cost above the proven lower bound {lower:.6g}, %", xlim=(0, 1.35 * room))
    axes.axvline(0, color="black", lw=1.5)
    axes.grid(visible=False, axis="y")
    return _save(figure, path)


# ---------------------------------------------------------------------------------------------------- the paper


def gap_over_rounds(histories: Mapping[str, Sequence[Any]], path: Path, title: str) -> Path:
    """Fig. `rel_DG`: the gap of each round (thin) and the best so far (bold) for every method."""
    figure, axes = _figure()
    thin = False
    for (method, steps), colour in zip(histories.items(), _colours(), strict=False):
        best = [(step.round, 100 * max(step.gap, FLOOR)) for step in steps if np.isfinite(step.gap)]
        axes.plot(*np.array(best).reshape(-1, 2).T, color=colour, lw=2, label=method)
        each = [(step.round, getattr(step, "round_gap", None)) for step in steps]
        known = [(number, 100 * max(gap, FLOOR)) for number, gap in each if gap is not None]
        if known:
            axes.plot(*np.array(known).T, color=colour, lw=0.7, alpha=0.6)
            thin = True
    axes.set(yscale="log", xlabel="round", ylabel="relative gap, %", title=title)
    axes.legend(title="bold: best so far, thin: this round" if thin else None, title_fontsize="small", frameon=False)
    return _save(figure, path)


def gap_over_time(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], path: Path, title: str) -> Path:
    """Fig. `central_clustering`: seconds and gaps for each curve."""
    figure, axes = _figure()
    for (name, (seconds, gaps)), colour in zip(curves.items(), _colours(), strict=False):
        drawn = [100 * max(gap, FLOOR) if np.isfinite(gap) else np.nan for gap in gaps]
        axes.step(seconds, drawn, where="post", color=colour, lw=2, marker=".", label=name)
    axes.set(yscale="log", xlabel="seconds", ylabel="relative gap, %", title=title)
    axes.legend()
    return _save(figure, path)


def node_clusters(
    problem: Problem, stages: Mapping[str, Array], path: Path, title: str, features: Sequence[str] = ()
) -> Path:
    """Fig. `2N2D4K_3_Iterations`: rows and centroids of each node; `stages` maps a heading to centroids (N, K, D).

    With more than two features, rows and centroids are projected on the two leading principal axes of all rows. The
    picture shows rows and is therefore drawn only where all rows are at hand.
    """
    project = _projection(problem)
    names = (list(features) or [f"x{d}" for d in range(problem.n_features)] + [""])[:2]
    if problem.n_features > 2:
        names = ["first principal axis", "second principal axis"]
    figure = _empty(3.1 * len(problem.nodes), 2.9 * len(stages) + 0.4)
    grid = figure.subplots(len(stages), len(problem.nodes), squeeze=False, sharex=True, sharey=True)
    for row, (heading, centroids) in zip(grid, stages.items(), strict=True):
        for axes, node, own in zip(row, problem.nodes, centroids, strict=True):
            _scatter(axes, node, own, project)
            axes.set_title(f"{node.name}, {heading}", fontsize=10)
    for axes in grid[-1]:
        axes.set_xlabel(names[0])
    for axes in grid[:, 0]:
        axes.set_ylabel(names[1])
    figure.suptitle(title)
    return _save(figure, path)


def proof_traffic(proofs: Sequence[Any], path: Path) -> Path:
    """Rounds of each proof and the bytes a node exchanges in a round, by number of nodes."""
    figure = _empty(8.5, 3.8)
    left, right = figure.subplots(1, 2)
    nodes = [proof.n_nodes for proof in proofs]
    left.scatter(nodes, [proof.rounds for proof in proofs], color=COLOURS[0], alpha=0.7)
    left.set(xlabel="nodes", ylabel="rounds", title="rounds of a proof to 1e-6", ylim=(0, None))
    right.scatter(nodes, [proof.bytes_per_round / 1000 for proof in proofs], color=COLOURS[1], alpha=0.7)
    right.set(xlabel="nodes", ylabel="kB", yscale="log", title="traffic of one node in a round")
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(sorted(set(nodes)), [str(n) for n in sorted(set(nodes))])
        axes.grid(alpha=0.25)
    return _save(figure, path)


def _scatter(axes: Any, node: NodeData, centroids: Array, project: Any) -> None:
    labels = ((node.points[:, None] - centroids[None]) ** 2).sum(axis=2).argmin(axis=1)
    rows, marks = project(node.points), project(centroids)
    for k, colour in zip(range(len(centroids)), _colours(len(centroids)), strict=True):
        axes.scatter(*rows[labels == k].T, s=22, color=colour, alpha=0.75, lw=0)
        axes.scatter(*marks[k], marker="X", s=110, color=colour, edgecolor="black", lw=0.9, zorder=3)
    axes.grid(alpha=0.2)


def _projection(problem: Problem) -> Any:
    rows = problem.pooled.points
    if rows.shape[1] == 1:
        return lambda points: np.column_stack([points[:, 0], np.zeros(len(points))])
    if rows.shape[1] == 2:
        return lambda points: points.reshape(-1, 2)
    mean = rows.mean(axis=0)
    axes = np.linalg.svd(rows - mean, full_matrices=False)[2][:2]
    return lambda points: (points.reshape(-1, len(mean)) - mean) @ axes.T


def _colours(n: int = len(COLOURS)) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(max(n, len(COLOURS)))][: max(n, 1)]


def _empty(width: float, height: float) -> Figure:
    figure: Figure = require("matplotlib.figure", "plots", "drawing").Figure(
        figsize=(width, height), layout="constrained"
    )
    require("matplotlib.backends.backend_agg", "plots", "drawing").FigureCanvasAgg(figure)
    return figure


def _figure(width: float = 7.0, height: float = 4.3) -> tuple[Figure, Any]:
    figure = _empty(width, height)
    axes = figure.add_subplot()
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Figure, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return path
