"""The coordinator as the workflow of a FLARE job, on the server.

FLARE does not bring a restarted site into a running job. When a node is lost, the controller therefore ends the job and
leaves the run's journal in the server's `runs/` folder: the next job of the same run goes on from there.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.signal import Signal

from ..certificate.signatures import Checker, Root, common_name
from ..certificate.statements import STATEMENTS_FILE
from ..core.errors import ConsentroidError, InvalidInput, NodeFailed
from ..core.result import FitResult, Step
from ..fitting import run
from ..protocol.transport import Transport
from ..report.files import Details, plain, step_as_dict, write_run
from ..site.policy import Policy
from ..transport.checked import CheckedTransport
from ..transport.journal import JournalTransport
from .job import JobArguments
from .keys import read_certificate
from .preparing import prepare
from .protocol import STATUS, Limits
from .secure import SecureTransport, check_sites
from .signing import Signer
from .transport import FlareTransport
from .verification import CERTIFICATE_FILE, VerifyArguments, gather, is_verification, write_statements

OUTCOME = "outcome.json"
JOURNAL = "journal.msgpack"
SITES = "sites.json"
RECIPE = "recipe.json"
FOLDER = "consentroid"  # in the job's result

log = logging.getLogger(__name__)


class ConsentroidController(Controller):  # type: ignore[misc]
    """The component that a job names at the server; `arguments` are untrusted until checked."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__()
        self._raw = arguments
        self._transport: FlareTransport | None = None
        self._secure: SecureTransport | None = None
        self._last: Step | None = None

    def start_controller(self, fl_ctx: FLContext) -> None:
        fl_ctx.get_engine().register_app_command(STATUS, self._status)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.CLIENT_DISCONNECTED and self._transport is not None:
            self._transport.report_dead(str(fl_ctx.get_prop(FLContextKey.DISCONNECTED_CLIENT_NAME)))

    def stop_controller(self, fl_ctx: FLContext) -> None:
        if self._transport is not None:
            self._transport.close()

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        workspace = fl_ctx.get_workspace()
        results = Path(workspace.get_result_root(fl_ctx.get_job_id())) / FOLDER
        results.mkdir(parents=True, exist_ok=True)
        try:
            if is_verification(self._raw):
                config = Path(workspace.get_app_config_dir(fl_ctx.get_job_id()))
                self._verify(VerifyArguments.checked(self._raw), config / CERTIFICATE_FILE, results, fl_ctx)
                _write_outcome(results, {"completed": True})
                return
            arguments = JobArguments.checked(self._raw)
            self._run(arguments, Path(workspace.get_root_dir()) / "runs" / arguments.run, results, fl_ctx)
            _write_outcome(results, {"completed": True})
        except ConsentroidError as error:
            _write_outcome(results, {"completed": False, "kind": type(error).__name__, **self._blame(error)})
            self.system_panic(str(error), fl_ctx)  # ends the job at once; the nodes are told by FLARE

    def _run(self, arguments: JobArguments, directory: Path, results: Path, fl_ctx: FLContext) -> FitResult:
        directory.mkdir(parents=True, exist_ok=True)
        self._transport = _transport(arguments, fl_ctx)
        settings, domain, details = arguments.settings, arguments.domain, Details()
        check = _checker(fl_ctx)
        if not settings.secure:
            check_sites(self._transport, check)
        if settings.scale != "none" or settings.impute:
            masks = SecureTransport(self._transport, domain, check=check) if settings.secure else None
            self._secure = masks
            recipe = prepare(self._transport, masks, settings.scale, settings.impute, domain, directory / RECIPE)
            domain, details = None if domain is None else recipe.transform.domain(domain), Details(recipe.as_dict())
        sites: Transport = self._transport
        if settings.secure:
            sites = self._secure = SecureTransport(self._transport, domain, directory / SITES, check)
        journal = JournalTransport(sites, directory / JOURNAL)
        log.info("run '%s': %d exchanges to replay", arguments.run, journal.resumable)
        result = run(
            CheckedTransport(journal),  # what a node said before binds it after a restart, too
            settings.n_clusters,
            domain=domain,
            gap=settings.gap,
            time_limit=settings.time_limit,
            seed=settings.seed,
            features=arguments.features,
            on_step=self._take_step,
            method=settings.method,
            **settings.paper,
        )
        if self._secure is not None:
            # names, rows and digests of the price files; nothing else of a site is known
            certificate = None if result.certificate is None else self._secure.named(result.certificate)
            result = replace(result, sites=self._secure.shares, certificate=certificate)
        write_run(results, without_small_cells(result), details)
        shutil.rmtree(directory, ignore_errors=True)  # the run is over: nothing is left to resume
        return result

    def _verify(self, arguments: VerifyArguments, certificate: Path, results: Path, fl_ctx: FLContext) -> None:
        """Have every site check a certificate, and gather what they sign."""
        self._transport = _transport(arguments, fl_ctx)
        try:
            text = certificate.read_bytes()
        except OSError as error:
            raise InvalidInput(f"the job has no certificate ({error.strerror})") from None
        write_statements(results / STATEMENTS_FILE, gather(self._transport, text, _checker(fl_ctx)))

    def _blame(self, error: ConsentroidError) -> dict[str, Any]:
        """Which node, why, and whether the run can go on once the node is back."""
        node, reason = (error.node, error.reason) if isinstance(error, NodeFailed) else (None, str(error))
        nodes = {} if self._transport is None else self._transport.status
        lost = {} if self._transport is None else self._transport.lost
        if lost:  # the loss of one node stops the others, too: name the one
            culprit, failure = next(iter(lost.items()))
            return {"node": culprit, "reason": failure.reason, "lost": True, "heard": nodes[culprit].heard}
        if node in nodes and nodes[node].state == "stopped":
            return {"node": None, "reason": reason, "lost": True}
        culprit_of_all = None if self._secure is None else self._secure.culprit
        if culprit_of_all is not None:  # the totals failed because of one site
            return {"node": culprit_of_all.node, "reason": culprit_of_all.reason, "lost": False}
        return {"node": node, "reason": reason, "lost": False}

    def _take_step(self, step: Step) -> None:
        self._last = step

    def _status(self, topic: str, data: Any, fl_ctx: FLContext) -> dict[str, Any]:
        nodes = {} if self._transport is None else self._transport.status
        return {
            "time": time.time(),
            "nodes": {name: asdict(status) for name, status in nodes.items()},
            "record": None if self._last is None else plain(step_as_dict(self._last)),
        }


