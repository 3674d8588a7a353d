"""Whatever the guard holds back, every inequality that a proof rests on stays true; few rows are not read off."""

from __future__ import annotations

from contextlib import closing
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consentroid.core.problem import NodeData, Problem
from consentroid.core.search import MULTIPLES, SHIFT
from consentroid.fitting import run
from consentroid.protocol.messages import (
    BoxSums,
    Claim,
    ClaimSums,
    Coordinates,
    Evaluate,
    Examine,
    MakeColumns,
    PriceQuery,
    PriceReply,
    StartPrices,
    Trim,
)
from consentroid.site.grain import Grain, digits_above, power_above, power_below
from consentroid.site.guard import FEW, GRAIN, Guard
from consentroid.site.worker import SiteWorker
from consentroid.transport.inprocess import InProcessTransport
from consentroid.verify import verify
from engine_runs import run_engine
from row_problems import row_problem

Case = tuple[int, int, int, int, bool, bool]
cases = st.tuples(  # seed, rows, features, least rows, weighted, masked
    st.integers(0, 10**6), st.integers(1, 25), st.integers(1, 3), st.sampled_from([1, 2, 3, 5, 10]), st.booleans(),
    st.booleans(),
)  # fmt: skip


class Site:
    """A worker with prices, and the rows beside it."""

    def __init__(
        self, seed: int, n_rows: int, n_features: int, least: int, weighted: bool, masked: bool, grain: float = GRAIN
    ) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.y = rng.normal(size=(n_rows, n_features)) * rng.choice([0.1, 1.0, 30.0])
        self.w = rng.uniform(0.5, 3.0, n_rows) if weighted else np.ones(n_rows)
        self.worker = SiteWorker(NodeData.checked("site", self.y, self.w), guard=Guard(least, grain, masked))
        self.grain = Grain.of(self.y, self.w, grain if least > 1 else 0.0)
        centroids = self.y[rng.integers(0, n_rows, 3)] + 0.3 * rng.normal(size=(3, n_features))
        self.ask(1, coordinates=Coordinates(np.zeros(n_features), np.eye(n_features), 1.0))
        self.ask(2, start=StartPrices(0, centroids))
        squared = np.sort(((self.y[:, None] - centroids) ** 2).sum(axis=2), axis=1)
        self.lam = 0.5 * (squared[:, 0] + squared[:, 1])
        middle = self.y[rng.integers(0, n_rows, 8)] + 0.1 * rng.normal(size=(8, n_features)) * self.y.std()
        half = np.exp(rng.uniform(-6, 1, (8, n_features))) * max(float(self.y.std()), 0.1)
        self.lower, self.upper = middle - half, middle + half
        self.held = rng.random((8, n_features)) < 0.2
        self.steepness = np.exp(rng.uniform(-3, 3, 8))

    def ask(self, step: int, **parts: object) -> PriceReply:
        reply = self.worker.answer(PriceQuery(step, step, **parts))  # type: ignore[arg-type]
        assert isinstance(reply, PriceReply), reply
        return reply

    def examine(self) -> BoxSums:
        keys = np.arange(8)
        request = Examine(0, self.lower, self.upper, self.held, self.steepness, keys, np.full(8, -1))
        boxes = self.ask(2, examine=request).boxes
        assert boxes is not None
        return boxes

    def points_in(self, b: int) -> np.ndarray:
        inner = self.rng.uniform(self.lower[b], self.upper[b], (30, self.y.shape[1]))
        corner = np.where(self.rng.random((10, self.y.shape[1])) < 0.5, self.lower[b], self.upper[b])
        near = np.clip(self.y, self.lower[b], self.upper[b])
        return np.concatenate([inner, corner, near])


def quadratic(sums: np.ndarray, delta: np.ndarray, theta: np.ndarray) -> float:
    return float(sums[-1] + ((1 - 2 * theta) * sums[0] * delta**2 - 2 * (1 - theta) * sums[1:-1] * delta).sum())


