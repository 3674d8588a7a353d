"""Scikit-learn's K-means on the rows of one place: the start of baselines and of splits, never of a proof."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from ..core.arrays import Array


def local_kmeans(points: Array, weights: Array, n_clusters: int, seed: int) -> Array:
    """Centroids of the best of ten starts, as many as there are distinct rows, at most `n_clusters`."""
    kept, mass = points[weights > 0], weights[weights > 0]
    k = min(n_clusters, len(np.unique(kept, axis=0)))
    # One thread: the tables are small, and threads that wait for each other on a busy machine cost a hundredfold.
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)  # equal rows: fewer clusters than asked, which is true
        model = KMeans(k, n_init=10, random_state=seed).fit(kept, None, mass)
    return np.asarray(model.cluster_centers_)
