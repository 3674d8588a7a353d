"""From rows, or from a federation, to a certified clustering in one call."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .core.arrays import Array
from .core.problem import Domain, Problem
from .core.symmetry import Rule
from .core.topology import Edge
from .legacy.certificate import Certificate
from .legacy.checkpoint import Checkpoint
from .legacy.prover import Prover
from .legacy.virtual_nodes import split_problem
from .paper.loop import Coordinator, OnRound
from .paper.primal import canonical_order
from .paper.settings import Settings
from .paper.trace import RoundRecord, Trace
from .paper.worker import PaperWorker
from .protocol.transport import Transport
from .transport.channel import Channel
from .transport.inprocess import InProcessTransport
from .transport.metered import MeteredTransport

MOST_ROWS = 24  # of a node that is solved whole: exact solves then take milliseconds


@dataclass(frozen=True)
class FitResult:
    """Centroids with their proof."""

    centroids: Array  # (K, D), in canonical order
    certificate: Certificate
    trace: Trace
    settings: Settings
    stop_reason: str
    dual_value: float  # best attained d(λ); a bound only under a valid symmetry rule, and then only up to solver gaps
    owners: tuple[str, ...]  # of the certificate's nodes: the same names, or the real nodes behind virtual ones
    node_points: tuple[int, ...]
    features: tuple[str, ...]  # names of the columns, if the nodes told them
    node_counts: Array  # (N, K): weight of each node's rows in each cluster
    rounds: int
    boxes: int
    bytes_up: int
    bytes_down: int
    seconds: float

    @property
    def node_names(self) -> tuple[str, ...]:
        return self.certificate.nodes

    def by_owner(self) -> list[tuple[str, int, float, Array]]:
        """Name, rows, cost and rows in each cluster of every real node."""
        assert self.certificate.node_costs is not None
        rows = zip(self.owners, self.node_points, self.certificate.node_costs, self.node_counts, strict=True)
        told: dict[str, tuple[int, float, Array]] = {}
        for owner, n_points, cost, counts in rows:
            before = told.get(owner, (0, 0.0, np.zeros_like(counts)))
            told[owner] = (before[0] + n_points, before[1] + float(cost), before[2] + counts)
        return [(owner, *numbers) for owner, numbers in told.items()]

    @property
    def lower_bound(self) -> float:
        return self.certificate.lower

    @property
    def upper_bound(self) -> float:
        return self.certificate.upper

    @property
    def gap(self) -> float:
        return self.certificate.gap

    @property
    def certified(self) -> bool:
        """Whether the gap asked for is proven, under a valid symmetry rule."""
        return self.settings.symmetry != "nearest" and self.gap <= self.settings.gap

    @property
    def history(self) -> list[RoundRecord]:
        return self.trace.records


def fit(
    rows: Mapping[str, ArrayLike] | Sequence[ArrayLike],
    n_clusters: int,
    *,
    weights: Mapping[str, ArrayLike] | None = None,
    domain: Domain | None = None,
    method: str = "proximal",
    solver: str = "exact",
    symmetry: Rule = "order",
    topology: str | Sequence[Edge] = "line",
    gap: float = 1e-4,
    time_limit: float | None = None,
    max_rounds: int | None = None,
    seed: int = 0,
    n_threads: int | None = None,
    init: ArrayLike | None = None,
    most_rows: int | None = MOST_ROWS,
    runtime: Transport | None = None,
    on_round: OnRound | None = None,
) -> FitResult:
    """Cluster rows that lie at several nodes, here all in this process.

    A node with more than `most_rows` rows takes part as several smaller ones (see `virtual_nodes`): their problems are
    solved in milliseconds. None leaves every node whole.

    >>> result = fit({"a": [[0.0], [1.0]], "b": [[10.0], [11.0]]}, n_clusters=2)
    >>> result.certified, result.centroids.ravel().tolist()
    (True, [0.5, 10.5])
    """
    problem = Problem.checked(rows, n_clusters, domain, weights)
    settings = Settings(
        n_clusters=n_clusters,
        method=method,
        solver=solver,
        symmetry=symmetry,
        topology=topology,
        gap=gap,
        time_limit=math.inf if time_limit is None else time_limit,
        max_rounds=max_rounds,
        seed=seed,
    )
    if runtime is not None:
        return run(runtime, settings, domain=problem.domain, init=init, on_round=on_round)
    return fit_problem(problem, settings, most_rows=most_rows, n_threads=n_threads, init=init, on_round=on_round)


def fit_problem(
    problem: Problem,
    settings: Settings,
    *,
    features: Sequence[str] = (),
    most_rows: int | None = MOST_ROWS,
    n_threads: int | None = None,
    **options: Any,
) -> FitResult:
    """A checked problem in this process; `options` go to `run`."""
    parts, owners = (problem, problem.names) if most_rows is None else split_problem(problem, most_rows)
    workers = [PaperWorker(node, features) for node in parts.nodes]
    runtime = MeteredTransport(InProcessTransport(workers, n_threads))
    try:
        result = run(runtime, settings, domain=problem.domain, features=features, **options)
    finally:
        runtime.close()
    return replace(result, owners=owners)


def run(
    runtime: Transport,
    settings: Settings,
    *,
    domain: Domain | None = None,
    features: Sequence[str] = (),
    init: ArrayLike | None = None,
    on_round: OnRound | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
) -> FitResult:
    """The same over any transport: agree on the domain, run the paper's loop, then branch until the gap is proven."""
    channel = Channel(runtime)
    agreed = channel.agree(settings.n_clusters, domain, features)
    saved = None if checkpoint is None else Checkpoint(checkpoint, settings)
    coordinator = Coordinator(channel, agreed, settings, on_round, None if saved is None else saved.save)
    if resume and saved is not None:
        coordinator.resume(saved.load(coordinator.initial_state()))
    elif init is not None:
        coordinator.run_state.candidates = np.array(init, dtype=float).reshape(1, settings.n_clusters, -1)
    coordinator.run_state.certificate.resolution = channel.resolution(agreed)
    try:
        coordinator.maximise_dual()
        unfinished = coordinator.run_state.stop_reason in ("dual_optimal", "dual_stalled", None)
        if settings.prove and unfinished and coordinator.run_state.symmetry.valid:
            Prover(coordinator).prove()
    except KeyboardInterrupt:  # what was proven stays proven
        coordinator.run_state.stop_reason = "interrupted"
        if coordinator.run_state.certificate.centroids is None:
            raise
    return _result(coordinator, channel)


def _result(coordinator: Coordinator, channel: Channel) -> FitResult:
    run_state = coordinator.run_state
    certificate = run_state.certificate
    assert certificate.centroids is not None
    assert run_state.incumbent_counts is not None
    order = canonical_order(certificate.centroids)
    return FitResult(
        centroids=certificate.centroids[order],
        certificate=certificate,
        trace=run_state.trace,
        settings=coordinator.settings,
        stop_reason=run_state.stop_reason or "interrupted",
        dual_value=run_state.dual_value,
        owners=certificate.nodes,
        node_points=tuple(description.n_points for description in channel.described),
        features=next((d.features for d in channel.described if d.features), ()),
        node_counts=run_state.incumbent_counts[:, order],
        rounds=channel.round,
        boxes=1 if run_state.tree is None else run_state.tree.n_evaluated,
        bytes_up=channel.bytes_up,
        bytes_down=channel.bytes_down,
        seconds=coordinator.seconds,
    )
