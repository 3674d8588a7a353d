"""`consentroid select-k`: how many clusters? Proven costs and the usual indices for each number."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core.errors import InvalidInput
from .inputs import (
    ColumnsOption,
    DecimalOption,
    GapOption,
    ImputeOption,
    JsonOption,
    NodeOption,
    ScaleOption,
    SeedOption,
    SeparatorOption,
    WeightsOption,
    read_sites,
)


def select_k(
    node: NodeOption,
    least: Annotated[int, typer.Option("--from", help="Smallest number of clusters.")] = 2,
    most: Annotated[int, typer.Option("--to", help="Largest number of clusters.")] = 6,
    out: Annotated[Path | None, typer.Option(help="Folder for selection.json and selection.png.")] = None,
    columns: ColumnsOption = None,
    weights: WeightsOption = None,
    scale: ScaleOption = None,
    impute: ImputeOption = False,
    separator: SeparatorOption = None,
    decimal: DecimalOption = None,
    gap: GapOption = 1e-3,
    time_limit: Annotated[float, typer.Option(help="Seconds for each number of clusters.")] = 30.0,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Choose the number of clusters: for each, the proven range of the cost, and three indices.

    Example: consentroid select-k --node a=a.csv --node b=b.csv --from 2 --to 8 --scale standard --out choice
    """
    from ..core.extras import require
    from ..report.files import output_folder, to_json, write_text
    from ..selection import select_k as select
    from .console import compile_first, console, live_progress, notify, print_json

    if not 1 <= least <= most:
        raise InvalidInput(
            f"--from {least} --to {most} must be an increasing range of at least 1, as in --from 2 --to 6"
        )
    if out is not None:
        require("matplotlib", "plots", "drawing the choice (--out)")
        output_folder(out)
    sites = read_sites(node, columns, weights=weights, separator=separator, decimal=decimal, missing=impute)
    prepared, notices = sites.prepared(scale, impute)
    notify(notices)
    compile_first()
    numbers = range(least, most + 1)
    with live_progress(as_json) as on_step:
        selection = select(
            prepared.rows, numbers, weights=sites.weights, gap=gap, time_limit=time_limit, seed=seed, on_step=on_step,
            regions=False,
        )  # fmt: skip
    document = {"choices": [choice_as_dict(choice) for choice in selection.choices], "best": best_of(selection)}
    if out is not None:
        write_text(out / "selection.json", to_json(document, indent=1) + "\n")
        selection.plot(out / "selection.png")
    if as_json:
        print_json(document)
    else:
        _show(document, out, console)


def choice_as_dict(choice: Any) -> dict[str, Any]:
    judged = choice.quality
    return {
        "n_clusters": choice.n_clusters,
        "lower_bound": choice.lower,
        "upper_bound": choice.upper,
        "gap": choice.gap,
        "certified": choice.certified,
        "silhouette": judged.silhouette,
        "calinski_harabasz": judged.calinski_harabasz,
        "davies_bouldin": judged.davies_bouldin,
        "counts": judged.counts,
    }


def best_of(selection: Any) -> dict[str, int]:
    """The number that each index prefers, where the index is defined."""
    best = {}
    for index in ("silhouette", "calinski_harabasz", "davies_bouldin"):
        if any(not math.isnan(getattr(choice.quality, index)) for choice in selection.choices):
            best[index] = int(selection.best(index).n_clusters)
    return best


def _show(document: dict[str, Any], out: Path | None, console: Any) -> None:
    from rich.table import Table

    from ..report.wording import at_least, percent, safe

    best = document["best"]
    table = Table(title="number of clusters", caption="* best by this index; silhouette is squared Euclidean")
    for heading in (
        "clusters",
        "cost",
        "proven\nlower bound",
        "gap",
        "silhouette",
        "Calinski–\nHarabasz",
        "Davies–\nBouldin",
    ):
        table.add_column(heading, justify="right")
    for choice in document["choices"]:
        k = choice["n_clusters"]
        indices = [
            "–" if math.isnan(choice[index]) else f"{choice[index]:.4g}" + ("*" if best.get(index) == k else " ")
            for index in ("silhouette", "calinski_harabasz", "davies_bouldin")
        ]
        cost, lower = f"{choice['upper_bound']:.6g}", at_least(choice["lower_bound"], 6)
        table.add_row(str(k), cost, lower, percent(choice["gap"]), *indices)
    console.print(table)
    if out is not None:
        console.print(f"Written: {safe(out / 'selection.json')}, selection.png", highlight=False, soft_wrap=True)
