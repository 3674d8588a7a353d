"""A slow and simple prover: honest certificates for tests that must not wait for, or trust, the engine.

Plain numpy in the order of the mathematics (docs/certificate.md), every number loosened by `SLACK` of its magnitude
instead of a rounding analysis. Prices, branches and targets may be anything: they decide how much is proven, never
whether it is true.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product

import numpy as np

from consentroid.certificate.document import (
    CLOSED,
    CLOSED_BY_CUT,
    COST_CUT,
    SHRUNK,
    SPLIT,
    STATIONARY_CUT,
    BoxTree,
    CellProof,
    Certificate,
    LeafProof,
    price_digest,
)  # fmt: skip

SLACK = 1e-13


@dataclass
class Work:
    """Everything a cell's proof needs."""

    y: list[np.ndarray]  # per site
    w: list[np.ndarray]
    prices: list[np.ndarray]
    lower: np.ndarray
    upper: np.ndarray
    root: np.ndarray
    target: float
    shift: float
    cuts: bool
    most_boxes: int
    records: list[tuple[int, int, int, float, float]] = field(default_factory=list)
    claims: list[tuple[np.ndarray, np.ndarray, list[np.ndarray]]] = field(default_factory=list)
    proven: float = 0.0

    # ---------------------------------------------------------------- what the rows say about a box

    def examine(self, lo, hi):
        """Per site (minorants, insides), and what the cuts need."""
        c = 0.5 * (lo + hi)
        h = np.maximum(hi - c, c - lo)
        face = ((self.lower > self.root[0]) & (lo <= self.lower)) | ((self.upper < self.root[1]) & (hi >= self.upper))
        theta = np.where(face, 0.0, self.shift)
        q, b = 1 - 2 * theta, 1 - theta
        minorants, insides, classes = [], [], []
        for y, w, lam in zip(self.y, self.w, self.prices):
            u = y - c
            a = (np.maximum(np.maximum(lo - y, y - hi), 0) ** 2).sum(1)
            e = (np.maximum(np.abs(y - lo), np.abs(y - hi)) ** 2).sum(1)
            inside = e * (1 + SLACK) <= lam
            undecided = ~inside & (a * (1 - SLACK) < lam)
            at = (u**2).sum(1)
            rise = (q * h**2 + 2 * b * np.abs(u) * h).sum(1)
            x = np.minimum(b / q * np.abs(u), h)
            fall = (q * x**2 - 2 * b * np.abs(u) * x).sum(1)
            size = at + lam + rise
            p, top = at - lam + fall - SLACK * size, at - lam + rise + SLACK * size
            s = np.where(top <= 0, 1.0, np.minimum(-p / np.where(top > 0, top - p, 1.0) * (1 + SLACK), 1.0))
            s = np.where(inside, 1.0, np.where(undecided & (p < 0), s, 0.0))
            top = np.where(inside, 0.0, np.maximum(top, 0.0))
            ws = w * s
            minorants.append([ws.sum(), *(ws @ u), ws @ (at - lam - top) - SLACK * (ws @ (2 * size))])
            wi = w * inside
            reach = at + lam + (h**2 + 2 * np.abs(u) * h).sum(1)
            insides.append([wi.sum(), *(wi @ u), wi @ (at - lam) - SLACK * (wi @ reach)])
            classes.append((inside, undecided, a * (1 - SLACK)))
        return np.array(minorants), np.array(insides), classes, c, h, q, b

    @staticmethod
    def least(quadratics, h, q, b, axis=None, low=None, high=None):
        total = quadratics.sum(0)
        value, size = total[-1], np.abs(quadratics).sum(0)
        magnitude = size[-1]
        for d in range(len(h)):
            left, right = (-h[d], h[d]) if d != axis else (low, high)
            alpha, beta = q[d] * total[0], 2 * b[d] * total[1 + d]
            points = [left, right] + ([min(max(beta / (2 * alpha), left), right)] if alpha > 0 else [])
            value += min(alpha * x * x - beta * x for x in points)
            reach = max(abs(left), abs(right))
            magnitude += q[d] * size[0] * reach**2 + 2 * b[d] * size[1 + d] * reach
        return value - SLACK * magnitude

    def gamma(self, classes, axis, side, at, mu):
        sign = 1 if side == 0 else -1
        out = []
        for y, w, lam, (inside, undecided, a) in zip(self.y, self.w, self.prices, classes):
            x = sign * (y[:, axis] - at)
            gain = x + mu * (lam - a)
            terms = np.where(inside, x, np.where(undecided, np.maximum(gain, 0), 0))
            size = np.where(inside | undecided, np.abs(x) + mu * (lam + a), 0)
            out.append(w @ terms + SLACK * (w @ size))
        return np.array(out)

    # ---------------------------------------------------------------- the search

    def search(self) -> None:
        self.proven = self.target
        pending = [(self.lower.copy(), self.upper.copy())]
        n_boxes = 0
        ones = np.ones(len(self.lower))
        while pending:
            lo, hi = pending.pop()
            n_boxes += 1
            minorants, insides, classes, c, h, q, b = self.examine(lo, hi)
            bound = self.least(minorants, h, q, b)
            if bound >= self.target or n_boxes + len(pending) > self.most_boxes or h.max() <= 1e-9:
                self.proven = min(self.proven, bound)
                self.closed(CLOSED, 0, 0, 0.0, minorants, insides, [])
                continue
            if self.cuts:
                inside = self.least(insides, h, ones, ones)
                closing, cuts, sums = self.find_cuts(lo, hi, c, h, q, b, minorants, insides, classes, inside)
                if closing is not None:
                    axis, side, mu, gamma = closing
                    self.closed(CLOSED_BY_CUT, axis, side, mu, minorants, insides, [gamma])
                    continue
                if cuts:
                    self.records += cuts
                    self.records.append((SHRUNK, 0, 0, 0.0, 0.0))
                    self.claims.append((minorants, insides, sums))
                    for _, axis, side, at, _ in cuts:
                        if side == 0:
                            hi[axis] = min(hi[axis], at)
                        else:
                            lo[axis] = max(lo[axis], at)
                    if (lo > hi).any():
                        self.closed(CLOSED, 0, 0, 0.0, minorants, insides, [])
                        continue
            axis = int(np.argmax(hi - lo))
            value = 0.5 * (lo[axis] + hi[axis])
            self.records.append((SPLIT, axis, 0, value, 0.0))
            below, above = hi.copy(), lo.copy()
            below[axis] = above[axis] = value
            pending += [(above, hi), (lo, below)]

    def closed(self, kind, axis, side, mu, minorants, insides, sums):
        self.records.append((kind, axis, side, 0.0, mu))
        self.claims.append((minorants, insides, sums))

    def find_cuts(self, lo, hi, c, h, q, b, minorants, insides, classes, inside):
        cuts, sums = [], []
        for axis, side in product(range(len(lo)), range(2)):
            if not hi[axis] > lo[axis]:
                continue
            own = (lo, hi)[side][axis]
            inner = (self.lower[axis] > self.root[0][axis], self.upper[axis] < self.root[1][axis])[side]
            on_face = inner and own == (self.lower, self.upper)[side][axis]
            found = None
            for share, mu in product((0.0, 0.25, 0.5), (0.0, 0.5 / max(h[axis], 1e-9), 0.1)):
                at = own + share * ((hi, lo)[side][axis] - own)
                if not lo[axis] <= at <= hi[axis]:
                    continue
                gamma = self.gamma(classes, axis, side, at, mu)
                need = mu * (inside - self.target)
                if gamma.sum() - need < -1e-12 * (np.abs(gamma).sum() + abs(need)):
                    if share == 0.0 and not on_face:
                        return (axis, side, mu, gamma), [], []
                    found = (STATIONARY_CUT, axis, side, float(at), float(mu)), gamma
                    break
            if found is not None:
                cuts.append(found[0])
                sums.append(found[1])
                continue
            at = (lo, hi)[side][axis] + 0.5 * ((hi, lo)[side][axis] - (lo, hi)[side][axis])
            low, high = (at - c[axis], h[axis]) if side == 0 else (-h[axis], at - c[axis])
            if self.least(minorants, h, q, b, axis, low, high) >= self.target + 1e-12 * abs(self.target):
                cuts.append((COST_CUT, axis, side, float(at), 0.0))
        return None, cuts, sums

    def tree(self) -> BoxTree:
        kind, axis, side, value, mu = zip(*self.records)
        n_sites, width = len(self.y), 2 * (len(self.lower) + 2)
        longest = max(len(sums) for _, _, sums in self.claims)
        claims = np.zeros((len(self.claims), n_sites, width + longest))
        for i, (minorants, insides, sums) in enumerate(self.claims):
            claims[i, :, :width] = np.hstack([minorants, insides])
            for k, gamma in enumerate(sums):
                claims[i, :, width + k] = gamma
        integers = [np.array(part, dtype=np.int32) for part in (kind, axis, side)]
        return BoxTree(*integers, np.array(value, dtype=float), np.array(mu, dtype=float), claims)


