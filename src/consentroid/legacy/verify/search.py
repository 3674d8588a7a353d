"""Is min f(m) + ⟨p, m⟩ over the boxes really not below a claimed number? An independent search over assignments.

Fix which cluster each row belongs to, and the node problem falls apart into one-dimensional parabolas on intervals,

    Σ_k min_{lo_k ≤ m_k ≤ hi_k}  W_k ‖m_k‖² + ⟨p_k − 2 S_k, m_k⟩  +  Σ_j w_j ‖y_j‖²,   W_k = Σ w_j,  S_k = Σ w_j y_j.

Rows are assigned one after the other. With only some rows assigned the same formula, plus a *tail* (a number that the
remaining rows cost in any case), is a lower bound for all completions; where it reaches the claim, the completions need
no further look. If nothing is left, the claim holds. If a complete assignment stays below, its centroids refute it.

The order rule enters by weak duality (`order.py`): its multipliers shift the prices, and a bound holds for any of them.

Many tasks (leaves, or parts of leaves) are searched at once, one array entry a partial assignment, so that plain numpy
is fast enough.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...core.arrays import Array
from .order import Order, ascend, parabolas, polish

Integers = NDArray[np.int64]

PROVED, ATTAINED, OPEN = 0, 1, 2  # OPEN: neither, within the effort allowed
BLOCK = 4096  # partial assignments expanded at once: bounds memory and makes the search depth-first beyond it


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
    value: Array  # (B,) where attained
    centroids: Array  # (B, K, D) there; under the order rule they may violate it by rounding


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
    stack = _start(rows, weights, squares, tasks, rule, cutoff)
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


def _start(
    rows: Array, weights: Array, squares: Array, tasks: Tasks, rule: Order, cutoff: Array
) -> list[_Block]:
    """One state a task, its fixed rows assigned; tasks that need no search are left out."""
    n_tasks = len(tasks.order)
    position = np.argsort(tasks.order, axis=1)  # (B, J): when a row is assigned
    fixed = position < tasks.n_fixed[:, None]
    member = tasks.allowed & fixed[:, :, None]  # (B, J, K), one cluster a fixed row
    weight = np.einsum("bjk,j->bk", member, weights)
    total = np.einsum("bjk,jd->bkd", member, weights[:, None] * rows)
    states = _Block(0, np.arange(n_tasks), weight, total, fixed @ squares, np.zeros((n_tasks, rule.n_pairs)))
    blocks = []
    for depth in np.unique(tasks.n_fixed):
        part = states.pick(tasks.n_fixed == depth)
        blocks.append(_below(replace(part, depth=int(depth)), tasks, rule, cutoff, polish)[0])
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
    if rule.n_pairs == 0 or len(state) == 0:
        return children, bound[state, cluster]
    return _below(children, tasks, rule, cutoff, ascend)


def _below(
    block: _Block, tasks: Tasks, rule: Order, cutoff: Array, method: Callable[..., tuple[Array, Array, Array]]
) -> tuple[_Block, Array]:
    """The states whose bound stays below the cutoff even with better multipliers, and their bounds."""
    b = block.task
    rest = block.constant + tasks.tail[b, block.depth]
    linear = tasks.price[b] - 2.0 * block.total
    u, bound, _ = method(
        block.weight, linear, tasks.lower[b], tasks.upper[b], rule, block.multipliers, cutoff[b] - rest
    )
    below = bound + rest < cutoff[b]
    return replace(block, multipliers=u).pick(below), (bound + rest)[below]


def _complete(
    block: _Block, tasks: Tasks, rule: Order, cutoff: Array, status: Integers, value: Array, centroids: Array,
    improve: bool,
) -> None:  # fmt: skip
    """All rows are assigned: the minimiser attains less than claimed, or the rule lifts the bound to the claim."""
    b = block.task
    linear, lower, upper = tasks.price[b] - 2.0 * block.total, tasks.lower[b], tasks.upper[b]
    enough = cutoff[b] - block.constant
    _, bound, m = polish(block.weight, linear, lower, upper, rule, block.multipliers, enough)
    bound += block.constant
    for s in np.argsort(bound, kind="stable"):
        i = b[s]
        if bound[s] < min(cutoff[i], value[i]):
            value[i], centroids[i], status[i] = bound[s], m[s], ATTAINED
            if improve:
                cutoff[i] = bound[s]
