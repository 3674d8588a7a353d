"""The report says what the files say, hides small counts, holds no rows, and opens in a browser, on a phone too."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from consentroid.core.errors import InvalidInput
from consentroid.core.result import SiteShare, StopReason
from consentroid.report.disclosure import suppressed
from consentroid.report.files import Details, write_run
from consentroid.report.html import write_report
from consentroid.report.svg import Axis, zonotope
from consentroid.report.wording import DISCLOSURE, verdict
from made_results import FEATURES, made_result, made_rows

EVIL = "</title><script>throw 'injected'</script>{{data}}\x1b[31m"


def written(folder: Path, n_features: int = 4, spread: bool = True, **changes: Any) -> Path:
    result = made_result(n_features, **changes)
    deviations = np.tile([2.6, 1.1, 6.5, 450.0][:n_features], (3, 1))
    write_run(folder, result, Details(spread=deviations if spread else None))
    return folder


def test_the_report_says_what_the_files_say(tmp_path: Path) -> None:
    path = write_report(written(tmp_path))
    assert path == tmp_path / "report.html"
    assert path.stat().st_size < 1_000_000
    page = path.read_text()
    assert html.escape(verdict(made_result())) in page
    assert DISCLOSURE in page
    assert "never a row" not in page
    for said in ("690.95", "690.89999", "0.008 %", "48,211 bytes up", "São Torgersen", "3,700", "certified region"):
        assert said in page
    for feature in FEATURES:
        assert f">{feature}</text>" in page
    assert page.count('class="region"') == 3
    assert not re.search(r"<(script|link|img|iframe)\b", page)


@pytest.mark.parametrize(
    ("changes", "said", "kind"),
    [
        ({"lower_bound": 690.95}, "Proven optimal: no other 3 centroids cost less than these.", "good"),
        ({"lower_bound": 600.0, "stop_reason": StopReason.TIME_LIMIT}, "but the time limit was reached", "open"),
        ({"lower_bound": float("-inf"), "stop_reason": StopReason.INTERRUPTED}, "Nothing is proven", "open"),
        ({"settings": {"symmetry": "nearest"}}, "Nothing is proven: the rule", "open"),
        ({"regions": None, "certificate": None, "trace": (), "method": "btm"}, "Certified", "good"),
        ({"features": ()}, "x3", "good"),
    ],
)
def test_verdicts_and_missing_parts(tmp_path: Path, changes: dict[str, Any], said: str, kind: str) -> None:
    page = write_report(written(tmp_path, spread="regions" not in changes, **changes)).read_text()
    assert said in page
    assert f'class="verdict {kind}"' in page
    if changes.get("regions", 1) is None:
        assert 'class="region"' not in page
        assert "Bar: its certified region" not in page
        assert "Fewer than two steps" in page


def test_what_a_file_says_of_itself_is_not_believed(tmp_path: Path) -> None:
    written(tmp_path, lower_bound=600.0, stop_reason=StopReason.TIME_LIMIT)
    result = json.loads((tmp_path / "result.json").read_text())
    result |= {"certified": True, "gap": 0.0, "verdict": "Proven optimal"}
    (tmp_path / "result.json").write_text(json.dumps(result))
    page = write_report(tmp_path).read_text()
    assert "Not certified" in page
    assert "Proven optimal" not in page
    assert 'class="verdict open"' in page


def test_names_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    sites = (SiteShare(EVIL, 342, 690.95, made_result().counts),)
    page = write_report(written(tmp_path, sites=sites, features=(EVIL, *FEATURES[1:]))).read_text()
    assert html.escape(EVIL.replace("\x1b", "\\x1b")) in page
    assert "<script" not in page
    assert "\x1b" not in page


def test_small_counts_are_hidden_with_all_that_gives_them_away(tmp_path: Path) -> None:
    page = write_report(written(tmp_path)).read_text()
    table = page[page.index("<h2>Sites and clusters") : page.index("<h2>Centroids by feature")]
    rows = re.findall(r"<tr><th scope=row>([^<]+)</th>(.*?)</tr>", table)
    cells = {name: re.findall(r"<td[^>]*>([^<]*(?:<small>[^<]*</small>)?)</td>", row)[2:] for name, row in rows}
    assert cells["Biscoe"] == ["–", "–", "&lt;5"]
    assert cells["Dream"][1] == "&lt;5"
    for shown in ("120", "44", "3", "2"):
        assert f">{shown}<small>" not in table
    assert "&lt;5: too few to show" in table
    open_page = write_report(tmp_path, least=1).read_text()
    assert ">120<small>" in open_page


@given(arrays(float, st.tuples(st.integers(1, 5), st.integers(1, 5)), elements=st.integers(0, 30)))
def test_no_line_of_the_table_hides_a_single_count(counts: np.ndarray) -> None:
    table = np.concatenate([counts, counts.sum(axis=0, keepdims=True)])
    small, beside = suppressed(table)
    assert np.array_equal(small, (table > 0) & (table < 5))
    hidden = small | beside
    for lines, values in ((hidden, table), (hidden.T, table.T)):
        for line, of in zip(lines, values):
            assert line.sum() != 1 or np.all(of[~line] == 0)


def test_no_row_is_in_the_report_unless_a_site_adds_its_own(tmp_path: Path) -> None:
    rows = made_rows()
    page = write_report(written(tmp_path)).read_text()
    assert page.count("<circle") < 30
    own = write_report(tmp_path, tmp_path / "own.html", rows={"Dream": rows["Dream"]})
    assert own.read_text().count("<circle") == page.count("<circle") + len(rows["Dream"])
    assert "This page shows rows of Dream; do not pass it on." in own.read_text()
    many = {"a": np.tile(rows["Dream"], (300, 1))}
    large = write_report(tmp_path, tmp_path / "large.html", rows=many)
    assert large.stat().st_size < 1_000_000
    assert "3,000 of 37,200 rows are drawn." in large.read_text()


def test_folders_that_are_no_runs(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"result.json' is missing; give the folder"):
        write_report(tmp_path)
    written(tmp_path)
    with pytest.raises(InvalidInput, match="site 'x' has 1 columns, the run used 4"):
        write_report(tmp_path, rows={"x": [[1.0]]})
    with pytest.raises(InvalidInput, match=r"cannot write .*choose another place"):
        write_report(tmp_path, tmp_path / "nowhere" / "r.html")
    result = json.loads((tmp_path / "result.json").read_text())
    del result["counts"]
    (tmp_path / "result.json").write_text(json.dumps(result))
    with pytest.raises(InvalidInput, match="does not hold a complete run"):
        write_report(tmp_path)


def test_a_long_run_with_many_clusters_stays_small(tmp_path: Path) -> None:
    step = made_result().trace[-1]
    rng = np.random.default_rng(0)
    centroids = rng.normal(size=(60, 20))
    made = made_result(
        centroids=centroids, counts=np.full(60, 9.0), features=tuple(f"f{d}" for d in range(20)), regions=None,
        sites=tuple(SiteShare(f"s{i}", 27, 1.0, np.full(60, 0.45)) for i in range(20)), trace=(step,) * 20_000,
    )  # fmt: skip
    write_run(tmp_path, made)
    assert write_report(tmp_path).stat().st_size < 1_000_000


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_lie_on_the_axis(lower: float, width: float) -> None:
    axis = Axis(lower, lower + width)
    if axis.upper > axis.lower:
        ticks = axis.ticks(5)
        assert 1 <= len(ticks) <= 11
        assert all(-1e-6 <= axis.at(tick) <= 1 + 1e-6 for tick in ticks)


@given(arrays(float, st.tuples(st.integers(1, 5), st.just(2)), elements=st.integers(-5, 5)))
def test_the_shadow_of_a_box_holds_its_corners(generators: np.ndarray) -> None:
    corners = np.array(zonotope((1.0, 2.0), [(float(x), float(y)) for x, y in generators]))
    signs = np.array(np.meshgrid(*[[-1, 1]] * len(generators))).reshape(len(generators), -1).T
    points = signs @ generators + [1.0, 2.0]
    edges = np.roll(corners, -1, axis=0) - corners
    outward = np.stack([edges[:, 1], -edges[:, 0]], axis=1)
    reach = np.einsum("ed,ped->pe", outward, points[:, None] - corners[None])
    assert np.all(reach <= 1e-9)
    assert np.allclose(corners.min(axis=0), points.min(axis=0))
    assert np.allclose(corners.max(axis=0), points.max(axis=0))


# ---------------------------------------------------------------------------------------------------- in a browser

PROBE = """<script>addEventListener("load", () => {
  const past = [...document.querySelectorAll("main > *, section > *, svg text")].filter((e) =>
    e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().left < -1);
  const heights = [...document.querySelectorAll("svg")].map((s) => s.getBoundingClientRect().height);
  parent.postMessage({ width: document.documentElement.scrollWidth, window: innerWidth,
    past: past.map((e) => e.outerHTML.slice(0, 90)), page: getComputedStyle(document.body).backgroundColor,
    charts: heights.length, empty: heights.filter((h) => h < 40).length }, "*"); });</script></body>"""
# A window has a least width, a frame has none: the page stands in a frame as wide as a phone.
FRAME = """<!doctype html><meta name="color-scheme" content="light dark"><script>
addEventListener("message", (event) => { const element = document.createElement("pre"); element.id = "told";
  element.textContent = JSON.stringify(event.data); document.body.append(element); });</script>
