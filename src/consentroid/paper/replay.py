"""The paper's benchmark, replayed: every instance by every method, our rows beside the paper's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from ..core.errors import InvalidInput
from ..core.problem import Problem
from ..core.result import FitResult, StopReason
from ..core.symmetry import Rule
from ..protocol.transport import Transport
from ..transport.channel import Channel
from ..transport.inprocess import InProcessTransport
from ..transport.metered import MeteredTransport
from .instances import Instance
from .loop import OnStep, PaperOutcome, maximise_dual
from .results import PAPER, PAPER_MEAN, Row
from .settings import PaperSettings
from .trace import T_COMM, t_comp
from .worker import PaperWorker

METHODS = ("sg", "btm", "qnda", "qnda-epigraph", "proximal", "proof")
PROOF_GAP = 1e-6
Prove = Callable[[Problem, float, OnStep | None], FitResult]  # our proof on the same rows, to a gap
NODE_SECONDS = 60.0  # MIQCP solvers need their time; the exact solver is done in milliseconds


@dataclass(frozen=True)
class Record:
    """One instance by one method. `lower_bound` and `gap` are proven, whatever the rule.

    Under `nearest` only the first round, which has no rule, proves anything. What the paper would report there is
    `dual_value` and `paper_gap`: its formula, not a bound.
    """

    instance: str
    method: str
    solver: str
    symmetry: str
    iterations: int
    lower_bound: float
    upper_bound: float
    gap: float
    stop_reason: StopReason
    seconds: float
    t_comp: float
    certified: bool
    dual_value: float
    paper_gap: float
    rounds: int
    boxes: int
    bytes_up: int
    bytes_down: int

    @property
    def instance_class(self) -> str:
        """The paper's label; generated instances are marked: the paper's own 3-D and 4-D data are not public."""
        label, _, number = self.instance.rpartition("_")
        return f"{label} generated" if number.startswith("seed") else label


def settings_for(
    method: str, n_clusters: int, solver: str, symmetry: Rule, gap: float | None, node_seconds: float = NODE_SECONDS
) -> PaperSettings:
    """The paper's settings for its methods, and for `proximal` on the same terms."""
    if method not in METHODS or method == "proof":
        raise InvalidInput(f"unknown method '{method}'; choose from {', '.join(METHODS)}")
    changes: dict[str, Any] = {"node_seconds": node_seconds} | ({} if gap is None else {"gap": gap})
    if method == "proximal":
        changes |= {"residual": 0.0, "heuristic": "lloyd", "incumbent_rounds": 2, "reference_node": None}
    return PaperSettings.of_the_paper(n_clusters, method, solver=solver, symmetry=symmetry, **changes)


def check_method(method: str, solver: str, symmetry: Rule, gap: float | None) -> None:
    """A wrong name or rule is reported before any work."""
    if method != "proof":
        settings_for(method, 2, solver, symmetry, gap)


def replay_one(
    instance: Instance,
    method: str,
    solver: str = "exact",
    symmetry: Rule = "order",
    gap: float | None = None,
    on_step: OnStep | None = None,
    node_seconds: float = NODE_SECONDS,
    wrap: Callable[[Transport], Transport] = lambda transport: transport,
    prove: Prove | None = None,
) -> tuple[Record, PaperOutcome | FitResult]:
    """One instance by one method; `prove` is what the method 'proof' runs, which is not the paper's."""
    problem = instance.problem
    if method == "proof":
        if prove is None:
            raise InvalidInput("the method 'proof' is not the paper's: pass what proves")
        proof = prove(problem, PROOF_GAP if gap is None else gap, on_step)
        return record_of_proof(instance.name, proof), proof
    settings = settings_for(method, problem.n_clusters, solver, symmetry, gap, node_seconds)
    transport = MeteredTransport(wrap(InProcessTransport.of(problem, PaperWorker)))
    try:
        channel = Channel(transport)
        outcome = maximise_dual(channel, channel.agree(problem.n_clusters, problem.domain), settings, on_step)
    finally:
        transport.close()
    return record_of(instance.name, outcome), outcome


def record_of(instance: str, outcome: PaperOutcome) -> Record:
    settings = outcome.settings
    valid = settings.symmetry != "nearest"
    return Record(
        instance=instance,
        method=settings.method,
        solver=settings.solver,
        symmetry=settings.symmetry,
        iterations=sum(record.phase == "dual" for record in outcome.trace),
        lower_bound=outcome.lower,
        upper_bound=outcome.upper,
        gap=outcome.gap,
        stop_reason=outcome.stop_reason,
        seconds=outcome.seconds,
        t_comp=t_comp(outcome.trace),
        certified=valid and outcome.gap <= settings.gap,
        dual_value=outcome.dual_value,
        paper_gap=outcome.gap if valid else outcome.paper_gap,
        rounds=outcome.rounds,
        boxes=1,
        bytes_up=outcome.bytes_up,
        bytes_down=outcome.bytes_down,
    )


def record_of_proof(instance: str, result: FitResult) -> Record:
    return Record(
        instance=instance,
        method="proof",
        solver="row prices",
        symmetry="none",
        iterations=result.rounds,
        lower_bound=result.lower_bound,
        upper_bound=result.upper_bound,
        gap=result.gap,
        stop_reason=result.stop_reason,
        seconds=result.seconds,
        t_comp=result.rounds * T_COMM + result.seconds,
        certified=result.certified,
        dual_value=result.lower_bound,
        paper_gap=result.gap,
        rounds=result.rounds,
        boxes=result.boxes,
        bytes_up=result.bytes_up,
        bytes_down=result.bytes_down,
    )


def write_json(path: Path, records: Iterable[Record]) -> None:
    path.write_text(json.dumps([asdict(record) for record in records], indent=1) + "\n")


def table_of(records: Sequence[Record], methods: Sequence[str]) -> Table:
    """Tab. `Results_Clustering` with our rows beside the paper's."""
    uncertified = any(record.symmetry == "nearest" for record in records)
    note = "gap by the paper's formula: the rule `nearest` proves nothing" if uncertified else "gap proven"
    first = next((record for record in records if record.method != "proof"), records[0])
    table = Table(
        title=f"solver {first.solver}, symmetry {first.symmetry} ({note})",
        caption="means over the instances of a class; the paper's over five, by Gurobi; T_comm = 0.8 s per round",
    )
    for heading in ("class", "n", "method"):
        table.add_column(heading)
    for heading in ("iterations", "gap %", "T_comp s", "measured s", "paper: iter.", "gap %", "T_comp s"):
        table.add_column(heading, justify="right")
    for name in dict.fromkeys(record.instance_class for record in records):
        chosen = [record for record in records if record.instance_class == name]
        _add_rows(table, name, chosen, methods, PAPER.get(name.split()[0], {}))
        table.add_section()
    _add_rows(table, "mean", list(records), methods, PAPER_MEAN)
    return table


def _add_rows(table: Table, name: str, records: list[Record], methods: Sequence[str], paper: dict[str, Row]) -> None:
    for method in methods:
        chosen = [record for record in records if record.method == method]
        if not chosen:
            continue
        ours = [
            float(np.mean([getattr(record, field) for record in chosen]))
            for field in ("iterations", "paper_gap", "t_comp", "seconds")
        ]
        cells = [f"{ours[0]:.1f}", f"{100 * ours[1]:.3g}", f"{ours[2]:.1f}", f"{ours[3]:.2f}"]
        theirs = [f"{number:g}" for number in paper[method]] if method in paper else ["–"] * 3
        table.add_row(name, str(len(chosen)), method, *cells, *theirs)
