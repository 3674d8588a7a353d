"""Standardisation and imputation over sites: two questions for sums, then every site transforms its own rows.

The first question asks for Σ w and Σ w (x − r) about a public point r, the second for Σ w (x − μ)² about the mean, each
over the rows where a feature is known. Squares about the mean do not cancel, so that scale and means equal those of
scikit-learn on all rows together up to rounding. All are sums over sites: with masks the server learns totals only.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgpack
import numpy as np

from ..core.arrays import Array
from ..core.errors import InvalidInput, MalformedMessage, NodeFailed
from ..core.problem import Domain
from ..data.preprocessing import Affine, ColumnMoments, Extremes, Recipe
from ..protocol.messages import Failure
from ..site.fixed_point import FeatureSums
from .secure import SecureTransport, told_failure, unpacked
from .signing import FEATURES, TRANSFORM
from .transport import FlareTransport

DONE = b"done"
Sums = Callable[[Array | None], FeatureSums]  # about a reference; None: the site's own choice is zero


def recipe_for(scale: str, impute: bool, domain: Domain | None, sums: Sums) -> Recipe:
    """How all rows are to be transformed; the same as `data.preprocessing.prepare` finds on all rows."""
    if scale == "minmax" and domain is None:
        raise InvalidInput("--scale minmax needs the range of each feature; give --domain")
    reference = None if domain is None else 0.5 * domain.lower + 0.5 * domain.upper
    first = sums(reference)
    if not np.all(first.weights > 0.0):
        raise InvalidInput(f"feature {int(np.argmin(first.weights > 0.0))} has no value at any site; leave it out")
    means = first.sums / first.weights + (0.0 if reference is None else reference)
    second = sums(means)
    means = means + second.sums / second.weights  # removes the rounding of the first pass
    moments = ColumnMoments(0, first.total, first.weights, means, second.squares)
    if scale == "standard":
        # missing values are put at the mean: the squares stay, the weight is that of all rows
        transform = Affine.standardising(moments.imputed())
    elif scale == "minmax":
        assert domain is not None
        transform = Affine.to_unit_box(Extremes(domain.lower, domain.upper))
    else:
        transform = Affine(np.zeros(len(means)), np.ones(len(means)))
    return Recipe(scale, transform, means if impute else None)


def prepare(
    sites: FlareTransport, masks: SecureTransport | None, scale: str, impute: bool, domain: Domain | None, kept: Path
) -> Recipe:
    """Agree on a recipe, or take the one of the run's earlier job, and have every site apply it."""
    if kept.exists():
        recipe = Recipe.from_dict(json.loads(kept.read_text()))
    else:
        recipe = recipe_for(scale, impute, domain, masks.features if masks is not None else open_sums(sites))
        kept.write_text(json.dumps(recipe.as_dict()))
    content = bytes(msgpack.packb(recipe.as_dict()))
    for node, answer in zip(sites.nodes, sites.ask(TRANSFORM, [content] * len(sites.nodes)), strict=True):
        if answer != DONE:
            failure = told_failure(node, answer)
            raise NodeFailed(node, failure.reason if failure is not None else "did not transform its rows")
    return recipe


def open_sums(sites: FlareTransport) -> Sums:
    """Sums of all sites, added by the coordinator."""

    def ask(reference: Array | None) -> FeatureSums:
        content = bytes(msgpack.packb(None if reference is None else reference.tolist()))
        parts = []
        for node, answer in zip(sites.nodes, sites.ask(FEATURES, [content] * len(sites.nodes)), strict=True):
            parts.append(_read(node, answer))
        if len({len(part.weights) for part in parts}) > 1:
            raise InvalidInput("the sites have different numbers of columns; select and order them alike")
        return FeatureSums(
            sum(part.total for part in parts),
            np.sum([part.weights for part in parts], axis=0),
            np.sum([part.sums for part in parts], axis=0),
            np.sum([part.squares for part in parts], axis=0),
        )

    return ask


def _read(node: str, answer: bytes | Failure) -> FeatureSums:
    failure = told_failure(node, answer)
    if failure is not None:
        raise NodeFailed(node, failure.reason)
    try:
        total, *arrays = (np.array(one, dtype=float) for one in unpacked(answer))  # type: ignore[attr-defined]
        good = total.ndim == 0 and len(arrays) == 3 and len({one.shape for one in arrays}) == 1 and arrays[0].ndim == 1
        good = good and all(np.isfinite(one).all() for one in (total, *arrays))
    except (MalformedMessage, ValueError, TypeError):
        good = False
    if not good:
        raise NodeFailed(node, "sent no sums of its features")
    return FeatureSums(float(total), *arrays)


def feature_sums(rows: Array, weights: Array, reference: Array | None) -> FeatureSums:
    """What one site tells."""
    known = np.where(np.isnan(rows), 0.0, weights[:, None])
    by = np.where(np.isnan(rows), 0.0, rows - (0.0 if reference is None else reference))
    return FeatureSums(float(weights.sum()), known.sum(axis=0), (known * by).sum(axis=0), (known * by**2).sum(axis=0))
