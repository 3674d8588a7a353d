"""How many clusters? Patients with lung cancer at 18 institutions, some values missing.

    python examples/lung_by_institution.py --seconds 20 --out lung.png

Missing values are filled with means over all institutions, computed from sums. For each number of clusters, `select_k`
gives the inertia attained and a proven bound: the truth lies in the band between them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from consentroid import prepare, select_k
from consentroid.data.datasets import lung


def main(seconds: float, out: Path) -> Path:
    sites = lung(("age", "wt.loss"))
    missing = sum(int(np.isnan(table.rows).sum()) for table in sites.tables.values())
    prepared = prepare(sites.tables, imputation=True)
    print(f"{len(sites.tables)} institutions, {prepared.moments.n_rows} patients, {missing} missing values filled in")

    selection = select_k(prepared.rows, range(1, 5), gap=1e-4, time_limit=seconds, seed=0)
    print(f"{'K':>2} {'bound':>9} {'attained':>9} {'gap':>8} {'silhouette':>11}")
    for choice in selection.choices:
        print(
            f"{choice.n_clusters:>2} {choice.lower:>9.3f} {choice.upper:>9.3f} {100 * choice.gap:>7.2f}% "
            f"{choice.quality.silhouette:>11.3f}"
        )
    print(f"best silhouette: {selection.best().n_clusters} clusters")
    return selection.plot(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="time for each number of clusters")
    parser.add_argument("--out", type=Path, default=Path("lung.png"))
    arguments = parser.parse_args()
    print(f"Drawn: {main(arguments.seconds, arguments.out)}")
