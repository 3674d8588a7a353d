"""Provision a federation and harden its kits.

`provision` asks FLARE for one kit a participant (keys, certificates, addresses) and then closes what FLARE leaves open
by default. After that a site

* runs installed classes only: code shipped with a job is refused (`byoc: none` for every role, administrators
  included), and so is any component outside the allow-list;
* streams no logs to the server (tracebacks can hold private values) and offers no shell commands to administrators.

The site's own `local/` folder holds these rules, so neither the server nor an administrator can relax them. At the end
everything is read back (`controls.py`): unless each control is there, nothing is handed out.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import InvalidInput
from ..site.policy import Policy
from .controls import SERVER_CLASS, SITE_CLASS, check_server, check_site, require_engine

DATA_FILE = "consentroid.json"  # in a kit's local/: a site's private table; the administrator's list of nodes
ADMIN = "admin@consentroid.org"
ORGANISATION = "consentroid"
DEFAULT_PORT = 8002
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
RESERVED = {"server", "admin", "nodes", "all", "client", "localhost"}

# Every right that FLARE knows, granted one by one: "any" for a role would include code shipped with a job.
RIGHTS: dict[str, str] = {
    "submit_job": "any",
    "clone_job": "any",
    "manage_job": "any",
    "download_job": "any",
    "view": "any",
    "operate": "any",
    "app_command": "any",  # asks the coordinator for its status
    "shell_commands": "none",
    "byoc": "none",
    "server-predeployed-flwr": "none",
}
ROLES: dict[str, dict[str, str]] = {
    "project_admin": RIGHTS,
    "lead": RIGHTS | {"clone_job": "n:submitter", "manage_job": "n:submitter", "download_job": "n:submitter"},
    "org_admin": dict.fromkeys(RIGHTS, "none") | {"view": "any", "operate": "o:site"},
    "member": {"view": "any"},
}


@dataclass(frozen=True)
class Kits:
    """Where the kits of a federation are: `server/`, `admin/` and `nodes/NAME/`."""

    root: Path

    @property
    def server(self) -> Path:
        return self.root / "server"

    @property
    def admin(self) -> Path:
        return self.root / "admin"

    def node(self, name: str) -> Path:
        return self.root / "nodes" / name


def check_node_names(nodes: Sequence[str]) -> tuple[str, ...]:
    for name in nodes:
        if not NAME.fullmatch(name) or name.lower() in RESERVED:
            raise InvalidInput(
                f"node name '{name}' cannot be used; take up to 63 letters, digits, '-' and '_', a letter first"
            )
    if len({name.lower() for name in nodes}) < len(nodes):
        raise InvalidInput(f"node names {', '.join(nodes)} are not distinct")
    if not nodes:
        raise InvalidInput("a federation needs at least one node; give --nodes a,b,c")
    return tuple(nodes)


def parse_server(text: str) -> tuple[str, int]:
    """`HOST` or `HOST:PORT`."""
    host, _, port = text.partition(":")
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", host):
        raise InvalidInput(f"server '{text}' is not a host name; give HOST or HOST:PORT as the nodes can reach it")
    if port and not (port.isdigit() and 0 < int(port) < 65536):
        raise InvalidInput(f"server '{text}' has no valid port; give a number from 1 to 65535")
    return host, int(port) if port else DEFAULT_PORT


def provision(nodes: Sequence[str], server: str, directory: Path) -> Kits:
    """Create keys, certificates and hardened kits for a server, an administrator and each node."""
    names, (host, port) = check_node_names(nodes), parse_server(server)
    if host.lower() in {name.lower() for name in names}:
        raise InvalidInput(f"node '{host}' has the server's name; choose another, certificates go by names")
    if directory.exists() and any(directory.iterdir()):
        raise InvalidInput(f"{directory} is not empty; give a new folder, provisioning makes new keys")
    with tempfile.TemporaryDirectory() as temporary:
        project = Path(temporary, "project.yml")
        project.write_text(json.dumps(_project(names, host, port)))  # JSON is YAML
        _run_provisioning(project, Path(temporary, "workspace"))
        made = Path(temporary, "workspace", ORGANISATION, "prod_00")
        kits = Kits(directory)
        (directory / "nodes").mkdir(parents=True, exist_ok=True)
        shutil.move(made / host, kits.server)
        shutil.move(made / ADMIN, kits.admin)
        for name in names:
            shutil.move(made / name, kits.node(name))
    harden_server(kits.server)
    _write(kits.admin / "local" / DATA_FILE, {"nodes": list(names)})
    for name in names:
        harden_site(kits.node(name))
    _protect(directory)
    try:
        check_server(kits.server)
        for name in names:
            check_site(kits.node(name))
    except InvalidInput:
        shutil.rmtree(directory)  # kits that are not closed are not handed out
        raise
    return kits


def _project(nodes: Sequence[str], host: str, port: int) -> dict[str, Any]:
    organisation = {"org": ORGANISATION}
    server = {"name": host, "type": "server", "fed_learn_port": port, "admin_port": port, **organisation}
    sites = [{"name": name, "type": "client", "allow_log_streaming": False, **organisation} for name in nodes]
    admin = {"name": ADMIN, "type": "admin", "role": "project_admin", **organisation}
    builders: tuple[tuple[str, dict[str, Any]], ...] = (
        ("workspace.WorkspaceBuilder", {}),
        ("static_file.StaticFileBuilder", {"config_folder": "config", "scheme": "tcp", "require_signed_jobs": True}),
        ("cert.CertBuilder", {}),
        ("signature.SignatureBuilder", {}),
    )
    return {
        "api_version": 3,
        "name": ORGANISATION,
        "description": "federated K-means with a proof",
        "participants": [server, *sites, admin],
        "builders": [{"path": f"nvflare.lighter.impl.{name}", "args": args} for name, args in builders],
    }


def _run_provisioning(project: Path, workspace: Path) -> None:
    require_engine()
    command = [sys.executable, "-m", "nvflare.cli", "provision", "-p", str(project), "-w", str(workspace), "--force"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=project.parent)
    if done.returncode != 0:
        tail = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise InvalidInput(f"FLARE could not provision the federation: {' '.join(tail)}")


def harden_site(kit: Path) -> None:
    """Write the site's own rules; also for a site of an existing deployment that runs nothing else."""
    resources = _default(kit, "resources.json")
    resources |= {
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [SITE_CLASS],
        "allow_log_streaming": False,
    }
    resources["components"] = [c for c in resources["components"] if c["id"] != "site_log_streamer"]
    resources["class_allow_list"] += [c["path"] for c in resources["components"]]
    _write(kit / "local" / "resources.json", resources)
    _write(kit / "local" / "authorization.json", {"format_version": "1.0", "permissions": ROLES})
    Policy().write(kit / "local")  # the site's owner may change it
    log_to_one_file(kit)


