"""What a site says about a box is true: every claim against rational arithmetic, with any prices, fees and guard."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest

from consentroid.core.search import MULTIPLES, SHIFT
from consentroid.protocol.messages import Claim, Coordinates, Examine
from consentroid.site.guard import Guard
from consentroid.site.prices import PricedRows
from consentroid.verify.stored_prices import clumps_of
from draws import draws
from oracle import exact

NO_CUTS = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0))


@dataclass
class Site:
    """A site with any prices, and the same numbers as fractions."""

    priced: PricedRows
    y: list
    w: list
    prices: list
    triples: list = field(default_factory=list)  # three rows and a fee
    clumps: list = field(default_factory=list)  # rows of triples that hang together, all with a fee

    @classmethod
    def of(cls, y: np.ndarray, w: np.ndarray, prices: np.ndarray, guard: Guard | None = None) -> Site:
        priced = PricedRows(np.ascontiguousarray(y), w, guard=guard or Guard())
        priced.locate(Coordinates(np.zeros(y.shape[1]), np.eye(y.shape[1]), 1.0))
        priced.slots[1] = np.ascontiguousarray(prices[priced.order])
        return cls(priced, exact(priced.y), exact(priced.weights), exact(priced.slots[1]))

    def classes(self, low: list, high: list) -> list[tuple[str, Fraction]]:
        """For each row whether it is in, out or undecided, and its least squared distance; a fee may keep rows out."""
        result = []
        tied = {j for rows in self.clumps for j in rows}
        for j, (row, price) in enumerate(zip(self.y, self.prices)):
            least = sum(max(a - x, x - b, Fraction(0)) ** 2 for x, a, b in zip(row, low, high))
            most = sum(max((x - a) ** 2, (x - b) ** 2) for x, a, b in zip(row, low, high))
            inside = most <= price and j not in tied
            result.append(("in" if inside else "out" if least >= price else "undecided", least))
        return result

    def least_of_triples(self, values: list[Fraction], may: list[bool]) -> Fraction:
        """Over all subsets of the rows that may be served: Σ of their values, and the fees from two rows on."""
        total = Fraction(0)
        for rows in self.clumps:
            free = [j for j in rows if may[j]]
            subsets = [set(some) for n in range(len(free) + 1) for some in combinations(free, n)]
            total += min(
                sum((values[j] for j in some), Fraction(0))
                + sum(fee for three, fee in self.triples if len(some & set(three)) >= 2)
                for some in subsets
            )
        return total


def random_site(rng: np.random.Generator, least: int = 1, masked: bool = False) -> Site:
    n, d = int(rng.integers(1, 9)), int(rng.integers(1, 4))
    y = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-3, 4)
    if rng.random() < 0.3:
        y = np.round(y)
    if rng.random() < 0.2:
        y += 1e5
    w = rng.integers(1, 5, n) * 1.0 if rng.random() < 0.5 else rng.uniform(1e-3, 10.0, n)
    spread = max(float(np.ptp(y, axis=0).max()), 1e-3)
    prices = spread**2 * rng.exponential(size=n) * 10.0 ** rng.integers(-2, 3)
    prices[rng.random(n) < 0.1] = 0.0
    site = Site.of(y, w, prices, Guard(least, float(rng.choice([0.0, 0.25, 1.0])), masked))
    return with_triples(rng, site) if n > 2 and rng.random() < 0.6 else site


def with_triples(rng: np.random.Generator, site: Site) -> Site:
    """Some of the rows in triples, with fees from nothing to more than all rows gain."""
    n, triples = len(site.y), site.priced.triples
    rows = rng.permutation(n)[: 3 * int(rng.integers(1, n // 3 + 1))].reshape(-1, 3)
    if rng.random() < 0.5:  # that share rows
        few = rng.permutation(n)[:5]
        rows = np.array([rng.permutation(few)[:3] for _ in range(rng.integers(1, 5))])
    triples.add(rows, site.priced.columns.bits)
    triples.slots[1] = rng.choice([0.0, 1e-3, 0.3, 1.0, 1e3], len(rows)) * max(site.priced.slots[1].max(), 1e-9)
    fees = exact(triples.fees(1))
    site.triples = [(three.tolist(), fee) for three, fee in zip(rows, fees) if fee > 0]
    site.clumps = list(clumps_of(rows[[fee > 0 for fee in fees]]))
    return site


def random_box(rng: np.random.Generator, site: Site) -> tuple[np.ndarray, np.ndarray]:
    y = site.priced.y
    spread = max(float(np.ptp(y, axis=0).max()), 1e-3)
    centre = y[rng.integers(len(y))] + spread * rng.normal(size=y.shape[1]) * rng.choice([0.0, 0.3, 2.0])
    half = spread * rng.exponential(size=y.shape[1]) * 10.0 ** rng.integers(-6, 1)
    half[rng.random(len(half)) < 0.15] = 0.0
    lower, upper = centre - half, centre + half
    if rng.random() < 0.3:  # a side through a row
        d, j = int(rng.integers(len(half))), int(rng.integers(len(y)))
        lower[d], upper[d] = min(lower[d], y[j, d]), max(y[j, d], lower[d])
    return lower, upper


def borderline(rng: np.random.Generator, site: Site, lower: np.ndarray, upper: np.ndarray) -> Site:
    """Prices at, or just beside, the least or greatest distance of their rows."""
    y = site.priced.y
    least = (np.maximum(np.maximum(lower - y, y - upper), 0.0) ** 2).sum(axis=1)
    most = (np.maximum(np.abs(y - lower), np.abs(y - upper)) ** 2).sum(axis=1)
    by = 1.0 + rng.choice([0.0, 2.0**-52, -(2.0**-52), 1e-14, -1e-14, 1e-4, -1e-4], len(y))
    prices = np.where(rng.random(len(y)) < 0.7, most, least) * by
    changed = Site.of(y, site.priced.weights, prices, site.priced.guard)
    return with_triples(rng, changed) if len(y) > 2 and rng.random() < 0.6 else changed


def points_in(rng: np.random.Generator, lower: np.ndarray, upper: np.ndarray, n: int = 5) -> list[list[Fraction]]:
    low, high = exact(lower), exact(upper)
    shares = [[Fraction(int(s), 16) for s in rng.integers(0, 17, len(low))] for _ in range(n)]
    shares = [*([Fraction(s) for s in corner] for corner in product((0, 1), repeat=len(low))), *shares]
    return [[a + s * (b - a) for a, b, s in zip(low, high, share)] for share in shares]


def quadratic(sums: np.ndarray, delta: list[Fraction], theta: list[Fraction]) -> Fraction:
    weight, *offset, constant = exact(sums)
    terms = ((1 - 2 * t) * weight * x * x - 2 * (1 - t) * v * x for v, x, t in zip(offset, delta, theta))
    return constant + sum(terms)


def centre_of(lower: np.ndarray, upper: np.ndarray) -> list[Fraction]:
    return exact(0.5 * (lower + upper))


def shifted(row: list, price: Fraction, centre: list, delta: list, theta: list) -> Fraction:
    """ψ of a row."""
    u = [x - c for x, c in zip(row, centre)]
    terms = ((1 - 2 * t) * x * x - 2 * (1 - t) * v * x for v, x, t in zip(u, delta, theta))
    return sum(v * v for v in u) - price + sum(terms)


def assert_minorant(site: Site, sums: np.ndarray, lower, upper, held, points) -> None:
    """Σ_S w ψ ≥ Q for all m in the box and all sets S between the in-rows and those that are not out."""
    centre, theta = centre_of(lower, upper), [Fraction(0) if one else Fraction(SHIFT) for one in held]
    classes = site.classes(exact(lower), exact(upper))
    for m in points:
        delta = [x - c for x, c in zip(m, centre)]
        values = [w * shifted(row, price, centre, delta, theta) for row, w, price in zip(site.y, site.w, site.prices)]
        least = site.least_of_triples(values, [kind != "out" for kind, _ in classes])
        tied = {j for rows in site.clumps for j in rows}
        for j, (value, (kind, _)) in enumerate(zip(values, classes)):
            if j not in tied:
                least += value if kind == "in" else min(value, Fraction(0)) if kind == "undecided" else 0
        assert quadratic(sums, delta, theta) <= least


def assert_cut(site: Site, inside: np.ndarray, gamma: float, axis, side, at, mu, lower, upper, points) -> None:
    """Σ_S w s (y − T) + μ Σ_S w (λ − d) ≤ γ − μ I(m) for the same m and S: what a cut rests on."""
    sign, centre = (1 if side == 0 else -1), centre_of(lower, upper)
    none, t, mu = [Fraction(0)] * len(centre), Fraction(float(at)), Fraction(float(mu))
    classes = site.classes(exact(lower), exact(upper))
    for m in points:
        most = Fraction(0)
        for row, w, price, (kind, _) in zip(site.y, site.w, site.prices, classes):
            value = sign * (row[axis] - t) + mu * (price - sum((x - z) ** 2 for x, z in zip(row, m)))
            most += w * (value if kind == "in" else max(value, Fraction(0)) if kind == "undecided" else 0)
        inner = quadratic(inside, [x - c for x, c in zip(m, centre)], none)
        assert most <= Fraction(float(gamma)) - mu * inner


def examine(site: Site, lower, upper, held, steepness, key=1, parent=-1):
    return site.priced.examine(
        Examine(
            1, lower[None], upper[None], held[None], np.array([steepness]), np.array([key]), np.array([parent])
        )
    )  # fmt: skip


def assert_examined(rng, site: Site, lower, upper, held, steepness, sums) -> None:
    points = points_in(rng, lower, upper)
    assert_minorant(site, sums.minorants[0], lower, upper, held, points)
    doubt = sum(
        w * (price - a)
        for w, price, (kind, a) in zip(site.w, site.prices, site.classes(exact(lower), exact(upper)))
        if kind == "undecided"
    )
    assert doubt <= Fraction(float(sums.worth[0]))
    for axis in range(len(lower)):
        centre = 0.5 * (lower[axis] + upper[axis])
        for side, edges in enumerate(((lower, upper), (upper, lower))):
            for i, at in enumerate((edges[0][axis], centre, edges[1][axis])):
                k = int(rng.integers(len(MULTIPLES)))
                mu = MULTIPLES[k] * (upper[axis] - lower[axis]) * steepness
                gamma = sums.cuts[0, axis, side, i, k]
                assert_cut(site, sums.insides[0], gamma, axis, side, at, mu, lower, upper, points[:3])


@pytest.mark.parametrize(("least", "masked"), [(1, False), (3, False), (3, True), (100, False), (100, True)])
def test_every_sum_of_a_box_is_true(least: int, masked: bool) -> None:
    rng = np.random.default_rng(least)
    kinds = set()
    for _ in range(draws(50)):
        site = random_site(rng, least, masked)
        lower, upper = random_box(rng, site)
        if rng.random() < 0.5:
            site = borderline(rng, site, lower, upper)
        kinds |= {kind for kind, _ in site.classes(exact(lower), exact(upper))}
        held = (rng.random(len(lower)) < 0.3) & (upper > lower)
        steepness = float(rng.exponential() * 10.0 ** rng.integers(-2, 3))
        sums = examine(site, lower, upper, held, steepness)
        assert_examined(rng, site, lower, upper, held, steepness, sums)
        total = sum(w * p for w, p in zip(site.w, site.prices)) - sum(fee for _, fee in site.triples)
        assert Fraction(site.priced.total(1)) <= total
    assert kinds == {"in", "out", "undecided"}


@pytest.mark.parametrize(("least", "masked"), [(1, False), (4, False), (4, True)])
def test_claims_for_the_certificate_are_true(least: int, masked: bool) -> None:
    rng = np.random.default_rng(100 + least)
    for _ in range(draws(50)):
        site = random_site(rng, least, masked)
        boxes = [random_box(rng, site) for _ in range(2)]
        lower, upper = (np.array(side) for side in zip(*boxes))
        held = (rng.random(lower.shape) < 0.3) & (upper > lower)
        box, axis = np.array([0, 0, 1]), rng.integers(lower.shape[1], size=3)
        side, mu = rng.integers(2, size=3), rng.exponential(size=3) * 10.0 ** rng.integers(-3, 3, 3)
        at = lower[box, axis] + rng.choice([0.0, 0.3, 1.0], 3) * (upper - lower)[box, axis]
        sums = site.priced.claim(Claim(1, lower, upper, held, box, axis, side, at, mu))
        for b in range(2):
            assert_minorant(site, sums.minorants[b], lower[b], upper[b], held[b], points_in(rng, lower[b], upper[b]))
        for i, b in enumerate(box):
            points = points_in(rng, lower[b], upper[b])
            assert_cut(site, sums.insides[b], sums.cuts[i], axis[i], side[i], at[i], mu[i], lower[b], upper[b], points)


@pytest.mark.parametrize("least", [1, 3])
def test_children_inherit_the_truth(least: int) -> None:
    """A chain of boxes, each inside the one before: in-sums move with the centre, forty times."""
    rng = np.random.default_rng(200 + least)
    for _ in range(6):
        site = random_site(rng, least)
        lower, upper = site.priced.y.min(axis=0) - 1.0, site.priced.y.max(axis=0) + 1.0
        held = np.zeros(len(lower), dtype=bool)
        for level in range(40):
            sums = examine(site, lower, upper, held, 1.0, key=level + 1, parent=level if level else -1)
            if level % 6 == 3 or level > 37:
                assert_examined(rng, site, lower, upper, held, 1.0, sums)
            fresh = examine(site, lower, upper, held, 1.0, key=1000 + level)
            size = np.abs(fresh.minorants[0]).max() + np.abs(site.priced.slots[1]).max()
            np.testing.assert_allclose(sums.minorants, fresh.minorants, rtol=1e-9, atol=1e-9 * size)
            np.testing.assert_allclose(sums.worth, fresh.worth, rtol=1e-9, atol=1e-12)
            share = rng.uniform(0.0, 0.25, size=(2, len(lower)))
            lower, upper = lower + share[0] * (upper - lower), upper - share[1] * (upper - lower)


def test_a_row_exactly_at_its_price_may_count_or_not() -> None:
    """Where a row's greatest or least distance is its price to the last bit, both readings stay true."""
    y = np.array([[0.0], [3.0], [-2.0]])
    cases = [(-1.0, 1.0, [1.0, 4.0, 9.0]), (0.0, 0.0, [0.0, 9.0, 4.0]), (1.0, 2.0, [4.0, 1.0, 9.0])]
    for lower, upper, prices in cases:
        site = Site.of(y, np.ones(3), np.array(prices))
        low, high, held = np.array([lower]), np.array([upper]), np.zeros(1, dtype=bool)
        sums = examine(site, low, high, held, 1.0)
        assert_examined(np.random.default_rng(0), site, low, high, held, 1.0, sums)
