"""From rows, or from a federation, to a certified clustering in one call."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .core.arrays import Array
from .core.errors import InvalidInput
from .core.problem import Domain, Problem
from .core.result import FitResult, Regions, SiteShare, StopReason, relative_gap
from .core.symmetry import Rule, canonical_order
from .core.topology import Edge
from .paper.dual.registry import METHODS as PAPER_METHODS
from .paper.loop import maximise_dual
from .paper.settings import PaperSettings
from .paper.worker import PaperWorker
from .protocol.messages import Evaluate, PriceQuery
from .protocol.transport import Transport
from .rowprices.allowance import Allowance
from .rowprices.attempts import Attempts
from .rowprices.proof import with_incumbent
from .rowprices.session import OnStep, Session
from .rowprices.totals import Totals
from .site.worker import SiteWorker
from .transport.channel import Channel
from .transport.inprocess import InProcessTransport
from .transport.metered import MeteredTransport

ROW_PRICES = "row-prices"
METHODS = (ROW_PRICES, *PAPER_METHODS)
TIME_LIMIT = 60.0  # seconds, unless another is asked for
LEAST_GAP = 1e-9  # below this, doubles have no room between bound and cost


def fit(
    rows: Mapping[str, ArrayLike] | Sequence[ArrayLike],
    n_clusters: int,
    *,
    weights: Mapping[str, ArrayLike] | None = None,
    domain: Domain | None = None,
    gap: float = 1e-4,
    time_limit: float | None = TIME_LIMIT,
    seed: int = 0,
    init: ArrayLike | None = None,
    first_prices: Mapping[str, Array] | None = None,
    features: Sequence[str] = (),
    folder: Path | None = None,
    on_step: OnStep | None = None,
    method: str = ROW_PRICES,
    regions: bool = True,
    transport: Transport | None = None,
    **paper: Any,
) -> FitResult:
    """Cluster rows that lie at several sites, here all in this process.

    `folder` is where the sites' private price files go (`prices-SITE.npz`, for `consentroid verify`); without one
    none is kept. `init` are centroids to start from; `first_prices` are prices to start from, of each site's rows of
    positive weight, for squared distances: any λ ≥ 0 give a true bound, good ones a quick one. `regions=False` leaves
    out the search for certified regions, which takes up to half as long again as the proof. `paper` are settings of the
    paper's methods: solver, symmetry, topology, max_rounds, ...

    >>> result = fit({"a": [[0.0], [1.0]], "b": [[10.0], [11.0]]}, n_clusters=2)
    >>> result.certified, result.centroids.ravel().tolist()
    (True, [0.5, 10.5])
    """
    problem = Problem.checked(rows, n_clusters, domain, weights)
    options: dict[str, Any] = dict(
        domain=problem.domain, gap=gap, time_limit=time_limit, seed=seed, init=init, features=features,
        on_step=on_step, method=method, regions=regions, **paper,
    )  # fmt: skip
    if transport is not None:
        return run(transport, n_clusters, **options)
    workers: list[SiteWorker]
    if method == ROW_PRICES:
        files = [None if folder is None else Path(folder) / f"prices-{node.name}.npz" for node in problem.nodes]
        begin = first_prices or {}
        workers = [
            SiteWorker(node, features, file, first_prices=begin.get(node.name))
            for node, file in zip(problem.nodes, files, strict=True)
        ]
    else:
        workers = [PaperWorker(node, features) for node in problem.nodes]
    # A site's own kernels run on all cores, so sites answer one after the other; the paper's node solvers do not.
    inside = MeteredTransport(InProcessTransport(workers, 1 if method == ROW_PRICES else None))
    try:
        return run(inside, n_clusters, **options)
    finally:
        inside.close()


def run(
    transport: Transport,
    n_clusters: int,
    *,
    domain: Domain | None = None,
    gap: float = 1e-4,
    time_limit: float | None = TIME_LIMIT,
    seed: int = 0,
    init: ArrayLike | None = None,
    features: Sequence[str] = (),
    on_step: OnStep | None = None,
    method: str = ROW_PRICES,
    regions: bool = True,
    **paper: Any,
) -> FitResult:
    """The same over any transport: agree on the domain, then run the engine asked for."""
    if method not in METHODS:
        raise InvalidInput(f"unknown method '{method}'; choose one of {', '.join(METHODS)}")
    check_gap(gap)
    seconds = math.inf if time_limit is None else float(time_limit)
    if not seconds > 0:
        raise InvalidInput(f"time_limit={time_limit} must be a positive number of seconds")
    channel = Channel(transport)
    agreed = channel.agree(n_clusters, domain, features)
    first = None if init is None else _checked_init(init, n_clusters, agreed.n_features)
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise InvalidInput(f"seed={seed} must be a whole number from 0 on")
    asked = {"n_clusters": n_clusters, "method": method, "gap": gap, "time_limit": time_limit, "seed": seed, **paper}
    if method != ROW_PRICES:
        settings = PaperSettings(n_clusters, method, gap=gap, time_limit=seconds, seed=seed, **paper)
        return _paper(channel, agreed, settings, first, on_step, asked)
    if paper:
        raise InvalidInput(f"{', '.join(sorted(paper))} belong to the paper's methods; choose one with method=")
    return _row_prices(channel, agreed, n_clusters, gap, seconds, seed, first, on_step, asked, regions)


def _checked_init(init: ArrayLike, n_clusters: int, n_features: int) -> Array:
    try:
        centroids = np.array(init, dtype=float)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"init is not numeric ({error})") from None
    if centroids.shape != (n_clusters, n_features) or not np.isfinite(centroids).all():
        raise InvalidInput(f"init has shape {centroids.shape}; give finite centroids of {(n_clusters, n_features)}")
    return centroids


def check_gap(gap: float) -> None:
    if not 0.0 <= gap < 1.0:
        raise InvalidInput(f"gap={gap} must be a fraction from 0 up to, not including, 1")


def _row_prices(
    channel: Channel,
    domain: Domain,
    n_clusters: int,
    gap: float,
    seconds: float,
    seed: int,
    init: Array | None,
    on_step: OnStep | None,
    asked: dict[str, Any],
    regions: bool,
) -> FitResult:
    totals = Totals(channel.ask_prices)
    session = Session(totals, domain, n_clusters, max(gap, LEAST_GAP), seconds, np.random.default_rng(seed), on_step)
    session.allowance = Allowance(channel.allowed, lambda: channel.asked)
    session.n_rows = sum(description.n_points for description in channel.described)
    session.n_sites = len(channel.described)
    session.site_rows = tuple(description.n_points for description in channel.described)
    features = next((d.features for d in channel.described if d.features), ())
    names = features or tuple(f"feature {d}" for d in range(domain.n_features))
    attempts = Attempts(session, tuple(channel.nodes), names, regions)
    attempts.run(init)
    _take_site_costs(session)
    certificate = None if attempts.best is None else with_incumbent(session, attempts.best)
    session.enter("done")
    assert session.centroids is not None
    assert session.counts is not None
    assert session.stop_reason is not None
    assert session.spreads is not None
    assert session.site_counts is not None
    if session.stop_reason is StopReason.GAP and relative_gap(session.lower, session.upper) > gap:
        session.stop_reason = StopReason.EXHAUSTED
    order = canonical_order(session.centroids)
    found: Regions | None = attempts.regions
    return FitResult(
        centroids=session.centroids[order],
        lower_bound=session.lower,
        upper_bound=session.upper,
        gap_asked=gap,
        stop_reason=session.stop_reason,
        method=ROW_PRICES,
        bound_from=session.bound_from,
        sites=_shares(channel, session.site_costs, session.site_counts, order),
        features=tuple(features),
        counts=session.counts[order],
        radii=radii(session.spreads, session.site_counts.sum(axis=0))[order],
        withheld=_withheld(sum(description.weight for description in channel.described), session.counts),
        certificate=certificate,
        regions=None if found is None else Regions(found.lower[order], found.upper[order], found.tolerance),
        trace=tuple(session.trace),
        settings=asked,
        rounds=channel.exchanges,
        boxes=session.boxes_done,
        cells=session.cells_done,
        bytes_up=channel.bytes_up,
        bytes_down=channel.bytes_down,
        seconds=session.seconds,
        phases={name: took for name, took in session.phases.items() if name != "done"},
        spectral_bound=session.spectral,
    )


def _take_site_costs(session: Session) -> None:
    """Each site's own cost and counts at the centroids found, once."""
    assert session.centroids is not None
    replies = session.totals.ask_each(PriceQuery(0, evaluate=Evaluate(session.centroids[None])))
    parts = [reply.evaluated for reply in replies if reply.evaluated is not None]
    session.site_costs = np.array([part.costs[0] for part in parts])
    session.site_counts = np.array([part.counts[0] for part in parts])
    session.spreads = np.sum([part.spreads[0] for part in parts], axis=0)


