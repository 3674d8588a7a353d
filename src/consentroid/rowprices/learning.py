"""Many rows: learn prices on groups of neighbours, then let all rows follow.

While `session.learning`, the sites work on groups (`site/cloud.py`): their sums are nearly those of all rows, but only
guesses, and sites refuse to be searched. Carrying prices and columns over is one pass over all rows (`StartPrices` with
`learnt`) which leaves the master as it is; a few steps on all rows then see to the borders of the clusters.
"""

from __future__ import annotations

from ..protocol.messages import PriceQuery, StartPrices
from .bundle import Bundle


def learn(bundle: Bundle, goal: float, until: float) -> None:
    """Improve on groups as far as the goal asks, or the clock shows `until`; then go over to all rows."""
    session = bundle.session
    assert session.centroids is not None
    bundle.improve(goal, until)
    centroids = session.axes.forward(session.centroids)
    reply = session.totals.ask(PriceQuery(0, start=StartPrices(bundle.centre, centroids, bundle.centre)))
    session.learning = False
    assert reply.priced is not None
    bundle.go_on(reply.priced.total, reply.priced.column_prices)
