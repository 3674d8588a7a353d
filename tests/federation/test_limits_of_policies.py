"""What sites still answer reaches a coordinator behind masks, too, and the run ends before they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("nvflare")

from consentroid.federation.site_log import ANSWERED
from consentroid.site.policy import Policy
from verified_run import KeepingWire, judged, problem_of
from wire import FOLDER


def logs() -> list[Path]:
    return [FOLDER / f"{node.name}.jsonl" for node in problem_of().nodes]


@pytest.fixture(autouse=True)
def no_earlier_questions() -> None:
    for log in logs():
        log.unlink(missing_ok=True)


def run_with(most: int, secure: bool, folder: Path) -> tuple[float, int]:
    """The gap that is proven, and the number of questions."""
    masks = "three" if secure else "never"
    policy = Policy.checked({"masks": masks, "least_rows": 1, "most_questions": most})
    line = KeepingWire(problem_of(), folder, policy, {})
    certificate = line.fit(secure, n_clusters=2, gap=1e-7)
    asked = [[json.loads(entry) for entry in log.read_text().splitlines()] for log in logs()]
    assert all(entry["outcome"] == ANSWERED for entries in asked for entry in entries)
    assert judged(certificate, line.verify(certificate)).verified
    return certificate.gap, max(map(len, asked))


@pytest.mark.parametrize("secure", [True, False])
def test_a_run_keeps_to_the_questions_that_sites_answer(secure: bool, tmp_path: Path) -> None:
    gap, questions = run_with(10**9, secure, tmp_path / "free")
    for log in logs():
        log.unlink()
    most = questions * 2 // 3
    larger_gap, fewer = run_with(most, secure, tmp_path / "limited")
    assert fewer <= most
    assert gap < larger_gap < 1.0
