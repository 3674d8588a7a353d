"""`consentroid bench published`: the problems on which exact solvers have been reported, ours beside theirs.

`published.csv` in the folder of data sets holds what SOS-SDP (Piccialli, Sudoso, Wiegele 2022) and CG+DCA (Sudoso,
Aloise 2025) report; data sets without a figure there are solved, too. A time at their limit of 24 hours is a lower
limit, and so is every ratio from it. Their machines were faster and had more cores than two.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ..core.errors import InvalidInput
from ..report.colours import PALETTE
from . import grids
from .drawing import blank, save
from .grids import Grid
from .runs import N_SITES, NoData, Run, document_of, in_sites, measure, read_published
from .show import Watch

GAP = 1e-4  # as theirs
THEIR_LIMIT = 86400.0
SOLVERS = ("SOS-SDP", "CG+DCA")
OTHERS = (
    ("ruspini", 4), ("iris", 3), ("ch150", 6), ("wine", 3), ("gr202", 6), ("glass", 3), ("accent", 2), ("accent", 6),
    ("ecoli", 3), ("real_estate", 3), ("wholesale_std", 6), ("hungarian", 2), ("wdbc", 2), ("energy_std", 2),
    ("energy_std", 6), ("rice_std", 2), ("abalone", 3), ("facebook", 3), ("frogs", 4), ("pulsar", 2),
    ("avoc_10000_2_05", 2), ("avoc_10000_3_05", 3), ("avoc_10000_3_10", 3), ("avoc_10000_4_075", 4),
)  # fmt: skip
"""Data of SOS-SDP and AVOC whose figures are not in published.csv; the K of AVOC's are its own."""
IN_ONE_PLACE = ("rl5934", "u2152:20", "accent:6", "energy_std", "facebook", "frogs")
"""Rows at one site, as the other solvers have them: prices on pairs and fees on triples are for rows of one site."""
BEST_KNOWN = {("glass", 6): 72.9647, ("ruspini", 8): 6149.639}
ROUNDED = 1e-6  # relative: what a best known cost is told to


@dataclass(frozen=True)
class Reported:
    """One solver's figures on one problem, as published; None where nothing is told."""

    root_gap: float | None
    tree_nodes: int | None
    seconds: float
    final_gap: float | None

    @property
    def out_of_time(self) -> bool:
        return self.seconds >= THEIR_LIMIT


@dataclass(frozen=True)
class PublishedProblem:
    data: str
    n_clusters: int
    reported: dict[str, Reported]

    @property
    def name(self) -> str:
        return f"{self.data} K={self.n_clusters}"


@dataclass(frozen=True)
class SolvedProblem:
    problem: PublishedProblem
    run: Run

    def times_faster(self, solver: str) -> float | None:
        """Their seconds over ours, where ours is a proof and theirs is told."""
        theirs = self.problem.reported.get(solver)
        return None if theirs is None or not self.run.proven else theirs.seconds / self.run.seconds

    @property
    def too_dear(self) -> bool:
        """Whether a cheaper clustering is known."""
        best = BEST_KNOWN.get((self.problem.data, self.problem.n_clusters), math.inf)
        return self.run.upper > best * (1.0 + ROUNDED)


def problems_in(folder: Path, only: Sequence[str] | None = None) -> list[PublishedProblem]:
    """All problems, or those of the data sets (or names such as glass K=6, glass:6) given."""
    path = folder / "published.csv"
    found: dict[tuple[str, int], dict[str, Reported]] = {}
    if path.is_file():
        with path.open(newline="", encoding="utf-8") as file:
            try:
                for line in csv.DictReader(file):
                    found.setdefault((line["data"], int(line["k"])), {})[line["solver"]] = _reported(line)
            except (KeyError, ValueError) as reason:
                raise InvalidInput(f"'{path}' is not a table of published figures: {reason}") from None
    for other in OTHERS:
        found.setdefault(other, {})
    problems = [PublishedProblem(data, k, reported) for (data, k), reported in found.items()]
    if only is None:
        return problems
    for name in only:
        if not any(name in _names(problem) for problem in problems):
            known = ", ".join(dict.fromkeys(problem.data for problem in problems))
            raise InvalidInput(f"--only '{name}' names no problem; the data sets are {known}, with K as in glass:6")
    return [problem for problem in problems if any(name in _names(problem) for name in only)]


