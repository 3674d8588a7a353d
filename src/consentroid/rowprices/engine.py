"""The loop of the proof: incumbent; then for every node of the tree of cells price, find columns, improve prices;
search; branch where the bound leaves a gap.

    opt ≥ Σ_j w_j λ_j + Σ_cells count · min_{m in cell} f(m),   f(m) = Σ_j w_j min(0, |y_j − m|² − λ_j),   any λ ≥ 0

With fees on triples of rows (`site/kernels/triples.py`) it is Σ w λ − Σ φ, and f has the fees that a centroid pays.
It knows nothing of rows, and nothing of a single site.
"""

from __future__ import annotations

import heapq
from dataclasses import replace

import numpy as np

from ..core.arrays import Array
from ..core.errors import InvalidInput
from ..core.result import Regions, StopReason, relative_gap
from ..protocol.messages import Moments, PriceQuery
from .bundle import Bundle
from .cells import Cell, Node, between_centroids, frontier, in_the_middle, most_fractional
from .columns import Columns
from .coordinates import Axes, spectral_bound
from .grafting import graft
from .helper import Helper
from .incumbents import evaluate, lloyd, split_starts, swaps
from .learning import learn
from .pairing import improve_pairs, pairs_reach, seconds_needed
from .regions import MOST_BOXES, find_regions
from .search import CellSearch
from .session import OutOfTime, Session
from .totals import total
from .tree import SearchTree
from .trimming import PATIENT

STEPS_PER_SEARCH = 60  # of prices, before what they have come to is proven again
SEARCHES_LEFT = 4.0  # times what a search takes: kept at the end, so that the last prices are proven, too
LEFT_AT_THE_END = 0.05  # of the time, at least
STEPS_BEFORE_BRANCHING = 10  # the same for a node that is branched anyway
ROUNDINGS_AT_THE_END = 15  # that find nothing, where a tree of cells has taught new columns
STARTS_OF_MANY = 8  # clusterings from which the first incumbent is put together, where clusters are many
REGION_NUMBERS = 2e7  # rows times features times boxes that the search for regions may look at
REGION_LOOKS = 30.0  # or so many times all rows, if that is more
CLEAR_ROWS = 20_000  # up to which prices are moved so that regions become small: with more, nothing costs as much
TO_PROVE = 0.15  # of the gap that prices leave: what a search for the bound's own sake may lack besides
TO_PROVE_OF_MANY = 0.05  # with many clusters, where a step takes as long as such a search
BRANCH_WITH = 0.5  # of the gap that the best prices leave: what the bound of a node that is branched may lack besides
BRANCH_WITH_TRIPLES = 0.1  # the same where fees leave so little that a missing column counts
SOONER, GROWING = 0.5, 0.3  # of the time that pairs need: then so many open boxes for each done show no end of them
SEARCH_UNTIL, SEARCH_FOR, SEARCH_LATEST = 0.3, 0.2, 0.6  # of the time: for a search of all axes that does not end


