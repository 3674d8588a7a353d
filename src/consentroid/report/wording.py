"""One wording for terminal, report and JSON: verdict, why a run ended, per cent, effort, what is disclosed.

Numbers in a statement are rounded so that the statement stays true: proven bounds down, gaps up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from ..core.names import visible
from ..core.result import FitResult, StopReason, relative_gap

OPTIMAL = 1e-9
"""A relative gap below this counts as optimal: about what the cost itself is known to, summed in doubles."""

REASONS = {
    StopReason.GAP: "the gap asked for is proven",
    StopReason.TIME_LIMIT: "the time limit was reached",
    StopReason.MAX_ROUNDS: "the limit of rounds was reached",
    StopReason.INTERRUPTED: "the run was interrupted",
    StopReason.POLICY: "the sites' policies allow no more in one run",
    StopReason.EXHAUSTED: "nothing more that the engine can do raises the bound",
    StopReason.RESIDUAL: "the sites agree on centroids, which ends the paper's loop and proves no gap",
    StopReason.DUAL_OPTIMAL: "no prices give a better bound by this method",
    StopReason.DUAL_STALLED: "further prices promise little by this method",
}

_OTHER_METHOD = "use --method row-prices, which can close the rest"
REMEDIES = {
    StopReason.GAP: "run it again",
    StopReason.TIME_LIMIT: "allow more with --time-limit",
    StopReason.MAX_ROUNDS: "allow more with --max-rounds",
    StopReason.INTERRUPTED: "run it to its end",
    StopReason.POLICY: "ask the sites for more questions, boxes or points (most_… in policy.json)",
    StopReason.EXHAUSTED: "scale the features (--scale standard) or take fewer clusters",
    StopReason.RESIDUAL: _OTHER_METHOD,
    StopReason.DUAL_OPTIMAL: _OTHER_METHOD,
    StopReason.DUAL_STALLED: _OTHER_METHOD,
}

DISCLOSURE = "The coordinator sees sums and centroids; a cluster of one row is that row."

GLOSSARY = {
    "site": "a place that holds rows of its own: a hospital, a department, a file",
    "cluster, centroid": "a group of rows, and the mean of its rows",
    "cost": "sum over all rows of weight times squared distance to the nearest centroid, also called inertia",
    "proven lower bound": "no choice of centroids whatsoever, so many of them, costs less than this on these rows",
    "gap": "(cost − proven lower bound) / cost: the largest share of the cost that anybody could still save",
    "certified": "the gap is at most what was asked for",
    "certified region": "a box that holds this centroid of every clustering as cheap as this one",
    "radius": "root of the mean squared distance of a cluster's rows to its centroid, in the units that were clustered",
    "spread": "the standard deviation of a feature over the rows of a cluster",
    "price": "what a row would pay to be near a centroid; prices stay at the site that holds the row",
    "box, cell": "parts of space that the proof has dealt with, one after the other",
}


def percent(fraction: float) -> str:
    """A gap for people, rounded up, with enough digits to tell it from zero.

    >>> percent(0.0), percent(1e-4), percent(0.0701), percent(3.21e-7)
    ('0 %', '0.01 %', '7.01 %', '4e-05 %')
    """
    if not math.isfinite(fraction):
        return "unknown"
    if fraction <= 0:
        return "0 %"
    value = 100 * Decimal(repr(float(fraction)))
    if fraction >= 1e-3:
        return f"{value.quantize(Decimal('0.01'), ROUND_CEILING)} %"
    return f"{float(_significant(value, 1, ROUND_CEILING)):.1g} %"


def at_least(bound: float, digits: int = 10) -> str:
    """A proven lower bound, rounded down: what is printed is proven too.

    >>> at_least(2 / 3, 4), at_least(-2 / 3, 4), at_least(float("-inf"))
    ('0.6666', '-0.6667', 'none')
    """
    if not math.isfinite(bound):
        return "none"
    return f"{float(_significant(Decimal(bound), digits, ROUND_FLOOR)):.{digits}g}"


def interval(low: float, high: float) -> str:
    """A proven interval, rounded outward to what its width deserves.

    >>> interval(188.39821, 188.40482), interval(-0.5, 0.25), interval(3.0, 3.0)
    ('188.3982 … 188.4049', '−0.5 … 0.25', '3 … 3')
    """
    if not (math.isfinite(low) and math.isfinite(high)) or low > high:
        return "unknown"
    first, last = Decimal(repr(float(low))), Decimal(repr(float(high)))
    if first == last:
        return f"{low:g} … {high:g}".replace("-", "−")
    unit = Decimal((0, (1,), (last - first).adjusted() if last > first else 0)).scaleb(-1)
    if unit > 1:
        unit = Decimal(1)
    rounded = (
        f"{(first / unit).to_integral_value(ROUND_FLOOR) * unit:,f} … "
        f"{(last / unit).to_integral_value(ROUND_CEILING) * unit:,f}"
    )
    return rounded.replace("-", "−")


def _significant(value: Decimal, digits: int, rounding: str) -> Decimal:
    if value == 0:
        return value
    return value.quantize(Decimal((0, (1,), value.adjusted() - digits + 1)), rounding)


def stop_reason(reason: str) -> str:
    """Why a run ended; an unknown reason, from a file of another version, is shown as it is."""
    try:
        return REASONS[StopReason(reason)]
    except ValueError:
        return visible(reason)


def remedy(reason: str) -> str:
    try:
        return REMEDIES[StopReason(reason)]
    except ValueError:
        return "run it again"


def is_optimal(lower: float, upper: float) -> bool:
    """From these two numbers alone; False where either is not finite."""
    return relative_gap(lower, upper) < OPTIMAL


def verdict_on(
    lower: float, upper: float, gap_asked: float, reason: str, n_clusters: int, *, sound: bool = True
) -> str:
    """What is proven, in one sentence; `sound=False` marks a rule that can exclude the best clustering."""
    gap = relative_gap(lower, upper)
    others = f"other {n_clusters} centroids" if n_clusters > 1 else "other centroid"
    if not sound:
        return "Nothing is proven: the rule 'nearest' replays the paper and can exclude the best clustering."
    if not math.isfinite(gap) or gap >= 1.0:
        return f"Nothing is proven about these centroids: {stop_reason(reason)}; {remedy(reason)}."
    if gap == 0.0:
        return f"Proven optimal: no {others} cost{'' if n_clusters > 1 else 's'} less than these."
    if gap < OPTIMAL:
        return f"Proven optimal: no {others} can save more than {percent(gap)} of this cost."
    saved = f"no {others} can save more than {percent(gap)} of this cost"
    if gap <= gap_asked:
        return f"Certified: {saved}."
    asked = f"{percent(gap_asked)} was asked for, but {stop_reason(reason)}"
    return f"Not certified: it is proven that {saved}; {asked}; {remedy(reason)}, or ask for less with --gap."


def verdict(result: FitResult) -> str:
    sound = result.settings.get("symmetry") != "nearest"
    k = len(result.centroids)
    return verdict_on(result.lower_bound, result.upper_bound, result.gap_asked, result.stop_reason, k, sound=sound)


def verdict_of(document: Mapping[str, Any]) -> str:
    """The same from `result.json`; its own `gap` and `certified` are not believed but computed again."""
    lower, upper = as_number(document["lower_bound"], -math.inf), as_number(document["upper_bound"], math.inf)
    sound = document.get("settings", {}).get("symmetry") != "nearest"
    asked, reason = as_number(document.get("gap_asked"), 0.0), str(document["stop_reason"])
    return verdict_on(lower, upper, asked, reason, int(document["n_clusters"]), sound=sound)


def as_number(value: Any, absent: float) -> float:
    """A number of a JSON file, where null stands for one that is not finite."""
    return absent if value is None else float(value)


def effort(document: Mapping[str, Any]) -> str:
    """What a run took, in one line; from `result.json` or the like."""
    cells = f", {document['cells']:,} cells" if document.get("cells", 0) > 1 else ""
    return (
        f"{document['rounds']:,} rounds, {document['boxes']:,} boxes{cells}, {document['bytes_up']:,} bytes up, "
        f"{document['bytes_down']:,} down, {document['seconds']:.2f} s"
    )


def safe(text: object) -> str:
    """For rich: control characters written out, markup escaped."""
    from rich.markup import escape

    return escape(visible(str(text)))
