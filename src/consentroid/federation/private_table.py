"""The site's own table: read from where its kit says, transformed as all sites agreed, and never sent."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..core.arrays import Array
from ..core.errors import InvalidInput, NodeRefused
from ..core.problem import NodeData
from ..data.preprocessing import Recipe
from ..data.tables import read_table
from ..paper.worker import PaperWorker
from ..site.fixed_point import FeatureSums
from ..site.policy import Policy, refusal
from ..site.worker import SiteWorker
from .kit import DATA_FILE
from .preparing import feature_sums
from .site_log import DAY

PRICES_FOLDER = "prices"  # in the kit: prices and claims, which verification needs, and nobody else
log = logging.getLogger(__name__)


class Source(Protocol):
    """Where a site's answers come from."""

    def worker(self, run: str) -> SiteWorker: ...

    def features(self, reference: Array | None) -> FeatureSums: ...

    def transform(self, recipe: Recipe) -> None:
        """From now on `worker` works on transformed rows."""
        ...

    def extent(self) -> tuple[float, float]:
        """Weight of the rows and their largest |x|; only powers of two above them are told."""
        ...

    def rows(self) -> NodeData:
        """As they are clustered: transformed, if that was asked for."""
        ...

    def scaling(self) -> dict[str, Any] | None:
        """How they were transformed."""
        ...

    def kept_runs(self) -> Path | None:
        """Folder of what the site keeps of its runs; None: nothing is kept."""
        ...


@dataclass
class PrivateTable:
    """The table that `consentroid node start` wrote down in the kit."""

    kit: Path
    site: str
    policy: Policy
    _names: tuple[str, ...] = ()
    _rows: Array | None = None  # as read, missing values as NaN
    _weights: Array = field(default_factory=lambda: np.empty(0))
    _recipe: Recipe | None = None

    def worker(self, run: str) -> SiteWorker:
        data, folder = self.rows(), self.kept_runs()
        if folder is None:
            return PaperWorker(data, self._names)
        return SiteWorker(data, self._names, folder / f"{run}.npz", self.policy.guard())

    def rows(self) -> NodeData:
        points = self._transformed()
        try:
            return NodeData.checked(self.site, points, self._weights)
        except InvalidInput as error:
            log.warning("private table: %s", error)
            raise NodeRefused("the private table cannot be clustered; the site's own log has the details") from None

    def scaling(self) -> dict[str, Any] | None:
        return None if self._recipe is None else self._recipe.as_dict()

    def kept_runs(self) -> Path | None:
        if self.policy.paper_methods:
            return None
        folder = self.kit / PRICES_FOLDER
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def features(self, reference: Array | None) -> FeatureSums:
        rows = self._read()
        if reference is not None and reference.shape != (rows.shape[1],):
            raise NodeRefused(f"rows have {rows.shape[1]} features, the question has {len(reference)}")
        known = (~np.isnan(rows)).sum(axis=0)
        if np.any((known > 0) & (known < self.policy.least_rows)):
            raise refusal("least_rows", "; a feature is known in too few rows")
        return feature_sums(rows, self._weights, reference)

    def transform(self, recipe: Recipe) -> None:
        rows = self._read()
        if recipe.transform.offset.shape != (rows.shape[1],):
            raise NodeRefused(f"rows have {rows.shape[1]} features, the recipe has {len(recipe.transform.offset)}")
        self._recipe = recipe

    def extent(self) -> tuple[float, float]:
        rows = self._read() if self._recipe is None else self._transformed()
        return float(self._weights.sum()), float(np.nanmax(np.abs(rows), initial=0.0))

    def _transformed(self) -> Array:
        rows = self._read()
        if np.isnan(rows).any() and (self._recipe is None or self._recipe.fill is None):
            raise NodeRefused("rows have missing values; the administrator must ask with --impute")
        return rows if self._recipe is None else self._recipe.apply(rows)

    def _read(self) -> Array:
        if self._rows is not None:
            return self._rows
        try:
            told = json.loads((self.kit / "local" / DATA_FILE).read_text())
            source, columns, weights = str(told["data"]), told.get("columns"), told.get("weights")
        except (OSError, ValueError, KeyError) as error:
            raise NodeRefused(
                "no private table is set up at this node; run `consentroid node start KIT --data FILE` there"
            ) from error
        try:
            self._names, self._rows, self._weights = read_rows(source, columns, weights)
        except InvalidInput as error:
            log.warning("private table: %s", error)
            raise NodeRefused("the private table cannot be read; the site's own log has the details") from None
        if len(self._rows) < self.policy.least_rows:
            raise refusal("least_rows", "; the site has fewer rows than it may report on")
        return self._rows


def read_rows(source: str, columns: list[str] | None, weights: str | None) -> tuple[tuple[str, ...], Array, Array]:
    """Names of the features, rows with missing values as NaN, and weights."""
    asked = columns if columns is None or weights is None or weights in columns else [*columns, weights]
    table = read_table(source, asked, missing=True)
    if weights is None:
        return table.names, table.rows, np.ones(table.n_rows)
    mass = table.select([weights], source).rows[:, 0]
    features = [name for name in table.names if name != weights]
    if not features:
        raise InvalidInput(f"column '{weights}' holds the weights and there is no other; give features, too")
    return tuple(features), table.select(features, source).rows, mass


def forget_prices(kit: Path, keep_days: int) -> None:
    """Prices of earlier runs are needed to verify their certificates, for as long as the policy says."""
    oldest = time.time() - keep_days * DAY
    for path in (kit / PRICES_FOLDER).glob("*"):
        if path.stat().st_mtime < oldest:
            path.unlink(missing_ok=True)
