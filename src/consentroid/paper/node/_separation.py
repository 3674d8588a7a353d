"""Which assignments are worth searching in one or two features: those whose clusters lines can separate.

Rows go to their nearest centroid, so for rows y in k and z in l of an optimal assignment (y − z)·(m_k − m_l) ≥ 0, and
the order rule adds (r_k − r_l)·(m_k − m_l) ≥ 0: all these directions lie in half a turn. (Should two centroids be one,
the first of them may take all rows of both.) A pair of clusters keeps its rightmost and leftmost direction, in one
feature its sign; an assignment whose directions go all round holds no optimum that another does not hold as well.
`docs/numerics.md`, section 3, says why rounding cannot exclude a solution.
"""

from __future__ import annotations

from ...core.compile import bare, kernel

MOST_FEATURES = 2
SURE = 1e-14  # relative size from which a cross product's sign is certain


@bare
def n_cones(n_clusters, n_features):
    """One a pair of clusters; none where there are too many features."""
    return n_clusters * (n_clusters - 1) // 2 if n_features <= MOST_FEATURES else 0


@bare
def cone_of(k, l, n_clusters):
    """Place of the pair k < l."""
    return k * (2 * n_clusters - k - 1) // 2 + l - k - 1


@bare
def _widen(cone, x, y):
    """Take the direction (x, y) into a cone kept by its rightmost and leftmost one; False if they go all round."""
    if cone[0] == 0.0 and cone[1] == 0.0:
        cone[0], cone[1], cone[2], cone[3] = x, y, x, y
        return True
    of_right, of_left = cone[0] * y - cone[1] * x, cone[2] * y - cone[3] * x  # positive: to the left of it
    size = SURE * (abs(x) + abs(y))
    clear_right, clear_left = size * (abs(cone[0]) + abs(cone[1])), size * (abs(cone[2]) + abs(cone[3]))
    if of_left > clear_left:
        if of_right < -clear_right:
            return False
        if of_right > clear_right:
            cone[2], cone[3] = x, y
    elif of_right < -clear_right and of_left < -clear_left:
        cone[0], cone[1] = x, y
    return True


@kernel
def first_cones(references, used, cones):
    """Cones of no rows: the order rule's directions, if it is `used`."""
    n_clusters, n_features = references.shape
    for k in range(n_clusters if n_cones(n_clusters, n_features) > 0 else 0):
        for l in range(k + 1, n_clusters):
            for i in range(4):
                d = i % 2
                seed = references[k, d] - references[l, d] if used and d < n_features else 0.0
                cones[cone_of(k, l, n_clusters), i] = seed


@bare
def separable(t, s, k, n_clusters, y, label, cones):
    """Whether row s in cluster k leaves all pairs separable, of rows t to s; fills label[s] and cones[s + 1]."""
    n_features = y.shape[1]
    label[s] = k
    for p in range(cones.shape[1]):
        for i in range(4):
            cones[s + 1, p, i] = cones[s, p, i]
    for j in range(t, s):
        l = label[j]
        if l != k:
            sign = 1.0 if k < l else -1.0
            cone = cones[s + 1, cone_of(min(k, l), max(k, l), n_clusters)]
            x = sign * (y[s, 0] - y[j, 0])
            if n_features == 1:
                if x * cone[0] < 0.0:
                    return False
                cone[0] = x
            elif not _widen(cone, x, sign * (y[s, 1] - y[j, 1])):
                return False
    return True
