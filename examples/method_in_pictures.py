"""The method in three pictures, as docs/method.md shows them.

python examples/method_in_pictures.py --out docs/images
"""

from __future__ import annotations

import argparse
from itertools import combinations
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle
from scipy.optimize import linprog

from consentroid import fit

BLUE, ORANGE, GREEN, GREY = "#3366cc", "#dc5b2e", "#2c9c69", "#9aa3ac"
LINE = np.array([0.0, 0.6, 1.1, 1.5, 2.6, 5.2, 5.9, 6.4, 9.0, 9.5])


def three_sites() -> dict[str, np.ndarray]:
    """Three sites with the same three clusters in different shares, each with too few rows to see them well."""
    rng = np.random.default_rng(4)
    centres = np.array([[0.0, 0.0], [2.2, 0.4], [0.9, 2.0]])
    shares = {"A": (8, 3, 3), "B": (3, 8, 3), "C": (3, 3, 8)}
    return {name: np.repeat(centres, share, axis=0) + 0.55 * rng.normal(size=(14, 2)) for name, share in shares.items()}


def halfway(rows: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """The prices a run starts from: between the least and the second least squared distance to the centroids."""
    squared = np.sort(((rows[:, None] - centroids) ** 2).sum(axis=2), axis=1)
    return squared[:, :2].mean(axis=1)


def profit(at: np.ndarray, rows: np.ndarray, prices: np.ndarray) -> np.ndarray:
    """f(m) = Σ_j min(0, |x_j − m|² − λ_j) at many points."""
    return np.minimum(0.0, ((rows[:, None] - at) ** 2).sum(axis=2) - prices[:, None]).sum(axis=0)


def alone_and_together(folder: Path) -> Path:
    rows = three_sites()
    together = fit(rows, 3, gap=1e-6)
    figure, panels = plt.subplots(1, 3, figsize=(10, 3.6), sharex=True, sharey=True, layout="constrained")
    for axes, (name, points) in zip(panels, rows.items()):
        alone = fit({name: points}, 3, gap=1e-6).centroids
        axes.scatter(*points.T, s=18, color=GREY, label="rows of the site")
        axes.scatter(*alone.T, s=70, facecolors="none", edgecolors=ORANGE, linewidths=2, label="centroids alone")
        axes.scatter(*together.centroids.T, s=70, marker="x", color=BLUE, linewidths=2.5, label="centroids together")
        axes.set(title=f"site {name}", aspect="equal", xlabel="feature 1")
    panels[0].set_ylabel("feature 2")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return saved(figure, folder / "method-alone.png")


def best_prices(rows: np.ndarray, n_clusters: int) -> np.ndarray:
    """Prices with the best bound, from every interval of rows: max Σ λ + K t, t ≤ cost of the interval − its λ."""
    n = len(rows)
    pairs, limits = [], []
    for first, last in combinations(range(n + 1), 2):
        own = rows[first:last]
        pairs.append([*((np.arange(n) >= first) & (np.arange(n) < last)).astype(float), 1.0])
        limits.append(((own - own.mean()) ** 2).sum())
    objective = [*-np.ones(n), -float(n_clusters)]
    return np.asarray(linprog(objective, pairs, limits, bounds=[(0, None)] * n + [(None, 0)]).x[:n])


def what_prices_do(folder: Path) -> Path:
    """Ten rows on a line, three clusters: the profit of a centroid under first and best prices."""
    rows, grid = LINE[:, None], np.linspace(-1, 10.5, 2301)
    best = fit({"line": rows}, 3, gap=1e-9)
    figure, panels = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    for axes, prices, word in zip(
        panels, (halfway(rows, best.centroids), best_prices(LINE, 3)), ("first prices", "best prices"), strict=True
    ):
        values = profit(grid[:, None], rows, prices)
        bound = prices.sum() + 3 * values.min()
        axes.plot(grid, values, color=BLUE, lw=2)
        axes.axhline(values.min(), color=ORANGE, lw=1, ls="--")
        axes.plot(LINE, np.zeros(len(LINE)), "o", color=GREY, ms=6, clip_on=False)
        for centroid in best.centroids[:, 0]:
            axes.axvline(centroid, color=GREEN, lw=1, ls=":")
        title = f"{word}: {prices.sum():.2f} + 3 · ({values.min():.2f}) = {bound:.2f} of {best.upper_bound:.2f}"
        axes.set(title=title, xlabel="where a centroid could be")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("f(m), minus the profit of a cluster there")
    return saved(figure, folder / "method-prices.png")


def boxes_and_rows(folder: Path) -> Path:
    """The profit over the plane, and one box of possible centroids with the rows that are in, out and undecided."""
    rows = np.concatenate(list(three_sites().values()))
    found = fit({"all": rows}, 3, gap=1e-6)
    prices = halfway(rows, found.centroids)
    x, y = np.linspace(-1.6, 3.6, 209), np.linspace(-1.6, 3.4, 201)
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    values = profit(grid, rows, prices).reshape(len(y), len(x))
    low, high = np.array([-0.5, -0.55]), np.array([0.45, 0.25])
    outside = np.maximum(np.maximum(low - rows, rows - high), 0.0)
    farthest = np.maximum(np.abs(rows - low), np.abs(rows - high))
    out, inside = (outside**2).sum(axis=1) >= prices, (farthest**2).sum(axis=1) <= prices
    figure, (plane, box) = plt.subplots(1, 2, figsize=(10, 4.3), sharex=True, sharey=True, layout="constrained")
    shade = plane.contourf(x, y, values, levels=14, cmap="Blues_r")
    figure.colorbar(shade, ax=plane, label="f(m)", shrink=0.85)
    plane.scatter(*found.centroids.T, s=80, marker="x", color=ORANGE, linewidths=2.5, label="best centroids")
    plane.legend(loc="upper right", framealpha=0.9)
    plane.set(title="Centroids lie where f is low", aspect="equal", xlabel="feature 1", ylabel="feature 2")
    for chosen, colour, word in ((inside, BLUE, "in"), (out, GREY, "out"), (~(inside | out), ORANGE, "undecided")):
        box.scatter(*rows[chosen].T, s=28, color=colour, label=f"{word}: {int(chosen.sum())}")
    box.add_patch(Rectangle(low, *(high - low), facecolor=GREEN, alpha=0.18, edgecolor=GREEN, lw=1.5))
    box.set(title="One box of centroids: most rows are decided", aspect="equal", xlabel="feature 1")
    box.legend(loc="upper right", framealpha=0.9)
    return saved(figure, folder / "method-boxes.png")


def saved(figure: plt.Figure, path: Path) -> Path:
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def main(folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    return [draw(folder) for draw in (alone_and_together, what_prices_do, boxes_and_rows)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    for path in main(parser.parse_args().out):
        print(f"Drawn: {path}")
