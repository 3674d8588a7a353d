"""The files of a run, and nothing else in its folder.

| file               | what                                                                  | mode   |
|--------------------|-----------------------------------------------------------------------|--------|
| `result.json`      | verdict, bounds, centroids, regions, counts per site, effort          | 0600   |
| `certificate.json` | the proof, for `consentroid verify`; only where the method makes one  | 0600   |
| `trace.jsonl`      | one line per step: phase, bounds, boxes, seconds                      | usual  |
| `prices-NAME.npz`  | a site's prices of its rows, for `verify`; written where its rows are | 0600   |

Centroids, regions and spread are in the units of the rows as they were given; costs, bounds and radii are in the units
that were clustered (`scaling` leads from one to the other). A number that is not finite is null: JSON knows no other.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.errors import InvalidInput
from ..core.names import visible
from ..core.result import FitResult, Step
from .wording import verdict

FORMAT = "consentroid-result"
VERSION = 1
PACKAGES = ("numpy", "scipy", "numba", "piqp", "clarabel", "scikit-learn")
RESULT, CERTIFICATE, TRACE = "result.json", "certificate.json", "trace.jsonl"
WRITTEN = (RESULT, CERTIFICATE, TRACE)
DERIVED = ("report.html", "clusters.png", "bounds.png", "gap.png", "labels.csv")
OLD = ("checkpoint.npz",)  # of earlier versions
SCRATCH = ".run-"  # folders in which a run keeps its price files until it is over

MISSING_RUN = "give the folder that consentroid fit --out wrote"


@dataclass(frozen=True)
class Details:
    """What only those know who hold all rows: how they were scaled, and how far they spread."""

    scaling: Mapping[str, Any] | None = None  # offset, factor, fill: `data.preprocessing.Recipe.as_dict`
    spread: Array | None = None  # (K, D) standard deviation of each feature in each cluster, in the rows' own units


@dataclass(frozen=True)
class RunFiles:
    """A run as read from its folder."""

    folder: Path
    result: dict[str, Any]
    certificate: dict[str, Any] | None
    trace: list[dict[str, Any]]


def output_folder(path: Path | str) -> Path:
    """Make sure, before any work, that results can be written."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".writable-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InvalidInput(f"cannot write to '{folder}' ({error.strerror}); choose another folder") from None
    return folder


def check_writable(path: Path | None) -> None:
    """The same for a single file."""
    if path is not None:
        output_folder(path.parent)


def clean_up(folder: Path, keep: Iterable[str] = (), *, prices: bool = True) -> None:
    """Remove what an earlier run left: nothing in the folder may speak of another run than `result.json` does.

    Call it when a run is over and before its files are written; `prices=False` leaves the price files, which a run
    writes before its result.
    """
    old = {*WRITTEN, *DERIVED, *OLD} | ({path.name for path in folder.glob("prices-*.npz")} if prices else set())
    keep = set(keep)
    for name in old - keep:
        (folder / name).unlink(missing_ok=True)
    for scratch in folder.glob(f"{SCRATCH}*"):  # of a run that was killed
        if scratch.name not in keep:
            shutil.rmtree(scratch, ignore_errors=True)