def without_small_cells(result: FitResult, least: int = Policy().least_rows) -> FitResult:
    """Counts and radii of clusters of few rows are left out, and of the smallest other one where the few would be all
    that is missing: the number of all rows is known."""
    few = (result.counts > 0.0) & (result.counts < least)
    others = np.where(few | (result.counts <= 0.0), np.inf, result.counts)
    if few.any() and result.counts[few].sum() < least and np.isfinite(others).any():
        few[int(np.argmin(others))] = True
    if not few.any():
        return result
    left_out = float(result.counts[few].sum())
    counts, radii = np.where(few, 0.0, result.counts), np.where(few, np.nan, result.radii)
    return replace(result, counts=counts, radii=radii, withheld=result.withheld + left_out)


def _transport(arguments: JobArguments | VerifyArguments, fl_ctx: FLContext) -> FlareTransport:
    signer = Signer.of_server(Path(fl_ctx.get_workspace().get_startup_kit_dir()))
    limits = Limits(**arguments.limits)
    return FlareTransport(fl_ctx.get_engine(), fl_ctx, arguments.nodes, signer.seal, arguments.run, limits)


def _checker(fl_ctx: FLContext) -> Checker:
    """Says who is a site, by the server's own kit: its root, its list of revoked certificates, its own name."""
    startup = Path(fl_ctx.get_workspace().get_startup_kit_dir())
    name = common_name(read_certificate(startup / "server.crt").subject)
    return Root.read(startup).check_site(name)


def _write_outcome(directory: Path, outcome: dict[str, Any]) -> None:
    temporary = directory / f"{OUTCOME}.new"
    temporary.write_text(json.dumps(outcome) + "\n")
    os.replace(temporary, directory / OUTCOME)
