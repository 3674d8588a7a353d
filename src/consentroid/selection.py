"""How many clusters? For each K the band in which the least inertia lies, and indices of quality."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .core.errors import InvalidInput
from .core.result import relative_gap
from .evaluation.quality import Quality, quality
from .fitting import fit
from .report.colours import ASKED, BOUND, COST

SEEN = 0.005  # a gap below this is thinner than a line


@dataclass(frozen=True)
class Choice:
    """What is known about one number of clusters."""

    n_clusters: int
    lower: float  # proven: no clustering with so many clusters costs less
    upper: float  # attained
    gap: float
    certified: bool
    quality: Quality


@dataclass(frozen=True)
class Selection:
    """One `Choice` for each K; the truth about the least inertia lies between `lower` and `upper`."""

    choices: tuple[Choice, ...]

    def best(self, index: str = "silhouette") -> Choice:
        """The choice with the best index: silhouette, calinski_harabasz (largest) or davies_bouldin (smallest)."""
        if index not in ("silhouette", "calinski_harabasz", "davies_bouldin"):
            raise InvalidInput(f"unknown index '{index}'; choose silhouette, calinski_harabasz or davies_bouldin")
        sign = -1.0 if index == "davies_bouldin" else 1.0
        defined = [choice for choice in self.choices if not math.isnan(getattr(choice.quality, index))]
        if not defined:
            raise InvalidInput(f"{index} needs at least two clusters; include a larger number of clusters")
        return max(defined, key=lambda choice: sign * getattr(choice.quality, index))

    def plot(self, path: str | Path) -> Path:
        """The elbow with its band of uncertainty, and the silhouette beside it."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 3.6), layout="constrained")
        elbow, index = figure.subplots(1, 2)
        k = [choice.n_clusters for choice in self.choices]
        lower, upper = [c.lower for c in self.choices], [c.upper for c in self.choices]
        if any(choice.gap > SEEN for choice in self.choices):  # else the two lines are one
            elbow.fill_between(k, lower, upper, color=BOUND, alpha=0.2, lw=0, label="what is not known")
        elbow.plot(k, upper, color=COST, marker="o", label="attained")
        elbow.plot(k, lower, color=BOUND, marker="o", ms=4, label="proven lower bound")
        elbow.set(xlabel="number of clusters", ylabel="inertia", xticks=k, ylim=(0, None))
        elbow.legend()
        index.plot(k, [choice.quality.silhouette for choice in self.choices], color=ASKED, marker="o")
        index.set(xlabel="number of clusters", ylabel="silhouette (squared Euclidean)", xticks=k)
        for axes in (elbow, index):
            axes.spines[["top", "right"]].set_visible(False)
        FigureCanvasAgg(figure).print_figure(str(path), dpi=150)
        return Path(path)


def select_k(
    rows: Mapping[str, ArrayLike] | ArrayLike,
    n_clusters: Iterable[int] = range(2, 9),
    *,
    weights: Mapping[str, ArrayLike] | ArrayLike | None = None,
    **options: Any,
) -> Selection:
    """Cluster with each number of clusters; `options` go to `fit`, and `time_limit` holds for each number alone.

    `rows` is one table, or a mapping from site to table.

    More clusters never cost more, so a cost attained with fewer clusters bounds those with more from above, and a bound
    proven for more clusters bounds those with fewer from below: the band uses both.
    """
    if not isinstance(rows, Mapping):
        rows, weights = {"all": rows}, None if weights is None else {"all": np.asarray(weights)}
    elif weights is not None and not isinstance(weights, Mapping):
        raise InvalidInput("with a mapping of tables, give weights as a mapping from site to weights too")
    found = [(k, fit(rows, k, weights=weights, **options)) for k in sorted(set(n_clusters))]
    if not found:
        raise InvalidInput("select_k needs at least one number of clusters, as in range(2, 7)")
    uppers = np.minimum.accumulate([result.upper_bound for _, result in found])
    lowers = np.maximum.accumulate([result.lower_bound for _, result in found][::-1])[::-1]
    choices = []
    for (k, result), lower, upper in zip(found, lowers.tolist(), uppers.tolist()):
        gap = relative_gap(lower, upper)
        judged = quality(rows, result.centroids, weights=weights)
        choices.append(Choice(k, lower, upper, gap, gap <= result.gap_asked, judged))
    return Selection(tuple(choices))
