"""Approval of a job by the site's owner: a file that says what is asked, and the owner's word beside it.

The job's process writes `JOB.json` and waits. `consentroid node approve` or `node refuse`, or the question that
`node start --approve` puts on its screen, write the decision; it holds for this job only.
"""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from ..core.errors import InvalidInput, NodeRefused

FOLDER = "approvals"
JOB = re.compile(r"[A-Za-z0-9-]{1,100}")
APPROVED, REFUSED = "approved", "refused"


@dataclass(frozen=True)
class Asked:
    """What the owner decides on."""

    job: str
    run: str
    who: str  # submitted the job
    n_sites: int
    n_clusters: int
    features: list[str]
    domain_given: bool
    masked: bool
    resumes: bool  # goes on with a run that was described in an earlier job
    time: float
    verifies: str = ""  # fingerprint of a certificate that is to be checked and signed; nothing else is asked then

    def in_words(self) -> str:
        if self.verifies:
            return (
                f"job {self.job}, submitted by {self.who}: check the certificate {self.verifies[:16]} of "
                f"{self.n_clusters} clusters over {self.n_sites} sites on this site's rows, and sign the outcome"
            )
        if self.resumes:
            return f"job {self.job}, submitted by {self.who}: goes on with {self.run} over {self.n_sites} sites"
        columns = ", ".join(self.features) if self.features else "all that the site offers"
        return (
            f"job {self.job}, submitted by {self.who}: {self.n_clusters} clusters over {self.n_sites} sites; "
            f"columns: {columns}; domain {'given' if self.domain_given else 'not given, extremes would be told'}; "
            f"sums {'masked' if self.masked else 'open'}"
        )


class Approvals:
    """The decisions kept in a site's kit."""

    def __init__(self, kit: Path) -> None:
        self._folder = kit / FOLDER
        self.waiting = False

    def wait(self, asked: Asked, pause: float = 0.3) -> None:
        """Until the owner has decided; raises `NodeRefused` if the answer is no."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        _write(self._place(asked.job, "json"), json.dumps(asdict(asked)) + "\n")
        self.waiting = True
        try:
            while True:
                decision = self.decision(asked.job)
                if decision == APPROVED:
                    return
                if decision == REFUSED:
                    raise NodeRefused("the site's owner has refused this job")
                time.sleep(pause)
        finally:
            self.waiting = False

    def pending(self) -> list[Asked]:
        """Jobs without a decision, the oldest first."""
        found = []
        for path in self._folder.glob("*.json"):
            try:
                asked = Asked(**json.loads(path.read_text()))
            except (OSError, ValueError, TypeError):
                continue
            if self.decision(asked.job) is None:
                found.append(asked)
        return sorted(found, key=lambda asked: asked.time)

    def decision(self, job: str) -> str | None:
        for word in (REFUSED, APPROVED):
            if self._place(job, word).exists():
                return word
        return None

    def decide(self, job: str, word: str) -> None:
        if not self._place(job, "json").exists():
            raise InvalidInput(f"job '{job}' has not asked for approval here; `consentroid node approve` lists those")
        _write(self._place(job, word), "")

    def forget(self, keep_days: int) -> None:
        oldest = time.time() - keep_days * 24 * 3600.0
        for path in self._folder.glob("*"):
            if path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)

    def _place(self, job: str, suffix: str) -> Path:
        if not JOB.fullmatch(job):
            raise InvalidInput("the name of a job has letters, digits and '-' only")
        return self._folder / f"{job}.{suffix}"


def _write(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
