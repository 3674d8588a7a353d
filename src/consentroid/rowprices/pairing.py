"""Prices on pairs of rows: where a search in as many dimensions as there are features does not end.

Each site improves prices on pairs and triangles of its own rows (`site/pairs/`) and tells what they prove about these
alone; K clusters of all rows cost no less than K of each site's by themselves. With all rows at one site nothing is
lost by that, and as a rule what is left of the gap is hundredths of a per cent. Sites with many rows deal them into
anticlusters, parts that are alike, and add up what each proves.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..certificate.document import Certificate, PairsProof
from ..core.errors import NodeFailed
from ..core.result import relative_gap
from ..core.search import SHIFT
from ..protocol.messages import ImprovePairs, PriceQuery
from .session import Session

STEPS, MORE_STEPS, LEAST_STEPS, FEW_ROWS = 30, 90, 10, 3_000  # between two bounds, which take as long as some steps
SLOW, PATIENCE = 0.01, 8  # of what is missing: steps that close less, so many times, end it
MOST_ROWS = 8_000  # of one site; its square is how many pairs there may be
FEW_FEATURES = 5  # in as many dimensions a search comes to its end
STEPS_NEEDED, SECONDS, AT_LEAST = 300, 8e-9, 0.005  # of steps; for each pair of rows in a step, and a step: about
STEPS_AT_LEAST = 60  # that leave some per cent, where there is no time for more
MANY = 20  # clusters more that make a step twice as long
SPARE = 1.5  # times what the steps before took, and their proof
TOGETHER = 4_000  # rows of a site that are not dealt, if there is time
MOST, FEWEST, FOR_EACH = 2_000, 480, 60  # rows of an anticluster: with more, steps come to rest late; for each cluster
SHARE = 0.6  # of the time limit: what steps on anticlusters may take


def seconds_needed(session: Session) -> float:
    """About; infinite where rows are too many, or features so few that a search does better."""
    few = session.domain.n_features <= FEW_FEATURES or session.n_clusters < 2
    if few or not session.site_rows:
        return np.inf
    most = rows_together(session)
    if any(n * min(n, most) > MOST_ROWS**2 for n in session.site_rows):
        return np.inf
    steps = STEPS_NEEDED if max(session.site_rows) <= most else STEPS_AT_LEAST
    return steps * sum(_step(session, n, most) for n in session.site_rows)


def rows_together(session: Session) -> int:
    """Rows of an anticluster, at most: as many as the time limit allows, since few lose more (`site/pairs/`). All rows
    of every site, where these are not too many."""
    at_once = sum(n**2 for n in session.site_rows) * STEPS_NEEDED * SECONDS * _dearer(session)
    if max(session.site_rows) <= TOGETHER and at_once <= SHARE * session.time_limit:
        return max(session.site_rows)
    most = SHARE * session.time_limit / (STEPS_NEEDED * SECONDS * _dearer(session) * sum(session.site_rows))
    return int(np.clip(most, max(FEWEST, FOR_EACH * session.n_clusters), MOST))


def _step(session: Session, n: int, most: int) -> float:
    """Seconds of one step at a site with so many rows."""
    return SECONDS * _dearer(session) * n * min(n, most) + AT_LEAST


def _dearer(session: Session) -> float:
    return 1.0 + session.n_clusters / MANY


def pairs_reach(session: Session) -> float:
    """About the best that can come of it: what the parts cost by themselves, of which pairs have prices."""
    reply = session.totals.ask(PriceQuery(0, pairs=_request(session)))
    assert reply.pairs is not None
    return min(reply.pairs.reach, session.upper)


def improve_pairs(session: Session) -> float:
    """Steps until the gap is closed, nothing more comes of them, or time is up; the bound. The search before them keeps
    the time that its certificate takes only if it has come closer than they can."""
    session.enter("pairs")
    best, waited, steps, took, asked = session.pairs_bound, 0, STEPS, 0.0, _request(session)
    if session.missing > session.upper - pairs_reach(session):
        session.reserve = 0.0
    while waited < PATIENCE and SPARE * took < session.left:
        began = session.clock
        reply = session.totals.ask(PriceQuery(0, pairs=replace(asked, steps=steps)))
        each = (session.clock - began) / steps
        steps = STEPS if min(max(session.site_rows), asked.most_rows) <= FEW_ROWS else MORE_STEPS
        steps = max(int(min(steps, session.left / max(SPARE * each, 1e-9))), LEAST_STEPS)
        took = steps * each
        assert reply.pairs is not None
        bound = reply.pairs.bound
        waited = 0 if bound > best + SLOW * (session.upper - best) else waited + 1
        session.pairs_bound = best = max(best, bound)
        if session.lower < best <= session.upper:
            session.lower = best
        session.note()
        if relative_gap(best, session.upper) <= session.gap or best == 0.0:
            break
    session.pairs_rest = waited >= PATIENCE
    return best


def _request(session: Session) -> ImprovePairs:
    return ImprovePairs(session.n_clusters, 0, False, session.centroids, rows_together(session))


def certify_pairs(session: Session, sites: tuple[str, ...], features: tuple[str, ...]) -> Certificate:
    """The certificate of the best pair prices that sites have come to."""
    session.enter("certificate")
    replies = session.totals.ask_each(PriceQuery(0, pairs=replace(_request(session), keep=True)))
    told = [reply.pairs for reply in replies if reply.pairs]
    bounds = np.array([one.bound for one in told])
    lower = max(float(bounds.sum() - len(bounds) * 2.0**-52 * bounds.sum()), 0.0)
    if not lower <= session.upper:  # sums that contradict each other: nothing is believed
        raise NodeFailed("all", f"pair prices prove a bound of {lower:.6g} above the cost {session.upper:.6g}")
    assert session.centroids is not None
    n_features = session.domain.n_features
    domain = np.stack([session.domain.lower, session.domain.upper])
    return Certificate(
        n_clusters=session.n_clusters,
        sites=sites,
        features=features,
        domain=domain,
        origin=np.zeros(n_features),
        basis=np.eye(n_features),
        scale=1.0,
        root=domain,
        shift=SHIFT,
        centroids=session.centroids,
        site_costs=session.site_costs,
        scatter_errors=None,
        total_scatter_error=0.0,
        leaves=(),
        price_files={name: one.digest for name, one in zip(sites, told, strict=False)},
        lower=lower,
        upper=session.upper,
        gap=min(relative_gap(lower, session.upper), 1.0),
        pairs=PairsProof(lower, bounds if len(told) == len(sites) else None),
    )
