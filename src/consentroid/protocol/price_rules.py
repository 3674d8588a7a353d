"""What the sums of a `PriceReply` must obey, whatever the rows and their prices are.

Known of a site: the weight of its rows and a box that holds them, which the coordinates turn into a box for y. Weights
of some of its rows lie between nothing and all; sums of y − m between those weights times the distances to the sides
of the box; sums of positive terms are positive; rows that a point attracts cost less than they offer. A site that lies
within these rules is not found out here: its claims are checked by itself, from the certificate.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array
from .messages import (
    BoxSums,
    Claim,
    ClaimSums,
    ColumnSums,
    Coordinates,
    Examine,
    FindTriples,
    ImprovePairs,
    Located,
    MakeColumns,
    Moments,
    MomentSums,
    MovePrices,
    PairBound,
    Priced,
    PriceQuery,
    PriceReply,
    PricesKept,
    Trim,
    Trimmed,
    TripleSums,
)

TOLERANCE = 1e-8  # relative to the numbers compared; honest rounding stays orders of magnitude below
COARSEST = 0.25  # of the domain, times the weight of all rows: no grid moves a sum further (site/grain.py)
UNDERFLOW = 2e-290  # what sites add for it
IN_TRIPLES = 1.0  # of the weight of all rows: there are no more triples than rows, and they weigh as much
DIGEST = re.compile(r"[0-9a-f]{64}")
Extent = tuple[Array, Array]


class Contradiction(Exception):
    """Why a reply is refused."""


@dataclass(frozen=True)
class PriceRules:
    weight: float
    extent: Extent  # (D,) each, holds the rows
    coordinates: Coordinates | None  # those in force when the query is done

    def check(self, query: PriceQuery, reply: PriceReply) -> None:
        """Raise `Contradiction` if any part of the reply breaks a rule; each part asked for is there."""
        if query.moments is not None and reply.moments is not None:
            self._check_moments(query.moments, reply.moments)
        if query.coordinates is not None and reply.located is not None:
            self._check_located(query.coordinates, reply.located)
        if reply.priced is not None:
            _check_priced(query.move, reply.priced)
        if query.columns is not None and reply.columns is not None:
            self._check_columns(query.columns, reply.columns)
        if query.triples is not None and reply.triples is not None:
            self._check_triples(query.triples, reply.triples)
        if query.trim is not None and reply.trimmed is not None:
            self._check_trimmed(query.trim, reply.trimmed)
        for asked, got in ((query.examine, reply.boxes), (query.claim, reply.claimed)):
            if asked is not None and got is not None:
                self._check_boxes(asked, got)
        if query.keep is not None and reply.kept is not None:
            _check_kept(len(query.keep.slots), reply.kept)
        if query.pairs is not None and reply.pairs is not None:
            self._check_pairs(query.pairs, reply.pairs)

    def _check_moments(self, asked: Moments, got: MomentSums) -> None:
        same_shape("sums", got.sums, asked.reference.shape)
        same_shape("products", got.products, 2 * asked.reference.shape)
        if abs(got.weight - self.weight) > TOLERANCE * self.weight:
            raise Contradiction(f"reports the weight {got.weight:g} after {self.weight:g}")
        check_offsets(got.sums, np.array(got.weight), asked.reference, self.extent)
        squares = np.diag(got.products)
        reach = np.maximum(np.abs(self.extent[0] - asked.reference), np.abs(self.extent[1] - asked.reference))
        scale = np.sqrt(np.outer(squares, squares)) if np.all(squares >= 0) else np.zeros_like(got.products)
        room = 1.0 + TOLERANCE
        if (
            np.any(squares < 0)
            or np.any(squares > self.weight * reach**2 * room)
            or np.any(got.sums**2 > self.weight * squares * room)
            or np.any(np.abs(got.products) > scale * room)
            or np.any(np.abs(got.products - got.products.T) > TOLERANCE * scale)
        ):
            raise Contradiction("reports moments that no rows inside the domain can have")

    def _check_located(self, asked: Coordinates, got: Located) -> None:
        reach = np.maximum(np.abs(self.extent[0] - asked.origin), np.abs(self.extent[1] - asked.origin)).sum()
        n_features = len(asked.origin)
        # entries of a basis are at most 1; where axes are left out they are 0, and masks still round their sums up
        size = float(reach) * asked.scale * float(np.abs(asked.basis).max(initial=1.0)) * n_features
        if not 0.0 <= got.scatter_error <= self.weight * (8 * (n_features + 4) * 2.0**-52 * size) ** 2 + UNDERFLOW:
            raise Contradiction(f"reports that rounding its coordinates costs {got.scatter_error:g}")

    def _check_columns(self, asked: MakeColumns, got: ColumnSums) -> None:
        n_new, n_all = len(asked.points), int(asked.kept.sum()) + len(asked.points)
        for name in ("costs", "sizes", "prices", "centre_prices"):
            same_shape(name, getattr(got, name), (n_new,))
            _check_positive(name, getattr(got, name))
        same_shape("overlaps", got.overlaps, (n_new, n_all))
        self._check_weights("sizes", got.sizes, 1.0 + IN_TRIPLES)
        _check_positive("overlaps", got.overlaps)
        room = TOLERANCE * self.weight
        own = got.overlaps[:, n_all - n_new :]
        if (
            np.any(got.overlaps > got.sizes[:, None] + room)
            or np.any(np.abs(np.diag(own) - got.sizes) > room)
            or np.any(np.abs(own - own.T) > room)
        ):
            raise Contradiction("reports overlaps that no columns can have")
        if np.any(got.costs > got.prices * (1.0 + TOLERANCE)):
            raise Contradiction("reports a column that costs more than its rows offer")

    def _check_triples(self, asked: FindTriples, got: TripleSums) -> None:
        n = len(asked.z)
        same_shape("overlaps", got.overlaps, (n, n))
        _check_positive("overlaps", got.overlaps)
        self._check_weights("overlaps", got.overlaps, IN_TRIPLES)
        if not got.found >= 0.0 or np.any(got.overlaps > np.diag(got.overlaps)[:, None] + TOLERANCE * self.weight):
            raise Contradiction("reports triples that no rows can make")

    def _check_trimmed(self, asked: Trim, got: Trimmed) -> None:
        n, d = asked.points.shape
        same_shape("values", got.values, (n,))
        same_shape("weights", got.weights, (n,))
        same_shape("offsets", got.offsets, (n, d))
        _check_positive("profits", -got.values)
        self._check_weights("weights", got.weights)
        check_offsets(got.offsets, got.weights, asked.points, self._located(), self.weight)

    def _check_boxes(self, asked: Examine | Claim, got: BoxSums | ClaimSums) -> None:
        n, d = asked.lower.shape
        centres = 0.5 * (asked.lower + asked.upper)
        for name, sums in (("minorants", got.minorants), ("insides", got.insides)):
            same_shape(name, sums, (n, d + 2))
            self._check_weights(name, sums[:, 0])
            check_offsets(sums[:, 1:-1], sums[:, 0], centres, self._located(), self.weight)
        room = TOLERANCE * self.weight
        if np.any(got.insides[:, 0] > got.minorants[:, 0] + room):
            raise Contradiction("reports a minorant that leaves out rows inside")
        if isinstance(got, ClaimSums):
            assert isinstance(asked, Claim)
            same_shape("cuts", got.cuts, asked.cut_at.shape)
            return
        same_shape("cuts", got.cuts[..., 0, 0, 0], (n, d))  # the codec knows the rest
        same_shape("worth", got.worth, (n,))
        for name, array, shape in (("undecided", got.undecided, (n,)), ("scores", got.scores, (n, d))):
            same_shape(name, array, shape)
            _check_positive(name, array)
        if np.any(got.insides[:, 0] + got.undecided > self.weight + room):
            raise Contradiction("reports more rows inside and undecided than it has")

    def _check_pairs(self, asked: ImprovePairs, got: PairBound) -> None:
        widest = self.extent[1] - self.extent[0]
        if not 0.0 <= got.bound <= self.weight * float(widest @ widest) * (1.0 + TOLERANCE):
            raise Contradiction(f"reports that {asked.n_clusters} clusters of its rows cost at least {got.bound:g}")
        if not 0.0 <= got.reach < np.inf:
            raise Contradiction(f"reports that {asked.n_clusters} clusters of its rows can cost {got.reach:g}")
        if not (DIGEST.fullmatch(got.digest) if asked.keep else got.digest == ""):
            raise Contradiction("reports a digest that is no sha256, or that nobody asked for")

    def _check_weights(self, name: str, weights: Array, most: float = 1.0) -> None:
        _check_positive(name, weights)
        if np.any(weights > most * self.weight * (1.0 + TOLERANCE)):
            raise Contradiction(f"'{name}' has the weight {weights.max():g} for rows of weight {self.weight:g}")

    def _located(self) -> Extent:
        """A box that holds every y = (x − origin) · basis · scale."""
        if self.coordinates is None:
            raise Contradiction("answered about prices before it was sent coordinates")
        at = self.coordinates
        sides = [(side - at.origin)[:, None] * at.basis * at.scale for side in self.extent]
        low, high = np.minimum(*sides).sum(axis=0), np.maximum(*sides).sum(axis=0)
        room = TOLERANCE * np.maximum(np.abs(sides[0]), np.abs(sides[1])).sum(axis=0)
        return low - room, high + room


def _check_priced(move: MovePrices | None, got: Priced) -> None:
    if move is not None:
        same_shape("column_prices", got.column_prices, move.z.shape)
    _check_positive("column_prices", got.column_prices)
    if got.total < 0.0 or np.any(got.column_prices > got.total * (1.0 + TOLERANCE)):
        raise Contradiction(f"reports prices of {got.total:g} in all and a column that has more")


def _check_kept(n_slots: int, got: PricesKept) -> None:
    same_shape("totals", got.totals, (n_slots,))
    _check_positive("totals", got.totals)
    if not DIGEST.fullmatch(got.digest):
        raise Contradiction("reports a digest that is no sha256")


def _check_positive(name: str, array: Array) -> None:
    if not np.all(array >= 0.0):
        raise Contradiction(f"'{name}' holds {array.min():g}, which is negative")


def check_offsets(
    offsets: Array, weights: Array, points: Array, extent: tuple[Array, Array], of_all: float = 0.0
) -> None:
    """Σ w (x − m) of rows inside the extent lies between Σ w times the distances from m to both sides of it; a site
    whose rows weigh `of_all` may round it to a grid."""
    low, high = (weights[..., None] * (side - points) for side in extent)
    size = np.maximum(np.abs(extent[0]), np.abs(extent[1])) + np.abs(points)
    room = TOLERANCE * (weights[..., None] * size + 1e-300)
    room += (weights > 0.0)[..., None] * COARSEST * of_all * (extent[1] - extent[0])
    if np.any(offsets < low - room) or np.any(offsets > high + room):
        raise Contradiction("reports sums that no rows inside the domain can have")


def same_shape(name: str, array: NDArray[np.generic], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise Contradiction(f"'{name}' has the shape {array.shape}, asked for was {shape}")
