"""What a benchmark wrote as JSON, as the Markdown tables of the pages in docs/.

    python -m consentroid.bench.markdown_tables FILE [--into PAGE] [--mark NAME]

knows the files of `consentroid replay --out`, and of `bench disclosure`, `figures`, `published`, `growth` and `profile`
with `--out`.
With `--into` the tables replace what stands between <!-- NAME --> and <!-- end --> in a page; NAME is the benchmark's
unless given.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from ..core.errors import InvalidInput
from ..paper.replay import METHODS, Record
from ..paper.results import PAPER, PAPER_MEAN
from . import disclosure, figures, growth, profile, published


def pages_of(told: Any) -> Iterator[str]:
    """Sentences and tables of one file."""
    if isinstance(told, list):
        yield replay_table([Record(**entry) for entry in told])
        return
    machine = told["machine"]
    yield f"Measured {told['date']}, {machine['cores']} cores ({machine['processor']}), load {machine['load']}."
    if told["bench"] == "figures":
        held = figures.held_in(told)
        yield "\n".join(figures.summary(held))
        yield figures.grid_of(held).for_page()
    elif told["bench"] == "published":
        solved = published.solved_in(told)
        yield "\n".join(published.summary(solved, told["gap"]))
        yield published.grid_of(solved, told["gap"]).for_page()
    elif told["bench"] == "growth":
        for grid in growth.grids_of(growth.points_in(told)):
            yield f"### {grid.title}"
            yield grid.for_page()
    elif told["bench"] == "disclosure":
        yield disclosure.grid_of(disclosure.disclosed_in(told)).for_page()
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


def put(page: str, mark: str, text: str) -> str:
    """The page with its marked part replaced."""
    part = re.compile(rf"(<!-- {re.escape(mark)} -->\n).*?(<!-- end -->)", re.S)
    if not part.search(page):
        raise InvalidInput(f"the page has no part between <!-- {mark} --> and <!-- end -->")
    return part.sub(lambda found: f"{found[1]}\n{text}\n\n{found[2]}", page, count=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--into", type=Path, metavar="PAGE")
    parser.add_argument("--mark", metavar="NAME")
    given = parser.parse_args()
    told = json.loads(given.file.read_text(encoding="utf-8"))
    text = "\n\n".join(pages_of(told))
    if given.into is None:
        print(text)
        return
    mark = given.mark or ("replay" if isinstance(told, list) else told["bench"])
    given.into.write_text(put(given.into.read_text(encoding="utf-8"), mark, text), encoding="utf-8")


if __name__ == "__main__":
    main()
