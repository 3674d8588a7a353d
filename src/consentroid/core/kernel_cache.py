"""Compiled kernels are kept on disk, one file per function, and renewed when that function's own file changes.

A kernel contains the kernels it calls, so that is not enough: after a change elsewhere the old code would still run.
The first import of a room's kernels after any file of the room changed therefore drops the index of all of them.
Kernels of one room call none of another.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from .compile import entry_points

STAMP = "consentroid-kernels.sha256"
PACKAGE = Path(__file__).parent.parent
ROOMS = {  # the files whose kernels call each other
    "paper": ("paper/node/_*.py", "paper/nearest/_*.py"),
    "site": ("site/kernels/*.py",),
    "rowprices": ("rowprices/judge.py",),
    "verify": ("verify/*.py",),
}


def drop_stale(only: str | None = None) -> None:
    """Forget kernels (of one room or all) that were compiled from other sources than the present ones; never fails.

    A module that imports the kernels of its room calls this once, after those imports.
    """
    for room in ROOMS if only is None else (only,):
        ours = [point for point in entry_points if point.py_func.__module__.startswith(f"{PACKAGE.name}.{room}.")]
        if ours:
            _renew({Path(point.stats.cache_path) for point in ours}, room)


def _renew(folders: set[Path], room: str) -> None:
    sources = sorted(source for pattern in ROOMS[room] for source in PACKAGE.glob(pattern))
    shared = [PACKAGE / "core" / "compile.py", PACKAGE / "core" / "arrays.py"]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in [*shared, *sources])).hexdigest()
    for folder in folders:
        try:
            stamp = folder / STAMP
            if stamp.exists() and stamp.read_text() == digest:
                continue
            folder.mkdir(parents=True, exist_ok=True)
            for source in sources:
                for index in folder.glob(f"{source.stem}.*.nbi"):
                    index.unlink(missing_ok=True)
            stamp.write_text(digest)
        except OSError as error:  # a read-only installation compiles anew in each process
            logging.getLogger(__name__).debug("cannot renew the kernel cache in %s: %s", folder, error)
