"""Replay records (JSON of `consentroid replay`) as the Markdown table of docs/replay.md.

    python -m consentroid.bench.markdown_tables replay.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import fmean

from ..paper.replay import METHODS, Record
from ..paper.results import PAPER, PAPER_MEAN


def row(name: str, method: str, records: list[Record], paper: dict[str, tuple[float, float, float]]) -> str:
    ours = [fmean(getattr(r, f) for r in records) for f in ("iterations", "paper_gap", "t_comp", "seconds")]
    theirs = " | ".join(f"{x:g}" for x in paper[method]) if method in paper else "– | – | –"
    cells = f"{ours[0]:.1f} | {100 * ours[1]:.2f} | {ours[2]:.1f} | {ours[3]:.2f}"
    return f"| {name} | {len(records)} | {method} | {cells} | {theirs} |"


def main(path: str) -> None:
    records = [Record(**entry) for entry in json.loads(Path(path).read_text())]
    print("| class | n | method | iterations | gap % | T_comp s | measured s | paper: iter. | gap % | T_comp s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    names = [*dict.fromkeys(r.instance_class for r in records), "mean"]
    for name in names:
        for method in METHODS:
            chosen = [r for r in records if r.method == method and name in (r.instance_class, "mean")]
            if chosen:
                print(row(name, method, chosen, PAPER_MEAN if name == "mean" else PAPER.get(name.split()[0], {})))


if __name__ == "__main__":
    main(sys.argv[1])
