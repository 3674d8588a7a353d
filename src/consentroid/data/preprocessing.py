"""Preprocessing that moves no rows: each node sends sums, the coordinator combines them, each node transforms its rows.

    n = Σ_i n_i,   μ = μ_1 + Σ_i n_i (μ_i − μ_1) / n,   S = Σ_i S_i + Σ_i n_i (μ_i − μ)²         (Chan et al. 1979)

where n_i, μ_i, S_i are node i's weight, mean and centred sum of squares of one feature, over the values that are not
missing. Centred sums do not cancel, so the result equals the pooled one of scikit-learn to rounding.

Mean imputation changes neither μ nor S, only n; `ColumnMoments.imputed` says so, and one exchange serves both steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..core.arrays import Array
from ..core.errors import InvalidInput
from ..core.problem import Domain
from .tables import Table, as_table


@dataclass(frozen=True)
class Schema:
    """Names, order and kinds of a node's columns: discloses no value."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]

    @classmethod
    def of(cls, table: Table) -> Schema:
        return cls(table.names, table.kinds)


def check_schema(schemas: Mapping[str, Schema]) -> Schema:
    """The schema all nodes share; the error names the first node and column that differ from the first node."""
    if not schemas:
        raise InvalidInput("a schema check needs at least one node")
    (first, agreed), *others = schemas.items()
    for node, schema in others:
        for column in agreed.names:
            if column not in schema.names:
                raise InvalidInput(f"node '{node}' lacks column '{column}' of node '{first}'; add it or leave it out")
        for column in schema.names:
            if column not in agreed.names:
                raise InvalidInput(f"node '{node}' has a column '{column}' that node '{first}' lacks; leave it out")
        for d, (expected, found) in enumerate(zip(agreed.names, schema.names)):
            if expected != found:
                raise InvalidInput(
                    f"node '{node}' has '{found}' as column {d + 1} where node '{first}' has '{expected}'; "
                    "order the columns alike"
                )
        for column, expected, found in zip(agreed.names, agreed.kinds, schema.kinds):
            if expected != found:
                raise InvalidInput(
                    f"node '{node}': column '{column}' is {found}, at node '{first}' it is {expected}; convert one"
                )
    return agreed


def aligned(tables: Mapping[str, Table]) -> dict[str, Table]:
    """All tables with the columns of the first in its order; another order of the same names is told in a notice."""
    if not tables:
        raise InvalidInput("a schema check needs at least one node")
    (first, given), *_ = tables.items()
    ordered = dict(tables)
    for node, table in tables.items():
        if table.names != given.names and sorted(table.names) == sorted(given.names):
            notice = f"node '{node}' has its columns in another order; they are taken in the order of node '{first}'"
            ordered[node] = table.select(given.names, f"node '{node}'").told(notice)
    check_schema({node: Schema.of(table) for node, table in ordered.items()})
    return ordered


@dataclass(frozen=True)
class ColumnMoments:
    """What a node tells for standardisation and imputation, one number a feature each."""

    n_rows: int
    weight: float  # of all rows
    weights: Array  # (D,) of the rows where the feature is known
    means: Array  # (D,)
    squares: Array  # (D,) centred sum of squares

    @classmethod
    def of(cls, rows: ArrayLike, weights: ArrayLike | None = None) -> ColumnMoments:
        points = np.asarray(rows, dtype=float)
        mass = np.ones(len(points)) if weights is None else np.asarray(weights, dtype=float)
        known = np.where(np.isnan(points), 0.0, mass[:, None])
        totals = known.sum(axis=0)
        filled = np.where(np.isnan(points), 0.0, points)
        divisor = np.where(totals > 0, totals, 1.0)
        means = (known * filled).sum(axis=0) / divisor
        # A second pass removes the rounding of the first: values far from zero keep their digits.
        means += (known * (filled - means)).sum(axis=0) / divisor
        return cls(len(points), float(mass.sum()), totals, means, (known * (filled - means) ** 2).sum(axis=0))

    @classmethod
    def combined(cls, parts: Iterable[ColumnMoments]) -> ColumnMoments:
        parts = list(parts)
        weights = np.stack([part.weights for part in parts])
        means = np.stack([part.means for part in parts])
        totals = weights.sum(axis=0)
        divisor = np.where(totals > 0, totals, 1.0)
        # The shift is the mean of a node that knows the feature; a node that does not has the meaningless mean 0.
        shift = means[np.argmax(weights > 0, axis=0), np.arange(means.shape[1])]
        mean = shift + (weights * (means - shift)).sum(axis=0) / divisor
        squares = np.stack([part.squares for part in parts]) + weights * (means - mean) ** 2
        n_rows, weight = sum(part.n_rows for part in parts), sum(part.weight for part in parts)
        return cls(n_rows, weight, totals, np.where(totals > 0, mean, 0.0), squares.sum(axis=0))

    @property
    def variances(self) -> Array:
        return self.squares / np.where(self.weights > 0, self.weights, 1.0)

    def imputed(self) -> ColumnMoments:
        """The moments after missing values were replaced by the means."""
        weights = np.full_like(self.weights, self.weight)
        return ColumnMoments(self.n_rows, self.weight, weights, self.means, self.squares)


