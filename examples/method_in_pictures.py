"""The method in four pictures, as docs/method.md shows them.

python examples/method_in_pictures.py --out docs/images
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from consentroid import fit

BLUE, ORANGE, GREEN, GREY = "#3366cc", "#dc5b2e", "#2c9c69", "#9aa3ac"


def three_nodes() -> dict[str, np.ndarray]:
    """Three nodes with the same three clusters in different shares, each too few rows to see them well."""
    rng = np.random.default_rng(4)
    centres = np.array([[0.0, 0.0], [2.2, 0.4], [0.9, 2.0]])
    shares = {"A": (8, 3, 3), "B": (3, 8, 3), "C": (3, 3, 8)}
    return {name: np.repeat(centres, share, axis=0) + 0.55 * rng.normal(size=(14, 2)) for name, share in shares.items()}


def alone_and_together(folder: Path) -> Path:
    rows = three_nodes()
    together = fit(rows, 3, gap=1e-6, seed=0)
    figure, panels = plt.subplots(1, 3, figsize=(10, 3.4), sharex=True, sharey=True, layout="constrained")
    for axes, (name, points) in zip(panels, rows.items()):
        alone = fit({name: points}, 3, gap=1e-6, seed=0).centroids
        axes.scatter(*points.T, s=18, color=GREY)
        axes.scatter(*alone.T, s=70, marker="o", facecolors="none", edgecolors=ORANGE, linewidths=2)
        axes.scatter(*together.centroids.T, s=70, marker="x", color=BLUE, linewidths=2.5)
        axes.set(title=f"node {name}", aspect="equal")
    panels[0].scatter([], [], s=70, marker="o", facecolors="none", edgecolors=ORANGE, linewidths=2, label="alone")
    panels[0].scatter([], [], s=70, marker="x", color=BLUE, linewidths=2.5, label="together")
    panels[0].legend(loc="upper left", frameon=False)
    return saved(figure, folder / "method-alone.png")


def what_a_price_does(folder: Path) -> Path:
    """One cluster, two nodes with rows on a line: cost plus price, without a price and at the best one."""
    nodes = {"A": np.array([0.0, 1.0, 2.0]), "B": np.array([4.0, 6.0])}
    grid = np.linspace(-1, 7, 400)
    best = np.concatenate(list(nodes.values())).mean()
    # At the best price node A's slope at the common minimum is zero; node B pays the opposite.
    price = -2 * np.sum(best - nodes["A"])
    figure, panels = plt.subplots(1, 2, figsize=(10, 3.4), sharey=True, layout="constrained")
    for axes, lam in zip(panels, (0.0, price)):
        bound = 0.0
        for (name, rows), sign, colour in zip(nodes.items(), (1.0, -1.0), (BLUE, ORANGE)):
            values = ((rows[:, None] - grid) ** 2).sum(axis=0) + sign * lam * grid
            low = int(values.argmin())
            bound += values[low]
            axes.plot(grid, values, color=colour, label=f"node {name}")
            axes.plot(grid[low], values[low], "o", color=colour, ms=8)
        total = sum(((rows - best) ** 2).sum() for rows in nodes.values())
        word = "no price" if lam == 0 else f"price {lam:+.1f} for A, {-lam:+.1f} for B"
        axes.set(title=f"{word}: bound {bound:.1f} of {total:.1f}", xlabel="centroid", ylim=(-45, 60))
        axes.axvline(best, color=GREY, lw=1, ls=":")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("cost + price · centroid")
    panels[0].legend(frameon=False)
    return saved(figure, folder / "method-prices.png")


def bound_meets_cost(folder: Path) -> Path:
    history = fit(three_nodes(), 3, gap=1e-6, seed=0).trace
    known = [record for record in history if record.upper < np.inf]
    rounds = [record.round for record in known]
    figure, axes = plt.subplots(figsize=(7.5, 3.4), layout="constrained")
    axes.plot(rounds, [r.upper for r in known], color=ORANGE, lw=2, label="cost of the best centroids")
    axes.plot(rounds, [r.lower for r in known], color=BLUE, lw=2, label="proven lower bound")
    first = next((record.round for record in known if record.phase == "search"), None)
    if first is not None:
        axes.axvline(first - 0.5, color=GREY, lw=1, ls=":")
        axes.annotate("prices", (first - 0.8, 0.05), xycoords=("data", "axes fraction"), ha="right", color="#5a636d")
        axes.annotate("boxes", (first - 0.2, 0.05), xycoords=("data", "axes fraction"), color="#5a636d")
    axes.set(xlabel="round", ylabel="clustering cost")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="center right")
    return saved(figure, folder / "method-rounds.png")


def decided_rows(folder: Path) -> Path:
    """Two boxes, one for each centroid: wherever the centroids lie in them, most rows know theirs already."""
    points = np.concatenate(list(three_nodes().values()))
    boxes = np.array([[[-0.6, -0.5], [0.6, 1.1]], [[1.5, 0.1], [2.7, 1.3]]])
    nearest = np.stack([np.maximum(np.maximum(low - points, points - high), 0) for low, high in boxes])
    farthest = np.stack([np.maximum(np.abs(points - low), np.abs(points - high)) for low, high in boxes])
    least, most = (nearest**2).sum(axis=2), (farthest**2).sum(axis=2)
    decided = [most[0] < least[1], most[1] < least[0]]
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for (low, high), colour, mine in zip(boxes, (BLUE, ORANGE), decided):
        axes.add_patch(Rectangle(low, *(high - low), facecolor=colour, alpha=0.15, edgecolor=colour, lw=1.5))
        axes.scatter(*points[mine].T, s=26, color=colour)
    axes.scatter(*points[~(decided[0] | decided[1])].T, s=26, color=GREY, label="not decided")
    axes.set(aspect="equal", title="Boxes for two centroids; a row with a colour is decided")
    axes.legend(frameon=False)
    return saved(figure, folder / "method-boxes.png")


def saved(figure: plt.Figure, path: Path) -> Path:
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def main(folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    return [draw(folder) for draw in (alone_and_together, what_a_price_does, bound_meets_cost, decided_rows)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    for path in main(parser.parse_args().out):
        print(f"Drawn: {path}")
