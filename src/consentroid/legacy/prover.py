"""Runs the tree of `branching.py` over the nodes: one exchange a round, many boxes in it."""

from __future__ import annotations

import numpy as np

from ..protocol.messages import Evaluate, Query, Reply, Solve, Statistics
from .bounds import price_statistics
from .branching import Box, Cuts, Evaluated, Tree, process, take_counts
from .certificate import Leaf
from .coordinator import Coordinator

BOXES_A_ROUND = 1024
FEW_ROWS = 200  # of the largest node: then an exact bound costs little more than a weak one
ROOT_ONLY, EXACT = 1, 2**60  # search nodes: the bound of the point multipliers, or the node's optimum


class Prover:
    """Continues a coordinator's run until the gap is proven."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        run = coordinator.run_state
        if run.tree is None:
            assert run.evaluation is not None, "the dual loop comes first"
            root = run.evaluation
            boxes = run.certificate.domain.boxes(coordinator.settings.n_clusters)
            cuts = Cuts.none(*boxes.shape[1:])
            proof = Leaf(boxes, root.prices, root.node_bounds)
            run.tree = Tree(Box(boxes, proof, root.prices[None], cuts), run.symmetry)
            run.phase, run.stop_reason = "tree", None
        self.tree = run.tree
        self._many_rows = max(d.n_points for d in coordinator.channel.described) > FEW_ROWS

    def prove(self) -> None:
        """Take boxes, exchange, close or split them, tighten the certificate, stop or go on."""
        run = self.coordinator.run_state
        run.stop_reason = self._reason_to_stop()
        try:
            while run.stop_reason is None:
                self._round()
        finally:
            run.certificate.offer_leaves(self.tree.leaves(), self.tree.symmetry)

    def _round(self) -> None:
        """One exchange. With many rows at a node, bounds rise in strength: a new box has its decided rows counted, then
        is priced by point multipliers alone, and exactly only where the model says that prices may still close it."""
        run, settings = self.coordinator.run_state, self.coordinator.settings
        with self.tree.all_or_nothing():
            fresh, priced, search_nodes = self._chosen(self.tree.take(BOXES_A_ROUND))
            replies = self._exchange(fresh, priced, search_nodes)
            self.coordinator.take_costs(replies)
            upper = run.certificate.upper
            cutoff = upper * (1.0 - settings.gap)
            process(self.tree, self._evaluated(priced, replies), cutoff, upper)
            if fresh:
                self._take_counts(fresh, replies, cutoff)
        run.certificate.raise_lower(min(self.tree.lower, upper))
        run.stop_reason = self._reason_to_stop()
        self.coordinator.finish_round("tree", replies, None, self.tree.n_open, self.tree.n_evaluated)

    def _chosen(self, batch: list[Box]) -> tuple[list[Box], list[Box], int]:
        """Boxes to count, boxes to price, and how hard; what asks for another effort goes back to the tree."""
        if not self._many_rows:
            return [], batch, EXACT
        fresh = [box for box in batch if not box.counted]
        counted = [box for box in batch if box.counted]
        weak = any(box.pricings == 0 for box in counted)
        for box in counted:
            if (box.pricings == 0) != weak:
                self.tree.push(box)
        return fresh, [box for box in counted if (box.pricings == 0) == weak], ROOT_ONLY if weak else EXACT

    def _exchange(self, fresh: list[Box], priced: list[Box], search_nodes: int) -> list[Reply]:
        coordinator = self.coordinator
        run, settings = coordinator.run_state, coordinator.settings
        statistics = Statistics(np.array([box.boxes for box in fresh])) if fresh else None
        evaluate = None if run.candidates is None or len(run.candidates) == 0 else Evaluate(run.candidates)
        seconds = min(settings.node_seconds, max(settings.time_limit - coordinator.seconds, 0.0))
        queries = []
        for i in range(len(coordinator.channel.nodes)):
            solve = None
            if priced:
                boxes = np.repeat([box.boxes for box in priced], [len(box.trials) for box in priced], axis=0)
                prices = np.concatenate([box.trials[:, i] for box in priced])
                solve = Solve(boxes, prices, seconds, settings.node_gap, search_nodes)
            rule, references = run.symmetry.rule, run.symmetry.references
            queries.append(Query(0, settings.solver, rule, references, solve, statistics, evaluate))
        return coordinator.channel.ask(queries)

    def _evaluated(self, priced: list[Box], replies: list[Reply]) -> list[Evaluated]:
        """The nodes' answers, box by box; the mean of the most promising box is a new candidate."""
        solved = [reply.solved for reply in replies if reply.solved is not None]
        if not priced:
            return []
        bounds = np.stack([part.bounds for part in solved], axis=1)  # (trials of all boxes, N)
        values = np.stack([part.values for part in solved], axis=1)
        centroids = np.stack([part.centroids for part in solved], axis=1)  # (trials of all boxes, N, K, D)
        run = self.coordinator.run_state
        if run.candidates is None or len(run.candidates) == 0:
            run.candidates = centroids[:1].mean(axis=1)
        ends = np.cumsum([len(box.trials) for box in priced])[:-1]
        parts = (np.split(array, ends) for array in (bounds, values, centroids))
        return [Evaluated(*entry) for entry in zip(priced, *parts, strict=True)]

    def _take_counts(self, fresh: list[Box], replies: list[Reply], cutoff: float) -> None:
        counted = [reply.counted for reply in replies if reply.counted is not None]
        prices, node_bounds = price_statistics(
            np.array([part.counts for part in counted]),
            np.array([part.sums for part in counted]),
            np.array([part.constants for part in counted]),
            np.array([box.boxes for box in fresh]),
        )
        for box in take_counts(self.tree, fresh, prices, node_bounds, cutoff):
            self.tree.push(box)

    def _reason_to_stop(self) -> str | None:
        return "gap" if self.tree.n_open == 0 else self.coordinator.limit_reached()
