"""Loaded by the processes of a malicious site: it puts questions of its own to another site of the same job.

It knows everything that a site knows: the engine, the protocol, its own key and certificate, and every request that
the coordinator ever sent to it. What comes back is written to the file named by CONSENTROID_MALICE.
"""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any

VICTIM = "north"


def corrupt() -> None:
    import msgpack
    from nvflare.apis.event_type import EventType
    from nvflare.apis.shareable import Shareable

    from consentroid.federation import site as module
    from consentroid.federation.desk import serve
    from consentroid.federation.protocol import ASK, COLLECT, TOPIC
    from consentroid.federation.signing import REQUEST, Question, Signer, identifier_of
    from consentroid.protocol import codec
    from consentroid.protocol.messages import Describe, Evaluate, PriceQuery

    overheard: list[bytes] = []
    original = module.ConsentroidSite.handle_event

    def listening(desk: Any, request: Any) -> Any:
        if isinstance(request.get("data"), bytes):
            overheard.append(request["data"])
        return serve(desk, request)

    def attack(fl_ctx: Any) -> None:
        from pathlib import Path

        import numpy as np

        told: list[dict[str, Any]] = []
        engine, job = fl_ctx.get_engine(), str(fl_ctx.get_job_id())
        signer = Signer.of_site(Path(fl_ctx.get_workspace().get_startup_kit_dir()))
        contents = [
            codec.encode(Describe(2, np.full(2, -6.0), np.full(2, 16.0))),
            codec.encode(PriceQuery(1, evaluate=Evaluate(np.array([[[0.0, 0.0], [1e6, 1e6]]])))),
        ]
        for _ in range(200):
            if len(overheard) >= 4:
                break
            time.sleep(0.1)
        own = [msgpack.unpackb(data) for data in overheard[:4]]
        run = own[0]["run"] if own else "run-1"
        attempts: dict[str, bytes] = {}
        for i, content in enumerate(contents):
            question = Question(run, job, VICTIM, 3, 10_000 + i, REQUEST, content)
            sealed = signer.seal(question)
            attempts[f"plain {i}"] = content
            attempts[f"own key {i}"] = sealed
            if own:
                forged = msgpack.unpackb(sealed) | {"certificate": own[0]["certificate"]}
                attempts[f"the coordinator's certificate {i}"] = msgpack.packb(forged)
                spliced = own[0] | {"site": VICTIM, "content": content, "number": 10_010 + i}
                attempts[f"the coordinator's signature {i}"] = msgpack.packb(spliced)
        for i, data in enumerate(overheard[:4]):
            attempts[f"overheard {i}"] = data
            attempts[f"readdressed {i}"] = msgpack.packb(msgpack.unpackb(data) | {"site": VICTIM})
        for name, data in attempts.items():
            for call in (ASK, COLLECT):
                message = Shareable()
                message.update({"call": call, "id": identifier_of(data), "data": data})
                replies = engine.send_aux_request(
                    targets=[VICTIM], topic=TOPIC, request=message, timeout=5.0, fl_ctx=fl_ctx, optional=True
                )
                reply = (replies or {}).get(VICTIM)
                entry = {"attempt": name, "call": call, "reached": reply is not None}
                if reply is not None:
                    entry |= {"state": str(reply.get("state")), "bytes": len(reply.get("data") or b"")}
                    entry["code"] = str(reply.get_return_code())
                told.append(entry)
        with open(os.environ["CONSENTROID_MALICE"], "w") as file:
            json.dump(told, file)

    def handle_event(self: Any, event_type: str, fl_ctx: Any) -> None:
        original(self, event_type, fl_ctx)
        if event_type == EventType.START_RUN:
            threading.Thread(target=attack, args=(fl_ctx,), daemon=True).start()

    module.serve = listening
    module.ConsentroidSite.handle_event = handle_event  # type: ignore[method-assign]


if os.environ.get("CONSENTROID_MALICE"):
    corrupt()
