"""Who has to be trusted? Eleven firms cluster their yearly accounts, and each re-checks its own part of the proof.

    python examples/firms_check_their_part.py --seconds 60 --out firms.png

The certificate says what every firm contributed to the bound. A firm checks that with its own books and its own prices,
and needs nothing of the others; somebody who may see all books checks everything.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from consentroid import fit, prepare
from consentroid.data.datasets import grunfeld
from consentroid.verify import verify

COLOURS = ("#3366cc", "#dc5b2e", "#2c9c69")
FIRM = "General Motors"


def main(seconds: float, out: Path) -> Path:
    books = grunfeld()
    logs = {firm: np.log(table.rows) for firm, table in books.tables.items()}  # firms differ by orders of magnitude
    prepared = prepare(logs)
    with tempfile.TemporaryDirectory() as name:
        result = fit(prepared.rows, 3, time_limit=seconds, folder=Path(name))
        prices = {firm: Path(name) / f"prices-{firm}.npz" for firm in logs}  # each is its firm's own
        print(f"cost {result.upper_bound:.3f}, proven lower bound {result.lower_bound:.3f}")

        own = verify(result.certificate, {FIRM: prepared.rows[FIRM]}, {FIRM: prices[FIRM]})
        checked = [site.name for site in own.sites if site.checked]
        print(f"{FIRM} with its own books: claims of {', '.join(checked)} hold; verified as a whole: {own.verified}")
        if own.conditional_bound is not None:
            others, bound = len(own.unchecked), own.conditional_bound
            print(f"if those of the {others} others hold as well, no three centroids cost less than {bound:.3f}")
        every = verify(result.certificate, prepared.rows, prices)
        print(f"with all books: verified {every.verified}, {every.n_boxes:,} boxes, gap {100 * every.gap:.1g} %")

    figure, (accounts, firms) = plt.subplots(1, 2, figsize=(11, 4.4), width_ratios=(1.2, 1), layout="constrained")
    centroids = np.exp(prepared.transform.inverse_transform(result.centroids))
    shares = np.array([site.counts for site in result.sites])
    for k, colour in enumerate(COLOURS):
        mine = [np.exp(table)[nearest(prepared.rows[firm], result.centroids) == k] for firm, table in logs.items()]
        accounts.scatter(*np.concatenate(mine)[:, [1, 0]].T, c=colour, s=16, alpha=0.6, linewidths=0)
        left = shares[:, :k].sum(axis=1)
        firms.barh([site.name for site in result.sites], shares[:, k], left=left, color=colour)
    accounts.scatter(*centroids[:, [1, 0]].T, c="black", marker="x", s=90, linewidths=2.5, label="centroids")
    accounts.set(xscale="log", yscale="log", xlabel="value of the firm, million $", ylabel="investment, million $")
    accounts.set(title="220 years of accounts. Colour: cluster.")
    accounts.legend(frameon=False, loc="upper left")
    firms.set(xlabel="years in each cluster, 1935 to 1954", xticks=range(0, 21, 5))
    firms.invert_yaxis()
    for axes in (accounts, firms):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(out, dpi=110)
    return out


def nearest(rows: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    return ((rows[:, None] - centroids[None]) ** 2).sum(axis=2).argmin(axis=1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="time for the proof")
    parser.add_argument("--out", type=Path, default=Path("firms.png"))
    arguments = parser.parse_args()
    print(f"Drawn: {main(arguments.seconds, arguments.out)}")
