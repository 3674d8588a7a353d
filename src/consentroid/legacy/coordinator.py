"""The algorithm: dual decomposition of federated K-means, one round a turn of the loop.

    max_λ d(λ),   d(λ) = Σ_i min_{m_i} f_i(m_i) + ⟨A_iᵀ λ, m_i⟩                                    (`Dual_Problem`)

The query that carries the new prices also carries the last candidate centroids, so a round is one exchange. The loop
ends with a certificate; `legacy/branching.py` goes on from there until nothing is left to prove.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.problem import Domain
from ..core.symmetry import Symmetry, align, alignment
from ..core.topology import Topology, balanced
from ..paper import primal
from ..paper.dual.base import DualEvaluation, exhausted
from ..paper.dual.registry import dual_named
from ..paper.settings import Settings
from ..paper.trace import RoundRecord
from ..protocol.messages import Evaluate, Query, Reply, Solve
from ..transport.channel import Channel
from .certificate import Certificate, Leaf, relative_gap
from .run_state import Run

OnRound = Callable[[RoundRecord], None]

LIMITS = ("max_rounds", "time_limit", "interrupted")
PATIENCE = 4  # dual rounds in which the bound must rise for the dual loop to go on, where a proof is wanted
DUAL_ROUNDS = 150  # t_max of the paper: branch and bound takes over at the latest


class Coordinator:
    """Runs the loop over any transport; knows nothing of rows."""

    def __init__(
        self,
        channel: Channel,
        domain: Domain,
        settings: Settings,
        on_round: OnRound | None = None,
        on_state: Callable[[Run], None] | None = None,
    ) -> None:
        self.channel = channel
        self.settings = settings
        self.topology = Topology.of(settings.topology, len(channel.nodes))
        self.dual = dual_named(settings.method, topology=self.topology)
        self.run_state = Run(Certificate(channel.nodes, domain, settings.n_clusters))
        self._boxes = domain.boxes(settings.n_clusters)
        self._on_round = on_round or (lambda record: None)
        self._on_state = on_state or (lambda run: None)
        self._before = 0.0  # seconds of earlier sessions
        self._started = time.perf_counter()
        self._update_started = self._started

    def initial_state(self) -> Any:
        """The update rule's state at λ = 0, before any evaluation."""
        return self.dual.init(np.zeros((self.topology.n_edges, *self._boxes.shape[1:])))

    def resume(self, run: Run) -> None:
        """Continue a run from its checkpoint."""
        if run.stop_reason in LIMITS or (run.stop_reason == "gap" and run.certificate.gap > self.settings.gap):
            run.stop_reason = None  # limits are set anew
        self.run_state, self._before = run, run.elapsed
        self.channel.continue_from(run.round, run.bytes_up, run.bytes_down)

    # ------------------------------------------------------------------ the loop of the paper

    def maximise_dual(self) -> None:
        """Price the nodes, exchange, evaluate, tighten the certificate, stop or update λ."""
        run = self.run_state
        if run.dual_state is None:
            self._first_round()
        while run.phase == "dual" and run.stop_reason is None:
            lam = self.topology.exact(run.dual_state.lam)
            prices = self.topology.prices(lam)  # A_iᵀ λ
            replies = self._exchange(prices)  # nodes solve `Individual_Clustering_Problem`
            at = self._evaluate(lam, prices, replies)  # d(λ) and g (`Subgradient_Consensus`)
            self._tighten(at)
            run.candidates = self._propose(at)  # `Avg_Centroids`, or better
            run.dual_state = self.dual.update(run.dual_state, at)  # λ(t+1)
            run.stop_reason = self._reason_to_stop(at)
            self.finish_round("dual", replies, at)
        self._closing_evaluation()

    def _first_round(self) -> None:
        """λ = 0 and no symmetry rule: every node's own optimum. It yields the references and the first cut.

        At λ = 0 a node's problem does not depend on labels, so relabelling its optimum by the references afterwards
        gives its optimum under the order rule: the evaluation stays valid for the dual function that follows.
        """
        run, settings = self.run_state, self.settings
        lam = np.zeros((self.topology.n_edges, *self._boxes.shape[1:]))
        replies = self._exchange(self.topology.prices(lam))
        at = self._evaluate(lam, self.topology.prices(lam), replies)
        self._tighten(at)
        run.anchors = at.centroids.reshape(-1, self._boxes.shape[2])
        run.candidates = self._propose(at)
        self.finish_round("dual", replies, at)
        if settings.heuristic == "lloyd":
            run.candidates = primal.starts(at.centroids, settings.seed)
            for _ in range(settings.incumbent_rounds):
                self._incumbent_round()
        run.symmetry = Symmetry(settings.symmetry, self._references(at))
        relabelled = at.centroids if run.symmetry.references is None else np.array(
            [align(centroids, run.symmetry.references) for centroids in at.centroids]
        )
        at = self._evaluation(lam, at.prices, at.node_values, at.node_bounds, relabelled)
        run.evaluation = at
        run.dual_state = self.dual.update(self.initial_state(), at)
        if settings.heuristic == "average":
            run.candidates = primal.average(at.centroids)
        if settings.method == "proximal" and run.certificate.centroids is not None:  # the paper's start at λ = 0
            run.dual_state = replace(run.dual_state, lam=self._lam_of_incumbent())
        run.stop_reason = self.limit_reached(at)

    def _reason_to_stop(self, at: DualEvaluation) -> str | None:
        reason = self.limit_reached(at)
        if reason is None and exhausted(self.dual, self.run_state.dual_state, self._worthwhile_increase()):
            return "dual_optimal"
        if reason is None and self.settings.prove and self._stalled():
            return "dual_stalled"
        return reason

    def _stalled(self) -> bool:
        """Whether branching promises more than further prices: a proof is wanted and the bound hardly rises."""
        rounds = [record for record in self.run_state.trace.records if record.phase == "dual"]
        if len(rounds) < PATIENCE + 1:
            return False
        risen = self.run_state.certificate.lower - rounds[-PATIENCE].lower
        return risen <= self._worthwhile_increase() or len(rounds) >= DUAL_ROUNDS

    def limit_reached(self, at: DualEvaluation | None = None) -> str | None:
        settings = self.settings
        if self._gap() <= settings.gap:
            return "gap"
        if at is not None and settings.residual > 0 and np.linalg.norm(at.subgradient) <= settings.residual:
            return "residual"
        if settings.max_rounds is not None and self.channel.round >= settings.max_rounds:
            return "max_rounds"
        if self.seconds >= settings.time_limit:
            return "time_limit"
        return None

    def _gap(self) -> float:
        """The proven gap; under the paper's rule, for replay, its formula (`Clustering_DG`), which proves nothing."""
        certificate = self.run_state.certificate
        if self.run_state.symmetry.valid:
            return certificate.gap
        return relative_gap(self.run_state.dual_value, certificate.upper)

    # ------------------------------------------------------------------ parts of a round

    def _exchange(self, prices: Array) -> list[Reply]:
        run, settings = self.run_state, self.settings
        seconds = min(settings.node_seconds, max(settings.time_limit - self.seconds, 0.0))
        evaluate = None if run.candidates is None or len(run.candidates) == 0 else Evaluate(run.candidates)
        return self.channel.ask(
            [
                Query(
                    round=0,
                    solver=settings.solver,
                    rule=run.symmetry.rule,
                    references=run.symmetry.references,
                    solve=Solve(self._boxes[None], price[None], seconds, settings.node_gap),
                    evaluate=evaluate,
                )
                for price in prices
            ]
        )

    def _evaluate(self, lam: Array, prices: Array, replies: list[Reply]) -> DualEvaluation:
        self.take_costs(replies)
        solved = [reply.solved for reply in replies if reply.solved is not None]
        return self._evaluation(
            lam,
            prices,
            np.array([part.values[0] for part in solved]),
            np.array([part.bounds[0] for part in solved]),
            np.array([part.centroids[0] for part in solved]),
        )

    def _evaluation(
        self, lam: Array, prices: Array, values: Array, bounds: Array, centroids: Array
    ) -> DualEvaluation:
        return DualEvaluation(
            lam=lam,
            value=float(values.sum()),
            bound=float(bounds.sum()),
            subgradient=self.topology.residual(centroids),
            prices=prices,
            node_values=values,
            node_bounds=bounds,
            centroids=centroids,
        )

    def _tighten(self, at: DualEvaluation) -> None:
        run = self.run_state
        run.dual_value = max(run.dual_value, at.value)
        if run.evaluation is None or at.bound > run.evaluation.bound:
            run.evaluation = at
        run.certificate.offer_leaves([Leaf(self._boxes, at.prices, at.node_bounds)], run.symmetry)

    def take_costs(self, replies: list[Reply]) -> None:
        """Costs of the last candidates: offer them as incumbents and take Lloyd steps from them."""
        self._update_started = time.perf_counter()  # the nodes are done, T_update begins
        run = self.run_state
        if run.candidates is None or len(run.candidates) == 0 or replies[0].evaluated is None:
            return
        evaluation = primal.Evaluation.of(run.candidates, replies)
        for c, (candidate, node_costs) in enumerate(zip(run.candidates, evaluation.node_costs.T, strict=True)):
            if run.certificate.offer_cost(candidate, node_costs):
                parts = [reply.evaluated for reply in replies if reply.evaluated is not None]
                run.incumbent_counts = np.array([part.counts[c] for part in parts])
                run.incumbent_offsets = np.array([part.offsets[c] for part in parts])
        if run.trace.records and self.settings.heuristic == "average":
            run.trace.records[-1] = replace(run.trace.records[-1], cost=float(evaluation.costs.min()))
        run.candidates = None
        if self.settings.heuristic == "lloyd" and run.anchors is not None:
            run.candidates = primal.lloyd(evaluation, run.anchors)

    def _propose(self, at: DualEvaluation) -> Array:
        """Candidates for the next exchange."""
        if self.settings.heuristic == "average":
            return primal.average(at.centroids)
        running = self.run_state.candidates
        fresh = primal.average(at.centroids)
        return fresh if running is None or len(running) == 0 else np.concatenate([running, fresh])

    def _references(self, at: DualEvaluation) -> Array | None:
        if self.settings.symmetry == "none":
            return None
        if self.settings.reference_node is not None:
            return np.asarray(at.centroids[self.settings.reference_node])
        best = self.run_state.certificate.centroids
        return at.centroids[0] if best is None else best

    def _lam_of_incumbent(self) -> Array:
        """λ with prices −∇f_i at the incumbent: there every node's priced cost is stationary, and the optimal λ is of
        this form wherever the duality gap is zero."""
        run = self.run_state
        assert run.certificate.centroids is not None
        assert run.incumbent_offsets is not None
        gradients = -2 * run.incumbent_offsets
        if run.symmetry.references is not None:  # the nodes label their centroids by the references
            order = alignment(run.certificate.centroids, run.symmetry.references)
            gradients = gradients[:, order]
        return self.topology.lam_for(balanced(-gradients))

    def _worthwhile_increase(self) -> float:
        """Below this increase of the bound another dual round is not worth its exchange."""
        certificate = self.run_state.certificate
        missing = certificate.upper * (1 - self.settings.gap) - certificate.lower
        fraction = 0.05 if self.settings.prove else 0.0
        return max(fraction * missing, 1e-9 * abs(certificate.upper)) if math.isfinite(missing) else 0.0

    def _incumbent_round(self) -> None:
        run = self.run_state
        if run.candidates is None or len(run.candidates) == 0:
            return
        replies = self.channel.evaluate(run.candidates)
        self.take_costs(replies)
        self.finish_round("incumbent", replies, None)

    def _closing_evaluation(self) -> None:
        """The cost of the last candidates is still unknown: ask for it without new prices."""
        run = self.run_state
        done = run.phase != "dual" or run.certificate.gap <= self.settings.gap
        if not done and run.candidates is not None and len(run.candidates):
            self.take_costs(self.channel.evaluate(run.candidates))

    # ------------------------------------------------------------------ accounts

    @property
    def seconds(self) -> float:
        return self._before + time.perf_counter() - self._started

    def finish_round(
        self,
        phase: str,
        replies: list[Reply],
        at: DualEvaluation | None,
        boxes_open: int = 1,
        boxes_done: int = 0,
    ) -> None:
        certificate = self.run_state.certificate
        record = RoundRecord(
            round=self.channel.round,
            phase=phase,
            lower=certificate.lower,
            upper=certificate.upper,
            cells_open=0,
            seconds=self.seconds,
            t_sub=max(reply.seconds for reply in replies),
            t_update=time.perf_counter() - self._update_started,
            dual_value=None if at is None else at.value,
            residual=None if at is None else float(np.linalg.norm(at.subgradient)),
            boxes_open=boxes_open,
            boxes_done=boxes_done,
            bytes_up=self.channel.bytes_up,
            bytes_down=self.channel.bytes_down,
        )
        run = self.run_state
        run.trace.records.append(record)
        run.round, run.bytes_up, run.bytes_down = record.round, record.bytes_up, record.bytes_down
        run.elapsed = record.seconds
        self._on_round(record)
        if run.dual_state is not None:  # before that there is nothing worth resuming
            self._on_state(run)
