"""The paper's algorithm: dual decomposition of federated K-means, one round per turn of the loop.

    max_λ d(λ),   d(λ) = Σ_i min_{m_i} f_i(m_i) + ⟨A_iᵀ λ, m_i⟩                                    (`Dual_Problem`)

The query that carries the new prices also carries the last candidate centroids, so a round is one exchange. By weak
duality Σ_i bound_i is a lower bound on the cost of every clustering, under a symmetry rule that loses no optimum.

A run of the paper makes no certificate file: its bound rests on the word of the node solvers, and where the dual
function has a gap of its own, no prices close it. Our proof is `rowprices/`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.problem import Domain
from ..core.result import Step, StopReason, relative_gap
from ..core.rounding import sum_down, sum_up
from ..core.symmetry import Symmetry, align, alignment, canonical_order
from ..core.topology import Topology, balanced
from ..protocol.messages import Evaluate, Query, Reply, Solve
from ..transport.channel import Channel
from . import primal
from .dual.base import DualEvaluation, exhausted
from .dual.registry import dual_named
from .settings import PaperSettings
from .trace import RoundRecord

OnStep = Callable[[Step], None]
NEGLIGIBLE = 1e-9  # of the cost: a smaller increase of the bound is not worth an exchange


@dataclass(frozen=True)
class PaperOutcome:
    """What a run of the paper's loop ends with; clusters in canonical order."""

    centroids: Array  # (K, D)
    lower: float  # proven, if the node solvers' bounds are
    upper: float
    dual_value: float  # best attained d(λ): what the paper reports, a bound only up to the solvers' gaps
    stop_reason: StopReason
    trace: tuple[RoundRecord, ...]
    node_costs: Array  # (N,)
    node_counts: Array  # (N, K) weight of each node's rows in each cluster
    node_spreads: Array  # (N, K) Σ w |x − m_k|²
    rounds: int
    bytes_up: int
    bytes_down: int
    seconds: float
    settings: PaperSettings

    @property
    def gap(self) -> float:
        return relative_gap(self.lower, self.upper)

    @property
    def paper_gap(self) -> float:
        """`Clustering_DG`; under the rule `nearest`, which may exclude the optimum, a number that proves nothing."""
        return formula_gap(self.dual_value, self.upper)


@dataclass
class Incumbent:
    """The best centroids so far; `offer` is the only writer."""

    centroids: Array | None = None
    cost: float = math.inf
    node_costs: Array = field(default_factory=lambda: np.empty(0))  # (N,)
    node_counts: Array = field(default_factory=lambda: np.empty(0))  # (N, K)
    node_offsets: Array = field(default_factory=lambda: np.empty(0))  # (N, K, D) Σ w (x − m_k)
    node_spreads: Array = field(default_factory=lambda: np.empty(0))  # (N, K) Σ w |x − m_k|²

    def offer(self, candidates: Array, replies: list[Reply]) -> None:
        parts = [reply.evaluated for reply in replies if reply.evaluated is not None]
        for c, centroids in enumerate(candidates):
            node_costs = np.array([part.costs[c] for part in parts])
            cost = sum_up(node_costs)
            if cost < self.cost:
                self.centroids, self.cost, self.node_costs = centroids.copy(), cost, node_costs
                self.node_counts = np.array([part.counts[c] for part in parts])
                self.node_offsets = np.array([part.offsets[c] for part in parts])
                self.node_spreads = np.array([part.spreads[c] for part in parts])


def maximise_dual(
    channel: Channel,
    domain: Domain,
    settings: PaperSettings,
    on_step: OnStep | None = None,
    init: Array | None = None,
) -> PaperOutcome:
    """Run the loop over sites that solve node problems (`PaperWorker`); an interrupt keeps what was reached."""
    ascent = DualAscent(channel, domain, settings, on_step, init)
    try:
        ascent.run()
    except KeyboardInterrupt:
        if ascent.incumbent.centroids is None:
            raise
        ascent.stop_reason = StopReason.INTERRUPTED
    return ascent.outcome()