<body><iframe src="probed.html" width="WIDTH" height="2000" style="border: 0; color-scheme: light dark"></iframe>"""


def opened(page: Path, folder: Path, width: int, dark: bool = False) -> dict[str, Any]:
    """What a browser says about the page, from a probe added to a copy of it."""
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next((found for name in names if (found := shutil.which(name))), None)
    if chromium is None:
        pytest.skip("no Chromium found; install chromium to test the report in a browser")
    (folder / "probed.html").write_text(page.read_text().replace("</body>", PROBE))
    frame = folder / "frame.html"
    frame.write_text(FRAME.replace("WIDTH", str(width)))
    flags = ["--headless", "--no-sandbox", "--no-first-run", "--hide-scrollbars", "--disable-gpu", "--disable-sync"]
    flags += ["--disable-background-networking", "--disable-component-update", "--virtual-time-budget=5000"]
    flags += ["--blink-settings=preferredColorScheme=0"] if dark else []
    flags += [f"--user-data-dir={folder / 'profile'}", f"--window-size={width + 200},2000", "--dump-dom"]
    done = subprocess.run([chromium, *flags, frame.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    told = re.search(r'<pre id="told"[^>]*>(.*?)</pre>', done.stdout, re.S)
    assert told is not None, done.stderr[-2000:]
    return dict(json.loads(html.unescape(told.group(1))))


@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize(
    ("width", "dark", "n_features", "charts"),
    [(1280, False, 4, 7), (390, True, 4, 7), (390, False, 2, 5), (1280, True, 1, 4)],
)
def test_opens_in_a_browser(tmp_path: Path, width: int, dark: bool, n_features: int, charts: int) -> None:
    report = write_report(written(tmp_path, n_features), tmp_path / "report.html")
    told = opened(report, tmp_path, width, dark)
    assert told["window"] == width
    assert told["width"] <= width
    assert told["past"] == []
    assert (told["charts"], told["empty"]) == (charts, 0)
    assert (told["page"] == "rgb(20, 23, 26)") == dark
