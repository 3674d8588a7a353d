"""Nodes of the tree of cells, priced and searched one by one: for tests of prices, branches and certificates."""

from __future__ import annotations

import math

import numpy as np

from consentroid.core.problem import Problem
from consentroid.rowprices.bundle import Bundle
from consentroid.rowprices.cells import Node
from consentroid.rowprices.engine import Engine
from consentroid.rowprices.session import Session
from consentroid.rowprices.totals import Totals
from consentroid.site.worker import SiteWorker
from consentroid.transport.channel import Channel
from consentroid.transport.inprocess import InProcessTransport


class Prices:
    """An engine with an incumbent; nodes are priced one by one."""

    def __init__(self, rows: dict[str, np.ndarray], n_clusters: int) -> None:
        problem = Problem.checked(rows, n_clusters)
        self.workers = [SiteWorker(node) for node in problem.nodes]
        channel = Channel(InProcessTransport(self.workers))
        domain = channel.agree(n_clusters, problem.domain)
        self.session = Session(Totals(channel.ask_prices), domain, n_clusters, 1e-7, math.inf, np.random.default_rng(0))
        self.session.n_rows = sum(map(len, rows.values()))
        self.engine = Engine(self.session, wants_regions=False)
        self.engine._find_incumbent(None)
        self.root = self.engine.root()
        self.y = self.session.axes.forward(np.concatenate(list(rows.values())))

    def priced(self, node: Node, parent: Bundle | None) -> Bundle:
        """Prices of a node as good as they get, and its bound proven at them."""
        engine, session = self.engine, self.session
        bundle = Bundle(session, engine.columns, node, engine._slot, engine.spread)
        if parent is None:
            bundle.pool = engine._pool
            bundle.start_from_incumbent()
        else:
            node.slot = bundle.centre = engine._slot()
            bundle.start_from(parent)
        for _ in range(20):
            bundle.improve(math.inf)
            missed = engine._search_cells(node, bundle, bundle.least - 1e-7 * bundle.total / session.n_clusters)
            if missed is None:
                return bundle
            bundle.add_points(*missed)
        raise AssertionError("the search still finds columns")

    def kept(self, slots: list[int]) -> dict[str, np.ndarray]:
        """The sites' prices in these slots, in the order of their rows."""
        out = {}
        for worker in self.workers:
            inner = worker._prices
            out[worker.name] = np.empty((len(slots), len(inner.y)))
            for i, slot in enumerate(slots):
                out[worker.name][i, inner.order] = inner.slots[slot]
        return out
