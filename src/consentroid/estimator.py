"""`FederatedKMeans`: scikit-learn's conventions around a certified clustering.

The rows of `fit` may come as one table with `groups` naming the node of each row, or as a mapping from node to table.
All nodes then live in this process; over a network, see `consentroid.fitting.run`.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from .core.arrays import Array
from .core.errors import InvalidInput
from .core.problem import NodeData, check_n_clusters, clustering_cost
from .core.result import FitResult, Regions, Step
from .data.preprocessing import Schema, check_schema
from .data.tables import Table, as_table, is_frame
from .evaluation.quality import nearest
from .fitting import ROW_PRICES, TIME_LIMIT, fit
from .report.wording import percent, verdict

Labels = NDArray[np.int32]

FORMAT = "consentroid-model"
VERSION = 2
SAVED = ("inertia_", "lower_bound_", "gap_", "certified_", "stop_reason_", "n_rounds_", "n_features_in_")


class FederatedKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """K-means over several nodes that ends with a proof of how good it is.

    Parameters
    ----------
    n_clusters : int
        Number of clusters, K.
    gap : float
        Stop once (cost − proven bound) / cost is at most this.
    time_limit : float or None
        Stop after so many seconds with what is proven by then; None: never.
    init : array of shape (n_clusters, n_features) or None
        Centroids to start from, for example of another K-means.
    method : {"row-prices", "proximal", "btm", "qnda", "qnda-epigraph", "sg"}
        "row-prices" proves; the others are the paper's dual methods, for research.
    random_state : int, RandomState or None
        Chooses the starts of the search for good centroids; never affects the truth of the bound.
    verbose : int
        With 1, a line of progress.

    Attributes
    ----------
    cluster_centers_ : array of shape (n_clusters, n_features)
        Centroids, in lexicographic order, so that labels are stable between runs.
    labels_ : array of shape (n_samples,)
        The cluster of each row; for a mapping, of all nodes one after the other.
    node_labels_ : dict
        From node to the labels of its rows.
    inertia_ : float
        The cost of the centroids.
    lower_bound_ : float
        Proven: no centroids cost less.
    gap_ : float
        (inertia_ − lower_bound_) / inertia_.
    certified_ : bool
        Whether gap_ is at most the gap asked for.
    verdict_ : str
        What is proven, in one sentence.
    stop_reason_ : str
        Why it stopped.
    n_rounds_ : int
        Exchanges with the sites.
    history_ : list of dict
        One record per step.
    certificate_ : Certificate or None
        The proof (`certificate_.write(path)`); None for the paper's methods.
    centroid_regions_ : array of shape (n_clusters, 2, n_features) or None
        Boxes that hold that centroid of *every* optimal clustering, and of every one that costs no more than
        `regions_tolerance_` above the best found.
    certain_ : boolean array of shape (n_samples,)
        Rows that are in this cluster in every optimal clustering.
    n_features_in_ : int
        As everywhere in scikit-learn.
    feature_names_in_ : array of str
        As everywhere in scikit-learn.

    Examples
    --------
    >>> from consentroid import FederatedKMeans
    >>> model = FederatedKMeans(n_clusters=2).fit([[0.0], [1.0], [10.0], [11.0]], groups=["a", "b", "a", "b"])
    >>> model.cluster_centers_.ravel().tolist(), round(model.inertia_, 9), model.certified_
    ([0.5, 10.5], 1.0, True)
    """

    def __init__(
        self,
        n_clusters: int = 3,
        *,
        gap: float = 1e-4,
        time_limit: float | None = TIME_LIMIT,
        init: ArrayLike | None = None,
        method: str = ROW_PRICES,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.gap = gap
        self.time_limit = time_limit
        self.init = init
        self.method = method
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X: Any, y: Any = None, *, groups: ArrayLike | None = None, sample_weight: Any = None
    ) -> FederatedKMeans:
        """Cluster the rows of all nodes.

        Parameters
        ----------
        X : table of shape (n_samples, n_features), or mapping from node to table
            Arrays, pandas, polars and Arrow tables.
        y : ignored
        groups : array of shape (n_samples,), optional
            The node of each row; without it there is one node. Not with a mapping, which names the nodes itself.
        sample_weight : array of shape (n_samples,), or mapping from node to array, optional
        """
        check_n_clusters(self.n_clusters)
        data = self.gather(X, groups, sample_weight)
        if len(data.rows) < self.n_clusters:
            raise InvalidInput(f"n_samples={len(data.rows)} should be >= n_clusters={self.n_clusters}")
        result = fit(
            data.by_node(data.rows),
            self.n_clusters,
            weights=data.by_node(data.weights),
            method=self.method,
            gap=self.gap,
            time_limit=self.time_limit,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            init=self._checked_init(),
            on_step=_show_step if self.verbose else None,
        )
        if self.verbose:
            print(file=sys.stderr)
        self._take(result, data)
        if not self.certified_:
            warnings.warn(NotCertifiedWarning.text(result), NotCertifiedWarning, stacklevel=2)
        return self

    def _take(self, result: FitResult, data: _Gathered) -> None:
        self.cluster_centers_ = result.centroids
        self.labels_ = self._labels(data.rows)
        self.node_labels_ = {node: self.labels_[index] for node, index in data.members.items()}
        self.inertia_ = result.upper_bound
        self.lower_bound_ = result.lower_bound
        self.gap_ = result.gap
        self.certified_ = result.certified
        self.stop_reason_ = result.stop_reason.value
        self.n_rounds_ = result.rounds
        self.history_ = [asdict(record) for record in result.trace]
        self.certificate_ = result.certificate
        self.verdict_ = verdict(result)
        regions = result.regions
        self.centroid_regions_ = None if regions is None else np.stack([regions.lower, regions.upper], axis=1)
        self.regions_tolerance_ = None if regions is None else regions.tolerance
        self.certain_ = certain_rows(data.rows, self.labels_, regions)

    def predict(self, X: Any) -> Any:
        """Number of the nearest centroid of each row; for a mapping, a dict from node to that."""
        check_is_fitted(self)
        if _names_nodes(X):
            return {node: self.predict(table) for node, table in X.items()}
        return self._labels(self._rows(X, reset=False))

    def transform(self, X: Any) -> Any:
        """Euclidean distance of each row to each centroid; for a mapping, a dict from node to that."""
        check_is_fitted(self)
        if _names_nodes(X):
            return {node: self.transform(table) for node, table in X.items()}
        rows = self._rows(X, reset=False)
        return np.stack([np.sqrt(((rows - centre) ** 2).sum(axis=1)) for centre in self.cluster_centers_], axis=1)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the cost of the rows, so that more is better."""
        check_is_fitted(self)
        if _names_nodes(X):
            return sum(self.score(table, None, (sample_weight or {}).get(node)) for node, table in X.items())
        rows = self._rows(X, reset=False)
        weights = np.ones(len(rows)) if sample_weight is None else _check_sample_weight(sample_weight, rows)
        return -clustering_cost(rows, weights, self.cluster_centers_)

    def to_sklearn(self) -> KMeans:
        """A plain fitted `KMeans` with these centroids, for everything that exports one (ONNX, PMML, ...)."""
        check_is_fitted(self)
        plain = KMeans(self.n_clusters, init=self.cluster_centers_, n_init=1, max_iter=1).fit(self.cluster_centers_)
        plain.cluster_centers_ = self.cluster_centers_.copy()
        plain.inertia_ = self.inertia_
        for name in ("labels_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(plain, name, getattr(self, name).copy())
        return plain

    def save(self, path: str | Path) -> None:
        """Write the fitted model as JSON: parameters, centroids, bounds, history; no rows, no labels of rows."""
        check_is_fitted(self)
        params = {name: value for name, value in self.get_params().items() if _is_plain(value)}
        if self.init is not None:
            params["init"] = np.asarray(self.init, dtype=float).tolist()
        document = {
            "format": FORMAT,
            "version": VERSION,
            "params": params,
            "cluster_centers_": self.cluster_centers_.tolist(),
            "feature_names_in_": list(getattr(self, "feature_names_in_", [])),
            "centroid_regions_": None if self.centroid_regions_ is None else self.centroid_regions_.tolist(),
            "history_": [{k: v if _is_finite(v) else None for k, v in record.items()} for record in self.history_],
            **{name: getattr(self, name) for name in SAVED},
        }
        Path(path).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> FederatedKMeans:
        """Read what `save` wrote; nothing in the file is executed."""
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidInput(f"cannot read a model from '{path}': {error}") from None
        if not isinstance(document, dict) or document.get("format") != FORMAT or document.get("version") != VERSION:
            raise InvalidInput(f"'{path}' is not a {FORMAT} file of version {VERSION}")
        try:
            model = cls(**document["params"])
            model.cluster_centers_ = np.array(document["cluster_centers_"], dtype=float)
            if model.cluster_centers_.shape != (model.n_clusters, document["n_features_in_"]):
                raise InvalidInput(f"'{path}' has centroids of shape {model.cluster_centers_.shape}")
            model.history_ = document["history_"]
            saved = document["centroid_regions_"]
            model.centroid_regions_ = None if saved is None else np.array(saved, dtype=float)
            for name in SAVED:
                setattr(model, name, document[name])
            if document["feature_names_in_"]:
                model.feature_names_in_ = np.array(document["feature_names_in_"], dtype=object)
        except (KeyError, TypeError) as error:
            raise InvalidInput(f"'{path}' is not a complete {FORMAT} file: {error}") from None
        return model

    def _repr_html_inner(self) -> str:
        """What a notebook shows: the verdict once fitted, else the parameters as everywhere in scikit-learn."""
        if not hasattr(self, "verdict_"):
            return str(super()._repr_html_inner())
        lines = (
            f"<b>{escape(repr(self))}</b>",
            escape(self.verdict_),
            f"cost {self.inertia_:.8g}, proven bound {self.lower_bound_:.8g}, gap {percent(self.gap_)}",
        )
        return "<div>" + "<br>".join(lines) + "</div>"

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def _labels(self, rows: Array) -> Labels:
        return nearest(rows, self.cluster_centers_).astype(np.int32)

    def _rows(self, X: Any, reset: bool) -> Array:
        if is_frame(X):
            table = as_table(X, where="X")
            validate_data(self, X, reset=reset, skip_check_array=True)
            return np.asarray(check_array(table.rows, dtype=np.float64))
        return np.asarray(validate_data(self, X, reset=reset, dtype=np.float64, order="C"))

    def gather(self, X: Any, groups: ArrayLike | None, sample_weight: Any) -> _Gathered:
        """Rows, weights and sites, checked as scikit-learn checks them."""
        if _names_nodes(X):
            if groups is not None:
                raise InvalidInput("a mapping names its nodes itself; leave groups out")
            return self._gather_mapping(X, sample_weight)
        rows = self._rows(X, reset=True)
        weights = np.ones(len(rows))
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, rows, ensure_non_negative=True, dtype=np.float64)
        return _Gathered(rows, weights, _members(groups, len(rows)))

    def _gather_mapping(self, tables: Mapping[Any, Any], sample_weight: Any) -> _Gathered:
        if not tables:
            raise InvalidInput("a mapping of tables needs at least one node")
        if sample_weight is not None and not isinstance(sample_weight, Mapping):
            raise InvalidInput("with a mapping of tables, give sample_weight as a mapping from node to weights too")
        for node in sample_weight or {}:
            if node not in tables:
                raise InvalidInput(f"sample_weight names an unknown node '{node}'; there are {_listed(tables)}")
        read = {str(node): as_table(table, where=f"node '{node}'") for node, table in tables.items()}
        first, n_features = next((node, len(table.names)) for node, table in read.items())
        for node, table in read.items():
            if len(table.names) != n_features:
                raise InvalidInput(f"node '{node}' has {len(table.names)} features, node '{first}' has {n_features}")
        self.n_features_in_ = n_features
        if all(isinstance(table, Table) or is_frame(table) for table in tables.values()):
            schema = check_schema({node: Schema.of(table) for node, table in read.items()})
            self.feature_names_in_ = np.array(schema.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        mass = [
            np.ones(table.n_rows)
            if not sample_weight or node not in sample_weight
            else _mass(sample_weight[node], name, table)
            for (node, _), (name, table) in zip(tables.items(), read.items())
        ]
        ends = np.cumsum([table.n_rows for table in read.values()])
        members = {name: np.arange(end - table.n_rows, end) for (name, table), end in zip(read.items(), ends)}
        return _Gathered(np.concatenate([table.rows for table in read.values()]), np.concatenate(mass), members)

    def _checked_init(self) -> Array | None:
        if self.init is None:
            return None
        init = np.asarray(self.init, dtype=float)
        expected = (self.n_clusters, self.n_features_in_)
        if init.shape != expected or not np.isfinite(init).all():
            raise InvalidInput(f"init has shape {init.shape}; give finite centroids of shape {expected}")
        return init


@dataclass(frozen=True)
class _Gathered:
    """All rows of this process, and which belong to which node."""

    rows: Array
    weights: Array
    members: dict[str, NDArray[np.int64]]

    def by_node(self, values: Array) -> dict[str, Array]:
        """One array a node; a node none of whose rows has weight takes no part."""
        return {node: values[index] for node, index in self.members.items() if np.any(self.weights[index] > 0)}


class NotCertifiedWarning(ConvergenceWarning):
    """The gap asked for was not proven; the message has gap and remedy."""

    @staticmethod
    def text(result: FitResult) -> str:
        return (
            f"the gap asked for, {percent(result.gap_asked)}, is not proven: {percent(result.gap)} is left "
            f"({result.stop_reason.value}); allow more time with time_limit=, or ask for less with gap="
        )


def certain_rows(rows: Array, labels: NDArray[Any], regions: Regions | None) -> NDArray[np.bool_]:
    """Rows whose own region is nearer than every other, wherever in their regions the centroids lie."""
    if regions is None:
        return np.zeros(len(rows), dtype=bool)
    nearest_own = np.full(len(rows), -np.inf)
    others = np.full(len(rows), np.inf)
    for k, (low, high) in enumerate(zip(regions.lower, regions.upper, strict=True)):
        below, above = low - rows, rows - high
        farthest = (np.maximum(np.abs(below), np.abs(above)) ** 2).sum(axis=1)
        closest = (np.maximum(np.maximum(below, above), 0.0) ** 2).sum(axis=1)
        own = labels == k
        nearest_own = np.where(own, farthest, nearest_own)
        others = np.where(own, others, np.minimum(others, closest))
    return np.asarray(nearest_own * (1.0 + 1e-9) < others)


def _show_step(step: Step) -> None:
    line = f"{step.phase:<11} {step.boxes_done:>8,} boxes  gap {percent(step.gap)}  {step.seconds:.1f} s"
    print(f"\r{line:<70}", end="", file=sys.stderr, flush=True)


def _names_nodes(X: Any) -> bool:
    return isinstance(X, Mapping) and not issparse(X)  # scipy's dok_array is both


def _mass(weights: Any, node: str, table: Table) -> Array:
    return NodeData.checked(node, table.rows, weights).weights


def _members(groups: ArrayLike | None, n_rows: int) -> dict[str, NDArray[np.int64]]:
    """Row numbers of each node, nodes in sorted order so that the order of rows does not matter."""
    if groups is None:
        return {"all": np.arange(n_rows)}
    names = np.asarray(groups, dtype=object)
    if names.shape != (n_rows,):
        raise InvalidInput(f"groups has {names.size} names for {n_rows} rows; give one node a row")
    for j, name in enumerate(names):
        if name is None or name != name or name == "":
            raise InvalidInput(f"groups names no node for row {j + 1} ({name!r}); name one or drop the row")
    texts = np.array([str(name) for name in names])
    return {str(node): np.nonzero(texts == node)[0] for node in np.unique(texts)}


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _listed(names: Any) -> str:
    return ", ".join(f"'{name}'" for name in names)
