"""Outcomes of `verify`: verified, incomplete, refuted; and what it must not depend on."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import consentroid.verify
from clocks import Clock
from consentroid.certificate.document import BoxTree, CellProof, Certificate, LeafProof, price_digest
from consentroid.core.errors import CertificateInvalid, InvalidInput
from consentroid.verify import checking, verify
from reference_prover import prove
from small_problems import Small, tight_problem


@pytest.fixture(scope="module")
def small() -> Small:
    return tight_problem(1, branches=1)


def saved(small: Small, folder: Path) -> dict[str, Path]:
    files = {name: folder / f"prices-{name}.npz" for name in small.prices}
    for name, path in files.items():
        np.savez(path, prices=small.prices[name])
    return files


def test_files(small: Small, tmp_path: Path) -> None:
    small.certificate.write(tmp_path / "certificate.json")
    report = verify(tmp_path / "certificate.json", small.rows, saved(small, tmp_path), small.weights)
    assert report.verified
    assert report.fingerprint == small.certificate.fingerprint


def test_rows_of_weight_zero_do_not_count(small: Small) -> None:
    rows = {name: np.vstack([x[:1] + 1000.0, x]) for name, x in small.rows.items()}
    weights = {name: np.concatenate([[0.0], w]) for name, w in small.weights.items()}
    assert verify(small.certificate, rows, small.prices, weights).verified


def test_missing_price_file_is_not_checked(small: Small, tmp_path: Path) -> None:
    files = saved(small, tmp_path)
    files["b"].unlink()
    report = verify(small.certificate, small.rows, files, small.weights)
    assert not report.verified
    assert report.finished
    assert report.lower_bound is None
    assert "no price file" in report.sites[1].reason
    assert report.unchecked == ("b",)
    with pytest.raises(InvalidInput, match="price file"):
        verify(small.certificate, small.rows, files, small.weights, require_all=True)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no archive", b"x" * 1000])
def test_spoilt_price_file_is_not_checked(small: Small, tmp_path: Path, content: bytes) -> None:
    files = saved(small, tmp_path)
    files["a"].write_bytes(content)
    report = verify(small.certificate, small.rows, files, small.weights)
    assert not report.verified
    assert "cannot be read" in report.sites[0].reason


def test_other_prices_are_not_checked(small: Small, tmp_path: Path) -> None:
    files = saved(small, tmp_path)
    np.savez(files["a"], prices=small.prices["a"] * 1.01)
    report = verify(small.certificate, small.rows, files, small.weights)
    assert not report.verified
    assert "not the one" in report.sites[0].reason


@pytest.mark.parametrize("how", ["huge", "object", "flat", "other name", "compressed bomb"])
def test_odd_price_files(small: Small, tmp_path: Path, how: str) -> None:
    files = saved(small, tmp_path)
    if how == "huge":
        np.savez(files["a"], prices=np.zeros((2000, 200)))
    elif how == "object":
        np.savez(files["a"], prices=np.array([{"a": 1}], dtype=object))
    elif how == "flat":
        np.savez(files["a"], prices=np.zeros(3))
    elif how == "other name":
        np.savez(files["a"], x=small.prices["a"])
    else:
        np.savez_compressed(files["a"], prices=np.zeros((4000, 1000)))
    report = verify(small.certificate, small.rows, files, small.weights)
    assert not report.verified
    assert report.unchecked == ("a",)


def test_no_rows_at_all(small: Small) -> None:
    report = verify(small.certificate)
    assert not report.verified
    assert report.lower_bound is None
    assert report.conditional_bound == pytest.approx(small.certificate.lower, rel=1e-9)
    assert report.unchecked == ("a", "b")


def test_require_all(small: Small) -> None:
    with pytest.raises(InvalidInput, match="rows of all sites are required; give those of b"):
        verify(small.certificate, {"a": small.rows["a"]}, small.prices, require_all=True)


def test_time_limit_leaves_it_unchecked(small: Small) -> None:
    report = verify(small.certificate, small.rows, small.prices, small.weights, time_limit=0.0)
    assert not report.finished
    assert not report.verified
    assert report.lower_bound is None
    assert report.conditional_bound is None


@pytest.mark.parametrize("limit", [float("nan"), -1.0])
def test_time_limit_must_be_seconds(small: Small, limit: float) -> None:
    with pytest.raises(InvalidInput, match="time limit"):
        verify(small.certificate, time_limit=limit)


def test_other_rows_are_refuted(small: Small) -> None:
    for change in (0.25, -2.0, 100.0):
        rows = {**small.rows, "a": small.rows["a"] + change}
        with pytest.raises(CertificateInvalid):
            verify(small.certificate, rows, small.prices, small.weights)


def test_bad_tables(small: Small) -> None:
    for table in (np.zeros((3, 5)), np.zeros((0, 2)), np.full((3, 2), np.nan)):
        with pytest.raises(InvalidInput, match="site 'a'"):
            verify(small.certificate, {"a": table})
    with pytest.raises(InvalidInput, match="knows no site"):
        verify(small.certificate, {"elsewhere": small.rows["a"]})
    certificate, prices = prove({"a": np.array([[0.0], [1.0], [1.0]])}, np.array([[0.0], [1.0]]))
    with pytest.raises(InvalidInput, match="rows of the run"):
        verify(certificate, {"a": np.array([[0.0], [1.0]])}, prices)


def test_bound_is_the_checkers_own(small: Small) -> None:
    weaker = replace(small.certificate, lower=0.0, gap=1.0)
    report = verify(weaker, small.rows, small.prices, small.weights)
    assert report.verified
    assert report.lower_bound == pytest.approx(small.certificate.lower, rel=1e-9)
    assert report.stated_lower == 0.0


@pytest.mark.parametrize("field", ["lower", "upper", "bound", "total", "site cost"])
def test_stated_numbers(small: Small, field: str) -> None:
    forged = small.certificate
    if field == "lower":
        lower = forged.lower * (1 + 1e-6)
        forged = replace(forged, lower=lower, gap=(forged.upper - lower) / forged.upper)
    elif field == "upper":
        upper = forged.upper * (1 + 1e-3)  # a site may round its cost up by 2^-12
        forged = replace(forged, upper=upper, gap=(upper - forged.lower) / upper)
    elif field == "site cost":
        assert forged.site_costs is not None
        forged = replace(forged, site_costs=forged.site_costs * 0.99)
    else:
        change = {field: getattr(forged.leaves[0], field) * (1 + 1e-6)}
        forged = replace(forged, leaves=(replace(forged.leaves[0], **change), *forged.leaves[1:]))
    with pytest.raises(CertificateInvalid):
        verify(forged, small.rows, small.prices, small.weights)


def test_imports_nothing_from_the_engine() -> None:
    allowed = {"numpy", "numba", "numpy.typing", "certificate.document", "core.errors", "core.arrays"}
    import sys

    for path in Path(consentroid.verify.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                module = node.module or ""
                own = node.level == 1
                assert own or module in allowed or module.split(".")[0] in sys.stdlib_module_names, (path.name, module)
            elif isinstance(node, ast.Import):
                for name in node.names:
                    assert name.name in allowed or name.name.split(".")[0] in sys.stdlib_module_names, path.name
        assert "fastmath=" not in path.read_text()


def test_deep_trees_do_not_recurse(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand nested splits, each next to the last, and the time limit within them."""
    n = 100_000
    kind = np.concatenate([np.zeros(n, np.int32), np.full(n + 1, 3, np.int32)])
    value = np.concatenate([np.linspace(0.9, 0.1, n), np.zeros(n + 1)])
    zeros = np.zeros(2 * n + 1, np.int32)
    tree = BoxTree(kind, zeros, zeros, value, np.zeros(2 * n + 1), None)
    x = np.array([[0.0], [1.0]])
    root = np.array([[0.0], [1.0]])
    prices = np.zeros((1, 2))
    certificate = Certificate(
        1, ("a",), ("x0",), root, np.zeros(1), np.eye(1), 1.0, root, 0.0, np.array([[0.5]]), None, None, 0.0,
        (LeafProof((), 0, None, 0.0, -1.0, (CellProof(root[0], root[1], 1, 0.0, tree),)),),
        {"a": price_digest(prices)}, 0.0, 0.5, 1.0,
    )  # fmt: skip
    report = verify(certificate, {"a": x}, {"a": prices})
    assert report.verified
    assert report.n_boxes == n + 1
    monkeypatch.setattr(checking, "time", Clock(1.0))  # a second at every look
    report = verify(certificate, {"a": x}, {"a": prices}, time_limit=1000.0)
    assert not report.finished
    assert report.seconds == 1002.0  # one look past the limit, and one for the report
