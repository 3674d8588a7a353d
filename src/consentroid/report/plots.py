"""Pictures for people (matplotlib, files only)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..core.arrays import Array
from ..core.problem import NodeData, Problem
from ..paper.trace import RoundRecord

COLOURS = ("#3366cc", "#dc5b2e", "#2c9c69", "#9a4fb5", "#c9a227", "#17a2b8", "#7f6a5c", "#d6498f")
FLOOR = 1e-9  # gaps are drawn on a logarithmic axis


def gap_over_rounds(histories: Mapping[str, Sequence[RoundRecord]], path: Path, title: str) -> Path:
    """Fig. `rel_DG`: the gap of each round (thin) and the best so far (bold) for every method."""
    figure, axes = _figure()
    for (method, records), colour in zip(histories.items(), _colours(), strict=False):
        rounds = [record.round for record in records]
        axes.plot(rounds, [100 * max(r.gap, FLOOR) for r in records], color=colour, lw=2, label=method)
        each = [(r.round, r.round_gap) for r in records if r.round_gap is not None]
        if each:
            axes.plot(*zip(*[(t, 100 * max(g, FLOOR)) for t, g in each], strict=True), color=colour, lw=0.7, alpha=0.6)
    axes.set(yscale="log", xlabel="round", ylabel="relative gap, %", title=title)
    axes.legend(title="bold: best so far, thin: this round", title_fontsize="small")
    return _save(figure, path)


def gap_over_time(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], path: Path, title: str) -> Path:
    """Fig. `central_clustering`: seconds and gaps for each curve."""
    figure, axes = _figure()
    for (name, (seconds, gaps)), colour in zip(curves.items(), _colours(), strict=False):
        drawn = [100 * max(gap, FLOOR) for gap in gaps]
        axes.step(seconds, drawn, where="post", color=colour, lw=2, marker=".", label=name)
    axes.set(yscale="log", xlabel="seconds", ylabel="relative gap, %", title=title)
    axes.legend()
    return _save(figure, path)


def bounds_over_rounds(records: Sequence[RoundRecord], path: Path, title: str) -> Path:
    """How the proven bound and the cost close in on each other."""
    figure, axes = _figure()
    known = [record for record in records if np.isfinite(record.upper)]
    rounds = [record.round for record in known]
    axes.plot(rounds, [r.upper for r in known], color=COLOURS[1], lw=2, label="cost of the best centroids")
    axes.plot(rounds, [r.lower for r in known], color=COLOURS[0], lw=2, label="proven lower bound")
    axes.fill_between(rounds, [r.lower for r in known], [r.upper for r in known], color=COLOURS[0], alpha=0.12, lw=0)
    axes.set(xlabel="round", ylabel="clustering cost", title=title)
    axes.legend()
    return _save(figure, path)


def node_clusters(problem: Problem, stages: Mapping[str, Array], path: Path, title: str) -> Path:
    """Fig. `2N2D4K_3_Iterations`: rows and centroids of each node; `stages` maps a heading to centroids (N, K, D).

    With more than two features, rows and centroids are projected on the two leading principal axes of all rows. The
    picture shows rows and is therefore drawn only where all rows are at hand.
    """
    project = _projection(problem)
    figure = Figure(figsize=(3.1 * len(problem.nodes), 2.9 * len(stages) + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(stages), len(problem.nodes), squeeze=False, sharex=True, sharey=True)
    for row, (heading, centroids) in zip(grid, stages.items(), strict=True):
        for axes, node, own in zip(row, problem.nodes, centroids, strict=True):
            _scatter(axes, node, own, project)
            axes.set_title(f"{node.name}, {heading}", fontsize=10)
    figure.suptitle(title)
    return _save(figure, path)


def proof_traffic(proofs: Sequence[Any], path: Path) -> Path:
    """Rounds of each proof and the bytes a node exchanges in a round, by number of nodes."""
    figure = Figure(figsize=(8.5, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    nodes = [proof.n_nodes for proof in proofs]
    left.scatter(nodes, [proof.rounds for proof in proofs], color=COLOURS[0], alpha=0.7)
    left.set(xlabel="nodes", ylabel="rounds", title="rounds of a proof to 1e-6", ylim=(0, None))
    right.scatter(nodes, [proof.bytes_a_round / 1000 for proof in proofs], color=COLOURS[1], alpha=0.7)
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


def _figure() -> tuple[Figure, Any]:
    figure = Figure(figsize=(7, 4.3), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Figure, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return path
