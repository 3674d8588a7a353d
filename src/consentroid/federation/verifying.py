"""Verification without pooling, at the administrator: submit the job, fetch the statements, judge them.

They are judged against the root certificate of the administrator's own kit, by the same code that anybody can use later
without the federation (`consentroid verify --root`): server and coordinator are not trusted with the outcome.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
from pathlib import Path

from ..certificate.document import Certificate
from ..certificate.statements import STATEMENTS_FILE
from ..core.errors import FederationFailed, NodeFailed
from .administrator import Federation, OnProgress, Progress, new_run, report_waiting
from .job import write_job_folder
from .kit import check_node_names
from .verification import CERTIFICATE_FILE, VerifyArguments

JOBS = 3  # a node lost on the way costs a new job; nothing needs to be resumed


def ask_for_statements(
    federation: Federation, certificate: Path, on_progress: OnProgress, limits: dict[str, float] | None = None
) -> Path:
    """Have every site of the certificate check it; the statements' file, beside the certificate."""
    sites = check_node_names(Certificate.read(certificate).sites)
    target = certificate.with_name(STATEMENTS_FILE)
    target.unlink(missing_ok=True)  # of an earlier attempt: what is there at the end is of this one
    for number in range(1, JOBS + 1):
        federation.wait_for_nodes(sites, report=functools.partial(report_waiting, on_progress, number))
        arguments = VerifyArguments(new_run(), sites, limits or {})
        with tempfile.TemporaryDirectory() as temporary:
            folder = write_job_folder(Path(temporary, arguments.run), arguments.run, sites, arguments.as_dict())
            shutil.copyfile(certificate, folder / "server" / "config" / CERTIFICATE_FILE)
            job_id = federation.submit_folder(folder)
        outcome = federation.follow(job_id, number, on_progress)
        if outcome.get("completed"):
            shutil.move(str(outcome["folder"] / STATEMENTS_FILE), str(target))
            shutil.rmtree(outcome["root"], ignore_errors=True)
            return target
        reason, node = str(outcome.get("reason", "no reason given")), outcome.get("node")
        if not outcome.get("lost"):
            raise NodeFailed(str(node), reason) if node is not None else FederationFailed(reason)
        on_progress(Progress("interrupted", number, note=f"node '{node}' was lost: {reason}" if node else reason))
    raise FederationFailed(f"the verification was interrupted {JOBS} times; nothing is verified")
