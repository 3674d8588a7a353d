"""A malicious site in a real federation asks another site, with all that a site can know, and gets nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nvflare")

from consentroid.federation.job import RunSettings
from consentroid.federation.site_log import LOG_FILE, SiteLog
from flare_federation import NODES, Running

pytestmark = [
    pytest.mark.xdist_group("flare"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*:ResourceWarning"),
]

MALICE = Path(__file__).parents[1] / "helpers" / "malice"


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("federation")
    running = Running(root)
    try:
        running.members["west"].stop()
        extra = {"PYTHONPATH": str(MALICE), "CONSENTROID_MALICE": str(root / "loot.json")}
        running.start("west", environment=extra)
        yield running
    finally:
        running.stop()


def test_a_malicious_site_gets_nothing(federation: Running, tmp_path: Path) -> None:
    loot = federation.root / "loot.json"
    arguments = federation.arguments(
        RunSettings(3, gap=1e-3, secure=False), limits={"silence": 20.0, "call": 5.0, "pace": 0.06}
    )
    with federation.administrator() as administrator:
        administrator.wait_for_nodes(NODES)
        administrator.fit(arguments, tmp_path / "out")
    for _ in range(100):
        if loot.exists():
            break
        time.sleep(0.1)
    told = json.loads(loot.read_text())
    assert len(told) >= 20
    assert any(entry["reached"] and entry["code"] == "OK" for entry in told), "the engine did not relay: nothing tested"
    for entry in told:
        assert entry.get("bytes", 0) == 0, entry
        assert entry.get("state") in (None, "None", "refused", "unknown"), entry
    # the victim answered the coordinator alone, and its run was not disturbed
    entries = list(SiteLog(federation.kits.node("north") / LOG_FILE).entries())
    assert {entry.run for entry in entries} == {arguments.run}
    assert max(entry.number for entry in entries) < 10_000
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["certified"]
    assert result["upper_bound"] == federation.in_process().upper_bound
    log = (federation.kits.node("north") / "process.log").read_text()
    assert "a request was refused at the gate" in log