def slack(site: Site, *numbers: float) -> float:
    return 1e-9 * (1.0 + sum(map(abs, numbers)) + float(site.w @ site.lam))


@given(cases)
def test_the_inequalities_of_a_proof_hold_at_every_point_of_a_box(case: Case) -> None:
    site = Site(*case)
    sums = site.examine()
    for b in range(8):
        centre = 0.5 * (site.lower[b] + site.upper[b])
        theta = np.where(site.held[b], 0.0, SHIFT)
        width = site.upper[b] - site.lower[b]
        for m in site.points_in(b):
            delta, u = m - centre, site.y - centre
            d = ((site.y - m) ** 2).sum(axis=1)
            member = d < site.lam
            psi = (u**2).sum(axis=1) - site.lam + ((1 - 2 * theta) * delta**2 - 2 * (1 - theta) * u * delta).sum(axis=1)
            said, true = quadratic(sums.minorants[b], delta, theta), float((site.w * psi)[member].sum())
            assert said <= true + slack(site, said, true)
            inside = quadratic(sums.insides[b], delta, np.zeros_like(theta))
            paid = float((site.w * (site.lam - d))[member].sum())
            assert paid <= sums.worth[b] - inside + slack(site, paid, inside)
            for axis in range(len(m)):
                for side, sign in enumerate((1.0, -1.0)):
                    ends = (site.lower[b], centre, site.upper[b])
                    for i, at in enumerate(end[axis] for end in (ends if side == 0 else ends[::-1])):
                        for k, multiple in enumerate(MULTIPLES):
                            mu = multiple * width[axis] * site.steepness[b]
                            reach = sign * (site.y[:, axis] - at)
                            true = float((site.w * (reach + mu * (site.lam - d)))[member].sum())
                            said = sums.cuts[b, axis, side, i, k] - mu * inside
                            assert true <= said + slack(site, true, said)


@given(cases)
def test_claims_are_true_and_as_good_as_what_was_examined(case: Case) -> None:
    site = Site(*case)
    sums = site.examine()
    n, n_features = site.lower.shape
    box = np.repeat(np.arange(n), n_features)
    axis, k = np.tile(np.arange(n_features), n), 2
    mu = MULTIPLES[k] * (site.upper - site.lower)[box, axis] * site.steepness[box]
    request = Claim(0, site.lower, site.upper, site.held, box, axis, np.zeros_like(box), site.lower[box, axis], mu)
    claims = site.ask(2, claim=request).claimed
    assert isinstance(claims, ClaimSums)
    examined = sums.cuts[box, axis, 0, 0, k]
    assert np.all(claims.cuts <= examined + 1e-9 * (1 + np.abs(examined)))
    assert np.allclose(claims.minorants, sums.minorants, rtol=1e-9, atol=1e-9 * (1 + float(site.w @ site.lam)))
    assert np.allclose(claims.insides, sums.insides, rtol=1e-9, atol=1e-9 * (1 + float(site.w @ site.lam)))


def on_grid(values: np.ndarray, steps: np.ndarray | float) -> bool:
    steps = np.asarray(steps)
    multiples = values / np.where(steps > 0.0, steps, 1.0)
    return bool(np.all((steps == 0.0) | (np.abs(multiples - np.rint(multiples)) <= 1e-6)))


