"""`consentroid fit`: rows of several sites, clustered with a certificate."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.errors import InvalidInput
from .choices import Method, Solver, SymmetryRule, TopologyName
from .inputs import (
    ClustersOption,
    ColumnsOption,
    DecimalOption,
    GapOption,
    ImputeOption,
    JsonOption,
    NodeOption,
    ScaleOption,
    SeedOption,
    SeparatorOption,
    TimeLimitOption,
    WeightsOption,
    listed,
    node_files,
    parse_domain,
    read_nodes,
    read_sites,
)

if TYPE_CHECKING:
    from ..core.arrays import Array

__all__ = ["fit", "node_files", "parse_domain", "read_nodes", "spread_of"]


def fit(
    node: NodeOption,
    k: ClustersOption,
    out: Annotated[Path, typer.Option(help="Folder for result.json, certificate.json and trace.jsonl.")] = Path("run"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the run in --out: its centroids, prices and proof.")
    ] = False,
    columns: ColumnsOption = None,
    weights: WeightsOption = None,
    scale: ScaleOption = None,
    impute: ImputeOption = False,
    separator: SeparatorOption = None,
    decimal: DecimalOption = None,
    gap: GapOption = 1e-4,
    time_limit: TimeLimitOption = 60.0,
    domain: Annotated[
        str | None, typer.Option(help="Known range of each feature, as in 0:100,18:99; else the extremes are shared.")
    ] = None,
    seed: SeedOption = 0,
    method: Annotated[Method, typer.Option(help="row-prices, or one of the paper for research.")] = Method.ROW_PRICES,
    solver: Annotated[Solver, typer.Option(help="Node solver of the paper's methods.")] = Solver.EXACT,
    symmetry: Annotated[
        SymmetryRule, typer.Option(help="Rule of the paper's methods; nearest proves nothing.")
    ] = SymmetryRule.ORDER,
    topology: Annotated[TopologyName, typer.Option(help="Graph of the paper's methods.")] = TopologyName.LINE,
    max_rounds: Annotated[int | None, typer.Option(help="Stop the paper's methods after so many rounds.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Read files in parts, in so many processes: rows larger than memory, with dask.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="The same on the workers of this dask scheduler, as in tcp://host:8786.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Cluster rows that lie at several sites, and prove how good the clusters are.

    Example: consentroid fit --node a=a.csv --node b=b.csv -k 3 --scale standard --out run
    """
    from ..core.result import StopReason
    from ..fitting import fit as fit_rows
    from ..report.files import Details, clean_up, output_folder, result_as_dict, write_run
    from .console import compile_first, live_progress, notify
    from .resuming import earlier_run, joined, scratch_folder, take_over_prices

    if workers is not None or scheduler is not None:
        only = {"--resume": resume, "--scale": scale, "--impute": impute, "--method": method != Method.ROW_PRICES}
        fit_in_parts(
            node, k, out, only, columns=columns, weights=weights, gap=gap, time_limit=time_limit, domain=domain,
            seed=seed, workers=workers, scheduler=scheduler, as_json=as_json,
        )  # fmt: skip
        return
    if resume and method != Method.ROW_PRICES:
        raise InvalidInput(f"--resume goes on with row prices, not with {method.value}; leave --method out")
    sites = read_sites(node, columns, weights=weights, separator=separator, decimal=decimal, missing=impute)
    prepared, notices = sites.prepared(scale, impute)
    notify(notices)
    folder = output_folder(out)
    earlier = earlier_run(folder, prepared, sites.weights, k) if resume else None
    if resume and earlier is None:
        notify([f"there is no run in '{folder}' to go on from; this one starts from the beginning"])
    known = parse_domain(domain)
    paper: dict[str, Any] = {}
    if method != Method.ROW_PRICES:
        paper = {
            "solver": solver.value,
            "symmetry": symmetry.value,
            "topology": topology.value,
            "max_rounds": max_rounds,
        }
    compile_first(method != Method.ROW_PRICES)
    begin: dict[str, Any] = {}
    if earlier is not None:
        begin = {"init": earlier.centroids, "first_prices": earlier.first_prices}
    with ending_like_ctrl_c(), live_progress(as_json) as on_step, scratch_folder(folder) as scratch:
        result = fit_rows(
            prepared.rows,
            k,
            weights=sites.weights,
            domain=None if known is None else prepared.transform.domain(known),
            gap=gap,
            time_limit=time_limit,
            seed=seed,
            method=method.value,
            features=prepared.names,
            folder=scratch,
            on_step=on_step,
            **begin,
            **paper,
        )
        result, kept = (result, False) if earlier is None else joined(earlier, result)
        if not kept:  # only now does an earlier run go: a run that fails destroys nothing
            clean_up(folder, keep=(scratch.name,))
            take_over_prices(scratch, folder)
    plain = prepared.recipe.scale == "none" and prepared.recipe.fill is None
    details = Details(
        scaling=None if plain else prepared.recipe.as_dict(),
        spread=spread_of(prepared.rows, sites.weights, result.centroids, prepared.transform.scale),
    )
    write_run(folder, result, details)
    _tell(result_as_dict(result, details), folder, as_json)
    if result.stop_reason == StopReason.INTERRUPTED:
        raise typer.Exit(130)


