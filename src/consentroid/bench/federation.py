"""What a network costs: `python -m consentroid.bench.federation overhead`, and `... many --nodes 100`.

`overhead` runs the same problem in one process and on a federation of real processes (loopback, mutual TLS, masked
sums) and compares the time of an exchange. `many` simulates sites on this machine; every message crosses as bytes.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from ..core.problem import Domain, Problem
from ..federation.administrator import Federation, new_run
from ..federation.demo import free_port
from ..federation.job import JobArguments, RunSettings
from ..federation.kit import provision, set_private_table
from ..federation.process import Member
from ..fitting import fit, run
from ..site.worker import SiteWorker
from ..transport.checked import CheckedTransport
from ..transport.inprocess import InProcessTransport
from ..transport.metered import WireTransport
from ..warmup import prepare_solver
from .runs import in_sites, mixture

NAMES = ("site1", "site2", "site3")


def overhead() -> None:
    """Seconds of an exchange beyond those of the same run in one process."""
    rows = in_sites(mixture(300, 2, 4, 0.3, seed=7))
    domain = Domain(np.full(2, -8.0), np.full(2, 8.0))  # sites do not tell their extremes
    prepare_solver()
    alone = fit(rows, 4, gap=1e-6, domain=domain)
    print(f"in process: {alone.rounds} exchanges, {1e3 * alone.seconds / alone.rounds:.2f} ms each")
    with tempfile.TemporaryDirectory() as temporary:
        kits = provision(NAMES, f"localhost:{free_port()}", Path(temporary, "federation"))
        for name, table in rows.items():
            file = Path(temporary, f"{name}.csv")
            np.savetxt(file, table, delimiter=",", header="x,y", comments="", fmt="%.17g")
            set_private_table(kits.node(name), file)
        members = [Member(kits.server), *(Member(kits.node(name)) for name in NAMES)]
        try:
            with Federation(kits.admin) as federation:
                arguments = JobArguments(new_run(), NAMES, RunSettings(4, gap=1e-6), domain)
                folder = federation.fit(arguments, Path(temporary, "out"))
                told = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        finally:
            for member in members:
                member.stop()
    each = told["seconds"] / told["rounds"]
    beyond = 1e3 * (each - alone.seconds / alone.rounds)
    print(f"federation: {told['rounds']} exchanges, {1e3 * each:.2f} ms each, {beyond:.2f} ms more than in process")
    print(f"{told['bytes_up'] / 1e6:.2f} MB up, {told['bytes_down'] / 1e6:.2f} MB down, gap {100 * told['gap']:.3g} %")


def many(n_nodes: int, n_rows: int, gap: float) -> None:
    problem = Problem.checked(in_sites(mixture(n_nodes * n_rows, 2, 3, 0.3, seed=1), n_nodes), 3)
    prepare_solver()
    wire = WireTransport(InProcessTransport(SiteWorker(node) for node in problem.nodes))
    started = time.perf_counter()
    result = run(CheckedTransport(wire), 3, gap=gap)
    seconds = time.perf_counter() - started
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{n_nodes} sites of {n_rows} rows, {result.rounds} exchanges: {seconds:.1f} s, peak memory {memory:.0f} MB, "
        f"{wire.bytes_up / 1e6:.2f} MB up, {wire.bytes_down / 1e6:.2f} MB down, gap {100 * result.gap:.3g} %"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["overhead", "many"])
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--rows", type=int, default=50, help="of each site")
    parser.add_argument("--gap", type=float, default=1e-4)
    given = parser.parse_args()
    if given.what == "overhead":
        overhead()
    else:
        many(given.nodes, given.rows, given.gap)
