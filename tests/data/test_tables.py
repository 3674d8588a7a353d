"""Every way in gives the same numbers; every bad table gives one sentence with the place and the remedy."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import feather

from consentroid.core.errors import InvalidInput
from consentroid.data.datasets import grunfeld, lung, penguins, rand_hie, states
from consentroid.data.tables import Table, as_table, read_table

ROWS = np.array([[1.0, 0.25], [2.5, -3.0], [4.0, 1e-3]])
NAMES = ("mass", "length")


def written(folder: Path) -> list[Path]:
    frame = pd.DataFrame(ROWS, columns=list(NAMES))
    frame.to_csv(folder / "a.csv", index=False)
    frame.to_csv(folder / "b.tsv", index=False, sep="\t")
    frame.to_csv(folder / "c.txt", index=False, sep=";")
    frame.to_parquet(folder / "d.parquet")
    feather.write_feather(pa.table({n: ROWS[:, d] for d, n in enumerate(NAMES)}), str(folder / "e.feather"))
    np.savez(folder / "f.npz", rows=ROWS, names=np.array(NAMES))
    return sorted(folder.iterdir())


def test_every_file_type_gives_the_same_table(tmp_path: Path) -> None:
    for path in written(tmp_path):
        table = read_table(path)
        assert table.names == NAMES, path
        np.testing.assert_array_equal(table.rows, ROWS)


def test_columns_are_selected_in_the_order_asked_for(tmp_path: Path) -> None:
    for path in written(tmp_path):
        table = read_table(path, ["length", "mass"])
        assert table.names == ("length", "mass")
        np.testing.assert_array_equal(table.rows, ROWS[:, ::-1])


def test_arrays_and_headerless_csv_get_numbered_names(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ROWS)
    np.savez(tmp_path / "b.npz", ROWS)
    np.savetxt(tmp_path / "c.csv", ROWS, delimiter=",")
    for path in sorted(tmp_path.iterdir()):
        table = read_table(path)
        assert table.names == ("x0", "x1")
        np.testing.assert_array_equal(table.rows, ROWS)


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame(ROWS, columns=list(NAMES)),
        pl.DataFrame(ROWS, schema=list(NAMES)),
        pa.table({n: ROWS[:, d] for d, n in enumerate(NAMES)}),
        Table(NAMES, ROWS),
    ],
    ids=["pandas", "polars", "arrow", "table"],
)
def test_frames(frame: object) -> None:
    table = as_table(frame)
    assert table.names == NAMES
    np.testing.assert_array_equal(table.rows, ROWS)


def test_booleans_are_numbers_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,sick\n1,true\n2,False\n")
    table = read_table(tmp_path / "a.csv")
    assert table.kinds == ("number", "boolean")
    np.testing.assert_array_equal(table.rows, [[1, 1], [2, 0]])
    assert as_table(pd.DataFrame({"x": [1, 2], "sick": [True, False]})).kinds == ("number", "boolean")


def test_missing_values_pass_only_when_allowed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,NA\n2,3\n,4\n")
    with pytest.raises(InvalidInput, match=r"row 1 has a missing value \(NaN\) in column 'y'; impute"):
        read_table(tmp_path / "a.csv")
    table = read_table(tmp_path / "a.csv", missing=True)
    np.testing.assert_array_equal(table.rows, [[1, np.nan], [2, 3], [np.nan, 4]])
    for frame in (pl.DataFrame({"x": [1, None]}), pd.DataFrame({"x": [1.0, None]}), pa.table({"x": [1, None]})):
        np.testing.assert_array_equal(as_table(frame, missing=True).rows, [[1], [np.nan]])


@pytest.mark.parametrize(
    ("content", "columns", "message"),
    [
        ("x,species\n1,Adelie\n", None, r"column 'species' is not numeric \('Adelie' in row 1\); select numeric"),
        ("x,y\n1,2\n", ["z"], r"has no column 'z'; it has 'x', 'y'"),
        ("x,y\n1,2,3\n", None, r"row 1 has 3 cells, the header has 2; the separator .* a comma, .* --separator"),
        ("x,y\n1,2\n\n3,z\n", None, r"'z' in row 3"),
        ("x,,y\n1,2,3\n", None, r"column 2 has no name; give it one"),
        ("x,a[b]\n1,2\n", None, r"the column name 'a\[b\]' has the character '\['; rename it"),
        ("x,a\x1b\n1,2\n", None, r"the column name 'a\\x1b' has the character"),
        ("x\n1_000\n", None, r"column 'x' is not numeric \('1_000' in row 1\)"),
        ("x,y\n", None, r"has no rows; leave it out"),
        ("", None, r"is empty"),
        ("x,x\n1,2\n", None, r"two columns called 'x'; rename one"),
        ("x\n1\ntrue\n", None, r"mixes true/false with numbers"),
        ("x\ninf\n", None, r"row 1 has infinity in column 'x'; replace it"),
    ],
)
def test_bad_csv(tmp_path: Path, content: str, columns: list[str] | None, message: str) -> None:
    (tmp_path / "bad.csv").write_text(content)
    with pytest.raises(InvalidInput, match=message) as caught:
        read_table(tmp_path / "bad.csv", columns)
    assert "bad.csv" in str(caught.value)


def test_bad_files(tmp_path: Path) -> None:
    for name in ("a.parquet", "a.npy", "a.npz", "a.feather", "a.csv.gz"):
        (tmp_path / name).write_bytes(b"this is not it")
        with pytest.raises(InvalidInput, match=name):
            read_table(tmp_path / name)
    (tmp_path / "a.xlsx").write_bytes(b"")
    with pytest.raises(InvalidInput, match=r"file type must be one of .*\.csv"):
        read_table(tmp_path / "a.xlsx")
    with pytest.raises(InvalidInput, match="no such file"):
        read_table(tmp_path / "absent.csv")
    (tmp_path / "latin.csv").write_bytes("größe\n1\n".encode("latin-1"))
    with pytest.raises(InvalidInput, match="UTF-8"):
        read_table(tmp_path / "latin.csv")
    np.savez(tmp_path / "two.npz", a=ROWS, b=ROWS)
    with pytest.raises(InvalidInput, match="call the array of rows 'rows'"):
        read_table(tmp_path / "two.npz")


def test_bad_frames() -> None:
    with pytest.raises(InvalidInput, match=r"column 'island' is not numeric \('Dream'\)"):
        as_table(pl.DataFrame({"x": [1.0], "island": ["Dream"]}))
    with pytest.raises(InvalidInput, match="column 'island' is not numeric"):
        as_table(pd.DataFrame({"island": pd.Categorical(["Dream"])}))
    with pytest.raises(InvalidInput, match=r"1 dimension"):
        as_table([1.0, 2.0])


@pytest.mark.parametrize(
    ("content", "names", "notice"),
    [
        (",x,y\n0,1,2\n1,3,4\n", ("x", "y"), "column '' is a row index and is left out"),
        ("Unnamed: 0,x,y\n0,1,2\n1,3,4\n", ("x", "y"), "column 'Unnamed: 0' is a row index"),
        ("x,y\n1,2\n\n,\n3,4\n\n\n", ("x", "y"), "2 blank rows are left out"),
        ("x;y\n1,0;2\n3,0;4\n", ("x", "y"), "commas are read as decimal signs, as in '1,0'; --decimal . says"),
        ("x;y;\n1;2;\n3;4;\n", ("x", "y"), None),
        ("x\ty\n1\t2\n3\t4\n", ("x", "y"), None),
        ("1,0;2,0\n3,0;4,0\n", ("x0", "x1"), "commas are read as decimal signs"),
        ("sepal length (cm),y\n1,2\n3,4\n", ("sepal length (cm)", "y"), None),
    ],
)
def test_text_as_people_have_it(tmp_path: Path, content: str, names: tuple[str, ...], notice: str | None) -> None:
    (tmp_path / "a.csv").write_text(content)
    with gzip.open(tmp_path / "a.csv.gz", "wt") as file:
        file.write(content)
    for name in ("a.csv", "a.csv.gz"):
        table = read_table(tmp_path / name)
        assert table.names == names
        np.testing.assert_array_equal(table.rows, [[1, 2], [3, 4]])
        assert len(table.notices) == (notice is not None)
        assert notice is None or notice in table.notices[0]


def test_a_saved_index_in_parquet_is_left_out_unless_asked_for(tmp_path: Path) -> None:
    pd.DataFrame(ROWS, columns=list(NAMES), index=[7, 5, 3]).to_parquet(tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet")
    assert table.names == NAMES
    assert "column '__index_level_0__' is a row index and is left out" in table.notices[0]
    asked = read_table(tmp_path / "a.parquet", ["__index_level_0__", "mass"])
    np.testing.assert_array_equal(asked.rows[:, 0], [7, 5, 3])
    assert asked.notices == ()


def test_separator_and_decimal_can_be_given(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x;y\n1,000;2.5\n")
    with pytest.raises(InvalidInput, match=r"has both '1,000' and '2.5'; say which .* --decimal"):
        read_table(path)
    path.write_text("x|y\n1,5|2\n")
    np.testing.assert_array_equal(read_table(path, separator="bar", decimal=",").rows, [[1.5, 2]])
    path.write_text("x;y\n1,5;2\n")
    with pytest.raises(InvalidInput, match=r"column 'x' is not numeric \('1,5' in row 1\)"):
        read_table(path, decimal=".")
    with pytest.raises(InvalidInput, match="unknown separator '&'; choose one of comma, semicolon, tab"):
        read_table(path, separator="&")
    with pytest.raises(InvalidInput, match="cannot both separate columns and mark decimals"):
        read_table(path, separator="comma", decimal=",")
    with pytest.raises(InvalidInput, match="unknown decimal sign"):
        read_table(path, decimal="x")


def test_data_sets_with_natural_sites() -> None:
    birds, people, patients = penguins(), rand_hie(year=1), lung()
    assert {node: table.n_rows for node, table in birds.tables.items()} == {
        "Biscoe": 167,
        "Dream": 124,
        "Torgersen": 51,
    }
    assert list(people.tables) == [f"site {i}" for i in range(1, 7)]
    assert sum(table.n_rows for table in rand_hie().tables.values()) == 20190
    assert len(patients.tables) == 18
    assert sum(table.n_rows for table in patients.tables.values()) == 227
    assert np.isnan(np.concatenate(list(patients.rows.values()))).any()
    assert not np.isnan(np.concatenate(list(birds.rows.values()))).any()
    assert [table.n_rows for table in grunfeld().tables.values()] == [20] * 11
    regions, names = states()
    assert {name: len(own) for name, own in names.items()} == {"Midwest": 12, "Northeast": 9, "South": 17, "West": 13}
    assert {name: table.n_rows for name, table in regions.tables.items()} == {n: len(s) for n, s in names.items()}
    assert "District of Columbia" in names["South"]
    assert birds.features == ("bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g")


def test_data_sets_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="no column 'wings'; it has island"):
        penguins(["wings"])
    with pytest.raises(InvalidInput, match=r"column 'species' of .* is not numeric \('Adelie'\)"):
        penguins(["species"])
    with pytest.raises(InvalidInput, match="has no rows with"):
        rand_hie(year=9)
    monkeypatch.setattr("importlib.util.find_spec", lambda package: None)
    with pytest.raises(InvalidInput, match="pip install lifelines"):
        lung()
