"""The attacks of the disclosure benchmark find what is there to be found, and little where there is a guard."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from consentroid.bench import disclosure
from consentroid.bench.attacks import Seen, candidates, edges
from consentroid.bench.disclosure import Found, free_questions, ordinary_run
from consentroid.bench.markdown_tables import pages_of
from consentroid.cli.main import app
from consentroid.core.problem import Problem
from consentroid.protocol.messages import ColumnSums, Coordinates, MakeColumns, PriceQuery, PriceReply, Trim, Trimmed


def problem(n_rows: int = 8) -> Problem:
    rng = np.random.default_rng(0)
    return Problem.checked({name: rng.normal(size=(n_rows, 2)) for name in ("a", "b", "c")}, 2)


def recovered(every: list[Found]) -> int:
    return sum(found.recovered for found in every)


def test_rows_count_as_recovered_only_if_they_are_met() -> None:
    rows = problem().pooled.points
    found = Found(rows)
    found.look("near", rows[:3] + 1e-6)
    found.look("far", rows[3:6] + 0.1)
    found.look("none", np.empty((0, 2)))
    assert found.recovered == 3
    assert found.by == {"near": {0, 1, 2}, "far": set()}
    assert found.chance == 0


def attacked(seen: Seen, rows: np.ndarray) -> dict[str, set[int]]:
    found = Found(rows)
    for attack, guesses in candidates(seen):
        found.look(attack, guesses)
    return found.by


def test_each_attack_works_on_what_it_was_made_for() -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(30, 2))
    at = PriceQuery(1, 1, coordinates=Coordinates(np.zeros(2), np.eye(2), 1.0))
    groups = [np.arange(10), np.arange(11), np.array([20])]
    seen = Seen()
    seen.look(at, PriceReply(1, "all", 1))
    for group in groups:  # exact values, sums that are rounded to whole numbers
        for m in rng.normal(size=(6, 2)):
            offset = np.round(rows[group].sum(axis=0)) - len(group) * m
            value = ((rows[group] - m) ** 2).sum() - 9.0 * len(group)
            told = Trimmed(np.array([value]), np.array([float(len(group))]), offset[None])
            seen.look(PriceQuery(1, 1, trim=Trim(0, m[None])), PriceReply(1, "all", 1, trimmed=told))
    by = attacked(seen, rows)
    assert by["refined"] == {10, 20}
    assert not by["means"]
    assert not by["differences"]
    seen = Seen()
    seen.look(at, PriceReply(1, "all", 1))
    points = np.array([rows[group].mean(axis=0) for group in groups])
    sizes = np.array([float(len(group)) for group in groups])
    overlaps = np.array([[float(len(set(a) & set(b))) for b in groups] for a in groups])
    query = PriceQuery(2, 2, columns=MakeColumns(0, 0, np.zeros(0, bool), points))
    seen.look(query, PriceReply(2, "all", 2, columns=ColumnSums(sizes, sizes, overlaps, sizes, sizes)))
    seen.add(sizes[:1], rows[None, 0])
    assert attacked(seen, rows)["nested columns"] == {10}


def test_counts_alone_tell_rows() -> None:
    rows = np.random.default_rng(0).uniform(size=(12, 3))
    found = Found(rows)
    count = lambda direction, at: (rows @ direction < at[:, None]).sum(axis=1)  # noqa: E731
    found.look("edges", edges(count, np.zeros(3), np.ones(3), 20_000))
    assert found.recovered >= 11


def test_without_guard_and_masks_small_sites_are_read_off() -> None:
    every, result = ordinary_run(problem(), least=1, masked=False, gap=1e-2, limit=20.0)
    assert result.certified
    assert recovered(every) > 12
    assert free_questions(problem(), least=1, masked=False, thresholds=5_000) > 12


@pytest.mark.parametrize("masked", [False, True])
def test_with_the_guard_an_ordinary_run_tells_no_more_than_chance(masked: bool) -> None:
    rng = np.random.default_rng(5)
    rows = {name: rng.normal(size=(40, 3)) + 4.0 * rng.integers(0, 2, (40, 1)) for name in ("a", "b", "c")}
    every, result = ordinary_run(Problem.checked(rows, 2), least=5, masked=masked, gap=1e-2, limit=20.0)
    assert result.certified
    assert recovered(every) <= 1 + sum(found.chance for found in every)


def test_the_command_writes_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disclosure, "LEAST", (1, 5))
    monkeypatch.setattr(disclosure, "THRESHOLDS", 500)
    monkeypatch.setitem(disclosure.PROBLEMS, "generated", problem)
    out = tmp_path / "disclosure.json"
    done = CliRunner().invoke(
        app, ["bench", "disclosure", "--data", "generated", "--time-limit", "1", "--out", str(out)]
    )
    assert done.exit_code == 0, done.output
    told = json.loads(out.read_text())
    assert [(one["least"], one["masked"]) for one in told["measured"]] == [(1, False), (1, True), (5, False), (5, True)]
    page = "\n".join(pages_of(told))
    assert page.count("| generated |") == 4
    refused = CliRunner().invoke(app, ["bench", "disclosure", "--data", "wine"])
    assert refused.exit_code != 0
