"""The problem in scaled units and its way back: shift by a centre, divide by powers of two, round outward."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...core.compile import bare, kernel
from ._kernels import ROUNDING, TINY, down, order_excludes, up
from ._order import make_pairs, price_margin, relative_rounding
from ._search import Model
from ._state import ABSOLUTE_SUM, FARTHEST, NONE, WEIGHT_SUM, farthest_side, least_weight_row, nearest_side

LARGEST = 1.7976931348623157e308


class ScaledRows(NamedTuple):
    """A node's rows, once as given and once prepared for the search; `PreparedRows` in prepared_rows.py makes it."""

    points: np.ndarray  # (J, D) as given
    weights: np.ndarray  # (J,)
    y: np.ndarray  # (n, D) distinct rows, shifted and scaled
    w: np.ndarray  # (n,)
    centre: np.ndarray  # (D,)
    scale: float  # power of two
    weight_scale: float  # power of two
    tail: np.ndarray  # (n+1,) proven price-free cost of rows s, s+1, ... with K clusters
    seeds: np.ndarray  # (M, K, D) price-free solutions, best first, in scaled units


@bare
def _exponent(power):
    """e of a power of two 2ᵉ."""
    return math.frexp(power)[1] - 1


@kernel
def _interchangeable(price, boxes):
    for k in range(1, price.shape[0]):
        for d in range(price.shape[1]):
            if price[k, d] != price[0, d] or boxes[0, k, d] != boxes[0, 0, d] or boxes[1, k, d] != boxes[1, 0, d]:
                return False
    return True


@kernel
def excluded(rule, references, box):
    """Whether the boxes hold no centroids that obey the rule, as far as intervals tell."""
    for k in range(box.shape[1]):
        for d in range(box.shape[2]):
            if box[0, k, d] > box[1, k, d]:
                return True
    return rule != NONE and order_excludes(references, box[0], box[1])


@kernel
def scaled_model(rows, price, boxes, rule, references):
    """The problem in scaled units, and whether its numbers are in a range where margins hold."""
    n_clusters, n_features = price.shape
    spread, far, fine = 0.0, 0.0, True
    shift = _exponent(rows.scale) + _exponent(rows.weight_scale)
    if rule != NONE:
        for k in range(n_clusters):
            for d in range(n_features):
                spread = max(spread, abs(references[k, d] - references[0, d]))
    fine = spread < np.inf
    unit = math.ldexp(1.0, -math.frexp(spread)[1]) if 0.0 < spread < np.inf else 1.0
    for d in range(n_features):
        far = max(far, abs(rows.centre[d] / rows.scale))
    p, r = np.empty((n_clusters, n_features)), np.zeros((n_clusters, n_features))
    lo, hi = np.empty((n_clusters, n_features)), np.empty((n_clusters, n_features))
    magnitudes = np.zeros((4 + 2 * n_clusters, n_features))
    for k in range(n_clusters):
        for d in range(n_features):
            p[k, d] = math.ldexp(price[k, d], -shift)  # in one step: no underflow on the way
            lo[k, d] = down((boxes[0, k, d] - rows.centre[d]) / rows.scale)
            hi[k, d] = up((boxes[1, k, d] - rows.centre[d]) / rows.scale)
            if rule != NONE:
                r[k, d] = references[k, d] * unit  # only differences count, and they stay exact
            magnitudes[nearest_side(k), d] = max(0.0, max(lo[k, d], -hi[k, d]))
            magnitudes[farthest_side(n_clusters, k), d] = max(abs(lo[k, d]), abs(hi[k, d]))
            if not (abs(p[k, d]) < 1e140 and abs(lo[k, d]) < 1e140 and abs(hi[k, d]) < 1e140):
                fine = False
    least = np.inf
    for j in range(len(rows.w)):
        least = min(least, rows.w[j])
        for d in range(n_features):
            x = abs(rows.y[j, d])
            magnitudes[ABSOLUTE_SUM, d] += rows.w[j] * x
            magnitudes[WEIGHT_SUM, d] += rows.w[j]
            magnitudes[FARTHEST, d] = max(magnitudes[FARTHEST, d], x)
    magnitudes[least_weight_row(n_clusters), 0] = least
    symmetric = _interchangeable(price, boxes)
    target = 256.0 * n_features * ROUNDING * (1.0 + far) if rule != NONE and not symmetric else 0.0
    used = NONE if symmetric else rule
    rounding = relative_rounding(len(rows.weights), n_clusters, n_features)
    return Model(p, lo, hi, r, make_pairs(r, used != NONE), magnitudes, used, symmetric, target, rounding), fine


@kernel
def base_margin(model):
    """Error margin of every bound of this problem (docs/numerics.md, section 3)."""
    size = price_margin(model.price, model.pairs, np.zeros(0), model.magnitudes)
    underflow = 0.0  # of prices, when they were scaled
    for d in range(model.price.shape[1]):
        size += model.magnitudes[ABSOLUTE_SUM, d] * model.magnitudes[FARTHEST, d]
        for k in range(len(model.price)):
            underflow += 5e-324 * model.magnitudes[farthest_side(len(model.price), k), d]
    return model.rounding * size + underflow + TINY


@kernel
def unscale_down(rows, price, scaled_bound):
    """A scaled bound in original units, rounded down."""
    # in one step: factors could underflow on the way and come back
    value = math.ldexp(scaled_bound, _exponent(rows.weight_scale) + 2 * _exponent(rows.scale))
    if not abs(value) < np.inf:
        value = LARGEST if scaled_bound > 0.0 else -np.inf
    value = down(down(value))
    offset, magnitude, n = 0.0, 0.0, 0
    for k in range(price.shape[0]):
        for d in range(price.shape[1]):
            if price[k, d] != 0.0 and rows.centre[d] != 0.0:
                term = price[k, d] * rows.centre[d]
                offset += term
                magnitude += abs(term)
                n += 1
    if n == 0:
        return value
    value = down(value + down(offset - (2 * n + 8) * ROUNDING * magnitude - 5e-324 * n))
    return value if value == value else -np.inf
