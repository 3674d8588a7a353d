"""`verify`: all claims of a certificate, in the order of their cost, and what was and was not re-checked."""

from __future__ import annotations

import math
import multiprocessing
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...core.arrays import Array
from ...core.errors import CertificateInvalid, InvalidInput
from .arithmetic import check_excluded, check_sums
from .cover import check_cover
from .document import Document, parsed, read_document
from .node_bounds import Claim, NodeBounds, Refuted

COST_EXCESS = 1e-9  # how far, relatively, a claimed cost may lie above the true one
WORTH_A_PROCESS = 400  # claims; below that starting processes takes longer than the checks


@dataclass(frozen=True)
class NodeReport:
    """What was re-checked on one node's rows; `n_rows` is None where the rows were not given."""

    name: str
    n_rows: int | None
    n_claims: int
    n_confirmed: int = 0
    tolerance: float = 0.0  # largest tolerance of a leaf's claim

    @property
    def complete(self) -> bool:
        return self.n_rows is not None and self.n_confirmed == self.n_claims


@dataclass(frozen=True)
class Report:
    """The outcome for a certificate that was not refuted."""

    fingerprint: str
    lower_bound: float
    upper_bound: float
    gap: float
    n_leaves: int
    n_excluded: int
    nodes: tuple[NodeReport, ...]
    seconds: float

    @property
    def finished(self) -> bool:
        """Whether every check that could be made was made."""
        return all(node.complete for node in self.nodes if node.n_rows is not None)

    @property
    def verified(self) -> bool:
        """Whether every number was re-checked: all nodes, all leaves."""
        return all(node.complete for node in self.nodes)

    @property
    def tolerance(self) -> float:
        """How far the lower bound can be wrong at most, if every check passed only just."""
        return math.fsum(node.tolerance for node in self.nodes)


def verify(
    certificate: Path | str | dict[str, Any],
    rows: Mapping[str, ArrayLike] | None = None,
    weights: Mapping[str, ArrayLike] | None = None,
    *,
    time_limit: float = math.inf,
    workers: int = 1,
) -> Report:
    """Check a certificate file (or its JSON object), and the numbers of every node whose rows are given.

    Raises `CertificateInvalid` with the place named if a claim is false.
    """
    started = time.perf_counter()
    claims = parsed(certificate if isinstance(certificate, dict) else read_document(certificate))
    given = _checked_rows(claims, rows or {}, weights or {})
    check_sums(claims)
    if claims.leaves:
        domain = np.repeat(claims.domain[:, None, :], claims.n_clusters, axis=1)
        check_cover(domain, np.array([leaf.boxes for leaf in claims.leaves]))
    for i, leaf in enumerate(claims.leaves):
        if leaf.prices is None:
            check_excluded(leaf, i, claims.references)
    for name, (points, mass) in given.items():
        _check_cost(claims, name, points, mass)
    deadline = started + time_limit
    reports = dict(_check_nodes(claims, given, deadline, workers))
    n_excluded = sum(leaf.prices is None for leaf in claims.leaves)
    n_claims = len(claims.leaves) - n_excluded
    return Report(
        fingerprint=claims.fingerprint,
        lower_bound=claims.lower_bound,
        upper_bound=claims.upper_bound,
        gap=claims.gap,
        n_leaves=len(claims.leaves),
        n_excluded=n_excluded,
        nodes=tuple(reports.get(name, NodeReport(name, None, n_claims)) for name in claims.nodes),
        seconds=time.perf_counter() - started,
    )