@given(cases)
def test_boxes_are_told_on_the_grid_and_few_rows_coarsely_or_not_at_all(case: Case) -> None:
    site = Site(*case)
    least, masked = case[3], case[5]
    sums = site.examine()
    if least == 1:
        return
    for b in range(8):
        below, above = site.lower[b] - site.y, site.y - site.upper[b]
        near = (np.maximum(np.maximum(below, above), 0.0) ** 2).sum(axis=1)
        far = (np.maximum(below**2, above**2)).sum(axis=1)
        n_in, n_out = int((far <= site.lam).sum()), int((near >= site.lam).sum())
        n_und, centre = case[1] - n_in - n_out, 0.5 * (site.lower[b] + site.upper[b])
        few_in = 0 < n_in < least
        if few_in and not masked:
            assert not sums.insides[b].any()
            few_in, n_in, n_und = False, 0, n_und + n_in
        for told, few in ((sums.insides[b], few_in), (sums.minorants[b], n_in + n_und < least)):
            about = told[1:-1] + told[0] * (centre - site.grain.origin)
            assert on_grid(about, site.grain.steps * (FEW if few else 1.0)) or n_in > 0
            assert on_grid(told[-1:], site.grain.scalar)
        if 0 < n_und < least:
            rest = float(site.w.sum()) - sums.insides[b, 0]
            assert sums.undecided[b] in (power_above(sums.undecided[b]), pytest.approx(rest))
            assert sums.worth[b] == power_above(sums.worth[b])
            if not masked:  # of few undecided rows a number, no weight and no offset
                assert np.array_equal(sums.minorants[b, :-1], sums.insides[b, :-1])
        else:
            assert sums.worth[b] == digits_above(sums.worth[b], 3)


@given(cases)
def test_small_groups_are_left_out_in_the_open_and_coarse_under_masks(case: Case) -> None:
    site, least, masked = Site(*case), case[3], case[5]
    points = site.y[site.rng.integers(0, len(site.y), 6)] + 0.2
    squared = ((site.y[:, None] - points) ** 2).sum(axis=2)
    trimmed = site.ask(2, trim=Trim(0, points)).trimmed
    columns = site.ask(3, columns=MakeColumns(0, 0, np.zeros(0, bool), points)).columns
    assert trimmed is not None
    assert columns is not None
    for p in range(6):
        rows = np.flatnonzero(squared[:, p] < site.lam)
        value = float(site.w[rows] @ (squared[rows, p] - site.lam[rows]))
        assert abs(trimmed.values[p] - value) <= 0.5 * site.grain.scalar + 1e-9 * (1.0 + abs(value))
        heavy = np.ceil(site.w[rows].sum() / site.w.max() * (1 - 1e-9))  # so many rows it takes at least
        weight = float(site.w[rows].sum())
        assert columns.sizes[p] == pytest.approx(0.0 if 0 < len(rows) < least and not masked else weight)
        assert columns.overlaps[p, p] == columns.sizes[p]
        if 0 < heavy < least and not masked:
            assert trimmed.weights[p] == 0.0
            assert not trimmed.offsets[p].any()
        elif len(rows):
            assert trimmed.weights[p] == pytest.approx(weight)
            about = trimmed.offsets[p] + trimmed.weights[p] * (points[p] - site.grain.origin)
            assert on_grid(about, site.grain.steps * (FEW if heavy < least else 1.0))
    evaluated = site.ask(3, evaluate=Evaluate(points.reshape(2, 3, -1))).evaluated
    assert evaluated is not None
    for c in range(2):
        near = squared[:, 3 * c : 3 * c + 3]
        cost = float(site.w @ near.min(axis=1))
        assert cost <= evaluated.costs[c] <= cost * (1 + (1e-9 if least == 1 else 2.0**-12 + 1e-9)) + 1e-300
        labels = near.argmin(axis=1)
        told = evaluated.counts[c] > 0
        missing = int(np.isin(labels, np.flatnonzero(~told)).sum())
        assert missing == 0 or (not masked and missing >= min(least, len(site.y)))
        for k in np.flatnonzero(told):
            assert masked or (labels == k).sum() >= least
            about = evaluated.offsets[c, k] + evaluated.counts[c, k] * (points[3 * c + k] - site.grain.origin)
            assert least == 1 or on_grid(about, site.grain.steps)


