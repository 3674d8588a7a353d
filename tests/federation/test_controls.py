"""Kits fail closed: each control is taken out of a kit in turn, and no kit without it is made or served."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare")

from typer.testing import CliRunner

from consentroid.cli.federation import federation_app
from consentroid.cli.node import node_app
from consentroid.core.errors import InvalidInput, SolverUnavailable
from consentroid.federation import kit as kit_module
from consentroid.federation.controls import SERVER, SITE, Missing, check_server, check_site, require_engine
from consentroid.federation.hardening import locate_storage
from consentroid.federation.kit import Kits, provision

Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Kits:
    return provision(("north", "south"), "localhost:8002", tmp_path_factory.mktemp("made") / "kits")


@pytest.fixture
def kits(made: Kits, tmp_path: Path) -> Kits:
    shutil.copytree(made.root, tmp_path / "kits")
    copied = Kits(tmp_path / "kits")
    locate_storage(copied.server)
    return copied


def edited(file: str, change: Change) -> Callable[[Path], None]:
    def sabotage(kit: Path) -> None:
        content = json.loads((kit / file).read_text())
        change(content)
        (kit / file).write_text(json.dumps(content))

    return sabotage


def resources(change: Change) -> Callable[[Path], None]:
    return edited("local/resources.json", change)


def stranger(kit: Path) -> None:
    """The certificate of another site of the same federation."""
    root = kit.parent if kit.name == "server" else kit.parent.parent
    shutil.copy(root / "nodes" / "south" / "startup" / "client.crt", kit / "startup" / _certificate(kit))


def other_root(kit: Path) -> None:
    shutil.copy(kit / "startup" / _certificate(kit), kit / "startup" / "rootCA.pem")


def _certificate(kit: Path) -> str:
    return "server.crt" if (kit / "startup" / "server.crt").exists() else "client.crt"


def readable(kit: Path) -> None:
    next((kit / "startup").glob("*.key")).chmod(0o644)


def drop(name: str) -> Change:
    return lambda content: content.pop(name)


def put(name: str, value: Any) -> Change:
    return lambda content: content.update({name: value})


def role(name: str, value: Any) -> Callable[[Path], None]:
    return edited("local/authorization.json", lambda content: content["permissions"].update({name: value}))


SABOTAGE: list[tuple[str, str, Callable[[Path], None]]] = [
    ("both", "installed classes only", resources(drop("class_allow_list"))),
    ("both", "installed classes only", resources(drop("class_list_enforcement_mode"))),
    ("both", "installed classes only", resources(put("class_list_enforcement_mode", "warn"))),
    ("both", "installed classes only", resources(put("class_allow_list", ["*"]))),
    ("both", "installed classes only", resources(lambda r: r["class_allow_list"].append("subprocess.Popen"))),
    ("both", "installed classes only", lambda kit: (kit / "local/resources.json").write_text("{")),
    ("both", "installed classes only", lambda kit: (kit / "local/resources.json").unlink()),
    ("node", "signed jobs", edited("startup/fed_client.json", drop("require_signed_jobs"))),
    ("node", "signed jobs", edited("startup/fed_client.json", put("require_signed_jobs", False))),
    ("server", "signed jobs", edited("startup/fed_server.json", drop("require_signed_jobs"))),
    ("node", "no log streaming", resources(drop("allow_log_streaming"))),
    ("node", "no log streaming", resources(put("allow_log_streaming", True))),
    (
        "both",
        "no log streaming",
        resources(
            lambda r: (
                r["components"].append({"id": "site_log_streamer", "path": "nvflare.x"}),
                r["class_allow_list"].append("nvflare.x"),
            )
        ),
    ),
    ("both", "no code, no shell", role("project_admin", "any")),
    ("both", "no code, no shell", role("lead", {"byoc": "any"})),
    ("both", "no code, no shell", role("member", {"shell_commands": "any"})),
    ("both", "no code, no shell", lambda kit: (kit / "local/authorization.json").unlink()),
    ("node", "mutual TLS", edited("startup/fed_client.json", lambda c: c["client"].update(connection_security="tls"))),
    ("server", "mutual TLS", edited("startup/fed_server.json", lambda c: c["servers"][0].pop("connection_security"))),
    ("both", "mutual TLS", stranger),
    ("both", "mutual TLS", other_root),
    ("node", "a named server", edited("startup/fed_client.json", lambda c: c["servers"][0].pop("identity"))),
    ("node", "a named server", edited("startup/fed_client.json", lambda c: c["servers"][0].update(identity="north"))),
    ("both", "private key", readable),
    ("server", "own storage", resources(lambda r: r["components"][1]["args"].update(uri_root="/tmp/nvflare"))),
]


@pytest.mark.parametrize(("whose", "control", "sabotage"), SABOTAGE)
def test_a_kit_without_a_control_is_refused_by_its_name(
    whose: str, control: str, sabotage: Callable[[Path], None], kits: Kits
) -> None:
    for kind, kit, check in (("node", kits.node("north"), check_site), ("server", kits.server, check_server)):
        if whose in (kind, "both"):
            check(kit)
            sabotage(kit)
            with pytest.raises(Missing) as caught:
                check(kit)
            assert caught.value.control == control


def test_every_control_is_sabotaged() -> None:
    for kind, controls in (("node", SITE), ("server", SERVER)):
        assert {control for whose, control, _ in SABOTAGE if whose in (kind, "both")} == set(controls)


@pytest.mark.parametrize("name", ["harden_site", "harden_server"])
def test_init_leaves_nothing_behind_when_a_control_was_not_written(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kit_module, name, lambda kit: None)
    called = CliRunner().invoke(federation_app, ["init", str(tmp_path / "kits"), "--nodes", "north"])
    assert isinstance(called.exception, Missing)
    assert not (tmp_path / "kits").exists()


@pytest.mark.parametrize("version", ["2.7.2", "2.8.0", "2.10.0", "3.0.0"])
def test_another_release_of_the_engine_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: version)
    with pytest.raises(SolverUnavailable, match=r"nvflare==2\.9\.\*"):
        require_engine()


def test_an_engine_without_the_enforcing_part_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from nvflare.private.fed.utils import fed_utils

    monkeypatch.delattr(fed_utils, "require_signed_jobs")
    with pytest.raises(SolverUnavailable, match="require_signed_jobs"):
        require_engine()


def test_an_open_kit_is_not_served(kits: Kits, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("x\n1\n")
    for app, command, kit in (
        (federation_app, ["serve", str(kits.server)], kits.server),
        (node_app, ["start", str(kits.node("north")), "--data", str(tmp_path / "rows.csv")], kits.node("north")),
    ):
        (kit / "local" / "authorization.json").unlink()
        called = CliRunner().invoke(app, command)
        assert isinstance(called.exception, Missing)


def test_a_node_cannot_have_the_servers_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="server's name"):
        provision(("north", "Hospital"), "hospital:8002", tmp_path / "kits")
