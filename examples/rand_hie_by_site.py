"""What do the usual federated methods lose? The RAND Health Insurance Experiment at its six sites.

    python examples/rand_hie_by_site.py --seconds 60 --out rand_hie.png

consentroid, federated Lloyd, plain averaging, k-FED and pooled scikit-learn cluster the same people. All are measured
against the bound that consentroid proves; none of the others can say how far from the best it is.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from consentroid import compare, prepare
from consentroid.data.datasets import rand_hie


def main(seconds: float, out: Path, year: int | None = 1) -> Path:
    sites = rand_hie(("xage", "disea"), year=year)  # age, and number of chronic diseases
    prepared = prepare(sites.tables)
    comparison = compare(prepared.rows, 3, seed=0, gap=1e-4, time_limit=seconds)
    print(f"{prepared.moments.n_rows} people at {len(sites.tables)} sites, bound {comparison.lower_bound:.4f}")
    print(f"{'method':<12} {'cost':>11} {'gap':>8} {'rounds':>6} {'bytes':>10}  rows leave")
    for line in comparison.lines:
        traffic = line.bytes_up + line.bytes_down
        leave = "yes" if line.rows_leave else "no"
        print(f"{line.method:<12} {line.cost:>11.4f} {100 * line.gap:>7.2f}% {line.rounds:>6} {traffic:>10}  {leave}")

    figure, axes = plt.subplots(figsize=(7.5, 3.2), layout="constrained")
    lines = list(reversed(comparison.lines))
    least = min(line.cost for line in lines)
    extra = [100 * (line.cost - least) / least for line in lines]
    bars = axes.barh([line.method for line in lines], extra, color="#b9c4d0", height=0.6)
    bars[-1].set_color("#3366cc")
    axes.bar_label(bars, [f" {value:.2g} %" for value in extra], padding=2)
    left = 100 * (least - comparison.lower_bound) / least
    axes.set(
        xlabel="cost above the best one found, %",
        xlim=(0, 1.2 * max(max(extra), 0.01)),
        title=f"Proven: no clustering costs more than {left:.2f} % less than the best one here",
    )
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(out, dpi=110)
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="time for the proof")
    parser.add_argument("--out", type=Path, default=Path("rand_hie.png"))
    parser.add_argument("--year", type=int, default=1, help="year of the experiment, 1 to 5")
    arguments = parser.parse_args()
    print(f"Drawn: {main(arguments.seconds, arguments.out, arguments.year)}")
