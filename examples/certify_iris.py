"""How good is a clustering that scikit-learn found?

    python examples/certify_iris.py --seconds 20 --out certify.png

All 150 flowers are on one machine. The same flowers spread over six sites have the same bound: all that crosses are
sums, so the number of sites costs nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris

from consentroid import certify

SITES = 6


def main(seconds: float, out: Path) -> Path:
    flowers = load_iris().data
    found = KMeans(3, n_init=10, random_state=0).fit(flowers)
    site = np.random.default_rng(0).permutation(np.arange(len(flowers)) % SITES)
    verdicts = {
        "one table": certify(found, flowers, gap=1e-3, time_limit=seconds),
        f"{SITES} sites": certify(found, flowers, site, gap=1e-3, time_limit=seconds),
    }
    for name, verdict in verdicts.items():
        print(
            f"{name:<10} cost {verdict.cost:.4f}, proven bound {verdict.lower_bound:.4f}, "
            f"gap {100 * verdict.gap:.3g} % after {verdict.result.seconds:.1f} s ({verdict.result.stop_reason})"
        )

    figure, axes = plt.subplots(figsize=(7.5, 4), layout="constrained")
    for (name, verdict), colour in zip(verdicts.items(), ("#dc5b2e", "#3366cc")):
        records = verdict.result.trace
        gaps = [100 * max(verdict.cost - record.lower, 0) / verdict.cost for record in records]
        seconds_of = [record.seconds for record in records]
        axes.step(seconds_of, gaps, where="post", lw=2, marker="o", ms=3.5, color=colour, label=name)
    axes.set(xlabel="seconds", ylabel="gap of scikit-learn's clustering, %", xscale="log", yscale="log")
    axes.axhline(0.1, color="#2c9c69", lw=1, ls=":")
    axes.annotate("asked for", (1, 0.1), (0, 4), xycoords=("axes fraction", "data"), textcoords="offset points",
                  color="#2c9c69", ha="right")  # fmt: skip
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(out, dpi=150)
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="time for each proof")
    parser.add_argument("--out", type=Path, default=Path("certify.png"))
    arguments = parser.parse_args()
    print(f"Drawn: {main(arguments.seconds, arguments.out)}")
