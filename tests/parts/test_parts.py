"""A site as a sum of parts: the same answers as one process, here and on two worker processes of dask."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from consentroid.core.errors import InvalidInput
from consentroid.fitting import fit, run
from consentroid.many_files import fit_files
from consentroid.parts.files import deal
from consentroid.parts.site import Part, SiteOfParts
from consentroid.protocol.messages import (
    Describe,
    Description,
    Failure,
    ImprovePairs,
    PairBound,
    PriceQuery,
    PriceReply,
    Query,
)
from consentroid.site.pairs.site import NO_FILE
from consentroid.transport.inprocess import InProcessTransport
from consentroid.verify import verify

pa = pytest.importorskip("pyarrow")


def table(n: int = 900) -> np.ndarray:
    random = np.random.default_rng(4)
    centres = np.array([[0.0, 0.0], [3.0, 1.0], [1.0, 4.0]])
    return centres[random.integers(0, 3, n)] + random.normal(size=(n, 2)) * 0.5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """900 rows with weights in five Parquet files of different sizes."""
    from pyarrow import parquet

    rows, where = table(), tmp_path / "rows"
    where.mkdir()
    for i, piece in enumerate(np.split(np.arange(900), [100, 350, 360, 700])):
        columns = {"a": rows[piece, 0], "b": rows[piece, 1], "mass": 1.0 + piece % 3}
        parquet.write_table(pa.table(columns), where / f"part-{i}.parquet")
    return where


def local(folder: Path, n_parts: int, price_file: Path | None = None) -> SiteOfParts:
    portions = deal("all", str(folder), n_parts, ["a", "b"], "mass")
    return SiteOfParts("all", [Part(portion, threads=1) for portion in portions], price_file)


def test_files_are_dealt_in_order_and_all_of_them(folder: Path) -> None:
    every = sorted(str(file) for file in folder.iterdir())
    for n in (1, 2, 3, 5, 9):
        portions = deal("all", str(folder / "*.parquet"), n, None, None)
        assert [file for portion in portions for file in portion.files] == every
        assert len(portions) <= n
    with pytest.raises(InvalidInput, match="names no file"):
        deal("all", str(folder / "*.csv"), 2, None, None)


def test_pairs_of_rows_in_parts_have_no_prices(folder: Path) -> None:
    site = local(folder, 2)
    site.answered(Describe(3))
    for keep in (False, True):
        reply = site.answered(PriceQuery(2, pairs=ImprovePairs(3, 30, keep=keep)))
        assert isinstance(reply, PriceReply)
        assert reply.pairs == PairBound(0.0, NO_FILE if keep else "")


@pytest.mark.parametrize("n_parts", [1, 2, 4])
def test_parts_answer_as_one_site(folder: Path, tmp_path: Path, n_parts: int) -> None:
    rows, weights = table(), 1.0 + np.arange(900) % 3
    whole = fit({"all": rows}, 3, weights={"all": weights}, gap=1e-5, regions=False)
    site = local(folder, n_parts, tmp_path / "prices.npz")
    assert min(n_parts, 3) <= len(site.parts) <= n_parts
    result = run(InProcessTransport([site], 1), 3, gap=1e-5, regions=False)
    assert result.certified
    assert result.upper_bound == pytest.approx(whole.upper_bound, rel=1e-9)
    assert result.lower_bound <= whole.upper_bound
    np.testing.assert_allclose(result.centroids, whole.centroids, rtol=1e-9)
    report = verify(result.certificate, {"all": rows}, {"all": tmp_path / "prices.npz"}, {"all": weights})
    assert report.verified
    assert report.lower_bound is not None
    assert report.lower_bound == pytest.approx(result.lower_bound, rel=1e-9)


def test_a_description_is_that_of_all_rows(folder: Path) -> None:
    rows = table()
    told = local(folder, 3).answered(Describe(3))
    assert isinstance(told, Description)
    assert (told.n_points, told.n_distinct, told.features) == (900, 3, ("a", "b"))
    np.testing.assert_array_equal([told.lower, told.upper], [rows.min(axis=0), rows.max(axis=0)])
    outside = local(folder, 3).answered(Describe(3, np.zeros(2), np.ones(2)))
    assert isinstance(outside, Failure)
    assert outside.final
    assert "outside the domain" in outside.reason


def test_the_papers_questions_are_refused(folder: Path) -> None:
    answer = local(folder, 2).answered(Query(1))
    assert isinstance(answer, Failure)


def test_two_worker_processes_prove_what_one_process_proves(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    options = {"gap": 1e-4, "regions": False}
    result = fit_files(
        {"all": str(folder / "*.parquet")}, 3, columns=["a", "b"], weights="mass", workers=2, folder=tmp_path, **options
    )
    assert result.certified
    here = run(InProcessTransport([local(folder, 2)], 1), 3, **options)
    np.testing.assert_allclose(result.centroids, here.centroids, rtol=1e-12)
    assert result.upper_bound == pytest.approx(here.upper_bound, rel=1e-12)
    weights = 1.0 + np.arange(900) % 3
    assert verify(result.certificate, {"all": table()}, {"all": tmp_path / "prices-all.npz"}, {"all": weights}).verified


def test_a_missing_package_is_named_with_its_remedy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InvalidInput, match=r"pip install 'consentroid\[dask\]'"):
        fit_files({"all": str(folder)}, 3, workers=2)


def test_the_command_reads_a_folder_in_parts(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    from typer.testing import CliRunner

    from consentroid.cli.main import app

    where = tmp_path / "run"
    begin = ["fit", "--node", f"all={folder}", "-k", "3", "--columns", "a,b", "--weights", "mass", "--out", str(where)]
    told = CliRunner().invoke(app, [*begin, "--workers", "2", "--json"])
    assert told.exit_code == 0, told.output
    check = ["verify", str(where / "certificate.json"), "--node", f"all={folder}/*.parquet", "--weights", "mass"]
    assert CliRunner().invoke(app, check).exit_code == 0
    refused = CliRunner().invoke(app, [*begin, "--workers", "2", "--scale", "standard"])
    assert refused.exit_code != 0
