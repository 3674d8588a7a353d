"""Sums over rows against fractions: quadratics below f's part, cuts' sums above, coordinates within their error."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from consentroid.verify.arithmetic import basis_norm, bound_on_rows
from consentroid.verify.kernels import box_sums, classify, cut_sums, frame, least_value
from consentroid.verify.rows import site_rows
from small_problems import random_problem

F = Fraction


def exact(values: np.ndarray) -> list[Fraction]:
    return [F(float(v)) for v in values]


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e8])
def test_sums_bound_what_they_should(scale: float) -> None:
    rng = np.random.default_rng(0)
    for trial in range(120):
        n, d = int(rng.integers(1, 9)), int(rng.integers(1, 4))
        y = rng.normal(size=(n, d)) * scale + (1e5 * scale if trial % 3 == 0 else 0.0)
        w, prices = rng.uniform(0.1, 3.0, n), rng.uniform(0.0, 4.0, n) ** 2 * scale**2
        prices[rng.random(n) < 0.2] = 0.0
        corner = y[0] + rng.normal(size=d) * scale
        box = np.sort(
            np.stack([corner, corner + rng.normal(size=d) * scale * rng.choice([0.0, 0.01, 1.0, 5.0])]), axis=0
        )
        inner = rng.random((2, d)) < 0.3
        geometry = np.empty((4, d))
        frame(box[0], box[1], box, inner, 31 / 64, geometry)
        order, least, site = np.arange(n), np.zeros(n), np.zeros(n, dtype=np.int64)
        first, last = classify(y, prices, np.zeros(n, bool), box[0], box[1], order, 0, n, least)
        out = np.zeros((1, 2 * (d + 2)))
        box_sums(y, w, prices, site, order, first, last, geometry, out)
        value = least_value(out[:, : d + 2], geometry, True, -1, 0.0, 0.0)
        inside = least_value(out[:, d + 2 :], geometry, False, -1, 0.0, 0.0)
        axis, side, mu = int(rng.integers(d)), int(rng.integers(2)), float(rng.choice([0.0, 0.3, 10.0])) / scale
        at = float(rng.uniform(box[0, axis], box[1, axis]))
        gamma, size = np.zeros(1), np.zeros(1)
        cut_sums(y, w, prices, site, order, first, last, least, axis, 1.0 if side == 0 else -1.0, at, mu, gamma, size)
        for _ in range(4):
            share = rng.choice([0.0, 0.25, 1.0], size=d)
            m = np.clip(box[0] + share * (box[1] - box[0]), box[0], box[1])
            check_point(y, w, prices, geometry, order, first, last, out[0], value, inside, m)
        check_cut(y, w, prices, box, order, first, last, axis, side, at, mu, float(gamma[0]))


def check_point(y, w, prices, geometry, order, first, last, out, value, inside, m) -> None:
    """Quadratics with these very floats, in fractions, against Σ_in ψ + Σ_und min(0, ψ) at one point."""
    d = len(m)
    delta = [a - b for a, b in zip(exact(m), exact(geometry[0]))]
    linear, square = exact(geometry[2]), exact(geometry[3])
    true, true_inside = F(0), F(0)
    for i, j in enumerate(order):
        u = [a - b for a, b in zip(exact(y[j]), exact(geometry[0]))]
        price, weight = F(float(prices[j])), F(float(w[j]))
        plain = sum((a - b) ** 2 for a, b in zip(u, delta)) - price
        psi = sum(a * a for a in u) - price
        psi += sum(q * e * e - 2 * s * a * e for q, s, a, e in zip(square, linear, u, delta))
        if i < first:
            assert plain >= 0
        elif i >= last:
            assert plain <= 0
            true += weight * psi
            true_inside += weight * plain
        else:
            true += weight * min(F(0), psi)
    numbers = exact(out)

    def quadratic(part, shifted):
        weight, offset, constant = part[0], part[1:-1], part[-1]
        s, q = (linear, square) if shifted else ([F(1)] * d, [F(1)] * d)
        return constant + sum(b * weight * e * e - 2 * a * v * e for a, b, v, e in zip(s, q, offset, delta))

    assert F(value) <= quadratic(numbers[: d + 2], True) <= true
    assert F(inside) <= quadratic(numbers[d + 2 :], False) <= true_inside


def check_cut(y, w, prices, box, order, first, last, axis, side, at, mu, gamma) -> None:
    total = F(0)
    for i, j in enumerate(order):
        x = (F(float(y[j, axis])) - F(at)) * (1 if side == 0 else -1)
        outside = [max(lo - v, v - hi, F(0)) for lo, hi, v in zip(exact(box[0]), exact(box[1]), exact(y[j]))]
        if i >= last:
            total += F(float(w[j])) * x
        elif i >= first:
            gain = x + F(mu) * (F(float(prices[j])) - sum(a * a for a in outside))
            total += F(float(w[j])) * max(F(0), gain)
    assert F(gamma) >= total


def test_coordinates_lie_within_their_error() -> None:
    for seed in range(1, 40, 2):
        small = random_problem(seed)
        certificate = small.certificate
        site = site_rows(certificate, "a", small.rows["a"], small.weights["a"], small.prices["a"])
        for x, y, error in zip(small.rows["a"], site.y, site.error):
            offset = [a - b for a, b in zip(exact(x), exact(certificate.origin))]
            true = [
                F(certificate.scale) * sum(o * F(float(b)) for o, b in zip(offset, certificate.basis[:, k]))
                for k in range(len(x))
            ]
            assert sum((a - b) ** 2 for a, b in zip(exact(y), true)) <= F(float(error)) ** 2


def test_bounds_return_to_rows_rounded_down() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        lower, scale = float(10.0 ** rng.uniform(-20, 20)), float(2.0 ** int(rng.integers(-30, 30)))
        error, norm = lower * float(rng.choice([0.0, 1e-30, 1e-12, 0.5, 2.0])), 1.0 + float(rng.uniform(0, 1e-7))
        bound = F(bound_on_rows(lower, error, norm, scale))
        # bound ≤ ((√lower − √E) / (scale norm))²  ⟺  scale norm √bound + √E ≤ √lower, squared twice
        reach = (F(scale) * F(norm)) ** 2 * bound
        rest = F(lower) - reach - F(error)
        assert bound == 0 or (rest >= 0 and 4 * reach * F(error) <= rest * rest)


def test_basis_norm_is_an_upper_bound() -> None:
    rng = np.random.default_rng(2)
    for d in (1, 2, 5, 30):
        basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
        assert 1.0 <= basis_norm(basis) <= 1.0 + 1e-11
        assert basis_norm(basis * (1 + 1e-8)) >= np.linalg.norm(basis * (1 + 1e-8), 2)
