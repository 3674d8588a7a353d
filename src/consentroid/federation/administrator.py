"""A run on a federation, as its administrator sees it: submit, follow, resume after a loss, fetch the results.

A run can take several FLARE jobs. When a node is lost, or the coordinator, its job ends; once all nodes are connected
again, the next job of the same run goes on from the journal that the server keeps. Every wait has a limit, and the
error that ends a run names the node, the reason and how to resume.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import logging
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..core.errors import ConsentroidError, FederationFailed, InvalidInput, NodeFailed
from ..report.files import output_folder
from .controls import require_engine
from .job import JobArguments, write_job
from .kit import admin_name
from .protocol import STATUS

FILES = ("result.json", "certificate.json", "trace.jsonl")
RUN_FILE = "run.json"  # in the output folder: which run and job this folder belongs to
POLL = 0.5

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Progress:
    """What the live table shows."""

    phase: str  # "waiting for nodes", "starting", "running", "finishing"
    job: int = 0  # how many jobs this run has taken
    status: dict[str, Any] | None = None  # of the coordinator: nodes and the last round's record
    note: str = ""


OnProgress = Callable[[Progress], None]


@dataclass(frozen=True)
class Patience:
    """Seconds that an administrator waits before giving up."""

    server: float = 60.0  # for the server to answer
    nodes: float = 300.0  # for all nodes to be connected, also after a loss
    start: float = 120.0  # for a job to start
    finish: float = 45.0  # for FLARE to wrap a job up


class Federation:
    """A connection to a federation's server as its administrator."""

    def __init__(self, kit: Path, patience: Patience | None = None) -> None:
        require_engine()
        self._kit = kit
        self._user = admin_name(kit)
        self._patience = patience or Patience()
        self._session: Any = None

    def fit(self, arguments: JobArguments, out: Path, on_progress: OnProgress | None = None, jobs: int = 10) -> Path:
        """Run to the end over as many jobs as it takes, at most `jobs`; the results' folder."""
        folder = output_folder(out)
        report = on_progress or (lambda progress: None)
        arguments, job_id = _resumed(arguments, folder)
        if job_id is not None and self._state(job_id) is None:
            job_id = None
        heard: dict[str, float] = {}  # nodes that were lost, and when they were last heard of
        for number in range(1, jobs + 1):
            if job_id is None:
                self.wait_for_nodes(arguments.nodes, heard, functools.partial(report_waiting, report, number))
                job_id = self.submit(arguments)
                _remember(arguments, job_id, folder)
            outcome = self.follow(job_id, number, report)
            if outcome.get("completed"):
                for name in FILES:
                    shutil.move(str(outcome["folder"] / name), str(folder / name))
                shutil.rmtree(outcome["root"], ignore_errors=True)
                (folder / RUN_FILE).unlink(missing_ok=True)
                return folder
            if not outcome.get("lost"):
                _remember(arguments, None, folder)  # once that is settled, the next job of the run goes on
                raise _error(outcome, folder)
            heard = {str(outcome["node"]): float(outcome["heard"])} if outcome.get("node") else {}
            who = f"node '{outcome['node']}' was lost: " if outcome.get("node") else ""
            report(Progress("interrupted", number, note=f"{who}{outcome['reason']}"))
            job_id = None
        raise FederationFailed(
            f"the run was interrupted {jobs} times; call the command again to resume it from {folder}"
        )

    def submit(self, arguments: JobArguments) -> str:
        with tempfile.TemporaryDirectory() as temporary:
            return self.submit_folder(write_job(Path(temporary, arguments.run), arguments))

    def submit_folder(self, job: Path) -> str:
        return str(self._command("submit_job", str(job), secrets.token_hex(16)))  # the token: submitted once only

    def connected(self) -> dict[str, float]:
        """Nodes at the server, and when each was last heard of."""
        return {client.name: float(client.last_connect_time) for client in self._command("get_system_info").client_info}

    def wait_for_nodes(
        self, nodes: tuple[str, ...], heard: dict[str, float] | None = None, report: Callable[[str], None] | None = None
    ) -> None:
        """Until every node is connected; one that was lost must have come back since."""
        deadline = time.monotonic() + self._patience.nodes
        while True:
            seen = self.connected()
            missing = [n for n in nodes if n not in seen or seen[n] <= (heard or {}).get(n, 0.0)]
            if not missing:
                return
            if report is not None:
                report(f"waiting for {', '.join(missing)}")
            if time.monotonic() > deadline:
                raise NodeFailed(
                    missing[0],
                    f"not connected for {self._patience.nodes:.0f} s; run `consentroid node start` there and try again",
                )
            time.sleep(POLL)

    def close(self) -> None:
        if self._session is not None:
            with contextlib.suppress(Exception):
                self._session.close()
            self._session = None

    def __enter__(self) -> Federation:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ------------------------------------------------------------------ one job

    def follow(self, job_id: str, number: int, report: OnProgress) -> dict[str, Any]:
        """Until the job has ended; what became of it."""
        status: dict[str, Any] | None = None
        phase, since = "starting", time.monotonic()
        limits = {"starting": self._patience.start, "finishing": self._patience.finish}
        while True:
            state = self._state(job_id)
            if state is None:
                return {"completed": False, "lost": True, "reason": "the server has forgotten the job"}
            if state.startswith("FINISHED"):
                return self._outcome(job_id, state)
            answer = self._status_of(job_id) if state == "RUNNING" else None
            if answer is not None:
                status, now = answer, "running"
            elif status is None:
                now = "starting"
            else:
                now = "finishing"
            if now != phase:
                phase, since = now, time.monotonic()
            report(Progress(phase, number, status))
            if phase in limits and time.monotonic() - since > limits[phase]:
                with contextlib.suppress(Exception):  # a courtesy: the next job does not depend on it
                    self._once("abort_job", job_id)
                reason = f"the job did not {'start' if phase == 'starting' else 'end'} within {limits[phase]:.0f} s"
                return {"completed": False, "lost": True, "reason": reason}
            time.sleep(POLL)

    def _state(self, job_id: str) -> str | None:
        try:
            return str(self._command("get_job_meta", job_id)["status"])
        except _UnknownJob:
            return None

    def _status_of(self, job_id: str) -> dict[str, Any] | None:
        """The coordinator's own account; nothing while it starts or ends."""
        try:
            return dict(self._once("do_app_command", job_id, STATUS, {}))
        except Exception:  # FLARE reports "not running yet" in many ways
            return None

    def _outcome(self, job_id: str, state: str) -> dict[str, Any]:
        root = Path(tempfile.mkdtemp(prefix="consentroid-"))
        place = Path(str(self._command("download_job_result", job_id, str(root)))) / "workspace" / "consentroid"
        try:
            outcome = dict(json.loads((place / "outcome.json").read_text()))
        except (OSError, ValueError):
            # The coordinator could not say why: its process or a node's ended under it.
            outcome = {"completed": False, "lost": True, "reason": f"FLARE ended the job ({state.lower()})"}
        if outcome.get("completed"):
            return outcome | {"folder": place, "root": root}
        shutil.rmtree(root, ignore_errors=True)
        return outcome

    # ------------------------------------------------------------------ the session

    def _command(self, name: str, *arguments: Any) -> Any:
        """A command of FLARE's, repeated over a new session while the server does not answer."""
        deadline = time.monotonic() + self._patience.server
        while True:
            try:
                return self._once(name, *arguments)
            except Exception as error:
                if _named(error, "JobNotFound"):
                    raise _UnknownJob(str(error)) from None
                if _named(error, "AuthorizationError", "InvalidJobDefinition"):
                    raise FederationFailed(f"the server refused '{name}': {error}") from None
                self.close()
                if time.monotonic() > deadline:
                    raise FederationFailed(
                        f"the server has not answered for {self._patience.server:.0f} s ({_words(error)}); "
                        "start it with `consentroid federation serve KIT` and try again"
                    ) from None
                time.sleep(1.0)

    def _once(self, name: str, *arguments: Any) -> Any:
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        with quiet():
            if self._session is None:
                self._session = new_secure_session(self._user, str(self._kit.resolve()), timeout=10.0)
            return getattr(self._session, name)(*arguments)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """FLARE talks to the terminal; what it says is in its logs, too."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


class _UnknownJob(FederationFailed):
    """The server does not know the job."""


def _named(error: Exception, *names: str) -> bool:
    return type(error).__name__ in names


def report_waiting(report: OnProgress, number: int, note: str) -> None:
    report(Progress("waiting for nodes", number, note=note))


def _words(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]


def _error(outcome: dict[str, Any], folder: Path) -> ConsentroidError:
    reason = str(outcome.get("reason", "no reason given"))
    node = outcome.get("node")
    if node is not None:
        return NodeFailed(str(node), f"{reason}; once that is settled, the same command resumes the run from {folder}")
    return InvalidInput(reason) if outcome.get("kind") == "InvalidInput" else FederationFailed(reason)


def new_run() -> str:
    return f"run-{secrets.token_hex(8)}"


def _resumed(arguments: JobArguments, folder: Path) -> tuple[JobArguments, str | None]:
    """The run that this folder already belongs to, if it asked for the same."""
    try:
        kept = json.loads((folder / RUN_FILE).read_text())
        earlier = JobArguments.checked(kept["arguments"])
    except (OSError, ValueError, KeyError, TypeError):
        return arguments, None
    if replace(earlier, run=arguments.run).as_dict() != json.loads(json.dumps(arguments.as_dict())):
        return arguments, None
    return earlier, None if kept["job"] is None else str(kept["job"])


def _remember(arguments: JobArguments, job_id: str | None, folder: Path) -> None:
    (folder / RUN_FILE).write_text(json.dumps({"arguments": arguments.as_dict(), "job": job_id}) + "\n")