class DualAscent:
    """State of one run and the parts of a round."""

    def __init__(
        self, channel: Channel, domain: Domain, settings: PaperSettings, on_step: OnStep | None, init: Array | None
    ) -> None:
        # fixed
        self.channel, self.settings = channel, settings
        self.boxes = domain.boxes(settings.n_clusters)
        self.topology = Topology.of(settings.topology, len(channel.nodes))
        self.rule = dual_named(settings.method, topology=self.topology)
        self.on_step = on_step or (lambda step: None)
        self.started = self.update_started = time.perf_counter()
        # fixed after the first round
        self.symmetry = Symmetry()
        self.anchors: Array | None = None  # the nodes' own centroids of round 1, (N·K, D)
        # change every round
        self.candidates: Array | None = None if init is None else np.asarray(init, dtype=float)[None]
        self.state: Any = None  # of the update rule
        self.trace: list[RoundRecord] = []
        self.stop_reason: StopReason | None = None
        # change when something better is found
        self.incumbent = Incumbent()
        self.lower = 0.0  # squared distances: always true
        self.dual_value = -math.inf

    # ------------------------------------------------------------------ the loop

    def run(self) -> None:
        """Price the nodes, exchange, evaluate, tighten the bounds, stop or update λ."""
        self.first_round()
        while self.stop_reason is None:
            lam = self.topology.exact(self.state.lam)
            prices = self.topology.prices(lam)  # A_iᵀ λ
            replies = self.exchange(prices)  # nodes solve `Individual_Clustering_Problem`
            at = self.evaluate(lam, prices, replies)  # d(λ) and g (`Subgradient_Consensus`)
            self.candidates = self.propose(at)  # `Avg_Centroids`, or better
            self.state = self.rule.update(self.state, at)  # λ(t+1)
            self.note("dual", replies, at)
            self.stop_reason = self.reason_to_stop(at)
        self.closing_evaluation()

    def first_round(self) -> None:
        """λ = 0 and no symmetry rule: every node's own optimum. It yields the references and the first cut.

        At λ = 0 a node's problem does not depend on labels, so relabelling its optimum by the references afterwards
        gives its optimum under the order rule: the evaluation stays valid for the dual function that follows.
        """
        settings = self.settings
        lam = np.zeros((self.topology.n_edges, *self.boxes.shape[1:]))
        replies = self.exchange(self.topology.prices(lam))
        at = self.evaluate(lam, self.topology.prices(lam), replies)
        self.anchors = at.centroids.reshape(-1, self.boxes.shape[2])
        self.candidates = self.propose(at)
        self.note("dual", replies, at)
        if settings.heuristic == "lloyd":
            self.candidates = primal.starts(at.centroids, settings.seed)
            for _ in range(settings.incumbent_rounds):
                self.incumbent_round()
        self.symmetry = Symmetry(settings.symmetry, self.references(at))
        if self.symmetry.references is not None:
            relabelled = np.array([align(centroids, self.symmetry.references) for centroids in at.centroids])
            at = replace(at, centroids=relabelled, subgradient=self.topology.residual(relabelled))
        self.state = self.rule.update(self.rule.init(lam), at)
        if settings.heuristic == "average":
            self.candidates = primal.average(at.centroids)
        if settings.method == "proximal" and self.incumbent.centroids is not None:  # the paper's start at λ = 0
            self.state = replace(self.state, lam=self.lam_of_incumbent(self.incumbent.centroids))
        self.stop_reason = self.limit_reached(at)

    # ------------------------------------------------------------------ when to stop

    def reason_to_stop(self, at: DualEvaluation) -> StopReason | None:
        reason = self.limit_reached(at)
        if reason is None and exhausted(self.rule, self.state, NEGLIGIBLE * min(self.incumbent.cost, 1e300)):
            return StopReason.DUAL_OPTIMAL
        return reason

    def limit_reached(self, at: DualEvaluation) -> StopReason | None:
        settings = self.settings
        if self.gap <= settings.gap:
            return StopReason.GAP
        if settings.residual > 0 and np.linalg.norm(at.subgradient) <= settings.residual:
            return StopReason.RESIDUAL
        if self.channel.round >= settings.max_rounds:
            return StopReason.MAX_ROUNDS
        if self.seconds >= settings.time_limit:
            return StopReason.TIME_LIMIT
        return None

    @property
    def gap(self) -> float:
        """The proven gap; under the paper's rule, for replay, its formula, which proves nothing."""
        if self.symmetry.valid:
            return relative_gap(self.lower, self.incumbent.cost)
        return formula_gap(self.dual_value, self.incumbent.cost)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started

    # ------------------------------------------------------------------ parts of a round

    def exchange(self, prices: Array) -> list[Reply]:
        settings = self.settings
        seconds = min(settings.node_seconds, max(settings.time_limit - self.seconds, 0.0))
        evaluate = None if self.candidates is None or len(self.candidates) == 0 else Evaluate(self.candidates)
        return self.channel.ask(
            [
                Query(
                    round=0,
                    solver=settings.solver,
                    rule=self.symmetry.rule,
                    references=self.symmetry.references,
                    solve=Solve(self.boxes[None], price[None], seconds, settings.node_gap),
                    evaluate=evaluate,
                )
                for price in prices
            ]
        )

    def evaluate(self, lam: Array, prices: Array, replies: list[Reply]) -> DualEvaluation:
        """d(λ) from the nodes' replies; bounds and incumbent are tightened on the way."""
        self.take_costs(replies)
        solved = [reply.solved for reply in replies if reply.solved is not None]
        values = np.array([part.values[0] for part in solved])
        bounds = np.array([part.bounds[0] for part in solved])
        centroids = np.array([part.centroids[0] for part in solved])
        at = DualEvaluation(
            lam=lam,
            value=float(values.sum()),
            bound=sum_down(bounds),
            subgradient=self.topology.residual(centroids),
            prices=prices,
            node_values=values,
            node_bounds=bounds,
            centroids=centroids,
        )
        self.dual_value = max(self.dual_value, at.value)
        if self.symmetry.valid and at.bound > self.lower:
            self.lower = min(at.bound, self.incumbent.cost)
        return at

    def take_costs(self, replies: list[Reply]) -> None:
        """Costs of the last candidates: offer them as incumbents and take Lloyd steps from them."""
        self.update_started = time.perf_counter()  # the nodes are done, T_update begins
        if self.candidates is None or len(self.candidates) == 0 or replies[0].evaluated is None:
            return
        evaluation = primal.Evaluation.of(self.candidates, replies)
        self.incumbent.offer(self.candidates, replies)
        if self.trace and self.settings.heuristic == "average":
            self.trace[-1] = replace(self.trace[-1], cost=float(evaluation.costs.min()))
        self.candidates = None
        if self.settings.heuristic == "lloyd" and self.anchors is not None:
            self.candidates = primal.lloyd(evaluation, self.anchors)

    def propose(self, at: DualEvaluation) -> Array:
        """Candidates for the next exchange."""
        fresh, running = primal.average(at.centroids), self.candidates
        if self.settings.heuristic == "average" or running is None or len(running) == 0:
            return fresh
        return np.concatenate([running, fresh])

    def references(self, at: DualEvaluation) -> Array | None:
        if self.settings.symmetry == "none":
            return None
        if self.settings.reference_node is not None:
            return np.asarray(at.centroids[self.settings.reference_node])
        return at.centroids[0] if self.incumbent.centroids is None else self.incumbent.centroids

    def lam_of_incumbent(self, centroids: Array) -> Array:
        """λ with prices −∇f_i at the incumbent: there every node's priced cost is stationary, and the optimal λ is of
        this form wherever the duality gap is zero."""
        gradients = -2.0 * self.incumbent.node_offsets
        if self.symmetry.references is not None:  # the nodes label their centroids by the references
            gradients = gradients[:, alignment(centroids, self.symmetry.references)]
        return self.topology.lam_for(balanced(-gradients))

    def incumbent_round(self) -> None:
        if self.candidates is None or len(self.candidates) == 0:
            return
        replies = self.channel.evaluate(self.candidates)
        self.take_costs(replies)
        self.note("incumbent", replies, None)

    def closing_evaluation(self) -> None:
        """The cost of the last candidates is still unknown: ask for it without new prices."""
        done = relative_gap(self.lower, self.incumbent.cost) <= self.settings.gap
        if not done and self.candidates is not None and len(self.candidates):
            self.take_costs(self.channel.evaluate(self.candidates))

    # ------------------------------------------------------------------ accounts

    def note(self, phase: str, replies: list[Reply], at: DualEvaluation | None) -> None:
        record = RoundRecord(
            phase=phase,
            round=self.channel.round,
            lower=self.lower,
            upper=self.incumbent.cost,
            boxes_done=0,
            boxes_open=0,
            cells_open=0,
            seconds=self.seconds,
            t_sub=max(reply.seconds for reply in replies),
            t_update=time.perf_counter() - self.update_started,
            dual_value=None if at is None else at.value,
            residual=None if at is None else float(np.linalg.norm(at.subgradient)),
            bytes_up=self.channel.bytes_up,
            bytes_down=self.channel.bytes_down,
        )
        self.trace.append(record)
        self.on_step(record)

    def outcome(self) -> PaperOutcome:
        incumbent = self.incumbent
        assert incumbent.centroids is not None
        assert self.stop_reason is not None
        order = canonical_order(incumbent.centroids)
        return PaperOutcome(
            centroids=incumbent.centroids[order],
            lower=min(self.lower, incumbent.cost),
            upper=incumbent.cost,
            dual_value=self.dual_value,
            stop_reason=self.stop_reason,
            trace=tuple(self.trace),
            node_costs=incumbent.node_costs,
            node_counts=incumbent.node_counts[:, order],
            node_spreads=incumbent.node_spreads[:, order],
            rounds=self.channel.round,
            bytes_up=self.channel.bytes_up,
            bytes_down=self.channel.bytes_down,
            seconds=self.seconds,
            settings=self.settings,
        )


def formula_gap(dual_value: float, cost: float) -> float:
    """1 − d(λ) / cost, the paper's `Clustering_DG`; 1 where either is unknown."""
    if not (math.isfinite(dual_value) and math.isfinite(cost)):
        return 1.0
    return 0.0 if cost <= 0.0 else 1.0 - dual_value / cost
