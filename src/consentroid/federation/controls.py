"""The controls that a kit must carry, read back from what was written: a missing one stops the command.

They depend on the engine's version: an older engine ignores the settings of a newer one without a word, so the version
is a control, too. `federation init` checks every kit that it made, `serve` and `node start` the kit that they serve.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from ..certificate.signatures import Root, common_name
from ..core.errors import InvalidInput, NodeRefused, SolverUnavailable

ENGINE = "2.9."  # the release that has class allow-list, signed jobs and the end of log streaming
SITE_CLASS = "consentroid.federation.site.ConsentroidSite"
SERVER_CLASS = "consentroid.federation.controller.ConsentroidController"
NEVER = ("byoc", "shell_commands")  # rights that no role may have
OPEN_TO_OTHERS = 0o077
KEY = "private key"

Check = Callable[[Path], str | None]  # the reason why a control is missing, or None


class Missing(InvalidInput):
    """A control that a kit should carry is not there."""

    def __init__(self, kit: Path, control: str, reason: str) -> None:
        super().__init__(f"{kit}: control '{control}' is missing: {reason}; nothing may run with this kit")
        self.control = control


def require_engine() -> None:
    """The one release whose controls we know, with the parts that enforce them."""
    try:
        version = metadata.version("nvflare")
    except metadata.PackageNotFoundError:
        raise SolverUnavailable("NVIDIA FLARE is not installed; run: pip install 'consentroid[federation]'") from None
    if not version.startswith(ENGINE):
        raise SolverUnavailable(
            f"NVIDIA FLARE {version} is installed, but the controls of a kit are known for {ENGINE}* only; "
            f"run: pip install 'nvflare=={ENGINE}*'"
        )
    for module, name in (
        ("nvflare.app_common.widgets.component_path_authorizer", "CLASS_ALLOW_LIST"),
        ("nvflare.private.fed.utils.fed_utils", "require_signed_jobs"),
        ("nvflare.app_common.logging.constants", "ALLOW_LOG_STREAMING_VAR"),
    ):
        if not hasattr(import_module(module), name):
            raise SolverUnavailable(f"NVIDIA FLARE {version} lacks {module}.{name}; install an unchanged {ENGINE}*")


def check_site(kit: Path, has_key: bool = True) -> None:
    """`has_key`: False for a kit whose node made its own key, before it is put in."""
    _check(kit, SITE if has_key else {name: check for name, check in SITE.items() if name != KEY})


def check_server(kit: Path) -> None:
    _check(kit, SERVER)


def _check(kit: Path, controls: dict[str, Check]) -> None:
    require_engine()
    for control, check in controls.items():
        try:
            reason = check(kit)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            reason = f"its file cannot be read ({type(error).__name__})"
        if reason is not None:
            raise Missing(kit, control, reason)


# ------------------------------------------------------------------ one check a control


def _allow_list(ours: str) -> Check:
    def check(kit: Path) -> str | None:
        resources = _json(kit, "local/resources.json")
        if resources["class_list_enforcement_mode"] != "enforce":
            return "the allow-list of classes is not enforced"
        allowed = resources["class_allow_list"]
        needed = _configured(resources)
        if not isinstance(allowed, list) or ours not in allowed:
            return f"the allow-list of classes lacks {ours}"
        surplus = sorted(set(allowed) - needed - {ours})
        return f"the allow-list admits {surplus[0]}, which the kit does not use" if surplus else None

    return check


def _configured(resources: dict[str, Any]) -> set[str]:
    """Classes that the kit's own configuration names."""
    used = {component["path"] for component in resources["components"]}
    if "snapshot_persistor" in resources:
        snapshots = resources["snapshot_persistor"]
        used |= {snapshots["path"], snapshots["args"]["storage"]["path"]}
    return used


def _signed_jobs(file: str) -> Check:
    def check(kit: Path) -> str | None:
        signed = _json(kit, f"startup/{file}")["require_signed_jobs"] is True
        return None if signed else "jobs need not be signed"

    return check


def _no_streaming(kit: Path) -> str | None:
    resources = _json(kit, "local/resources.json")
    if resources["allow_log_streaming"] is not False:
        return "log files may be streamed to the server"
    streams = [c["id"] for c in resources["components"] if "log" in c["id"] or ".logging." in c["path"]]
    return f"component '{streams[0]}' streams logs" if streams else None


