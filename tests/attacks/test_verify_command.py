"""`consentroid verify` at the terminal: exit codes, and names and files that try to speak for it."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest

from consentroid.certificate.document import fingerprint_of
from consentroid.cli import main as command_line
from small_problems import Small, tight_problem


@pytest.fixture(scope="module")
def small() -> Small:
    return tight_problem(0)


@pytest.fixture
def folder(small: Small, tmp_path: Path) -> Path:
    small.certificate.write(tmp_path / "certificate.json")
    for name, x in small.rows.items():
        table = np.hstack([x, small.weights[name][:, None]])
        lines = ["x0,x1,mass", *(",".join(repr(float(v)) for v in row) for row in table)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))
        np.savez(tmp_path / f"prices-{name}.npz", prices=small.prices[name])
    return tmp_path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def call(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["consentroid", "verify", *map(str, arguments)])
        code = 0
        try:
            command_line.main()
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        told = capsys.readouterr()
        return code, told.out + told.err

    return call


def nodes(folder: Path, *names: str) -> list[str]:
    return [part for name in names for part in ("--node", f"{name}={folder / name}.csv")] + ["--weights", "mass"]


def test_verified(run, folder: Path, small: Small) -> None:
    code, text = run(folder / "certificate.json", *nodes(folder, "a", "b"))
    assert code == 0
    assert "Verified: no clustering of these rows into 2 clusters" in " ".join(text.split())
    code, text = run(folder / "certificate.json", *nodes(folder, "a", "b"), "--json", "--require-all")
    told = json.loads(text)
    assert (code, told["outcome"], told["scaled"]) == (0, "verified", None)
    assert told["lower_bound"] <= float(small.optimum) <= told["upper_bound"]


def test_incomplete_is_not_zero(run, folder: Path) -> None:
    for arguments in ([], nodes(folder, "a"), [*nodes(folder, "a", "b"), "--time-limit", "0"]):
        code, text = run(folder / "certificate.json", *arguments)
        assert code == 4
        assert "Verified" not in text
    code, text = run(folder / "certificate.json", *nodes(folder, "a"), "--json")
    told = json.loads(text)
    assert (code, told["outcome"], told["lower_bound"], told["gap"]) == (4, "incomplete", None, None)
    (folder / "prices-b.npz").unlink()
    code, text = run(folder / "certificate.json", *nodes(folder, "a", "b"))
    assert code == 4
    assert "no price file" in " ".join(text.split())
    code, _ = run(folder / "certificate.json", *nodes(folder, "a"), "--require-all")
    assert code == 2


def test_refuted(run, folder: Path, small: Small) -> None:
    document = small.certificate.to_json()
    document["lower"] = document["upper"]
    document["gap"] = 0.0
    document["fingerprint"] = fingerprint_of(document)
    (folder / "certificate.json").write_text(json.dumps(document))
    code, text = run(folder / "certificate.json", *nodes(folder, "a", "b"))
    assert code == 1
    assert "is proven" in " ".join(text.split())
    code, text = run(folder / "certificate.json", *nodes(folder, "a", "b"), "--json")
    assert (code, json.loads(text)["outcome"]) == (1, "refuted")


@pytest.mark.parametrize(
    "name", ["a\n[bold]Verified: no clustering costs less than 1000[/bold]", "x[/b]", "\x1b[2J", "\x9b31m"]
)
def test_names_do_not_reach_the_terminal(run, folder: Path, small: Small, name: str) -> None:
    document = copy.deepcopy(small.certificate.to_json())
    document["sites"][0] = name
    document["price_files"] = dict(zip(document["sites"], document["price_files"].values()))
    document["fingerprint"] = fingerprint_of(document)
    (folder / "certificate.json").write_text(json.dumps(document))
    for arguments in ([], ["--json"]):
        code, text = run(folder / "certificate.json", *arguments)
        assert code == 1
        assert not text.startswith("Verified")
        assert "\nVerified" not in text
        assert "\x1b" not in text
        assert "\x9b" not in text


def test_names_given_do_not_reach_the_terminal(run, folder: Path) -> None:
    for option in ("--node", "--prices"):
        for text in ("\x1b[2Jx=y.csv", "[/b]=\x1b.csv", "a=\x1b[2J.csv", "a=[bold]x[/x].csv", "a"):
            code, told = run(folder / "certificate.json", option, text)
            assert code in (2, 4)
            assert "\x1b" not in told


def test_version_1(run, tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text(json.dumps({"format": "consentroid-certificate", "version": 1}))
    code, text = run(tmp_path / "old.json")
    assert code == 1
    assert "version 1" in text


@pytest.mark.parametrize(
    "scaling",
    [
        {"scale": "x) costs less than 999; Verified", "offset": [0, 0], "factor": [1, 1], "fill": None},
        {"scale": ["none"], "offset": [0, 0], "factor": [1, 1], "fill": None},
        {"scale": "none", "offset": [0, 0, 0], "factor": [1, 1, 1], "fill": None},
        {"scale": "none", "offset": [0], "factor": [1], "fill": None},
        {"scale": "none", "offset": [0, 0], "factor": [1, 1e400], "fill": None},
        {"scale": "none", "offset": [0, 0], "factor": [1, 1], "fill": [[1, 2], [3, 4]]},
        {"scale": "none", "offset": [0, 0], "factor": [1, 1], "fill": [1]},
    ],
)
def test_a_scaling_that_is_none_is_bad_input(run, folder: Path, scaling: dict[str, object]) -> None:
    """result.json is outside the fingerprint: its text was printed, its shapes ended in a traceback."""
    document = {"format": "consentroid-result", "version": 1, "scaling": scaling}
    (folder / "result.json").write_text(json.dumps(document).replace("Infinity", "1e400"))
    code, text = run(folder / "certificate.json", *nodes(folder, "a", "b"))
    assert code == 2
    assert "999" not in text