def _names(problem: PublishedProblem) -> tuple[str, ...]:
    return problem.data, problem.name, f"{problem.data}:{problem.n_clusters}"


def _reported(line: dict[str, str]) -> Reported:
    def number(key: str) -> float | None:
        return float(line[key]) if line[key] else None

    root, nodes, final = number("root_gap_percent"), number("tree_nodes"), number("final_gap_percent")
    return Reported(
        None if root is None else root / 100,
        None if nodes is None else int(nodes),
        float(line["seconds"]),
        None if final is None else final / 100,
    )


def solve_all(
    folder: Path, problems: Sequence[PublishedProblem], seconds: float, watch: Watch, gap: float = GAP,
    n_sites: int | None = None,
) -> Iterator[SolvedProblem | NoData]:  # fmt: skip
    """Without `n_sites`, three for each problem but those in one place."""
    for problem in problems:
        with watch.task(problem.name) as on_step:
            try:
                rows = in_sites(read_published(folder, problem.data), n_sites or sites_of(problem))
            except NoData as missing:
                yield missing
                continue
            k = problem.n_clusters
            run = measure(problem.name, rows, k, gap=gap, time_limit=seconds, check=True, on_step=on_step)
        yield SolvedProblem(problem, run)


def sites_of(problem: PublishedProblem) -> int:
    return 1 if any(name in _names(problem) for name in IN_ONE_PLACE) else N_SITES


def document(
    solved: Sequence[SolvedProblem], missing: Sequence[str], seconds: float, gap: float = GAP
) -> dict[str, Any]:
    return document_of(
        "published",
        gap=gap,
        time_limit=seconds,
        problems=[{"problem": asdict(one.problem), "run": asdict(one.run)} for one in solved],
        missing=list(missing),
    )


def solved_in(told: dict[str, Any]) -> list[SolvedProblem]:
    """Back from the JSON."""
    return [
        SolvedProblem(
            PublishedProblem(
                entry["problem"]["data"],
                entry["problem"]["n_clusters"],
                {solver: Reported(**figures) for solver, figures in entry["problem"]["reported"].items()},
            ),
            Run(**entry["run"]),
        )
        for entry in told["problems"]
    ]


# ---------------------------------------------------------------------------------------------------- shown


def grid_of(solved: Sequence[SolvedProblem], gap: float = GAP) -> Grid:
    usual = max((one.run.n_sites for one in solved), default=N_SITES)
    grid = Grid(
        "Published problems: ours beside SOS-SDP and CG+DCA",
        (
            "problem", "rows × features", "cost", "seconds", "CPU s", "root gap", "nodes", "gap", "check s",
            *(f"{solver}: s, root gap, nodes, gap" for solver in SOLVERS),
        ),
        caption=f"seconds of the whole call by the clock, sites: {usual}, ‡ one; asked: gap {grids.gap(gap)}; check: "
        "the independent checker, all rows; † not proven in time; ✗ refuted, or a cheaper clustering is known",
    )  # fmt: skip
    for one in solved:
        run, reported = one.run, one.problem.reported
        refuted = run.verified is False and "refuted" in run.note
        marks = {"✗": refuted or one.too_dear, "†": not run.proven, "‡": run.n_sites == 1 < usual}
        grid.add(
            [
                one.problem.name + "".join(sign for sign, holds in marks.items() if holds),
                f"{run.n_rows:,} × {run.n_features}",
                f"{run.upper:.7g}",
                grids.seconds(run.seconds),
                grids.seconds(run.cpu_seconds),
                grids.gap(run.root_gap),
                str(run.tree_nodes),
                grids.gap(run.gap),
                grids.seconds(run.verify_seconds),
                *(_theirs(reported.get(solver)) for solver in SOLVERS),
            ]
        )
    return grid


