"""Rounds and bytes: how fast the update rules climb the same dual function, and what a proof costs on a wire.

Every method gets the same references, so all of them maximise one dual function; its optimum is the best bound that any
of them reached. The paper's methods start at λ = 0, `proximal` at the incumbent's gradients. A run that never comes
within the tolerance counts with its limit of rounds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.progress import track
from rich.table import Table

from ..fitting import run
from ..paper.instances import Instance, generate
from ..paper.loop import maximise_dual
from ..paper.settings import PaperSettings
from ..paper.worker import PaperWorker
from ..report import plots
from ..report.files import check_writable, output_folder
from ..transport.channel import Channel
from ..transport.inprocess import InProcessTransport
from ..transport.metered import MeteredTransport

METHODS = ("proximal", "btm", "qnda")
NODES = (2, 4, 8, 16)
TOLERANCE = 1e-3
LIMIT = 150


@dataclass(frozen=True)
class Climb:
    instance: str
    n_nodes: int
    method: str
    rounds: int  # with prices, until the bound is within the tolerance of the dual optimum
    reached: bool


@dataclass(frozen=True)
class Proof:
    instance: str
    n_nodes: int
    rounds: int
    boxes: int
    bytes_per_round: float  # of one node, up and down
    seconds: float


def run_rounds_bench(
    instances: Sequence[Instance], seeds: int, json_path: Path | None, plots_dir: Path | None, console: Console
) -> tuple[list[Climb], list[Proof]]:
    """Measure, show, write and draw."""
    check_writable(json_path)
    folder = None if plots_dir is None else output_folder(plots_dir)
    problems = [*instances, *(generate(n, 2, 3, seed) for n in NODES for seed in range(seeds))]
    quiet = not console.is_terminal
    climbs = [climb for one in track(problems, "climbing", console=console, disable=quiet) for climb in climb_all(one)]
    proofs = [prove(one) for one in track(problems, "proving", console=console, disable=quiet)]
    console.print(_climb_table(climbs))
    console.print(_proof_table(proofs))
    if json_path is not None:
        told = {"climbs": [asdict(c) for c in climbs], "proofs": [asdict(p) for p in proofs]}
        json_path.write_text(json.dumps(told, indent=1) + "\n")
    if folder is not None:
        console.print(f"Drawn: {plots.proof_traffic(proofs, folder / 'proof_traffic.png')}", highlight=False)
    return climbs, proofs


def climb_all(instance: Instance) -> Iterator[Climb]:
    """All methods on one instance."""
    histories = {}
    for method in METHODS:
        settings = PaperSettings(instance.problem.n_clusters, method, gap=0.0, max_rounds=LIMIT)
        histories[method] = _bounds(instance, settings)
    optimum = max(lowers[-1] for lowers in histories.values())
    for method, lowers in histories.items():
        within = [t for t, lower in enumerate(lowers, start=1) if lower >= optimum * (1.0 - TOLERANCE)]
        yield Climb(
            instance.name, len(instance.problem.nodes), method, within[0] if within else LIMIT, reached=bool(within)
        )


def prove(instance: Instance, gap: float = 1e-6) -> Proof:
    """Our own proof on the same rows."""
    problem = instance.problem
    transport = MeteredTransport(InProcessTransport.of(problem))
    try:
        result = run(transport, problem.n_clusters, domain=problem.domain, gap=gap, time_limit=120.0)
    finally:
        transport.close()
    n_nodes = len(problem.nodes)
    traffic = (result.bytes_up + result.bytes_down) / n_nodes / result.rounds
    return Proof(instance.name, n_nodes, result.rounds, result.boxes, traffic, result.seconds)


def _bounds(instance: Instance, settings: PaperSettings) -> list[float]:
    """The best bound after each round of the paper's loop."""
    problem = instance.problem
    transport = InProcessTransport.of(problem, PaperWorker)
    try:
        channel = Channel(transport)
        outcome = maximise_dual(channel, channel.agree(problem.n_clusters, problem.domain), settings)
    finally:
        transport.close()
    return [record.lower for record in outcome.trace if record.phase == "dual"]


def _climb_table(climbs: Sequence[Climb]) -> Table:
    table = Table(title=f"mean rounds to {TOLERANCE:g} of the dual optimum (limit {LIMIT})")
    for heading in ("nodes", "problems", *METHODS, *(f"proximal / {method}" for method in METHODS[1:])):
        table.add_column(heading, justify="right")
    for n_nodes in [*sorted({climb.n_nodes for climb in climbs}), None]:
        chosen = [climb for climb in climbs if n_nodes in (climb.n_nodes, None)]
        means = {method: fmean(c.rounds for c in chosen if c.method == method) for method in METHODS}
        ratios = [f"{means['proximal'] / means[method]:.2f}" for method in METHODS[1:]]
        cells = [f"{means[method]:.1f}" for method in METHODS]
        table.add_row("all" if n_nodes is None else str(n_nodes), str(len(chosen) // len(METHODS)), *cells, *ratios)
    return table


def _proof_table(proofs: Sequence[Proof]) -> Table:
    table = Table(title="proofs to 1e-6")
    for heading in (
        "nodes",
        "problems",
        "mean rounds",
        "most rounds",
        "mean boxes",
        "kB per round and node",
        "seconds",
    ):
        table.add_column(heading, justify="right")
    for n_nodes in sorted({proof.n_nodes for proof in proofs}):
        chosen = [proof for proof in proofs if proof.n_nodes == n_nodes]
        table.add_row(
            str(n_nodes),
            str(len(chosen)),
            f"{fmean(p.rounds for p in chosen):.1f}",
            str(max(p.rounds for p in chosen)),
            f"{fmean(p.boxes for p in chosen):.0f}",
            f"{fmean(p.bytes_per_round for p in chosen) / 1000:.1f}",
            f"{sum(p.seconds for p in chosen):.1f}",
        )
    return table
