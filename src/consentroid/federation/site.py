"""What runs at a site inside a FLARE job: answers the coordinator from the private table named in the kit's local/.

The component takes no arguments, so a job cannot tell it what to read. Who may ask is settled by `signing.py`, how the
conversation goes by `desk.py`, what is answered by `answering.py` under the site's own policy.
"""

from __future__ import annotations

import logging
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import JobMetaKey
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from ..certificate.signatures import Root
from ..core.errors import InvalidInput, NodeRefused
from ..core.names import visible
from ..site.masks import SiteMasks
from ..site.policy import Policy
from .answering import Answering
from .approval import Approvals
from .desk import Desk, serve
from .keys import read_certificate
from .private_table import PrivateTable
from .protocol import TOPIC
from .signing import Gate, Signer
from .site_log import LOG_FILE, SiteLog

SUBMITTER = ".__nvfl_submitter.crt"  # the engine puts it into every folder of a signed job

log = logging.getLogger(__name__)


class ConsentroidSite(Executor):  # type: ignore[misc]
    """The component that a job names at every site; see `job.py`."""

    def __init__(self) -> None:
        super().__init__()
        self._desk: Desk | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.START_RUN:
            try:
                self._desk = open_desk(fl_ctx)
            except InvalidInput as error:  # without a desk every call is answered with an error
                log.error("this site answers nothing: %s", error)
            fl_ctx.get_engine().register_aux_message_handler(TOPIC, self._handle)
        elif event_type == EventType.END_RUN and self._desk is not None:
            self._desk.close()

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        return make_reply(ReturnCode.TASK_UNKNOWN)

    def _handle(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        if self._desk is None:
            return make_reply(ReturnCode.BAD_REQUEST_DATA)
        return serve(self._desk, request)


def open_desk(fl_ctx: FLContext) -> Desk:
    workspace = fl_ctx.get_workspace()
    kit, local = Path(workspace.get_root_dir()), Path(workspace.get_site_config_dir())
    startup = Path(workspace.get_startup_kit_dir())
    name, job = str(fl_ctx.get_identity_name()), str(fl_ctx.get_job_id())
    gate, signer = Gate.of_site(startup, name, job), Signer.of_site(startup)
    check_submitters(Root.read(startup), Path(workspace.get_app_dir(job)))
    policy, approvals = Policy.read(local), Approvals(kit)
    answering = Answering(
        site=name,
        source=PrivateTable(kit, name, policy),
        policy=policy,
        book=SiteLog(kit / LOG_FILE),
        approvals=approvals,
        who=_submitter(fl_ctx),
        masks=SiteMasks(job, name, signer.sign, signer.certificate, gate.check_site),
        signer=signer,
    )
    return Desk(gate, answering, waiting=lambda: approvals.waiting)


def check_submitters(root: Root, app: Path) -> None:
    """Whoever signed the job (the engine has checked its signatures) must not be revoked; the engine knows no list."""
    for path in app.rglob(SUBMITTER):
        try:
            root.holder(read_certificate(path).public_bytes(serialization.Encoding.DER))
        except NodeRefused as refusal:
            raise InvalidInput(f"who submitted the job may not: {refusal}") from None


def _submitter(fl_ctx: FLContext) -> str:
    meta = fl_ctx.get_prop(FLContextKey.JOB_META)
    name = meta.get(JobMetaKey.SUBMITTER_NAME.value) if isinstance(meta, dict) else None
    return visible(str(name))[:200] if name else "unknown"
