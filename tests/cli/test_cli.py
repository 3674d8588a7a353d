"""The commands as a newcomer meets them: files in, files out, one sentence when something is wrong."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consentroid import __version__
from consentroid.cli.main import COMMANDS, main
from consentroid.data.datasets import penguins

RESULT_FIELDS = {
    "format", "version", "verdict", "certified", "lower_bound", "upper_bound", "gap", "gap_asked", "stop_reason",
    "method", "bound_from", "n_clusters", "n_features", "n_rows", "n_sites", "features", "centroids", "counts", "radii",
    "withheld",
    "spread", "regions", "scaling", "sites", "settings", "rounds", "boxes", "cells", "bytes_up", "bytes_down",
    "seconds", "phases", "versions",
}  # fmt: skip
REPLAY_FIELDS = {
    "instance", "method", "solver", "symmetry", "iterations", "lower_bound", "upper_bound", "gap", "stop_reason",
    "seconds", "t_comp",
}  # fmt: skip


def process(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """A process of its own, where that is the point."""
    command = [sys.executable, "-m", "consentroid", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, **options)


def consentroid(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The same in this process: nothing is imported and loaded again, and warnings are errors here, too."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(out), redirect_stderr(err):
        patched.setattr(sys, "argv", ["consentroid", *map(str, arguments)])
        try:
            main()
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
    return subprocess.CompletedProcess(sys.argv, code, out.getvalue(), err.getvalue())


def as_json(done: subprocess.CompletedProcess[str]) -> Any:
    """Standard output is strict JSON and nothing else."""
    assert done.returncode == 0, done.stderr

    def refuse(text: str) -> None:
        raise AssertionError(text)

    return json.loads(done.stdout, parse_constant=refuse)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sites")
    for island, table in penguins().tables.items():
        header = ",".join(table.names)
        np.savetxt(folder / f"{island}.csv", table.rows[::4], delimiter=",", header=header, comments="")
    return folder


def node_options(folder: Path) -> list[str]:
    return [part for path in sorted(folder.glob("*.csv")) for part in ("--node", f"{path.stem}={path}")]


@pytest.fixture(scope="module")
def run(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scaled run."""
    out = tmp_path_factory.mktemp("run")
    done = consentroid("fit", *node_options(files), "-k", 3, "--scale", "standard", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "Certified: no other 3 centroids can save more than" in done.stdout
    assert "proven lower bound" in done.stdout
    return out


def test_fit_writes_its_files(run: Path, files: Path) -> None:
    names = {path.name for path in run.iterdir() if not path.name.startswith("prices-")}
    assert names == {"result.json", "certificate.json", "trace.jsonl"}
    result = json.loads((run / "result.json").read_text())
    assert set(result) == RESULT_FIELDS
    assert result["certified"]
    assert result["features"] == list(penguins().features)
    assert result["lower_bound"] <= result["upper_bound"]
    assert [site["name"] for site in result["sites"]] == ["Biscoe", "Dream", "Torgersen"]
    assert result["scaling"]["scale"] == "standard"
    rows = np.concatenate([np.loadtxt(path, delimiter=",", skiprows=1) for path in sorted(files.glob("*.csv"))])
    centroids = np.array(result["centroids"])
    assert np.all(rows.min(axis=0) <= centroids)
    assert np.all(centroids <= rows.max(axis=0))
    scaled = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    centres = (centroids - rows.mean(axis=0)) / rows.std(axis=0)
    cost = ((scaled[:, None] - centres[None]) ** 2).sum(axis=2).min(axis=1).sum()
    assert cost == pytest.approx(result["upper_bound"], rel=1e-9)
    for line in (run / "trace.jsonl").read_text().splitlines():
        assert "Infinity" not in line
        assert set(json.loads(line)) >= {"phase", "round", "lower", "upper", "gap", "seconds"}


def test_an_unscaled_run_is_verified_and_json_is_all_that_is_printed(files: Path, tmp_path: Path) -> None:
    result = as_json(consentroid("fit", *node_options(files), "-k", 2, "--out", tmp_path / "run", "--json"))
    assert result["certified"]
    assert result["scaling"] is None
    certificate = tmp_path / "run" / "certificate.json"
    assert as_json(consentroid("verify", certificate, *node_options(files), "--json"))["outcome"] == "verified"


def test_a_scaled_run_is_verified_on_the_rows_as_they_are(run: Path, files: Path) -> None:
    done = consentroid("verify", run / "certificate.json", *node_options(files), "--json")
    assert as_json(done)["outcome"] == "verified"
    assert "rows are scaled as in the run (standard, from result.json)" in done.stderr


def test_a_scaling_that_the_rows_do_not_have_is_refuted(run: Path, files: Path, tmp_path: Path) -> None:
    """result.json is outside the certificate's fingerprint: with all rows its scaling is computed again. Rows in other
    units are the same once they are standardised; a scaling called standard that is not is refuted."""
    shutil.copytree(run, tmp_path / "run")
    result = json.loads((run / "result.json").read_text())
    result["scaling"]["factor"][0] *= 2.0
    result["scaling"]["offset"][0] *= 2.0
    (tmp_path / "run" / "result.json").write_text(json.dumps(result))
    for path in files.glob("*.csv"):
        rows = np.loadtxt(path, delimiter=",", skiprows=1)
        rows[:, 0] *= 2.0
        np.savetxt(tmp_path / path.name, rows, delimiter=",", header=path.read_text().partition("\n")[0], comments="")
    certificate = tmp_path / "run" / "certificate.json"
    honest = consentroid("verify", certificate, *node_options(tmp_path))
    assert honest.returncode == 0, honest.stderr  # other units, the same standardised rows
    forged = consentroid("verify", certificate, *node_options(files))
    assert forged.returncode == 1
    assert "these rows have another one" in forged.stderr


def test_scales_that_differ_are_told_unless_chosen(files: Path, tmp_path: Path) -> None:
    told = consentroid("fit", *node_options(files), "-k", 2, "--out", tmp_path)
    assert "note: 'body_mass_g' varies" in told.stderr
    assert "--scale standard" in told.stderr
    assert "note:" not in consentroid("fit", *node_options(files), "-k", 2, "--scale", "none", "--out", tmp_path).stderr


def test_predict_agrees_with_the_run(run: Path, files: Path, tmp_path: Path) -> None:
    result = json.loads((run / "result.json").read_text())
    done = consentroid("predict", run, *node_options(files))
    assert done.returncode == 0, done.stderr
    lines = list(csv.DictReader(done.stdout.splitlines()))
    assert list(lines[0])[:4] == ["site", "row", "cluster", "distance"]
    assert ("certain" in lines[0]) == (result["regions"] is not None)
    for site in result["sites"]:
        own = [int(line["cluster"]) for line in lines if line["site"] == site["name"]]
        assert [own.count(k) for k in range(3)] == site["counts"]
    assert sum(float(line["distance"]) ** 2 for line in lines) == pytest.approx(result["upper_bound"], rel=1e-9)
    out = tmp_path / "labels.csv"
    written = consentroid("predict", run / "result.json", *node_options(files), "--out", out)
    assert out.read_text() == done.stdout
    assert "Written:" in written.stdout
    told = as_json(consentroid("predict", run, *node_options(files), "--json"))
    assert told["Dream"]["cluster"] == [int(line["cluster"]) for line in lines if line["site"] == "Dream"]


def test_data_as_people_have_it(run: Path, files: Path, tmp_path: Path) -> None:
    """Another order of columns, an index, blank rows, decimal comma, a database: the same labels."""
    import gzip

    text = (files / "Dream.csv").read_text().splitlines()
    cells = [line.split(",") for line in text]
    turned = [";".join(["" if j == 0 else str(j), *reversed(line)]).replace(".", ",") for j, line in enumerate(cells)]
    with gzip.open(tmp_path / "Dream.csv.gz", "wt") as file:
        file.write("\n".join([*turned[:5], "", *turned[5:]]) + "\n")
    with sqlite3.connect(tmp_path / "birds.db") as base:
        base.execute(f"CREATE TABLE dream ({', '.join(name + ' REAL' for name in cells[0])})")
        base.executemany("INSERT INTO dream VALUES (?, ?, ?, ?)", cells[1:])
    base.close()
    expected = consentroid("predict", run, "--node", f"Dream={files / 'Dream.csv'}")
    people = consentroid("predict", run, "--node", f"Dream={tmp_path / 'Dream.csv.gz'}")
    assert people.stdout == expected.stdout
    assert "blank row is left out" in people.stderr
    assert "decimal signs" in people.stderr
    stored = consentroid("predict", run, "--node", f"Dream=sqlite:///{tmp_path / 'birds.db'}#dream")
    assert stored.stdout == expected.stdout, stored.stderr


def test_weights_and_imputation(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,w\n0,1\n1,1\n10,2\n,1\n")
    (tmp_path / "b.csv").write_text("w,x\n3,11\n1,0.5\n")
    nodes = ("--node", f"a={tmp_path / 'a.csv'}", "--node", f"b={tmp_path / 'b.csv'}")
    done = consentroid("fit", *nodes, "-k", 2, "--weights", "w", "--out", tmp_path / "run")
    assert done.returncode == 2
    assert "row 4 has a missing value (NaN) in column 'x'; impute it (--impute)" in done.stderr
    done = consentroid("fit", *nodes, "-k", 2, "--weights", "w", "--impute", "--out", tmp_path / "run", "--json")
    result = as_json(done)
    assert result["features"] == ["x"]
    assert sum(result["counts"]) == 9
    assert result["scaling"]["fill"] == [pytest.approx((0 + 1 + 20 + 33 + 0.5) / 8)]
    assert "node 'b' has its columns in another order" in done.stderr


def test_select_k_and_compare_print_tables_and_draw(files: Path, tmp_path: Path) -> None:
    options = (*node_options(files), "--scale", "standard", "--out", tmp_path)
    chosen = as_json(consentroid("select-k", *options, "--from", 1, "--to", 3, "--json"))
    assert [choice["n_clusters"] for choice in chosen["choices"]] == [1, 2, 3]
    assert chosen["choices"][0]["silhouette"] is None
    assert set(chosen["best"]) == {"silhouette", "calinski_harabasz", "davies_bouldin"}
    compared = consentroid("compare", *options, "-k", 3)
    assert compared.returncode == 0, compared.stderr
    assert "k-fed" in compared.stdout
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"selection.json", "selection.png", "comparison.json", "comparison.png"}


def test_the_report_of_a_run(run: Path, files: Path, tmp_path: Path) -> None:
    told = as_json(consentroid("report", run, "--out", tmp_path / "r.html", *node_options(files)[:2], "--json"))
    assert told["verdict"].startswith("Certified")
    page = (tmp_path / "r.html").read_text()
    assert "This page shows rows of Biscoe; do not pass it on." in page


def test_the_demo(tmp_path: Path) -> None:
    done = process("demo", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "a cluster of one row is that row" in done.stdout
    assert "never a row" not in done.stdout
    assert {"report.html", "clusters.png", "bounds.png", "gap.png"} <= {path.name for path in tmp_path.iterdir()}
    assert as_json(consentroid("demo", "--generated", "--out", tmp_path, "--json"))["n_clusters"] == 4


def test_replay_writes_one_record_per_instance_and_method(tmp_path: Path) -> None:
    from consentroid.paper.instances import generate, write_npz

    write_npz(generate(2, 2, 2, seed=0), tmp_path / "2N2D2K_seed0.npz")
    out = tmp_path / "replay.json"
    arguments = ("--instances", tmp_path, "--methods", "btm,qnda,proximal,proof", "--out", out)
    done = consentroid("replay", *arguments, "--plots", tmp_path / "plots", "--central-seconds", 2, "--json")
    records = as_json(done)
    assert records == json.loads(out.read_text())
    assert len(records) == 4
    assert all(set(record) >= REPLAY_FIELDS for record in records)
    best = min(record["upper_bound"] for record in records)
    assert all(record["lower_bound"] <= best for record in records)
    assert len(list((tmp_path / "plots").glob("*.png"))) == 3


def test_generated_classes_replay_and_nearest_is_not_certified(tmp_path: Path) -> None:
    arguments = ("--generate", "2N3D2K", "--seeds", "0,1", "--methods", "btm", "--symmetry", "nearest")
    done = consentroid("replay", *arguments, "--out", tmp_path / "replay.json")
    assert done.returncode == 0, done.stderr
    assert "proves nothing" in done.stdout
    assert not any(record["certified"] for record in json.loads((tmp_path / "replay.json").read_text()))


def test_too_many_clusters_are_named(files: Path, tmp_path: Path) -> None:
    done = consentroid("fit", *node_options(files), "-k", 99, "--out", tmp_path)
    assert done.returncode == 2
    assert "n_clusters=99 exceeds the 86 distinct rows" in done.stderr


def test_help_lists_every_command_and_imports_none() -> None:
    done = process("--help")
    assert done.returncode == 0
    for name, (_, _, words) in COMMANDS.items():
        assert re.search(rf"^  {name} ", done.stdout, re.M), name
        assert words.split(":")[0][:40] in " ".join(done.stdout.split())
    asked = "import sys, consentroid.cli.main; print(*sorted(m.partition('.')[0] for m in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "scipy", "sklearn", "numba", "matplotlib", "rich", "narwhals"} & set(loaded)
    assert process("--version").stdout == f"consentroid {__version__}\n"


def test_choices_are_completed() -> None:
    words = "consentroid fit --method q"
    settings = {"_CONSENTROID_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "3"}
    done = process(env={**os.environ, **settings})
    assert done.stdout.split() == ["qnda", "qnda-epigraph"]
    settings = {"_CONSENTROID_COMPLETE": "complete_bash", "COMP_WORDS": "consentroid pre", "COMP_CWORD": "1"}
    assert process(env={**os.environ, **settings}).stdout.split() == ["predict"]


INTERRUPTED = """
import contextlib, math, os, signal, sys
from consentroid.report import progress

@contextlib.contextmanager
def interrupting(quiet=False):
    yield lambda step: os.kill(os.getpid(), signal.SIGNAL) if math.isfinite(step.gap) else None

progress.live_progress = interrupting
from consentroid.cli.main import main
main()
"""


@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM"])
def test_an_interrupted_fit_writes_what_it_reached(signal: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", random.normal(size=(200, 6)))
    nodes = [part for name in ("a", "b") for part in ("--node", f"{name}={tmp_path / name}.npy")]
    arguments = ["fit", *nodes, "-k", "9", "--gap", "1e-9", "--out", str(tmp_path / "run")]
    command = [sys.executable, "-c", INTERRUPTED.replace("SIGNAL", signal), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 130, done.stderr
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["stop_reason"] == "interrupted"
    assert not result["certified"]
    assert "the run was interrupted" in result["verdict"]
    assert not list((tmp_path / "run").glob(".run-*"))


def test_a_fit_resumes_and_loses_nothing(files: Path, tmp_path: Path) -> None:
    command = ("fit", *node_options(files), "--scale", "standard", "--out", tmp_path / "run", "--json")
    fresh = consentroid(*command, "-k", 3, "--gap", 0.1, "--resume")
    assert "there is no run in" in fresh.stderr
    first = as_json(fresh)
    assert "resumed" not in first["settings"]
    second = as_json(consentroid(*command, "-k", 3, "--gap", 1e-6, "--resume"))
    assert second["settings"]["resumed"]
    assert second["certified"]
    assert second["gap"] <= 1e-6 < first["gap"]
    verified = as_json(consentroid("verify", tmp_path / "run" / "certificate.json", *node_options(files), "--json"))
    assert verified["outcome"] == "verified"
    third = as_json(consentroid(*command, "-k", 3, "--gap", 1e-5, "--resume"))
    assert third["certified"]
    assert third["lower_bound"] >= second["lower_bound"] * (1.0 - 1e-9)  # the checker's own number
    other = consentroid(*command, "-k", 4, "--resume")
    assert other.returncode == 2
    assert "its clusters were 3, now 4" in other.stderr
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == third


def test_a_resumed_fit_believes_no_result_file(files: Path, tmp_path: Path) -> None:
    """What an earlier result.json says it has proven is proven again, or not said."""
    command = ("fit", *node_options(files), "-k", 3, "--out", tmp_path / "run", "--json")
    honest = as_json(consentroid(*command, "--gap", 1e-6))
    path = tmp_path / "run" / "result.json"
    centroids = [[value + 1.0 for value in row] for row in honest["centroids"]]
    forged = {"certified": True, "gap": 0.0, "upper_bound": 1e-3, "lower_bound": 1e-3, "verdict": "Proven optimal"}
    path.write_text(json.dumps({**honest, **forged, "centroids": centroids, "gap_asked": 0.0}))
    again = as_json(consentroid(*command, "--gap", 1e-3, "--resume"))
    assert again["upper_bound"] == pytest.approx(honest["upper_bound"], rel=1e-3)
    assert again["lower_bound"] <= honest["upper_bound"]
    assert again["gap"] == pytest.approx(1.0 - again["lower_bound"] / again["upper_bound"], abs=1e-9)
