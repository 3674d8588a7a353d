"""A federation of real processes on loopback with mutual TLS, for the tests that need one."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from consentroid.core.problem import Domain, NodeData
from consentroid.core.result import FitResult
from consentroid.federation.administrator import Federation, Patience, new_run
from consentroid.federation.job import JobArguments, RunSettings
from consentroid.federation.kit import provision, set_private_table
from consentroid.federation.process import Member
from consentroid.fitting import run
from consentroid.site.policy import Policy
from consentroid.site.worker import SiteWorker
from consentroid.transport.inprocess import InProcessTransport

NODES = ("north", "south", "west")
FEATURES = ("height", "width")
OPEN = RunSettings(3, gap=1e-3, secure=False)
SECURE = RunSettings(3, gap=1e-3)
OPEN_POLICY = Policy(masks="never", least_rows=1)


class Running:
    """Server and three nodes; `members` by name, the server under 'server'."""

    def __init__(self, root: Path, policy: Policy = OPEN_POLICY, rows: int = 12) -> None:
        """`rows` in each of three clusters at each site."""
        self.root = root
        rng = np.random.default_rng(11)
        centres = np.array([[0.0, 0.0], [8.0, 1.0], [2.0, 9.0]])
        self.data = {name: np.concatenate([c + rng.normal(size=(rows, 2)) for c in centres]).round(6) for name in NODES}
        self.domain = Domain(np.full(2, -6.0), np.full(2, 16.0))
        self.kits = provision(NODES, f"localhost:{free_port()}", root / "federation")
        for name in NODES:
            file = root / f"{name}.csv"
            np.savetxt(file, self.data[name], delimiter=",", header=",".join(FEATURES), comments="", fmt="%.17g")
            set_private_table(self.kits.node(name), file)
            policy.write(self.kits.node(name) / "local")
        self.members: dict[str, Member] = {}
        self.start("server", *NODES)

    def start(self, *names: str, environment: Mapping[str, str] | None = None) -> None:
        """Start members; `environment` is added to theirs alone."""
        kept = dict(os.environ)
        os.environ.update(environment or {})
        try:
            for name in names:
                kit = self.kits.server if name == "server" else self.kits.node(name)
                self.members[name] = Member(kit)
        finally:
            os.environ.clear()
            os.environ.update(kept)

    def administrator(self) -> Federation:
        return Federation(self.kits.admin, Patience(nodes=60.0, start=60.0))

    def arguments(self, settings: RunSettings = OPEN, **changes: object) -> JobArguments:
        given = {"domain": self.domain, "features": FEATURES, "limits": {"silence": 5.0, "call": 5.0}} | changes
        return JobArguments(new_run(), NODES, settings, **given)  # type: ignore[arg-type]

    def in_process(self, settings: RunSettings = OPEN) -> FitResult:
        """The same rows without a network."""
        workers = [SiteWorker(NodeData.checked(name, self.data[name]), FEATURES) for name in NODES]
        return run(
            InProcessTransport(workers),
            settings.n_clusters,
            domain=self.domain,
            features=FEATURES,
            gap=settings.gap,
            time_limit=settings.time_limit,
        )

    def stop(self) -> None:
        for member in self.members.values():
            member.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])
