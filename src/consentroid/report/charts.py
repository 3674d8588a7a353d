"""The report's pictures: map of the clusters, centroids by feature, bounds and gap over time."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.names import visible
from .colours import ASKED, BOUND, COST, cluster_colour
from .picture_data import drawable, nearest_cluster, plane, regions_of
from .svg import BOTTOM, TOP, Axis, Chart, figure, stairs
from .wording import interval

MOST_ROWS = 3000  # drawn at most: the page stays small
FLOOR = 1e-10  # gaps are drawn on a logarithmic axis


def cluster_map(result: Mapping[str, Any], rows: Mapping[str, Array] | None = None) -> str:
    """Centroids (area: weight), certified regions, and the rows if a site adds its own."""
    flat = plane(result)
    centroids = flat.project(np.array(result["centroids"]))
    counts = np.array(result["counts"], dtype=float)
    regions = regions_of(result)
    shadows = [] if regions is None else [flat.shadow(low, high) for low, high in zip(*regions)]
    drawn = _sampled(rows or {})
    places = flat.project(drawn)
    everything = np.concatenate([centroids, places, *(np.array(shadow) for shadow in shadows)])
    x = Axis.around(everything[:, 0].tolist(), flat.labels[0], margin=0.12)
    one = len(result["features"]) == 1
    y = Axis(-1.0, 1.0, shown=False) if one else Axis.around(everything[:, 1].tolist(), flat.labels[1], margin=0.12)
    chart = Chart(x, y, "map of the clusters", height=330)
    for (px, py), k in zip(places, nearest_cluster(result)(drawn) if len(drawn) else []):
        chart.dot(px, py, 2.2, f'fill="{cluster_colour(int(k))}" fill-opacity=".55"')
    radius = 9 + 9 * np.sqrt(counts / max(counts.max(), 1e-300))
    order = np.argsort(-radius)
    for k in order:
        name = f"cluster {k}: weight {figure(counts[k])}"
        px, py = centroids[k]
        colour = cluster_colour(k)
        chart.dot(px, py, radius[k], f'fill="{colour}" stroke="{colour}" class="disc"', name, str(k))
    for k, shadow in enumerate(shadows):
        corners = shadow
        if one:
            low, high = min(px for px, _ in shadow), max(px for px, _ in shadow)
            corners = [(low, -0.4), (high, -0.4), (high, 0.4), (low, 0.4)]
        colour = cluster_colour(k)
        said = f"certified region of centroid {k}"
        chart.polygon(corners, f'class="region" fill="{colour}" stroke="{colour}"', said)
    for k, (px, py) in enumerate(centroids):
        chart.dot(px, py, 2.5, f'fill="{cluster_colour(k)}"')
    return chart.svg()


def _sampled(rows: Mapping[str, Array]) -> Array:
    tables = [np.asarray(table, dtype=float) for table in rows.values()]
    together = np.concatenate(tables) if tables else np.empty((0, 0))
    if len(together) <= MOST_ROWS:
        return together if tables else np.empty((0, 1))
    return together[np.random.default_rng(0).choice(len(together), MOST_ROWS, replace=False)]


def profile(result: Mapping[str, Any], hidden: Sequence[int] = ()) -> str:
    """One strip per feature: where each centroid lies, its certified interval (bar) and its rows' spread (line).

    Clusters in `hidden` have too few rows for their spread to be shown.
    """
    centroids, names = np.array(result["centroids"], dtype=float), [visible(str(name)) for name in result["features"]]
    spread = None if result.get("spread") is None else np.array(result["spread"], dtype=float)
    regions = regions_of(result)
    n_clusters, lane = len(centroids), 11 if len(centroids) <= 8 else 5
    strips = []
    for d, name in enumerate(names):
        values = [*centroids[:, d]]
        if spread is not None:
            kept = [k for k in range(n_clusters) if k not in hidden and math.isfinite(spread[k, d])]
            values += [centroids[k, d] + sign * spread[k, d] for k in kept for sign in (-1, 1)]
        if regions is not None:
            values += [*regions[0][:, d], *regions[1][:, d]]
        height = TOP + BOTTOM + lane * n_clusters
        chart = Chart(Axis.around(values, name), Axis(n_clusters - 0.5, -0.5, shown=False), name, height=height)
        for k in range(n_clusters):
            colour, value = cluster_colour(k), centroids[k, d]
            if spread is not None and k in kept:
                s = spread[k, d]
                chart.line([(value - s, k), (value + s, k)], f'stroke="{colour}" stroke-width="1.5" opacity=".55"')
            if regions is not None:
                low, high = regions[0][k, d], regions[1][k, d]
                said = f"cluster {k}: certified region {interval(low, high)}"
                corners = [(low, k - 0.38), (high, k - 0.38), (high, k + 0.38), (low, k + 0.38)]
                chart.polygon(corners, f'fill="{colour}" fill-opacity=".35" stroke="{colour}"', said)
            chart.dot(value, k, 4 if lane > 5 else 2.5, f'fill="{colour}"', f"cluster {k}: {figure(value)}")
        strips.append(chart.svg())
    return "".join(strips)


def bounds(trace: Sequence[Mapping[str, Any]]) -> str:
    """How cost and proven bound close in on each other."""
    steps = drawable(trace)
    if len(steps) < 2:
        return "<p>Fewer than two steps with both bounds were recorded.</p>"
    lower, upper = ([(step["seconds"], step[name]) for step in steps] for name in ("lower", "upper"))
    values = [value for _, value in (*lower, *upper)]
    chart = Chart(Axis.around([s for s, _ in lower], "seconds", margin=0.02), Axis.around(values, "cost"), "bounds")
    chart.polygon([*stairs(upper), *reversed(stairs(lower))], f'fill="{BOUND}" fill-opacity=".14"')
    chart.line(upper, f'stroke="{COST}" stroke-width="2"', step=True)
    chart.line(lower, f'stroke="{BOUND}" stroke-width="2"', step=True)
    return chart.svg()


def gap(trace: Sequence[Mapping[str, Any]], asked: float | None) -> str:
    """What is left to prove, in per cent, on a logarithmic axis."""
    steps = drawable(trace)
    if len(steps) < 2:
        return "<p>Fewer than two steps with both bounds were recorded.</p>"
    points = [(step["seconds"], 100 * max(step["gap"], FLOOR)) for step in steps]
    shown = [value for _, value in points] + ([100 * asked] if asked else [])
    chart = Chart(
        Axis.around([s for s, _ in points], "seconds", margin=0.02), Axis.around(shown, "gap, %", log=True), "gap"
    )
    chart.line(points, f'stroke="{BOUND}" stroke-width="2"', step=True)
    chart.dot(*points[-1], 3.5, f'fill="{BOUND}"', f"{points[-1][1]:.2g} %")
    if asked:
        chart.rule(100 * asked, "asked for", f'stroke="{ASKED}" stroke-width="1.5" stroke-dasharray="4 4"')
    return chart.svg()


def key(entries: Mapping[str, str]) -> str:
    """What the colours mean; only what is drawn."""
    parts = (f'<span><i style="background:{colour}"></i>{html.escape(name)}</span>' for name, colour in entries.items())
    return f'<p class="key">{"".join(parts)}</p>'
