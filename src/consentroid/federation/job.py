"""A run as an ordinary FLARE job: a folder with configuration only, no code.

Whoever may submit jobs chooses the arguments, so the controller checks them as if an enemy had written them: unknown
keys, wrong types and values out of range are refused before anything is done with them. The component at the nodes
takes no arguments at all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import InvalidInput
from ..core.problem import Domain
from ..paper.settings import Settings
from .controls import SERVER_CLASS, SITE_CLASS
from .kit import check_node_names
from .protocol import Limits
from .signing import RUN

MAX_NODES = 1_000
MAX_FEATURES = 10_000
YEAR = 366 * 24 * 3600.0

# name → (type, least, largest); None stands for "no limit" in JSON, which has no infinity
NUMBERS: dict[str, tuple[type, float, float]] = {
    "n_clusters": (int, 1, 1_000),
    "gap": (float, 0.0, 1.0),
    "residual": (float, 0.0, math.inf),
    "max_rounds": (int, 1, 10**9),
    "time_limit": (float, 0.0, YEAR),
    "incumbent_rounds": (int, 0, 1_000),
    "reference_node": (int, 0, MAX_NODES),
    "seed": (int, 0, 2**63 - 1),
    "node_gap": (float, 0.0, 1.0),
    "node_seconds": (float, 0.0, YEAR),
}
MAY_BE_NONE = {"max_rounds", "time_limit", "reference_node", "node_seconds"}
INFINITE_IF_NONE = {"time_limit", "node_seconds"}


@dataclass(frozen=True)
class JobArguments:
    """All that a job may say. `run` names a run over several jobs: a job resumes what an earlier one left."""

    run: str
    nodes: tuple[str, ...]
    settings: Settings
    domain: Domain | None = None
    features: tuple[str, ...] = ()
    limits: dict[str, float] = field(default_factory=dict)  # seconds, see `Limits`

    def as_dict(self) -> dict[str, Any]:
        settings = asdict(self.settings)
        settings |= {name: None for name in INFINITE_IF_NONE if settings[name] == math.inf}
        domain = None if self.domain is None else [self.domain.lower.tolist(), self.domain.upper.tolist()]
        return {
            "run": self.run,
            "nodes": list(self.nodes),
            "settings": settings,
            "domain": domain,
            "features": list(self.features),
            "limits": self.limits,
        }

    @classmethod
    def checked(cls, raw: Any) -> JobArguments:
        """From untrusted JSON; every refusal names the argument."""
        wanted = {one.name for one in fields(cls)}
        if not isinstance(raw, Mapping) or not {"run", "nodes", "settings"} <= set(raw) or not set(raw) <= wanted:
            raise InvalidInput(f"job arguments must be a mapping with {', '.join(sorted(wanted))}")
        if not isinstance(raw["run"], str) or not RUN.fullmatch(raw["run"]):
            raise InvalidInput("job argument 'run' must be up to 63 lower-case letters, digits and '-'")
        nodes = _texts("nodes", raw["nodes"], MAX_NODES)
        return cls(
            run=raw["run"],
            nodes=check_node_names(nodes),
            settings=_settings(raw["settings"]),
            domain=_domain(raw.get("domain")),
            features=_texts("features", raw.get("features", []), MAX_FEATURES),
            limits=_limits(raw.get("limits", {})),
        )


def _settings(raw: Any) -> Settings:
    known = {one.name for one in fields(Settings)}
    if not isinstance(raw, Mapping) or not set(raw) <= known or "n_clusters" not in raw:
        raise InvalidInput(f"job argument 'settings' must hold n_clusters and nothing but {', '.join(sorted(known))}")
    values: dict[str, Any] = {}
    for name, value in raw.items():
        if name in NUMBERS:
            values[name] = _number(name, value)
        elif name == "prove":
            if type(value) is not bool:
                raise InvalidInput("job setting 'prove' must be true or false")
            values[name] = value
        elif name == "topology" and not isinstance(value, str):
            values[name] = _edges(value)
        elif isinstance(value, str) and len(value) <= 40:
            values[name] = value  # one of a few names; `Settings` refuses any other
        else:
            raise InvalidInput(f"job setting '{name}' must be a short name")
    return Settings(**values)


def _number(name: str, value: Any) -> Any:
    kind, least, largest = NUMBERS[name]
    if value is None and name in MAY_BE_NONE:
        return math.inf if name in INFINITE_IF_NONE else None
    allowed = (int,) if kind is int else (int, float)
    if type(value) not in allowed or not math.isfinite(value) or not least <= value <= largest:
        raise InvalidInput(f"job setting '{name}' must be a number from {least:g} to {largest:g}")
    return kind(value)


def _edges(value: Any) -> tuple[tuple[int, int], ...]:
    good = isinstance(value, list | tuple) and len(value) <= MAX_NODES**2
    if not good or not all(
        isinstance(edge, list | tuple) and len(edge) == 2 and all(type(i) is int and 0 <= i < MAX_NODES for i in edge)
        for edge in value
    ):
        raise InvalidInput("job setting 'topology' must be a name or a list of pairs of node numbers")
    return tuple((edge[0], edge[1]) for edge in value)


def _texts(name: str, value: Any, most: int) -> tuple[str, ...]:
    good = isinstance(value, list | tuple) and len(value) <= most
    if not good or not all(isinstance(text, str) and 0 < len(text) <= 200 for text in value):
        raise InvalidInput(f"job argument '{name}' must be a list of at most {most} names")
    return tuple(value)


def _domain(value: Any) -> Domain | None:
    if value is None:
        return None
    sides = isinstance(value, list | tuple) and len(value) == 2
    if not sides or not all(
        isinstance(side, list | tuple)
        and 0 < len(side) <= MAX_FEATURES
        and all(type(x) in (int, float) and math.isfinite(x) for x in side)
        for side in value
    ):
        raise InvalidInput("job argument 'domain' must be two lists of finite numbers, the lower and the upper sides")
    return Domain(np.array(value[0], dtype=float), np.array(value[1], dtype=float))


def _limits(value: Any) -> dict[str, float]:
    known = {one.name for one in fields(Limits)}
    if not isinstance(value, Mapping) or not set(value) <= known:
        raise InvalidInput(f"job argument 'limits' must hold nothing but {', '.join(sorted(known))}")
    for name, seconds in value.items():
        least, largest = (0.0, 60.0) if name == "pace" else (1.0, 24 * 3600.0)
        if type(seconds) not in (int, float) or not least <= seconds <= largest:
            raise InvalidInput(f"job limit '{name}' must be from {least:g} to {largest:g} seconds")
    return {name: float(seconds) for name, seconds in value.items()}


def write_job(directory: Path, arguments: JobArguments) -> Path:
    """The job's folder; any FLARE administrator can submit it by FLARE's own means."""
    config = directory / "app" / "config"
    config.mkdir(parents=True, exist_ok=True)
    nodes = list(arguments.nodes)
    meta = {
        "name": f"consentroid-{arguments.run}",
        "resource_spec": {},
        "deploy_map": {"app": ["server", *nodes]},
        "min_clients": len(nodes),
        "mandatory_clients": nodes,  # a sum with a missing part is not a bound
    }
    server = {
        "format_version": 2,
        "workflows": [
            {"id": "coordinator", "path": SERVER_CLASS, "args": {"arguments": arguments.as_dict()}},
        ],
        "components": [],
        "task_data_filters": [],
        "task_result_filters": [],
    }
    client = {
        "format_version": 2,
        "executors": [{"tasks": ["consentroid"], "executor": {"path": SITE_CLASS, "args": {}}}],
        "components": [],
        "task_data_filters": [],
        "task_result_filters": [],
    }
    for path, content in (
        (directory / "meta.json", meta),
        (config / "config_fed_server.json", server),
        (config / "config_fed_client.json", client),
    ):
        path.write_text(json.dumps(content, indent=2) + "\n")
    return directory
