"""`consentroid demo`: three nodes, one proof, in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..fitting import run
from ..paper.instances import generate
from ..paper.settings import Settings
from ..paper.worker import PaperWorker
from ..report.files import output_folder, write_run
from ..transport.inprocess import InProcessTransport
from ..transport.metered import MeteredTransport
from ..transport.recorder import Recorder
from .console import console, live_progress
from .fit import show


def demo(
    out: Annotated[Path, typer.Option(help="Folder for results and pictures.")] = Path("demo"),
    federated: Annotated[
        bool, typer.Option("--federated", help="Real processes, mutual TLS, and a node that is killed on the way.")
    ] = False,
) -> None:
    """Three hospitals, four clusters: find the best centroids and prove it, without moving a row."""
    from ..report import plots

    folder = output_folder(out)
    if federated:
        from ..federation.demo import federated_demo

        federated_demo(folder, console)
        return
    console.print("Three nodes hold 24 rows each. The coordinator sees prices, centroids and sums, never a row.\n")
    problem = generate(3, 2, 4, seed=7, points_per_cluster=6, radius=0.4).problem
    recorder = Recorder()
    transport = MeteredTransport(recorder.around(InProcessTransport.of(problem, PaperWorker)))
    try:
        with live_progress() as on_round:
            result = run(transport, Settings(4, gap=1e-6), domain=problem.domain, on_round=on_round)
    finally:
        transport.close()
    write_run(folder, result)
    show(result, folder)
    consensus = result.centroids[None].repeat(len(problem.nodes), axis=0)
    stages = {"alone": recorder.first, "consensus": consensus}
    for path in (
        plots.node_clusters(problem, stages, folder / "clusters.png", "Each node alone, and all nodes together"),
        plots.bounds_over_rounds(result.history, folder / "bounds.png", "The bound meets the cost"),
        plots.gap_over_rounds({"proximal": result.history}, folder / "gap.png", "Gap over rounds"),
    ):
        console.print(f"Drawn: {path}", highlight=False)
