"""Good prices for one node of the tree of cells: a proximal bundle method that needs only sums.

    price:   λ = max(0, λ̂ + τ (1 − Σ z)) at the sites                                   (`master.py`, `MovePrices`)
    columns: trimmed Lloyd m ← mean {j : |y_j − m|² < λ_j} from many points at once      (`Trim`)
    mend:    where columns turned up that nobody knew, lower the prices of their rows    (`mending.py`)
    improve: keep λ if Σ w λ + Σ_cells count · min f rose by a fair part of what the master promised
    triples: where that comes to its end, sites put fees on triples that the master's mixture violates (`FindTriples`)

`value` rests on the columns found, so it is a guess at the bound, never the bound: that comes from `search.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array, squared_distances
from ..core.search import PARTLY
from ..protocol.messages import MovePrices, PriceQuery, PriceReply, StartPrices, Trim
from .cells import Node
from .columns import Columns
from .master import solve_master
from .mending import Prices, lowered, too_cheap
from .rounding import Rounding
from .session import Session
from .trimming import NEW_COLUMNS, PATIENT, TRIM_STEPS, distinct, trimmed_lloyd

SERIOUS = 0.05  # share of the promised increase that makes a step serious
LONGER, WELL, MOST_TAU = 1.5, 0.5, 2.5  # after a step that kept half of its promise
SHORTER = 0.95  # steps after one that was not serious
MUCH_SHORTER, OVERSHOT = 0.7, 1.0
FEW_TRIM_STEPS = 3  # where they are dear: on many rows, and for regions, which prove nothing more
MOST_COLUMNS = 400  # and five for each cluster: with far fewer the master forgets what it has learnt
SCATTERED = 64  # random starts of a step, and four for each cluster
MANY, FOR_MANY = 10, 25  # clusters, and starts for each above that at the root: a column missed counts K times
PROBES = 6  # times as many before a search
USED = 1e-4  # weight from which a column is used: an interior-point method leaves a little on all of them
WINDOW, WORTHWHILE = 30, 0.05  # so many steps should close at least this share of what is missing
STALE = 2  # times that they did not, before the root's prices count as optimal; others' once
PER_STALE = 4  # for so many clusters more the root waits once more: it would have as many children
TRIPLES_EVERY, SLOW, NEW_TRIPLES = 20, 0.25, 200  # steps that close less than this share: triples, at most so many
TRIPLES_EVERY_OF_MANY = 10  # with many clusters, whose steps are dear: what is lacking is triples, as a rule
MOST_FOR_TRIPLES = 3000  # columns: sites tell a number for each pair of them, under masks 144 MB
WITH_TRIPLES = 3  # times as many new columns for each cluster: sets differ by who pays
FOR_EACH = 5  # new columns for each where clusters are many: masters are dear then, and columns cheap
MENDED = 11  # clusters from which on prices are mended: a column missed counts K times, and once where they are
BARELY = 1e-9  # of the first τ: a step that only mends
FOR_NEW = 0.1  # of the first τ, at least, after new triples: their fees have to rise from nothing
ALMOST = 0.9  # of the gap, left to the search where clusters are many: steps are dear there, and boxes cheap
PATIENCE = 4  # steps that promise nothing before the prices count as optimal
ROUNDINGS = 3  # that find nothing, before a search or a branch
CLEAR, CLEAR_STEPS = (0.05, 0.01), 15  # credits of other clusters, in rows of one cluster; steps for each
PAUSE, MOST_PAUSE = 4, 32  # steps between roundings: twice as many after one that found nothing
PAUSE_OF_MANY = 16  # at most, with many clusters: of three roundings that found nothing the fourth may find 0.05 %


class Bundle:
    def __init__(
        self, session: Session, columns: Columns, node: Node, new_slot: Callable[[], int], spread: Array
    ) -> None:
        self.session, self.columns, self.node, self.spread = session, columns, node, spread
        self.new_slot, self._rounding = new_slot, Rounding(session, spread)
        self.centre, self.trial = node.slot, new_slot()  # slots of λ̂ and λ
        self._spare: int | None = None  # of prices that are mended
        self.total = node.total
        self.value = -np.inf
        self.least = np.zeros(len(node.cells))  # best f found in each cell
        self.tau = self.first_tau = 1.0
        # the last master's weights, with point and cell of each
        self.z, self.z_points, self.z_cells = np.zeros(0), np.empty((0, columns.n_features)), np.zeros(0, np.int64)
        self.column_prices = np.zeros(0)  # Σ_{S_c} w λ̂
        self.pool = np.empty((0, columns.n_features))  # points from which trimmed Lloyd starts
        self.optimal = False
        self.steps = 0
        self._pause = self._next_rounding = PAUSE  # steps between roundings; the step of the next
        self._rounded_at = 0
        self._nothing_new = False  # the last step found no column and raised nothing
        self._trim_steps = TRIM_STEPS
        self.tied = False  # there are triples
        self._credit = 0.0  # of columns, for each squared distance to the incumbent's centroids (`stand_clear`)

    # ------------------------------------------------------------------ starting

    def start_from_incumbent(self) -> None:
        """λ from the incumbent's centroids, whose clusters are the first columns."""
        assert self.session.centroids is not None
        points = self.session.axes.forward(self.session.centroids)
        reply = self.session.totals.ask(PriceQuery(0, start=StartPrices(self.centre, points)))
        assert reply.priced is not None
        self.pool = np.concatenate([points, self.pool])
        prices, _ = self.columns.add(points, self.centre, self.centre)
        weight = float(self.columns.sizes.sum()) or self.session.weight
        self.tau = self.first_tau = max(reply.priced.total / weight / 5.0, 1e-300)
        self.go_on(reply.priced.total, prices)

    def go_on(self, total: float, column_prices: Array) -> None:
        """From the prices in the centre, their total and column prices: which columns do they ask for?"""
        self.total, self.column_prices = total, column_prices
        self.least, self.optimal = np.zeros(len(self.node.cells)), False
        self._evaluate(self.centre, self._starts(), self.columns.costs - self.column_prices)
        self._take_stock()

    def start_from(self, parent: Bundle) -> None:
        """λ as the parent left it; columns outside their cell count for the cell that holds them."""
        reply = self.session.totals.ask(
            PriceQuery(0, move=MovePrices(self.centre, parent.centre, 0.0, np.zeros(len(self.columns))))
        )
        assert reply.priced is not None
        self.total, self.column_prices = reply.priced.total, reply.priced.column_prices
        weight = self.session.weight
        self.tau, self.pool = max(parent.tau, self.total / weight / 25.0), parent.pool
        self.first_tau, self.tied = parent.first_tau, parent.tied
        self._pause = self._next_rounding = parent._pause
        self._evaluate(self.centre, self._starts(), self.columns.costs - self.column_prices)
        self._take_stock()

    # ------------------------------------------------------------------ the loop

    def improve(self, goal: float, until: float = np.inf, most: int = 10**9) -> None:
        """Steps until the value reaches the goal, the prices are as good as they get, the clock shows `until`, or
        there were `most` of them."""
        idle, stale, since, last = 0, 0, self.steps, self.steps + most
        asked, before_those = self.steps, self.value
        patience = 1 if self.node.path else STALE + max(self.session.n_clusters - PATIENT, 0) // PER_STALE
        every = TRIPLES_EVERY_OF_MANY if self.session.n_clusters >= PATIENT else TRIPLES_EVERY
        before_that = top = self.value
        while self.value < goal and not self.optimal and self.steps < last and self.session.clock < until:
            self.session.check_time()
            before = self.value
            promised = self._step()
            little = 0.02 * self.session.spare * self.session.axes.norm**2 + 1e-12 * self.total
            fell = self.value < before - little  # a column was missing: nothing is known before the next master
            idle = idle + 1 if (self._nothing_new or promised < little) and not fell else 0
            top = max(top, self.value)
            if self.steps - since >= WINDOW:  # many steps that hardly help: columns come and go, the value stays
                stale = stale + 1 if top - before_that < WORTHWHILE * (goal - top) else 0
                since, before_that, top = self.steps, top, -np.inf
            if idle >= PATIENCE or self.steps - asked >= every:
                idle = 0 if self._has_missed() else idle
                if self.session.n_clusters >= PATIENT and self.value >= self.session.bound_leaving(ALMOST):
                    break
                best = max(top, before_that)
                slow = best - before_those < SLOW * (goal - self.value)
                if (idle >= PATIENCE or slow) and self._find_triples():
                    idle = stale = 0
                asked, before_those = self.steps, best
            self.optimal = idle >= PATIENCE or stale >= patience
            self.session.note()
        if self.value >= goal or self._credit:
            return
        if self.node.path and self._rounded_at == 0:  # the prices are as good as they get: is the incumbent?
            self._find_incumbents()
        elif self.steps > self._rounded_at + PAUSE and (self._rounded_at == 0 or self.session.clock < until):
            self.round_thoroughly(until, 0 if self.node.path else ROUNDINGS)

    def _step(self) -> float:
        """One master, one price vector, new columns; what the master promised."""
        self.steps += 1
        columns, node = self.columns, self.node
        places = self.mix()
        z: Array = np.bincount(places[0], self.z, len(columns)).astype(float)
        columns.idle = np.where(z > USED, 0, columns.idle + 1)
        starts = self._starts()
        move = MovePrices(self.trial, self.centre, self.tau, z)
        reply = self.session.totals.ask(
            PriceQuery(0, move=move, trim=Trim(self.trial, starts, self.session.trim_stride))
        )
        assert reply.priced is not None
        total, trial_prices = reply.priced.total, reply.priced.column_prices
        by_columns = self._least_of((self._costs() - trial_prices)[places[0]], places[1])
        model = total + float(node.counts @ by_columns)
        promised = model - self.value
        if self.steps >= self._next_rounding and not self._credit:
            self._find_incumbents()
        before, self.least = self.least, by_columns
        new_prices, centre_prices, kept = self._evaluate(self.trial, starts, columns.costs - trial_prices, reply)
        self.column_prices = np.concatenate([self.column_prices[kept], centre_prices])
        trial = Prices(total, np.concatenate([trial_prices[kept], new_prices]), self.least)
        mended = self._mended(self.tau, np.concatenate([z[kept], np.zeros(len(new_prices))]), trial, by_columns)
        if mended is not None:
            trial, self.trial, self._spare = mended, self._slot_for_mending(), self.trial
        value = trial.value(node.counts)
        self._nothing_new = len(new_prices) == 0 and value <= self.value
        if value > self.value + SERIOUS * max(promised, 0.0):
            if value > self.value + WELL * promised:
                self.tau = min(self.tau * LONGER, MOST_TAU * self.first_tau)
            self.value, (self.total, self.column_prices, self.least) = value, trial
            self.centre, self.trial = self.trial, self._spare_slot()
        else:
            self.least, self.tau = before, self.tau * self._shorter(promised, value)
        known = self.least
        self._take_stock()  # a column found elsewhere can be worth more here than all that was found here
        self._mend(known)
        return promised

    def _mended(self, tau: float, z: Array, prices: Prices, least: Array) -> Prices | None:
        """Better prices than these, λ̂ + τ (1 − Σ z), if columns are below what was the least of their cell."""
        if self.session.n_clusters < MENDED or self._credit:
            return None
        places, cells = self.node.places(self.columns.points)
        reduced = (self.columns.costs - prices.of_columns)[places]
        cheap = too_cheap(reduced, cells, least)
        which, where = places[cheap], cells[cheap]
        y = lowered(self.columns, which, where, reduced[cheap], least, self.node.counts)
        if y is None:
            return None
        slot = self._slot_for_mending()
        move, trim = MovePrices(slot, self.centre, tau, z + y / tau), Trim(slot, self.columns.points[which])
        reply = self.session.totals.ask(PriceQuery(0, move=move, trim=trim))
        assert reply.priced is not None
        assert reply.trimmed is not None
        now = self.columns.costs - reply.priced.column_prices
        least = np.minimum(self._least_of(now[places], cells), self._least_of(reply.trimmed.values, where))
        mended = Prices(reply.priced.total, reply.priced.column_prices, least)
        gain = mended.value(self.node.counts) - prices.value(self.node.counts)
        return mended if gain > 1e-12 * prices.total else None  # more than rounding

    def _slot_for_mending(self) -> int:
        if self._spare is None:
            self._spare = self.new_slot()
        return self._spare

    def _has_missed(self) -> bool:
        """Whether the root had a column to find: fees make more places to miss one, and each counts K times."""
        before = self.value
        if self.tied and not self.node.path:
            self.probe()
        return self.value < before

    def _find_triples(self) -> bool:
        """Where the master's mixture is no clustering and prices have come to their end: triples that it violates."""
        if self.session.trim_stride > 1 or self._credit:
            return False
        if len(self.columns) > MOST_FOR_TRIPLES:
            kept = self.columns.worth_keeping(MOST_FOR_TRIPLES)
            self.columns.add(np.empty((0, self.columns.n_features)), self.centre, self.centre, kept)
            self.column_prices = self.column_prices[kept]
        z: Array = np.bincount(self.mix()[0], self.z, len(self.columns)).astype(float)
        if np.count_nonzero((z > PARTLY) & (z < 1.0 - PARTLY)) < 3 or self.columns.find_triples(z, NEW_TRIPLES) == 0:
            return False  # a clustering violates none
        self.tau, self.tied = max(self.tau, FOR_NEW * self.first_tau), True
        return True

    def mix(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The master's mixture of all columns known now; column and cell of each of its weights."""
        columns, node = self.columns, self.node
        places = node.places(columns.points)
        self.z = solve_master(
            columns.overlaps, self._costs(), columns.sizes, self.column_prices, places, node.counts, self.tau,
            columns.idle == 0,
        )  # fmt: skip
        self.z_points, self.z_cells = columns.points[places[0]], places[1]
        return places

    def _shorter(self, promised: float, value: float) -> float:
        """By how much the next step is shorter: where rows are many and steps dear, as a parabola through the promise
        and what came of it has its top; else by little, since columns are learnt from failure, too."""
        if self._nothing_new or promised <= 0.0:
            return MUCH_SHORTER
        if self.session.trim_stride > 1:
            return max(0.5 / (1.0 + max(self.value - value, 0.0) / promised), 0.1)
        return MUCH_SHORTER if value < self.value - OVERSHOT * promised else SHORTER

    def round_thoroughly(self, until: float = np.inf, most: int = ROUNDINGS) -> None:
        """Roundings, at least one, until so many have found nothing or the clock shows `until`."""
        tries = most
        while tries > 0 and (tries == most or self.session.clock < until):
            tries = most if self._find_incumbents() else tries - 1

    def _find_incumbents(self) -> bool:
        """Round the master's mixture; whether that found something better."""
        before = self.session.upper
        heaviest = self.z_points[np.argsort(-self.z, kind="stable")[: self.session.n_clusters]]
        self._rounding.find(self.columns, self.column_prices, self.first_tau, heaviest)
        better = self.session.upper < before * (1.0 - 1e-9)
        most = PAUSE_OF_MANY if self.session.n_clusters >= PATIENT else MOST_PAUSE
        self._pause = max(self._pause // 2, PAUSE) if better else min(2 * self._pause, most)
        self._rounded_at, self._next_rounding = self.steps, self.steps + self._pause
        return better

    def _spare_slot(self) -> int:
        """The old centre's slot, unless a proof rests on its prices."""
        return self.new_slot() if self.centre == self.node.slot and self.node.trees else self.centre

    def probe(self) -> None:
        """Look for columns from many more points before a search, which would find them at a far higher price."""
        assert self.session.centroids is not None
        centroids = self.session.axes.forward(self.session.centroids)
        starts = np.concatenate([self.pool, *(self._scattered(centroids) for _ in range(PROBES))])
        starts = self.node.clipped(starts, self.node.cell_of(starts))
        before, known = self.value, self.least
        self._evaluate(self.centre, starts, self.columns.costs - self.column_prices)
        self._take_stock()
        self._mend(known)
        self.optimal &= self.value >= before - 1e-9 * abs(before)

    def add_points(self, points: Array, cell: int) -> None:
        """Columns that the search of a cell found: the value was too high."""
        self.pool, known = np.concatenate([points, self.pool]), self.least
        self._evaluate(self.centre, points, self.columns.costs - self.column_prices, cell=cell)
        self._take_stock()
        self._mend(known)
        self.optimal = False

    def _take_stock(self) -> None:
        """The value at λ̂, from all columns and what trimmed Lloyd has found."""
        which, cells = self.node.places(self.columns.points)
        reduced = self._costs() - self.column_prices
        self.least = np.minimum(self.least, self._least_of(reduced[which], cells))
        self.value = self._value(self.total)

    def _mend(self, least: Array) -> None:
        """λ̂, where columns are below what was the least of their cell."""
        tau = BARELY * self.first_tau
        mended = self._mended(
            tau, np.zeros(len(self.columns)), Prices(self.total, self.column_prices, self.least), least
        )
        if mended is not None:
            self.total, self.column_prices, self.least = mended
            self.value = mended.value(self.node.counts)
            self.centre, self._spare = self._slot_for_mending(), self._spare_slot()

    # ------------------------------------------------------------------ prices for regions

    def stand_clear(self, goal: float) -> bool:
        """Find prices as good as `goal` under which clusters other than the incumbent's earn clearly less.

        The best prices are many, and steps towards them end where some other cluster just earns as much. So all others
        are credited with a profit that grows with their squared distance from the incumbent's centroids. Where no
        credit leaves prices that good, the old ones stay."""
        before = self.centre
        if before != self.node.slot or not self.node.trees:  # a step would overwrite these prices
            return False
        self._trim_steps = FEW_TRIM_STEPS
        for share in CLEAR:
            self._credit = share * self.session.weight / self.session.n_clusters
            self.go_on(self.total, self.column_prices)
            self.improve(goal, most=CLEAR_STEPS)
            found, self._credit = self.value >= goal, 0.0
            if not found:
                move = MovePrices(self.trial, before, 0.0, np.zeros(len(self.columns)))
                reply = self.session.totals.ask(PriceQuery(0, move=move))
                assert reply.priced is not None
                self.centre, self.trial = self.trial, self._spare_slot()
                self.total, self.column_prices = reply.priced.total, reply.priced.column_prices
            self.go_on(self.total, self.column_prices)
            if found:
                return True
        return False

    def _costs(self) -> Array:
        return self.columns.costs - self._credited(self.columns.points)

    def _credited(self, points: Array) -> Array | float:
        if self._credit == 0.0:
            return 0.0
        assert self.session.centroids is not None
        centroids = self.session.axes.forward(self.session.centroids)
        return np.asarray(self._credit * squared_distances(points, centroids).min(axis=1))

    # ------------------------------------------------------------------ columns

    def _starts(self) -> Array:
        """Incumbent, columns that nearly pay, and a sample of the pool."""
        session, columns = self.session, self.columns
        assert session.centroids is not None
        most = 60 + 8 * session.n_clusters
        dear = np.empty(0, np.int64)
        if len(self.column_prices) == len(columns):
            dear = np.argsort(columns.costs - self.column_prices)[:most]
        sample = self.pool
        if len(sample) > 48:
            sample = sample[session.rng.choice(len(sample), 48, replace=False)]
        centroids = session.axes.forward(session.centroids)
        starts = np.concatenate([centroids, columns.points[dear], sample, self._scattered(centroids)])
        return self.node.clipped(starts, self.node.cell_of(starts))

    def _scattered(self, centroids: Array) -> Array:
        """Random points about the centroids, as far out as the rows are spread: no row is needed to start anywhere."""
        rng, n = self.session.rng, SCATTERED + 4 * len(centroids)
        n += 0 if self.node.path else FOR_MANY * max(len(centroids) - MANY, 0)
        around = centroids[rng.integers(len(centroids), size=n)]
        axes = np.linalg.norm(self.spread, axis=0)[::-1] * self.session.axes.coordinates.scale
        return np.asarray(around + rng.normal(size=around.shape) * axes * rng.uniform(0.0, 1.0, size=(n, 1)))

    def _evaluate(
        self, slot: int, points: Array, reduced: Array, reply: PriceReply | None = None, cell: int | None = None
    ) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Trimmed Lloyd from the points, each within its cell; `least` and the columns are brought up to date.

        A point that is a column's already makes another one where it now attracts other rows: where f is below that
        column's `reduced` cost."""
        cells = self.node.cell_of(points) if cell is None else np.full(len(points), cell)
        stride = self.session.trim_stride
        if stride > 1:  # guess on some of the rows where to go, then judge on all of them
            points, _, cells = trimmed_lloyd(self.session, self.node, slot, points, cells, reply, stride)
            reply = None
        most = self._trim_steps if stride == 1 else FEW_TRIM_STEPS
        points, values, cells = trimmed_lloyd(self.session, self.node, slot, points, cells, reply, 1, most)
        times = FOR_EACH if self.session.n_clusters >= PATIENT else WITH_TRIPLES if self.tied else 1
        more = times * min(self.session.n_clusters, self.session.n_rows // 100)
        chosen = distinct(self.node, points, values, cells, NEW_COLUMNS + more + 2 * len(self.node.cells))
        self.least = np.minimum(self.least, self._least_of(values - self._credited(points), cells))
        self.pool = np.concatenate([points[chosen], self.pool])[:400]
        used = 2 * int(np.count_nonzero(self.columns.idle == 0))
        kept = self.columns.worth_keeping(max(MOST_COLUMNS + 5 * self.session.n_clusters, used))
        new = points[chosen]
        same = (np.round(new, 12)[:, None] == np.round(self.columns.points[kept], 12)).all(axis=2)
        known = np.where(same, reduced[kept], np.inf).min(axis=1, initial=np.inf)
        fresh = values[chosen] + 1e-9 * np.abs(values[chosen]) < known
        prices, centre_prices = self.columns.add(new[fresh], slot, self.centre, kept)
        if slot == self.centre and len(self.column_prices) == len(kept):
            self.column_prices = np.concatenate([self.column_prices[kept], prices])
        return prices, centre_prices, kept

    def _least_of(self, values: Array, cells: NDArray[np.int64]) -> Array:
        """The least value in each cell, at most 0."""
        least = np.zeros(len(self.node.cells))
        np.minimum.at(least, cells, values)
        return least

    def _value(self, total: float) -> float:
        return total + float(self.node.counts @ self.least)
