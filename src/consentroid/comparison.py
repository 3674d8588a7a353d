"""consentroid beside what others do: the same rows, and every gap measured against one proven bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from numpy.typing import ArrayLike

from .core.result import FitResult, relative_gap
from .evaluation.baselines import BASELINES, BaselineResult, run_baseline
from .fitting import fit


@dataclass(frozen=True)
class Compared:
    """One line of a comparison; `gap` is measured against the lower bound that consentroid proved."""

    method: str
    cost: float
    gap: float
    rounds: int
    bytes_up: int
    bytes_down: int
    seconds: float
    rows_leave: bool
    proves: bool

    @classmethod
    def of(cls, outcome: BaselineResult, lower_bound: float, proves: bool = False) -> Compared:
        told = {name: value for name, value in vars(outcome).items() if name != "centroids"}
        return cls(gap=relative_gap(lower_bound, outcome.cost), proves=proves, **told)


@dataclass(frozen=True)
class Comparison:
    lower_bound: float
    lines: tuple[Compared, ...]
    result: FitResult

    def as_dict(self) -> dict[str, Any]:
        return {"lower_bound": self.lower_bound, "methods": [asdict(line) for line in self.lines]}


def compare(
    rows: Mapping[str, ArrayLike] | Sequence[ArrayLike],
    n_clusters: int,
    *,
    baselines: Sequence[str] = tuple(BASELINES),
    weights: Mapping[str, ArrayLike] | None = None,
    seed: int = 0,
    **options: Any,
) -> Comparison:
    """consentroid and the baselines on the same rows; `options` go to `fit` (gap, time_limit, ...)."""
    outcomes = [run_baseline(method, rows, n_clusters, weights=weights, seed=seed) for method in baselines]
    result = fit(rows, n_clusters, weights=weights, seed=seed, **options)
    lower = result.lower_bound
    traffic = (result.rounds, result.bytes_up, result.bytes_down)
    ours = BaselineResult("consentroid", result.centroids, result.upper_bound, *traffic, result.seconds)
    lines = (Compared.of(ours, lower, proves=True), *(Compared.of(outcome, lower) for outcome in outcomes))
    return Comparison(lower, lines, result)
