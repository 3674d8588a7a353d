"""The report says what the files say, holds no rows, and opens in a browser without errors, on a phone too."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from consentroid.core.errors import InvalidInput
from consentroid.fitting import fit
from consentroid.report.files import write_run
from consentroid.report.html import verdict, write_report

RNG = np.random.default_rng(2)
EVIL = "</script><script>throw 'injected'</script>{{data}}"


def rows(n_features: int = 2) -> dict[str, np.ndarray]:
    centres = 4 * np.eye(3, n_features)
    names = ("north & south", EVIL, "west")
    return {name: centres[np.arange(9) % 3] + RNG.normal(size=(9, n_features)) for name in names}


@pytest.fixture(scope="module")
def tables() -> dict[str, np.ndarray]:
    return rows()


@pytest.fixture(scope="module")
def run_dir(tables: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    write_run(folder, fit(tables, 3, gap=1e-3, seed=0))
    return folder


def plot_data(page: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found is not None
    return dict(json.loads(found.group(1)))


def test_the_report_says_what_the_files_say(run_dir: Path, tables: dict[str, np.ndarray]) -> None:
    path = write_report(run_dir)
    assert path == run_dir / "report.html"
    page = path.read_text()
    result = json.loads((run_dir / "result.json").read_text())
    assert html.escape(verdict(result)) in page
    assert "Certified: at most" in page
    assert f"{result['bytes_up']:,}" in page
    for name in tables:
        assert html.escape(name) in page
    data = plot_data(page)
    assert data["centroids"] == result["centroids"]
    assert data["weights"] == np.sum([node["counts"] for node in result["nodes"]], axis=0).tolist()
    trace = [json.loads(line) for line in (run_dir / "trace.jsonl").read_text().splitlines()]
    assert data["trace"]["gap"] == [record["gap"] for record in trace if record["upper"] < np.inf]  # type: ignore[index]


def test_no_row_is_in_the_report_unless_a_node_adds_its_own(run_dir: Path, tables: dict[str, np.ndarray]) -> None:
    page = write_report(run_dir).read_text()
    certificate = json.loads((run_dir / "certificate.json").read_text())
    agreed = {*certificate["domain"]["lower"], *certificate["domain"]["upper"]}
    private = [value for table in tables.values() for value in table.ravel().tolist() if value not in agreed]
    assert not any(repr(value) in page for value in private)
    own = write_report(run_dir, run_dir / "own.html", rows={"west": tables["west"]}).read_text()
    assert repr(tables["west"][0, 0].item()) in own
    assert "This report shows rows of west; do not pass it on." in own


def test_nothing_is_loaded_from_elsewhere(run_dir: Path) -> None:
    page = write_report(run_dir).read_text()
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=", page)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gap": 1e-12, "certified": True}, "Proven optimal: no other 3 centroids cost less"),
        ({"gap": 5e-4, "certified": True}, "Certified: at most 0.05 % of the cost could be saved"),
        (
            {"gap": 0.07, "certified": False, "gap_asked": 0.01},
            r"Not certified: at most 7.00 % .*; 1.00 % was asked for",
        ),
        ({"symmetry": "nearest", "gap": 0.0, "certified": False}, "Nothing is proven"),
    ],
)
def test_verdicts(change: dict[str, object], said: str) -> None:
    assert re.match(said, verdict({"n_clusters": 3, "stop_reason": "time_limit", **change}))


def test_folders_that_are_no_runs(run_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"result.json' is missing; give the folder"):
        write_report(tmp_path)
    for name in ("result.json", "certificate.json", "trace.jsonl"):
        shutil.copy(run_dir / name, tmp_path)
    (tmp_path / "trace.jsonl").write_text("{")
    with pytest.raises(InvalidInput, match="not a list of JSON lines"):
        write_report(tmp_path)
    (tmp_path / "trace.jsonl").write_text("")
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(InvalidInput, match="does not hold a complete run"):
        write_report(tmp_path)
    with pytest.raises(InvalidInput, match="node 'x' has 1 columns, the run used 2"):
        write_report(run_dir, tmp_path / "out.html", rows={"x": [[1.0]]})


# ---------------------------------------------------------------------------------------------------- in a browser

PROBE_HEAD = """<script>window.problems = [];
addEventListener("error", (event) => problems.push(String(event.message)));
for (const level of ["error", "warn"]) console[level] = (...words) => problems.push(words.join(" "));
</script>"""
PROBE_TAIL = """<script>addEventListener("load", () => { THEME; setTimeout(() => {
  const drawn = (id) => document.querySelectorAll("#" + id + " .main-svg .trace, #" + id + " .main-svg .hm").length;
  const told = { problems, width: document.documentElement.scrollWidth, window: innerWidth,
    theme: document.documentElement.dataset.theme, page: getComputedStyle(document.body).backgroundColor,
    plots: ["gap-rounds", "gap-time", "bounds", "map", "profile"].map(drawn) };
  const element = document.createElement("pre"); element.id = "told"; element.textContent = JSON.stringify(told);
  document.body.append(element); }, 500); });</script></body>"""


def opened(page: Path, folder: Path, width: int, click: bool = False) -> dict[str, object]:
    """What a browser says about the page, from probes added to a copy of it."""
    chromium = next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
    )
    if chromium is None:
        pytest.skip("no Chromium found; install chromium to test the report in a browser")
    theme = 'document.getElementById("theme").click()' if click else ""
    text = page.read_text().replace("<head>", "<head>" + PROBE_HEAD, 1)
    head, _, _ = text.rpartition("</body>")
    copy = folder / "probed.html"
    copy.write_text(head + PROBE_TAIL.replace("THEME", theme))
    quiet = ("background-networking", "component-update", "gpu", "quic", "sync")
    flags = ["--headless", "--no-sandbox", "--no-first-run", "--hide-scrollbars", "--virtual-time-budget=10000"]
    flags += [f"--disable-{name}" for name in quiet]
    done = subprocess.run(
        [
            chromium,
            *flags,
            f"--user-data-dir={folder / 'profile'}",
            f"--window-size={width},2000",
            "--dump-dom",
            copy.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    told = re.search(r'<pre id="told">(.*?)</pre>', done.stdout, re.S)
    assert told is not None, done.stderr[-2000:]
    return dict(json.loads(html.unescape(told.group(1))))


@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize(("width", "click"), [(1200, False), (500, True)], ids=["wide and light", "phone and dark"])
def test_opens_in_a_browser(run_dir: Path, tmp_path: Path, width: int, click: bool) -> None:
    told = opened(write_report(run_dir, tmp_path / "report.html"), tmp_path, width, click)
    assert told["problems"] == []
    assert told["plots"] == [1, 1, 2, 1, 1]
    assert told["width"] <= told["window"]  # type: ignore[operator]
    assert told["theme"] == ("dark" if click else "light")
    assert (told["page"] == "rgb(20, 23, 26)") == click


@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize("n_features", [1, 5])
def test_other_numbers_of_features_in_a_browser(tmp_path: Path, n_features: int) -> None:
    tables = rows(n_features)
    write_run(tmp_path, fit(tables, 2, gap=0.5, time_limit=2.0, seed=0))
    told = opened(write_report(tmp_path, rows={"west": tables["west"]}), tmp_path, 800)
    assert told["problems"] == []
    assert told["plots"] == [1, 1, 2, 2, 1]


@pytest.mark.xdist_group("browser")
def test_the_probe_sees_a_broken_page(run_dir: Path, tmp_path: Path) -> None:
    page = write_report(run_dir, tmp_path / "report.html")
    page.write_text(page.read_text().replace("boundsPlot(); mapPlot();", "boundsPlot(); brokenPlot();"))
    told = opened(page, tmp_path, 800)
    assert told["problems"]
    assert told["plots"][3] == 0  # type: ignore[index]
