"""What a run told to whom, in words, and which counts a report leaves out because they are small."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core.arrays import Array
from .wording import DISCLOSURE

LEAST = 5
"""Counts of rows below this are not shown."""

_COMMON = [
    ("once", "its number of rows and their total weight, the names of its columns, what its policy answers in a run"),
    ("once, unless the domain is given", "its smallest and largest value of each feature: these are values of rows"),
    ("for every candidate", "its cost, and for each cluster the weight, the sum and the spread of its rows there"),
]

_ROW_PRICES = [
    ("once, for axes and scale", "weight, sum and products of its rows"),
    ("for every step of the prices", "the sum of its prices; cost, weight and overlaps of groups of its rows"),
    ("for every point tried as a centroid", "weight and sum of its rows near the point, and what they would save"),
    ("for every box of the proof", "sums over its rows that lie near or partly near the box"),
    ("for the certificate", "the same sums for the boxes that count, and a fingerprint of its prices"),
]

_PAPER = [
    ("for every round with prices", "centroids of its own at these prices, their priced cost and a proven bound"),
]


def crossed(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """When, and what each site told the coordinator."""
    own = _ROW_PRICES if result["method"] == "row-prices" else _PAPER
    return [*_COMMON, *own, ("always", "how long it computed; if it failed, why")]


def disclosure_section(result: Mapping[str, Any], shown: list[str], least: int) -> str:
    rows = "".join(f"<tr><th scope=row>{html.escape(w)}</th><td>{html.escape(t)}</td></tr>" for w, t in crossed(result))
    totals = all(site["cost"] is None for site in result["sites"])
    sums = (
        "The sums were added up before the coordinator saw them: it knows totals of all sites only."
        if totals
        else "The coordinator sees the sums of each site."
    )
    warning = (
        f'<p class="warn">This page shows rows of {html.escape(", ".join(shown))}; do not pass it on.</p>'
        if shown
        else ""
    )
    return (
        f"{warning}<p><b>{DISCLOSURE}</b> {sums} Rows, their labels and their prices are not sent as such, but a sum "
        "over few rows says much about them, and differences of sums say more.</p>"
        f"<div class=scroll><table class=text><thead><tr><th>when</th><th>what a site tells the coordinator</th></tr>"
        f"</thead><tbody>{rows}</tbody></table></div>"
        "<p>The coordinator tells every site the domain, candidates, points and boxes it asks about, and how prices "
        f"move. This page hides counts below {least}, and others from which they could be computed; "
        "<code>result.json</code> and <code>certificate.json</code> hold all of them and are readable by their owner "
        "only.</p>"
    )


def suppressed(counts: Array, least: int = LEAST) -> tuple[Any, Any]:
    """Which cells of a table (sites + totals, clusters) are small, and which go with them.

    A cell with 0 < count < least is small. Row totals are public, and the last row holds the totals of the columns: a
    row or column with one hidden cell would give it away, so the next smallest goes too.
    """
    small = (counts > 0) & (counts < least)
    hidden = small.copy()
    changed = True
    while changed:
        changed = False
        for lines, values in ((hidden, counts), (hidden.T, counts.T)):
            for line, of in zip(lines, values):
                open_cells = np.flatnonzero(~line & (of > 0))
                if line.sum() == 1 and len(open_cells):
                    line[open_cells[np.argmin(of[open_cells])]] = True
                    changed = True
    return small, hidden & ~small
