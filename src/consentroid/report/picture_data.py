"""What pictures share, whoever draws them: the plane of a map, shadows of certified boxes, the steps to draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.names import visible
from .svg import Point, zonotope


@dataclass(frozen=True)
class Plane:
    """Two directions in the space of the features, and their names."""

    labels: tuple[str, str]
    origin: Array  # (D,)
    axes: Array  # (D, 2)

    def project(self, points: Array) -> Array:
        return np.asarray((np.asarray(points, dtype=float) - self.origin) @ self.axes)

    def shadow(self, lower: Array, upper: Array) -> list[Point]:
        """The certified box as the plane shows it."""
        centre = self.project((lower + upper) / 2)
        generators = ((upper - lower) / 2)[:, None] * self.axes
        return zonotope((float(centre[0]), float(centre[1])), [(float(x), float(y)) for x, y in generators])


def plane(result: Mapping[str, Any]) -> Plane:
    """One or two features as they are; more along the two principal axes of the centroids, each feature in units of
    its standard deviation between and within the clusters."""
    centroids, names = np.array(result["centroids"], dtype=float), [visible(str(name)) for name in result["features"]]
    d = centroids.shape[1]
    if d <= 2:
        return Plane((names[0], names[1] if d == 2 else ""), np.zeros(d), np.eye(d, 2))
    mean, variance = moments(result)
    units = np.where(variance > 0, np.sqrt(variance), 1.0)
    weights = np.sqrt(np.maximum(np.array(result["counts"], dtype=float), 0.0))
    between = weights[:, None] * (centroids - mean) / units
    directions = np.linalg.svd(between, full_matrices=True)[2][:2]
    directions *= np.where(directions.sum(axis=1, keepdims=True) < 0, -1.0, 1.0)  # a sign that does not flip
    labels = (f"first principal axis ({_main(directions[0], names)})", f"second ({_main(directions[1], names)})")
    return Plane(labels, mean, directions.T / units[:, None])


def moments(result: Mapping[str, Any]) -> tuple[Array, Array]:
    """Mean and variance of each feature over all rows, from centroids, counts and spread (if known)."""
    centroids, counts = np.array(result["centroids"], dtype=float), np.array(result["counts"], dtype=float)
    shares = counts / counts.sum() if counts.sum() > 0 else np.full(len(counts), 1 / len(counts))
    mean = shares @ centroids
    variance = shares @ (centroids - mean) ** 2
    if result.get("spread") is not None:
        within = np.array(result["spread"], dtype=float) ** 2
        variance = variance + shares @ np.where(np.isnan(within), 0.0, within)
    return mean, variance


def _main(direction: Array, names: Sequence[str], most: int = 2) -> str:
    """The features that make up most of a direction."""
    order = np.argsort(-np.abs(direction))[:most]
    return ", ".join(("−" if direction[d] < 0 else "") + names[d] for d in order)


def regions_of(result: Mapping[str, Any]) -> tuple[Array, Array] | None:
    """Lower and upper corners of the certified regions, if there are any."""
    regions = result.get("regions")
    if regions is None:
        return None
    return np.array(regions["lower"], dtype=float), np.array(regions["upper"], dtype=float)


def too_small(shadows: Sequence[Sequence[Point]], span: Array, share: float = 0.01) -> bool:
    """Whether all certified regions vanish behind the marks of their centroids; `span` is what the picture covers."""
    if not shadows:
        return False
    extents = np.array([np.ptp(np.array(shadow), axis=0) for shadow in shadows])
    return bool(np.all(extents <= share * np.where(span > 0, span, np.inf)))


def drawable(trace: Sequence[Mapping[str, Any]], most: int = 300) -> list[dict[str, float]]:
    """Steps with two finite bounds, thinned out evenly, first and last kept."""
    known = [
        {name: float(step[name]) for name in ("seconds", "lower", "upper", "gap")}
        for step in trace
        if all(_finite(step.get(name)) for name in ("seconds", "lower", "upper", "gap"))
    ]
    if len(known) <= most:
        return known
    return [known[round(i * (len(known) - 1) / (most - 1))] for i in range(most)]


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def nearest_cluster(result: Mapping[str, Any]) -> Callable[[Array], Array]:
    """Number of the nearest centroid of rows in their own units; distances are those that were clustered."""
    scaling = result.get("scaling")
    factor = 1.0 if scaling is None else np.array(scaling["factor"], dtype=float)
    centroids = np.array(result["centroids"], dtype=float) / factor

    def labels(rows: Array) -> Array:
        scaled = np.asarray(rows, dtype=float) / factor
        return np.argmin(np.stack([((scaled - c) ** 2).sum(axis=1) for c in centroids], axis=1), axis=1)

    return labels