def f_value(y, w, prices, point):
    return float(sum(wi @ np.minimum(((yi - point) ** 2).sum(1) - li, 0) for yi, wi, li in zip(y, w, prices)))


def equal_profits(y, w, centres, share):
    """Prices under which the clusters of these centres all have the same profit: tight where clusters are clear."""
    distances = [((part[:, None] - centres[None]) ** 2).sum(2) for part in y]
    nearest = [part.argmin(1) for part in distances]
    mass = np.zeros(len(centres))
    for k, v in zip(nearest, w):
        np.add.at(mass, k, v)
    if len(centres) == 1:
        return [part[:, 0] + part.max() + 1e-3 for part in distances]
    sorted_distances = [np.sort(part, axis=1) for part in distances]
    room = [(part[:, 1] - part[:, 0]) * mass[k] for part, k in zip(sorted_distances, nearest)]
    profit = share * min(part.min() for part in room)
    return [part[:, 0] + profit / mass[k] for part, k in zip(sorted_distances, nearest)]


def prove(
    rows: dict[str, np.ndarray],
    centroids: np.ndarray,
    *,
    weights: dict[str, np.ndarray] | None = None,
    basis: np.ndarray | None = None,
    origin: np.ndarray | None = None,
    scale: float = 1.0,
    shift: float = 31 / 64,
    cuts: bool = True,
    branches: int = 0,
    most_boxes: int = 400,
    slack: float = 1e-6,
    wobble: float = 0.0,
    share: float = 0.3,
    seed: int = 0,
    stated: np.ndarray | None = None,
) -> tuple[Certificate, dict[str, np.ndarray]]:
    """An honest certificate and the sites' prices. `branches`: how often a leaf of the tree of cells is branched;
    `stated`: other centroids than those that the prices were made for."""
    rng = np.random.default_rng(seed)
    names = list(rows)
    n_clusters, n_features = centroids.shape
    basis = np.eye(n_features) if basis is None else basis
    origin = np.zeros(n_features) if origin is None else origin
    x = [np.asarray(rows[name], dtype=float) for name in names]
    w = [np.ones(len(part)) if weights is None else np.asarray(weights[name], float) for name, part in zip(names, x)]
    x, w = [part[v > 0] for part, v in zip(x, w)], [v[v > 0] for v in w]
    y = [((part - origin) @ basis) * scale for part in x]
    centres = ((centroids - origin) @ basis) * scale
    pooled = np.vstack(y)
    margin = 1e-12 * (np.abs(pooled).max() + 1e-30)
    root = np.stack([pooled.min(0) - margin, pooled.max(0) + margin])
    nodes = [((), [(root[0], root[1], n_clusters)])]
    for _ in range(branches):
        path, cells = nodes.pop(int(rng.integers(len(nodes))))
        at = int(rng.integers(len(cells)))
        axis = int(rng.integers(n_features))
        lo, hi, count = cells[at]
        value = float(lo[axis] + rng.choice([0.0, 0.3, 0.5, 0.8, 1.0]) * (hi[axis] - lo[axis]))
        value = min(max(value, lo[axis]), hi[axis])
        below, above = hi.copy(), lo.copy()
        below[axis] = above[axis] = value
        for k in range(count + 1):
            parts = [(lo, below, k), (above, hi, count - k)]
            nodes.append(((*path, (at, axis, value, k)), [*cells[:at], *parts, *cells[at + 1 :]]))
    price_rows = [[] for _ in names]
    leaves = []
    for path, cells in nodes:
        prices = [lam * np.exp(wobble * rng.standard_normal(len(lam))) for lam in equal_profits(y, w, centres, share)]
        proofs, exact = [], Fraction(0)
        totals = np.array([math.fsum(v * lam) * (1 - SLACK) for v, lam in zip(w, prices)])
        for total in totals:
            exact += Fraction(float(total))
        for lo, hi, count in cells:
            if count == 0:
                proofs.append(CellProof(lo, hi, 0, 0.0, None))
                continue
            points = np.vstack([np.clip(centres, lo, hi), np.clip(pooled, lo, hi), 0.5 * (lo + hi)[None]])
            best = min(f_value(y, w, prices, point) for point in points)
            target = best * (1 + slack) - slack * totals.sum()
            work = Work(y, w, prices, lo, hi, root, target, shift, cuts, most_boxes)
            work.search()
            proofs.append(CellProof(lo, hi, count, target, work.tree()))
            exact += count * Fraction(work.proven)
        for kept, lam in zip(price_rows, prices):
            kept.append(lam)
        total = float(sum((Fraction(float(t)) for t in totals), Fraction(0))) * (1 - 1e-15)
        leaves.append(LeafProof(path, len(leaves), totals, total, float(exact) - 1e-14 * total, tuple(proofs)))
    files = {name: np.array(kept) for name, kept in zip(names, price_rows)}
    centroids = centroids if stated is None else stated
    costs = np.array([
        math.fsum(v * ((part[:, None] - centroids[None]) ** 2).sum(2).min(1)) * (1 + SLACK) for v, part in zip(w, x)
    ])  # fmt: skip
    errors = np.array([
        math.fsum(v * ((n_features + 4) * 2.0**-52 * scale * np.abs(part - origin).sum(1)) ** 2) * (1 + SLACK)
        for v, part in zip(w, x)
    ])  # fmt: skip
    norm = 1 + np.linalg.norm(basis.T @ basis - np.eye(n_features)) + 1e-14
    lower = min(leaf.bound for leaf in leaves)
    reach = (math.sqrt(max(lower, 0.0)) - math.sqrt(errors.sum())) / (scale * norm)
    lower = max(reach, 0.0) ** 2 * (1 - 1e-14)
    upper = float(costs.sum())
    stacked = np.vstack(x)
    certificate = Certificate(
        n_clusters=n_clusters, sites=tuple(names), features=tuple(f"x{d}" for d in range(n_features)),
        domain=np.stack([stacked.min(0), stacked.max(0)]), origin=origin, basis=basis, scale=scale, root=root,
        shift=shift, centroids=centroids, site_costs=costs, scatter_errors=errors,
        total_scatter_error=float(errors.sum()) * (1 + SLACK), leaves=tuple(leaves),
        price_files={name: price_digest(files[name]) for name in names}, lower=lower, upper=upper,
        gap=(upper - lower) / upper if upper else 0.0,
    )  # fmt: skip
    return certificate, files


