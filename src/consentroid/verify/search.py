"""Is min f(m) + ⟨p, m⟩ over the boxes really not below a claimed number? An independent search over assignments.

Fix which cluster each row belongs to, and the node problem falls apart into one-dimensional parabolas on intervals,

    Σ_k min_{lo_k ≤ m_k ≤ hi_k}  W_k ‖m_k‖² + ⟨p_k − 2 S_k, m_k⟩  +  Σ_j w_j ‖y_j‖²,   W_k = Σ w_j,  S_k = Σ w_j y_j.

Rows are assigned one after the other. With only some rows assigned the same formula, plus a *tail* (a number that the
remaining rows cost in any case), is a lower bound for all completions; where it reaches the claim, the completions need
no further look. If nothing is left, the claim holds. If a complete assignment stays below, its centroids refute it.

The order rule n_p · (m_k − m_l) ≥ 0 enters by weak duality: subtracting u_p n_p · (m_k − m_l) with any u_p ≥ 0 changes
prices and can only lower the minimum over obeying centroids. Good u are sought by coordinate ascent; bad luck there
costs time, never truth.

Many tasks (leaves, or parts of leaves) are searched at once, one array entry a partial assignment, so that plain numpy
is fast enough.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

PROVED, ATTAINED, OPEN = 0, 1, 2  # OPEN: neither, within the effort allowed
BLOCK = 4096  # partial assignments expanded at once: bounds memory and makes the search depth-first beyond it


@dataclass(frozen=True)
class Order:
    """The order rule as P pairs: Σ_kd coefficients[p, k, d] m[k, d] ≥ 0."""

    coefficients: Array  # (P, K, D)

    @classmethod
    def of(cls, references: Array | None, n_clusters: int, n_features: int) -> Order:
        if references is None:
            return cls(np.zeros((0, n_clusters, n_features)))
        rows = []
        for k in range(n_clusters):
            for other in range(k + 1, n_clusters):
                row = np.zeros((n_clusters, n_features))
                row[k], row[other] = references[k] - references[other], references[other] - references[k]
                rows.append(row)
        return cls(np.array(rows).reshape(-1, n_clusters, n_features))

    def slack(self, centroids: Array) -> Array:
        return np.einsum("pkd,...kd->...p", self.coefficients, centroids)

    def priced(self, multipliers: Array) -> Array:
        return np.einsum("...p,pkd->...kd", multipliers, self.coefficients)


@dataclass(frozen=True)
class Tasks:
    """B claims about one node. Row `order[b, t]` is assigned as t-th; the first `n_fixed[b]` have one cluster only."""

    price: Array  # (B, K, D)
    lower: Array  # (B, K, D)
    upper: Array  # (B, K, D)
    cutoff: Array  # (B,) the claim, less the tolerance
    allowed: NDArray[np.bool_]  # (B, J, K) clusters that a row can belong to
    order: Integers  # (B, J)
    n_fixed: Integers  # (B,)
    tail: Array  # (B, J + 1) what the rows order[b, t:] cost in any case
    interchangeable: bool = False  # clusters differ in name only: use the first empty one


@dataclass(frozen=True)
class Outcome:
    status: Integers  # (B,)
    value: Array  # (B,) where attained: at `centroids`
    centroids: Array  # (B, K, D)


@dataclass(frozen=True)
class _Block:
    """Partial assignments with the same number of rows assigned."""

    depth: int
    task: Integers  # (S,)
    weight: Array  # (S, K)
    total: Array  # (S, K, D)
    constant: Array  # (S,)
    multipliers: Array  # (S, P)

    def pick(self, chosen: Integers | NDArray[np.bool_]) -> _Block:
        return _Block(
            self.depth,
            self.task[chosen],
            self.weight[chosen],
            self.total[chosen],
            self.constant[chosen],
            self.multipliers[chosen],
        )


def parabolas(weight: Array, linear: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """min of W‖m‖² + ⟨q, m⟩ over boxes, for arrays (..., K) and (..., K, D): values (..., K) and minimisers."""
    w = weight[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        free = np.where(w > 0, linear / (-2.0 * w), np.where(linear >= 0, -np.inf, np.inf))
    m = np.minimum(np.maximum(free, lower), upper)
    return ((w * m + linear) * m).sum(axis=-1), m


def search(
    rows: Array, weights: Array, tasks: Tasks, rule: Order, effort: int, *, improve: bool = False,
    deadline: float = np.inf,
) -> Outcome:  # fmt: skip
    """Try to prove every task with at most `effort` partial assignments each.

    With `improve`, a complete assignment below the cutoff does not end the task but becomes the new cutoff: the search
    then ends with the minimum.
    """
    n_tasks, n_rows = len(tasks.price), len(rows)
    cutoff, spent = tasks.cutoff.copy(), np.zeros(n_tasks, np.int64)
    status = np.full(n_tasks, PROVED)
    value, centroids = np.full(n_tasks, np.inf), np.zeros_like(tasks.price)
    squares = weights * (rows**2).sum(axis=1)
    stack = [_refined(block, tasks, rule, 30)[0] for block in _start(rows, weights, squares, tasks, rule)]
    while stack:
        block = stack.pop()
        block = block.pick(status[block.task] != OPEN if improve else status[block.task] == PROVED)
        if len(block.task) == 0:
            continue
        if time.perf_counter() > deadline:
            for left in (*stack, block):
                status[left.task] = np.where(status[left.task] == PROVED, OPEN, status[left.task])
            break
        if block.depth == n_rows:
            _complete(block, tasks, rule, cutoff, status, value, centroids, improve)
            continue
        block, bound = _expand(block, rows, weights, squares, tasks, rule, cutoff)
        spent += np.bincount(block.task, minlength=n_tasks)
        status[(spent > effort) & (status == PROVED)] = OPEN
        if improve and np.any(spent > effort):
            status[spent > effort] = OPEN
        best_first = np.argsort(bound, kind="stable")
        pieces = [best_first[i : i + BLOCK] for i in range(0, len(best_first), BLOCK)]
        stack.extend(block.pick(piece) for piece in reversed(pieces))
    return Outcome(status, value, centroids)


def _start(rows: Array, weights: Array, squares: Array, tasks: Tasks, rule: Order) -> list[_Block]:
    """One state a task, its fixed rows assigned."""
    n_tasks = len(tasks.order)
    position = np.argsort(tasks.order, axis=1)  # (B, J): when a row is assigned
    fixed = position < tasks.n_fixed[:, None]
    member = tasks.allowed & fixed[:, :, None]  # (B, J, K), one cluster a fixed row
    weight = np.einsum("bjk,j->bk", member, weights)
    total = np.einsum("bjk,jd->bkd", member, weights[:, None] * rows)
    states = _Block(0, np.arange(n_tasks), weight, total, fixed @ squares, np.zeros((n_tasks, len(rule.coefficients))))
    blocks = []
    for depth in np.unique(tasks.n_fixed):
        part = states.pick(tasks.n_fixed == depth)
        blocks.append(_Block(int(depth), part.task, part.weight, part.total, part.constant, part.multipliers))
    return blocks


def _expand(
    block: _Block, rows: Array, weights: Array, squares: Array, tasks: Tasks, rule: Order, cutoff: Array
) -> tuple[_Block, Array]:
    """Assign one more row in every allowed way; keep what is still below the cutoff, with its bound."""
    b = block.task
    row = tasks.order[b, block.depth]
    y, w = rows[row], weights[row]
    lower, upper = tasks.lower[b], tasks.upper[b]
    linear = tasks.price[b] - 2.0 * block.total - rule.priced(block.multipliers)
    before, _ = parabolas(block.weight, linear, lower, upper)
    after, _ = parabolas(block.weight + w[:, None], linear - 2.0 * (w[:, None] * y)[:, None, :], lower, upper)
    constant = block.constant + squares[row]
    rest = tasks.tail[b, block.depth + 1]
    bound = (before.sum(axis=1) + constant + rest)[:, None] - before + after
    keep = (bound < cutoff[b][:, None]) & tasks.allowed[b, row]
    if tasks.interchangeable:
        empty = block.weight == 0
        keep &= ~empty | (np.cumsum(empty, axis=1) == 1)
    state, cluster = np.nonzero(keep)
    weight, total = block.weight[state], block.total[state]
    each = np.arange(len(state))
    weight[each, cluster] += w[state]
    total[each, cluster] += (w[:, None] * y)[state]
    children = _Block(block.depth + 1, b[state], weight, total, constant[state], block.multipliers[state])
    if len(rule.coefficients) == 0 or len(state) == 0:
        return children, bound[state, cluster]
    children, refined = _refined(children, tasks, rule, 2, cutoff)
    refined += tasks.tail[children.task, children.depth]
    below = refined < cutoff[children.task]
    return children.pick(below), refined[below]


def _refined(
    block: _Block, tasks: Tasks, rule: Order, sweeps: int, cutoff: Array | None = None
) -> tuple[_Block, Array]:
    """Raise the bounds (without tails) by coordinate ascent over the multipliers u ≥ 0 of the order rule."""
    b, u = block.task, block.multipliers.copy()
    lower, upper, constant = tasks.lower[b], tasks.upper[b], block.constant
    unpriced = tasks.price[b] - 2.0 * block.total
    values, m = parabolas(block.weight, unpriced - rule.priced(u), lower, upper)
    bound = values.sum(axis=1) + constant
    w = np.maximum(block.weight, 0.05 * block.weight.sum(axis=1, keepdims=True) + 1e-300)
    live = np.arange(len(b))
    for _ in range(sweeps):
        if cutoff is not None:
            live = live[bound[live] + tasks.tail[b[live], block.depth] < cutoff[b[live]]]
        if len(live) == 0:
            break
        for p, coefficient in enumerate(rule.coefficients):
            slack = (coefficient * m[live]).sum(axis=(1, 2))
            i = live[(slack < 0) | ((slack > 0) & (u[live, p] > 0))]
            if len(i) == 0:
                continue
            slack = (coefficient * m[i]).sum(axis=(1, 2))
            free = (m[i] > lower[i]) & (m[i] < upper[i])
            curvature = (coefficient**2 * free / (2.0 * w[i])[:, :, None]).sum(axis=(1, 2))
            whole = (coefficient**2 / (2.0 * w[i])[:, :, None]).sum(axis=(1, 2))
            step = -slack / np.maximum(np.maximum(curvature, 0.1 * whole), 1e-300)
            for scale in (1.0, 0.2):
                trial = u[i].copy()
                trial[:, p] = np.maximum(trial[:, p] + scale * step, 0.0)
                values, at = parabolas(block.weight[i], unpriced[i] - rule.priced(trial), lower[i], upper[i])
                reached = values.sum(axis=1) + constant[i]
                better = reached > bound[i]
                j = i[better]
                u[j], m[j], bound[j] = trial[better], at[better], reached[better]
                i, step = i[~better], step[~better]
                if len(i) == 0:
                    break
    return _Block(block.depth, b, block.weight, block.total, constant, u), bound


def _complete(
    block: _Block, tasks: Tasks, rule: Order, cutoff: Array, status: Integers, value: Array, centroids: Array,
    improve: bool,
) -> None:  # fmt: skip
    """All rows are assigned: the minimiser either attains less than claimed or shows what the rule still needs."""
    block, bound = _refined(block, tasks, rule, 60, cutoff)
    linear = tasks.price[block.task] - 2.0 * block.total - rule.priced(block.multipliers)
    m = parabolas(block.weight, linear, tasks.lower[block.task], tasks.upper[block.task])[1]
    obeys = np.all(rule.slack(m) >= 0.0, axis=1)
    attained = ((block.weight[:, :, None] * m + tasks.price[block.task] - 2.0 * block.total) * m).sum(axis=(1, 2))
    attained += block.constant
    for s in np.argsort(bound, kind="stable"):
        b = block.task[s]
        if bound[s] >= cutoff[b]:
            continue
        if obeys[s] and attained[s] < min(cutoff[b], value[b]):
            value[b], centroids[b], status[b] = attained[s], m[s], ATTAINED
            if improve:
                cutoff[b] = attained[s]
        elif not obeys[s] and status[b] == PROVED:
            status[b] = OPEN
