"""All that ever crosses between coordinator and nodes. Rows are not among it.

Coordinator → node: `Describe` once, then one `Query` a round. Node → coordinator: `Description`, `Reply`, or a
`Failure` (a value, not a crash). A query may ask for three kinds of work at once, so that one exchange serves a round:

* `Solve`: the priced node problem `Individual_Clustering_Problem` on B boxes → bound, value, centroids for each.
* `Statistics`: the cheap bound on B boxes → counts, sums and costs of the rows whose cluster is decided there.
* `Evaluate`: C candidate centroids → cost (`Node_Objective`), counts and sums, so that the coordinator can take exact
  Lloyd steps over all nodes.

`docs/disclosure.md` says what each field reveals. Shapes: B boxes, C candidates, K clusters, D features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array
from ..core.symmetry import Rule


@dataclass(frozen=True)
class Describe:
    """Ask a node who it is; with a domain it checks its rows against it, without one it tells its extremes."""

    n_clusters: int
    lower: Array | None = None  # (D,)
    upper: Array | None = None  # (D,)
    features: tuple[str, ...] = ()  # expected names and order; empty: not checked


@dataclass(frozen=True)
class Solve:
    boxes: Array  # (B, 2, K, D)
    prices: Array  # (B, K, D)
    seconds: float = float("inf")  # budget for the whole batch
    gap: float = 1e-9  # relative gap at which a node problem counts as solved
    search_nodes: int = 2**60  # most search nodes for each box; 1 asks for the root bound only


@dataclass(frozen=True)
class Statistics:
    boxes: Array  # (B, 2, K, D)


@dataclass(frozen=True)
class Evaluate:
    candidates: Array  # (C, K, D)


@dataclass(frozen=True)
class Query:
    round: int
    solver: str = "exact"
    rule: Rule = "none"
    references: Array | None = None  # (K, D)
    solve: Solve | None = None
    statistics: Statistics | None = None
    evaluate: Evaluate | None = None


@dataclass(frozen=True)
class Description:
    node: str
    n_points: int
    n_features: int
    n_distinct: int  # min(K, distinct rows): enough to reject K larger than the rows of all nodes
    weight: float
    features: tuple[str, ...] = ()
    lower: Array | None = None  # only if no domain was given
    upper: Array | None = None


@dataclass(frozen=True)
class Solved:
    bounds: Array  # (B,) proven: never above the node's optimum
    values: Array  # (B,) attained by the centroids
    centroids: Array  # (B, K, D)
    optimal: NDArray[np.bool_]  # (B,) whether the gap asked for was reached


@dataclass(frozen=True)
class Counted:
    """Σ_k min over m_k of the decided rows' cost is a bound once summed over nodes; see `legacy/bounds.py`."""

    counts: Array  # (B, K) weight of the rows decided for each cluster
    sums: Array  # (B, K, D) their weighted sum, relative to the box centre
    constants: Array  # (B,) rest: their squares about the box centre + least distances of undecided rows, rounded down
    undecided: Array  # (B,) weight of the rows not decided


@dataclass(frozen=True)
class Evaluated:
    costs: Array  # (C,)
    counts: Array  # (C, K)
    sums: Array  # (C, K, D)


@dataclass(frozen=True)
class Reply:
    round: int
    node: str
    solved: Solved | None = None
    counted: Counted | None = None
    evaluated: Evaluated | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Failure:
    """Why there is no reply from a node."""

    node: str
    reason: str
    round: int = -1


Request = Describe | Query
Response = Description | Reply | Failure