def without_claims(certificate: Certificate) -> Certificate:
    """As if only totals were known."""
    leaves = tuple(
        replace(
            leaf,
            totals=None,
            cells=tuple(
                replace(cell, proof=None if cell.proof is None else replace(cell.proof, claims=None))
                for cell in leaf.cells
            ),
        )
        for leaf in certificate.leaves
    )
    return replace(certificate, leaves=leaves, site_costs=None, scatter_errors=None)


def exact_optimum(rows: np.ndarray, weights: np.ndarray, n_clusters: int) -> Fraction:
    """The least cost of all partitions into at most K clusters, as a fraction."""
    n = len(rows)
    x = [[Fraction(float(v)) for v in row] for row in rows]
    w = [Fraction(float(v)) for v in weights]
    cost = [Fraction(0)] * (1 << n)
    for mask in range(1, 1 << n):
        members = [j for j in range(n) if mask >> j & 1]
        mass = sum(w[j] for j in members)
        for d in range(len(x[0])):
            first = sum(w[j] * x[j][d] for j in members)
            cost[mask] += sum(w[j] * x[j][d] ** 2 for j in members) - first * first / mass
    best = cost[:]
    for _ in range(n_clusters - 1):
        following = best[:]
        for mask in range(1, 1 << n):
            part = mask & (mask - 1)  # the lowest row is in the first cluster
            rest = part
            while rest:
                value = cost[mask ^ rest] + best[rest]
                if value < following[mask]:
                    following[mask] = value
                rest = (rest - 1) & part
        best = following
    return best[-1]