def _checked_rows(
    claims: Document, rows: Mapping[str, ArrayLike], weights: Mapping[str, ArrayLike]
) -> dict[str, tuple[Array, Array]]:
    result = {}
    for name, table in rows.items():
        if name not in claims.nodes:
            raise InvalidInput(f"the certificate knows no node '{name}'; its nodes are {', '.join(claims.nodes)}")
        points = np.array(table, dtype=float)
        if points.ndim != 2 or points.shape[1] != claims.n_features or len(points) == 0:
            raise InvalidInput(
                f"node '{name}': a table of shape {points.shape} is given; the certificate is about "
                f"{claims.n_features} features; choose the same columns as for the run"
            )
        mass = np.ones(len(points)) if name not in weights else np.array(weights[name], dtype=float)
        if mass.shape != (len(points),) or not np.all(np.isfinite(mass) & (mass >= 0)) or not np.any(mass > 0):
            raise InvalidInput(f"node '{name}': {len(points)} rows need as many finite, not negative weights")
        if not np.all(np.isfinite(points)):
            raise InvalidInput(f"node '{name}': some entries are not finite numbers")
        result[name] = points, mass
    return result


def _check_cost(claims: Document, name: str, points: Array, weights: Array) -> None:
    """Rows inside the domain (else it might miss the optimum), and f_i(incumbent) as claimed."""
    outside = ((points < claims.domain[0]) | (points > claims.domain[1])) & (weights > 0)[:, None]
    if outside.any():
        j, d = (int(axis[0]) for axis in np.nonzero(outside))
        raise CertificateInvalid(
            f"node '{name}': row {j + 1} has {float(points[j, d])!r} in feature {d}, outside the domain "
            f"[{float(claims.domain[0, d])!r}, {float(claims.domain[1, d])!r}]: the proof is about other rows"
        )
    squared = ((points[:, None, :] - claims.centroids[None, :, :]) ** 2).sum(axis=2).min(axis=1)
    cost = math.fsum(weights * squared)
    claimed = float(claims.node_costs[claims.nodes.index(name)])
    # terms are positive, and each is a handful of rounded operations
    if claimed < cost * (1.0 - (claims.n_features + 4) * float(np.finfo(float).eps)) or claimed > cost * (
        1.0 + COST_EXCESS
    ) + float(np.finfo(float).tiny):
        raise CertificateInvalid(f"incumbent, node '{name}': claims the cost {claimed!r}, but its rows give {cost!r}")


def _check_nodes(
    claims: Document, given: dict[str, tuple[Array, Array]], deadline: float, workers: int
) -> Iterator[tuple[str, NodeReport]]:
    jobs = []
    for name, (points, weights) in given.items():
        i = claims.nodes.index(name)
        listed = [
            Claim(number, leaf.boxes, leaf.prices[i], float(leaf.node_bounds[i]))
            for number, leaf in enumerate(claims.leaves)
            if leaf.prices is not None and leaf.node_bounds is not None
        ]
        jobs.append((name, points, weights, claims.n_clusters, claims.references, listed))
    workers = min(workers, len(jobs))
    if workers <= 1 or sum(len(job[-1]) for job in jobs) < WORTH_A_PROCESS:
        for job in jobs:
            yield job[0], _check_node(*job, deadline - time.perf_counter())
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        running = [(job[0], pool.submit(_check_node, *job, deadline - time.perf_counter())) for job in jobs]
        try:
            for name, future in running:
                yield name, future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _check_node(
    name: str,
    points: Array,
    weights: Array,
    n_clusters: int,
    references: Array | None,
    claims: list[Claim],
    seconds: float,
) -> NodeReport:
    deadline = time.perf_counter() + seconds
    if seconds <= 0 or not claims:
        return NodeReport(name, len(points), len(claims))
    node = NodeBounds(points, weights, n_clusters, references)
    confirmed = 0
    for outcome in node.check(claims, deadline):
        if isinstance(outcome, Refuted):
            raise CertificateInvalid(
                f"leaf {outcome.claim.leaf}, node '{name}': claims {outcome.claim.bound!r}, but the centroids "
                f"{outcome.centroids.tolist()} attain {outcome.attained!r}"
            )
        confirmed += 1
    return NodeReport(name, len(points), len(claims), confirmed, max(node.tolerance(claim) for claim in claims))
