"""Benchmarks of the engine on a few rows: what is measured, skipped, summed up, written and drawn."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from consentroid.bench import figures, growth, profile, published
from consentroid.bench.markdown_tables import pages_of, put
from consentroid.bench.runs import NoData, Run, in_sites, machine, measure, mixture, read_published, standardised
from consentroid.cli.main import app
from consentroid.core.errors import InvalidInput

ROWS = mixture(30, 2, 2, 0.2, seed=3)
RUN = Run(
    "made", 30, 2, 2, 3, 1e-4, 10.0, 2.0, 1.5, 99.995, 100.0, "gap", 0.01, 3, 50, 20, 4_000,
    {"prices": 1.5, "search": 0.5},
)  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for name, rows in (("pr299", ROWS), ("glass", mixture(24, 3, 2, 0.2, seed=4))):
        lines = [f"{rows.shape[0]} {rows.shape[1]}", *(" ".join(repr(float(x)) for x in row) for row in rows)]
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    (folder / "published.csv").write_text(
        "data,k,solver,root_gap_percent,tree_nodes,seconds,final_gap_percent\n"
        "pr299,2,SOS-SDP,0.15,5,68.7,0.01\n"
        "pr299,2,CG+DCA,,,86400.0,3.5\n"
    )
    return folder


def test_a_run_is_measured_and_its_certificate_checked() -> None:
    steps = []
    run = measure("blobs", in_sites(ROWS), 2, gap=1e-6, check=True, on_step=steps.append)
    assert run.proven
    assert run.verified
    assert run.verified_gap is not None
    assert run.verified_gap <= 1.001e-6
    assert (run.n_rows, run.n_features, run.n_clusters, run.n_sites) == (30, 2, 2, 3)
    assert run.bytes_per_site > 0
    assert run.exchanges > 0
    assert 0 < sum(run.phases.values()) <= run.seconds
    assert run.root_gap == run.gap  # no branch
    assert steps


def test_limits_forgive_five_per_cent_or_half_a_second() -> None:
    assert replace(RUN, time_limit=10.0, seconds=10.5).over_limit == 0
    assert replace(RUN, time_limit=100.0, seconds=105.0).over_limit == 0
    assert replace(RUN, time_limit=10.0, seconds=12.0).over_limit == pytest.approx(1.5)


def test_data_that_are_missing_or_wrong_are_told_apart(data: Path) -> None:
    assert read_published(data, "pr299").shape == (30, 2)
    with pytest.raises(NoData, match=r"iris\.txt"):
        read_published(data, "iris")
    with pytest.raises(NoData, match="--data"):
        read_published(None, "iris")
    (data / "iris.txt").write_text("3 2\n1 2\n3 4\n")
    with pytest.raises(InvalidInput, match=r"\(3, 2\).*\(2, 2\)"):
        read_published(data, "iris")
    (data / "iris.txt").write_text("two words\n")
    with pytest.raises(InvalidInput, match="not a data set"):
        read_published(data, "iris")


def test_rows_are_dealt_to_sites_and_standardised() -> None:
    sites = in_sites(ROWS, 4)
    assert sorted(map(tuple, np.concatenate(list(sites.values())))) == sorted(map(tuple, ROWS))
    assert [len(rows) for rows in in_sites(ROWS[:2]).values()] == [1, 1]
    scaled = standardised(np.column_stack([ROWS, np.ones(30)]))
    assert np.allclose(scaled.mean(axis=0), 0)
    assert np.allclose(scaled.std(axis=0), (1, 1, 0))


def test_published_problems_come_with_the_figures_of_others(data: Path) -> None:
    first = published.problems_in(data)[0]
    assert first.name == "pr299 K=2"
    assert first.reported["SOS-SDP"] == published.Reported(0.0015, 5, 68.7, 0.0001)
    assert first.reported["CG+DCA"].out_of_time
    assert first.reported["CG+DCA"].root_gap is None
    assert [p.name for p in published.problems_in(data, ["pr299:2", "glass"])] == ["pr299 K=2", "glass K=3"]
    with pytest.raises(InvalidInput, match="pr300"):
        published.problems_in(data, ["pr300"])
    (data / "published.csv").write_text("data,k\npr299,two\n")
    with pytest.raises(InvalidInput, match=r"published\.csv"):
        published.problems_in(data)


def test_the_summary_counts_proofs_ratios_and_what_is_left() -> None:
    def solved(k: int, run: Run, **theirs: float) -> published.SolvedProblem:
        reported = {name: published.Reported(0.1, 1, seconds, 1e-4) for name, seconds in theirs.items()}
        return published.SolvedProblem(published.PublishedProblem("x", k, reported), run)

    theirs = {"SOS-SDP": 20.0}
    told = published.summary(
        [
            solved(2, replace(RUN, verified=True, verify_seconds=0.5), **theirs),
            solved(3, replace(RUN, seconds=40.0, time_limit=20.0), **theirs),
            solved(4, replace(RUN, lower=50.0), **theirs),
        ]
    )
    assert told[0] == "2 of 3 proven to 0.0001."
    assert "2 of its 3 problems" in told[1]
    assert "5.2 times faster" in told[1]
    assert "worst 0.5; 1 slower" in told[1]
    assert "1 of 1 certificates" in told[2]
    assert "x K=4 (50.00 %)" in " ".join(told)
    assert "x K=3 (40.0 s)" in told[-1]


def test_a_cost_above_the_best_known_is_told() -> None:
    glass = published.PublishedProblem("glass", 6, {})
    dear = published.SolvedProblem(glass, replace(RUN, lower=72.0, upper=73.0))
    good = published.SolvedProblem(glass, replace(RUN, lower=72.0, upper=72.96471))
    assert "glass K=6" in published.summary([dear])[-2]
    assert "none of 1" in published.summary([good])[-2]
    assert "✗" in published.grid_of([dear]).rows[0][0]


def test_published_from_the_command_line(data: Path, tmp_path: Path) -> None:
    out, plots = tmp_path / "p.json", tmp_path / "plots"
    options = ["--only", "pr299,glass,iris", "--out", str(out), "--plots", str(plots), "--json"]
    result = CliRunner().invoke(app, ["bench", "published", "--data", str(data), *options])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert [entry["run"]["verified"] for entry in told["problems"]] == [True, True]
    assert told["missing"] == ["iris: no file iris.txt in the folder of data sets"]
    assert json.loads(out.read_text())["problems"] == told["problems"]
    assert (plots / "published.png").stat().st_size > 5000
    page = "\n\n".join(pages_of(told))
    assert "| pr299 K=2 |" in page
    assert "2 of 2 proven" in page


def test_published_to_another_gap_and_into_a_file(data: Path, tmp_path: Path) -> None:
    command = ["bench", "published", "--data", str(data), "--only", "pr299", "--gap", "1e-2"]
    shown = CliRunner().invoke(app, [*command, "--limit", "30", "--json", str(tmp_path / "p.json")])
    assert shown.exit_code == 0, shown.output
    assert "1 of 1 proven to 0.01" in shown.output
    told = json.loads((tmp_path / "p.json").read_text())
    assert told["gap"] == 1e-2
    assert "1 of 1 proven to 0.01" in "\n".join(pages_of(told))
    assert CliRunner().invoke(app, [*command, str(tmp_path / "q.json")]).exit_code == 2


def test_figures_without_data_are_skipped_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> dict[str, np.ndarray]:
        raise NoData("not here")

    few = [
        figures.Line("g", "easy", "< 60 s", 2, 1e-4, 60.0, lambda: in_sites(ROWS)),
        figures.Line("g", "too fast", "< 0 s", 2, 1e-4, 0.0, lambda: in_sites(ROWS)),
        figures.Line("g", "quick but loud", "< 60 s", 2, 1e-4, 60.0, lambda: in_sites(ROWS), 1.0),
        figures.Line("g", "missing", "< 1 s", 2, 1e-4, 1.0, missing),
    ]
    monkeypatch.setattr(figures, "lines", lambda data: few)
    result = CliRunner().invoke(app, ["bench", "figures", "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    held = {one["name"]: (one["holds"], one["remark"]) for one in told["figures"]}
    assert held["easy"] == (True, "")
    assert held["too fast"][0] is False
    assert held["quick but loud"][0] is True
    assert held["quick but loud, bytes"][0] is False
    assert held["missing"] == (None, "not here")
    assert held["24 public instances"][0] is None
    assert held["u1060 K=50"][0] is None
    page = "\n\n".join(pages_of(told))
    assert "2 of 4 figures hold; data for 3 are missing." in page


def test_every_figure_names_data_that_can_be_read_or_are_missing() -> None:
    for line in figures.lines(None):
        try:
            rows = line.rows()
        except NoData:
            continue
        assert len(rows) > 1
        assert sum(len(table) for table in rows.values()) > 100
    birds = np.concatenate(list(figures.birds().values()))
    assert birds.shape == (342, 4)
    assert np.allclose(birds.std(axis=0), 1)


def test_the_growth_of_a_phase_is_an_exponent() -> None:
    points = [
        growth.GrowthRun("rows", n, replace(RUN, seconds=1e-4 * n**1.5, phases={"prices": 1e-4 * n}), 100.0 + n / 100)
        for n in (100, 300, 1_000, 3_000, 10_000, 30_000)
    ]
    assert growth.exponent(points, lambda point: point.run.seconds) == pytest.approx(1.5)
    assert growth.exponent(points, lambda point: point.phase("prices")) == pytest.approx(1.0)
    assert math.isnan(growth.exponent(points, lambda point: point.phase("search")))
    told = json.loads(json.dumps(growth.document(points)))
    assert growth.points_in(told) == points
    page = "\n\n".join(pages_of(told))
    assert "| exponent |" in page
    assert "1.50" in page


def test_growth_is_measured_in_a_process_of_its_own_and_drawn(tmp_path: Path) -> None:
    run, megabytes = growth.grow("sites", 2, (60, 2, 2, 2), 30.0)
    assert run.proven
    assert run.n_sites == 2
    assert megabytes > 50
    points = [growth.GrowthRun("sites", n, replace(RUN, lower=RUN.lower - n), 100.0) for n in (0, 2, 4)]
    points = [replace(point, size=point.size + 1) for point in points]
    (path,) = growth.draw(points, tmp_path)
    assert path.stat().st_size > 5000
    assert growth.grids_of(points)[0].rows[0][0] == "1"


def test_unknown_curves_are_refused() -> None:
    result = CliRunner().invoke(app, ["bench", "growth", "--curves", "rows,colour"])
    assert isinstance(result.exception, InvalidInput)
    assert "colour" in str(result.exception)


def test_the_profile_shows_every_phase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> dict[str, np.ndarray]:
        raise NoData("not here")

    few = [("blobs", lambda: in_sites(ROWS), 2, 1e-4), ("missing", missing, 2, 1e-4)]
    monkeypatch.setattr(profile, "cases", lambda data: few)
    options = ["--plots", str(tmp_path), "--out", str(tmp_path / "profile.json")]
    result = CliRunner().invoke(app, ["bench", "profile", *options])
    assert result.exit_code == 0, result.output
    assert "certificate" in result.output
    assert "Skipped: not here" in result.output
    assert (tmp_path / "profile.png").stat().st_size > 5000
    assert "| blobs |" in "\n\n".join(pages_of(json.loads((tmp_path / "profile.json").read_text())))


def test_an_interrupt_keeps_what_was_measured(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = published.measure

    def interrupted(name: str, *given: object, **options: object) -> Run:
        if name.startswith("glass"):
            raise KeyboardInterrupt
        return original(name, *given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(published, "measure", interrupted)
    result = CliRunner().invoke(app, ["bench", "published", "--data", str(data), "--only", "pr299,glass", "--json"])
    assert result.exit_code == 130
    assert len(json.loads(result.stdout)["problems"]) == 1


def test_the_machine_has_no_name() -> None:
    told = machine()
    assert set(told) == {"cores", "processor", "system", "python", "consentroid", "packages", "load"}


def test_a_page_gets_new_tables_between_its_marks() -> None:
    page = "before\n<!-- growth -->\nold\n<!-- end -->\nafter\n<!-- other -->\nkept\n<!-- end -->\n"
    changed = put(page, "growth", r"| new \1 |")
    assert changed == page.replace("old\n", "\n| new \\1 |\n\n")
    with pytest.raises(InvalidInput, match="profile"):
        put(page, "profile", "")


def test_large_problems_are_as_large_as_their_names() -> None:
    cases = {name: (read, k) for name, read, k, _ in profile.large_cases()}
    assert "1,000,000×2 K=5, spread 0.3" in cases
    read, k = cases["2,000×8 K=4, spread 1"]
    assert k == 4
    assert sum(len(rows) for rows in read().values()) == 2_000


def test_published_problems_go_on_where_they_stopped(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.json"
    command = ["bench", "published", "--data", str(data), "--out", str(out), "--json", "--resume"]
    first = CliRunner().invoke(app, [*command, "--only", "pr299:2"])
    assert first.exit_code == 0, first.output
    both = CliRunner().invoke(app, [*command, "--only", "pr299:2,glass:3"])
    assert both.exit_code == 0, both.output
    before, after = json.loads(first.stdout), json.loads(both.stdout)
    assert [one["problem"]["n_clusters"] for one in after["problems"]] == [2, 3]
    assert after["problems"][0] == before["problems"][0]
    other = CliRunner().invoke(app, [*command, "--limit", "7"])
    assert isinstance(other.exception, InvalidInput)
    assert "holds no published problems with --time-limit 7" in str(other.exception)
