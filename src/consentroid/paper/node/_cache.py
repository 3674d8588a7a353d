"""Compiled kernels are kept on disk, one file a function, and renewed when that function's own file changes.

A kernel contains the kernels it calls, so that is not enough: after a change elsewhere the old code would still run.
The first import after any kernel file changed therefore drops the index of all of them.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from ._compile import entry_points

STAMP = "consentroid-kernels.sha256"


def drop_stale() -> None:
    """Forget compiled kernels that were made from other sources than the present ones; never fails."""
    here = Path(__file__).parent
    sources = sorted([*here.glob("_*.py"), *(here.parent / "nearest").glob("_*.py")])
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    for folder in {Path(point.stats.cache_path) for point in entry_points}:
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
