"""Sums over nodes equal scikit-learn on pooled rows; a schema that differs is named by node and column."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from consentroid.core.errors import InvalidInput
from consentroid.data.preprocessing import (
    Affine,
    ColumnMoments,
    Extremes,
    Recipe,
    Schema,
    aligned,
    check_schema,
    impute,
    prepare,
    scale_notice,
)
from consentroid.data.tables import Table


@st.composite
def nodes(draw: st.DrawFn) -> list[np.ndarray]:
    """Unequal nodes, far from zero in some features, constant in others."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_features = draw(st.integers(1, 4))
    sizes = draw(st.lists(st.integers(1, 30), min_size=1, max_size=5))
    offset = rng.choice([0.0, 3.0, -250.0], n_features)
    spread = rng.choice([0.0, 1.0, 40.0], n_features)
    return [offset + spread * (rng.normal(size=(size, n_features)) + rng.normal()) for size in sizes]


@given(nodes())
def test_standardisation_equals_pooled(parts: list[np.ndarray]) -> None:
    pooled = np.concatenate(parts)
    affine = Affine.standardising(ColumnMoments.combined(map(ColumnMoments.of, parts)))
    scaler = StandardScaler().fit(pooled)
    np.testing.assert_allclose(affine.offset, scaler.mean_, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(affine.scale, scaler.scale_, rtol=1e-12)
    np.testing.assert_allclose(affine.transform(pooled), scaler.transform(pooled), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(affine.inverse_transform(affine.transform(pooled)), pooled, rtol=1e-12, atol=1e-12)


@given(nodes(), st.integers(0, 1000))
def test_imputation_and_weights_equal_pooled(parts: list[np.ndarray], seed: int) -> None:
    rng = np.random.default_rng(seed)
    holed = [np.where(rng.random(part.shape) < 0.3, np.nan, part) for part in parts]
    holed[0][0] = parts[0][0]  # every feature is known somewhere
    pooled = np.concatenate(holed)
    moments = ColumnMoments.combined(map(ColumnMoments.of, holed))
    pipeline = make_pipeline(SimpleImputer(), StandardScaler()).fit(pooled)
    np.testing.assert_allclose(moments.means, pipeline[0].statistics_, rtol=1e-12, atol=1e-12)
    imputed = impute(pooled, moments.means)
    ours = Affine.standardising(moments.imputed())
    np.testing.assert_allclose(ours.transform(imputed), pipeline.transform(pooled), rtol=1e-11, atol=1e-12)

    weights = [rng.integers(1, 4, len(part)).astype(float) for part in parts]
    weighted = ColumnMoments.combined(map(ColumnMoments.of, parts, weights))
    scaler = StandardScaler().fit(np.concatenate(parts), sample_weight=np.concatenate(weights))
    np.testing.assert_allclose(weighted.means, scaler.mean_, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(weighted.variances, scaler.var_, rtol=1e-11, atol=1e-12)


@given(nodes())
def test_unit_box_equals_pooled(parts: list[np.ndarray]) -> None:
    pooled = np.concatenate(parts)
    extremes = Extremes.combined(map(Extremes.of, parts))
    np.testing.assert_array_equal(extremes.domain().lower, pooled.min(axis=0))
    np.testing.assert_array_equal(extremes.domain().upper, pooled.max(axis=0))
    unit = Affine.to_unit_box(extremes).transform(pooled)
    np.testing.assert_allclose(unit, MinMaxScaler().fit_transform(pooled), rtol=1e-12, atol=1e-12)


def test_values_far_from_zero_keep_their_digits() -> None:
    parts = [1e8 + np.arange(7.0)[:, None], 1e8 + np.arange(3.0)[:, None] / 8]
    moments = ColumnMoments.combined(map(ColumnMoments.of, parts))
    exact = np.concatenate(parts) - 1e8
    np.testing.assert_allclose(moments.variances, exact.var(axis=0), rtol=1e-12)


def test_a_feature_unknown_at_the_first_node() -> None:
    parts = [np.array([[1.0, np.nan], [3.0, np.nan]]), np.array([[2.0, 1e6], [4.0, 1e6 + 2]])]
    moments = ColumnMoments.combined(map(ColumnMoments.of, parts))
    np.testing.assert_array_equal(moments.means, [2.5, 1e6 + 1])
    np.testing.assert_array_equal(moments.variances, [1.25, 1.0])


def frame(**columns: list[float]) -> pd.DataFrame:
    return pd.DataFrame(columns)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (frame(a=[1.0]), "node 'south' lacks column 'b' of node 'north'"),
        (frame(a=[1.0], b=[2.0], c=[3.0]), "node 'south' has a column 'c' that node 'north' lacks"),
        (frame(a=[1.0], b=[True]), "node 'south': column 'b' is boolean, at node 'north' it is number"),
        (frame(a=[1.0], b=["high"]), r"node 'south': column 'b' is not numeric \('high'"),
        (frame(a=[1.0], b=[np.nan]), "node 'south': row 1 has a missing value"),
    ],
)
def test_a_schema_that_differs_is_named(other: pd.DataFrame, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        prepare({"north": frame(a=[0.0], b=[1.0]), "south": other})


def test_prepare_equals_the_pooled_pipeline() -> None:
    rng = np.random.default_rng(3)
    tables = {name: frame(a=rng.normal(5, 2, n), b=rng.normal(size=n)) for name, n in (("x", 9), ("y", 4))}
    tables["y"].iloc[2, 0] = np.nan
    pooled = pd.concat(tables.values())
    prepared = prepare(tables, imputation=True)
    expected = make_pipeline(SimpleImputer(), StandardScaler()).fit_transform(pooled)
    np.testing.assert_allclose(np.concatenate(list(prepared.rows.values())), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(prepared.domain.lower, expected.min(axis=0), rtol=1e-12)
    for name, table in prepared.rows.items():
        prepared.domain.check(name, table)
    unit = prepare(tables, imputation=True, scale="minmax", columns=["b"])
    np.testing.assert_array_equal(unit.domain.upper, [1.0])
    raw = prepare({"x": tables["x"]}, scale="none")
    np.testing.assert_array_equal(raw.rows["x"], tables["x"].to_numpy())


def test_bad_requests() -> None:
    with pytest.raises(InvalidInput, match="unknown scale 'log'; choose"):
        prepare({"x": frame(a=[1.0])}, scale="log")
    with pytest.raises(InvalidInput, match="column 'a' has no value at any node"):
        prepare({"x": frame(a=[np.nan])}, imputation=True)
    with pytest.raises(InvalidInput, match="feature 0 has no value"):
        Extremes.of(np.array([[np.nan]])).domain()
    assert check_schema({"x": Schema(("a",), ("number",))}).names == ("a",)
    with pytest.raises(InvalidInput, match="at least one node"):
        check_schema({})


def test_another_order_of_the_same_columns_is_accepted_and_told() -> None:
    prepared = prepare({"north": frame(a=[0.0], b=[1.0]), "south": frame(b=[5.0], a=[2.0])}, scale="none")
    np.testing.assert_array_equal(prepared.rows["south"], [[2.0, 5.0]])
    assert prepared.notices == (
        "node 'south' has its columns in another order; they are taken in the order of node 'north'",
    )
    tables = {"x": Table(("a", "b"), np.zeros((1, 2)))}
    assert aligned(tables) == tables
    with pytest.raises(InvalidInput, match="has 'b' as column 1 where node 'n' has 'a'"):
        check_schema({"n": Schema(("a", "b"), ("number",) * 2), "s": Schema(("b", "a"), ("number",) * 2)})


def test_features_on_very_different_scales_are_told() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 3)) * [1.0, 0.0, 800.0] + [0.0, 1e6, 0.0]
    said = scale_notice(["bill", "constant", "mass"], ColumnMoments.of(rows))
    assert said is not None
    assert said.startswith("'mass' varies 8")
    assert "--scale standard" in said
    assert scale_notice(["a", "b"], ColumnMoments.of(rng.normal(size=(500, 2)) * [1.0, 10.0])) is None
    assert scale_notice(["a", "b"], ColumnMoments.of(np.ones((5, 2)))) is None


def test_what_was_done_can_be_done_to_other_rows() -> None:
    table = frame(a=[1.0, 2.0, 6.0], b=[0.0, np.nan, 4.0])
    prepared = prepare({"x": table}, imputation=True)
    again = Recipe.from_dict(prepared.recipe.as_dict())
    np.testing.assert_array_equal(again.apply(table), prepared.rows["x"])
    for broken in ({}, {"offset": [0], "factor": [0], "fill": None}, {"offset": "x", "factor": [1], "fill": None}):
        with pytest.raises(InvalidInput, match=r"the scaling in result\.json"):
            Recipe.from_dict(broken)