def radii(spreads: Array, counts: Array) -> Array:
    """√(Σ w |x − m|² / Σ w) of each cluster."""
    return np.asarray(np.sqrt(np.divide(spreads, counts, out=np.full(len(counts), np.nan), where=counts > 0)))


def _shares(channel: Channel, costs: Array | None, counts: Array | None, order: Any) -> tuple[SiteShare, ...]:
    return tuple(
        SiteShare(
            description.node,
            description.n_points,
            None if costs is None else float(costs[i]),
            None if counts is None else counts[i][order],
            0.0 if counts is None else _withheld(description.weight, counts[i]),
        )
        for i, description in enumerate(channel.described)
    )


def _withheld(weight: float, counts: Array) -> float:
    """What counts leave out of a weight, beyond rounding."""
    missing = weight - float(counts.sum())
    return missing if missing > 1e-9 * weight else 0.0


def _paper(
    channel: Channel,
    domain: Domain,
    settings: PaperSettings,
    init: Array | None,
    on_step: OnStep | None,
    asked: dict[str, Any],
) -> FitResult:
    outcome = maximise_dual(channel, domain, settings, on_step, init)
    order = np.arange(settings.n_clusters)
    return FitResult(
        centroids=outcome.centroids,
        lower_bound=min(max(outcome.lower, 0.0), outcome.upper),
        upper_bound=outcome.upper,
        gap_asked=settings.gap,
        stop_reason=outcome.stop_reason,
        method=settings.method,
        bound_from="dual decomposition",
        sites=_shares(channel, outcome.node_costs, outcome.node_counts, order),
        features=next((d.features for d in channel.described if d.features), ()),
        counts=outcome.node_counts.sum(axis=0),
        radii=radii(outcome.node_spreads.sum(axis=0), outcome.node_counts.sum(axis=0)),
        certificate=None,
        regions=None,
        trace=outcome.trace,
        settings=asked,
        rounds=outcome.rounds,
        boxes=0,
        cells=0,
        bytes_up=outcome.bytes_up,
        bytes_down=outcome.bytes_down,
        seconds=outcome.seconds,
    )


__all__ = ["METHODS", "Edge", "FitResult", "Rule", "fit", "run"]
