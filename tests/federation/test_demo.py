"""`consentroid demo --federated` as a newcomer runs it: processes, TLS, a site killed on the way, the same cost."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nvflare")

pytestmark = pytest.mark.xdist_group("flare")


def test_the_federated_demo_loses_a_site_and_proves_the_same(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "consentroid", "demo", "--federated", "--out", str(tmp_path / "demo"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result == json.loads((tmp_path / "demo" / "result.json").read_text())
    assert result["certified"]
    assert [site["name"] for site in result["sites"]] == ["berlin", "lyon", "turin"]
    told = " ".join(done.stderr.split())
    assert re.search(r"killed node 'lyon' after round \d+, and restarted it", told)
    assert "the run went on from its journal and is complete" in told
    same = re.search(r"Proven: 3 nodes, rows never moved, cost ([\d.]+), .* in one process: ([\d.]+)\.", told)
    assert same, told
    assert float(same[2]) <= float(same[1]) <= float(same[2]) * 1.0003  # sites round costs up to thirteen binary digits
