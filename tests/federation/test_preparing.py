"""Federated standardisation and imputation: the same numbers as scikit-learn on all rows, masked or open."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nvflare")

from sklearn.impute import SimpleImputer
from sklearn.preprocessing import StandardScaler

from consentroid.core.errors import InvalidInput, NodeFailed
from consentroid.core.problem import Domain, NodeData, Problem
from consentroid.data.preprocessing import prepare as prepare_tables
from consentroid.federation.preparing import prepare
from consentroid.federation.secure import SecureTransport
from consentroid.site.policy import Policy
from consentroid.site.worker import SiteWorker
from wire import NODES, OPEN, SECURE, Wire, desk_of

DOMAIN = Domain(np.array([-50.0, 900.0, -3.0]), np.array([50.0, 1100.0, 3.0]))


def tables(missing: bool, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    made = {}
    for i, name in enumerate(NODES):
        made[name] = rng.normal(size=(40 + 7 * i, 3)) * [5.0, 20.0, 0.01] + [i, 1000.0, 0.5]
    if missing:
        for rows in made.values():
            rows[rng.random(rows.shape) < 0.2] = np.nan
    return made


class Federated:
    def __init__(self, rows: dict[str, np.ndarray], weights: dict[str, np.ndarray], policy: Policy) -> None:
        self.line = Wire.__new__(Wire)
        self.line.fault, self.line.policy = None, policy
        nodes = {name: NodeData(name, rows[name], weights[name]) for name in NODES}
        self.line.desks = {
            name: desk_of(name, lambda data=data: _worker(data), policy)
            for name, data in nodes.items()  # type: ignore[misc]
        }
        self.transport = self.line.transport()

    def close(self) -> None:
        self.transport.close()
        self.line.close()


class _Raw:
    """Rows as read, before anything was imputed."""

    def __init__(self, data: NodeData) -> None:
        self.rows, self.guard = data, None


def _worker(data: NodeData) -> SiteWorker:
    return _Raw(data)  # type: ignore[return-value]


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("missing", [False, True])
def test_standardised_and_imputed_like_scikit_learn(secure: bool, missing: bool, tmp_path: Path) -> None:
    rows, rng = tables(missing), np.random.default_rng(1)
    weights = {name: rng.uniform(0.5, 2.0, len(table)) for name, table in rows.items()}
    federated = Federated(rows, weights, SECURE if secure else OPEN)
    masks = SecureTransport(federated.transport, DOMAIN) if secure else None
    try:
        recipe = prepare(federated.transport, masks, "standard", missing, DOMAIN, tmp_path / "recipe.json")
        again = prepare(federated.transport, None, "standard", missing, DOMAIN, tmp_path / "recipe.json")
    finally:
        federated.close()
    assert again.as_dict() == recipe.as_dict()
    here = prepare_tables(rows, scale="standard", imputation=missing, weights=weights).recipe
    assert recipe.transform.offset == pytest.approx(here.transform.offset, rel=1e-13)
    assert recipe.transform.scale == pytest.approx(here.transform.scale, rel=1e-11)
    pooled, mass = np.concatenate(list(rows.values())), np.concatenate(list(weights.values()))
    if missing:
        filled = recipe.fill
        assert filled is not None
        means = np.array([np.average(c[~np.isnan(c)], weights=mass[~np.isnan(c)]) for c in pooled.T])
        assert filled == pytest.approx(means, rel=1e-13)
        pooled = np.where(np.isnan(pooled), means, pooled)
    scaler = StandardScaler().fit(pooled, sample_weight=mass)
    assert recipe.transform.offset == pytest.approx(scaler.mean_, rel=1e-12)
    assert recipe.transform.scale == pytest.approx(scaler.scale_, rel=1e-9)


def test_unweighted_imputation_is_that_of_the_simple_imputer(tmp_path: Path) -> None:
    rows = tables(missing=True, seed=3)
    federated = Federated(rows, {name: np.ones(len(table)) for name, table in rows.items()}, OPEN)
    try:
        recipe = prepare(federated.transport, None, "none", True, None, tmp_path / "recipe.json")
    finally:
        federated.close()
    pooled = np.concatenate(list(rows.values()))
    assert recipe.apply(pooled) == pytest.approx(SimpleImputer().fit_transform(pooled), rel=1e-13)


def test_open_sums_are_refused_where_masks_are_required(tmp_path: Path) -> None:
    rows = tables(missing=False)
    federated = Federated(rows, {name: np.ones(len(table)) for name, table in rows.items()}, SECURE)
    try:
        with pytest.raises(NodeFailed, match="rule 'masks'"):
            prepare(federated.transport, None, "standard", False, DOMAIN, tmp_path / "recipe.json")
        with pytest.raises(InvalidInput, match="--domain"):
            prepare(federated.transport, None, "minmax", False, None, tmp_path / "recipe.json")
    finally:
        federated.close()


def test_the_unit_box_comes_from_the_domain(tmp_path: Path) -> None:
    rows = tables(missing=False)
    federated = Federated(rows, {name: np.ones(len(table)) for name, table in rows.items()}, OPEN)
    try:
        recipe = prepare(federated.transport, None, "minmax", False, DOMAIN, tmp_path / "recipe.json")
    finally:
        federated.close()
    assert np.array_equal(recipe.transform.domain(DOMAIN).lower, np.zeros(3))
    assert np.array_equal(recipe.transform.domain(DOMAIN).upper, np.ones(3))
    assert Problem.checked({n: recipe.apply(t) for n, t in rows.items()}, 2).n_features == 3
