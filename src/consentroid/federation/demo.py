"""`consentroid demo --federated`: real processes, mutual TLS, a node killed and back again, and a proof."""

from __future__ import annotations

import contextlib
import json
import socket
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console

from ..core.problem import Problem
from ..fitting import fit
from ..paper.instances import generate
from ..report.terminal import show_result
from .administrator import Federation, Progress, new_run
from .display import follow
from .job import JobArguments, RunSettings
from .kit import provision, set_private_table
from .process import Member

NAMES = ("berlin", "lyon", "turin")
VICTIM = "lyon"
KILL_AFTER_ROUND = 30
LIMITS = {"silence": 4.0, "call": 4.0, "pace": 0.02}


def federated_demo(out: Path, console: Console) -> None:
    """Provision, start, cluster, lose a node on the way, and compare with a run in this process."""
    started = time.monotonic()

    def say(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - started:5.1f} s[/dim]  {text}", highlight=False)

    problem = generate(len(NAMES), 2, 4, seed=7, points_per_cluster=60, radius=0.4).problem
    settings = RunSettings(4, gap=1e-3)
    with tempfile.TemporaryDirectory(prefix="consentroid-") as temporary, contextlib.ExitStack() as members:
        kits = provision(NAMES, f"localhost:{free_port()}", Path(temporary, "federation"))
        say(f"provisioned keys and hardened kits for a server and {len(NAMES)} nodes")
        for name, data in zip(NAMES, problem.nodes, strict=True):
            file = Path(temporary, f"{name}.csv")
            np.savetxt(file, data.points, delimiter=",", header="x,y", comments="", fmt="%.17g")
            set_private_table(kits.node(name), file)
        members.enter_context(Member(kits.server))
        nodes = {name: members.enter_context(Member(kits.node(name))) for name in NAMES}
        say("started a server and three nodes as separate processes, connected by mutual TLS")
        rows = {name: data.points for name, data in zip(NAMES, problem.nodes, strict=True)}
        expected = fit(rows, settings.n_clusters, domain=problem.domain, gap=settings.gap)
        say(f"meanwhile, the same rows in one process: cost {expected.upper_bound:.6f}, proven")
        federation = members.enter_context(Federation(kits.admin))
        with follow(target=console) as show:
            killed = False

            def watch(progress: Progress) -> None:
                nonlocal killed
                show(progress)
                record = (progress.status or {}).get("record")
                if not killed and record is not None and record["round"] >= KILL_AFTER_ROUND:
                    killed = True
                    nodes[VICTIM].kill()
                    nodes[VICTIM] = members.enter_context(Member(kits.node(VICTIM)))
                    say(f"killed node '{VICTIM}' after round {record['round']}, and restarted it")

            arguments = JobArguments(new_run(), NAMES, settings, problem.domain, ("x", "y"), LIMITS)
            federation.fit(arguments, out, watch)
        say("the run went on from its journal and is complete")
        federation.close()
    say("stopped all processes")
    result = json.loads((out / "result.json").read_text())
    show_result(result, out, console)
    _compare(problem, result["upper_bound"], result["lower_bound"], expected.upper_bound, console)


def _compare(problem: Problem, upper: float, lower: float, expected: float, console: Console) -> None:
    same = lower <= expected <= upper <= expected * (1.0 + 2.0**-12 + 1e-6)  # sites round costs up (site/grain.py)
    console.print(
        f"[bold]{'Proven' if same else 'Not the same'}:[/bold] {len(problem.nodes)} nodes, rows never moved, "
        f"cost {upper:.6f}, no clustering below {lower:.6f}; in one process: {expected:.6f}.",
        highlight=False,
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])