def fit_in_parts(
    node: list[str], k: int, out: Path, unavailable: Mapping[str, object], *, columns: str | None, weights: str | None,
    gap: float, time_limit: float, domain: str | None, seed: int, workers: int | None, scheduler: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Rows that stay in parts on workers: what needs them all in one place is not to be had."""
    from ..core.result import StopReason
    from ..many_files import fit_files
    from ..report.files import Details, clean_up, output_folder, result_as_dict, write_run
    from .console import compile_first, live_progress

    for option, given in unavailable.items():
        if given:
            raise InvalidInput(f"{option} needs all rows in one process; leave out --workers and --scheduler, or it")
    if workers is not None and (workers < 1 or scheduler is not None):
        raise InvalidInput(f"--workers {workers} starts processes here: give at least 1, and no --scheduler")
    sources, folder = node_files(node), output_folder(out)
    clean_up(folder)
    compile_first()
    with ending_like_ctrl_c(), live_progress(as_json) as on_step:
        result = fit_files(
            sources, k, columns=listed(columns), weights=weights, workers=workers, scheduler=scheduler, folder=folder,
            domain=parse_domain(domain), gap=gap, time_limit=time_limit, seed=seed, on_step=on_step,
        )  # fmt: skip
    write_run(folder, result, Details())
    _tell(result_as_dict(result, Details()), folder, as_json)
    if result.stop_reason == StopReason.INTERRUPTED:
        raise typer.Exit(130)


def _tell(document: dict[str, Any], folder: Path, as_json: bool) -> None:
    from ..report.terminal import show_result
    from .console import console, print_json

    if as_json:
        print_json(document)
    else:
        show_result(document, folder, console)


@contextmanager
def ending_like_ctrl_c() -> Iterator[None]:
    """SIGTERM, which schedulers send, ends a run as Ctrl-C does: with what it reached."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def spread_of(rows: Mapping[str, Array], weights: Mapping[str, Array] | None, centroids: Array, factor: Array) -> Array:
    """Standard deviation of each feature in each cluster, in the units of the rows as given; NaN where it is empty."""
    import numpy as np

    points = np.concatenate(list(rows.values()))
    mass = np.ones(len(points)) if weights is None else np.concatenate([weights[name] for name in rows])
    squared = np.stack([((points - centroid) ** 2).sum(axis=1) for centroid in centroids], axis=1)
    labels = squared.argmin(axis=1)
    spread = np.full(centroids.shape, np.nan)
    for k in range(len(centroids)):
        own, weight = points[labels == k], mass[labels == k]
        if weight.sum() > 0:
            mean = weight @ own / weight.sum()
            spread[k] = np.sqrt(weight @ (own - mean) ** 2 / weight.sum()) * factor
    return spread
