"""`consentroid bench figures`: the figures that the engine is held to, what was measured, and whether they hold."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.errors import InvalidInput
from ..data.datasets import PENGUINS, RAND_HIE, penguins, rand_hie
from ..data.preprocessing import prepare
from . import grids
from .grids import Grid
from .runs import NoData, Rows, Run, document_of, in_sites, loaded, measure, mixture, read_published, standardised
from .show import Watch

STARTS = 1000  # of scikit-learn's K-means


@dataclass(frozen=True)
class Line:
    """One problem with the figure asked for."""

    group: str  # data, as the table of figures names them
    name: str
    figure: str  # in words
    n_clusters: int
    gap: float
    most_seconds: float
    rows: Callable[[], Rows]
    most_bytes: float | None = None  # per site: a figure of its own


@dataclass(frozen=True)
class Held:
    """What was measured of one line, and whether its figure holds; `run` is None where its data are missing."""

    group: str
    name: str
    figure: str
    run: Run | None
    holds: bool | None
    remark: str = ""


def lines(data: Path | None) -> list[Line]:
    def file(name: str, scale: bool = False) -> Callable[[], Rows]:
        def read() -> Rows:
            rows = read_published(data, name)
            return in_sites(standardised(rows) if scale else rows)

        return read

    second = "penguins, iris, mixtures (1e-4)"
    found = [
        Line(second, "penguins by island K=3", "< 1 s", 3, 1e-4, 1.0, birds, most_bytes=2e6),
        Line(second, "penguins by island K=8", "< 1 s", 8, 1e-4, 1.0, birds),
    ]
    found += [
        Line(second, "iris K=3", "< 1 s", 3, 1e-4, 1.0, iris),
        Line(second, "mixture 1000×3 K=4", "< 1 s", 4, 1e-4, 1.0, lambda: in_sites(structured(1000, 3, 4))),
        Line(second, "mixture 500×8 K=3", "< 1 s", 3, 1e-4, 1.0, lambda: in_sites(structured(500, 8, 3))),
        Line("wine (1e-4)", "wine standardised K=3", "< 15 s", 3, 1e-4, 15.0, wine),
        Line("glass (1e-4)", "glass K=6", "< 4 s", 6, 1e-4, 4.0, file("glass")),
    ]
    for name in ("pr299", "fl417", "ali535"):
        for k in (2, 4, 6, 8, 10):
            branches = k == 8 and name != "fl417"
            most = 30.0 if branches else 2.0
            group = "pr299, fl417, ali535 (1e-4)"
            found.append(Line(group, f"{name} K={k}", f"< {most:g} s", k, 1e-4, most, file(name)))
    found += [
        Line("RAND HIE (1e-3)", "RAND HIE by site K=4", "< 20 s", 4, 1e-3, 20.0, insured),
        Line("pulsar (1e-3)", "pulsar K=2", "< 20 s", 2, 1e-3, 20.0, file("pulsar")),
    ]
    return found


def birds() -> Rows:
    """The penguins' four measures, standardised over all islands; birds with a value missing are left out."""
    return prepare(penguins(PENGUINS).rows, scale="standard").rows


def insured() -> Rows:
    """Age, log income, chronic diseases and visits of the insured, standardised."""
    return loaded(lambda: prepare(rand_hie(RAND_HIE).rows, scale="standard").rows)


def iris() -> Rows:
    return in_sites(np.asarray(_of_sklearn("load_iris")))


def wine() -> Rows:
    return in_sites(standardised(np.asarray(_of_sklearn("load_wine"))))


def _of_sklearn(loader: str) -> Array:
    from sklearn import datasets

    return np.asarray(getattr(datasets, loader)().data, dtype=float)


def structured(n_rows: int, n_features: int, n_clusters: int) -> Array:
    """Clusters that can be told apart, and overlap."""
    return mixture(n_rows, n_features, n_clusters, spread=0.35, seed=1)


# ---------------------------------------------------------------------------------------------------- measured


def count(data: Path | None) -> int:
    return len(lines(data)) + 2


def check_all(data: Path | None, instances: Path | None, seconds: float, watch: Watch) -> Iterator[Held]:
    with watch.task("public instances"):
        held = of_instances(instances, seconds)
    yield held
    for line in lines(data):
        with watch.task(line.name) as on_step:
            try:
                rows = line.rows()
            except NoData as missing:
                yield Held(line.group, line.name, line.figure, None, None, str(missing))
                continue
            limit = max(seconds, 2 * line.most_seconds)
            run = measure(line.name, rows, line.n_clusters, gap=line.gap, time_limit=limit, on_step=on_step)
        remark = "" if run.proven else "not proven"
        yield Held(line.group, line.name, line.figure, run, run.proven and run.seconds < line.most_seconds, remark)
        if line.most_bytes is not None:
            figure, holds = f"< {grids.megabytes(line.most_bytes)} MB a site", run.bytes_per_site < line.most_bytes
            yield Held(
                "bytes per site (1e-4)", f"{line.name}, bytes", figure, run, run.proven and holds, "the same run"
            )
    with watch.task("u1060 K=50, scikit-learn"):
        held = of_many_starts(data, seconds)
    yield held


