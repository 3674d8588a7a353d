"""Runs the tree of `branching.py` over the nodes: one exchange a round, many boxes in it."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from .branching import Box, Cuts, Evaluated, Tree, process
from .certificate import Leaf
from .coordinator import Coordinator
from .messages import Evaluate, Query, Reply, Solve

Array = NDArray[np.float64]

BOXES_A_ROUND = 1024
SEARCH_NODES = 2**60
WIDE_ROUND = 64  # below this many boxes a round is mostly waiting: split two levels at once


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
            run.tree = Tree(Box(boxes, Leaf(boxes, root.prices, root.node_bounds), root.prices[None], cuts), run.symmetry)
            run.phase, run.stop_reason = "tree", None
        self.tree = run.tree

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
        run, settings = self.coordinator.run_state, self.coordinator.settings
        batch = self.tree.take(BOXES_A_ROUND)
        replies = self._exchange(batch)
        started = time.perf_counter()
        self.coordinator.take_costs(replies)
        solved = [reply.solved for reply in replies if reply.solved is not None]
        bounds = np.stack([part.bounds for part in solved], axis=1)  # (trials of all boxes, N)
        values = np.stack([part.values for part in solved], axis=1)
        centroids = np.stack([part.centroids for part in solved], axis=1)  # (trials of all boxes, N, K, D)
        ends = np.cumsum([len(box.trials) for box in batch])
        results = [
            Evaluated(box, bounds[end - len(box.trials) : end], values[end - len(box.trials) : end], centroids[end - len(box.trials) : end])
            for box, end in zip(batch, ends, strict=True)
        ]
        cutoff = run.certificate.upper * (1.0 - settings.gap)
        process(self.tree, results, cutoff, run.certificate.upper)
        if run.candidates is None or len(run.candidates) == 0:
            run.candidates = centroids[:1].mean(axis=1)
        run.certificate.raise_lower(min(self.tree.lower, run.certificate.upper))
        run.stop_reason = self._reason_to_stop()
        t_update = time.perf_counter() - started
        self.coordinator.finish_round("tree", replies, None, self.tree.n_open, self.tree.n_evaluated, t_update)

    def _exchange(self, batch: list[Box]) -> list[Reply]:
        coordinator = self.coordinator
        run, settings = coordinator.run_state, coordinator.settings
        boxes = np.repeat([box.boxes for box in batch], [len(box.trials) for box in batch], axis=0)
        prices = np.concatenate([box.trials for box in batch])
        evaluate = None if run.candidates is None or len(run.candidates) == 0 else Evaluate(run.candidates)
        seconds = max(settings.time_limit - coordinator.seconds, 0.0)
        return coordinator.channel.ask(
            [
                Query(
                    round=0,
                    solver=settings.solver,
                    rule=run.symmetry.rule,
                    references=run.symmetry.references,
                    solve=Solve(boxes, prices[:, i], seconds, settings.node_gap, SEARCH_NODES),
                    evaluate=evaluate,
                )
                for i in range(len(coordinator.channel.nodes))
            ]
        )

    def _reason_to_stop(self) -> str | None:
        coordinator = self.coordinator
        run, settings = coordinator.run_state, coordinator.settings
        if run.certificate.gap <= settings.gap:
            return "gap"
        if self.tree.n_open == 0:
            return "gap"
        if settings.max_rounds is not None and coordinator.channel.round >= settings.max_rounds:
            return "max_rounds"
        if coordinator.seconds >= settings.time_limit:
            return "time_limit"
        return None