def write_run(folder: Path | str, result: FitResult, details: Details | None = None) -> None:
    """All files of a run, each whole or not at all; files of an earlier run in the folder go."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    clean_up(folder, prices=False)
    if result.certificate is not None:
        private = _new(folder / CERTIFICATE, 0o600)
        result.certificate.write(private)
        os.replace(private, folder / CERTIFICATE)
    write_text(folder / TRACE, "".join(to_json(step_as_dict(step)) + "\n" for step in result.trace))
    # Last: a folder with result.json is complete.
    write_text(folder / RESULT, to_json(result_as_dict(result, details), indent=1) + "\n", 0o600)


def result_as_dict(result: FitResult, details: Details | None = None) -> dict[str, Any]:
    """The content of `result.json`."""
    details = details or Details()
    back = _back(details.scaling, result.centroids.shape[1])
    regions = result.regions
    return {
        "format": FORMAT,
        "version": VERSION,
        "verdict": verdict(result),
        "certified": bool(result.certified),
        "lower_bound": result.lower_bound,
        "upper_bound": result.upper_bound,
        "gap": result.gap,
        "gap_asked": result.gap_asked,
        "stop_reason": str(result.stop_reason),
        "method": result.method,
        "bound_from": result.bound_from,
        "n_clusters": len(result.centroids),
        "n_features": result.centroids.shape[1],
        "n_rows": sum(site.n_rows for site in result.sites),
        "n_sites": len(result.sites),
        "features": list(result.features) or [f"x{d}" for d in range(result.centroids.shape[1])],
        "centroids": back(result.centroids),
        "counts": result.counts,
        "radii": result.radii,
        "withheld": result.withheld,
        "spread": details.spread,
        "regions": None
        if regions is None
        else {"lower": back(regions.lower), "upper": back(regions.upper), "tolerance": regions.tolerance},
        "scaling": None if details.scaling is None else dict(details.scaling),
        "sites": [
            {
                "name": site.name,
                "n_rows": site.n_rows,
                "cost": site.cost,
                "counts": site.counts,
                "withheld": site.withheld,
            }
            for site in result.sites
        ],
        "settings": dict(result.settings),
        "rounds": result.rounds,
        "boxes": result.boxes,
        "cells": result.cells,
        "bytes_up": result.bytes_up,
        "bytes_down": result.bytes_down,
        "seconds": result.seconds,
        "phases": dict(result.phases),
        "versions": versions(),
    }


def step_as_dict(step: Step) -> dict[str, Any]:
    """A line of `trace.jsonl`."""
    return {**vars(step), "gap": step.gap}


def versions() -> dict[str, str]:
    known = {"consentroid": str(sys.modules[__name__.partition(".")[0]].__version__)}  # of the code that runs
    for name in PACKAGES:
        try:
            known[name] = version(name)
        except PackageNotFoundError:
            continue
    return known


def to_json(document: Any, indent: int | None = None) -> str:
    """Strict JSON: arrays as lists, numbers that are not finite as null."""
    return json.dumps(plain(document), indent=indent, allow_nan=False)


def plain(value: Any) -> Any:
    """What JSON knows; an object it does not know is an error, not a string."""
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return str(value) if isinstance(value, str) else value


def write_text(path: Path, text: str, mode: int | None = None) -> None:
    """The whole file or none of it."""
    try:
        new = _new(path, mode)
        new.write_text(text, encoding="utf-8")
        os.replace(new, path)
    except OSError as error:
        raise InvalidInput(f"cannot write '{path}' ({error.strerror}); choose another place") from None


def _new(path: Path, mode: int | None) -> Path:
    new = path.with_name(f".{path.name}-{os.getpid()}")
    new.unlink(missing_ok=True)
    os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if mode is None else mode))
    return new


def _back(scaling: Mapping[str, Any] | None, n_features: int) -> Any:
    """From the units that were clustered to those of the rows; factors are positive, so boxes stay boxes."""
    offset = np.zeros(n_features) if scaling is None else np.array(scaling["offset"], dtype=float)
    factor = np.ones(n_features) if scaling is None else np.array(scaling["factor"], dtype=float)
    return lambda points: np.asarray(points, dtype=float) * factor + offset


def read_run(folder: Path | str) -> RunFiles:
    """The files of a run; the error says which is missing or broken."""
    folder = Path(folder)
    result = read_result(folder)
    certificate = read_json(folder / CERTIFICATE) if (folder / CERTIFICATE).exists() else None
    return RunFiles(folder, result, certificate, _read_trace(folder / TRACE))


def read_result(folder: Path | str) -> dict[str, Any]:
    """`result.json` of a run's folder, or that file itself."""
    path = Path(folder)
    path = path if path.is_file() else path / RESULT
    result = read_json(path)
    if result.get("format") != FORMAT or result.get("version") != VERSION:
        raise InvalidInput(
            f"'{path}' is not a {FORMAT} file of version {VERSION}; run consentroid fit again with this version"
        )
    return result


def read_json(path: Path, remedy: str = "run consentroid fit again", missing: str = MISSING_RUN) -> dict[str, Any]:
    """A JSON object, or one sentence about what is there instead."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidInput(f"'{path}' is missing; {missing}") from None
    except OSError as error:
        raise InvalidInput(f"cannot read '{path}' ({error.strerror})") from None
    except ValueError as error:
        raise InvalidInput(f"'{path}' is not JSON ({visible(str(error))}); {remedy}") from None
    if not isinstance(document, dict):
        raise InvalidInput(f"'{path}' does not hold a JSON object; {remedy}")
    return document


def _read_trace(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines if line.strip()]
    except FileNotFoundError:
        raise InvalidInput(f"'{path}' is missing; {MISSING_RUN}") from None
    except ValueError as error:
        raise InvalidInput(
            f"'{path}' is not a list of JSON lines ({visible(str(error))}); run consentroid fit again"
        ) from None
    if not all(isinstance(record, dict) for record in records):
        raise InvalidInput(f"'{path}' is not a list of JSON objects; run consentroid fit again")
    return records
