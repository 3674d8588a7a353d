"""`consentroid compare`: what other federated methods reach on the same rows, measured by our bound."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .inputs import (
    ClustersOption,
    ColumnsOption,
    DecimalOption,
    GapOption,
    ImputeOption,
    JsonOption,
    NodeOption,
    ScaleOption,
    SeedOption,
    SeparatorOption,
    TimeLimitOption,
    WeightsOption,
    read_sites,
)


def compare(
    node: NodeOption,
    k: ClustersOption,
    out: Annotated[Path | None, typer.Option(help="Folder for comparison.json and comparison.png.")] = None,
    columns: ColumnsOption = None,
    weights: WeightsOption = None,
    scale: ScaleOption = None,
    impute: ImputeOption = False,
    separator: SeparatorOption = None,
    decimal: DecimalOption = None,
    gap: GapOption = 1e-4,
    time_limit: TimeLimitOption = 60.0,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Set consentroid beside federated Lloyd, plain averaging, k-FED and pooled scikit-learn.

    Example: consentroid compare --node a=a.csv --node b=b.csv -k 3 --out comparison
    """
    from ..comparison import compare as compare_methods
    from ..core.extras import require
    from ..report import plots
    from ..report.files import output_folder, to_json, write_text
    from .console import compile_first, console, live_progress, notify, print_json

    if out is not None:
        require("matplotlib", "plots", "drawing the comparison (--out)")
        output_folder(out)
    sites = read_sites(node, columns, weights=weights, separator=separator, decimal=decimal, missing=impute)
    prepared, notices = sites.prepared(scale, impute)
    notify(notices)
    compile_first()
    with live_progress(as_json) as on_step:
        comparison = compare_methods(
            prepared.rows, k, weights=sites.weights, gap=gap, time_limit=time_limit, seed=seed, on_step=on_step,
            regions=False,
        )  # fmt: skip
    document = comparison.as_dict()
    if out is not None:
        write_text(out / "comparison.json", to_json(document, indent=1) + "\n")
        plots.comparison(document, out / "comparison.png")
    if as_json:
        print_json(document)
    else:
        _show(document, out, console)


def _show(document: dict[str, Any], out: Path | None, console: Any) -> None:
    from rich.table import Table

    from ..report.wording import at_least, percent, safe

    table = Table(title=f"proven lower bound {at_least(document['lower_bound'], 8)}", caption="gap: to that bound")
    table.add_column("method")
    for heading in ("cost", "gap", "rounds", "bytes up", "bytes down", "seconds"):
        table.add_column(heading, justify="right")
    table.add_column("rows leave")
    for line in document["methods"]:
        table.add_row(
            line["method"],
            f"{line['cost']:.8g}",
            percent(line["gap"]),
            f"{line['rounds']:,}",
            f"{line['bytes_up']:,}",
            f"{line['bytes_down']:,}",
            f"{line['seconds']:.2f}",
            "yes" if line["rows_leave"] else "no",
        )
    console.print(table)
    if out is not None:
        console.print(f"Written: {safe(out / 'comparison.json')}, comparison.png", highlight=False, soft_wrap=True)
