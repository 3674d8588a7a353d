"""`consentroid demo`: real data at three sites, one proof, in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .inputs import JsonOption

if TYPE_CHECKING:
    from ..data.preprocessing import Prepared

GAP = 1e-6


def demo(
    out: Annotated[Path, typer.Option(help="Folder for results, report and pictures.")] = Path("demo"),
    generated: Annotated[bool, typer.Option("--generated", help="Three sites with generated rows instead.")] = False,
    federated: Annotated[
        bool, typer.Option("--federated", help="Real processes, mutual TLS, and a site that is killed on the way.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Penguins of three islands: find the best clusters and prove it, in seconds.

    Example: consentroid demo --out demo
    """
    from ..core.extras import require
    from ..fitting import fit
    from ..report import plots
    from ..report.files import Details, clean_up, output_folder, read_result, read_run, result_as_dict, write_run
    from ..report.html import write_report
    from ..report.terminal import show_result
    from ..report.wording import DISCLOSURE
    from .console import compile_first, console, live_progress, messages, print_json
    from .fit import spread_of

    folder = output_folder(out)
    if federated:
        from ..federation.demo import federated_demo

        federated_demo(folder, messages if as_json else console)
        if as_json:
            print_json(read_result(folder))
        return
    require("matplotlib", "plots", "drawing the demo")
    clean_up(folder)
    about, prepared, n_clusters = _generated() if generated else _penguins()
    if not as_json:
        console.print(f"{about} {DISCLOSURE}\n", highlight=False, soft_wrap=True)
    compile_first()
    with live_progress(as_json) as on_step:
        result = fit(prepared.rows, n_clusters, gap=GAP, features=prepared.names, folder=folder, on_step=on_step)
    spread = spread_of(prepared.rows, None, result.centroids, prepared.transform.scale)
    scaling = None if prepared.recipe.scale == "none" else prepared.recipe.as_dict()
    write_run(folder, result, Details(scaling, spread))
    rows = {name: prepared.transform.inverse_transform(table) for name, table in prepared.rows.items()}
    files = read_run(folder)
    drawn = [write_report(folder), *plots.draw_run(folder, files.result, files.trace, rows)]
    if as_json:
        print_json(result_as_dict(result, Details(scaling, spread)))
        return
    show_result(files.result, folder, console)
    for path in drawn:
        console.print(f"Drawn: {path}", highlight=False, soft_wrap=True)


def _penguins() -> tuple[str, Prepared, int]:
    from ..data.datasets import penguins
    from ..data.preprocessing import prepare

    prepared = prepare(penguins().tables)
    n_rows = sum(map(len, prepared.rows.values()))
    about = f"Three islands hold four measures of {n_rows} penguins."
    return about, prepared, 3


def _generated() -> tuple[str, Prepared, int]:
    from ..data.preprocessing import prepare
    from ..paper.instances import generate

    problem = generate(3, 2, 4, seed=7, points_per_cluster=6, radius=0.4).problem
    tables = {node.name: node.points for node in problem.nodes}
    return "Three sites hold 24 generated rows each.", prepare(tables, scale="none"), 4
