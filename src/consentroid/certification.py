"""How good is a clustering that somebody else found? A proven bound on what is possible answers it.

The given centroids are the first incumbent; the bound comes from the same search as `fit`. Where the search happens to
find better centroids, they are returned too: then the gap of the given ones cannot close, and that is the finding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .core.arrays import Array
from .core.errors import InvalidInput
from .core.problem import clustering_cost
from .core.result import FitResult, relative_gap
from .estimator import FederatedKMeans
from .fitting import TIME_LIMIT, fit

ROUNDING = 1e-9  # relative: two sums over the same rows differ by less


@dataclass(frozen=True)
class Certification:
    """What is proven about given centroids."""

    cost: float  # of the given centroids, on these rows
    lower_bound: float  # no K centroids cost less
    gap: float  # of the given centroids, a fraction of their cost
    certified: bool  # gap is at most the gap asked for
    best_cost: float  # of the best centroids known, given or found
    best_centroids: Array
    result: FitResult  # with the certificate that `consentroid verify` checks

    @property
    def improvable(self) -> bool:
        """Whether better centroids were found, by more than the rounding of a sum."""
        return self.best_cost < self.cost * (1.0 - ROUNDING)


def certify(
    centroids: Any,
    X: Any,
    groups: ArrayLike | None = None,
    *,
    sample_weight: Any = None,
    gap: float = 1e-4,
    time_limit: float | None = TIME_LIMIT,
    random_state: int = 0,
    **options: Any,
) -> Certification:
    """Bound and gap for given centroids (K, D), or for a fitted scikit-learn `KMeans` or anything like it."""
    centres = _centroids_of(centroids)
    model = FederatedKMeans(len(centres), init=centres)
    data = model.gather(X, groups, sample_weight)
    if data.rows.shape[1] != centres.shape[1]:
        raise InvalidInput(f"the centroids have {centres.shape[1]} features, the rows have {data.rows.shape[1]}")
    rows, weights = data.by_node(data.rows), data.by_node(data.weights)
    pooled = np.concatenate(list(rows.values()))
    # The domain holds every row, so moving a centroid into it brings it nearer to all of them.
    start = np.clip(centres, pooled.min(axis=0), pooled.max(axis=0))
    result = fit(
        rows, len(centres), weights=weights, gap=gap, time_limit=time_limit, seed=random_state, init=start, **options
    )
    cost = math.fsum(clustering_cost(rows[node], weights[node], centres) for node in rows)
    cost *= 1.0 + (len(pooled) + pooled.shape[1] + 8) * 2.0**-52  # all terms are positive: rounded up
    if not _on_rows(pooled, centres):  # squares may underflow, to 0 even: a row off its centroid costs something
        cost += (len(pooled) + pooled.shape[1] * math.fsum(np.concatenate(list(weights.values())))) * 1e-322
    own_gap = relative_gap(result.lower_bound, cost)
    return Certification(
        cost=cost,
        lower_bound=result.lower_bound,
        gap=own_gap,
        certified=own_gap <= gap,
        best_cost=min(cost, result.upper_bound),
        best_centroids=result.centroids if result.upper_bound < cost else centres,
        result=result,
    )


def _on_rows(rows: Array, centres: Array) -> bool:
    """Whether every row is one of the centroids."""
    on = np.zeros(len(rows), dtype=bool)
    for centre in centres:
        on |= (rows == centre).all(axis=1)
    return bool(on.all())


def _centroids_of(given: Any) -> Array:
    centres = getattr(given, "cluster_centers_", given)
    if hasattr(given, "fit") and centres is given:
        raise InvalidInput(f"this {type(given).__name__} has no cluster_centers_; fit it first")
    array = np.asarray(centres, dtype=float)
    if array.ndim != 2 or not array.size or not np.isfinite(array).all():
        raise InvalidInput(f"centroids must be a finite table of shape (n_clusters, n_features), got {array.shape}")
    return array
