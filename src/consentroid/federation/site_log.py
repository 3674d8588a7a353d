"""What a site was asked, line by line: JSON, readable by its owner alone, kept for as long as the policy says.

One line a request: time, who asked, run, job, number, kind, K, boxes, points, the smallest group of rows that an answer
was made from, digest of the request, seconds, and what came of it. No line holds a value of a row.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..site.policy import Earlier

LOG_FILE = "requests.jsonl"
ANSWERED = "answered"
DAY = 24 * 3600.0


@dataclass(frozen=True)
class Entry:
    time: float
    who: str
    run: str
    job: str
    number: int
    kind: str
    n_clusters: int
    boxes: int
    points: int
    smallest_group: int | None
    digest: str
    seconds: float
    outcome: str  # `ANSWERED`, or the rule or reason of a refusal


class SiteLog:
    """Appends entries; several jobs may write to one file, a line each."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, entry: Entry) -> None:
        line = json.dumps(asdict(entry)) + "\n"
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)

    def entries(self) -> Iterator[Entry]:
        if not self.path.exists():
            return
        with self.path.open(encoding="utf-8") as file:
            for line in file:
                try:
                    yield Entry(**json.loads(line))
                except (ValueError, TypeError):  # torn by a killed process
                    continue

    def earlier(self, run: str) -> Earlier:
        """What a run has asked so far, and how many runs there were within a day, this one included."""
        entries, since = list(self.entries()), time.time() - DAY
        own = [entry for entry in entries if entry.run == run]
        described = [entry.n_clusters for entry in own if entry.kind == "describe" and entry.outcome == ANSWERED]
        return Earlier(
            questions=len(own),
            boxes=sum(entry.boxes for entry in own),
            points=sum(entry.points for entry in own),
            n_clusters=described[-1] if described else None,
            runs_today=len({entry.run for entry in entries if entry.time >= since} | {run}),
        )

    def forget(self, keep_days: int) -> int:
        """Drop lines older than that; how many were dropped."""
        oldest = time.time() - keep_days * DAY
        entries = list(self.entries())
        kept = [entry for entry in entries if entry.time >= oldest]
        if len(kept) < len(entries):
            fresh = self.path.with_suffix(".new")
            handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(asdict(entry)) + "\n" for entry in kept)
            os.replace(fresh, self.path)
        return len(entries) - len(kept)


def describe(entry: Entry) -> dict[str, Any]:
    """An entry for people."""
    when = time.strftime("%m-%d %H:%M:%S", time.localtime(entry.time))
    group = "" if entry.smallest_group is None else str(entry.smallest_group)
    return asdict(entry) | {"time": when, "smallest_group": group, "digest": entry.digest[:8], "run": entry.run[-6:]}
