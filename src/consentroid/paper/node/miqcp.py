"""The node problem as a mixed-integer quadratically constrained programme, stated once for every solver of such.

    min   Σ_jk w_j d_jk + Σ_k ⟨price_k, m_k⟩                                   (`Individual_Clustering_Problem`)
    s.t.  Σ_k a_jk = 1,   a_jk ∈ {0, 1}
          d_jk ≥ ‖y_j − m_k‖² − M_jk (1 − a_jk),   0 ≤ d_jk ≤ M_jk
          boxes[0, k] ≤ m_k ≤ boxes[1, k],   symmetry rule

`big_M` of the paper is one number per row, over the domain; M_jk = max over box k of ‖y_j − m‖² is valid too and never
larger. `Clustering_MILP_Central` is the same programme with the rows of all nodes and no price.

`state` writes the programme in shifted and scaled coordinates m = centre + scale · m̂ with rows and boxes inside
[−1, 1]^D (scale is a power of two) and the largest weight at 1: the absolute tolerances of a solver then mean the same
for all data.

Why the corrected bound is true. A solver may (a) accept points that violate a constraint by its tolerance ε, which only
lowers its bound; (b) lose a feasible point by tightening a constraint by up to ε in presolve, cuts or propagation;
(c) overestimate a linear relaxation by its dual tolerance δ times the width of each variable; (d) stop a convex
subproblem at relative accuracy η. Against (b), boxes, rules and M_jk are handed over relaxed by 2ε, so that every true
point stays feasible with room to spare; only the rows that carry the objective are left, and raising the assigned
d_jk by ε repairs them at a cost of ε Σ w_j. Hence

    margin = ε Σ_j w_j + δ Σ widths + η (Σ_j w_j d_j + Σ |⟨price, m̂⟩|) + rounding of the coordinates

is subtracted from the reported dual bound (`Programme.margin`). Bounds of MIQCP solvers are therefore as good as their
tolerances, never better; `ExactSolver` rounds outward instead.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...core.arrays import Array, nearest, squared_distances
from .base import Budget, NodeProblem, NodeSolution, Status
from .polish import polished, some_centroids

Terms = tuple[tuple[int, float], ...]  # variable, coefficient
Products = tuple[tuple[int, int, float], ...]  # variable, variable, coefficient

FEASIBILITY = 1e-7  # ε: asked of every solver, for constraints and integrality
DUAL_FEASIBILITY = 1e-9  # δ
CONVERGENCE = 1e-8  # η
LEAST_GAP = 1e-6  # a relative gap below the tolerances would only cost time
_UNIT = 2.0**-52


@dataclass(frozen=True)
class Row:
    """Σ products + Σ linear ≤ upper, or = upper."""

    linear: Terms
    upper: float
    equality: bool = False
    products: Products = ()


@dataclass(frozen=True)
class Programme:
    """Variables: centroids (K·D), then assignments a_jk (J·K), then squared distances d_jk (J·K)."""

    lower: Array
    upper: Array
    binary: NDArray[np.bool_]
    objective: Array
    rows: tuple[Row, ...]
    # back to the coordinates and units of the problem
    shape: tuple[int, int]  # (K, D)
    centre: Array
    scale: float
    unit: float  # one unit of the objective
    constant: float  # ⟨price, centre⟩
    # what the margin is made of, in units of the objective
    weight: float  # Σ ω_j
    rounding: float

    def centroids(self, point: Array) -> Array:
        k, d = self.shape
        return np.asarray(self.centre + self.scale * np.asarray(point)[: k * d].reshape(k, d))

    def in_units(self, objective: float) -> float:
        """An objective of the model in units of the problem."""
        return self.constant + self.unit * objective

    def margin(self, magnitude: float) -> float:
        """What to subtract from a dual bound, in units of the problem; `magnitude` as under η above."""
        widths = float(np.sum(self.upper - self.lower))
        tolerance = FEASIBILITY * self.weight + DUAL_FEASIBILITY * widths
        return self.unit * (tolerance + self.rounding) + CONVERGENCE * magnitude + 64 * _UNIT * abs(self.constant)

    def start(self, problem: NodeProblem, centroids: Array) -> Array:
        """Values of all variables at given centroids."""
        m = ((centroids - self.centre) / self.scale).reshape(-1)
        points = (problem.points[problem.weights > 0] - self.centre) / self.scale
        squared = squared_distances(points, m.reshape(self.shape))
        assigned = np.zeros_like(squared)
        assigned[np.arange(len(squared)), squared.argmin(axis=1)] = 1.0
        return np.concatenate([m, assigned.reshape(-1), (squared * assigned).reshape(-1)])


@dataclass(frozen=True)
class SolverOutcome:
    """What a solver reports, in units of the model."""

    bound: float
    point: Array | None
    status: Status


@dataclass(frozen=True)
class SolverLimits:
    """A `Budget` in the words of a MIQCP solver."""

    seconds: float
    gap: float
    search_nodes: int


# called with the solver's dual bound or with a new feasible point, whenever either changes
Record = Callable[[float | None, Array | None], None]
Optimise = Callable[[Programme, SolverLimits, Array | None, Record | None], SolverOutcome]


def state(problem: NodeProblem) -> Programme:
    """The programme above, relaxed by 2ε where a true point could otherwise be lost."""
    keep = problem.weights > 0
    points, weights = problem.points[keep], problem.weights[keep]
    k, d = problem.price.shape
    everything = np.concatenate([points, *problem.boxes])
    low, high = everything.min(axis=0), everything.max(axis=0)
    centre = 0.5 * (low + high)
    extent = float(np.max(high - centre, initial=0.0))
    scale = math.ldexp(1.0, math.frexp(extent)[1]) if extent > 0 else 1.0
    heaviest = float(weights.max(initial=0.0)) or 1.0
    unit = heaviest * scale**2

    y = (points - centre) / scale
    slack = 2 * FEASIBILITY
    lower, upper = (problem.boxes[0] - centre) / scale - slack, (problem.boxes[1] - centre) / scale + slack
    farthest = np.maximum(np.abs(y[:, None, :] - lower), np.abs(y[:, None, :] - upper))
    big_m = (farthest**2).sum(axis=2) + slack
    n_pairs = len(y) * k
    objective = np.concatenate(
        [(problem.price * (scale / unit)).reshape(-1), np.zeros(n_pairs), np.repeat(weights / heaviest, k)]
    )
    largest = float(np.abs(everything).max(initial=0.0))
    shift = 8 * _UNIT * (largest / scale + 1)  # most a coordinate can move by rounding
    return Programme(
        lower=np.concatenate([lower.reshape(-1), np.zeros(2 * n_pairs)]),
        upper=np.concatenate([upper.reshape(-1), np.ones(n_pairs), big_m.reshape(-1)]),
        binary=np.repeat([False, True, False], [k * d, n_pairs, n_pairs]),
        objective=objective,
        rows=(*_assignment(len(y), k, d), *_distance(y, big_m, k, d), *_symmetry(problem, centre, scale)),
        shape=(k, d),
        centre=centre,
        scale=scale,
        unit=unit,
        constant=float(np.sum(problem.price * centre)),
        weight=float(weights.sum() / heaviest),
        rounding=shift * (4 * d * float(weights.sum() / heaviest) + float(np.abs(objective[: k * d]).sum())),
    )


def _assignment(n_rows: int, k: int, d: int) -> Iterator[Row]:
    for j in range(n_rows):
        first = k * d + j * k
        yield Row(tuple((first + c, 1.0) for c in range(k)), 1.0, equality=True)


def _distance(y: Array, big_m: Array, k: int, d: int) -> Iterator[Row]:
    """‖m_c‖² − 2⟨y_j, m_c⟩ + M a − d ≤ M − ‖y_j‖²."""
    n_pairs = len(y) * k
    for j, row in enumerate(y):
        for c in range(k):
            m, pair = range(c * d, (c + 1) * d), k * d + j * k + c
            linear = [(i, -2.0 * float(x)) for i, x in zip(m, row)]
            linear += [(pair, float(big_m[j, c])), (pair + n_pairs, -1.0)]
            yield Row(tuple(linear), float(big_m[j, c] - row @ row), products=tuple((i, i, 1.0) for i in m))


def _symmetry(problem: NodeProblem, centre: Array, scale: float) -> Iterator[Row]:
    references = problem.symmetry.references
    if references is None:
        return
    k, d = references.shape
    slack = 2 * FEASIBILITY
    if problem.symmetry.rule == "order":
        normals = problem.symmetry.normals(k)
        for a in range(k):
            for b in range(a + 1, k):
                length = float(np.linalg.norm(normals[a, b]))
                if length > 0:
                    n = normals[a, b] / length
                    forward = [(b * d + i, float(x)) for i, x in enumerate(n)]
                    yield Row((*forward, *((a * d + i, -float(x)) for i, x in enumerate(n))), slack)
        return
    for a, r in enumerate((references - centre) / scale):  # ‖m_a − r_a‖² ≤ ‖m_b − r_a‖², not convex
        for b in range(k):
            if b != a:
                products = [(a * d + i, a * d + i, 1.0) for i in range(d)]
                products += [(b * d + i, b * d + i, -1.0) for i in range(d)]
                linear = [(a * d + i, -2.0 * float(x)) for i, x in enumerate(r)]
                linear += [(b * d + i, 2.0 * float(x)) for i, x in enumerate(r)]
                yield Row(tuple(linear), slack, products=tuple(products))


def solve_with(optimise: Optimise, problem: NodeProblem, budget: Budget, start: Array | None) -> NodeSolution:
    """State, optimise, and report: the value recomputed from the rows, the bound less its margin."""
    began = time.perf_counter()
    model = state(problem)
    point = None if start is None else model.start(problem, start)
    remaining = max(budget.seconds - (time.perf_counter() - began), 0.0)
    outcome = optimise(model, SolverLimits(remaining, max(budget.gap, LEAST_GAP), budget.search_nodes), point, None)
    return report(problem, model, outcome, time.perf_counter() - began)


def report(problem: NodeProblem, model: Programme, outcome: SolverOutcome, seconds: float) -> NodeSolution:
    """The outcome in units of the problem, with the bound made safe."""
    if outcome.status is Status.INFEASIBLE:
        middle = problem.boxes.mean(axis=0)
        return NodeSolution(math.inf, math.inf, middle, Status.INFEASIBLE, seconds)
    found = None if outcome.point is None else polished(problem, model.centroids(outcome.point))
    found = some_centroids(problem) if found is None else found
    centroids, attained = (problem.boxes.mean(axis=0), False) if found is None else (found, True)
    value = problem.value(centroids) if attained else math.inf
    shifted = centroids - model.centre
    magnitude = abs(value - float(np.sum(problem.price * centroids))) + float(np.abs(problem.price * shifted).sum())
    proven = model.in_units(outcome.bound) - model.margin(magnitude if attained else abs(outcome.bound) * model.unit)
    bound = min(max(proven, _bound_without_search(problem)), value)
    return NodeSolution(bound, value, centroids, outcome.status, seconds, _labels(problem, centroids))


def _bound_without_search(problem: NodeProblem) -> float:
    """No row costs less than nothing: the least price over the boxes, rounded down."""
    least = np.minimum(problem.price * problem.boxes[0], problem.price * problem.boxes[1])
    return float(least.sum()) - _UNIT * (least.size + 1) * float(np.abs(least).sum())


def _labels(problem: NodeProblem, centroids: Array) -> NDArray[np.int64]:
    return np.asarray(nearest(problem.points, centroids), dtype=np.int64)
