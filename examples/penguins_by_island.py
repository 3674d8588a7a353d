"""Three islands, one clustering: penguins by island, without moving a bird.

    python examples/penguins_by_island.py --seconds 60 --out penguins.png

Each island keeps its measurements. The islands agree on a scale from sums, cluster together, and end with a proof of
how good the clusters are, and of where the centroids of *every* best clustering lie. The picture shows rows because all
three islands are on this machine.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from consentroid import FederatedKMeans, prepare
from consentroid.data.datasets import penguins

COLOURS = np.array(["#3366cc", "#dc5b2e", "#2c9c69"])
MARKERS = ("o", "s", "^")


def main(seconds: float, out: Path) -> Path:
    islands = penguins(("bill_length_mm", "flipper_length_mm"))
    prepared = prepare(islands.tables)  # counts, means, sums of squares and extremes leave an island
    model = FederatedKMeans(3, time_limit=seconds, random_state=0).fit(prepared.rows)
    print(f"cost {model.inertia_:.3f}, proven lower bound {model.lower_bound_:.3f}, gap {100 * model.gap_:.1g} %")
    print(f"{int(model.certain_.sum())} of {len(model.certain_)} birds are in their cluster in every best clustering")

    back = prepared.transform.inverse_transform
    centroids = back(model.cluster_centers_)
    boxes = model.centroid_regions_
    regions = None if boxes is None else back(boxes.reshape(-1, 2)).reshape(boxes.shape)
    for k, centroid in enumerate(centroids):
        counts = {island: int(np.sum(labels == k)) for island, labels in model.node_labels_.items()}
        known = "" if regions is None else " ± {:.3f}, {:.3f}".format(*(regions[k, 1] - regions[k, 0]) / 2)
        print(f"cluster {k}: bill {centroid[0]:.2f} mm, flipper {centroid[1]:.2f} mm{known}, birds {counts}")

    figure, (birds, near) = plt.subplots(1, 2, figsize=(11, 4.4), width_ratios=(1.5, 1), layout="constrained")
    for axes in (birds, near):
        for (island, table), marker in zip(islands.tables.items(), MARKERS, strict=True):
            colours = COLOURS[model.node_labels_[island]]
            axes.scatter(*table.rows.T, c=colours, marker=marker, s=22, alpha=0.65, linewidths=0)
        axes.scatter(*centroids.T, c="black", marker="x", s=90, linewidths=2.5, label="centroids of all islands")
        axes.spines[["top", "right"]].set_visible(False)
        axes.set(xlabel="bill length, mm", ylabel="flipper length, mm")
    for island, marker in zip(islands.tables, MARKERS, strict=True):
        birds.scatter([], [], c="#666666", marker=marker, s=22, label=island)
    birds.set(title="Colour: cluster. Shape: island.")
    birds.legend(frameon=False)
    if regions is None:
        near.set(title="No certified regions in this time")
    else:  # the widest region, and four times as much around it
        k = int(np.argmax((regions[:, 1] - regions[:, 0]).prod(axis=1)))
        low, high = regions[k]
        width = high - low
        near.add_patch(Rectangle(low, *width, facecolor=COLOURS[k], alpha=0.3, edgecolor=COLOURS[k], lw=1.5))
        near.set(
            xlim=(low[0] - 2 * width[0], high[0] + 2 * width[0]),
            ylim=(low[1] - 2 * width[1], high[1] + 2 * width[1]),
            title="Close up: every best clustering\nhas a centroid in this box",
        )
    figure.savefig(out, dpi=110)
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="time for the proof")
    parser.add_argument("--out", type=Path, default=Path("penguins.png"))
    arguments = parser.parse_args()
    print(f"Drawn: {main(arguments.seconds, arguments.out)}")
