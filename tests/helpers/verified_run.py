"""Sites that keep their runs, joined by function calls: a run, and its verification by the sites."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from consentroid.certificate.document import Certificate
from consentroid.certificate.signatures import Root
from consentroid.certificate.statements import Statements
from consentroid.core.problem import Domain, NodeData, Problem
from consentroid.federation.desk import Desk
from consentroid.federation.preparing import prepare
from consentroid.federation.protocol import Limits
from consentroid.federation.secure import SecureTransport
from consentroid.federation.verification import gather
from consentroid.fitting import run
from consentroid.protocol.transport import Transport
from consentroid.site.guard import Guard
from consentroid.site.policy import Policy
from consentroid.site.worker import SiteWorker
from consentroid.transport.checked import CheckedTransport
from consentroid.transport.journal import JournalTransport
from consentroid.verify import Report, verify_sums
from wire import FOLDER, RUN, Wire, desk_of

ROOT = FOLDER / "north" / "rootCA.pem"
PATIENT = Limits(silence=300.0, slack=300.0)  # the first answers compile the kernels
MakeWorker = Callable[[NodeData, Path, Guard], SiteWorker]


def honest(data: NodeData, prices: Path, guard: Guard) -> SiteWorker:
    return SiteWorker(data, ("x", "y"), prices, guard)


class KeepingWire(Wire):
    """Every site has a folder of its own for what it keeps."""

    def __init__(self, problem: Problem, folder: Path, policy: Policy, workers: Mapping[str, MakeWorker]) -> None:
        self.folder, self.workers = folder, dict(workers)
        for data in problem.nodes:
            (folder / data.name).mkdir(parents=True, exist_ok=True)
        super().__init__(problem, policy=policy)

    def kept(self, name: str) -> Path:
        return self.folder / name

    def _desk(self, name: str) -> Desk:
        data = next(one for one in self.problem.nodes if one.name == name)
        make, prices = self.workers.get(name, honest), self.kept(name) / f"{RUN}.npz"
        return desk_of(name, lambda: make(data, prices, self.policy.guard()), self.policy, self.kept(name))

    def next_job(self) -> None:
        for name in list(self.desks):
            self.restart(name)

    def fit(
        self, secure: bool, n_clusters: int = 3, gap: float = 1e-3, scale: str = "none", journal: Path | None = None,
        limits: Limits = PATIENT,
    ) -> Certificate:  # fmt: skip
        """As the controller does it; `journal`: a folder from which a run that broke off goes on."""
        transport, domain = self.transport(limits), self.problem.domain
        try:
            if scale != "none":
                prepared = SecureTransport(transport, domain) if secure else None
                recipe = prepare(transport, prepared, scale, False, domain, self.folder / "recipe.json")
                domain = recipe.transform.domain(domain)
            notes = None if journal is None else journal / "sites.json"
            masks = SecureTransport(transport, domain, notes) if secure else None
            inner: Transport = transport if masks is None else masks
            if journal is not None:
                inner = JournalTransport(inner, journal / "journal")
            result = run(
                CheckedTransport(inner), n_clusters, domain=domain, gap=gap, time_limit=60.0, features=("x", "y"),
                regions=False,
            )  # fmt: skip
        finally:
            transport.close()
        assert result.certificate is not None
        made: Certificate = result.certificate
        return made if masks is None else masks.named(made)

    def verify(self, certificate: Certificate) -> Statements:
        """In a job of its own."""
        self.next_job()
        transport = self.transport(PATIENT)
        try:
            return gather(transport, json.dumps(certificate.to_json()).encode())
        finally:
            transport.close()


def problem_of(n_rows: int = 30, sites: tuple[str, ...] = ("north", "south", "west"), seed: int = 4) -> Problem:
    rng = np.random.default_rng(seed)
    centres = np.array([[0.0, 0.0], [8.0, 1.0], [2.0, 9.0]])
    rows = {name: centres[np.arange(n_rows) % 3] + rng.normal(size=(n_rows, 2)) for name in sites}
    return Problem.checked(rows, 3, domain=Domain(np.full(2, -8.0), np.full(2, 16.0)))


def judged(certificate: Certificate, statements: Statements, root: Path = ROOT) -> Report:
    """As `consentroid verify --root` does."""
    again = Statements.from_json(json.loads(json.dumps(statements.to_json())))
    total = again.total(certificate, Root.of_files(root).check_site(""))
    return verify_sums(certificate, total, np.array(again.subject.quanta, dtype=np.int64))
