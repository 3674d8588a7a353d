"""One HTML file that tells what a run found, what is proven, and what each node disclosed for it.

The file needs no network: plotly.js is inside. Text and tables are written here, so the report can be read without
scripts; the pictures are drawn by `template.html` from one block of numbers. It holds no rows, unless a node
adds its own with `rows`.
"""

from __future__ import annotations

import html
import json
import math
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.errors import InvalidInput
from ..data.tables import as_table

TEMPLATE = Path(__file__).with_name("template.html")
PACKAGES = ("consentroid", "numpy", "scipy", "numba", "clarabel", "scikit-learn")

REASONS = {
    "gap": "the gap asked for was reached",
    "residual": "the nodes agreed",
    "max_rounds": "the limit of rounds was reached",
    "time_limit": "the time limit was reached",
    "dual_optimal": "no prices give a better bound",
    "interrupted": "the run was interrupted",
}


def write_report(run_dir: str | Path, out: str | Path | None = None, *, rows: Mapping[str, Any] | None = None) -> Path:
    """Write the report of a run's folder, by default to `report.html` in it.

    `rows` (node → table) adds those rows to the map of clusters: for a node that looks at its own report, never for one
    that is passed on.
    """
    folder = Path(run_dir)
    result = _read_json(folder / "result.json")
    certificate = _read_json(folder / "certificate.json")
    trace = _read_trace(folder / "trace.jsonl")
    try:
        page = render(result, certificate, trace, rows)
    except (KeyError, IndexError, TypeError) as error:
        raise InvalidInput(f"'{folder}' does not hold a complete run ({error!r}); run consentroid fit again") from None
    target = folder / "report.html" if out is None else Path(out)
    try:
        target.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot write '{target}' ({error.strerror}); choose another place") from None
    return target


def render(
    result: Mapping[str, Any],
    certificate: Mapping[str, Any],
    trace: Sequence[Mapping[str, Any]],
    rows: Mapping[str, Any] | None = None,
) -> str:
    """The page as text."""
    from plotly.offline import get_plotlyjs

    parts = {
        "title": html.escape(f"{result['n_clusters']} clusters over {result['n_nodes']} nodes"),
        "verdict": html.escape(verdict(result)),
        "verdict_class": "good" if result["certified"] else "open",
        "figures": _figures(result, certificate),
        "nodes": _nodes_table(result),
        "centroids": _centroids_table(result),
        "disclosed": _disclosure(result, certificate, trace, rows),
        "settings": _definition_list(_settings(result, certificate)),
        "versions": _definition_list(_versions(result)),
        "data": _script_safe(_plot_data(result, certificate, trace, rows)),
        "plotly": get_plotlyjs(),
    }
    page = TEMPLATE.read_text(encoding="utf-8")
    # Every mark is looked up once in the template, never in inserted text: a node's name cannot become a mark.
    pieces = page.split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        mark, _, rest = piece.partition("}}")
        filled += [parts[mark.strip()], rest]
    return "".join(filled)


def verdict(result: Mapping[str, Any]) -> str:
    """What is proven, in one sentence."""
    k, gap = result["n_clusters"], float(result["gap"])
    if result.get("symmetry") == "nearest":
        return "Nothing is proven: the rule 'nearest' replays the paper and can exclude the best clustering."
    if gap <= 1e-9:
        return f"Proven optimal: no other {k} centroids cost less than these."
    saved = f"at most {percent(gap)} of the cost could be saved by any other {k} centroids"
    if result["certified"]:
        return f"Certified: {saved}."
    asked = f"; {percent(result['gap_asked'])} was asked for" if "gap_asked" in result else ""
    reason = REASONS.get(result["stop_reason"], result["stop_reason"])
    return f"Not certified: {saved}{asked}, but {reason}."


def percent(fraction: float) -> str:
    if fraction <= 0:
        return "0 %"
    return f"{100 * fraction:.2f} %" if fraction >= 1e-3 else f"{100 * fraction:.1g} %"