def of_instances(folder: Path | None, seconds: float) -> Held:
    """All public instances of the paper one after the other."""
    group, name, figure = "public instances of the paper (1e-6)", "24 public instances", "all, < 3 s together"
    if folder is None:
        return Held(group, name, figure, None, None, "no folder of instances given (--instances)")
    from ..paper.instances import load_folder

    optima = _optima(folder)
    runs, dear = [], []
    for instance in load_folder(folder):
        rows = {node.name: node.points for node in instance.problem.nodes}
        run = measure(instance.name, rows, instance.problem.n_clusters, gap=1e-6, time_limit=seconds)
        runs.append(run)
        if run.upper > optima.get(instance.name, float("inf")) * (1 + 1e-6):
            dear.append(instance.name)
    proven = sum(run.proven for run in runs)
    together = _together(runs, f"{proven} of {len(runs)} proven")
    holds = proven == len(runs) and together.seconds < 3.0 and not dear
    remark = f"{proven} of {len(runs)} proven" + (f"; not optimal: {', '.join(dear)}" if dear else "")
    return Held(group, name, figure, together, holds, remark)


def _optima(folder: Path) -> dict[str, float]:
    path = folder / "optima.csv"
    if not path.is_file():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return {line["instance"]: float(line["optimal_cost"]) for line in csv.DictReader(file)}


def _together(runs: Sequence[Run], name: str) -> Run:
    """Sums over all runs, and the worst gap."""
    worst = max(runs, key=lambda run: run.gap)
    return replace(
        worst,
        name=name,
        n_rows=sum(run.n_rows for run in runs),
        seconds=sum(run.seconds for run in runs),
        cpu_seconds=sum(run.cpu_seconds for run in runs),
        boxes=sum(run.boxes for run in runs),
        tree_nodes=sum(run.tree_nodes for run in runs),
        exchanges=sum(run.exchanges for run in runs),
        bytes_per_site=sum(run.bytes_per_site for run in runs),
        phases={},
    )


def of_many_starts(data: Path | None, seconds: float, n_starts: int = STARTS) -> Held:
    """The cost of u1060 K=50 against scikit-learn's best of many starts on the pooled rows."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    group, name, figure = "u1060 K=50 (cost)", "u1060 K=50", f"1.5 % below scikit-learn, {n_starts:,} starts"
    try:
        rows = read_published(data, "u1060")
    except NoData as missing:
        return Held(group, name, figure, None, None, str(missing))
    run = measure(name, in_sites(rows), 50, time_limit=seconds)
    with threadpool_limits(1):  # so few rows: threads only wait for each other
        theirs = float(KMeans(50, n_init=n_starts, random_state=0).fit(rows).inertia_)
    below = 1.0 - run.upper / theirs
    return Held(group, name, figure, run, below >= 0.015, f"{100 * below:.2f} % below {theirs:.6g}")


# ---------------------------------------------------------------------------------------------------- shown


def document(held: Sequence[Held]) -> dict[str, Any]:
    return document_of("figures", figures=[asdict(one) for one in held])


def held_in(told: dict[str, Any]) -> list[Held]:
    """Back from the JSON."""
    return [Held(**{**one, "run": None if one["run"] is None else Run(**one["run"])}) for one in told["figures"]]


def grid_of(held: Sequence[Held]) -> Grid:
    grid = Grid(
        "Figures to reach, and what was measured",
        ("problem", "figure", "holds", "seconds", "CPU s", "gap", "boxes", "nodes", "exchanges", "MB a site", "remark"),
        caption="seconds of the whole call by the clock after a warm-up, one run, sites whole",
        left=3,
    )
    for one in held:
        run = one.run
        word = "skipped" if one.holds is None else "yes" if one.holds else "no"
        measured = [""] * 7 if run is None else [
            grids.seconds(run.seconds), grids.seconds(run.cpu_seconds), grids.gap(run.gap), f"{run.boxes:,}",
            str(run.tree_nodes), f"{run.exchanges:,}", grids.megabytes(run.bytes_per_site),
        ]  # fmt: skip
        grid.add([one.name, one.figure, word, *measured, one.remark])
    return grid


def summary(held: Sequence[Held]) -> list[str]:
    asked = [one for one in held if one.holds is not None]
    kept = sum(bool(one.holds) for one in asked)
    rest = "" if len(asked) == len(held) else f"; data for {len(held) - len(asked)} are missing"
    told = [f"{kept} of {len(asked)} figures hold{rest}."]
    missed = [one.name for one in asked if not one.holds]
    if missed:
        told.append(f"Missed: {', '.join(missed)}.")
    return told


def check_folder(folder: Path | None, option: str) -> None:
    """A folder that was given must be there; one that was not is skipped with a word."""
    if folder is not None and not folder.is_dir():
        raise InvalidInput(f"{option} '{folder}' is not a folder")
