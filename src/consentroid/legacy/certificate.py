"""The certificate: a lower and an upper bound that anybody can check, and that only ever tighten.

Lower bound. The domain (all centroids of all clusters) is covered by leaves. For each leaf the coordinator holds prices
that sum to zero over the nodes, and each node's proven bound on its priced problem in that leaf. By weak duality

    min_{m ∈ leaf} Σ_i f_i(m)  =  min_{m ∈ leaf} Σ_i (f_i(m) + ⟨p_i, m⟩)  ≥  Σ_i bound_i,

and the least sum over all leaves is the lower bound. After the paper's loop there is one leaf, the domain itself.
A leaf without prices is one in which no centroids obey the order rule.

Upper bound. The cost of the incumbent centroids, summed over the nodes.

Sums are rounded outward; prices sum to zero exactly (see `consensus.balanced`).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.problem import Domain
from ..core.rounding import sum_down as sum_down
from ..core.rounding import sum_up as sum_up
from ..core.symmetry import Symmetry
from .verify.digests import digests_of

FORMAT = "consentroid-certificate"
VERSION = 1


def relative_gap(lower: float, upper: float) -> float:
    """(upper − lower) / upper (`Clustering_DG`), 0 where upper is 0, 1 where nothing is known."""
    if not (math.isfinite(lower) and math.isfinite(upper)):
        return 1.0
    return 0.0 if upper <= 0.0 else max(upper - lower, 0.0) / upper


@dataclass(frozen=True)
class Leaf:
    """A part of the domain with the proof of its bound; `prices` is None where the order rule excludes all of it."""

    boxes: Array  # (2, K, D)
    prices: Array | None  # (N, K, D), sum to zero
    node_bounds: Array | None  # (N,)

    @property
    def bound(self) -> float:
        return math.inf if self.node_bounds is None else sum_down(self.node_bounds)


@dataclass
class Certificate:
    """Best bounds so far. `lower` never falls and `upper` never rises."""

    nodes: tuple[str, ...]
    domain: Domain
    n_clusters: int
    symmetry: Symmetry = field(default_factory=Symmetry)  # of the leaves
    leaves: list[Leaf] = field(default_factory=list)
    centroids: Array | None = None
    node_costs: Array | None = None
    lower: float = 0.0  # squared distances: always true
    upper: float = math.inf
    resolution: float = 0.0  # costs below this are rounding: floating point has no better centroids

    @property
    def gap(self) -> float:
        return 0.0 if self.upper - self.lower <= self.resolution else relative_gap(self.lower, self.upper)

    def offer_cost(self, centroids: Array, node_costs: Array) -> bool:
        """Take centroids as incumbent if they are better than the present ones."""
        cost = sum_up(node_costs)
        if not cost < self.upper:
            return False
        self.centroids, self.node_costs, self.upper = np.array(centroids), np.array(node_costs), cost
        return True

    def raise_lower(self, lower: float) -> None:
        """Note a better bound whose leaves follow with `offer_leaves`."""
        self.lower = max(self.lower, lower)

    def offer_leaves(self, leaves: list[Leaf], symmetry: Symmetry) -> bool:
        """Take a cover of the domain as proof if its bound is better than the present one."""
        lower = min((leaf.bound for leaf in leaves), default=-math.inf)
        if not symmetry.valid or math.isnan(lower) or lower < self.lower:
            return False
        self.leaves, self.symmetry, self.lower = leaves, symmetry, min(lower, self.upper)
        return True

    def as_dict(self) -> dict[str, Any]:
        """What `certificate.json` holds; its schema is described in docs/certificate.md."""
        domain = {"lower": self.domain.lower.tolist(), "upper": self.domain.upper.tolist()}
        references = self.symmetry.references
        incumbent = None
        if self.centroids is not None and self.node_costs is not None:
            incumbent = {"centroids": self.centroids.tolist(), "node_costs": self.node_costs.tolist()}
        document: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "nodes": list(self.nodes),
            "n_clusters": self.n_clusters,
            "n_features": self.domain.n_features,
            "domain": domain,
            "symmetry": {
                "rule": self.symmetry.rule,
                "references": None if references is None else references.tolist(),
            },
            "incumbent": incumbent,
            "upper_bound": self.upper if math.isfinite(self.upper) else None,
            "lower_bound": self.lower,
            "gap": self.gap,
            "leaves": [_leaf_as_dict(leaf) for leaf in self.leaves],
        }
        return document | {"digests": digests_of(document)}

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.as_dict(), allow_nan=False) + "\n")


def _leaf_as_dict(leaf: Leaf) -> dict[str, Any]:
    infeasible = leaf.node_bounds is None or bool(np.any(np.isposinf(leaf.node_bounds)))
    if leaf.prices is None or leaf.node_bounds is None or infeasible:
        return {"boxes": leaf.boxes.tolist(), "excluded_by": "order"}
    return {
        "boxes": leaf.boxes.tolist(),
        "prices": leaf.prices.tolist(),
        "node_bounds": leaf.node_bounds.tolist(),
        "bound": leaf.bound,
    }