def _figures(result: Mapping[str, Any], certificate: Mapping[str, Any]) -> str:
    cards = [
        ("cost of these centroids", f"{result['upper_bound']:.6g}"),
        ("proven lower bound", f"{result['lower_bound']:.6g}"),
        ("gap", percent(result["gap"])),
        ("rounds", f"{result['rounds']:,}"),
        ("leaves in the proof", f"{len(certificate['leaves']):,}"),
        ("bytes from the nodes", f"{result['bytes_up']:,}"),
        ("bytes to the nodes", f"{result['bytes_down']:,}"),
        ("seconds", f"{result['seconds']:.2f}"),
    ]
    return "".join(f"<div class=card><b>{html.escape(v)}</b><span>{html.escape(k)}</span></div>" for k, v in cards)


def _nodes_table(result: Mapping[str, Any]) -> str:
    clusters = range(result["n_clusters"])
    head = "".join(f"<th>cluster {k}</th>" for k in clusters)
    body = []
    for node in result["nodes"]:
        total = sum(node["counts"]) or 1.0
        cells = "".join(
            f'<td style="--share:{share:.3f}" class=share>{count:g}<small>{100 * share:.0f} %</small></td>'
            for count, share in ((count, count / total) for count in node["counts"])
        )
        body.append(
            f"<tr><th scope=row>{html.escape(str(node['name']))}</th><td>{node['n_points']:,}</td>"
            f"<td>{node['cost']:.5g}</td>{cells}</tr>"
        )
    sums = "".join(f"<td>{sum(node['counts'][k] for node in result['nodes']):g}</td>" for k in clusters)
    total_row = (
        f"<tr><th scope=row>all nodes</th><td>{result['n_points']:,}</td>"
        f"<td>{result['upper_bound']:.5g}</td>{sums}</tr>"
    )
    return (
        f"<table><thead><tr><th>node</th><th>rows</th><th>cost</th>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody><tfoot>{total_row}</tfoot></table>"
    )


def _centroids_table(result: Mapping[str, Any]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in _features(result))
    body = "".join(
        f"<tr><th scope=row>cluster {k}</th>{''.join(f'<td>{value:.5g}</td>' for value in centroid)}</tr>"
        for k, centroid in enumerate(result["centroids"])
    )
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>"


def _disclosure(
    result: Mapping[str, Any],
    certificate: Mapping[str, Any],
    trace: Sequence[Mapping[str, Any]],
    rows: Mapping[str, Any] | None,
) -> str:
    """What crossed each border: the fields of the messages, in words and numbers."""
    k, d = result["n_clusters"], result["n_features"]
    solved = sum(1 for record in trace if record.get("phase") == "dual")
    extremes = (
        "nothing about its values: the domain was given"
        if result.get("domain_given")
        else f"unless the domain was given, its smallest and largest value of each of the {d} features"
    )
    lines = [
        ("before the first round", f"its number of rows, the names of its columns, and {extremes}"),
        (
            f"in {solved:,} rounds with prices",
            f"{k} centroids of its own ({k * d} numbers), their priced cost and a proven bound",
        ),
        (
            "for every candidate of the coordinator",
            f"its cost, and for each of the {k} clusters the weight and the sum of its rows there",
        ),
    ]
    if result["boxes"] > 1:
        lines.append(
            (f"for {result['boxes']:,} boxes of the proof", f"a proven bound, a value and {k} centroids within the box")
        )
    lines.append(("rows, labels of rows", "never"))
    told = "".join(f"<tr><th scope=row>{html.escape(a)}</th><td>{html.escape(b)}</td></tr>" for a, b in lines)
    names = ", ".join(html.escape(str(node["name"])) for node in result["nodes"])
    note = (
        f"<p class=warn>This report shows rows of {html.escape(', '.join(map(str, rows)))}; do not pass it on.</p>"
        if rows
        else ""
    )
    return (
        f"<p>Each of the nodes {names} told the coordinator:</p><table class=text><tbody>{told}</tbody></table>"
        f"<p>The coordinator told every node the domain, its own prices, the boxes and the candidates. Certificate and "
        f"report hold the domain, the centroids, and for each node its cost, its bounds and prices in "
        f"{len(certificate['leaves']):,} leaves, and its rows per cluster.</p>{note}"
    )