@given(cases)
def test_asking_elsewhere_about_the_same_rows_tells_nothing_new(case: Case) -> None:
    """One point serves all rows: their sum on the grid is the same, wherever it is asked about."""
    site = Site(*case)
    told = []
    for by in site.rng.normal(size=(5, site.y.shape[1])):
        point = site.grain.origin + 3.0 * by * site.y.std()
        evaluated = site.ask(2, evaluate=Evaluate(point[None, None])).evaluated
        assert evaluated is not None
        told.append(evaluated.offsets[0, 0] + evaluated.counts[0, 0] * point)
    assert np.ptp(told, axis=0) == pytest.approx(0.0, abs=1e-7 * len(site.y))


@given(cases)
def test_without_a_grain_many_rows_are_told_as_they_are(case: Case) -> None:
    plain, guarded = Site(*case[:3], 1, *case[4:]), Site(*case, grain=0.0)
    points = plain.y[:3] + 0.1
    exact, told = plain.ask(2, trim=Trim(0, points)).trimmed, guarded.ask(2, trim=Trim(0, points)).trimmed
    assert exact is not None
    assert told is not None
    assert np.array_equal(exact.values, told.values)
    shown = told.weights > 0
    assert np.array_equal(exact.offsets[shown], told.offsets[shown])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("least", [3, 5, 10])
def test_a_guarded_run_proves_less_or_as_much_and_never_too_much(least: int, masked: bool) -> None:
    rng = np.random.default_rng(3)
    centres = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])
    rows = {f"site{i}": np.concatenate([c + rng.normal(size=(14, 2)) for c in centres]) for i in range(3)}
    problem = Problem.checked(rows, 3)
    free = run_engine(InProcessTransport.of(problem), problem, gap=1e-3)
    workers = [SiteWorker(node, guard=Guard(least, masked=masked)) for node in problem.nodes]
    guarded = run_engine(InProcessTransport(workers), problem, gap=1e-2)
    assert guarded.lower <= free.upper
    assert guarded.upper >= free.lower
    assert guarded.lower >= 0.9 * free.lower
    assert masked or all(worker.guard.take_smallest() >= least for worker in workers)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("least", [2, 4])
def test_bounds_of_guarded_runs_enclose_the_optimum_and_their_certificates_hold(
    least: int, masked: bool, tmp_path: Path
) -> None:
    for seed in range(12):
        one = row_problem(seed, most_rows=8)
        problem = Problem.checked(one.rows, one.n_clusters, weights=one.weights, domain=one.domain)
        files = {node.name: tmp_path / f"{seed}-{node.name}.npz" for node in problem.nodes}
        workers = [
            SiteWorker(node, price_file=files[node.name], guard=Guard(least, masked=masked)) for node in problem.nodes
        ]
        with closing(InProcessTransport(workers)) as line:
            result = run(line, problem.n_clusters, domain=problem.domain, gap=1e-2, time_limit=0.4)
        assert Fraction(result.lower_bound) <= one.optimum <= Fraction(result.upper_bound), (seed, one.kind)
        if result.certificate is not None:
            report = verify(result.certificate, one.rows, files, one.weights)
            assert report.verified
            assert Fraction(report.lower_bound) <= one.optimum
            for name in one.rows:  # its claims alone, the others' taken as they stand
                verify(result.certificate, {name: one.rows[name]}, files, {name: one.weights[name]})


def test_powers_of_two_are_not_below() -> None:
    values = np.concatenate([[0.0, 5e-324, 1.0, 1e300], np.random.default_rng(0).lognormal(0, 50, 1000)])
    powers = power_above(values)
    assert np.all(powers >= values)
    assert np.all((powers < 2 * values) | (values == 0) | (powers == 2 * values))


def test_powers_of_two_are_not_above() -> None:
    values = np.concatenate([[0.0, 5e-324, 1.0, 1e300], np.random.default_rng(0).lognormal(0, 50, 1000)])
    assert np.all(power_below(values) <= values)
    assert np.all((values < 2 * power_below(values)) | (values == 0))
