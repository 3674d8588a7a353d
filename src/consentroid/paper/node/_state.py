"""Places in the arrays that the kernels share: one name, one index, whatever search uses it.

Kernels keep their state in plain arrays, so that a search can stop and go on. `numbers` and `counters` belong to the
three searches: `Stack` (assignments), `BoxPool` (boxes), `SearchPath` (the nearest rule); a place that a search does
not need stays unused.
"""

from __future__ import annotations

from ...core.compile import inlined

# rules of symmetry that the kernels know
NONE, ORDER = 0, 1

# how a problem ended
UNFINISHED, OPTIMAL, INFEASIBLE = 0, 1, 2

# numbers of every search: value and cost of the incumbent, bound at which a node is closed, least bound of closed nodes
BEST, BEST_COST, THRESHOLD, PRUNED = 0, 1, 2, 3
# further numbers of a pool: least bound without room, work on incumbents, work in all, rounding margin
DROPPED, TRIED, WORK, MARGIN = 4, 5, 6, 7

# counters of a depth-first search, and of a pool; both have OPEN
DEPTH, NODES, STATE = 0, 1, 2
USED, EXAMINED, LAST_TRY = 0, 1, 2
OPEN = 3
ON_FREE_LIST = 4
RUNNING, FINISHED = 1, 2  # values of counters[STATE]

# effort of one look at a box: work done, what the chords lost
SPENT, LOST = 0, 1

# rows of `magnitudes` (4 + 2K, D), see `price_margin`
ABSOLUTE_SUM, WEIGHT_SUM, FARTHEST = 0, 1, 2  # Σ w |y|, Σ w, max |y|


@inlined
def nearest_side(k: int) -> int:
    """Row of `magnitudes`: distance of 0 to the box of cluster k."""
    return 3 + k


@inlined
def farthest_side(n_clusters: int, k: int) -> int:
    """Row of `magnitudes`: max |m| in the box of cluster k."""
    return 3 + n_clusters + k


@inlined
def least_weight_row(n_clusters: int) -> int:
    """Row of `magnitudes` that begins with the least weight."""
    return 3 + 2 * n_clusters
