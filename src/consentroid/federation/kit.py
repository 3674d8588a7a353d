"""Provision a federation: a kit for each participant, with keys and certificates from FLARE, hardened and read back.

Unless each control is found in every kit (`controls.py`), nothing is handed out. The root key goes to a folder of its
own (`authority.py`). What a kit says of its owner is read here, too.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509

from ..certificate.signatures import REVOKED_FILE, common_name
from ..core.errors import InvalidInput
from ..core.names import visible
from .authority import Authority
from .controls import check_server, check_site, require_engine
from .hardening import harden_server, harden_site, write_json
from .keys import PEM, read_request

DATA_FILE = "consentroid.json"  # in a kit's local/: a site's private table; the administrator's list of nodes
ADMIN = "admin@consentroid.org"
ORGANISATION = "consentroid"
DEFAULT_PORT = 8002
ROOT_DAYS = 3650  # certificates end within a year, and are renewed under the same root
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
RESERVED = {"server", "admin", "nodes", "authority", "all", "client", "localhost"}


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

    @property
    def authority(self) -> Path:
        return self.root / "authority"

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


def provision(nodes: Sequence[str], server: str, directory: Path, requests: Sequence[Path] = ()) -> Kits:
    """Create keys, certificates and hardened kits for a server, an administrator and each node.

    A node that sent a signing request keeps its key to itself: its kit has the certificate for it, and no key.
    """
    names, (host, port) = check_node_names(nodes), parse_server(server)
    asked = _by_name(requests, names)
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
        authority = _authority(kits, names, Path(temporary, "workspace", ORGANISATION, "state", "cert.json"))
    for name, request in asked.items():
        unused = authority.issued_to(name)
        certificate = authority.issue(request)
        authority.revoke(unused)  # its key was made here and is thrown away
        (kits.node(name) / "startup" / "client.crt").write_bytes(certificate.public_bytes(PEM))
        (kits.node(name) / "startup" / "client.key").unlink()
    for kit in (kits.server, kits.admin, *map(kits.node, names)):
        shutil.copyfile(authority.folder / REVOKED_FILE, kit / "startup" / REVOKED_FILE)
    harden_server(kits.server)
    write_json(kits.admin / "local" / DATA_FILE, {"nodes": list(names)})
    for name in names:
        harden_site(kits.node(name))
    _protect(directory)
    try:
        check_server(kits.server)
        for name in names:
            check_site(kits.node(name), has_key=name not in asked)
    except InvalidInput:
        shutil.rmtree(directory)  # kits that are not closed are not handed out
        raise
    return kits


def _by_name(paths: Sequence[Path], names: Sequence[str]) -> dict[str, x509.CertificateSigningRequest]:
    requests: dict[str, x509.CertificateSigningRequest] = {}
    for path in paths:
        request = read_request(path)
        name = common_name(request.subject)
        if name not in names or name in requests:
            raise InvalidInput(f"the request {path} is for '{visible(name)}'; give one for each of {', '.join(names)}")
        requests[name] = request
    return requests


def _authority(kits: Kits, names: Sequence[str], state: Path) -> Authority:
    """The root key that the engine made, kept apart from all kits."""
    try:
        told = json.loads(state.read_text())
        root, key = str(told["root_cert"]).encode(), str(told["root_pri_key"]).encode()
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInput(f"FLARE left no root key ({type(error).__name__}); use an unchanged release") from None
    issued = [kits.server / "startup" / "server.crt", kits.admin / "startup" / "client.crt"]
    issued += [kits.node(name) / "startup" / "client.crt" for name in names]
    return Authority.found(kits.authority, root, key, issued)


def _project(nodes: Sequence[str], host: str, port: int) -> dict[str, Any]:
    organisation = {"org": ORGANISATION}
    server = {"name": host, "type": "server", "fed_learn_port": port, "admin_port": port, **organisation}
    sites = [{"name": name, "type": "client", "allow_log_streaming": False, **organisation} for name in nodes]
    admin = {"name": ADMIN, "type": "admin", "role": "project_admin", **organisation}
    builders: tuple[tuple[str, dict[str, Any]], ...] = (
        ("workspace.WorkspaceBuilder", {}),
        ("static_file.StaticFileBuilder", {"config_folder": "config", "scheme": "tcp", "require_signed_jobs": True}),
        ("cert.CertBuilder", {"root_valid_days": ROOT_DAYS}),
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


def set_private_table(
    kit: Path, data: Path | str, columns: Sequence[str] | None = None, weights: str | None = None
) -> None:
    """Tell the site where its rows are; the file stays in the kit's local/ folder and no job can read or change it."""
    if not (kit / "startup" / "fed_client.json").exists():
        raise InvalidInput(f"{kit} is not a node's kit; `consentroid federation init` writes them to DIR/nodes/NAME")
    place = str(data) if "://" in str(data) else str(Path(data).resolve())
    told = {"data": place, "columns": list(columns) if columns else None, "weights": weights}
    write_json(kit / "local" / DATA_FILE, told)
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


def _protect(directory: Path) -> None:
    """Kits hold private keys: readable by their owner alone."""
    for path in (directory, *directory.rglob("*")):
        path.chmod(0o700 if path.is_dir() or path.suffix == ".sh" else 0o600)
