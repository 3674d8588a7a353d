"""Candidate centroids from what the nodes reply anyway.

`average` is the paper's heuristic (`Avg_Centroids`): it shows the gap of the paper's loop. `lloyd` is for use: several
starts from the nodes' own centroids (k-means over the N·K centroids, as k-FED does), each improved by exact Lloyd steps
over all nodes, because an evaluation returns counts and offsets beside the cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..core.arrays import Array, nearest, squared_distances
from ..core.symmetry import align, canonical
from ..protocol.messages import Reply

Heuristic = Literal["average", "lloyd"]

MAX_STARTS = 8


@dataclass(frozen=True)
class Evaluation:
    """What all nodes together say about C candidates."""

    candidates: Array  # (C, K, D)
    node_costs: Array  # (N, C)
    counts: Array  # (C, K)
    offsets: Array  # (C, K, D) Σ w (x − m_k) over the rows of cluster k

    @classmethod
    def of(cls, candidates: Array, replies: list[Reply]) -> Evaluation:
        parts = [reply.evaluated for reply in replies if reply.evaluated is not None]
        return cls(
            candidates,
            np.array([part.costs for part in parts]),
            np.sum([part.counts for part in parts], axis=0),
            np.sum([part.offsets for part in parts], axis=0),
        )

    @property
    def costs(self) -> Array:
        return np.asarray(self.node_costs.sum(axis=0))


def average(centroids: Array) -> Array:
    """`Avg_Centroids`: (N, K, D) → one candidate (1, K, D)."""
    return np.asarray(centroids.mean(axis=0, keepdims=True))


def starts(centroids: Array, seed: int, n_starts: int = MAX_STARTS) -> Array:
    """Candidates (C, K, D) from the nodes' centroids (N, K, D): each node's own, and k-means++ over all of them."""
    n_nodes, n_clusters, n_features = centroids.shape
    anchors = centroids.reshape(-1, n_features)
    random = np.random.default_rng(seed)
    found = [np.mean([align(c, centroids[0]) for c in centroids], axis=0)]
    found.extend(centroids[:: max(1, n_nodes // (n_starts // 2))][: n_starts // 2])
    while len(found) < n_starts:
        found.append(_lloyd_on(anchors, _plus_plus(anchors, n_clusters, random)))
    return _distinct(np.array(found))


def lloyd(evaluation: Evaluation, anchors: Array) -> Array:
    """One exact Lloyd step of every candidate; those that no longer move are left out.

    An empty cluster is moved to the anchor (some node's centroid) that is farthest from the other centroids.
    """
    moved = []
    for old, counts, offsets in zip(evaluation.candidates, evaluation.counts, evaluation.offsets, strict=True):
        new = old + np.where(counts[:, None] > 0, offsets / np.maximum(counts, 1e-300)[:, None], 0.0)
        for k in np.nonzero(counts <= 0)[0]:
            new[k] = anchors[_farthest(anchors, np.delete(new, k, axis=0))]
        if np.max(np.abs(new - old)) > 1e-12 * np.max(np.abs(new), initial=1e-300):
            moved.append(new)
    return _distinct(np.array(moved)) if moved else np.empty((0, *evaluation.candidates.shape[1:]))


def _distinct(candidates: Array) -> Array:
    """Drop candidates that are relabellings of earlier ones, to nine digits."""
    scale = np.max(np.abs(candidates), initial=1e-300)
    kept: dict[bytes, Array] = {}
    for centroids in candidates:
        key = (np.round(canonical(centroids) / scale, 9) + 0.0).tobytes()
        kept.setdefault(key, centroids)
    return np.array(list(kept.values()))


def _farthest(anchors: Array, centroids: Array) -> int:
    if len(centroids) == 0:
        return 0
    return int(squared_distances(anchors, centroids).min(axis=1).argmax())


def _plus_plus(points: Array, n_clusters: int, random: np.random.Generator) -> Array:
    """k-means++: each next centroid is drawn with probability proportional to the squared distance to those chosen."""
    chosen = points[[random.integers(len(points))]]
    while len(chosen) < n_clusters:
        squared = squared_distances(points, chosen).min(axis=1)
        total = squared.sum()
        index = random.choice(len(points), p=squared / total) if total > 0 else random.integers(len(points))
        chosen = np.vstack([chosen, points[index]])
    return chosen


def _lloyd_on(points: Array, centroids: Array, steps: int = 20) -> Array:
    for _ in range(steps):
        labels = nearest(points, centroids)
        new = np.array(
            [points[labels == k].mean(axis=0) if np.any(labels == k) else c for k, c in enumerate(centroids)]
        )
        if np.array_equal(new, centroids):
            break
        centroids = new
    return centroids
