"""What a benchmark wrote as JSON, as the Markdown tables of the pages in docs/.

    python -m consentroid.bench.markdown_tables FILE

knows the files of `consentroid replay --out`, and of `bench figures`, `published`, `growth` and `profile` with `--out`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from ..paper.replay import METHODS, Record
from ..paper.results import PAPER, PAPER_MEAN
from . import figures, growth, profile, published


def pages_of(told: Any) -> Iterator[str]:
    """Sentences and tables of one file."""
    if isinstance(told, list):
        yield replay_table([Record(**entry) for entry in told])
        return
    machine = told["machine"]
    yield f"{told['date']}, {machine['cores']} cores ({machine['processor']}), load {machine['load']}"
    if told["bench"] == "figures":
        held = figures.held_in(told)
        yield "\n".join(figures.summary(held))
        yield figures.grid_of(held).for_page()
    elif told["bench"] == "published":
        solved = published.solved_in(told)
        yield "\n".join(published.summary(solved))
        yield published.grid_of(solved).for_page()
    elif told["bench"] == "growth":
        for grid in growth.grids_of(growth.points_in(told)):
            yield f"### {grid.title}"
            yield grid.for_page()
    else:
        yield profile.grid_of(profile.runs_in(told)).for_page()


def replay_table(records: list[Record]) -> str:
    lines = [
        "| class | n | method | iterations | gap % | T_comp s | measured s | paper: iter. | gap % | T_comp s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in [*dict.fromkeys(record.instance_class for record in records), "mean"]:
        for method in METHODS:
            chosen = [r for r in records if r.method == method and name in (r.instance_class, "mean")]
            if chosen:
                paper = PAPER_MEAN if name == "mean" else PAPER.get(name.split()[0], {})
                lines.append(_row(name, method, chosen, paper))
    return "\n".join(lines)


def _row(name: str, method: str, records: list[Record], paper: dict[str, tuple[float, float, float]]) -> str:
    ours = [fmean(getattr(r, f) for r in records) for f in ("iterations", "paper_gap", "t_comp", "seconds")]
    theirs = " | ".join(f"{x:g}" for x in paper[method]) if method in paper else "– | – | –"
    cells = f"{ours[0]:.1f} | {100 * ours[1]:.2f} | {ours[2]:.1f} | {ours[3]:.2f}"
    return f"| {name} | {len(records)} | {method} | {cells} | {theirs} |"


if __name__ == "__main__":
    print("\n\n".join(pages_of(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))))
