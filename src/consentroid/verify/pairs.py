"""What prices on pairs of one site's rows prove about these rows: the checker's own arithmetic.

Rows x_j of weight w_j. A clustering into at most K parts has Z_ij = q_i q_j / (weight of the part that has both), with
q = √w, and 0 where none has both; with y_j = q_j (x_j − origin) it costs |Y|² − ⟨Y Yᵀ, Z⟩. From the file come

    π_ij ≥ 0                   ⟨Π, Z⟩ ≥ 0, since Z_ij ≥ 0,
    triangles of rows,         with B_ij = Z_ij / (q_i q_j), B_ij + B_ik ≤ B_ii + B_jk, since a part has both j and k
    prices v ≥ 0               if it has i and j, and i and k; and B_ij ≤ B_ii,
    θ ≤ 0, V, h                such that M = −Y Yᵀ − U + V Vᵀ + q hᵀ + h qᵀ − θ I is positive semidefinite,

U = Π − Σ v T. Z = e eᵀ + S with e = q/|q|, S a projection of rank K − 1 at most and S q = 0. ⟨M, S⟩ ≥ 0 gives the bound

    |Y|² − eᵀ(Y Yᵀ + U) e + (K − 1) θ − |V|².

That M is positive semidefinite is what a Cholesky factorisation shows that comes to its end, up to γ_{n+1} tr M (Rump
2006: Verification of positive definiteness) and what rounding changed in M: θ is lowered by both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array
from ..core.errors import CertificateInvalid
from .arithmetic import rounded_down
from .kernels import UNIT

BLOCK = 256  # rows of M at a time
LARGEST = 1e100  # of a number in the file, and of a row in its scale
MOST_TRIANGLES = 200  # for each row
FLOOR = 1e-290  # more than all underflow
LEAST = 1e-250  # weight beside their mean
NAMES = ("sizes", "order", "pairs", "triangles", "prices", "vectors", "beside", "origin", "numbers")


@dataclass(frozen=True)
class StoredPairs:
    """Prices on pairs of some of a site's rows, as its private file has them: any numbers that pass `checked` make a
    true bound."""

    order: NDArray[np.int32]  # (n,) rows of the site as they stand in what follows
    pairs: NDArray[np.float16]  # (n (n − 1) / 2,) in units, below the diagonal, row by row
    triangles: NDArray[np.int32]  # (T, 3)
    prices: Array  # (T,)
    vectors: Array  # (n, K − 1)
    beside: Array  # (n,)
    origin: Array  # (D,)
    numbers: Array  # (3,) θ, unit of the pairs, scale of the rows


def kinds(n: int, n_features: int, n_clusters: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Kind and shape of each array of a file; a size that is free is given as −(at most) − 1."""
    free, parts = -MOST_TRIANGLES * n - 1, -n - 1
    return {
        "sizes": ("<i4", (parts, 2)),
        "order": ("<i4", (n,)),
        "pairs": ("<f2", (-(n * (n - 1) // 2) - 1,)),
        "triangles": ("<i4", (free, 3)),
        "prices": ("<f8", (free,)),
        "vectors": ("<f8", (n, n_clusters - 1)),
        "beside": ("<f8", (n,)),
        "origin": ("<f8", (parts, n_features)),
        "numbers": ("<f8", (parts, 3)),
    }


def checked(arrays: dict[str, NDArray[Any]], name: str) -> list[StoredPairs]:
    """What the file says of each part of the rows. Refuted unless all of it can be what it is taken for, and every row
    is in one part, once; shapes are right already but for the sizes that are free."""
    parts = _divided(arrays)
    n = len(arrays["order"])
    if parts is None or not np.array_equal(np.sort(arrays["order"]), np.arange(n)) or not all(map(_sound, parts)):
        raise CertificateInvalid(f"site '{name}': its prices on pairs are no such prices")
    return parts


def _divided(arrays: dict[str, NDArray[Any]]) -> list[StoredPairs] | None:
    """One part after the other; None if sizes do not add up to what is there."""
    sizes = arrays["sizes"].astype(np.int64)
    if len(sizes) == 0 or sizes[:, 0].min() < 1 or sizes[:, 1].min() < 0:
        return None
    n, t = sizes.T
    counts = {"pairs": n * (n - 1) // 2, "triangles": t, "prices": t}
    pieces = []
    for name in NAMES[1:-2]:
        ends = np.cumsum(counts.get(name, n))
        if ends[-1] != len(arrays[name]):
            return None
        pieces.append(np.split(arrays[name], ends[:-1]))
    if not len(arrays["origin"]) == len(arrays["numbers"]) == len(sizes):
        return None
    return [StoredPairs(*of) for of in zip(*pieces, arrays["origin"], arrays["numbers"], strict=True)]


def _sound(stored: StoredPairs) -> bool:
    n = len(stored.order)
    theta, unit, scale = stored.numbers.tolist()
    good = bool(np.all(stored.pairs >= 0.0) and np.isfinite(stored.pairs).all())
    good = good and bool(np.all((stored.prices >= 0.0) & (stored.prices <= LARGEST)))
    good = good and all(np.all(np.abs(part) <= LARGEST) for part in (stored.vectors, stored.beside))
    good = good and bool(np.isfinite(stored.origin).all())
    good = good and -LARGEST <= theta <= 0.0 and 0.0 < unit <= LARGEST
    good = good and math.isfinite(scale) and scale > 0.0 and math.frexp(scale)[0] == 0.5
    if good and len(stored.triangles):
        i, j, k = stored.triangles.T
        good = bool(stored.triangles.min() >= 0 and stored.triangles.max() < n)
        good = good and bool(np.all((i != j) & (i != k) & (j != k)))
    return bool(good)


def pairs_bound(x: Array, w: Array, parts: list[StoredPairs], n_clusters: int) -> float:
    """No K clusters of these rows cost less: not less than K clusters of each part of them by itself."""
    return rounded_down(sum((Fraction(_bound_of(x, w, part, n_clusters)) for part in parts), Fraction(0)))


def _bound_of(x: Array, w: Array, stored: StoredPairs, n_clusters: int) -> float:
    """The same of one part; 0 where nothing is proven. Overflow raises (`verify` traps it)."""
    x, w = x[stored.order], w[stored.order]
    n, n_features = x.shape
    theta, unit, scale = stored.numbers.tolist()
    weight = math.fsum(w) / n
    if not (math.isfinite(weight) and np.all((w / weight >= LEAST) & (w / weight <= LARGEST))):
        return 0.0  # a quotient that underflows is not the weight any more
    q = np.sqrt(w / weight)
    y = q[:, None] * ((x - stored.origin) * scale)
    if not np.abs(y).max() <= LARGEST:
        raise FloatingPointError
    u, row_sum, terms = _prices_on(stored, q, unit)
    scatter = math.fsum((y * y).ravel().tolist())
    length = math.fsum((q * q).tolist())
    # |Y|² + eᵀ(−Y Yᵀ − U) e, from below
    along = np.array([math.fsum((column * q).tolist()) for column in y.T])
    along = np.abs(along) + 4.0 * UNIT * (np.abs(y).T @ q)
    slack = (terms + 2 * n + 32) * 4.0 * UNIT * row_sum * float(q.max()) * float(q.sum())
    known = Fraction(scatter) * Fraction(1.0 - 16.0 * UNIT)
    known -= Fraction(float(along @ along) * (1.0 + (n_features + 16) * 4.0 * UNIT)) / Fraction(length)
    known -= (Fraction(float(q @ (u @ q))) + Fraction(slack)) / Fraction(length * (1.0 - 8.0 * UNIT))
    lost = _shortfall(y, q, u, row_sum, stored, theta, scatter, terms)
    if lost is None:
        return 0.0
    longest = math.fsum((stored.vectors**2).ravel().tolist()) * (1.0 + 8.0 * UNIT)
    proven = known + (n_clusters - 1) * (Fraction(theta) - Fraction(lost)) - Fraction(longest)
    proven -= Fraction(64.0 * UNIT) * (Fraction(scatter) + abs(known))
    return _on_rows(rounded_down(proven), scatter, scale, weight)


def _prices_on(stored: StoredPairs, q: Array, unit: float) -> tuple[Array, float, int]:
    """U in full; the greatest sum of absolute terms of a row; and how many terms a number has at most."""
    n = len(q)
    u = np.zeros((n, n))
    first = 0
    for row in range(1, n):
        part = stored.pairs[first : first + row].astype(np.float64) * unit
        u[row, :row], u[:row, row] = part, part
        first += row
    plus, minus, own, half = np.zeros((n, n)), np.zeros((n, n)), np.zeros(n), 0.5 * stored.prices
    i, j, k = stored.triangles.T.astype(np.int64)
    for matrix, one, other in ((minus, i, j), (minus, i, k), (plus, j, k)):
        np.add.at(matrix, (one, other), half)
        np.add.at(matrix, (other, one), half)
    np.add.at(own, i, stored.prices)
    touched = [np.concatenate([i * n + j, j * n + i, i * n + k, k * n + i, j * n + k, k * n + j]), i]
    terms = max((int(np.unique(one, return_counts=True)[1].max(initial=0)) for one in touched), default=0) + 4
    own /= q * q
    sums = u.sum(axis=1) + own
    for start in range(0, n, BLOCK):
        rows = slice(start, min(start + BLOCK, n))
        both = q[rows, None] * q
        added, removed = plus[rows] / both, minus[rows] / both
        sums[rows] += (added + removed).sum(axis=1)
        u[rows] += added - removed
    u[np.arange(n), np.arange(n)] += own
    return u, float(sums.max()) * (1.0 + 8.0 * n * UNIT), terms


def _shortfall(
    y: Array, q: Array, u: Array, row_sum: float, stored: StoredPairs, theta: float, scatter: float, terms: int
) -> float | None:
    """How far M is from positive semidefinite at most; None if that is not known."""
    n, n_features = y.shape
    v, h = stored.vectors, stored.beside
    for start in range(0, n, BLOCK):
        rows = slice(start, min(start + BLOCK, n))
        u[rows] += y[rows] @ y.T
        u[rows] -= v[rows] @ v.T
        u[rows] -= q[rows, None] * h + h[rows, None] * q
    m = np.negative(u, out=u)
    m[np.arange(n), np.arange(n)] -= theta
    trace = float(np.abs(np.diag(m)).sum())
    size = scatter + float((v * v).sum()) + 2.0 * math.sqrt(float(q @ q) * float(h @ h)) + row_sum - theta
    try:
        with np.errstate(all="ignore"):
            lower = np.linalg.cholesky(m)
    except np.linalg.LinAlgError:
        return None
    if not np.isfinite(lower).all():
        return None
    return (terms + n_features + v.shape[1] + 32) * 8.0 * UNIT * size + (n + 8) * 8.0 * UNIT * trace + FLOOR


def _on_rows(bound: float, scatter: float, scale: float, weight: float) -> float:
    """In the rows' own units: y is off by less than 4 ε of each row, q² by less than 8 ε of each weight."""
    if not (bound > 0.0 and math.isfinite(bound)):
        return 0.0
    root = math.sqrt(bound) - 16.0 * UNIT * math.sqrt(scatter) - FLOOR
    if not root > 1e-100:
        return 0.0
    exact = Fraction(root) ** 2 * Fraction(1.0 - 128.0 * UNIT) / Fraction(scale) ** 2
    told = rounded_down(exact * Fraction(weight) * Fraction(1.0 - 16.0 * UNIT))  # no quotient on the way underflows
    return told if math.isfinite(told) and told > 1e-280 else 0.0