class Engine:
    def __init__(self, session: Session, wants_regions: bool = True) -> None:
        self.session, self.wants_regions = session, wants_regions
        self.columns = Columns(session.totals, session.domain.n_features)
        self._next_slot = 0
        self.regions: Regions | None = None
        self.stuck = False  # what sites round off is more than the gap leaves to spare
        self._search_at = 0.5 * session.time_limit  # when prices must do as they are
        self._leave_at, self._pairs_came = 0.0, False  # when the search of the root makes room for prices on pairs
        self._search_took = 0.0  # seconds of the last search that came to its end
        self.spread = np.empty((0, 0))  # principal axes times the rows' spread along them

    # ------------------------------------------------------------------ the loop

    def run(self, init: Array | None = None) -> Node | None:
        """Find, prove, branch; the root of the tree of cells, or None if there was no time for one."""
        session = self.session
        with Helper.or_none(session.n_clusters >= PATIENT) as session.helper:
            try:
                root, bundle = self._prove(init)
            finally:
                session.until, session.leave_at, session.helper = np.inf, np.inf, None
        if root is None or not root.priced:
            return None
        self._conclude(root)
        self._find_regions(root, bundle)
        return root

    def _prove(self, init: Array | None) -> tuple[Node | None, Bundle | None]:
        """The root as far as it came, and the prices that came last."""
        session, root, bundle = self.session, None, None
        try:
            self._find_incumbent(init)
            root = self.root()
            waiting: list[tuple[float, int, Node, Bundle | None]] = [(root.bound, 0, root, None)]
            while waiting and not self.stuck and not (session.proven and root.priced):
                _, _, node, parent = heapq.heappop(waiting)
                bundle = self._price(node, parent)
                if not session.proven:
                    self._search(node, bundle)
                if node.bound < session.enough and not self.stuck:
                    for child in self._branch(node, bundle):
                        session.cells_done += 1
                        heapq.heappush(waiting, (child.bound, session.cells_done, child, bundle))
                session.cells_open = len(waiting)
                self._conclude(root)
            if root.children and bundle is not None:  # what the cells have taught may show better centroids, too
                bundle.round_thoroughly(most=ROUNDINGS_AT_THE_END)
            session.stop_reason = StopReason.GAP if session.proven else StopReason.EXHAUSTED
        except OutOfTime:
            session.stop_reason = session.why_out
            if session.centroids is None:
                self._find_any_incumbent()
        except KeyboardInterrupt:
            session.stop_reason = StopReason.INTERRUPTED
            if session.centroids is None:
                raise
        return root, bundle

    def run_with(self, axes: Axes, loss: float, first: Engine, search_at: float) -> Node | None:
        """The root alone, with axes that leave something out and lose so much by it; None if there was no time."""
        session, root = self.session, None
        self.locate(axes)
        session.loss, self._search_at = loss, search_at
        assert session.centroids is not None
        self.spread, self._pool = first.spread, session.axes.forward(session.centroids)
        try:
            root = self.root()
            self._search(root, self._price(root, None))
        except OutOfTime:
            pass
        finally:
            session.loss = 0.0
        if root is None or not root.priced:
            return None
        self._conclude(root)
        return root

    def _find_regions(self, root: Node, bundle: Bundle | None) -> None:
        """Regions of all optimal centroids, where the root alone proves the bound; a sharper bound makes them small."""
        session = self.session
        tree = root.trees[0] if root.trees else None
        if not (self.wants_regions and root.bound >= session.enough and session.upper > 0.0) or bundle is None:
            return
        if tree is None or root.children or len(tree) > MOST_BOXES // 4:  # covering takes several times as many
            return
        session.enter("regions")
        try:
            rows = session.n_rows * session.domain.n_features  # limited by effort: runs can be repeated
            with session.within(max(REGION_NUMBERS, REGION_LOOKS * rows)):
                slack = 0.01 * max(bundle.value - session.enough, 0.0)
                if session.n_rows <= CLEAR_ROWS:
                    bundle.stand_clear(session.upper_y - slack)
                if bundle.value > session.upper_y - slack:
                    self._search_cells(root, bundle, bundle.least - slack / session.n_clusters)
                self.regions = find_regions(session, root, self.root_cell, 0.0)
        except OutOfTime:
            pass
        self._conclude(root)

    def _price(self, node: Node, parent: Bundle | None) -> Bundle:
        """Prices of a node, from the incumbent or its parent, until they are good enough to search."""
        session = self.session
        session.enter("prices")
        bundle = Bundle(session, self.columns, node, self._slot, self.spread)
        if parent is None:
            bundle.pool = self._pool
            bundle.start_from_incumbent()
            if session.learning:
                learn(bundle, self._goal(), 0.5 * self._search_at)
        else:
            node.slot = bundle.centre = self._slot()
            bundle.start_from(parent)
        node.priced = True
        if not session.proven:
            bundle.improve(self._goal(), np.inf if node.path else self._search_at)
        return bundle

    def _search(self, node: Node, bundle: Bundle) -> None:
        """Prove the node's bound cell by cell; what the search finds below its target goes back to the prices."""
        session, generous, before_that, late = self.session, 0.0, np.empty(0), 0
        while True:
            if bundle.value < session.cutoff and node.path:
                self._prove_before_branching(node, bundle)
                return
            before = bundle.value
            bundle.probe()
            if bundle.value < min(before, self._goal()) - 1e-9 * session.upper_y:
                bundle.improve(self._goal(), np.inf if node.path else self._search_at)
            session.enter("search")
            slack = bundle.value - session.cutoff
            slack -= min(0.5 * slack, 4e-11 * bundle.total)  # what the certificate's own rounding takes off
            if slack <= 0.0:  # the root's own bound, for its sake alone: a little below what the prices promise
                share = TO_PROVE_OF_MANY if session.n_clusters >= PATIENT else TO_PROVE
                slack = share * max(session.upper_y - bundle.value, 0.0)
            hurried = node.bound <= 0.0 and session.clock > self._search_at  # any bound is better than none
            if hurried:
                generous = 0.01 * session.upper_y if generous == 0.0 else 2.0 * generous
                hurried, slack = generous > slack, max(slack, generous)
            slack = max(slack, (1.0 - 0.5**late) * (bundle.value - node.bound))
            targets = bundle.least - slack / session.n_clusters
            # the same once more: what sites tell of points and of boxes does not meet
            again = targets.shape == before_that.shape and np.allclose(targets, before_that, rtol=1e-12, atol=0.0)
            self._limit_search(node)
            missed, before_that = self._search_cells(node, bundle, targets, to_the_end=again), targets
            session.until = session.leave_at = np.inf
            if again:
                self.stuck = True
                return
            if missed is None and hurried and node.bound < session.enough:  # now there is time for a better one
                continue
            if missed is None and (node.bound >= session.enough or bundle.optimal):
                return
            if missed is None and self.stuck and bundle.value >= self._goal():
                return
            self.stuck = False
            session.enter("prices")
            if missed is None:  # there is a bound; the prices can still be better
                proven, before_that = bundle.value, before_that[:0]
                left = self._left_for_the_end()
                bundle.improve(self._goal(), session.time_limit - left, STEPS_PER_SEARCH)
                while bundle.value < session.cutoff and self._prefers_prices(node, bundle, session.time_limit - left):
                    bundle.improve(self._goal(), session.time_limit - left, STEPS_PER_SEARCH)
                if bundle.value <= proven:
                    return
                continue
            late += session.clock > (1.0 - LEFT_AT_THE_END) * session.time_limit  # there is no time to miss many more
            promised, optimal = bundle.value, bundle.optimal
            bundle.add_points(*missed)
            lacking = BRANCH_WITH_TRIPLES if bundle.tied else BRANCH_WITH
            proven_enough = node.bound > promised - lacking * (session.upper_y - promised)
            if optimal and promised < session.cutoff and proven_enough:  # it must be branched anyway
                return
            bundle.improve(self._goal(), np.inf if node.path else self._search_at)

    def _left_for_the_end(self) -> float:
        """Seconds in which the last prices can be proven, which mostly takes more than one search."""
        took, limit = self._search_took, self.session.time_limit
        return max(SEARCHES_LEFT * took, min(2.5 * SEARCHES_LEFT * took, 0.1 * limit), LEFT_AT_THE_END * limit)

    def _prefers_prices(self, node: Node, bundle: Bundle, until: float) -> bool:
        """Where a branch would have very many children, better prices are worth more than it."""
        session = self.session
        return session.n_clusters >= PATIENT and not (node.path or bundle.optimal) and session.clock < until

    def _prove_before_branching(self, node: Node, bundle: Bundle) -> None:
        """A node that must be branched: most of what its prices promise, for little more work."""
        session = self.session
        for last in (False, False, True):
            session.enter("search")
            missing = TO_PROVE * max(session.upper_y - bundle.value, 0.0)
            missed = self._search_cells(node, bundle, bundle.least - missing / session.n_clusters, to_the_end=last)
            self.stuck = False
            if missed is None:
                return
            session.enter("prices")
            bundle.add_points(*missed)
            bundle.improve(self._goal(), most=STEPS_BEFORE_BRANCHING)

    def _search_cells(
        self, node: Node, bundle: Bundle, targets: Array, to_the_end: bool = False
    ) -> tuple[Array, int] | None:
        """Search every cell that counts; if f is below the target in one, the points and the cell."""
        session, proven = self.session, np.zeros(len(node.cells))
        began = session.seconds
        trees: list[SearchTree | None] = []
        steepness = session.weight / max(bundle.total, 1e-300)
        for i, cell in enumerate(node.cells):
            if cell.count == 0:
                trees.append(None)
                continue
            target = min(float(targets[i]), 0.0)
            outcome = CellSearch(session, cell, self.root_cell, bundle.centre, target, steepness, to_the_end).run()
            proven[i] = outcome.proven
            self.stuck |= outcome.stuck and not len(outcome.below)
            trees.append(outcome.tree)
            if len(outcome.below):
                if len(node.cells) == 1:  # what was proven on the way is a bound, too
                    self._take_bound(node, bundle, proven, trees)
                return outcome.below, i
        self._take_bound(node, bundle, proven, trees)
        self._search_took = session.seconds - began
        session.check_time()
        return None

    def _take_bound(self, node: Node, bundle: Bundle, proven: Array, trees: list[SearchTree | None]) -> None:
        """The bound that searches of all cells give, if it is the node's best."""
        bound = bundle.total + float(node.counts @ proven)
        bound -= 1e-14 * (abs(bundle.total) + float(node.counts @ np.abs(proven)))
        if np.isfinite(bound) and (bound > node.bound or not node.trees):
            node.bound, node.total, node.slot = bound, bundle.total, bundle.centre
            node.targets, node.trees = proven, trees

    def _branch(self, node: Node, bundle: Bundle) -> list[Node]:
        """Children with every number of centroids below the most fractional threshold."""
        self.session.enter("branch")
        choice = most_fractional(node, bundle.z_points, bundle.z_cells, bundle.z)
        if choice is None:  # columns that came after the last master may still say where
            bundle.mix()
            choice = most_fractional(node, bundle.z_points, bundle.z_cells, bundle.z)
        if choice is None and self.session.centroids is not None:
            choice = between_centroids(node, self.session.axes.forward(self.session.centroids))
        choice = choice or in_the_middle(node, self.root_cell)
        return [] if choice is None else node.branch(*choice)

    def _conclude(self, root: Node) -> None:
        """The bound of the whole tree so far."""
        leaves = frontier(root)
        if leaves:
            self.session.raise_lower(min(leaf.bound for leaf in leaves))
        self.session.note()

    def _limit_search(self, node: Node) -> None:
        """When the search of the root is left, if there is another way (`attempts.py`): for prices on pairs when it has
        taken as long as they will, for axes in part when it has had its share and is not nearly done."""
        session = self.session
        if node.path or session.loss > 0.0:
            return
        if session.spectral > 0.0:
            share = max(SEARCH_UNTIL, min(session.clock / session.time_limit + SEARCH_FOR, SEARCH_LATEST))
            session.until = share * session.time_limit
        needed = seconds_needed(session)
        if self._pairs_came:
            session.leave_at = self._leave_at
        elif needed < session.left:
            self._leave_at = max(session.clock + needed, self._leave_at)
            session.leave_at = self._leave_at - (1.0 - SOONER) * needed
            session.reconsider = self._look_ahead

    def _look_ahead(self) -> float:
        """Pairs come sooner where boxes only grow more. Until when does the search go on?"""
        session = self.session
        if session.boxes_open > GROWING * session.boxes_done:
            return self._pairs_come()
        session.reconsider = self._pairs_come
        return self._leave_at

    def _pairs_come(self) -> float:
        """Prices on pairs are due, in the middle of a search. Until when does it go on? Where pairs cannot close the
        gap, until they must begin; else they are tried at once, and it goes on if that was in vain."""
        session, self._pairs_came = self.session, True
        if relative_gap(pairs_reach(session), session.upper) > session.gap:
            self._leave_at = max(session.time_limit - seconds_needed(session), session.clock)
        else:
            reserve, missing = session.reserve, session.missing
            improve_pairs(session)
            session.enter("search")
            session.reserve, session.missing = reserve, missing
            self._leave_at = session.clock if session.proven else np.inf
        return self._leave_at

    def _goal(self) -> float:
        """The value at which prices are good enough: half of the gap is left to the search."""
        return self.session.bound_leaving(0.4)

    # ------------------------------------------------------------------ beginning

    def _find_incumbent(self, init: Array | None) -> None:
        """Axes from the moments of all rows, then Lloyd from several starts, among them the given one."""
        session = self.session
        if init is not None:
            evaluate(session, init[None])
        self.reference = reference = 0.5 * session.domain.lower + 0.5 * session.domain.upper
        moments = session.totals.ask(PriceQuery(0, moments=Moments(reference))).moments
        assert moments is not None
        self.moments = moments
        mean = moments.sums / moments.weight
        scatter = moments.products / moments.weight - np.outer(mean, mean)
        if not np.isfinite(scatter).all():
            raise InvalidInput(
                "squares of the rows or of the domain overflow; scale features or weights down, or narrow the domain"
            )
        self.reach = float(np.maximum(np.abs(session.domain.lower), np.abs(session.domain.upper)).max())
        session.spectral = spectral_bound(moments, session.n_clusters, session.n_rows, session.n_sites, self.reach)
        values, vectors = np.linalg.eigh(0.5 * (scatter + scatter.T))
        self.spread = vectors * np.sqrt(np.maximum(values, 0.0))
        if init is not None:
            lloyd(session, init[None], self.spread)
        if session.centroids is None or session.n_clusters > 1:
            candidates = split_starts(session, reference + mean, self.spread)
            many = session.n_clusters >= PATIENT
            ended = lloyd(session, candidates, self.spread, keep=STARTS_OF_MANY if many else 2)
            if many:
                graft(session, ended, self.spread)
            if session.stride == 1:
                swaps(session, self.spread, rounds=min(1 + session.n_clusters // 3, 8))
            self._pool = ended.reshape(-1, session.domain.n_features)
        else:
            self._pool = session.centroids
        self.locate(Axes.principal(moments, reference))
        if session.axes.scatter_error > (0.05 * session.gap) ** 2 * session.upper_y:
            self.locate(Axes.plain(session.domain.n_features))
        self._pool = session.axes.forward(self._pool)
        session.note()

    def _find_any_incumbent(self) -> None:
        """For want of time: points along the diagonal of the domain."""
        share = ((np.arange(self.session.n_clusters) + 0.5) / self.session.n_clusters)[:, None]
        domain = self.session.domain
        evaluate(self.session, ((1.0 - share) * domain.lower + share * domain.upper)[None])

    def locate(self, axes: Axes, in_groups: bool = True) -> None:
        size = self.session.group_size if in_groups else 1
        query = PriceQuery(0, coordinates=replace(axes.coordinates, stride=size))
        self.session.learning = size > 1
        replies = self.session.totals.ask_each(query)
        located = total(query, replies).located
        assert located is not None
        self.session.site_errors = np.array([reply.located.scatter_error for reply in replies if reply.located])
        self.session.axes = axes.with_error(located.scatter_error)

    def root(self) -> Node:
        lower, upper = self.session.axes.root(self.session.domain)
        self.root_cell = Cell(lower, upper, self.session.n_clusters)
        return Node((self.root_cell,), self._slot(), 0.0)

    def _slot(self) -> int:
        self._next_slot += 1
        return self._next_slot
