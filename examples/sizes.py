"""What can be proven in which time? Public data of growing size, each at several sites, all features standardised.

    python examples/sizes.py --seconds 60

Prints the table of README.md: seconds are those of this machine, after `consentroid warmup`.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator

import numpy as np
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

from consentroid import fit, prepare
from consentroid.data.datasets import penguins, rand_hie
from consentroid.report.wording import percent

Rows = dict[str, np.ndarray]


def at_sites(rows: np.ndarray, n_sites: int) -> Rows:
    """Rows dealt out to sites."""
    return {f"site {i + 1}": rows[i::n_sites] for i in range(n_sites)}


def problems() -> Iterator[tuple[str, Rows, int]]:
    islands = penguins().rows
    people = rand_hie().rows
    yield "iris", at_sites(load_iris().data, 3), 3
    yield "penguins by island", islands, 3
    yield "penguins by island", islands, 8
    yield "wine", at_sites(load_wine().data, 3), 3
    yield "breast cancer", at_sites(load_breast_cancer().data, 3), 2
    yield "RAND health insurance, by site", people, 4


def main(seconds: float, only: str) -> None:
    print("| data | rows × features | sites | K | seconds | proven gap |\n|---|---|---|---|---|---|")
    for name, rows, k in problems():
        if only not in name:
            continue
        prepared = prepare(rows)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the table itself says what is not certified
            result = fit(prepared.rows, k, gap=1e-4, time_limit=seconds, seed=0)
        n_rows, n_features = prepared.moments.n_rows, len(prepared.names)
        print(
            f"| {name} | {n_rows:,} × {n_features} | {len(rows)} | {k} | {result.seconds:.1f} "
            f"| {percent(result.gap)} |",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="time for each proof")
    parser.add_argument("--only", default="", help="only data whose name holds this")
    arguments = parser.parse_args()
    main(arguments.seconds, arguments.only)