def _settings(result: Mapping[str, Any], certificate: Mapping[str, Any]) -> dict[str, str]:
    chosen = {
        "clusters": f"{result['n_clusters']}",
        "method": str(result["method"]),
        "node solver": str(result["solver"]),
        "symmetry rule asked for": str(result.get("symmetry", "–")),
        "symmetry rule of the proof": str(certificate["symmetry"]["rule"]),
        "gap asked for": percent(result["gap_asked"]) if "gap_asked" in result else "–",
        "why it stopped": REASONS.get(result["stop_reason"], str(result["stop_reason"])),
    }
    for name in ("topology", "time_limit", "max_rounds", "seed"):
        if result.get(name) is not None:
            chosen[name.replace("_", " ")] = str(result[name])
    return chosen


def _versions(result: Mapping[str, Any]) -> dict[str, str]:
    recorded = result.get("versions")
    if isinstance(recorded, Mapping):
        versions = {str(name): str(value) for name, value in recorded.items()}
    else:
        versions = {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES}
    return versions | {"report written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _definition_list(entries: Mapping[str, str]) -> str:
    return "".join(f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in entries.items())


def _plot_data(
    result: Mapping[str, Any],
    certificate: Mapping[str, Any],
    trace: Sequence[Mapping[str, Any]],
    rows: Mapping[str, Any] | None,
) -> dict[str, Any]:
    centroids = np.array(result["centroids"], dtype=float)
    weights = np.sum([node["counts"] for node in result["nodes"]], axis=0)
    lower = np.array(certificate["domain"]["lower"], dtype=float)
    width = np.array(certificate["domain"]["upper"], dtype=float) - lower
    features = _features(result)
    coordinates, axes, basis = _projection(centroids, features, lower, width)
    points = []
    for node, table in (rows or {}).items():
        own = as_table(table, where=f"node '{node}'").rows
        if own.shape[1] != centroids.shape[1]:
            raise InvalidInput(f"node '{node}' has {own.shape[1]} columns, the run used {centroids.shape[1]}")
        points.append({"node": str(node), "xy": basis(own).tolist()})
    known = [record for record in trace if math.isfinite(record["upper"])]
    return {
        "trace": {
            name: [record[name] for record in known] for name in ("round", "seconds", "lower", "upper", "gap", "phase")
        },
        "gap_asked": result.get("gap_asked"),
        "features": list(features),
        "centroids": centroids.tolist(),
        "weights": weights.tolist(),
        "relative": ((centroids - lower) / np.where(width > 0, width, 1.0)).tolist(),
        "map": {"xy": coordinates.tolist(), "axes": list(axes), "rows": points},
    }


def _projection(
    centroids: Array, features: Sequence[str], lower: Array, width: Array
) -> tuple[Array, tuple[str, str], Any]:
    """Where to draw centroids in the plane: as they are up to two features, else along their principal axes."""
    n_features = centroids.shape[1]
    if n_features == 1:
        return np.column_stack([centroids, np.zeros(len(centroids))]), (features[0], ""), _beside_zero
    if n_features == 2:
        return centroids, (features[0], features[1]), np.asarray
    scale = np.where(width > 0, width, 1.0)
    scaled = (centroids - lower) / scale
    centre = scaled.mean(axis=0)
    _, _, directions = np.linalg.svd(scaled - centre, full_matrices=True)
    plane = directions[:2].T

    def basis(points: Array) -> Array:
        return ((points - lower) / scale - centre) @ plane

    return basis(centroids), ("first principal axis of the centroids", "second principal axis"), basis


def _beside_zero(points: Array) -> Array:
    return np.column_stack([points, np.zeros(len(points))])


def _features(result: Mapping[str, Any]) -> list[str]:
    return [str(name) for name in result.get("features") or []] or [f"x{d}" for d in range(result["n_features"])]


def _script_safe(data: dict[str, Any]) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(data, allow_nan=False).replace("<", "\\u003c")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidInput(f"'{path}' is missing; give the folder that consentroid fit --out wrote") from None
    except ValueError as error:
        raise InvalidInput(f"'{path}' is not JSON ({error}); run consentroid fit again") from None
    if not isinstance(document, dict):
        raise InvalidInput(f"'{path}' does not hold a JSON object; run consentroid fit again")
    return document


def _read_trace(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.strip()]
    except FileNotFoundError:
        raise InvalidInput(f"'{path}' is missing; give the folder that consentroid fit --out wrote") from None
    except ValueError as error:
        raise InvalidInput(f"'{path}' is not a list of JSON lines ({error}); run consentroid fit again") from None
