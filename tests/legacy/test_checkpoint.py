"""Killed at any moment, resumed: the same λ, the same boxes, the same result."""

from __future__ import annotations

import numpy as np
import pytest

from consentroid.core.errors import InvalidInput
from consentroid.core.problem import Problem
from consentroid.fitting import run
from consentroid.paper.instances import generate
from consentroid.paper.settings import Settings
from consentroid.paper.worker import PaperWorker
from consentroid.transport.inprocess import InProcessTransport
from consentroid.transport.metered import MeteredTransport

SETTINGS = Settings(3, gap=1e-6)


class Killed(Exception):
    """Stands for a kill: nothing after it runs."""


def problem() -> Problem:
    return generate(3, 2, 3, seed=1, points_per_cluster=4, radius=0.7).problem


def run_once(path, resume=False, kill_in=None, settings=SETTINGS):
    data = problem()
    transport = MeteredTransport(InProcessTransport.of(data, PaperWorker))

    def on_round(record):
        if record.round == kill_in:
            raise Killed

    try:
        return run(transport, settings, domain=data.domain, on_round=on_round, checkpoint=path, resume=resume)
    finally:
        transport.close()


def story(result):
    """All that must be repeated: everything but time."""
    return [
        (r.round, r.phase, r.lower, r.upper, r.dual_value, r.residual, r.boxes_open, r.boxes_done)
        for r in result.history
    ]


def test_resume_equals_uninterrupted(tmp_path):
    whole = run_once(tmp_path / "whole.npz")
    phases = {record.phase for record in whole.history}
    assert {"dual", "tree"} <= phases, "the problem must need both phases for this test to mean anything"
    rounds = [record.round for record in whole.history]
    for kill_in in rounds[4 :: max(1, len(rounds) // 5)]:
        path = tmp_path / f"killed{kill_in}.npz"
        with pytest.raises(Killed):
            run_once(path, kill_in=kill_in)
        resumed = run_once(path, resume=True)
        assert story(resumed) == story(whole)
        np.testing.assert_array_equal(resumed.centroids, whole.centroids)
        assert resumed.certificate.as_dict() == whole.certificate.as_dict()


def test_resuming_a_finished_run_repeats_its_result(tmp_path):
    whole = run_once(tmp_path / "run.npz")
    again = run_once(tmp_path / "run.npz", resume=True)
    assert story(again) == story(whole)
    assert again.stop_reason == whole.stop_reason


def test_a_run_cut_short_by_rounds_goes_on_with_more(tmp_path):
    whole = run_once(tmp_path / "whole.npz")
    short = run_once(tmp_path / "short.npz", settings=Settings(3, gap=1e-6, max_rounds=8))
    assert short.stop_reason == "max_rounds"
    resumed = run_once(tmp_path / "short.npz", resume=True)
    assert resumed.certified
    assert resumed.upper_bound == whole.upper_bound


def test_damaged_missing_and_foreign_checkpoints_are_named(tmp_path):
    with pytest.raises(InvalidInput, match="no checkpoint"):
        run_once(tmp_path / "nothing.npz", resume=True)
    path = tmp_path / "run.npz"
    run_once(path)
    with pytest.raises(InvalidInput, match=r"other settings.*seed"):
        run_once(path, resume=True, settings=Settings(3, gap=1e-6, seed=3))
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(InvalidInput, match="damaged"):
        run_once(path, resume=True)
