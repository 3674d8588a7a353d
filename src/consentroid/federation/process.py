"""The operating-system processes that serve kits: started in the foreground, stopped with all that they started."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from ..core.errors import InvalidInput
from .kit import ORGANISATION, site_name

PR_SET_PDEATHSIG = 1


def command(kit: Path) -> list[str]:
    """The FLARE process of a server's or node's kit."""
    settings = ["--set", "secure_train=true", f"org={ORGANISATION}", "config_folder=config"]
    if (kit / "startup" / "fed_server.json").exists():
        module, file = "nvflare.private.fed.app.server.server_train", "fed_server.json"
    else:
        module, file = "nvflare.private.fed.app.client.client_train", "fed_client.json"
        settings.append(f"uid={site_name(kit)}")
    return [sys.executable, "-u", "-m", module, "-m", str(kit.resolve()), "-s", file, *settings]


def environment() -> Mapping[str, str]:
    """One thread a numerical library: the node's solver decides itself how many cores it uses."""
    return os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "4"}


class Member:
    """A running server or node. Its output goes to `process.log` in its kit."""

    def __init__(self, kit: Path) -> None:
        self.kit = kit
        if not (kit / "startup").is_dir():
            raise InvalidInput(f"{kit} is not a kit; `consentroid federation init` makes them")
        with (kit / "process.log").open("ab") as log:
            self._process = subprocess.Popen(
                command(kit),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment(),
                start_new_session=True,  # an interrupt at the keyboard reaches us alone; we stop it in order
                preexec_fn=_die_with_parent,
            )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait(self, timeout: float | None = None) -> int:
        return self._process.wait(timeout)

    def stop(self, patience: float = 3.0) -> None:
        """Ask it to end, insist after a while, and leave no child behind."""
        family = self._family()
        for process in family:
            _signal(process, signal.SIGTERM)
        self._finish(family, patience)

    def kill(self) -> None:
        """As if the machine had lost power: the process and its job's worker at once."""
        family = self._family()
        for process in family:
            _signal(process, signal.SIGKILL)
        self._finish(family, 5.0)

    def workers(self) -> list[int]:
        """Process ids of the job's workers."""
        return [process.pid for process in self._family()[1:]]

    def _family(self) -> list[Any]:
        import psutil

        try:
            parent = psutil.Process(self._process.pid)
            return [parent, *parent.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _finish(self, family: list[Any], patience: float) -> None:
        import psutil

        _, alive = psutil.wait_procs(family, timeout=patience)
        for process in alive:
            _signal(process, signal.SIGKILL)
        psutil.wait_procs(alive, timeout=5.0)
        self._process.wait(5.0)

    def __enter__(self) -> Member:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


@contextlib.contextmanager
def ended_by_signal() -> Iterator[threading.Event]:
    """Set by Ctrl-C and by SIGTERM, so that whoever waits can stop what it started."""
    ended = threading.Event()
    before = {number: signal.signal(number, lambda *_: ended.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _signal(process: Any, number: int) -> None:
    import psutil

    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def _die_with_parent() -> None:
    """On Linux the kernel ends a member whose starter was killed; FLARE's workers follow their parent by themselves."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
