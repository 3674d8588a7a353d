"""Small clustering problems of every awkward kind, and their exact optimum: for tests of the row-price engine."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from consentroid.core.problem import Domain
from consentroid.core.result import FitResult
from consentroid.fitting import fit
from oracle import clustering_optimum

KINDS = (
    "plain", "weights", "duplicates", "constant", "offset", "scale", "grid", "wide", "far", "mixed weights", "groups",
    "light row",
)  # fmt: skip


@dataclass(frozen=True)
class RowProblem:
    kind: str
    rows: dict[str, np.ndarray]
    weights: dict[str, np.ndarray]
    n_clusters: int
    domain: Domain | None

    @property
    def pooled(self) -> tuple[np.ndarray, np.ndarray]:
        return np.concatenate(list(self.rows.values())), np.concatenate(list(self.weights.values()))

    @cached_property
    def optimum(self) -> Fraction:
        return clustering_optimum(*self.pooled, self.n_clusters)

    def solved(self, **options) -> FitResult:
        return fit(self.rows, self.n_clusters, weights=self.weights, domain=self.domain, **options)


def row_problem(seed: int, most_rows: int = 9) -> RowProblem:
    """Two to nine rows, one to three features, one to four clusters, one to three sites."""
    rng = np.random.default_rng(seed)
    kind = KINDS[seed % len(KINDS)]
    n, d = int(rng.integers(2, most_rows + 1)), int(rng.integers(1, 4))
    x, w, domain = rng.normal(size=(n, d)), np.ones(n), None
    if rng.random() < 0.3:
        w = rng.integers(1, 9, n) / 8.0
    if kind == "weights":
        w = rng.integers(1, 40, n) / 8.0
    elif kind == "duplicates":
        x = x[rng.integers(max(1, n // 2), size=n)]
    elif kind == "constant":
        x[:, int(rng.integers(d))] = rng.choice([0.0, 3.7, -1e9])
    elif kind == "offset":
        x += rng.choice([-1.0, 1.0], size=d) * 10.0 ** rng.integers(3, 8)
    elif kind == "scale":
        x *= 10.0 ** int(rng.integers(-150, 151))
    elif kind == "grid":
        x = rng.integers(0, 4, size=(n, d)).astype(float)
    elif kind == "wide":
        domain = Domain(np.full(d, -1e17), np.full(d, 1e17))
    elif kind == "far":
        x[0] = rng.choice([1e20, -1e20, 1e8])
    elif kind == "mixed weights":
        w = 2.0 ** rng.integers(-30, 30, n)
    elif kind == "groups":
        x = 0.2 * x + 3.0 * rng.integers(0, 3, size=(n, 1))
    elif kind == "light row":
        w = np.where(np.arange(n) == 0, 0.0, 1.0)
    k = min(int(rng.integers(1, 5)), len(np.unique(x[w > 0], axis=0)))
    site = rng.permutation(np.arange(n) % int(rng.integers(1, 4)))
    sites = [s for s in range(3) if np.any(w[site == s] > 0)]
    rows = {f"site {s}": x[site == s] for s in sites}
    return RowProblem(kind, rows, {f"site {s}": w[site == s] for s in sites}, k, domain)


@dataclass(frozen=True)
class Solved:
    problem: RowProblem
    result: FitResult
    prices: dict[str, np.ndarray]  # the sites' private files


@cache
def solved(seed: int) -> Solved:
    """One run of each problem, for all tests that look at its outcome."""
    problem = row_problem(seed, most_rows=8)
    with tempfile.TemporaryDirectory() as folder:
        result = problem.solved(gap=1e-6, time_limit=1.0, seed=seed, folder=Path(folder))
        files = {name: Path(folder) / f"prices-{name}.npz" for name in problem.rows}
        prices = {name: np.load(file)["prices"] for name, file in files.items() if file.exists()}
    return Solved(problem, result, prices)


def half_integral(seed: int, names: tuple[str, ...]) -> tuple[dict[str, np.ndarray], int]:
    """Rows on which the best prices without fees mix clusters by halves, and K: seeds 99, 134, 237 and 392 are such."""
    x = np.random.default_rng(seed).normal(size=(45, 2))
    return {name: x[i :: len(names)] for i, name in enumerate(names)}, 7
