"""How good is a clustering that scikit-learn found? And does it cost anything that the rows lie at six sites?

    python examples/certify_iris.py --seconds 20 --out certify.png

K-means from one start, from ten, and from a bad one, each judged against the same proven bound. The bound is computed
twice, from one table and from six sites: all that crosses are sums, so it is the same.
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

SITES, N_CLUSTERS = 6, 4


def main(seconds: float, out: Path) -> Path:
    flowers = load_iris().data
    site = np.random.default_rng(0).permutation(np.arange(len(flowers)) % SITES)
    ten = KMeans(N_CLUSTERS, n_init=10, random_state=0).fit(flowers)
    here = certify(ten, flowers, time_limit=seconds)
    there = certify(ten, flowers, site, time_limit=seconds)
    print(f"one table  proven bound {here.lower_bound:.4f}")
    print(f"{SITES} sites    proven bound {there.lower_bound:.4f}")

    starts = [KMeans(N_CLUSTERS, init="random", n_init=1, random_state=seed).fit(flowers) for seed in range(40)]
    above = 100 * (np.array([start.inertia_ for start in starts]) / here.lower_bound - 1.0)
    print(f"the best of ten starts costs {ten.inertia_:.4f}: at most {100 * here.gap:.1g} % can be saved")
    print(f"{int(np.sum(above > 0.1))} of 40 single starts cost over 0.1 % more, the worst {above.max():.0f} %")

    figure, axes = plt.subplots(figsize=(7.5, 3.6), layout="constrained")
    axes.axhline(0.0, color="#2c9c69", lw=2, label="proven: nothing can cost less")
    axes.bar(range(40), np.sort(above), color="#3366cc", label="K-means from one random start")
    axes.set_yscale("symlog", linthresh=0.01)
    axes.set(xlabel="40 starts, sorted", ylabel="% above the proven bound", xticks=[], title="Iris, four clusters")
    axes.set(ylim=(-0.002, 400), yticks=[0, 0.01, 0.1, 1, 10, 100], yticklabels=["0", "0.01", "0.1", "1", "10", "100"])
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    figure.savefig(out, dpi=110)
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="time for each proof")
    parser.add_argument("--out", type=Path, default=Path("certify.png"))
    arguments = parser.parse_args()
    print(f"Drawn: {main(arguments.seconds, arguments.out)}")
