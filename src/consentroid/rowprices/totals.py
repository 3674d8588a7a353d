"""Sums over sites, rounded outward: all that the engine ever sees of the sites.

`Totals.ask` numbers a query, sends it to all sites and returns one reply that is their sum. Where the sum of doubles
rounds, the result is moved to the safe side: totals and constants of minorants down, cuts, worth and costs up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..core.arrays import Array
from ..protocol.messages import (
    BoxSums,
    ClaimSums,
    ColumnSums,
    Evaluated,
    Located,
    MomentSums,
    PairBound,
    Priced,
    PriceQuery,
    PriceReply,
    PricesKept,
    Trimmed,
    TripleSums,
)

EPS = 2.0**-52


@dataclass
class Totals:
    """`ask_sites` sends one query to all sites and returns all replies, or raises; see `transport/channel.py`."""

    ask_sites: Callable[[PriceQuery], Sequence[PriceReply]]
    step: int = 0
    exchanges: int = 0

    def ask(self, query: PriceQuery) -> PriceReply:
        return total(query, self.ask_each(query))

    def ask_each(self, query: PriceQuery) -> Sequence[PriceReply]:
        """The replies of all sites, for what is a site's own: claims and digests."""
        self.step += query.changes
        self.exchanges += 1
        return self.ask_sites(replace(query, step=self.step))


def plain(arrays: Sequence[Array]) -> Array:
    return np.asarray(np.sum(arrays, axis=0))


def up(arrays: Sequence[Array]) -> Array:
    return np.asarray(plain(arrays) + len(arrays) * EPS * np.abs(arrays).sum(axis=0))


def down(arrays: Sequence[Array]) -> Array:
    return np.asarray(plain(arrays) - len(arrays) * EPS * np.abs(arrays).sum(axis=0))


def quadratics(parts: Sequence[Array], half: Array) -> Array:
    """Sum of (W, V, C) over sites: what rounding W and V can cost within the box is taken off C."""
    parts = [np.asarray(part) for part in parts]
    result = plain(parts)
    if len(parts) > 1:
        size = np.abs(parts).sum(axis=0)
        doubt = size[:, -1] + 2.0 * (size[:, 1:-1] * half).sum(axis=1) + size[:, 0] * (half**2).sum(axis=1)
        result[:, -1] -= 2.0 * len(parts) * EPS * doubt
    return result


def total(query: PriceQuery, replies: Sequence[PriceReply]) -> PriceReply:
    """One reply that stands for all sites."""
    first = replies[0]
    return PriceReply(
        round=first.round,
        node="all",
        step=first.step,
        moments=None if first.moments is None else _moments(replies),
        located=None
        if first.located is None
        else Located(float(up([np.array(r.located.scatter_error) for r in replies if r.located]))),
        priced=None if first.priced is None else _priced(replies),
        columns=None if first.columns is None else _columns(replies),
        triples=None if first.triples is None else _triples(replies),
        trimmed=None if first.trimmed is None else _trimmed(replies),
        boxes=None if first.boxes is None else _boxes(query, replies),
        claimed=None if first.claimed is None else _claims(query, replies),
        evaluated=None if first.evaluated is None else sum_evaluated([r.evaluated for r in replies if r.evaluated]),
        kept=None if first.kept is None else _kept(replies),
        pairs=None if first.pairs is None else _pairs(replies),
        seconds=max(reply.seconds for reply in replies),
    )


def _moments(replies: Sequence[PriceReply]) -> MomentSums:
    parts = [r.moments for r in replies if r.moments]
    return MomentSums(sum(p.weight for p in parts), plain([p.sums for p in parts]), plain([p.products for p in parts]))


def _priced(replies: Sequence[PriceReply]) -> Priced:
    parts = [r.priced for r in replies if r.priced]
    return Priced(float(down([np.array(p.total) for p in parts])), plain([p.column_prices for p in parts]))


def _columns(replies: Sequence[PriceReply]) -> ColumnSums:
    parts = [r.columns for r in replies if r.columns]
    names = ("costs", "sizes", "overlaps", "prices", "centre_prices")
    return ColumnSums(*(plain([getattr(p, name) for p in parts]) for name in names))


def _triples(replies: Sequence[PriceReply]) -> TripleSums:
    parts = [r.triples for r in replies if r.triples]
    return TripleSums(sum(p.found for p in parts), plain([p.overlaps for p in parts]))


def _trimmed(replies: Sequence[PriceReply]) -> Trimmed:
    parts = [r.trimmed for r in replies if r.trimmed]
    return Trimmed(*(plain([getattr(p, name) for p in parts]) for name in ("values", "weights", "offsets")))


def _boxes(query: PriceQuery, replies: Sequence[PriceReply]) -> BoxSums:
    parts = [r.boxes for r in replies if r.boxes]
    assert query.examine is not None
    half = query.examine.upper - query.examine.lower
    return BoxSums(
        minorants=quadratics([p.minorants for p in parts], half),
        insides=quadratics([p.insides for p in parts], half),
        undecided=plain([p.undecided for p in parts]),
        worth=up([p.worth for p in parts]),
        cuts=up([p.cuts for p in parts]),
        scores=plain([p.scores for p in parts]),
    )


def _claims(query: PriceQuery, replies: Sequence[PriceReply]) -> ClaimSums:
    parts = [r.claimed for r in replies if r.claimed]
    assert query.claim is not None
    half = query.claim.upper - query.claim.lower
    return ClaimSums(
        quadratics([p.minorants for p in parts], half),
        quadratics([p.insides for p in parts], half),
        up([p.cuts for p in parts]),
    )


def _kept(replies: Sequence[PriceReply]) -> PricesKept:
    return PricesKept("", down([r.kept.totals for r in replies if r.kept]))


def _pairs(replies: Sequence[PriceReply]) -> PairBound:
    """The rows of all sites cost no less than what those of each cost by themselves."""
    told = [r.pairs for r in replies if r.pairs]
    bound, reach = down([np.array(one.bound) for one in told]), up([np.array(one.reach) for one in told])
    return PairBound(max(float(bound), 0.0), reach=float(reach))


def sum_evaluated(parts: Sequence[Evaluated]) -> Evaluated:
    return Evaluated(
        up([p.costs for p in parts]),
        plain([p.counts for p in parts]),
        plain([p.offsets for p in parts]),
        plain([p.spreads for p in parts]),
    )