@dataclass(frozen=True)
class Extremes:
    """What a node tells for the domain: discloses its smallest and largest value of each feature."""

    lower: Array  # (D,)
    upper: Array  # (D,)

    @classmethod
    def of(cls, rows: ArrayLike) -> Extremes:
        points = np.asarray(rows, dtype=float)
        unknown = np.isnan(points)
        lower = np.where(unknown, np.inf, points).min(axis=0, initial=np.inf)
        return cls(lower, np.where(unknown, -np.inf, points).max(axis=0, initial=-np.inf))

    @classmethod
    def combined(cls, parts: Iterable[Extremes]) -> Extremes:
        parts = list(parts)
        lower, upper = np.stack([part.lower for part in parts]), np.stack([part.upper for part in parts])
        return cls(lower.min(axis=0), upper.max(axis=0))

    def domain(self) -> Domain:
        if not np.all(self.lower <= self.upper):
            d = int(np.argmin(self.lower <= self.upper))
            raise InvalidInput(f"feature {d} has no value at any node; leave the column out")
        return Domain(self.lower, self.upper)


@dataclass(frozen=True)
class Affine:
    """x ↦ (x − offset) / scale, applied by each node to its own rows; squared distances change feature by feature."""

    offset: Array  # (D,)
    scale: Array  # (D,)

    @classmethod
    def standardising(cls, moments: ColumnMoments) -> Affine:
        """To mean 0 and variance 1, as `StandardScaler`; a constant feature is only centred."""
        variance, mean = moments.variances, moments.means
        # The rule of scikit-learn: a variance within the rounding of its own computation is none.
        rounding = moments.weights * np.finfo(float).eps
        constant = variance <= rounding * variance + (rounding * mean) ** 2
        return cls(mean, np.where(constant, 1.0, np.sqrt(variance)))

    @classmethod
    def to_unit_box(cls, extremes: Extremes) -> Affine:
        """To [0, 1], as `MinMaxScaler`; a constant feature becomes 0."""
        domain = extremes.domain()
        width = domain.upper - domain.lower
        return cls(domain.lower, np.where(width > 0, width, 1.0))

    def transform(self, rows: ArrayLike) -> Array:
        return (np.asarray(rows, dtype=float) - self.offset) / self.scale

    def inverse_transform(self, rows: ArrayLike) -> Array:
        """Back to the original units: how to read centroids."""
        return np.asarray(rows, dtype=float) * self.scale + self.offset

    def domain(self, domain: Domain) -> Domain:
        """The domain in the new units."""
        return Domain(self.transform(domain.lower), self.transform(domain.upper))


def impute(rows: ArrayLike, means: Array) -> Array:
    """Missing values replaced by the means of all nodes, as `SimpleImputer(strategy="mean")`."""
    points = np.asarray(rows, dtype=float)
    return np.where(np.isnan(points), means, points)


FAR_APART = 20.0
"""A feature that varies so many times as much as another decides the clusters nearly alone."""


def scale_notice(names: Sequence[str], moments: ColumnMoments) -> str | None:
    """A warning where features vary on very different scales."""
    deviations = np.sqrt(moments.variances)
    varying = np.flatnonzero(Affine.standardising(moments).scale == deviations)
    varying = varying[deviations[varying] > 0]
    if len(varying) < 2:
        return None
    least, most = (int(varying[pick(deviations[varying])]) for pick in (np.argmin, np.argmax))
    ratio = deviations[most] / deviations[least]
    if ratio < FAR_APART:
        return None
    return (
        f"'{names[most]}' varies {ratio:,.0f} times as much as '{names[least]}' and decides the clusters nearly alone; "
        "bring the features to one scale with --scale standard, or keep them as they are with --scale none"
    )


