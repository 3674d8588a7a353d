"""The commands as a newcomer meets them: files in, files out, one sentence when something is wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from consentroid.paper.instances import generate, write_npz

RESULT_FIELDS = {
    "n_nodes", "n_points", "n_features", "n_clusters", "method", "solver", "lower_bound", "upper_bound", "gap",
    "certified", "stop_reason", "rounds", "boxes", "bytes_up", "bytes_down", "seconds", "centroids", "nodes",
}  # fmt: skip
REPLAY_FIELDS = {
    "instance", "method", "solver", "symmetry", "iterations", "lower_bound", "upper_bound", "gap", "stop_reason",
    "seconds", "t_comp",
}  # fmt: skip


def consentroid(*arguments: object, **options):
    command = [sys.executable, "-m", "consentroid", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, **options)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nodes")
    for node in generate(3, 2, 3, seed=4, radius=0.6).problem.nodes:
        np.savetxt(folder / f"{node.name}.csv", node.points, delimiter=",", header="x,y", comments="")
    return folder


def node_options(folder):
    return [part for path in sorted(folder.glob("node*.csv")) for part in ("--node", f"{path.stem}={path}")]


def test_fit_writes_its_files_and_verify_accepts_them(files, tmp_path):
    out = tmp_path / "run"
    done = consentroid("fit", *node_options(files), "-k", 3, "--gap", "1e-5", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "proven lower bound" in done.stdout
    result = json.loads((out / "result.json").read_text())
    assert set(result) >= RESULT_FIELDS
    assert result["certified"]
    assert result["features"] == ["x", "y"]
    assert result["lower_bound"] <= result["upper_bound"]
    assert [json.loads(line)["round"] for line in (out / "trace.jsonl").read_text().splitlines()]
    checked = consentroid("verify", out / "certificate.json", *node_options(files), "--json")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert json.loads(checked.stdout)["outcome"] == "verified"
    again = consentroid("fit", *node_options(files), "-k", 3, "--gap", "1e-5", "--resume", out, "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["upper_bound"] == result["upper_bound"]


def test_a_large_node_is_split_and_verified_as_split(tmp_path):
    rows = np.concatenate([node.points for node in generate(4, 2, 3, seed=2, radius=0.4).problem.nodes])
    np.save(tmp_path / "all.npy", rows)
    out = tmp_path / "run"
    done = consentroid("fit", "--node", f"all={tmp_path / 'all.npy'}", "-k", 3, "--gap", "1e-3", "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["n_nodes"], result["n_points"]) == (1, 60)
    assert result["n_parts"] > 1
    assert [node["name"] for node in result["nodes"]] == ["all"]
    checked = consentroid("verify", out / "certificate.json", "--node", f"all={tmp_path / 'all.npy'}", "--json")
    assert json.loads(checked.stdout)["outcome"] == "verified"


def test_replay_writes_one_record_per_instance_and_method(tmp_path):
    write_npz(generate(2, 2, 2, seed=0), tmp_path / "2N2D2K_seed0.npz")
    target = tmp_path / "replay.json"
    arguments = ("--instances", tmp_path, "--methods", "sg,btm,qnda,qnda-epigraph,proximal,proof", "--json", target)
    done = consentroid("replay", *arguments, "--plots", tmp_path / "plots", "--central-seconds", 2)
    assert done.returncode == 0, done.stderr
    records = json.loads(target.read_text())
    assert len(records) == 6
    assert all(set(record) >= REPLAY_FIELDS for record in records)
    best = min(record["upper_bound"] for record in records)
    assert all(record["lower_bound"] <= best for record in records)
    assert len(list((tmp_path / "plots").glob("*.png"))) == 3


def test_generated_classes_replay_and_nearest_is_not_certified(tmp_path):
    target = tmp_path / "replay.json"
    arguments = ("--generate", "2N3D2K", "--seeds", "0,1", "--methods", "btm", "--symmetry", "nearest")
    done = consentroid("replay", *arguments, "--json", target)
    assert done.returncode == 0, done.stderr
    assert "proves nothing" in done.stdout
    assert not any(record["certified"] for record in json.loads(target.read_text()))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("fit", "--node", "a", "-k", 2), "NAME=FILE"),
        (("fit", "--node", "a=missing.csv", "-k", 2), "no such file"),
        (("replay",), "--instances DIR or --generate"),
        (("replay", "--instances", "nowhere"), "does not exist"),
        (("replay", "--generate", "3X"), "not a class"),
        (("replay", "--generate", "2N2D2K", "--methods", "newton"), "unknown method 'newton'"),
        (("replay", "--generate", "2N2D2K", "--methods", "proof", "--symmetry", "nearest"), "valid symmetry rule"),
        (("replay", "--generate", "2N2D2K", "--json", "/proc/nowhere/x.json"), "cannot write"),
        (("report", "nowhere"), "nowhere"),
    ],
)
def test_bad_input_is_one_sentence_without_a_traceback(arguments, says):
    done = consentroid(*arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


def test_too_many_clusters_are_named(files, tmp_path):
    done = consentroid("fit", *node_options(files), "-k", 99, "--out", tmp_path)
    assert done.returncode == 2
    assert "n_clusters=99 exceeds the 45 distinct rows" in done.stderr


def test_an_interrupted_fit_writes_what_it_reached(tmp_path):
    random = np.random.default_rng(0)
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", random.normal(size=(60, 4)))
    nodes = [part for name in ("a", "b") for part in ("--node", f"{name}={tmp_path / name}.npy")]
    command = [sys.executable, "-m", "consentroid", "fit", *nodes, "-k", "5", "--gap", "1e-9"]
    command += ["--out", str(tmp_path / "run")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 200
    while not (tmp_path / "run" / "checkpoint.npz").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["stop_reason"] == "interrupted"
    assert not result["certified"]
    assert consentroid("verify", tmp_path / "run" / "certificate.json").returncode == 0
