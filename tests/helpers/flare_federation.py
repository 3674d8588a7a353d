"""A federation of real processes on loopback with mutual TLS, for the tests that need one."""

from __future__ import annotations

import socket
from pathlib import Path

import numpy as np

from consentroid.federation.administrator import Federation, Patience, new_run
from consentroid.federation.job import JobArguments
from consentroid.federation.kit import provision, set_private_table
from consentroid.federation.process import Member
from consentroid.fitting import FitResult, run
from consentroid.paper.instances import generate
from consentroid.paper.settings import Settings
from consentroid.paper.worker import PaperWorker
from consentroid.transport.inprocess import InProcessTransport

NODES = ("north", "south", "west")
FEATURES = ("height", "width")
SETTINGS = Settings(3, gap=1e-4)


class Running:
    """Server and three nodes; `members` by name, the server under 'server'."""

    def __init__(self, root: Path) -> None:
        self.root = root
        generated = generate(len(NODES), len(FEATURES), 3, seed=11, points_per_cluster=5, radius=0.3).problem
        self.domain = generated.domain
        self.data = dict(zip(NODES, generated.nodes, strict=True))
        self.kits = provision(NODES, f"localhost:{free_port()}", root / "federation")
        for name in NODES:
            file = root / f"{name}.csv"
            np.savetxt(file, self.data[name].points, delimiter=",", header=",".join(FEATURES), comments="", fmt="%.17g")
            set_private_table(self.kits.node(name), file)
        self.members: dict[str, Member] = {}
        self.start("server", *NODES)

    def start(self, *names: str) -> None:
        for name in names:
            kit = self.kits.server if name == "server" else self.kits.node(name)
            self.members[name] = Member(kit)

    def administrator(self) -> Federation:
        return Federation(self.kits.admin, Patience(nodes=60.0, start=60.0))

    def arguments(self, settings: Settings = SETTINGS, **changes: object) -> JobArguments:
        given = {"domain": self.domain, "features": FEATURES, "limits": {"silence": 5.0, "call": 5.0}} | changes
        return JobArguments(new_run(), NODES, settings, **given)  # type: ignore[arg-type]

    def in_process(self, settings: Settings = SETTINGS) -> FitResult:
        """The same rows without a network."""
        workers = [PaperWorker(_named(name, self.data[name]), FEATURES) for name in NODES]
        return run(InProcessTransport(workers), settings, domain=self.domain, features=FEATURES)

    def stop(self) -> None:
        for member in self.members.values():
            member.stop()


def _named(name: str, data: object) -> object:
    from consentroid.core.problem import NodeData

    return NodeData.checked(name, data.points, data.weights)  # type: ignore[attr-defined]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])