@dataclass(frozen=True)
class Recipe:
    """What was done to the rows before they were clustered, so that it can be done to other rows, and undone."""

    scale: str  # none, standard or minmax
    transform: Affine
    fill: Array | None = None  # (D,) in place of missing values

    def apply(self, rows: ArrayLike) -> Array:
        points = np.asarray(rows, dtype=float)
        return self.transform.transform(points if self.fill is None else impute(points, self.fill))

    def as_dict(self) -> dict[str, Any]:
        return {
            "scale": self.scale,
            "offset": self.transform.offset.tolist(),
            "factor": self.transform.scale.tolist(),
            "fill": None if self.fill is None else self.fill.tolist(),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Recipe:
        """From `result.json`; the error names what is wrong."""
        try:
            offset, factor = (np.array(document[key], dtype=float) for key in ("offset", "factor"))
            fill = None if document["fill"] is None else np.array(document["fill"], dtype=float)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(
                f"the scaling in result.json is not complete ({error!r}); run consentroid fit again"
            ) from None
        if offset.ndim != 1 or offset.shape != factor.shape or not np.all(factor > 0):
            raise InvalidInput("the scaling in result.json needs an offset and a positive factor for each feature")
        numbers = [offset, factor] if fill is None else [offset, factor, fill]
        if any(part.shape != offset.shape or not np.isfinite(part).all() for part in numbers):
            raise InvalidInput("the scaling in result.json needs one finite number for each feature")
        scale = document.get("scale", "none")
        if scale not in ("none", "standard", "minmax"):  # it is printed: no text from elsewhere
            raise InvalidInput("the scaling in result.json is none of 'none', 'standard' and 'minmax'")
        return cls(scale, Affine(offset, factor), fill)


@dataclass(frozen=True)
class Prepared:
    """Rows ready to cluster, still one table a node, and the transform that reads centroids back."""

    rows: dict[str, Array]
    names: tuple[str, ...]
    moments: ColumnMoments
    recipe: Recipe
    domain: Domain
    notices: tuple[str, ...] = ()

    @property
    def transform(self) -> Affine:
        return self.recipe.transform


def prepare(
    tables: Mapping[str, Any],
    *,
    columns: Sequence[str] | None = None,
    scale: str = "standard",
    imputation: bool = False,
    weights: Mapping[str, ArrayLike] | None = None,
) -> Prepared:
    """Schema check, imputation (if asked for) and scaling ("standard", "minmax" or "none") of every node's table.

    Every number that crosses a node's border is a field of `Schema`, `ColumnMoments` or `Extremes`.
    """
    if scale not in ("standard", "minmax", "none"):
        raise InvalidInput(f"unknown scale '{scale}'; choose standard, minmax or none")
    read = {
        node: as_table(table, columns, missing=imputation, where=f"node '{node}'") for node, table in tables.items()
    }
    read = aligned(read)
    names = next(iter(read.values())).names
    by_node = {node: None if weights is None else weights.get(node) for node in read}
    moments = ColumnMoments.combined(ColumnMoments.of(table.rows, by_node[node]) for node, table in read.items())
    if not np.all(moments.weights > 0):
        column = names[int(np.argmin(moments.weights > 0))]
        raise InvalidInput(f"column '{column}' has no value at any node; leave the column out")
    rows = {node: impute(table.rows, moments.means) for node, table in read.items()}
    extremes = Extremes.combined(Extremes.of(table) for table in rows.values())
    if scale == "standard":
        transform = Affine.standardising(moments.imputed())
    elif scale == "minmax":
        transform = Affine.to_unit_box(extremes)
    else:
        transform = Affine(np.zeros(len(names)), np.ones(len(names)))
    scaled = {node: transform.transform(table) for node, table in rows.items()}
    notices = [notice for table in read.values() for notice in table.notices]
    recipe = Recipe(scale, transform, moments.means if imputation else None)
    return Prepared(scaled, names, moments, recipe, transform.domain(extremes.domain()), tuple(notices))
