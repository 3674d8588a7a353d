"""Fees of triples in the checker's sums, against all sets of rows in fractions."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from consentroid.verify.boxes import padded
from consentroid.verify.kernels import add_fees, box_sums, classify, frame, least_due
from consentroid.verify.stored_prices import clumps_of

F = Fraction


def exact(values: np.ndarray) -> list[Fraction]:
    return [F(float(v)) for v in values]


def least_with_fees(y, w, prices, geometry, out_rows, in_rows, triples, fees, m) -> Fraction:
    """Σ_S w ψ and fees, the least over all sets between the in-rows and those that are not out."""
    delta = [a - b for a, b in zip(exact(m), exact(geometry[0]))]
    linear, square = exact(geometry[2]), exact(geometry[3])
    values = []
    for j in range(len(y)):
        u = [a - b for a, b in zip(exact(y[j]), exact(geometry[0]))]
        psi = sum(a * a for a in u) - F(float(prices[j]))
        psi += sum(q * e * e - 2 * s * a * e for q, s, a, e in zip(square, linear, u, delta))
        values.append(F(float(w[j])) * psi)
    tied = set(triples.ravel().tolist())
    total = sum(
        (values[j] if j in in_rows else min(values[j], F(0)))
        for j in range(len(y))
        if j not in tied and j not in out_rows
    )
    free, costs = sorted(tied - set(out_rows)), exact(fees)
    subsets = [set(some) for n in range(len(free) + 1) for some in combinations(free, n)]
    total += min(
        sum((values[j] for j in some), F(0))
        + sum(fee for three, fee in zip(triples.tolist(), costs) if len(some & set(three)) > 1)
        for some in subsets
    )
    return F(total)


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e8])
def test_fees_never_raise_a_minorant_too_far(scale: float) -> None:
    rng = np.random.default_rng(3)
    helped = 0
    for trial in range(150):
        n, d = int(rng.integers(3, 10)), int(rng.integers(1, 4))
        y = rng.normal(size=(n, d)) * scale + (1e5 * scale if trial % 3 == 0 else 0.0)
        w, prices = rng.uniform(0.1, 3.0, n), rng.uniform(0.0, 5.0, n) ** 2 * scale**2
        triples = rng.permutation(n)[: 3 * int(rng.integers(1, n // 3 + 1))].reshape(-1, 3)
        if trial % 2:  # that share rows
            few = rng.permutation(n)[: int(rng.integers(3, 7))]
            triples = np.array([rng.permutation(few)[:3] for _ in range(rng.integers(1, 6))])
        fees = rng.choice([1e-3, 1.0, 10.0, 1e4], len(triples)) * scale**2
        site = np.zeros(n, dtype=np.int64)
        for rows in clumps_of(triples):  # another site's rows, of which these triples are
            site[list(rows)] = int(triples[0, 0] in rows)
        tied = np.zeros(n, dtype=bool)
        tied[triples.ravel()] = True
        corner = y[0] + rng.normal(size=d) * scale
        box = np.sort(
            np.stack([corner, corner + rng.normal(size=d) * scale * rng.choice([0.0, 1e-3, 0.1, 2.0])]), axis=0
        )
        geometry, order, least = np.empty((4, d)), np.arange(n), np.zeros(n)
        frame(box[0], box[1], box, rng.random((2, d)) < 0.3, 31 / 64, geometry)
        first, last = classify(y, prices, tied, box[0], box[1], order, 0, n, least)
        assert not tied[order[last:]].any()
        out = np.zeros((2, 2 * (d + 2)))
        box_sums(y, w, prices, site, order, first, last, geometry, out)
        before = out[:, d + 1].copy()
        add_fees(y, w, prices, site, *padded(triples, fees), geometry, out)
        assert np.all(out[:, d + 1] >= before - 1e-12 * np.abs(before))
        helped += int(out[1, d + 1] > before[1] + 1e-9 * abs(before[1]))
        numbers = exact(out[0, : d + 2]), exact(out[1, : d + 2])
        for share in rng.choice([0.0, 0.25, 1.0], size=(4, d)):
            m = np.clip(box[0] + share * (box[1] - box[0]), box[0], box[1])
            delta = [a - b for a, b in zip(exact(m), exact(geometry[0]))]
            terms = zip(exact(geometry[2]), exact(geometry[3]), delta, *(part[1:-1] for part in numbers))
            weight = numbers[0][0] + numbers[1][0]
            told = numbers[0][-1] + numbers[1][-1]
            told += sum(b * weight * e * e - 2 * a * (v + u) * e for a, b, e, v, u in terms)
            out_rows, in_rows = set(order[:first].tolist()), set(order[last:].tolist())
            assert told <= least_with_fees(y, w, prices, geometry, out_rows, in_rows, triples, fees, m)
    assert helped > 20


@pytest.mark.parametrize("n", [3, 7, 11])
def test_the_least_due_of_a_clump_is_that_of_all_sets(n: int) -> None:
    rng = np.random.default_rng(n)
    for _ in range(15):
        gains, masks, fees = clump(rng, n, int(rng.integers(1, 3 * n)))
        told = least_due(gains, n, masks, fees, np.empty(n, np.int64), np.empty(n), np.empty(n))
        least = min(due(gains, masks, fees, some) for some in range(1 << n))
        assert abs(F(float(told)) - least) <= least * F(2) ** -45


def test_rows_at_the_end_of_the_largest_clump_count_as_those_at_its_beginning() -> None:
    """Where a clump has more rows than half a word has bits."""
    rng = np.random.default_rng(5)
    for _ in range(15):
        gains, masks, fees = clump(rng, 9, 12)
        told = least_due(gains, 9, masks, fees, np.empty(9, np.int64), np.empty(9), np.empty(9))
        behind = np.concatenate([np.zeros(31), gains])
        same = least_due(behind, 40, masks << 31, fees, np.empty(40, np.int64), np.empty(40), np.empty(40))
        assert same == told > 0.0


def test_a_clump_with_too_many_good_sets_proves_less() -> None:
    """Rows that gain all the same and triples that cost all the same: no branch is worse than the others."""
    rng = np.random.default_rng(8)
    _, masks, _ = clump(rng, 40, 64)
    gains, fees = np.ones(40), np.full(64, 0.5)
    told = least_due(gains, 40, masks, fees, np.empty(40, np.int64), np.empty(40), np.empty(40))
    served = 0
    for i in list(range(40)) * 2:  # a good set, row by row
        served = min(served, served ^ (1 << i), key=lambda one: due(gains, masks, fees, one))
    assert 0.0 <= told < 0.5 * float(due(gains, masks, fees, served))


def clump(rng: np.random.Generator, n: int, n_triples: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    gains = np.maximum(rng.exponential(size=n) - 0.1, 0.0)
    masks = np.array([sum(1 << j for j in rng.choice(n, 3, replace=False).tolist()) for _ in range(n_triples)])
    return gains, masks, rng.exponential(size=n_triples) * rng.choice([0.3, 1.0, 3.0]) * n / (3 * n_triples)


def due(gains: np.ndarray, masks: np.ndarray, fees: np.ndarray, served: int) -> Fraction:
    left_out = sum((gain for i, gain in enumerate(exact(gains)) if not (served >> i) & 1), F(0))
    return left_out + sum(fee for mask, fee in zip(masks.tolist(), exact(fees)) if (mask & served).bit_count() >= 2)
