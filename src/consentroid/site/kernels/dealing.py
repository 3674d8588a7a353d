"""Exchanges between anticlusters (`site/pairs/anticlusters.py`)."""

from __future__ import annotations

from ...core.compile import entry


@entry
def exchange(offsets, order, partners, dealt, sums):
    """Each row of `order` in turn changes its anticluster with the one `partners` places further on, where that brings
    the anticlusters' `sums` of weighted offsets nearer to zero."""
    n, n_features = len(order), offsets.shape[1]
    for at in range(n):
        other = at + partners[at]
        if other >= n:
            continue
        i, j = order[at], order[other]
        a, b = dealt[i], dealt[j]
        if a == b:
            continue
        change = 0.0
        for d in range(n_features):
            by = offsets[j, d] - offsets[i, d]
            change += by * (sums[a, d] - sums[b, d] + by)
        if change < 0.0:
            for d in range(n_features):
                by = offsets[j, d] - offsets[i, d]
                sums[a, d] += by
                sums[b, d] -= by
            dealt[i], dealt[j] = b, a
