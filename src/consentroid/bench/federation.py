"""What a network costs: `python -m consentroid.bench.federation overhead`, and `... many --nodes 100`.

`overhead` runs the same problem in one process and on a federation of real processes (loopback, mutual TLS) and
compares the time of a round. `many` simulates nodes on this machine; every message crosses as bytes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from ..core.problem import Problem
from ..federation.administrator import Federation, new_run
from ..federation.demo import free_port
from ..federation.job import JobArguments
from ..federation.kit import provision, set_private_table
from ..federation.process import Member
from ..fitting import run
from ..paper.instances import generate
from ..paper.settings import Settings
from ..paper.worker import PaperWorker
from ..transport.checked import CheckedTransport
from ..transport.inprocess import InProcessTransport
from ..transport.metered import WireTransport

NAMES = ("a", "b", "c")


def seconds_a_round(trace: list[dict[str, float]]) -> float:
    """Median time of a round beyond the slowest node's own work and the coordinator's."""
    pairs = itertools.pairwise(trace)
    return float(np.median([b["seconds"] - a["seconds"] - b["t_sub"] - a["t_update"] for a, b in pairs]))


def overhead() -> None:
    problem = generate(3, 2, 4, seed=7, points_per_cluster=6, radius=0.4).problem
    settings = Settings(4, gap=1e-6)
    run(InProcessTransport.of(problem, PaperWorker), settings, domain=problem.domain)  # compiles
    alone = run(InProcessTransport.of(problem, PaperWorker), settings, domain=problem.domain)
    with tempfile.TemporaryDirectory() as temporary:
        kits = provision(NAMES, f"localhost:{free_port()}", Path(temporary, "federation"))
        for name, data in zip(NAMES, problem.nodes, strict=True):
            file = Path(temporary, f"{name}.csv")
            np.savetxt(file, data.points, delimiter=",", header="x,y", comments="", fmt="%.17g")
            set_private_table(kits.node(name), file)
        members = [Member(kits.server), *(Member(kits.node(name)) for name in NAMES)]
        try:
            with Federation(kits.admin) as federation:
                arguments = JobArguments(new_run(), NAMES, settings, problem.domain)
                folder = federation.fit(arguments, Path(temporary, "out"))
                trace = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]
        finally:
            for member in members:
                member.stop()
    here, there = seconds_a_round([vars(record) for record in alone.history]), seconds_a_round(trace)
    print(f"rounds {len(trace)}, beyond the nodes' and the coordinator's own work, median a round:")
    print(f"in process {1e3 * here:.2f} ms, federation {1e3 * there:.2f} ms, overhead {1e3 * (there - here):.2f} ms")


def many(n_nodes: int, n_rows: int, n_rounds: int, node_seconds: float) -> None:
    rng = np.random.default_rng(1)
    centres = rng.uniform(-1, 1, size=(3, 2))
    tables = {
        f"node{i}": centres[rng.integers(0, 3, n_rows)] + 0.25 * rng.normal(size=(n_rows, 2)) for i in range(n_nodes)
    }
    problem = Problem.checked(tables, 3)
    settings = Settings(3, gap=0.0, max_rounds=n_rounds, prove=False, node_seconds=node_seconds)
    wire = WireTransport(InProcessTransport(PaperWorker(node) for node in problem.nodes))
    started = time.perf_counter()
    result = run(CheckedTransport(wire), settings, domain=problem.domain)
    seconds = time.perf_counter() - started
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{n_nodes} nodes of {n_rows} rows, {result.rounds} rounds: {seconds:.1f} s, peak memory {memory:.0f} MB, "
        f"{wire.bytes_up / 1e6:.2f} MB up, {wire.bytes_down / 1e6:.2f} MB down, gap {100 * result.gap:.3g} %"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["overhead", "many"])
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--rows", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--node-seconds", type=float, default=0.02, help="budget of a node in a round")
    given = parser.parse_args()
    if given.what == "overhead":
        overhead()
    else:
        many(given.nodes, given.rows, given.rounds, given.node_seconds)
