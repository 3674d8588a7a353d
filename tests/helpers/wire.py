"""Sites behind their desks, joined by function calls instead of TLS, so that a fault strikes at a known moment."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from consentroid.core.arrays import Array
from consentroid.core.problem import NodeData, Problem
from consentroid.data.preprocessing import Recipe
from consentroid.federation.answering import Answering
from consentroid.federation.approval import Approvals
from consentroid.federation.desk import Desk, serve
from consentroid.federation.preparing import feature_sums
from consentroid.federation.protocol import ASK, Limits
from consentroid.federation.signing import REQUEST, Gate, Signer
from consentroid.federation.site_log import SiteLog
from consentroid.federation.transport import FlareTransport
from consentroid.protocol import codec
from consentroid.site.fixed_point import FeatureSums
from consentroid.site.masks import SiteMasks
from consentroid.site.policy import Policy
from consentroid.site.worker import SiteWorker
from keys import SERVER, startup

NODES = ("north", "south", "west")
VICTIM = "south"
LIMITS = Limits(call=1.0, silence=1.0, slack=5.0, start=1.0, longest=20.0)
JOB = str(FLContext().get_job_id())
RUN = "run-of-tests"
FOLDER = Path(tempfile.mkdtemp())  # keys and logs of the sites
COORDINATOR = Signer.of_server(startup(FOLDER / SERVER, SERVER))
OPEN = Policy(masks="never", least_rows=1, most_questions=10**9)
SECURE = Policy(least_rows=1, most_questions=10**9)


class RowsOf:
    """A source whose worker is given."""

    def __init__(self, worker: Callable[[], SiteWorker], kept: Path | None = None) -> None:
        self._make = worker
        self._kept = kept
        self._recipe: Recipe | None = None

    def worker(self, run: str) -> SiteWorker:
        made = self._make()
        if self._recipe is None:
            return made
        rows = made.rows
        transformed = NodeData(rows.name, self._recipe.apply(rows.points), rows.weights)
        return SiteWorker(transformed, price_file=made.price_file, guard=made.guard)

    def features(self, reference: Array | None) -> FeatureSums:
        rows = self._make().rows
        return feature_sums(rows.points, rows.weights, reference)

    def transform(self, recipe: Recipe) -> None:
        self._recipe = recipe

    def rows(self) -> NodeData:
        return self.worker("").rows

    def scaling(self) -> dict[str, Any] | None:
        return None if self._recipe is None else self._recipe.as_dict()

    def kept_runs(self) -> Path | None:
        return self._kept

    def extent(self) -> tuple[float, float]:
        rows = self.worker("").rows
        return float(rows.weights.sum()), float(np.nanmax(np.abs(rows.points)))


def desk_of(name: str, worker: Callable[[], SiteWorker], policy: Policy = OPEN, kept: Path | None = None) -> Desk:
    """`kept`: folder of what the site keeps of its runs."""
    folder = startup(FOLDER / name, name)
    gate, signer = Gate.of_site(folder, name, JOB), Signer.of_site(folder)
    answering = Answering(
        site=name,
        source=RowsOf(worker, kept),
        policy=policy,
        book=SiteLog(FOLDER / f"{name}.jsonl"),
        approvals=Approvals(FOLDER),
        masks=SiteMasks(JOB, name, signer.sign, signer.certificate, gate.check_site),
        signer=signer,
    )
    return Desk(gate, answering, poll=0.2)


class Wire:
    """Carries calls from a `FlareTransport` to desks as FLARE's engine does; `fault` sees each call to the victim."""

    def __init__(self, problem: Problem, fault: Fault | None = None, policy: Policy = OPEN) -> None:
        self.problem = problem
        self.fault = fault
        self.policy = policy
        self.desks = {data.name: self._desk(data.name) for data in problem.nodes}

    def _desk(self, name: str) -> Desk:
        data = next(one for one in self.problem.nodes if one.name == name)
        return desk_of(name, lambda: SiteWorker(data, guard=self.policy.guard()), self.policy)

    def restart(self, name: str) -> None:
        """The node comes back without any memory."""
        self.desks[name].close()
        self.desks[name] = self._desk(name)

    def transport(self, limits: Limits = LIMITS) -> FlareTransport:
        return FlareTransport(self, FLContext(), tuple(self.desks), COORDINATOR.seal, RUN, limits)

    def send_aux_request(self, targets: list[str], request: Shareable, **_: Any) -> dict[str, Shareable]:
        (name,) = targets
        if self.fault is None or name != VICTIM:
            return {name: serve(self.desks[name], request)}
        return {name: self.fault(self, name, request)}

    def close(self) -> None:
        for desk in self.desks.values():
            desk.close()


Fault = Callable[[Wire, str, Shareable], Shareable]


def round_of(request: Shareable) -> int:
    """Of a query that is asked; −1 for everything else."""
    if request["call"] != ASK:
        return -1
    envelope = msgpack.unpackb(request["data"])
    if envelope["kind"] != REQUEST:
        return -1
    return getattr(codec.decode_request(envelope["content"]), "round", 0)
