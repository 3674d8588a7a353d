"""A `FitResult` made by hand, with every part a report can show."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from consentroid.core.result import FitResult, Regions, SiteShare, Step, StopReason

CENTRES = np.array([[38.8, 18.3, 189.0, 3700.0], [47.5, 15.0, 217.0, 5080.0], [48.8, 18.6, 196.0, 3830.0]])
FEATURES = ("bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g")


@dataclass(frozen=True)
class WrittenCertificate:
    """Stands for the proof, which is tested elsewhere."""

    content: str = '{"consentroid_certificate": 2, "leaves": [{}]}'

    def write(self, path: Path | str) -> None:
        Path(path).write_text(self.content)


def made_result(n_features: int = 4, **changes: Any) -> FitResult:
    centroids = CENTRES[:, :n_features]
    half = np.array([0.35, 0.2, 0.8, 40.0])[:n_features]
    lowers = [float("-inf"), 590.0, 687.0, 690.8, 690.9]
    uppers = [float("inf"), 700.0, 692.1, 690.95, 690.95]
    phases = ["incumbent", "incumbent", "prices", "prices", "search"]
    trace = tuple(
        Step(phase, i, lower, upper, 40 * max(0, i - 2), max(0, 60 - 20 * i), 1, 0.02 * i**2)
        for i, (phase, lower, upper) in enumerate(zip(phases, lowers, uppers))
    )
    sites = (
        SiteShare("Biscoe", 167, 301.25, np.array([44.0, 120.0, 3.0])),
        SiteShare("Dream", 124, 271.5, np.array([56.0, 1.0, 67.0])),
        SiteShare("São Torgersen", 51, 118.2, np.array([49.0, 0.0, 2.0])),
    )
    made = FitResult(
        centroids=centroids,
        lower_bound=690.9,
        upper_bound=690.95,
        gap_asked=1e-4,
        stop_reason=StopReason.GAP,
        method="row-prices",
        bound_from="row prices",
        sites=sites,
        features=FEATURES[:n_features],
        counts=np.sum([site.counts for site in sites], axis=0),
        radii=np.array([1.4, 1.2, 1.7]),
        certificate=WrittenCertificate(),
        regions=Regions(centroids - half, centroids + 1.5 * half, 1e-4),
        trace=trace,
        settings={"n_clusters": 3, "seed": 0, "time_limit": 60.0, "gap": 1e-4, "method": "row-prices"},
        rounds=42,
        boxes=127,
        cells=1,
        bytes_up=48_211,
        bytes_down=12_002,
        seconds=0.32,
        phases={"incumbent": 0.04, "prices": 0.18, "search": 0.1},
    )
    return replace(made, **changes)


def made_rows(n_features: int = 4, seed: int = 1) -> dict[str, np.ndarray]:
    """Rows that could have led there."""
    rng = np.random.default_rng(seed)
    deviation = np.array([2.6, 1.1, 6.5, 450.0])
    return {
        site.name: np.concatenate(
            [centre + deviation * rng.normal(size=(int(n), 4)) for centre, n in zip(CENTRES, site.counts)]
        )[:, :n_features]
        for site in made_result().sites
    }
