"""`consentroid predict`: rows labelled by the centroids of a run."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.errors import InvalidInput
from .inputs import DecimalOption, JsonOption, NodeOption, SeparatorOption, read_sites

if TYPE_CHECKING:
    from ..core.arrays import Array


@dataclass(frozen=True)
class Labels:
    """The clusters of one site's rows."""

    cluster: Array  # (J,)
    distance: Array  # (J,) Euclidean, in the units that were clustered
    certain: Array | None  # (J,) whether every clustering within the certified regions puts the row there

    def as_dict(self) -> dict[str, Any]:
        told = {"cluster": self.cluster, "distance": self.distance}
        return told if self.certain is None else told | {"certain": self.certain}


def predict(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder that `consentroid fit` wrote, or its result.json.")
    ],
    node: NodeOption,
    out: Annotated[Path | None, typer.Option(help="File for the labels; default: standard output.")] = None,
    separator: SeparatorOption = None,
    decimal: DecimalOption = None,
    as_json: JsonOption = False,
) -> None:
    """Label rows by the nearest centroid of a run: site, row, cluster, distance, and whether it is certain.

    Columns are found by name and scaled as in the run. A row is certain if it is nearest to the same cluster wherever
    in the certified regions the centroids lie.

    Example: consentroid predict run --node a=a.csv --out labels.csv
    """
    from ..report.files import check_writable, read_result, to_json, write_text
    from .console import console, notify, print_json

    document = read_result(run)
    check_writable(out)
    filled = (document.get("scaling") or {}).get("fill") is not None
    sites = read_sites(node, document["features"], separator=separator, decimal=decimal, missing=filled)
    notify(sites.notices)
    labelled = {name: labels_of(document, table.rows) for name, table in sites.tables.items()}
    text = to_json({n: v.as_dict() for n, v in labelled.items()}) + "\n" if as_json else as_csv(labelled)
    if out is not None:
        write_text(out, text, 0o600)  # which row is in which cluster is said of single rows
        if as_json:
            print_json({"written": str(out), "rows": sum(len(part.cluster) for part in labelled.values())})
        else:
            _summarise(document, labelled, out, console)
    else:
        typer.echo(text, nl=False)


def labels_of(document: Mapping[str, Any], rows: Array) -> Labels:
    """Labels of rows in the units they were given in, from what `result.json` holds."""
    import numpy as np

    from ..data.preprocessing import Affine, Recipe

    centroids = np.array(document["centroids"], dtype=float)
    if rows.shape[1] != centroids.shape[1]:
        raise InvalidInput(f"the rows have {rows.shape[1]} features, the run used {centroids.shape[1]}")
    d = centroids.shape[1]
    scaling = document.get("scaling")
    recipe = Recipe("none", Affine(np.zeros(d), np.ones(d))) if scaling is None else Recipe.from_dict(scaling)
    points, centres = recipe.apply(rows), recipe.transform.transform(centroids)
    distances = np.sqrt(np.stack([((points - centre) ** 2).sum(axis=1) for centre in centres], axis=1))
    cluster = distances.argmin(axis=1)
    nearest = distances[np.arange(len(points)), cluster]
    regions = document.get("regions")
    if regions is None:
        return Labels(cluster, nearest, None)
    lower, upper = (recipe.transform.transform(regions[side]) for side in ("lower", "upper"))
    least = np.stack([_nearest(points, low, high) for low, high in zip(lower, upper)], axis=1)
    most = np.stack([_farthest(points, low, high) for low, high in zip(lower, upper)], axis=1)
    own = most[np.arange(len(points)), cluster]
    others = least.copy()
    others[np.arange(len(points)), cluster] = np.inf
    margin = 1e-9 * (1.0 + own)  # more than rounding can take away
    return Labels(cluster, nearest, own + margin < others.min(axis=1))


def _nearest(points: Array, low: Array, high: Array) -> Array:
    """Least squared distance of each point to a box."""
    import numpy as np

    outside = np.maximum(np.maximum(low - points, points - high), 0.0)
    return (outside**2).sum(axis=1)  # type: ignore[no-any-return]


def _farthest(points: Array, low: Array, high: Array) -> Array:
    """Greatest squared distance of each point to a box."""
    import numpy as np

    return (np.maximum(np.abs(points - low), np.abs(points - high)) ** 2).sum(axis=1)  # type: ignore[no-any-return]


def as_csv(labelled: Mapping[str, Labels]) -> str:
    certain = all(part.certain is not None for part in labelled.values())
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["site", "row", "cluster", "distance", *(["certain"] if certain else [])])
    for site, part in labelled.items():
        for j, (cluster, distance) in enumerate(zip(part.cluster, part.distance)):
            last = [] if part.certain is None else ["true" if part.certain[j] else "false"]
            writer.writerow([site, j + 1, int(cluster), repr(float(distance)), *last])
    return text.getvalue()


def _summarise(document: Mapping[str, Any], labelled: Mapping[str, Labels], out: Path, console: Any) -> None:
    from rich.table import Table

    from ..report.wording import safe

    n_clusters = int(document["n_clusters"])
    table = Table(title="labels")
    table.add_column("site")
    certain = all(part.certain is not None for part in labelled.values())
    for heading in ("rows", *(f"cluster {k}" for k in range(n_clusters)), *(["certain"] if certain else [])):
        table.add_column(heading, justify="right")
    for site, part in labelled.items():
        counts = [str(int((part.cluster == k).sum())) for k in range(n_clusters)]
        sure = [] if part.certain is None else [str(int(part.certain.sum()))]
        table.add_row(safe(site), str(len(part.cluster)), *counts, *sure)
    console.print(table)
    console.print(f"Written: {safe(out)}", highlight=False, soft_wrap=True)
