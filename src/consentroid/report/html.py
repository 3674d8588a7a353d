"""One HTML file that tells what a run found, what is proven, and what each site disclosed for it.

The file needs no network and no script: text, tables and pictures are written here. It holds no rows, unless a site
adds its own with `rows`.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.errors import InvalidInput
from ..core.names import visible
from . import charts
from .colours import BOUND, COST, cluster_colour
from .disclosure import LEAST, disclosure_section, suppressed
from .files import read_run, write_text
from .picture_data import plane, regions_of, too_small
from .svg import figure
from .wording import GLOSSARY, as_number, at_least, effort, interval, percent, stop_reason, verdict_of

TEMPLATE = Path(__file__).with_name("template.html")


def write_report(
    run_dir: str | Path, out: str | Path | None = None, *, rows: Mapping[str, Any] | None = None, least: int = LEAST
) -> Path:
    """Write the report of a run's folder, by default to `report.html` in it.

    `rows` (site → table) adds those rows to the map of clusters: for a site that looks at its own report, never for one
    that is passed on. Counts of rows below `least` are not shown.
    """
    files = read_run(run_dir)
    try:
        page = render(files.result, files.trace, _arrays(files.result, rows), least)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"'{run_dir}' does not hold a complete run ({error!r}); run consentroid fit again") from None
    target = files.folder / "report.html" if out is None else Path(out)
    write_text(target, page)
    return target


def render(
    result: Mapping[str, Any],
    trace: Sequence[Mapping[str, Any]],
    rows: Mapping[str, Array] | None = None,
    least: int = LEAST,
) -> str:
    """The page as text."""
    counts = np.array(result["counts"], dtype=float)
    few = [k for k, count in enumerate(counts) if count < least]
    clusters = {f"cluster {k}": cluster_colour(k) for k in range(len(counts))}
    good = result.get("certified") is True and not verdict_of(result).startswith(("Not", "Nothing"))
    parts = {
        "title": html.escape(_title(result)),
        "verdict": re.sub(r"--[\w-]+", r"<span>\g<0></span>", html.escape(verdict_of(result))),
        "verdict_class": "good" if good else "open",
        "figures": _figures(result),
        "map": charts.cluster_map(result, rows) + charts.key(clusters),
        "map_note": _map_note(result, rows),
        "profile": charts.profile(result, few),
        "profile_note": _profile_note(result, few, least),
        "bounds": charts.bounds(trace) + charts.key({"cost": COST, "proven lower bound": BOUND}),
        "gap": charts.gap(trace, result.get("gap_asked")),
        "sites": _sites_table(result, least),
        "centroids": _centroids_table(result, few, least),
        "disclosed": disclosure_section(result, [visible(str(name)) for name in rows or {}], least),
        "glossary": _definition_list(GLOSSARY),
        "settings": _definition_list(_settings(result)),
        "versions": _definition_list({str(k): str(v) for k, v in result["versions"].items()}),
    }
    # Every mark is looked up once in the template, never in inserted text: a name cannot become a mark.
    first, *pieces = TEMPLATE.read_text(encoding="utf-8").split("{{")
    filled = [first]
    for piece in pieces:
        mark, _, rest = piece.partition("}}")
        filled += [parts[mark.strip()], rest]
    return "".join(filled)


def _arrays(result: Mapping[str, Any], rows: Mapping[str, Any] | None) -> dict[str, Array]:
    arrays = {}
    for site, table in (rows or {}).items():
        own = np.asarray(getattr(table, "rows", table), dtype=float)
        if own.ndim != 2 or own.shape[1] != result["n_features"]:
            found = own.shape[1] if own.ndim == 2 else "no"
            raise InvalidInput(f"site '{visible(str(site))}' has {found} columns, the run used {result['n_features']}")
        arrays[str(site)] = own
    return arrays


def _title(result: Mapping[str, Any]) -> str:
    k, n = int(result["n_clusters"]), int(result["n_sites"])
    return f"{k} cluster{'s' if k > 1 else ''} of {result['n_rows']:,} rows at {n} site{'s' if n > 1 else ''}"


def _figures(result: Mapping[str, Any]) -> str:
    lower, upper = as_number(result["lower_bound"], float("-inf")), as_number(result["upper_bound"], float("inf"))
    cards = [
        ("cost of these centroids", figure(upper, 8)),
        ("proven lower bound", at_least(lower, 8)),
        ("gap", percent(as_number(result["gap"], float("inf")))),
        ("seconds", f"{result['seconds']:.2f}"),
    ]
    return "".join(f"<div class=card><b>{html.escape(v)}</b><span>{html.escape(k)}</span></div>" for k, v in cards)


def _map_note(result: Mapping[str, Any], rows: Mapping[str, Array] | None) -> str:
    said = ["Area: weight of the cluster."]
    if result.get("regions") is not None:
        near = percent(float(result["regions"]["tolerance"]))
        more = "no more" if near == "0 %" else f"at most {near} more"
        flat, (lower, upper) = plane(result), regions_of(result) or ((), ())
        shadows = [flat.shadow(low, high) for low, high in zip(lower, upper)]
        tiny = too_small(shadows, np.ptp(flat.project(np.array(result["centroids"])), axis=0))
        drawn = "The certified regions are smaller than the dots." if tiny else "Outlined: the certified regions."
        said.append(f"{drawn} Every clustering that costs {more} has one centroid in each of them.")
    if len(result["features"]) > 2:
        said.append("Axes: the two directions in which the centroids differ most.")
    n_rows = sum(len(table) for table in (rows or {}).values())
    if n_rows > charts.MOST_ROWS:
        said.append(f"{charts.MOST_ROWS:,} of {n_rows:,} rows are drawn.")
    return html.escape(" ".join(said))


def _profile_note(result: Mapping[str, Any], few: Sequence[int], least: int) -> str:
    said = ["Dot: centroid."]
    if result.get("regions") is not None:
        said.append("Bar: its certified region.")
    if result.get("spread") is not None:
        said.append("Line: one standard deviation of its rows to each side.")
        if few:
            said.append(f"Not for clusters with fewer than {least} rows.")
    return html.escape(" ".join(said))


def _sites_table(result: Mapping[str, Any], least: int) -> str:
    sites, counts = result["sites"], np.array(result["counts"], dtype=float)
    known = all(site["counts"] is not None for site in sites)
    table = np.array([*([site["counts"] for site in sites] if known else []), counts], dtype=float)
    small, beside = suppressed(table, least)
    head = "".join(f"<th>{_chip(k)}{k}</th>" for k in range(len(counts)))

    def cells(i: int) -> str:
        total = table[i].sum() or 1.0
        return "".join(
            _count(table[i, k], table[i, k] / total, small[i, k], beside[i, k], least) for k in range(len(counts))
        )

    body = []
    for i, site in enumerate(sites):
        cost = "–" if site["cost"] is None else figure(site["cost"], 5)
        own = cells(i) if known else "<td>–</td>" * len(counts)
        name = html.escape(visible(str(site["name"])))
        body.append(f"<tr><th scope=row>{name}</th><td>{site['n_rows']:,}</td><td>{cost}</td>{own}</tr>")
    total = (
        f"<tr><th scope=row>all sites</th><td>{result['n_rows']:,}</td>"
        f"<td>{figure(as_number(result['upper_bound'], float('inf')), 5)}</td>{cells(len(table) - 1)}</tr>"
    )
    note = "<p>Coloured columns: weight of the site's rows in each cluster."
    if small.any():
        note += f" &lt;{least}: too few to show. –: hidden, because the small counts could be computed from it."
    return (
        f"<div class=scroll><table><thead><tr><th>site</th><th>rows</th><th>cost</th>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody><tfoot>{total}</tfoot></table></div>{note}</p>"
    )


def _count(count: float, share: float, small: bool, beside: bool, least: int) -> str:
    if small:
        return f"<td>&lt;{least}</td>"
    if beside:
        return "<td>–</td>"
    return f'<td class=share style="--share:{share:.2f}">{figure(count)}<small>{100 * share:.0f} %</small></td>'


def _centroids_table(result: Mapping[str, Any], few: Sequence[int], least: int) -> str:
    centroids, names = result["centroids"], [visible(str(name)) for name in result["features"]]
    regions, spread = result.get("regions"), result.get("spread")
    head = "".join(f"<th>{_chip(k)}cluster {k}</th>" for k in range(len(centroids)))
    body = []
    for d, name in enumerate(names):
        cells = []
        for k in range(len(centroids)):
            text = figure(centroids[k][d], 5)
            if spread is not None and k not in few and spread[k][d] is not None:
                text += f" ± {figure(spread[k][d], 3)}"
            if regions is not None:
                text += f"<small>{interval(regions['lower'][k][d], regions['upper'][k][d])}</small>"
            cells.append(f"<td>{text}</td>")
        breaks = html.escape(name).replace("_", "_<wbr>")
        body.append(f"<tr><th scope=row>{breaks}</th>{''.join(cells)}</tr>")
    said = []
    if result.get("radii") is not None:
        known = [as_number(radius, float("inf")) for radius in result["radii"]]
        cells = ["–" if k in few or not math.isfinite(r) else figure(r, 4) for k, r in enumerate(known)]
        body.append("<tr><th scope=row>radius</th>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
        said.append("Radius: how far the cluster's rows lie from its centroid, on average (root of the mean square).")
    if spread is not None:
        said.append("±: standard deviation of the cluster's rows.")
    if regions is not None:
        said.append("Small: certified region of the centroid.")
    if few:
        which = ", ".join(map(str, few))
        said.append(f"Fewer than {least} rows: cluster {which}; such a centroid says much about its rows.")
    note = f"<p>{html.escape(' '.join(said))}</p>" if said else ""
    return (
        f"<div class=scroll><table><thead><tr><th>feature</th>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
        f"</div>{note}"
    )


def _chip(k: int) -> str:
    return f'<i class=chip style="background:{cluster_colour(k)}"></i>'


def _settings(result: Mapping[str, Any]) -> dict[str, str]:
    phases = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in result["phases"].items())
    chosen = {
        "method": str(result["method"]),
        "bound from": str(result["bound_from"]),
        "gap asked for": percent(as_number(result["gap_asked"], float("inf"))),
        "why it stopped": stop_reason(str(result["stop_reason"])),
        "effort": effort(result),
        "phases": phases or "–",
        "scaling": "none" if result.get("scaling") is None else str(result["scaling"]["scale"]),
    }
    for name, value in result["settings"].items():
        if name not in ("method", "gap", "n_clusters") and value is not None:
            chosen[str(name).replace("_", " ")] = str(value)
    return chosen


def _definition_list(entries: Mapping[str, str]) -> str:
    return "".join(f"<dt>{html.escape(visible(k))}</dt><dd>{html.escape(visible(v))}</dd>" for k, v in entries.items())
