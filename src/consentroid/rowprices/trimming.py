"""Trimmed Lloyd from many points at once: m ← mean {j : |y_j − m|² < λ_j}, by sums over rows alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array
from ..protocol.messages import PriceQuery, PriceReply, Trim
from .cells import Node
from .session import Session

TRIM_STEPS = 12
NEW_COLUMNS = 15  # and one for each cluster, if there are a hundred rows for it
PATIENT, GOING_ON = 40, 10  # clusters that are many, and points that go on for each of them


def trimmed_lloyd(
    session: Session, node: Node, slot: int, points: Array, cells: NDArray[np.int64], reply: PriceReply | None,
    stride: int, most: int = TRIM_STEPS,
) -> tuple[Array, Array, NDArray[np.int64]]:  # fmt: skip
    """Points, values and cells after some steps; `reply` has the first step's answer, if it was asked already."""
    values = np.full(len(points), np.inf)
    going_on = 4 * NEW_COLUMNS + (GOING_ON if session.n_clusters >= PATIENT else 1) * session.n_clusters
    for step in range(most):
        session.check_time()
        if step > 0 or reply is None:
            reply = session.totals.ask(PriceQuery(0, trim=Trim(slot, points, stride)))
        trimmed = reply.trimmed
        assert trimmed is not None
        better = trimmed.values < values - 1e-12 * np.abs(trimmed.values)
        values = np.minimum(values, trimmed.values)
        if not better.any():
            break
        moving = better & (trimmed.weights > 0)
        shifted = points + trimmed.offsets / np.where(trimmed.weights > 0, trimmed.weights, 1.0)[:, None]
        points = np.where(moving[:, None], node.clipped(shifted, cells), points)
        if step % 3 == 2:  # those that came to the same place go on as one, the hopeless not at all
            chosen = distinct(node, points, values, cells, going_on)
            points, values, cells = points[chosen], values[chosen], cells[chosen]
    if stride > 1:
        chosen = distinct(node, points, values, cells, 2 * NEW_COLUMNS + session.n_clusters)
        points, values, cells = points[chosen], values[chosen], cells[chosen]
    return points, values, cells


def distinct(node: Node, points: Array, values: Array, cells: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """The best points of each cell, one for each place."""
    order = np.argsort(values, kind="stable")
    keys = list(map(tuple, np.round(points, 9).tolist()))
    seen: set[tuple[float, ...]] = set()
    per_cell = np.zeros(len(node.cells), dtype=int)
    share = max(most // max(len(node.cells), 1), 4)
    chosen = []
    for i in order:
        if values[i] < 0.0 and keys[i] not in seen and per_cell[cells[i]] < share:
            seen.add(keys[i])
            per_cell[cells[i]] += 1
            chosen.append(i)
    return np.array(chosen, dtype=np.int64)
