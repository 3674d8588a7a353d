"""Which rows sit on the fence? The states of the US, held by four regions, by crime, poverty and schooling.

    python examples/states_by_region.py --seconds 60 --out states.png

A clustering is often used to say "these belong together". Whether that is a fact about the rows or an accident of the
run shows in the certified regions: a row is certain if every best clustering puts it into the same cluster.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from consentroid import FederatedKMeans, prepare
from consentroid.data.datasets import states

COLOURS = np.array(["#3366cc", "#dc5b2e", "#2c9c69"])


def main(seconds: float, out: Path) -> Path:
    regions, names = states()
    prepared = prepare(regions.tables)
    model = FederatedKMeans(3, gap=1e-6, time_limit=seconds, random_state=0).fit(prepared.rows)
    print(model.verdict_)
    listed = [name for region in regions.tables for name in names[region]]
    print(f"{int(model.certain_.sum())} of {len(listed)} states are in their cluster in every best clustering")
    centroids = prepared.transform.inverse_transform(model.cluster_centers_)
    for k, (violent, poverty, schooled) in enumerate(centroids):
        members = [name for name, label in zip(listed, model.labels_, strict=True) if label == k]
        print(f"cluster {k}: {violent:.0f} violent crimes per 100,000, {poverty:.1f} % poor, {schooled:.1f} % schooled")
        print(f"  {', '.join(members)}")

    figure, axes = plt.subplots(figsize=(9, 5.2), layout="constrained")
    rows = np.concatenate([table.rows for table in regions.tables.values()])
    axes.scatter(rows[:, 1], rows[:, 0], c=COLOURS[model.labels_], s=26, linewidths=0)
    for name, row in zip(listed, rows, strict=True):
        beside = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
        axes.annotate(name, (row[1], row[0]), fontsize=6, color="#555555", **beside)
    axes.scatter(centroids[:, 1], centroids[:, 0], c="black", marker="x", s=90, linewidths=2.5, label="centroids")
    axes.set(xlabel="people in poverty, %", ylabel="violent crimes per 100,000 people, 2009", yscale="log")
    axes.set(yticks=[100, 200, 400, 800], yticklabels=["100", "200", "400", "800"], xlim=(8, 23))
    axes.set(title="Colour: cluster. The District of Columbia is one of its own: its centroid is its row.")
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(out, dpi=110)
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="time for the proof")
    parser.add_argument("--out", type=Path, default=Path("states.png"))
    arguments = parser.parse_args()
    print(f"Drawn: {main(arguments.seconds, arguments.out)}")
