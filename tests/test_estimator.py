"""FederatedKMeans behaves as scikit-learn's users expect, and what it says about its bounds is true."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from consentroid import FederatedKMeans, certify
from consentroid.core.errors import InvalidInput
from consentroid.estimator import NotCertifiedWarning

RNG = np.random.default_rng(11)
CENTRES = np.array([[0.0, 0.0], [5.0, 1.0], [1.0, 6.0]])
ROWS = CENTRES[RNG.integers(3, size=36)] + RNG.normal(size=(36, 2))
SITES = np.array(["north", "south", "west"])[np.arange(36) % 3]


# A loose gap keeps the proofs of the checks' random data short; the conventions under test do not depend on it.
@parametrize_with_checks([FederatedKMeans(n_clusters=2, gap=0.5, time_limit=30.0)])
def test_scikit_learn_conventions(estimator: FederatedKMeans, check: object) -> None:
    check(estimator)  # type: ignore[operator]


@pytest.fixture(scope="module")
def model() -> FederatedKMeans:
    return FederatedKMeans(3, random_state=0).fit(ROWS, groups=SITES)


def least_cost(rows: np.ndarray, n_clusters: int) -> float:
    """Every assignment in turn."""
    costs = []
    for labels in itertools.product(range(n_clusters), repeat=len(rows)):
        chosen = np.array(labels)
        parts = [rows[chosen == k] for k in range(n_clusters)]
        costs.append(sum(((part - part.mean(axis=0)) ** 2).sum() for part in parts if len(part)))
    return float(min(costs))


@settings(max_examples=12)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_bounds_enclose_the_optimum(seed: int, n_nodes: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(8, 2)).round(3)
    fitted = FederatedKMeans(2, random_state=0).fit(rows, groups=np.arange(8) % n_nodes)
    optimum = least_cost(rows, 2)
    assert fitted.lower_bound_ <= optimum <= fitted.inertia_ * (1 + 1e-12)
    assert fitted.certified_
    assert fitted.gap_ <= 1e-4


def test_attributes(model: FederatedKMeans) -> None:
    assert model.certified_
    assert model.stop_reason_ == "gap"
    assert model.n_rounds_ >= model.history_[-1]["round"]  # the certificate is asked for after the last step
    assert model.method == "row-prices"
    assert model.certificate_.lower == model.lower_bound_
    assert model.verdict_
    assert model.gap_ == pytest.approx((model.inertia_ - model.lower_bound_) / model.inertia_)
    assert set(model.node_labels_) == {"north", "south", "west"}
    for site, labels in model.node_labels_.items():
        np.testing.assert_array_equal(labels, model.labels_[site == SITES])
    np.testing.assert_array_equal(model.predict(ROWS), model.labels_)
    np.testing.assert_array_equal(model.transform(ROWS).argmin(axis=1), model.labels_)
    assert model.score(ROWS) == pytest.approx(-model.inertia_, rel=1e-12)
    assert list(model.get_feature_names_out()) == [f"federatedkmeans{k}" for k in range(3)]
    assert sorted(model.cluster_centers_[:, 0]) == list(model.cluster_centers_[:, 0])


def test_labels_do_not_depend_on_seed_nodes_or_order_of_rows(model: FederatedKMeans) -> None:
    order = np.random.default_rng(5).permutation(len(ROWS))
    other = FederatedKMeans(3, random_state=7).fit(ROWS[order], groups=np.arange(36)[order] % 2)
    np.testing.assert_array_equal(other.labels_, model.labels_[order])


def test_runs_that_end_at_the_same_gap_agree_to_that_gap() -> None:
    """Labels may differ where several clusterings cost the same to within the gap asked for; costs may not."""
    for seed in range(6):
        rows = np.random.default_rng(seed).normal(size=(30, 2))
        one = FederatedKMeans(3, random_state=0).fit(rows, groups=np.arange(30) % 3)
        two = FederatedKMeans(3, random_state=1).fit(rows[::-1])
        assert one.certified_
        assert two.certified_
        assert max(one.lower_bound_, two.lower_bound_) <= min(one.inertia_, two.inertia_)
        assert one.inertia_ == pytest.approx(two.inertia_, rel=1e-4)
        for model in (one, two):  # and each is at rest: a centroid is the mean of its rows
            own = rows if model is one else rows[::-1]
            means = [own[model.labels_ == k].mean(axis=0) for k in range(3)]
            np.testing.assert_allclose(means, model.cluster_centers_, atol=1e-8)


def test_regions_and_certain_rows() -> None:
    rows = CENTRES[np.arange(36) % 3] + 0.3 * np.random.default_rng(5).normal(size=(36, 2))
    model = FederatedKMeans(3, random_state=0, gap=1e-5).fit(rows)
    regions = model.centroid_regions_
    assert regions is not None
    assert regions.shape == (3, 2, 2)
    assert np.all(regions[:, 0] <= model.cluster_centers_)
    assert np.all(model.cluster_centers_ <= regions[:, 1])
    assert model.regions_tolerance_ >= 0.0
    assert model.certain_.shape == (36,)
    assert model.certain_.mean() > 0.9
    for k in range(3):  # certain of their own cluster wherever in the regions the centroids lie
        corners = [regions[k, side, [0, 1]] for side in (0, 1)]
        for corner in corners:
            moved = model.cluster_centers_.copy()
            moved[k] = corner
            nearest = ((rows[:, None] - moved[None]) ** 2).sum(axis=2).argmin(axis=1)
            np.testing.assert_array_equal(nearest[model.certain_], model.labels_[model.certain_])


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1))
def test_regions_hold_every_optimal_clustering(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(8, 2)) + 3.0 * rng.integers(0, 2, size=(8, 1))
    fitted = FederatedKMeans(2, random_state=0, gap=1e-6).fit(rows)
    best, clusterings = np.inf, []
    for labels in itertools.product(range(2), repeat=8):
        chosen = np.array(labels)
        if len(set(labels)) < 2:
            continue
        means = np.array([rows[chosen == k].mean(axis=0) for k in range(2)])
        cost = float(((rows - means[chosen]) ** 2).sum())
        if cost < best * (1 - 1e-12):
            best, clusterings = cost, []
        if cost <= best * (1 + 1e-12):
            clusterings.append((means, chosen))
    if fitted.centroid_regions_ is None:
        assert not fitted.certain_.any()
        return
    for means, chosen in clusterings:
        low, high = fitted.centroid_regions_[:, 0], fitted.centroid_regions_[:, 1]
        homes = [np.flatnonzero(np.all((low <= m) & (m <= high), axis=1)) for m in means]
        assert sorted(k for home in homes for k in home) == [0, 1]
        named = np.array([home[0] for home in homes])[chosen]
        np.testing.assert_array_equal(named[fitted.certain_], fitted.labels_[fitted.certain_])


def test_what_is_not_proven_is_said() -> None:
    rows = np.random.default_rng(2).normal(size=(300, 6))
    with pytest.warns(NotCertifiedWarning, match=r"is not proven: .* is left \(time_limit\); allow more time"):
        fitted = FederatedKMeans(5, gap=0.0, time_limit=0.05, random_state=0).fit(rows)
    assert not fitted.certified_
    assert fitted.stop_reason_ == "time_limit"
    assert fitted.lower_bound_ <= fitted.inertia_


@pytest.mark.parametrize("name", ["solver", "topology", "n_jobs", "symmetry"])
def test_parameters_of_the_past_are_gone(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        FederatedKMeans(3, **{name: 1})


def test_the_papers_methods_still_answer() -> None:
    paper = FederatedKMeans(2, method="proximal", gap=0.5, time_limit=10.0, random_state=0)
    fitted = paper.fit(ROWS[:12], groups=SITES[:12])
    assert fitted.certificate_ is None
    assert fitted.centroid_regions_ is None
    assert fitted.lower_bound_ <= least_cost(ROWS[:12], 2) <= fitted.inertia_ * (1 + 1e-12)


def test_a_mapping_of_tables_is_the_same_as_groups(model: FederatedKMeans) -> None:
    tables = {site: ROWS[site == SITES] for site in ("north", "south", "west")}
    other = FederatedKMeans(3, random_state=0).fit(tables)
    np.testing.assert_array_equal(other.cluster_centers_, model.cluster_centers_)
    for site, table in tables.items():
        np.testing.assert_array_equal(other.predict(tables)[site], model.predict(table))
        np.testing.assert_array_equal(other.transform(tables)[site], model.transform(table))
    np.testing.assert_array_equal(other.labels_, np.concatenate([model.predict(t) for t in tables.values()]))
    assert other.score(tables) == pytest.approx(model.score(ROWS))


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame(ROWS, columns=["a", "b"]),
        pl.DataFrame(ROWS, schema=["a", "b"]),
        pa.table({"a": ROWS[:, 0], "b": ROWS[:, 1]}),
    ],
    ids=["pandas", "polars", "arrow"],
)
def test_frames(frame: object, model: FederatedKMeans) -> None:
    fitted = FederatedKMeans(3, random_state=0).fit(frame, groups=SITES)
    assert list(fitted.feature_names_in_) == ["a", "b"]
    np.testing.assert_array_equal(fitted.cluster_centers_, model.cluster_centers_)
    np.testing.assert_array_equal(fitted.predict(frame), model.labels_)
    both = FederatedKMeans(3, random_state=0).fit({"x": frame, "y": frame})
    assert list(both.feature_names_in_) == ["a", "b"]


def test_weights_are_copies() -> None:
    rows = ROWS[:12]
    weights = 1.0 + np.arange(12) % 3
    left = FederatedKMeans(2, random_state=0).fit(rows, groups=SITES[:12], sample_weight=weights)
    copies = np.repeat(np.arange(12), weights.astype(int))
    right = FederatedKMeans(2, random_state=0).fit(rows[copies], groups=SITES[copies])
    np.testing.assert_allclose(left.cluster_centers_, right.cluster_centers_, rtol=1e-9)
    assert left.inertia_ == pytest.approx(right.inertia_)
    mapped = FederatedKMeans(2, random_state=0).fit({"a": rows}, sample_weight={"a": weights})
    np.testing.assert_allclose(mapped.cluster_centers_, right.cluster_centers_, rtol=1e-9)


def test_pipeline_and_grid_search() -> None:
    pipeline = make_pipeline(StandardScaler(), PCA(2), FederatedKMeans(2, random_state=0))
    pipeline.fit(ROWS, federatedkmeans__groups=SITES)
    assert pipeline[-1].certified_
    assert pipeline.predict(ROWS).shape == (36,)
    search = GridSearchCV(FederatedKMeans(random_state=0), {"n_clusters": [1, 2]}, cv=2).fit(ROWS)
    assert search.best_params_ == {"n_clusters": 2}
    with sklearn.config_context(enable_metadata_routing=True):
        routed = FederatedKMeans(random_state=0).set_fit_request(groups=True).set_score_request()
        search = GridSearchCV(routed, {"n_clusters": [1, 2]}, cv=GroupKFold(3)).fit(ROWS, groups=SITES)
        assert set(search.best_estimator_.node_labels_) == {"north", "south", "west"}


def test_to_sklearn(model: FederatedKMeans) -> None:
    plain = model.to_sklearn()
    assert type(plain) is KMeans
    more = np.random.default_rng(1).normal(size=(200, 2)) * 4
    np.testing.assert_array_equal(plain.predict(more), model.predict(more))
    np.testing.assert_array_equal(plain.cluster_centers_, model.cluster_centers_)
    assert plain.inertia_ == model.inertia_


def test_save_and_load_without_pickle(model: FederatedKMeans, tmp_path: Path) -> None:
    named = FederatedKMeans(2, random_state=0, init=[[0, 0], [3, 3]]).fit(pd.DataFrame(ROWS[:9], columns=["a", "b"]))
    for fitted in (model, named):
        fitted.save(tmp_path / "model.json")
        loaded = FederatedKMeans.load(tmp_path / "model.json")
        np.testing.assert_array_equal(loaded.cluster_centers_, fitted.cluster_centers_)
        assert loaded.lower_bound_ == fitted.lower_bound_
        assert loaded.gap_ == fitted.gap_
        assert loaded.certified_ == fitted.certified_
        assert loaded.n_clusters == fitted.n_clusters
        assert (loaded.centroid_regions_ is None) == (fitted.centroid_regions_ is None)
        if fitted.centroid_regions_ is not None:
            np.testing.assert_array_equal(loaded.centroid_regions_, fitted.centroid_regions_)
        assert len(loaded.history_) == len(fitted.history_)
        np.testing.assert_array_equal(loaded.to_sklearn().cluster_centers_, fitted.cluster_centers_)
    assert list(loaded.feature_names_in_) == ["a", "b"]
    np.testing.assert_array_equal(loaded.init, [[0, 0], [3, 3]])
    # no row of a node is in the file
    text = (tmp_path / "model.json").read_text()
    assert not any(repr(float(value)) in text for value in ROWS[:9].ravel())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("not json", "cannot read a model from"),
        ("[]", "is not a consentroid-model file"),
        ('{"format": "consentroid-model", "version": 99}', "of version 2"),
        ('{"format": "consentroid-model", "version": 1, "params": {}}', "of version 2"),
        ('{"format": "consentroid-model", "version": 2, "params": {}}', "not a complete"),
        ('{"format": "consentroid-model", "version": 2, "params": {"evil": 1}}', "not a complete"),
    ],
)
def test_files_that_are_no_models(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "model.json").write_text(content)
    with pytest.raises(InvalidInput, match=message):
        FederatedKMeans.load(tmp_path / "model.json")


def test_a_model_with_missing_centroids_is_refused(model: FederatedKMeans, tmp_path: Path) -> None:
    model.save(tmp_path / "model.json")
    document = json.loads((tmp_path / "model.json").read_text())
    document["cluster_centers_"].pop()
    (tmp_path / "model.json").write_text(json.dumps(document))
    with pytest.raises(InvalidInput, match=r"centroids of shape \(2, 2\)"):
        FederatedKMeans.load(tmp_path / "model.json")


def with_value(value: object) -> np.ndarray:
    rows = ROWS.astype(object)
    rows[3, 1] = value
    return rows


@pytest.mark.parametrize(
    ("x", "arguments", "message"),
    [
        (with_value(np.nan).astype(float), {}, "NaN"),
        (with_value("tall"), {}, "tall"),
        (pd.DataFrame(with_value("tall"), columns=["a", "b"]), {}, r"column 'b' is not numeric \('tall' in row 4\)"),
        ({"a": ROWS, "b": np.empty((0, 2))}, {}, "node 'b' has no rows; leave it out"),
        ({"a": ROWS, "b": ROWS[:, :1]}, {}, "node 'b' has 1 features, node 'a' has 2"),
        ({"a": ROWS}, {"groups": SITES}, "leave groups out"),
        ({"a": ROWS}, {"sample_weight": {"z": [1]}}, "unknown node 'z'; there are 'a'"),
        ({"a": ROWS}, {"sample_weight": np.ones(36)}, "as a mapping from node"),
        ({"a": ROWS}, {"sample_weight": {"a": np.ones(3)}}, "node 'a': 3 weights for 36 rows"),
        ({}, {}, "at least one node"),
        (ROWS, {"groups": SITES[:5]}, "groups has 5 names for 36 rows"),
        (ROWS, {"groups": [None, *SITES[1:]]}, "names no node for row 1"),
        (ROWS, {"sample_weight": -np.ones(36)}, "Negative values"),
        (ROWS, {"sample_weight": np.zeros(36)}, "at least one"),
        (np.zeros((5, 2)), {}, "n_clusters=3 exceeds the 1 distinct rows"),
        (ROWS[:2], {}, "n_samples=2 should be >= n_clusters=3"),
    ],
)
def test_bad_input(x: object, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FederatedKMeans(3).fit(x, **arguments)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_clusters": 0}, "n_clusters=0 must be an integer of at least 1"),
        ({"method": "magic"}, "unknown method 'magic'"),
        ({"gap": 2.0}, "gap=2.0 must be a fraction"),
        ({"time_limit": -1.0}, "time_limit=-1.0 must be a positive number"),
        ({"init": [[0.0, 0.0]]}, r"init has shape \(1, 2\); give finite centroids of shape \(3, 2\)"),
    ],
)
def test_bad_parameters(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        FederatedKMeans(**parameters).fit(ROWS)


def test_certify_somebody_elses_clustering(model: FederatedKMeans) -> None:
    good = KMeans(3, n_init=20, random_state=0).fit(ROWS)
    verdict = certify(good, ROWS)
    assert verdict.certified
    assert verdict.cost == pytest.approx(good.inertia_)
    assert verdict.lower_bound <= model.inertia_
    assert not certify(good, ROWS, SITES).improvable or verdict.gap <= 1e-4


def test_certify_finds_out_a_bad_clustering(model: FederatedKMeans) -> None:
    bad = np.array([[0.0, 0.0], [0.1, 0.1], [100.0, 100.0]])
    verdict = certify(bad, ROWS, SITES)
    assert not verdict.certified
    assert verdict.improvable
    assert verdict.best_cost == pytest.approx(model.inertia_, rel=1e-4)
    assert verdict.gap >= 1 - model.inertia_ / verdict.cost - 1e-9


def test_certify_bad_requests() -> None:
    with pytest.raises(InvalidInput, match="KMeans has no cluster_centers_; fit it first"):
        certify(KMeans(3), ROWS)
    with pytest.raises(InvalidInput, match="the centroids have 1 features, the rows have 2"):
        certify([[0.0], [1.0]], ROWS)
    with pytest.raises(InvalidInput, match="virtual_nodes belong"):
        certify(CENTRES, ROWS, SITES, virtual_nodes=2)
    with pytest.raises(InvalidInput, match="finite table of shape"):
        certify([[np.nan]], ROWS)
