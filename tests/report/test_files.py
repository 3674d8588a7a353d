"""A run leaves its documented files, whole, strict JSON, private where they hold per-site sums, and nothing else."""

from __future__ import annotations

import json
import math
import stat
from pathlib import Path

import numpy as np
import pytest

from consentroid.core.errors import InvalidInput
from consentroid.core.result import StopReason
from consentroid.report.files import (
    Details,
    clean_up,
    output_folder,
    plain,
    read_run,
    result_as_dict,
    to_json,
    write_run,
)
from made_results import CENTRES, made_result


def no_constant(text: str) -> float:
    raise AssertionError(f"{text} is not JSON")


def strict(text: str) -> object:
    return json.loads(text, parse_constant=no_constant)


def test_the_files_of_a_run(tmp_path: Path) -> None:
    write_run(tmp_path, made_result())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["certificate.json", "result.json", "trace.jsonl"]
    for name, mode in (("result.json", 0o600), ("certificate.json", 0o600)):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode
    result = strict((tmp_path / "result.json").read_text())
    assert isinstance(result, dict)
    assert result["verdict"].startswith("Certified: no other 3 centroids can save more than 0.008 %")
    assert result["centroids"] == CENTRES.tolist()
    assert result["counts"] == [149.0, 121.0, 72.0]
    counts = [44.0, 120.0, 3.0]
    assert result["sites"][0] == {"name": "Biscoe", "n_rows": 167, "cost": 301.25, "counts": counts, "withheld": 0.0}
    assert set(result["regions"]) == {"lower", "upper", "tolerance"}
    assert result["phases"] == {"incumbent": 0.04, "prices": 0.18, "search": 0.1}
    assert {"consentroid", "numpy", "numba"} <= set(result["versions"])
    trace = [strict(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert trace[0] == {
        "phase": "incumbent", "round": 0, "lower": None, "upper": None, "boxes_done": 0, "boxes_open": 60,
        "cells_open": 1, "seconds": 0.0, "gap": None,
    }  # fmt: skip
    files = read_run(tmp_path)
    assert files.result == result
    assert files.trace == trace
    assert files.certificate is not None


def test_a_run_in_the_same_folder_leaves_nothing_of_the_one_before(tmp_path: Path) -> None:
    write_run(tmp_path, made_result())
    for name in ("report.html", "checkpoint.npz", "clusters.png", "mine.txt", "prices-a.npz"):
        (tmp_path / name).write_text("old")
    write_run(tmp_path, made_result(certificate=None))
    left = ["mine.txt", "prices-a.npz", "result.json", "trace.jsonl"]
    assert sorted(path.name for path in tmp_path.iterdir()) == left
    assert read_run(tmp_path).certificate is None
    clean_up(tmp_path, keep=["trace.jsonl"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.txt", "trace.jsonl"]


def test_numbers_that_are_not_finite_are_null() -> None:
    lost = made_result(lower_bound=-math.inf, upper_bound=math.nan, stop_reason=StopReason.INTERRUPTED)
    result = strict(to_json(result_as_dict(lost)))
    assert isinstance(result, dict)
    assert (result["lower_bound"], result["upper_bound"], result["gap"]) == (None, None, None)
    assert result["certified"] is False
    assert result["verdict"].startswith("Nothing is proven")
    assert plain({"a": np.float64("nan"), "b": (np.int64(3), np.array([1.0, np.inf]))}) == {
        "a": None,
        "b": [3, [1, None]],
    }
    with pytest.raises(TypeError):
        to_json({"a": object()})


def test_scaled_runs_are_told_in_the_units_of_the_rows() -> None:
    scaling = {"scale": "standard", "offset": [1.0, 2.0], "factor": [10.0, 0.5], "fill": None}
    result = made_result(n_features=2)
    told = plain(result_as_dict(result, Details(scaling=scaling)))
    np.testing.assert_allclose(told["centroids"], result.centroids * [10, 0.5] + [1, 2])
    assert result.regions is not None
    np.testing.assert_allclose(told["regions"]["lower"], result.regions.lower * [10, 0.5] + [1, 2])
    assert told["scaling"] == scaling


def test_folders_that_are_no_runs(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"result.json' is missing; give the folder"):
        read_run(tmp_path)
    write_run(tmp_path, made_result())
    (tmp_path / "trace.jsonl").write_text("{")
    with pytest.raises(InvalidInput, match="not a list of JSON lines"):
        read_run(tmp_path)
    (tmp_path / "trace.jsonl").write_text("1\n")
    with pytest.raises(InvalidInput, match="not a list of JSON objects"):
        read_run(tmp_path)
    (tmp_path / "trace.jsonl").unlink()
    with pytest.raises(InvalidInput, match=r"trace\.jsonl' is missing"):
        read_run(tmp_path)
    for content, said in (
        ("{}", "is not a consentroid-result file of version 1"),
        ("[]", "does not hold"),
        ("{", "not JSON"),
    ):
        (tmp_path / "result.json").write_text(content)
        with pytest.raises(InvalidInput, match=said):
            read_run(tmp_path)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match=r"cannot write to '.*file/run' .*choose another folder"):
        output_folder(tmp_path / "file" / "run")
