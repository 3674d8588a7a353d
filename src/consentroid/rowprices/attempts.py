"""One way of proving after the other: the engine on whole axes first; where its search does not end, prices on pairs of
rows (`pairing.py`), and with several sites also more and more of the axes.

Each attempt that proves more than those before is certified at once, since a site keeps prices of one kind, and of one
coordinate system, at a time. The best of all bounds known is what the run states: row prices, pair prices, row prices
and the spectrum of what they leave out, or the spectrum alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..certificate.document import Certificate
from ..core.arrays import Array
from ..core.result import Regions, StopReason, relative_gap
from ..protocol.messages import PriceQuery, StartPrices
from .cells import Cell, Node, frontier
from .coordinates import Axes, spectral_bound
from .engine import Engine
from .floors import floors
from .pairing import certify_pairs, improve_pairs, pairs_reach, seconds_needed
from .proof import certify_tree
from .session import OutOfTime, Session

WORTH = 1e-6  # of the cost: a bound that is better by less is not certified anew
MUCH_MORE = 2.0  # times what pairs will leave at best: a search that leaves so much will not prove the better bound
PAIRS = "pair prices"
PRICES_SHARE = 0.4  # of what is left of the time, for the prices of an attempt


class Attempts:
    def __init__(
        self, session: Session, sites: tuple[str, ...], features: tuple[str, ...], wants_regions: bool = True
    ) -> None:
        self.session, self.sites, self.features, self.wants_regions = session, sites, features, wants_regions
        self.best: Certificate | None = None
        self.regions: Regions | None = None

    def run(self, init: Array | None = None) -> None:
        """`best` and `regions` are what came of it."""
        session = self.session
        engine = Engine(session, self.wants_regions)
        root = engine.run(init)
        self.regions = engine.regions
        proven = 0.0 if root is None else min(leaf.bound for leaf in frontier(root))
        try:
            out = session.stop_reason in (StopReason.TIME_LIMIT, StopReason.POLICY)
            searched = 0.0 if root is None else session.axes.bound_on_rows(proven)
            try:
                by_pairs = self._pair(searched, out)
            finally:  # also after an interrupt
                if root is not None and searched >= session.spectral and not self.best:
                    self._keep(root, engine.root_cell)
            if out and session.spectral > 0.0 and not (session.proven or (by_pairs and session.n_sites == 1)):
                self._climb(engine)
        except OutOfTime:
            session.stop_reason = session.why_out
        except KeyboardInterrupt:
            session.stop_reason = StopReason.INTERRUPTED
        if session.spectral > 0.0 and (self.best is None or self.best.lower < session.spectral):
            self._spectrum_alone(engine)
        session.lower = 0.0 if self.best is None else self.best.lower
        session.bound_from = source_of(self.best)
        if session.proven and session.stop_reason is not StopReason.INTERRUPTED:
            session.stop_reason = StopReason.GAP

    def _pair(self, searched: float, wanted: bool) -> bool:
        """Prices on pairs, where wanted and there is time; whether they prove more than what was `searched`."""
        session = self.session
        wanted &= not (session.pairs_rest or session.proven)
        if wanted and seconds_needed(session) <= session.left + session.reserve:
            if session.upper - searched > MUCH_MORE * (session.upper - pairs_reach(session)):
                session.reserve = 0.0  # what was searched will not be certified
            if seconds_needed(session) <= session.left:
                improve_pairs(session)
        if session.pairs_bound <= max(searched, session.spectral) + WORTH * session.upper:
            return False
        self.best = certify_pairs(session, self.sites, self.features)
        session.lower, session.reserve = self.best.lower, 0.0
        if session.n_sites == 1 and session.stop_reason is not StopReason.INTERRUPTED:
            session.stop_reason = StopReason.EXHAUSTED if session.pairs_rest else session.why_out
        return True

    def _climb(self, first: Engine) -> None:
        """Less and less is left out, as long as that proves more and there is time."""
        session = self.session
        scatters, within = self._along_axes(first)
        lost = session.upper - max(session.spectral, 0.0 if self.best is None else self.best.lower)
        for floor, loss in floors(scatters, within, session.n_clusters, lost, 0.5 * session.gap * session.upper):
            before = session.lower = 0.0 if self.best is None else self.best.lower
            session.reserve = 0.0
            session.check_time()
            engine = Engine(session, wants_regions=False)
            root = engine.run_with(self._axes(first, floor), loss, first, session.clock + PRICES_SHARE * session.left)
            if root is not None and session.axes.bound_on_rows(root.bound) > before + WORTH * session.upper:
                self._keep(root, engine.root_cell)
            proven = 0.0 if self.best is None else self.best.lower
            if proven <= before:
                session.check_time()
                session.stop_reason = StopReason.EXHAUSTED
            if proven <= before or relative_gap(proven, session.upper) <= session.gap:
                return

    def _spectrum_alone(self, first: Engine) -> None:
        """Nothing is searched: all rows lie in one point."""
        session, engine = self.session, Engine(self.session, wants_regions=False)
        assert session.centroids is not None
        engine.locate(self._axes(first, np.inf), in_groups=False)  # sites prove nothing with groups of rows
        root = engine.root()
        points = session.axes.forward(session.centroids)
        session.totals.ask(PriceQuery(0, start=StartPrices(root.slot, points)))
        self._keep(root, engine.root_cell)

    def _keep(self, root: Node, cell: Cell) -> None:
        """Certify, once begun to the end, even if it then proves a little less: the sites' files hold its prices."""
        try:
            self.best = certify_tree(self.session, root, cell, self.sites, self.features)
        except KeyboardInterrupt:
            self.best = certify_tree(self.session, root, cell, self.sites, self.features)
            raise

    def _axes(self, first: Engine, floor: float) -> Axes:
        session = self.session
        axes = Axes.principal(first.moments, first.reference, floor)
        rest = spectral_bound(first.moments, session.n_clusters, session.n_rows, session.n_sites, first.reach, axes)
        return replace(axes, rest=rest)

    def _along_axes(self, first: Engine) -> tuple[Array, Array]:
        """Scatter of all rows along the principal axes, and of the incumbent's clusters within."""
        session, axes = self.session, Axes.principal(first.moments, first.reference)
        assert session.centroids is not None
        assert session.counts is not None
        scatters = np.maximum((first.spread**2).sum(axis=0)[::-1] * first.moments.weight, 0.0)
        along = (session.centroids - axes.coordinates.origin) @ axes.coordinates.basis
        return scatters, np.clip(scatters - session.counts @ along**2, 0.0, scatters)


def source_of(certificate: Certificate | None) -> str:
    if certificate is None:
        return "none"
    if certificate.pairs is not None:
        return PAIRS if len(certificate.sites) == 1 else f"{PAIRS}, site by site"
    if certificate.rest is None:
        return "row prices"
    return "row prices and spectrum" if min(leaf.bound for leaf in certificate.leaves) > 0.0 else "spectrum"
