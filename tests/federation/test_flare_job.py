"""A job's arguments are checked as if an enemy had written them, and kits are made for sensible names only."""

from __future__ import annotations

import contextlib
import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consentroid.core.errors import ConsentroidError, InvalidInput
from consentroid.core.problem import Domain
from consentroid.federation.job import JobArguments, RunSettings, write_job
from consentroid.federation.kit import check_node_names, parse_server

GOOD = JobArguments(
    "run-1", ("a", "b"), RunSettings(3, time_limit=60.0), Domain(np.zeros(2), np.ones(2)), ("x", "y"), {"silence": 5.0}
).as_dict()


def changed(path: str, value: Any) -> dict[str, Any]:
    arguments = copy.deepcopy(GOOD)
    *parents, leaf = path.split(".")
    place = arguments
    for name in parents:
        place = place[name]
    place[leaf] = value
    return arguments


def test_what_was_written_is_read_back() -> None:
    again = JobArguments.checked(json.loads(json.dumps(GOOD)))
    assert again.as_dict() == GOOD
    assert again.settings == RunSettings(3, time_limit=60.0)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (None, "mapping"),
        ([], "mapping"),
        ({}, "mapping"),
        (changed("command", "rm -rf /"), "mapping"),
        (changed("run", "../../etc"), "'run'"),
        (changed("run", "a/b"), "'run'"),
        (changed("run", ""), "'run'"),
        (changed("run", "run-1\n"), "'run'"),
        (changed("run", 7), "'run'"),
        (changed("nodes", "ab"), "'nodes'"),
        (changed("nodes", []), "at least one node"),
        (changed("nodes", ["a", "A"]), "not distinct"),
        (changed("nodes", ["server"]), "cannot be used"),
        (changed("nodes", ["a/../b"]), "cannot be used"),
        (changed("nodes", ["a"] * 2000), "'nodes'"),
        (changed("settings", []), "'settings'"),
        (changed("settings.out", "/tmp"), "'settings'"),
        (changed("settings.n_clusters", 10**9), "'n_clusters'"),
        (changed("settings.n_clusters", "3"), "'n_clusters'"),
        (changed("settings.n_clusters", True), "'n_clusters'"),
        (changed("settings.gap", math.nan), "'gap'"),
        (changed("settings.gap", -1), "'gap'"),
        (changed("settings.gap", None), "'gap'"),
        (changed("settings.time_limit", math.inf), "'time_limit'"),
        (changed("settings.node_seconds", "1"), "'node_seconds'"),
        (changed("settings.secure", "yes"), "'secure'"),
        (changed("settings.impute", 1), "'impute'"),
        (changed("settings.scale", "log"), "unknown scale"),
        (changed("settings.method", "sg"), "--open"),
        (changed("settings.solver", "os.system"), "unknown solver"),
        (changed("settings.solver", ["exact"]), "'solver'"),
        (changed("settings.method", "m" * 100), "'method'"),
        (changed("settings.topology", [[0, 1]]), "'topology'"),
        (changed("domain", [[0.0], [1.0], [2.0]]), "'domain'"),
        (changed("domain", [[0.0], [math.inf]]), "'domain'"),
        (changed("domain", [[2.0], [1.0]]), "empty"),
        (changed("features", ["x" * 300]), "'features'"),
        (changed("features", [1, 2]), "'features'"),
        (changed("limits.silence", 0), "'silence'"),
        (changed("limits.silence", math.inf), "'silence'"),
        (changed("limits.forever", 1.0), "'limits'"),
    ],
)
def test_hostile_arguments_are_refused_by_name(arguments: Any, named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        JobArguments.checked(arguments)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
paths = st.sampled_from(
    [*GOOD, *(f"settings.{name}" for name in GOOD["settings"]), *(f"limits.{name}" for name in GOOD["limits"])]
)


@given(paths, json_like)
def test_whatever_an_argument_is_it_is_accepted_or_refused_but_never_crashes(path: str, value: Any) -> None:
    with contextlib.suppress(ConsentroidError):
        JobArguments.checked(changed(path, value))


def test_a_job_is_configuration_only(tmp_path: Path) -> None:
    write_job(tmp_path / "job", JobArguments.checked(GOOD))
    files = {str(path.relative_to(tmp_path / "job")) for path in (tmp_path / "job").rglob("*") if path.is_file()}
    assert files == {"meta.json", "server/config/config_fed_server.json", "site/config/config_fed_client.json"}
    meta = json.loads((tmp_path / "job" / "meta.json").read_text())
    assert meta["mandatory_clients"] == ["a", "b"]
    client = json.loads((tmp_path / "job" / "site/config/config_fed_client.json").read_text())
    assert client["executors"][0]["executor"]["args"] == {}


@pytest.mark.parametrize("name", ["", "1a", "a b", "a,b", "../a", "server", "Admin", "a" * 64, "é"])
def test_a_node_needs_a_plain_name(name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be used"):
        check_node_names([name])


def test_the_server_is_a_host_with_an_optional_port() -> None:
    assert parse_server("hospital.example") == ("hospital.example", 8002)
    assert parse_server("localhost:443") == ("localhost", 443)
    for bad in ("", "-x", "a b", "host:0", "host:99999", "host:x", "host;rm"):
        with pytest.raises(InvalidInput):
            parse_server(bad)
