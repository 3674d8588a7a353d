"""What the operator of a site sees: which job, who submitted it, what was asked, how long it took, what is refused."""

from __future__ import annotations

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from ..core.names import visible
from .approval import APPROVED, REFUSED, Approvals, Asked
from .signing import FEATURES, HELLO, PEERS, TRANSFORM
from .site_log import ANSWERED, Entry, SiteLog, describe

SET_UP = (HELLO, PEERS, FEATURES, TRANSFORM)


class SiteScreen:
    """A live table of jobs on a terminal; elsewhere a line when a job begins and for each refusal."""

    def __init__(self, book: SiteLog, console: Console) -> None:
        self._book = book
        self._console = console
        self._seen = sum(1 for _ in book.entries())  # of earlier starts
        self._jobs: dict[str, list[Entry]] = {}
        self._live: Live | None = None

    def __enter__(self) -> SiteScreen:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.pause()

    def pause(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def update(self) -> None:
        """Show what has come in since the last call."""
        entries = list(self._book.entries())
        fresh, self._seen = entries[self._seen :], len(entries)
        for entry in fresh:
            begun = any(one.kind not in SET_UP for one in self._jobs.get(entry.job, []))
            if not begun and entry.kind not in SET_UP:
                self._say(f"job {entry.job[:8]} of {entry.who} begins: {words(entry)}")
            if entry.outcome != ANSWERED:
                self._say(f"job {entry.job[:8]}: {words(entry)}: {entry.outcome}")
            self._jobs.setdefault(entry.job, []).append(entry)
        if self._live is not None and self._jobs:
            self._live.update(self.table())

    def table(self) -> Table:
        table = Table(title="what is asked of this site", title_justify="left")
        for heading in ("job", "who", "questions", "last asked", "boxes", "smallest group", "seconds"):
            table.add_column(heading)
        for job, entries in list(self._jobs.items())[-5:]:
            last = entries[-1]
            groups = [entry.smallest_group for entry in entries if entry.smallest_group is not None]
            table.add_row(
                escape(job[:8]),
                escape(visible(last.who)),
                str(len(entries)),
                escape(words(last)),
                f"{sum(entry.boxes for entry in entries):,}",
                str(min(groups)) if groups else "",
                f"{sum(entry.seconds for entry in entries):.1f}",
            )
        return table

    def _say(self, text: str) -> None:
        self._console.print(escape(visible(text)), highlight=False)


def words(entry: Entry) -> str:
    parts = [f"question {entry.number}, {entry.kind}"]
    parts += [f"K = {entry.n_clusters}"] if entry.n_clusters else []
    parts += [f"{entry.boxes} boxes"] if entry.boxes else []
    parts += [f"{entry.points} points"] if entry.points else []
    return ", ".join(parts)


def decide(approvals: Approvals, console: Console, asked: Asked) -> None:
    """Ask the owner at the keyboard; anything but a clear yes is a no."""
    console.print(escape(visible(asked.in_words())), highlight=False)
    try:
        word = console.input("Approve this job? [y/N] ")
    except EOFError:
        word = ""
    decision = APPROVED if word.strip().lower() in ("y", "yes") else REFUSED
    approvals.decide(asked.job, decision)
    console.print(f"The job is {decision}.")


def log_table(entries: list[Entry]) -> Table:
    """The site's log for people; what is cut off on a narrow screen is whole in `--json`."""
    columns = {
        "time": "time", "who": "who", "run": "run", "number": "no.", "kind": "asked", "n_clusters": "K",
        "boxes": "boxes", "points": "points", "smallest_group": "smallest group", "digest": "digest",
        "outcome": "outcome",
    }  # fmt: skip
    whole = {"time", "number", "n_clusters", "boxes", "points", "outcome"}
    table = Table(title=f"{len(entries)} requests", title_justify="left", box=None, padding=(0, 1))
    for name, heading in columns.items():
        table.add_column(heading, no_wrap=name != "outcome", overflow="ellipsis", min_width=5 if name in whole else 1)
    for entry in entries:
        told = describe(entry)
        table.add_row(*(escape(visible(str(told[name]))) for name in columns))
    return table
