"""Real processes are killed, stopped and cut off in the middle of a run. Minutes: `make test-faults`.

Every case must end with the result of an undisturbed run; the log of the last run is in docs/faults.md.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("nvflare")

from consentroid.core.errors import NodeFailed
from consentroid.federation.administrator import Federation, Patience, Progress
from consentroid.site.policy import Policy
from flare_federation import NODES, SECURE, Running

pytestmark = [
    pytest.mark.faults,
    pytest.mark.xdist_group("flare"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*:ResourceWarning"),
]

LIMITS = {"silence": 6.0, "call": 4.0, "pace": 0.05}
STRIKE_AFTER_ROUND = 20
VICTIM = "south"


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    # masked, guarded: the defaults; with fewer rows the steps of sums cost more than the gap that is asked for
    running = Running(tmp_path_factory.mktemp("federation"), Policy(), rows=40)
    try:
        running.in_process()
        yield running
    finally:
        running.stop()


def worker_killed(federation: Running) -> None:
    os.kill(federation.members[VICTIM].workers()[0], signal.SIGKILL)


def node_killed_and_restarted(federation: Running) -> None:
    federation.members[VICTIM].kill()
    federation.start(VICTIM)


def node_never_answers(federation: Running) -> None:
    """Stopped for good: the engine has to kill it to end the job."""
    os.kill(federation.members[VICTIM].workers()[0], signal.SIGSTOP)


def cut_and_restored(federation: Running) -> None:
    """Nothing passes for three seconds, less than the silence that means a loss."""
    worker = federation.members[VICTIM].workers()[0]
    os.kill(worker, signal.SIGSTOP)
    threading.Timer(3.0, os.kill, (worker, signal.SIGCONT)).start()


def coordinator_killed(federation: Running) -> None:
    os.kill(federation.members["server"].workers()[0], signal.SIGKILL)


def server_killed_and_restarted(federation: Running) -> None:
    federation.members["server"].kill()
    federation.start("server")


FAULTS: dict[str, tuple[Callable[[Running], None], int]] = {  # and how many jobs the run takes
    "a node's worker is killed": (worker_killed, 2),
    "a whole node is killed and restarted": (node_killed_and_restarted, 2),
    "a node never answers": (node_never_answers, 2),
    "a connection is cut and restored": (cut_and_restored, 1),
    "the coordinator is killed": (coordinator_killed, 2),
    "the server is killed and restarted": (server_killed_and_restarted, 2),
}


def assert_same_result(federation: Running, out: Path) -> None:
    expected = federation.in_process(SECURE)
    result = json.loads((out / "result.json").read_text())
    assert result["certified"]
    assert result["upper_bound"] == pytest.approx(expected.upper_bound, rel=2**-12), "sites round costs up"
    assert result["lower_bound"] <= expected.upper_bound
    assert [site["name"] for site in result["sites"]] == list(NODES)
    assert json.loads((out / "certificate.json").read_text())["lower"] == result["lower_bound"]


@pytest.mark.parametrize("name", FAULTS)
def test_the_run_ends_with_the_same_result(name: str, federation: Running, tmp_path: Path) -> None:
    fault, jobs = FAULTS[name]
    struck, story = False, []
    started = time.monotonic()

    def watch(progress: Progress) -> None:
        nonlocal struck
        line = f"job {progress.job}: {progress.note or progress.phase}"
        if not story or story[-1][1] != line:
            story.append((time.monotonic() - started, line))
        record = (progress.status or {}).get("record")
        if not struck and record is not None and record["round"] >= STRIKE_AFTER_ROUND:
            struck = True
            story.append((time.monotonic() - started, f"*** {name}, after round {record['round']}"))
            fault(federation)

    with federation.administrator() as administrator:
        administrator.fit(federation.arguments(SECURE, limits=LIMITS), tmp_path / "out", watch)
    for seconds, line in story:
        print(f"{seconds:6.1f} s  {line}")
    assert struck
    assert max(int(line.split()[1].rstrip(":")) for _, line in story if line.startswith("job ")) == jobs
    assert_same_result(federation, tmp_path / "out")


def test_the_administrator_is_killed_and_its_command_resumes(federation: Running, tmp_path: Path) -> None:
    """The run goes on without its administrator; the same command finds it again."""
    lower, upper = federation.domain.lower.tolist(), federation.domain.upper.tolist()
    ranges = ",".join(f"{a!r}:{b!r}" for a, b in zip(lower, upper, strict=True))
    command = [sys.executable, "-m", "consentroid.cli.main", "federation", "fit", str(federation.kits.admin), "-k", "3"]
    command += [f"--domain={ranges}", "--gap", "1e-3", "--features", "height,width"]
    command += ["--out", str(tmp_path / "out"), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as first:
        while not (tmp_path / "out" / "run.json").exists():
            assert first.poll() is None
            time.sleep(0.1)
        first.kill()
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["certified"]
    assert_same_result(federation, tmp_path / "out")


def test_a_node_that_stays_away_ends_the_run_with_its_name(federation: Running, tmp_path: Path) -> None:
    federation.members[VICTIM].stop()
    try:
        with (
            Federation(federation.kits.admin, Patience(nodes=5.0)) as administrator,
            pytest.raises(NodeFailed, match="not connected for 5 s; run `consentroid node start`") as caught,
        ):
            administrator.wait_for_nodes(NODES, {VICTIM: time.time()})
        assert caught.value.node == VICTIM
    finally:
        federation.start(VICTIM)
