"""From a question to an answer at one site: policy, approval, log; without a network."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare")

from rich.console import Console
from typer.testing import CliRunner

from consentroid.cli.node import node_app
from consentroid.core.errors import InvalidInput
from consentroid.federation.answering import Answering
from consentroid.federation.approval import APPROVED, REFUSED, Approvals
from consentroid.federation.private_table import PrivateTable, forget_prices
from consentroid.federation.screen import SiteScreen
from consentroid.federation.signing import REQUEST, Question
from consentroid.federation.site_log import LOG_FILE, Entry, SiteLog
from consentroid.protocol import codec
from consentroid.protocol.messages import (
    Coordinates,
    Describe,
    Description,
    Failure,
    KeepPrices,
    Moments,
    PriceQuery,
    PriceReply,
    Request,
    Response,
    StartPrices,
)
from consentroid.site.policy import Policy

ROWS = np.random.default_rng(1).normal(size=(30, 2)).round(3)
DESCRIBE = Describe(2, np.full(2, -9.0), np.full(2, 9.0))
OPEN = Policy(masks="never")


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    (tmp_path / "kit" / "local").mkdir(parents=True)
    (tmp_path / "kit" / "startup").mkdir()
    (tmp_path / "kit" / "startup" / "fed_client.json").write_text(json.dumps({"client": {"fqsn": "north"}}))
    np.savetxt(tmp_path / "rows.csv", ROWS, delimiter=",", header="x,y", comments="")
    told = {"data": str(tmp_path / "rows.csv"), "columns": None}
    (tmp_path / "kit" / "local" / "consentroid.json").write_text(json.dumps(told))
    return tmp_path / "kit"


class Asking:
    def __init__(self, kit: Path, policy: Policy = OPEN, job: str = "job-1", run: str = "run-1") -> None:
        self.kit, self.job, self.run, self.number = kit, job, run, 0
        self.approvals = Approvals(kit)
        self.answering = Answering(
            site="north",
            source=PrivateTable(kit, "north", policy),
            policy=policy,
            book=SiteLog(kit / LOG_FILE),
            approvals=self.approvals,
            who="admin@consentroid.org",
        )

    def __call__(self, request: Request | bytes, n_sites: int = 3) -> Response:
        self.number += 1
        content = request if isinstance(request, bytes) else codec.encode(request)
        question = Question(self.run, self.job, "north", n_sites, self.number, REQUEST, content)
        return codec.decode_response(self.answering(question))


def log_of(kit: Path) -> list[Entry]:
    return list(SiteLog(kit / LOG_FILE).entries())


def test_an_answer_and_its_line_in_the_log(kit: Path) -> None:
    ask = Asking(kit)
    assert isinstance(ask(DESCRIBE), Description)
    assert isinstance(ask(PriceQuery(1, moments=Moments(np.zeros(2)))), PriceReply)
    first, second = log_of(kit)
    assert (first.who, first.run, first.job, first.number) == ("admin@consentroid.org", "run-1", "job-1", 1)
    assert (first.kind, first.n_clusters, second.kind) == ("describe", 2, "moments")
    assert first.outcome == second.outcome == "answered"
    assert len(first.digest) == 64
    assert os.stat(kit / LOG_FILE).st_mode & 0o777 == 0o600
    content = (kit / LOG_FILE).read_text()
    assert not any(f"{x!r}" in content for x in ROWS.ravel())


def test_the_log_names_the_smallest_group(kit: Path) -> None:
    from consentroid.protocol.messages import Evaluate

    ask = Asking(kit, Policy(masks="never", least_rows=1))
    ask(DESCRIBE)
    candidates = np.stack([ROWS[[0, 1]] + 1e-3])
    ask(PriceQuery(1, evaluate=Evaluate(candidates)))
    labels = ((ROWS[:, None] - candidates[0]) ** 2).sum(axis=2).argmin(axis=1)
    assert log_of(kit)[-1].smallest_group == np.bincount(labels).min()


@pytest.mark.parametrize(
    ("request_", "policy", "rule"),
    [
        (Describe(2), OPEN, "require_domain"),
        (Describe(51, *[np.full(2, -9.0), np.full(2, 9.0)]), OPEN, "largest_k"),
        (DESCRIBE, Policy(least_rows=31), "least_rows"),
        (PriceQuery(1, moments=Moments(np.zeros(2))), OPEN, "must describe"),
        (b"\xc1", OPEN, "msgpack"),
    ],
)
def test_refusals_are_told_and_logged(request_: Any, policy: Policy, rule: str, kit: Path) -> None:
    refusal = Asking(kit, policy)(request_)
    assert isinstance(refusal, Failure)
    assert rule in refusal.reason
    assert rule in log_of(kit)[-1].outcome
    assert not any(str(x) in refusal.reason for x in ROWS.ravel())


def test_masks_are_missed_with_three_sites(kit: Path) -> None:
    ask = Asking(kit, Policy())
    assert isinstance(ask(DESCRIBE), Description)
    refusal = ask(PriceQuery(1, moments=Moments(np.zeros(2))))
    assert isinstance(refusal, Failure)
    assert "rule 'masks'" in refusal.reason
    assert refusal.final


def test_an_unexpected_error_is_told_by_its_kind_alone(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from consentroid.site.worker import SiteWorker

    def broken(self: SiteWorker, request: Request) -> Response:
        raise ValueError(f"row {ROWS[0]} is strange")

    monkeypatch.setattr(SiteWorker, "answer", broken)
    failure = Asking(kit)(DESCRIBE)
    assert isinstance(failure, Failure)
    assert failure.reason == "ValueError; the site's own log has the details"


def test_the_rules_hold_over_the_jobs_of_a_run(kit: Path) -> None:
    policy = Policy(masks="never", most_questions=4)
    moments = PriceQuery(1, moments=Moments(np.zeros(2)))
    first = Asking(kit, policy)
    assert not any(isinstance(first(request), Failure) for request in (DESCRIBE, moments, moments))
    second = Asking(kit, policy, job="job-2")
    assert isinstance(second(moments), PriceReply), "a job that resumes need not describe the run again"
    refusal = second(moments)
    assert isinstance(refusal, Failure)
    assert "most_questions" in refusal.reason
    assert isinstance(Asking(kit, policy, job="job-3", run="run-2")(DESCRIBE), Description)


def test_a_day_has_so_many_runs(kit: Path) -> None:
    policy = Policy(masks="never", most_runs_per_day=2)
    for run in ("run-1", "run-2"):
        assert isinstance(Asking(kit, policy, run=run)(DESCRIBE), Description)
    refusal = Asking(kit, policy, run="run-3")(DESCRIBE)
    assert isinstance(refusal, Failure)
    assert "most_runs_per_day" in refusal.reason


@pytest.mark.parametrize("word", [APPROVED, REFUSED])
def test_a_job_waits_for_its_owner(word: str, kit: Path) -> None:
    ask = Asking(kit, Policy(masks="never", approval="hand"))
    answers: list[Response] = []
    asking = threading.Thread(target=lambda: answers.append(ask(DESCRIBE)))
    asking.start()
    while not ask.approvals.waiting:
        time.sleep(0.01)
    shown = CliRunner().invoke(node_app, ["approve", str(kit), "no-such-job"])
    assert isinstance(shown.exception, InvalidInput)
    decided = CliRunner().invoke(node_app, ["approve" if word == APPROVED else "refuse", str(kit)])
    assert decided.exit_code == 0, decided.output
    asking.join(10.0)
    assert isinstance(answers[0], Description if word == APPROVED else Failure)
    if word == REFUSED:
        assert "owner has refused" in answers[0].reason  # type: ignore[union-attr]
    assert not ask.approvals.pending()


def test_an_approval_holds_for_one_job(kit: Path) -> None:
    policy = Policy(masks="never", approval="hand")
    approvals = Approvals(kit)
    answers: list[Response] = []
    for job in ("job-1", "job-2"):
        ask = Asking(kit, policy, job=job)
        asking = threading.Thread(target=lambda ask=ask: answers.append(ask(DESCRIBE)))  # type: ignore[misc]
        asking.start()
        while not approvals.pending():
            time.sleep(0.01)
        (asked,) = approvals.pending()
        assert (asked.job, asked.n_clusters, asked.who) == (job, 2, "admin@consentroid.org")
        approvals.decide(job, APPROVED)
        asking.join(10.0)
    assert len(answers) == 2


@pytest.mark.parametrize("job", ["../x", "", "a/b", "a" * 101])
def test_a_job_cannot_name_files(job: str, kit: Path) -> None:
    with pytest.raises(InvalidInput, match="letters, digits"):
        Approvals(kit).decision(job)


def test_prices_stay_in_the_kit_and_are_forgotten(kit: Path) -> None:
    ask = Asking(kit)
    ask(DESCRIBE)
    ask(PriceQuery(1, 1, coordinates=Coordinates(np.zeros(2), np.eye(2), 1.0)))
    ask(PriceQuery(2, 2, start=StartPrices(0, ROWS[:2])))
    assert isinstance(ask(PriceQuery(3, 2, keep=KeepPrices(np.array([0])))), PriceReply)
    kept = kit / "prices" / "run-1.npz"
    assert os.stat(kept).st_mode & 0o077 == 0
    forget_prices(kit, 90)
    assert kept.exists()
    os.utime(kept, (0, 0))
    forget_prices(kit, 90)
    assert not kept.exists()


def test_old_lines_are_forgotten(kit: Path) -> None:
    ask = Asking(kit)
    ask(DESCRIBE)
    ask(DESCRIBE)
    lines = [asdict(entry) for entry in log_of(kit)]
    lines[0]["time"] -= 100 * 24 * 3600.0
    (kit / LOG_FILE).write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"torn')
    assert SiteLog(kit / LOG_FILE).forget(90) == 1
    assert [entry.number for entry in log_of(kit)] == [2]
    assert os.stat(kit / LOG_FILE).st_mode & 0o077 == 0


def test_the_log_command_reads_it(kit: Path) -> None:
    ask = Asking(kit)
    ask(DESCRIBE)
    ask(Describe(2))
    called = CliRunner().invoke(node_app, ["log", str(kit), "--json"])
    assert [json.loads(line)["kind"] for line in called.stdout.splitlines()] == ["describe", "describe"]
    shown = CliRunner().invoke(node_app, ["log", str(kit)], env={"COLUMNS": "250"})
    assert "require_domain" in shown.stdout
    assert "admin@consentroid.org" in shown.stdout
    assert CliRunner().invoke(node_app, ["log", str(kit), "--run", "run-9", "--json"]).stdout == ""


def test_the_screen_shows_jobs_and_refusals_harmlessly(kit: Path) -> None:
    console = Console(record=True, width=200, force_terminal=False)
    with SiteScreen(SiteLog(kit / LOG_FILE), console) as screen:
        ask = Asking(kit)
        ask.answering.who = "[red]evil\x1b[31m[/red]"
        ask(DESCRIBE)
        ask(Describe(2))
        screen.update()
        console.print(screen.table())
    said = console.export_text()
    assert "job job-1 of [red]evil\\x1b[31m[/red] begins: question 1, describe, K = 2" in said
    assert "rule 'require_domain'" in said
    assert "\x1b" not in said
