"""A real federation: separate processes, mutual TLS, hardened sites. One federation serves all tests."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

pytest.importorskip("nvflare")

from typer.testing import CliRunner

from consentroid.cli.federation import federation_app
from consentroid.cli.main import app
from consentroid.core.errors import FederationFailed, NodeFailed
from consentroid.federation.administrator import Progress
from consentroid.federation.job import write_job
from consentroid.federation.kit import provision, set_private_table
from consentroid.federation.site_log import LOG_FILE, SiteLog
from consentroid.site.policy import Policy
from flare_federation import FEATURES, NODES, OPEN, SECURE, Running, free_port
from keys import startup

pytestmark = [
    pytest.mark.xdist_group("flare"),
    # the engine's own threads and sockets end with the process
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*:ResourceWarning"),
]


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("federation"))
    try:
        running.in_process()  # compiles the solver once, while the processes start
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def finished(federation: Running) -> Path:
    """A run by the command that users call."""
    out = federation.root / "out"
    lower, upper = federation.domain.lower, federation.domain.upper
    ranges = ",".join(f"{a!r}:{b!r}" for a, b in zip(lower.tolist(), upper.tolist(), strict=True))
    command = ["fit", str(federation.kits.admin), "-k", "3", "--gap", "1e-3", "--open", "--out", str(out), "--json"]
    called = CliRunner().invoke(
        federation_app, [*command, "--domain", ranges, "--features", ",".join(FEATURES)], catch_exceptions=False
    )
    assert called.exit_code == 0, called.output
    assert json.loads(called.stdout)["certified"] is True
    return out


def test_a_federated_run_ends_like_a_run_in_one_process(federation: Running, finished: Path) -> None:
    """The number of boxes in a question follows the clock, so traces differ; what is found and proven does not."""
    expected = federation.in_process()
    result = json.loads((finished / "result.json").read_text())
    assert result["centroids"] == expected.centroids.tolist()
    assert result["upper_bound"] == expected.upper_bound
    assert result["lower_bound"] == pytest.approx(expected.lower_bound, rel=1e-3)
    assert [(site["name"], site["cost"]) for site in result["sites"]] == [
        (share.name, share.cost) for share in expected.sites
    ]
    document = json.loads((finished / "certificate.json").read_text())
    assert document["lower"] == result["lower_bound"]
    assert set(document["price_files"]) == set(NODES)


@pytest.fixture(scope="module")
def masked(federation: Running) -> Path:
    out = federation.root / "masked"
    with federation.administrator() as administrator:
        administrator.fit(federation.arguments(SECURE), out)
    return out


def test_a_masked_run_ends_like_an_open_one_and_knows_no_site(federation: Running, masked: Path) -> None:
    result = json.loads((masked / "result.json").read_text())
    expected = federation.in_process()
    assert result["certified"]
    assert result["upper_bound"] == pytest.approx(expected.upper_bound, rel=1e-9)
    assert result["lower_bound"] <= expected.upper_bound
    assert [(site["name"], site["n_rows"], site["cost"], site["counts"]) for site in result["sites"]] == [
        (name, 36, None, None) for name in NODES
    ]


@pytest.mark.parametrize("kind", ["masked", pytest.param("finished", marks=pytest.mark.faults)])
def test_all_sites_verify_and_anybody_can_check_it_offline(
    kind: str, federation: Running, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    certificate = Path(shutil.copytree(request.getfixturevalue(kind), tmp_path / "run")) / "certificate.json"
    command = ["verify", str(federation.kits.admin), "--certificate", str(certificate)]
    called = CliRunner().invoke(federation_app, command, catch_exceptions=False)
    assert called.exit_code == 0, called.output
    assert "Verified by north, south, west: no clustering of their rows into 3 clusters costs less" in called.output
    root = federation.kits.admin / "startup" / "rootCA.pem"
    offline = CliRunner().invoke(app, ["verify", str(certificate), "--root", str(root), "--json"])
    told = json.loads(offline.stdout)
    assert offline.exit_code == 0
    assert told["verified_by"] == list(NODES)
    assert told["lower_bound"] == pytest.approx(json.loads(certificate.read_text())["lower"], rel=1e-9)
    other = startup(tmp_path / "other", "north", root="another federation") / "rootCA.pem"
    foreign = CliRunner().invoke(app, ["verify", str(certificate), "--root", str(other)])
    assert foreign.exit_code == 4
    assert "Not verified: statement of north: " in foreign.output


@pytest.mark.faults
def test_a_site_with_other_rows_stops_the_verification(federation: Running, masked: Path, tmp_path: Path) -> None:
    table = federation.root / "south.csv"
    kept = table.read_text()
    certificate = Path(shutil.copytree(masked, tmp_path / "run")) / "certificate.json"
    try:
        table.write_text(kept.replace("\n", "\n0,0\n", 1))
        called = CliRunner().invoke(
            federation_app, ["verify", str(federation.kits.admin), "--certificate", str(certificate)]
        )
    finally:
        table.write_text(kept)
    assert isinstance(called.exception, NodeFailed)
    assert called.exception.node == "south"
    assert "rows are not those of the run" in called.exception.reason
    assert called.exception.reason.endswith("nothing is verified")
    assert not certificate.with_name("statements.json").exists()


def test_nothing_at_the_server_holds_a_row(federation: Running, finished: Path) -> None:
    """Neither as text nor as numbers, in any file that the run left at the server or the administrator."""
    numbers = [row.tobytes() for name in NODES for row in federation.data[name]]
    texts = [f"{x:.17g}".encode() for name in NODES for x in federation.data[name][:, 0]]
    files = [p for kit in (federation.kits.server, finished) for p in kit.rglob("*") if p.is_file()]
    assert any(path.name == "audit.log" for path in files)
    for path in files:
        content = path.read_bytes()
        assert not any(row in content for row in numbers), path
        assert not any(text in content for text in set(texts)), path


@pytest.mark.faults
def test_a_job_written_to_a_folder_runs_by_the_engines_own_means(federation: Running, tmp_path: Path) -> None:
    """As an administrator of an existing deployment would submit it."""
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    called = CliRunner().invoke(
        federation_app,
        ["job", str(tmp_path / "job"), "--nodes", ",".join(NODES), "-k", "2", "--domain=-6:16,-6:16", "--gap", "0.01"],
    )
    assert called.exit_code == 0, called.output
    session = new_secure_session("admin@consentroid.org", str(federation.kits.admin))
    try:
        job = session.submit_job(str(tmp_path / "job"))
        meta = session.wait_for_job(job, timeout=90.0, poll_interval=0.5)
        place = Path(session.download_job_result(job, str(tmp_path / "result")))
    finally:
        session.close()
    assert meta["status"] == "FINISHED:COMPLETED"
    assert json.loads((place / "workspace" / "consentroid" / "result.json").read_text())["n_clusters"] == 2


def refused(federation: Running, job: Path, patience: float = 60.0) -> str:
    """The status of a job that must not run, and what its server says of it."""
    with federation.administrator() as administrator:
        try:
            identity = administrator._command("submit_job", str(job))
        except FederationFailed as error:
            return str(error)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            meta = administrator._command("get_job_meta", identity)
            if meta["status"].startswith("FINISHED"):
                return f"{meta['status']} {meta.get('job_deploy_detail')}"
            time.sleep(0.3)
    raise AssertionError("the job did not end")


def test_code_shipped_with_a_job_is_refused(federation: Running, tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", federation.arguments())
    marker = tmp_path / "ran"
    custom = job / "site" / "custom"
    custom.mkdir()
    (custom / "sitecustomize.py").write_text(f"open({str(marker)!r}, 'w')\n")
    said = refused(federation, job)
    assert "COMPLETED" not in said
    assert re.search("BYOC|not permitted|not authorized|FAILED_TO_RUN", said), said
    assert not marker.exists()


def test_a_component_outside_the_allow_list_is_refused_by_the_site(federation: Running, tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", federation.arguments())
    marker = tmp_path / "ran"
    config = job / "site" / "config" / "config_fed_client.json"
    client = json.loads(config.read_text())
    client["executors"][0]["executor"] = {"path": "subprocess.Popen", "args": {"args": ["touch", str(marker)]}}
    config.write_text(json.dumps(client))
    said = refused(federation, job, patience=120.0)
    assert "COMPLETED" not in said
    assert not marker.exists()
    log = (federation.kits.node("north") / "process.log").read_text()
    assert "Component 'subprocess.Popen' at config path" in log
    assert "is not in allow_list" in log


def test_a_job_cannot_tell_the_site_what_to_read() -> None:
    from consentroid.federation.site import ConsentroidSite

    with pytest.raises(TypeError):
        ConsentroidSite(data="/etc/passwd")  # type: ignore[call-arg]


@pytest.mark.faults
def test_a_node_with_other_columns_refuses_with_its_reason(federation: Running, tmp_path: Path) -> None:
    with federation.administrator() as administrator, pytest.raises(NodeFailed) as caught:
        administrator.fit(federation.arguments(features=("width", "height")), tmp_path / "out")
    assert caught.value.node == "north"
    assert "features ['height', 'width'] differ from those agreed, ['width', 'height']" in caught.value.reason
    assert "resumes the run" in caught.value.reason


@pytest.mark.faults
def test_the_same_command_goes_on_once_a_refusal_is_settled(federation: Running, tmp_path: Path) -> None:
    kit = federation.kits.node("south")
    kept = Policy.read(kit / "local")
    replace(kept, largest_k=2).write(kit / "local")
    arguments = federation.arguments()
    try:
        with federation.administrator() as administrator:
            with pytest.raises(NodeFailed, match="rule 'largest_k'") as caught:
                administrator.fit(arguments, tmp_path / "out")
            assert caught.value.node == "south"
            kept.write(kit / "local")
            administrator.fit(replace(arguments, run="run-another"), tmp_path / "out")
    finally:
        kept.write(kit / "local")
    assert json.loads((tmp_path / "out" / "result.json").read_text())["certified"]
    jobs = {entry.job for entry in SiteLog(kit / LOG_FILE).entries() if entry.run == arguments.run}
    assert len(jobs) == 2, "the same run, in a second job"


def test_one_log_file_at_the_announced_place(federation: Running, finished: Path) -> None:
    for kit in (federation.kits.server, federation.kits.node("north")):
        logs = {path.name for path in kit.rglob("*") if "log" in path.name and path.suffix in (".txt", ".json", ".log")}
        logs = {name for name in logs if not name.startswith("log_config") and (kit / name).stat().st_size > 0}
        assert logs <= {"process.log", "audit.log"}


def test_the_server_hangs_up_on_those_without_a_certificate_of_the_federation(federation: Running) -> None:
    folder = federation.kits.node("north") / "startup"
    target = json.loads((folder / "fed_client.json").read_text())["servers"][0]["service"]["target"]
    port = int(target.rpartition(":")[2])

    def answer(context: ssl.SSLContext) -> bytes:
        with (
            socket.create_connection(("localhost", port), timeout=5) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as line,
        ):
            line.settimeout(5)
            return line.recv(1)  # the server speaks first only to those that it knows

    stranger = ssl.create_default_context(cafile=str(folder / "rootCA.pem"))
    stranger.verify_flags &= ~ssl.VERIFY_X509_STRICT
    with pytest.raises((ssl.SSLError, ConnectionError)):
        answer(stranger)
    with pytest.raises(ssl.SSLError):  # and a client refuses a server that its federation did not certify
        answer(ssl.create_default_context())


def command(*arguments: object) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "consentroid.cli.main", *map(str, arguments)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, text=True)


def gone(family: list[psutil.Process]) -> bool:
    psutil.wait_procs(family, timeout=10)
    return not any(process.is_running() for process in family)


@pytest.mark.faults
def test_a_node_stopped_in_a_run_leaves_no_process_and_the_run_goes_on(federation: Running, tmp_path: Path) -> None:
    """By SIGTERM, with its worker at work; its rows are in a database."""
    database = tmp_path / "west.db"
    with sqlite3.connect(database) as rows:
        rows.execute("create table patients (height real, width real)")
        rows.executemany("insert into patients values (?, ?)", federation.data["west"].tolist())
    federation.members["west"].stop()
    started = time.time()
    node = command("node", "start", federation.kits.node("west"), "--data", f"sqlite:///{database}#patients")
    families: list[list[psutil.Process]] = []

    def stop_once(progress: Progress) -> None:
        record = (progress.status or {}).get("record")
        if not families and record is not None and record["round"] >= 10:
            families.append(psutil.Process(node.pid).children(recursive=True))
            node.send_signal(signal.SIGTERM)
            node.wait(60)
            federation.start("west")

    arguments = federation.arguments(SECURE, limits={"silence": 5.0, "call": 5.0, "pace": 0.1})
    try:
        with federation.administrator() as administrator:
            administrator.wait_for_nodes(NODES, {"west": started})
            administrator.fit(arguments, tmp_path / "out", stop_once)
        said = node.communicate(timeout=60)[0]
    finally:
        node.kill()
        set_private_table(federation.kits.node("west"), federation.root / "west.csv")
    assert "Node 'west' offers 36 rows with height, width from a database" in said
    assert "Stopping the node 'west'" in said
    assert len(families[0]) >= 2, "the engine's process and the job's worker"
    assert gone(families[0])
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["certified"]
    assert result["upper_bound"] == pytest.approx(federation.in_process().upper_bound, rel=1e-9)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_server_command_stops_without_leaving_a_process(number: int, tmp_path: Path) -> None:
    kits = provision(("north",), f"localhost:{free_port()}", tmp_path / "kits")
    server = command("federation", "serve", kits.server)
    try:
        log = kits.server / "process.log"
        while not (log.exists() and "Server started" in log.read_text()):
            assert server.poll() is None, log.read_text()
            time.sleep(0.2)
        family = psutil.Process(server.pid).children(recursive=True)
        assert family
        server.send_signal(number)
        said = server.communicate(timeout=60)[0]
    finally:
        server.kill()
    assert "Stopping the server" in said
    assert gone(family)


def test_the_kits_are_hardened(federation: Running) -> None:
    for name in NODES:
        kit = federation.kits.node(name)
        resources = json.loads((kit / "local" / "resources.json").read_text())
        assert resources["allow_log_streaming"] is False
        assert resources["class_list_enforcement_mode"] == "enforce"
        assert [path for path in resources["class_allow_list"] if path.startswith("consentroid.")] == [
            "consentroid.federation.site.ConsentroidSite"
        ]
        assert "site_log_streamer" not in {component["id"] for component in resources["components"]}
        roles = json.loads((kit / "local" / "authorization.json").read_text())["permissions"]
        for role, rights in roles.items():
            assert isinstance(rights, dict), role
            assert rights.get("byoc", "none") == "none"
            assert rights.get("shell_commands", "none") == "none"
        assert json.loads((kit / "startup" / "fed_client.json").read_text())["client"]["connection_security"] == "mtls"
        assert os.stat(kit / "startup" / "client.key").st_mode & 0o077 == 0


def test_a_private_table_is_told_to_its_own_kit_alone(federation: Running) -> None:
    set_private_table(federation.kits.node("west"), federation.root / "west.csv", FEATURES)
    told = json.loads((federation.kits.node("west") / "local" / "consentroid.json").read_text())
    assert told == {"data": str(federation.root / "west.csv"), "columns": list(FEATURES), "weights": None}
    others = [federation.kits.server, federation.kits.admin, federation.kits.node("north")]
    for kit in others:
        for path in (kit / "local").iterdir():
            assert "west.csv" not in path.read_text()


def test_the_settings_of_a_job_reach_the_coordinator_unchanged(federation: Running) -> None:
    from consentroid.federation.job import JobArguments

    made = federation.arguments(OPEN)
    again = JobArguments.checked(json.loads(json.dumps(made.as_dict())))
    assert again.settings == made.settings
    assert np.array_equal(again.domain.lower, federation.domain.lower)  # type: ignore[union-attr]
    assert again.as_dict() == made.as_dict()


def test_a_site_takes_part_with_the_key_that_it_made_and_not_with_a_revoked_one(
    federation: Running, tmp_path: Path
) -> None:
    """The last test: it leaves the federation with a new certificate and a list of revoked ones."""
    kit, authority = federation.kits.node("south"), federation.kits.authority
    old = shutil.copytree(kit / "startup", tmp_path / "startup")

    def call(*arguments: object) -> None:
        called = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
        assert called.exit_code == 0, called.output

    def restart() -> None:
        federation.members["south"].stop()
        stopped = time.time()
        federation.start("south")
        administrator.wait_for_nodes(NODES, {"south": stopped})

    call("node", "keys", kit)
    call("federation", "sign", authority, kit / "south.csr", "--out", tmp_path / "south.crt", "--replace")
    call("node", "certify", kit, "--certificate", tmp_path / "south.crt")
    for member in (federation.kits.server, *map(federation.kits.node, NODES)):
        call("node", "certify", member, "--revoked", authority / "revoked.pem")
    with federation.administrator() as administrator:
        restart()
        administrator.fit(federation.arguments(SECURE), tmp_path / "out")
        assert json.loads((tmp_path / "out" / "result.json").read_text())["certified"]
        for name in ("client.key", "client.crt"):
            shutil.copy(old / name, kit / "startup" / name)
        restart()  # the engine lets it in: it knows no list
        with pytest.raises(NodeFailed, match="certificate of 'south' is revoked"):
            administrator.fit(federation.arguments(SECURE), tmp_path / "refused")
