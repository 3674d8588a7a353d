"""A run as an ordinary FLARE job: a folder with configuration only, no code.

Whoever may submit jobs chooses the arguments, so the controller checks them as if an enemy had written them: unknown
keys, wrong types and values out of range are refused before anything is done with them. The component at the nodes
takes no arguments at all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import InvalidInput
from ..core.problem import Domain, check_n_clusters
from .controls import SERVER_CLASS, SITE_CLASS
from .kit import check_node_names
from .protocol import Limits
from .signing import RUN

MAX_NODES = 1_000
MAX_FEATURES = 10_000
YEAR = 366 * 24 * 3600.0
ROW_PRICES = "row-prices"
SECURE_FROM = 3  # sites: masked sums unless the administrator asks for open ones

# name → (type, least, largest); None means "no limit" or "the default"
NUMBERS: dict[str, tuple[type, float, float]] = {
    "n_clusters": (int, 1, 1_000),
    "gap": (float, 0.0, 1.0),
    "time_limit": (float, 1e-3, YEAR),
    "seed": (int, 0, 2**63 - 1),
    "max_rounds": (int, 1, 10**9),
    "node_seconds": (float, 0.0, YEAR),
}
MAY_BE_NONE = {"time_limit", "max_rounds", "node_seconds"}
CHOICES: dict[str, tuple[str, ...]] = {
    "method": (ROW_PRICES, "proximal", "sg", "btm", "qnda", "qnda-epigraph"),
    "scale": ("none", "standard", "minmax"),
    "solver": ("exact", "scip", "gurobi"),
    "symmetry": ("order", "none", "nearest"),
    "topology": ("line", "ring", "star", "complete"),
}
OF_THE_PAPER = ("solver", "symmetry", "topology", "max_rounds", "node_seconds")


@dataclass(frozen=True)
class RunSettings:
    """What is computed, and how. The last five are for the paper's methods."""

    n_clusters: int
    gap: float = 1e-4
    time_limit: float | None = 600.0
    seed: int = 0
    method: str = ROW_PRICES
    secure: bool = True  # masked sums: the coordinator learns totals only
    scale: str = "none"
    impute: bool = False
    solver: str = "exact"
    symmetry: str = "order"
    topology: str = "line"
    max_rounds: int | None = None
    node_seconds: float | None = None

    def __post_init__(self) -> None:
        check_n_clusters(self.n_clusters)
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise InvalidInput(f"unknown {name} '{getattr(self, name)}'; choose one of {', '.join(choices)}")
        if not 0.0 <= self.gap < 1.0:
            raise InvalidInput(f"gap={self.gap} must be a fraction from 0 up to, not including, 1")
        if self.secure and self.method != ROW_PRICES:
            raise InvalidInput(f"method '{self.method}' needs every site's own replies; ask with --open")

    @property
    def paper(self) -> dict[str, Any]:
        """Options of the paper's methods, as `fitting.run` takes them."""
        if self.method == ROW_PRICES:
            return {}
        return {name: getattr(self, name) for name in OF_THE_PAPER if getattr(self, name) is not None}


@dataclass(frozen=True)
class JobArguments:
    """All that a job may say. `run` names a run over several jobs: a job resumes what an earlier one left."""

    run: str
    nodes: tuple[str, ...]
    settings: RunSettings
    domain: Domain | None = None
    features: tuple[str, ...] = ()
    limits: dict[str, float] = field(default_factory=dict)  # seconds, see `Limits`

    def as_dict(self) -> dict[str, Any]:
        domain = None if self.domain is None else [self.domain.lower.tolist(), self.domain.upper.tolist()]
        return {
            "run": self.run,
            "nodes": list(self.nodes),
            "settings": asdict(self.settings),
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
        nodes = checked_names("nodes", raw["nodes"])
        return cls(
            run=raw["run"],
            nodes=check_node_names(nodes),
            settings=_settings(raw["settings"]),
            domain=_domain(raw.get("domain")),
            features=checked_names("features", raw.get("features", []), MAX_FEATURES),
            limits=checked_limits(raw.get("limits", {})),
        )


def _settings(raw: Any) -> RunSettings:
    known = {one.name for one in fields(RunSettings)}
    if not isinstance(raw, Mapping) or not set(raw) <= known or "n_clusters" not in raw:
        raise InvalidInput(f"job argument 'settings' must hold n_clusters and nothing but {', '.join(sorted(known))}")
    values: dict[str, Any] = {}
    for name, value in raw.items():
        if name in NUMBERS:
            values[name] = _number(name, value)
        elif name in ("secure", "impute"):
            if type(value) is not bool:
                raise InvalidInput(f"job setting '{name}' must be true or false")
            values[name] = value
        elif isinstance(value, str) and len(value) <= 40:
            values[name] = value  # one of a few names; `RunSettings` refuses any other
        else:
            raise InvalidInput(f"job setting '{name}' must be a short name")
    return RunSettings(**values)


def _number(name: str, value: Any) -> Any:
    kind, least, largest = NUMBERS[name]
    if value is None and name in MAY_BE_NONE:
        return None
    allowed = (int,) if kind is int else (int, float)
    if type(value) not in allowed or not math.isfinite(value) or not least <= value <= largest:
        raise InvalidInput(f"job setting '{name}' must be a number from {least:g} to {largest:g}")
    return kind(value)


def checked_names(name: str, value: Any, most: int = MAX_NODES) -> tuple[str, ...]:
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


def checked_limits(value: Any) -> dict[str, float]:
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
    return write_job_folder(directory, arguments.run, arguments.nodes, arguments.as_dict())


def write_job_folder(directory: Path, run: str, names: Sequence[str], arguments: dict[str, Any]) -> Path:
    """One part for the server, with the arguments, and one for the sites, without any."""
    nodes = list(names)
    meta = {
        "name": f"consentroid-{run}",
        "resource_spec": {},
        "deploy_map": {"server": ["server"], "site": nodes},
        "min_clients": len(nodes),
        "mandatory_clients": nodes,  # a sum with a missing part is not a bound
    }
    server = {
        "format_version": 2,
        "workflows": [
            {"id": "coordinator", "path": SERVER_CLASS, "args": {"arguments": arguments}},
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
        (directory / "server" / "config" / "config_fed_server.json", server),
        (directory / "site" / "config" / "config_fed_client.json", client),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=2) + "\n")
    return directory
