"""Shared fixtures: the published benchmark files, where present, and one hypothesis profile for all machines."""

from __future__ import annotations

import csv
import math
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "consentroid",
    deadline=None,  # speed is measured by benchmarks, never asserted
    derandomize=True,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("consentroid")

# They run the same lines thousands of times: to trace them takes longer than to run them, and others reach these lines.
NOT_TRACED = {
    "test_exact_truth.py", "test_exact_many.py", "test_exact_nearest.py", "test_exact_rule.py",
    "test_bent_certificates.py", "test_forged_certificates.py", "test_enumeration.py", "test_certificates.py",
    "test_search.py", "test_truth.py", "test_boxes.py", "test_guard.py", "test_crossing.py", "test_document.py",
}  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name in NOT_TRACED:
            item.add_marker(pytest.mark.no_cover)


@pytest.fixture
def without_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if rows were too many for prices on pairs."""
    for room in ("engine", "attempts"):
        monkeypatch.setattr(f"consentroid.rowprices.{room}.seconds_needed", lambda session: math.inf)


@pytest.fixture
def pairs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search of all axes is given up as soon as it begins, and prices on pairs are tried."""
    room = "consentroid.rowprices"
    for name in ("engine", "attempts"):
        monkeypatch.setattr(f"{room}.{name}.seconds_needed", lambda session: 0.0)
    monkeypatch.setattr(f"{room}.engine.SEARCH_UNTIL", 0.0)
    for share in ("engine.SEARCH_FOR", "session.NEARLY", "session.PART"):
        monkeypatch.setattr(f"{room}.{share}", -1.0)


INSTANCES = Path(os.environ.get("CONSENTROID_INSTANCES", Path(__file__).parents[2] / "shared" / "instances"))


@pytest.fixture(scope="session")
def instances_dir() -> Path:
    """The published files carry no licence and are not part of the repository."""
    if not (INSTANCES / "optima.csv").exists():
        pytest.skip(f"published benchmark files not found in {INSTANCES}; set CONSENTROID_INSTANCES to their folder")
    return INSTANCES


@pytest.fixture(scope="session")
def optima(instances_dir: Path) -> dict[str, float]:
    """Proven optimal cost of each published instance."""
    with (instances_dir / "optima.csv").open() as file:
        return {row["instance"]: float(row["optimal_cost"]) for row in csv.DictReader(file)}
