"""Close what the engine leaves open in a new kit: rules in the site's own `local/`, which nobody else can relax.

After that a site runs installed classes only (code shipped with a job is refused, for every role, and so is any
component outside the allow-list), streams no logs to the server (tracebacks can hold private values) and offers no
shell commands to administrators. `controls.py` reads all of it back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.errors import InvalidInput
from ..site.policy import Policy
from .controls import SERVER_CLASS, SITE_CLASS

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
    write_json(kit / "local" / "resources.json", resources)
    write_json(kit / "local" / "authorization.json", {"format_version": "1.0", "permissions": ROLES})
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
    write_json(kit / "local" / "log_config.json", config)


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
    write_json(kit / "local" / "resources.json", resources)
    write_json(kit / "local" / "authorization.json", {"format_version": "1.0", "permissions": ROLES})
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
    write_json(kit / "local" / "resources.json", resources)


def _default(kit: Path, name: str) -> dict[str, Any]:
    return dict(json.loads((kit / "local" / f"{name}.default").read_text()))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")