def log_to_one_file(kit: Path) -> None:
    """The engine writes four log files and as many for each job; everything goes to `process.log` instead."""
    config = _default(kit, "log_config.json")
    console = dict(config["handlers"]["consoleHandler"]) | {"formatter": "baseFormatter"}
    config["handlers"] = {"consoleHandler": console}
    for logger in config["loggers"].values():
        if "handlers" in logger:
            logger["handlers"] = ["consoleHandler"]
    _write(kit / "local" / "log_config.json", config)


def harden_server(kit: Path) -> None:
    """Our classes only, one job at a time, and no logs received."""
    resources = _default(kit, "resources.json")
    for component in resources["components"]:
        if component["id"] == "job_scheduler":
            # a job waits until all of its nodes are there; the administrator's patience limits that, not a count
            component["args"] = {
                "max_jobs": 1,
                "max_schedule_count": 10**6,
                "min_schedule_interval": 1.0,
                "max_schedule_interval": 5.0,
            }
    resources["components"] = [c for c in resources["components"] if c["id"] != "log_receiver"]
    snapshots = resources["snapshot_persistor"]
    installed = [c["path"] for c in resources["components"]]
    installed += [snapshots["path"], snapshots["args"]["storage"]["path"]]
    resources |= {"class_list_enforcement_mode": "enforce", "class_allow_list": [SERVER_CLASS, *installed]}
    _write(kit / "local" / "resources.json", resources)
    _write(kit / "local" / "authorization.json", {"format_version": "1.0", "permissions": ROLES})
    log_to_one_file(kit)
    locate_storage(kit)


def locate_storage(kit: Path) -> None:
    """Keep jobs inside the kit, wherever it is now; FLARE's default folder is shared by all servers of a machine."""
    try:
        resources = json.loads((kit / "local" / "resources.json").read_text())
        storage = kit.resolve() / "storage"
        resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(storage / "snapshots")
        manager = next(c for c in resources["components"] if c["id"] == "job_manager")
        manager["args"]["uri_root"] = str(storage / "jobs")
    except (OSError, KeyError, ValueError, StopIteration):
        raise InvalidInput(
            f"{kit} is not a server's kit; `consentroid federation init DIR` writes one to DIR/server"
        ) from None
    _write(kit / "local" / "resources.json", resources)


def set_private_table(
    kit: Path, data: Path | str, columns: Sequence[str] | None = None, weights: str | None = None
) -> None:
    """Tell the site where its rows are; the file stays in the kit's local/ folder and no job can read or change it."""
    if not (kit / "startup" / "fed_client.json").exists():
        raise InvalidInput(f"{kit} is not a node's kit; `consentroid federation init` writes them to DIR/nodes/NAME")
    place = str(data) if "://" in str(data) else str(Path(data).resolve())
    told = {"data": place, "columns": list(columns) if columns else None, "weights": weights}
    _write(kit / "local" / DATA_FILE, told)
    (kit / "local" / DATA_FILE).chmod(0o600)


def known_nodes(kit: Path) -> tuple[str, ...]:
    """The nodes that an administrator's kit was made for."""
    try:
        return tuple(json.loads((kit / "local" / DATA_FILE).read_text())["nodes"])
    except (OSError, KeyError, ValueError):
        raise InvalidInput(f"{kit} does not say which nodes there are; name them with --nodes a,b,c") from None


def admin_name(kit: Path) -> str:
    try:
        return str(json.loads((kit / "startup" / "fed_admin.json").read_text())["admin"]["username"])
    except (OSError, KeyError, ValueError):
        raise InvalidInput(
            f"{kit} is not an administrator's kit; `consentroid federation init DIR` writes one to DIR/admin"
        ) from None


def site_name(kit: Path) -> str:
    """The name in a node's kit; its certificate carries the same."""
    try:
        return str(json.loads((kit / "startup" / "fed_client.json").read_text())["client"]["fqsn"])
    except (OSError, KeyError, ValueError):
        raise InvalidInput(f"{kit} is not a node's kit; `consentroid federation init` makes them") from None


def _default(kit: Path, name: str) -> dict[str, Any]:
    return dict(json.loads((kit / "local" / f"{name}.default").read_text()))


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")


def _protect(directory: Path) -> None:
    """Kits hold private keys: readable by their owner alone."""
    for path in (directory, *directory.rglob("*")):
        path.chmod(0o700 if path.is_dir() or path.suffix == ".sh" else 0o600)