def _no_received_logs(kit: Path) -> str | None:
    resources = _json(kit, "local/resources.json")
    receives = [c["id"] for c in resources["components"] if "log" in c["id"] or ".logging." in c["path"]]
    return f"component '{receives[0]}' receives logs" if receives else None


def _rights(kit: Path) -> str | None:
    for role, rights in _json(kit, "local/authorization.json")["permissions"].items():
        if not isinstance(rights, dict):  # "any" for a role includes code shipped with a job
            return f"role '{role}' has all rights"
        for right in NEVER:
            if rights.get(right, "none") != "none":
                return f"role '{role}' has the right '{right}'"
    return None


def _site_mutual_tls(kit: Path) -> str | None:
    client = _json(kit, "startup/fed_client.json")["client"]
    if client["connection_security"] != "mtls":
        return "connections are not secured by mutual TLS"
    return _chain(kit, client["ssl_cert"], client["ssl_root_cert"], str(client["fqsn"]))


def _server_mutual_tls(kit: Path) -> str | None:
    server = _json(kit, "startup/fed_server.json")["servers"][0]
    if server["connection_security"] != "mtls":
        return "connections are not secured by mutual TLS"
    return _chain(kit, server["ssl_cert"], server["ssl_root_cert"], str(server["admin_server"]))


def _chain(kit: Path, certificate: str, root: str, name: str) -> str | None:
    own = x509.load_pem_x509_certificate((kit / "startup" / certificate).read_bytes())
    issuer = x509.load_pem_x509_certificate((kit / "startup" / root).read_bytes())
    try:
        own.verify_directly_issued_by(issuer)
    except (InvalidSignature, ValueError, TypeError):
        return "its certificate was not issued by the federation's root"
    if common_name(own.subject) != name:
        return f"its certificate is not that of '{name}'"
    try:
        Root.read(kit / "startup").holder(own.public_bytes(serialization.Encoding.DER))
    except (NodeRefused, InvalidInput) as error:
        return str(error)
    return None


def _one_identity(kit: Path) -> str | None:
    """Who may ask is named in the kit: the server, and never the site itself."""
    config = _json(kit, "startup/fed_client.json")
    identity = config["servers"][0]["identity"]
    if not isinstance(identity, str) or not identity:
        return "it does not say who the server is"
    return "site and server have one name" if identity == config["client"]["fqsn"] else None


def _private_key(file: str) -> Check:
    def check(kit: Path) -> str | None:
        path = kit / "startup" / file
        if not path.exists():
            return "there is none; if you made your own, put it in with `consentroid node certify KIT --key FILE`"
        if path.stat().st_mode & OPEN_TO_OTHERS:
            return "other users can read the private key; run chmod 600 on it"
        key = serialization.load_pem_private_key(path.read_bytes(), None)
        own = x509.load_pem_x509_certificate(path.with_suffix(".crt").read_bytes())
        return None if key.public_key() == own.public_key() else "the private key is not that of the certificate"

    return check


def _own_storage(kit: Path) -> str | None:
    """The engine's default folder is shared by all servers of a machine."""
    resources = _json(kit, "local/resources.json")
    manager = next((c for c in resources["components"] if c["id"] == "job_manager"), None)
    places = [
        resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"],
        "" if manager is None else manager["args"]["uri_root"],
    ]
    inside = all(Path(place).is_relative_to(kit.resolve()) for place in places)
    return None if inside else "jobs would be stored outside the kit"


def _json(kit: Path, name: str) -> dict[str, Any]:
    return dict(json.loads((kit / name).read_text()))


SITE: dict[str, Check] = {
    "installed classes only": _allow_list(SITE_CLASS),
    "signed jobs": _signed_jobs("fed_client.json"),
    "no log streaming": _no_streaming,
    "no code, no shell": _rights,
    "mutual TLS": _site_mutual_tls,
    "a named server": _one_identity,
    KEY: _private_key("client.key"),
}
SERVER: dict[str, Check] = {
    "installed classes only": _allow_list(SERVER_CLASS),
    "signed jobs": _signed_jobs("fed_server.json"),
    "no log streaming": _no_received_logs,
    "no code, no shell": _rights,
    "mutual TLS": _server_mutual_tls,
    KEY: _private_key("server.key"),
    "own storage": _own_storage,
}
