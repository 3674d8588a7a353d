"""Candidate centroids from sums alone: Lloyd's method on many candidates at once.

A step of all candidates is one exchange: the sites return counts and offsets of every cluster, the coordinator moves
the centroids. No row is ever drawn as a start; clusters are split along random directions instead (as in vector
quantisation); `rounding.py` has candidates from the master's columns.
"""

from __future__ import annotations

import numpy as np

from ..core.arrays import Array
from ..protocol.messages import Evaluate, Evaluated, PriceQuery
from .session import Session

N_CANDIDATES = 16
STEPS_PER_SPLIT = 3
MOST_STEPS = 60
SWAP_NUMBERS = 3e9  # rows times features times centroids that swaps look at, at most; some seconds


def evaluate(session: Session, candidates: Array, stride: int = 1) -> Evaluated:
    """Costs, counts and offsets of candidates (C, K, D); on all rows, the best becomes the incumbent if it is one."""
    candidates = np.clip(candidates, session.domain.lower, session.domain.upper)
    reply = session.totals.ask(PriceQuery(0, evaluate=Evaluate(candidates, stride)))
    session.looked += candidates.size * session.n_rows / stride
    assert reply.evaluated is not None
    if stride == 1 and candidates.shape[1] == session.n_clusters:
        session.offer(candidates, reply.evaluated)
    return reply.evaluated


def moved(session: Session, candidates: Array, evaluated: Evaluated, spread: Array) -> Array:
    """One Lloyd step; an empty cluster takes half of the one with the greatest spread."""
    counts = evaluated.counts[:, :, None]
    new = candidates + np.where(counts > 0, evaluated.offsets / np.where(counts > 0, counts, 1.0), 0.0)
    for c, k in zip(*np.nonzero(evaluated.counts <= 0), strict=True):
        largest = int(np.argmax(evaluated.spreads[c]))
        new[c, k] = new[c, largest] + spread @ session.rng.normal(size=new.shape[2]) * 0.1
    return np.asarray(np.clip(new, session.domain.lower, session.domain.upper))


def lloyd(session: Session, candidates: Array, spread: Array, most: int = MOST_STEPS, keep: int = 1) -> Array:
    """Lloyd steps on all candidates, first on some of the rows where they are many; `keep` are left at the end."""
    if session.stride > 1:
        candidates = _lloyd(session, candidates, spread, most, keep, session.stride)[:keep]
    return _lloyd(session, candidates, spread, most, keep, 1)


def _lloyd(session: Session, candidates: Array, spread: Array, most: int, keep: int, stride: int) -> Array:
    """Every few steps the worse half is left behind, down to `keep`; the best come first."""
    before = np.full(len(candidates), np.inf)
    for step in range(most):
        evaluated = evaluate(session, candidates, stride)
        costs = evaluated.costs
        if step % 5 == 4 and len(candidates) > keep:
            best = np.argsort(costs)[: max(keep, len(candidates) // 2)]
            going_on = best[costs[best] < before[best] * (1.0 - 1e-12)]
            if len(going_on) == 0:
                break
            chosen = going_on
            candidates, before, costs = candidates[chosen], before[chosen], costs[chosen]
            evaluated = Evaluated(costs, evaluated.counts[chosen], evaluated.offsets[chosen], evaluated.spreads[chosen])
        elif not np.any(costs < before * (1.0 - 1e-12)):
            break
        before = costs
        candidates = moved(session, candidates, evaluated, spread)
        session.check_time()
    return candidates[np.argsort(before, kind="stable")]


def split_starts(session: Session, mean: Array, spread: Array) -> Array:
    """Candidates (C, K, D): clusters with the greatest spread are split in two until there are K."""
    n_features = len(mean)
    candidates = np.tile(mean, (N_CANDIDATES, 1, 1))
    while candidates.shape[1] < session.n_clusters:
        evaluated = evaluate(session, candidates, session.stride)
        k = candidates.shape[1]
        more = min(k, session.n_clusters - k)
        new = []
        for c, centroids in enumerate(candidates):
            sizes = np.maximum(evaluated.counts[c], 1e-300)
            luck = session.rng.uniform(0.5, 1.5, size=k)
            chosen = np.argsort(-evaluated.spreads[c] * luck)[:more]
            radius = np.sqrt(evaluated.spreads[c, chosen] / sizes[chosen] / n_features)[:, None]
            direction = session.rng.normal(size=(more, n_features)) @ spread.T
            direction /= np.maximum(np.linalg.norm(direction, axis=1, keepdims=True), 1e-300)
            by = direction * radius * np.sqrt(n_features) * 0.7
            apart = centroids.copy()
            apart[chosen] -= by
            new.append(np.concatenate([apart, centroids[chosen] + by]))
        candidates = np.clip(np.array(new), session.domain.lower, session.domain.upper)
        for _ in range(STEPS_PER_SPLIT):
            candidates = moved(session, candidates, evaluate(session, candidates, session.stride), spread)
    evaluate(session, candidates[:1])  # whatever the clock says, a run ends with centroids and their cost
    session.check_time()
    return candidates


def swaps(session: Session, spread: Array, rounds: int) -> None:
    """Take a centroid that is missed least and put it where the spread is greatest, until that fails several times."""
    failed = 0
    most = session.looked + SWAP_NUMBERS  # by effort, so that runs can be repeated; the clock is for short limits
    while failed < rounds and session.looked < most and session.seconds < 0.25 * session.time_limit:
        if session.n_clusters < 2 or session.centroids is None:
            return
        before = session.upper
        now = evaluate(session, session.centroids[None])
        sizes, spreads = now.counts[0], now.spreads[0]
        apart = ((session.centroids[:, None] - session.centroids[None]) ** 2).sum(axis=2)
        np.fill_diagonal(apart, np.inf)
        loss = sizes * apart.min(axis=1)
        trials = []
        for _ in range(N_CANDIDATES):
            gone = int(np.argmin(loss * session.rng.uniform(0.3, 1.7, len(loss))))
            weighted = spreads * session.rng.uniform(0.3, 1.7, len(loss))
            weighted[gone] = -1.0
            split = int(np.argmax(weighted))
            radius = np.sqrt(spreads[split] / max(sizes[split], 1e-300))
            direction = spread @ session.rng.normal(size=spread.shape[1])
            by = direction / max(float(np.linalg.norm(direction)), 1e-300) * radius * 0.7
            trial = session.centroids.copy()
            trial[gone], trial[split] = trial[split] + by, trial[split] - by
            trials.append(trial)
        lloyd(session, np.array(trials), spread)
        failed = failed + 1 if session.upper >= before * (1.0 - 1e-9) else 0
