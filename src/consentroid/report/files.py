"""The files of a run: `result.json`, `certificate.json`, `trace.jsonl`."""

from __future__ import annotations

import json
import math
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..core.errors import InvalidInput
from ..fitting import FitResult


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


def result_as_dict(result: FitResult) -> dict[str, Any]:
    certificate = result.certificate
    nodes = result.by_owner()
    topology, limit = result.settings.topology, result.settings.time_limit
    return {
        "n_nodes": len(nodes),
        "n_parts": len(result.node_names),
        "n_points": sum(result.node_points),
        "n_features": certificate.domain.n_features,
        "n_clusters": certificate.n_clusters,
        "method": result.settings.method,
        "solver": result.settings.solver,
        "symmetry": result.settings.symmetry,
        "topology": topology if isinstance(topology, str) else [list(edge) for edge in topology],
        "seed": result.settings.seed,
        "time_limit": limit if math.isfinite(limit) else None,
        "versions": {name: version(name) for name in ("consentroid", "numpy", "numba")},
        "gap_asked": result.settings.gap,
        "lower_bound": result.lower_bound,
        "upper_bound": result.upper_bound,
        "gap": result.gap,
        "certified": result.certified,
        "stop_reason": result.stop_reason,
        "rounds": result.rounds,
        "boxes": result.boxes,
        "bytes_up": result.bytes_up,
        "bytes_down": result.bytes_down,
        "seconds": result.seconds,
        "features": list(result.features),
        "centroids": result.centroids.tolist(),
        "nodes": [
            {"name": name, "n_points": n_points, "cost": cost, "counts": counts.tolist()}
            for name, n_points, cost, counts in nodes
        ],
    }


def write_run(folder: Path, result: FitResult) -> None:
    (folder / "result.json").write_text(json.dumps(result_as_dict(result), indent=1) + "\n")
    result.certificate.write(folder / "certificate.json")
    result.trace.write(folder / "trace.jsonl")
