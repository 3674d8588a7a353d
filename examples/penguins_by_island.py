"""Three islands, one clustering: penguins by island, without moving a bird.

    python examples/penguins_by_island.py --seconds 60 --out penguins.png

Each island keeps its measurements. The islands agree on a scale from sums, cluster together, and end with a proof of
how good the clusters are. The picture shows rows because all three islands are on this machine.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from consentroid import FederatedKMeans, prepare
from consentroid.data.datasets import penguins

COLOURS = np.array(["#3366cc", "#dc5b2e", "#2c9c69"])
MARKERS = ("o", "s", "^")


def main(seconds: float, out: Path) -> Path:
    islands = penguins(("bill_length_mm", "flipper_length_mm"))
    prepared = prepare(islands.tables)  # only counts, means and sums of squares leave an island

    model = FederatedKMeans(3, gap=1e-3, time_limit=seconds, random_state=0).fit(prepared.rows)
    labels = model.predict(prepared.rows)
    print(f"cost {model.inertia_:.3f}, proven lower bound {model.lower_bound_:.3f}, gap {100 * model.gap_:.3g} %")
    print(f"stopped after {model.n_rounds_} rounds: {model.stop_reason_}")
    centroids = prepared.transform.inverse_transform(model.cluster_centers_)
    for k, centroid in enumerate(centroids):
        counts = {island: int(np.sum(labels[island] == k)) for island in labels}
        print(f"cluster {k}: bill {centroid[0]:.1f} mm, flipper {centroid[1]:.1f} mm, birds {counts}")

    figure, (birds, gap) = plt.subplots(1, 2, figsize=(11, 4.4), width_ratios=(1.4, 1), layout="constrained")
    for (island, table), marker in zip(islands.tables.items(), MARKERS):
        colours = COLOURS[labels[island]]
        birds.scatter(*table.rows.T, c=colours, marker=marker, s=22, alpha=0.65, linewidths=0)
        birds.scatter([], [], c="#666666", marker=marker, s=22, label=island)
    birds.scatter(*centroids.T, c="black", marker="x", s=90, linewidths=2.5, label="centroids of all islands")
    birds.set(xlabel="bill length, mm", ylabel="flipper length, mm", title="Colour: cluster. Shape: island.")
    birds.legend(frameon=False)
    known = [record for record in model.history_ if record["upper"] < np.inf]
    left = [100 * (r["upper"] - r["lower"]) / r["upper"] for r in known]
    gap.step([r["seconds"] for r in known], left, where="post", color=COLOURS[0], lw=2)
    gap.set(yscale="log", xlabel="seconds", ylabel="proven gap, %", title="What is left to prove")
    for axes in (birds, gap):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(out, dpi=150)
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="time for the proof")
    parser.add_argument("--out", type=Path, default=Path("penguins.png"))
    arguments = parser.parse_args()
    print(f"Drawn: {main(arguments.seconds, arguments.out)}")
