"""One site's share of a proof: what its rows contribute to every sum, checked by the checker's own kernels.

A site answered for boxes in the run (its *claims*); here its rows are asked again, box by box, by code that shares
nothing with what answered. A claim that the rows do not bear out refutes; one that is right up to rounding is lowered
by a power of two above what it says too much, so that the share is true without tolerance. Nothing but the claims
leaves, and the cost of the centroids, rounded as in the run: no number is told that was not told in it.

Order of a share: cost of the centroids, scatter error; where the proof rests on prices on pairs, what these prove;
where it rests on moments, what these can be off by and the moments (`told_moments`); Σ w λ of every leaf; then cell by
cell and box by box the numbers that its records use (`wanted`). Adding the shares of all sites gives the totals of the
proof (`attested.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..certificate.document import CLOSED, CLOSED_BY_CUT, COST_CUT, SHRUNK, STATIONARY_CUT, BoxTree, Certificate
from ..core.arrays import Array
from ..core.errors import CertificateInvalid, InvalidInput
from .boxes import CLAIM_LIMIT, CellCheck, CheckScales, PriceVector, Rows
from .cells import check_cover
from .checking import LIMIT, Check
from .kernels import FLOOR, UNIT, cut_sums, most_above
from .limbs import DOWN, NEAREST, UP, Limbs, to_limbs
from .rows import SiteRows, site_rows
from .spectrum import RowMoments
from .stored_prices import PriceSource

COST, ERROR, WEIGHT, OFFSET, VALUE = range(5)  # what a quantum is for: weights times lengths to the power 0, 1, 2
COST_DIGITS = 13  # binary: what is added is below `COARSE` (`checking.py`)
Doubt = tuple[float, float, float]  # of moments: Σ w, Σ w (x − o), Σ w (x − o)(x − o)ᵀ
Cut = tuple[int, int, float, float]  # axis, side, threshold, μ
# row of the price file, box, its cuts → minorant, in-rows' quadratic, one sum per cut; raises where nothing was claimed
ClaimsOf = Callable[[int, Array, Array, list[Cut]], Array]


@dataclass(frozen=True)
class Slots:
    """Kind of quantum and rounding of every number of a share."""

    kinds: NDArray[np.int64]
    rounding: NDArray[np.int64]


def wanted(tree: BoxTree, n_features: int) -> NDArray[np.bool_]:
    """(boxes, 2(D + 2) + M): which numbers of each box the records use."""
    boxes: list[tuple[bool, int]] = []  # whether the minorant is used, number of stationarity cuts
    minorant, n_cuts = False, 0
    for kind in tree.kind.tolist():
        if kind == STATIONARY_CUT:
            n_cuts += 1
        elif kind == COST_CUT:
            minorant = True
        elif kind == SHRUNK:
            boxes.append((minorant, n_cuts))
            minorant, n_cuts = False, 0
        elif kind == CLOSED:
            boxes.append((True, 0))
        elif kind == CLOSED_BY_CUT:
            boxes.append((False, 1))
    width, most = n_features + 2, max((n for _, n in boxes), default=0)
    counts = np.array([n for _, n in boxes], dtype=np.int64)
    used = np.zeros((len(boxes), 2 * width + most), dtype=bool)
    used[:, :width] = np.array([with_minorant for with_minorant, _ in boxes], dtype=bool)[:, None]
    used[:, width : 2 * width] = (counts > 0)[:, None]
    used[:, 2 * width :] = np.arange(most) < counts[:, None]
    return used


def slots(certificate: Certificate) -> Slots:
    """For all numbers of a share, in order."""
    d = len(certificate.features)
    quadratic = [WEIGHT, *[OFFSET] * d, VALUE]
    rounded = [*[NEAREST] * (d + 1), DOWN]
    n_leaves = len(certificate.leaves)
    n_moments = 0 if certificate.rest is None else 1 + d + d * d
    paired = int(certificate.pairs is not None)
    kinds = [[COST, ERROR] + [COST] * paired, [COST] * (n_moments + 3 * (n_moments > 0)), [VALUE] * n_leaves]
    rounding = [[UP, UP] + [DOWN] * paired, [UP] * (3 * (n_moments > 0)) + [NEAREST] * n_moments, [DOWN] * n_leaves]
    for leaf in certificate.leaves:
        for cell in leaf.cells:
            if cell.proof is not None:
                used = wanted(cell.proof, d)
                n_cuts = used.shape[1] - 2 * (d + 2)
                kinds.append(np.broadcast_to([*quadratic * 2, *[OFFSET] * n_cuts], used.shape)[used])  # type: ignore[arg-type]
                rounding.append(np.broadcast_to([*rounded * 2, *[UP] * n_cuts], used.shape)[used])  # type: ignore[arg-type]
    return Slots(np.concatenate(kinds).astype(np.int64), np.concatenate(rounding).astype(np.int64))


def site_share(
    certificate: Certificate, name: str, rows: ArrayLike, weights: ArrayLike, prices: PriceSource,
    claims: ClaimsOf, quanta: NDArray[np.int64], coarse_cost: bool = False,
) -> Limbs:  # fmt: skip
    """The site's part of every sum; raises `CertificateInvalid` where rows and certificate do not fit together.

    `coarse_cost`: the site told its cost in the run rounded up to `COST_DIGITS`, and tells no more here.
    """
    check = Check(certificate, lambda: None)
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise", under="ignore"):
            check.statements()
            check_cover(certificate, check.tick)
            site = site_rows(certificate, name, rows, weights, prices)
            if site.prices is None and site.pairs_bound is None:
                raise InvalidInput(f"site '{name}': {site.reason}")
            check.add_site(site)
            cost = _digits_above(site.cost, COST_DIGITS) if coarse_cost else site.cost
            numbers = [np.array([cost, site.scatter_error])]
            if site.pairs_bound is not None:
                check.bounds()  # what the site told in the run is borne out by its rows
                numbers.append(np.array([_told_pairs(certificate, site, coarse_cost)]))
            if site.moments is not None:
                numbers.append(told_moments(site.moments, quanta))
            numbers.append(_totals(certificate, site))
            numbers += _boxes(certificate, site, claims, quanta)
    except (FloatingPointError, OverflowError):
        raise CertificateInvalid("nothing is proven: numbers overflow") from None
    form = slots(certificate)
    return to_limbs(np.concatenate(numbers), quanta[form.kinds], form.rounding, len(certificate.sites))


def told_moments(moments: RowMoments, quanta: NDArray[np.int64]) -> Array:
    """How far they can be off, rounding to the quantum included, and the moments; all as weights times squares."""
    d, length = len(moments.sums), (int(quanta[COST]) - int(quanta[WEIGHT])) // 2
    powers = np.repeat([2 * length, length, 0], [1, d, d * d])
    off, quantum = [], math.ldexp(1.0, int(quanta[COST]))
    for error, power in zip(moments.errors, (2 * length, length, 0), strict=True):
        off.append(math.nextafter(math.ldexp(error, power) * (1.0 + 4.0 * UNIT) + quantum, math.inf))
    return np.concatenate([off, np.ldexp(moments.row, powers)])


def read_moments(numbers: Array, n_features: int, quanta: NDArray[np.int64]) -> tuple[Array, Doubt]:
    """The moments (2, 1 + D + D²) of both limbs of a total, and how far they can be off."""
    length = (int(quanta[COST]) - int(quanta[WEIGHT])) // 2
    powers = np.repeat([2 * length, length, 0], [1, n_features, n_features**2])
    weight, sums, products = (math.nextafter(math.fsum(off), math.inf) for off in numbers[:3])
    return np.ldexp(numbers[3:].T, -powers), (math.ldexp(weight, -2 * length), math.ldexp(sums, -length), products)


def _totals(certificate: Certificate, site: SiteRows) -> Array:
    """Σ w λ of every leaf; the certificate states no more."""
    index, totals = certificate.sites.index(site.name), []
    for number, leaf in enumerate(certificate.leaves):
        total = site.total(leaf.prices)
        if leaf.totals is not None and not float(leaf.totals[index]) <= total + LIMIT * total:
            raise CertificateInvalid(f"leaf {number}, totals of {site.name}: its rows give less than is stated")
        totals.append(total)
    return np.array(totals)


def _told_pairs(certificate: Certificate, site: SiteRows, coarse: bool) -> float:
    """What the site told in the run, or less; rounded as there."""
    assert site.pairs_bound is not None
    return _digits_below(site.pairs_bound, COST_DIGITS) if coarse else site.pairs_bound


def _boxes(certificate: Certificate, site: SiteRows, claims: ClaimsOf, quanta: NDArray[np.int64]) -> list[Array]:
    if site.prices is None:
        return []
    index = certificate.sites.index(site.name)
    rows = Rows(
        site.y, site.w, np.zeros(len(site.w), dtype=np.int64), np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int64),
        site.error,
    )  # fmt: skip
    numbers = []
    for i, leaf in enumerate(certificate.leaves):
        prices = PriceVector.of([site.prices], leaf.prices)
        scales = CheckScales.of(rows, prices, np.array([site.total(leaf.prices)]))
        for j, cell in enumerate(leaf.cells):
            if cell.proof is None:
                continue
            walk = _SiteBoxes(certificate, i, j, rows, prices, scales, claims, quanta, index)
            walk.run()
            used = wanted(cell.proof, len(certificate.features))
            if walk.n_boxes != len(used):
                raise CertificateInvalid(f"{walk.place}: the records are no tree of boxes")
            numbers.append(walk.told(used.shape)[used])
    return numbers


class _SiteBoxes(CellCheck):
    """The checker's walk over the boxes of a cell with one site's rows: it compares claims, and judges no bound."""

    def __init__(
        self, certificate: Certificate, leaf: int, cell: int, rows: Rows, prices: PriceVector, scales: CheckScales,
        claims: ClaimsOf, quanta: NDArray[np.int64], index: int,
    ) -> None:  # fmt: skip
        proof = certificate.leaves[leaf].cells[cell]
        assert proof.proof is not None
        tree = BoxTree(**{**vars(proof.proof), "claims": None})
        super().__init__(
            proof, tree, certificate.root, certificate.shift, rows, prices, scales, f"leaf {leaf}, cell {cell}",
            lambda: None,
        )  # fmt: skip
        self._row = certificate.leaves[leaf].prices
        self._claims, self._quanta = claims, quanta
        self._stated = None if proof.proof.claims is None else proof.proof.claims[:, index]
        self._cuts: list[tuple[Cut, float, float]] = []  # with the rows' own sum, and its magnitude
        self._told: dict[int, Array] = {}

    def told(self, shape: tuple[int, ...]) -> Array:
        """Boxes of which nothing was left have no numbers: the records say nothing about them."""
        table = np.zeros(shape)
        for box, numbers in self._told.items():
            table[box, : len(numbers)] = numbers
        return table

    def _stationary(self, axis: int, side: int, value: float, mu: float, inside: float, number: int) -> None:
        rows = self.rows
        cut_sums(rows.y, rows.w, self.prices, rows.site, self.order, self.first, self.last, self.least,
                 axis, 1.0 if side == 0 else -1.0, value, mu, self.gamma, self.size)  # fmt: skip
        self._cuts.append(((axis, side, value, mu), float(self.gamma[0]), float(self.size[0])))

    def _count(self, n_sums: int) -> None:
        claimed = self._claims(self._row, self.box[0], self.box[1], [cut for cut, _, _ in self._cuts])
        if claimed.shape != (2 * self.width + len(self._cuts),) or not np.isfinite(claimed).all():
            raise CertificateInvalid(f"{self.place}: box {self.n_boxes}: the site's claims are not complete")
        if self._stated is not None:
            stated = self._stated[self.n_boxes : self.n_boxes + 1, : len(claimed)]
            if not np.array_equal(stated, claimed[None]):
                raise CertificateInvalid(f"{self.place}: box {self.n_boxes}: states claims that the site did not make")
        self._told[self.n_boxes] = self._lowered(claimed)
        self._cuts = []
        self.n_boxes += 1

    def _lowered(self, claimed: Array) -> Array:
        """The claims, less what they exceed the rows' own numbers by; the rounding of this comparison included."""
        told, width = claimed.copy(), self.width
        for start in (0, width):  # what is added must be a multiple of its quantum, and is compared as such
            for place, kind in enumerate((WEIGHT, *[OFFSET] * (width - 2))):
                told[start + place] = _on_grid(float(told[start + place]), int(self._quanta[kind]))
        margin = 2.0 * (2 * width + 32) * UNIT
        own = self.own[0]
        more = most_above(told[:width], own[:width], self.frame, True, margin) + FLOOR
        told[width - 1] = self._less(float(told[width - 1]), more, float(self.scales.quadratic[0]))
        above = most_above(told[width : 2 * width], own[width:], self.frame, False, margin) + FLOOR
        for place, ((*_, mu), gamma, size) in enumerate(self._cuts, 2 * width):
            claim = float(told[place])
            more = gamma - claim + (mu * above if mu > 0.0 else 0.0)
            more += 8.0 * UNIT * (abs(gamma) + abs(claim) + mu * abs(above)) + FLOOR
            scale = size + float(self.scales.linear[0]) + mu * float(self.scales.priced[0] + self.scales.quadratic[0])
            told[place] = -self._less(-claim, more, scale + FLOOR)
        return told

    def _less(self, claim: float, more: float, scale: float) -> float:
        if more <= 0.0:
            return claim
        if not more <= CLAIM_LIMIT * scale + 2.0 * FLOOR:
            raise CertificateInvalid(f"{self.place}: box {self.n_boxes}, the site's claims: its rows say less")
        return math.nextafter(claim - math.ldexp(1.0, math.frexp(more)[1]), -math.inf)


def _digits_above(value: float, digits: int) -> float:
    """Rounded up to so many binary digits.

    >>> _digits_above(6.7, 3), _digits_above(0.0, 3)
    (7.0, 0.0)
    """
    mantissa, power = math.frexp(value)
    return math.ldexp(math.ceil(math.ldexp(mantissa, digits)), power - digits)


def _digits_below(value: float, digits: int) -> float:
    """Rounded down to so many.

    >>> _digits_below(6.7, 3), _digits_below(0.0, 3)
    (6.0, 0.0)
    """
    mantissa, power = math.frexp(value)
    return math.ldexp(math.floor(math.ldexp(mantissa, digits)), power - digits)


def _on_grid(value: float, quantum: int) -> float:
    """The nearest multiple of 2^quantum; all doubles that are not tiny are multiples already."""
    scaled = math.ldexp(value, -quantum)
    return value if abs(scaled) >= 2.0**53 else math.ldexp(float(round(scaled)), quantum)
