"""Shared fixtures: the published benchmark files, where present, and one hypothesis profile for all machines."""

from __future__ import annotations

import csv
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