def _theirs(reported: Reported | None) -> str:
    if reported is None:
        return ""
    taken = ("> " if reported.out_of_time else "") + grids.seconds(reported.seconds)
    if reported.root_gap is None:
        return taken
    return f"{taken}, {grids.gap(reported.root_gap)}, {reported.tree_nodes}, {grids.gap(reported.final_gap)}"


def summary(solved: Sequence[SolvedProblem], gap: float = GAP) -> list[str]:
    """Sentences: how many are proven, how many times faster, what the checker says, what does not close."""
    proven = [one for one in solved if one.run.proven]
    lines = [f"{len(proven)} of {len(solved)} proven to {gap:g}."]
    for solver in SOLVERS:
        told = [one for one in solved if solver in one.problem.reported]
        ratios = [ratio for one in told if (ratio := one.times_faster(solver)) is not None]
        if ratios:
            slower = sum(ratio < 1.0 for ratio in ratios)
            lines.append(
                f"{solver}: ours is a proof on {len(ratios)} of its {len(told)} problems, in the median "
                f"{grids.times(median(ratios))} times faster, worst {grids.times(min(ratios))}; {slower} slower."
            )
    checked = [one for one in solved if one.run.verified is not None]
    held = sum(bool(one.run.verified) for one in checked)
    if checked:
        longest = max(one.run.verify_seconds or 0.0 for one in checked)
        lines.append(
            f"{held} of {len(checked)} certificates pass the checker, the longest in {grids.seconds(longest)} s."
        )
    dear = [one.problem.name for one in solved if one.too_dear]
    compared = sum((one.problem.data, one.problem.n_clusters) in BEST_KNOWN for one in solved)
    lines.append(f"Costs above the best known: {', '.join(dear) if dear else f'none of {compared}'}.")
    left = [f"{one.problem.name} ({grids.gap(one.run.gap)})" for one in solved if not one.run.proven]
    if left:
        lines.append(f"Not closed: {', '.join(left)}.")
    late = [f"{one.problem.name} ({one.run.seconds:.1f} s)" for one in solved if one.run.over_limit > 0]
    if late:
        lines.append(f"Time limit exceeded by more than 5 % and 0.5 s: {', '.join(late)}.")
    return lines


def draw(solved: Sequence[SolvedProblem], path: Path) -> Path:
    """Their seconds against ours; hollow where ours is not proven, an arrow up where theirs ran out of time."""
    figure, ((axes,),) = blank(7.0, 5.0)
    pairs = []
    for solver, colour in zip(SOLVERS, PALETTE, strict=False):
        for one in solved:
            theirs = one.problem.reported.get(solver)
            if theirs is None:
                continue
            pairs.append((one.run.seconds, theirs.seconds))
            face = colour if one.run.proven else "none"
            marker = "^" if theirs.out_of_time else "o"
            axes.scatter(*pairs[-1], s=30, marker=marker, facecolor=face, edgecolor=colour, alpha=0.85)
        axes.scatter([], [], s=30, color=colour, label=solver)
    axes.scatter([], [], s=30, facecolor="none", edgecolor="0.4", label="ours not proven")
    axes.scatter([], [], s=30, marker="^", color="0.4", label="theirs out of time")
    low = min((ours for ours, _ in pairs), default=0.1) / 2
    high = max((ours for ours, _ in pairs), default=10.0) * 2
    top = max((theirs for _, theirs in pairs), default=10.0) * 2
    bottom = min((theirs for _, theirs in pairs), default=1.0) / 2
    for factor in (1, 10, 100, 1_000, 10_000):
        axes.plot([low, high], [factor * low, factor * high], color="0.75", lw=0.8, zorder=0)
        at = min(high, top / factor)
        if at > low and factor * at > bottom:
            edge = "bottom" if at == high else "top"
            axes.annotate(f"{factor:,}×", (at, factor * at), ha="right", va=edge, fontsize=8, color="0.45")
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(bottom, top))
    axes.set(xlabel="ours, seconds on two cores", ylabel="theirs, seconds as published")
    axes.legend(loc="lower right", fontsize="small")
    return save(figure, path)
