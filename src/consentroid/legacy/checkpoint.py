"""A checkpoint is the state: everything in `Run`, in one npz file without pickle, replaced atomically.

The next round follows from the state alone, so a run resumed from any checkpoint repeats the same λ, the same boxes and
the same result as one that was never interrupted.
"""

from __future__ import annotations

import json
import os
import time
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.errors import InvalidInput
from ..core.problem import Domain
from ..core.symmetry import Symmetry
from ..paper.dual.base import DualEvaluation
from ..paper.dual.checkpoint import from_arrays, to_arrays
from ..paper.settings import Settings
from ..paper.trace import RoundRecord, Trace
from .branching import Box, Cuts, Tree
from .certificate import Certificate, Leaf
from .run_state import Run

Arrays = dict[str, NDArray[Any]]

VERSION = 1
WRITING_SHARE = 0.1  # of a run's time that checkpoints may cost; large trees are then saved less often


class Checkpoint:
    """Where a run is saved. `save` after every round; it skips a turn where writing would slow the run."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path = path
        self._settings = _fingerprint(settings)
        self._next = 0.0

    def save(self, run: Run, force: bool = False) -> None:
        began = time.perf_counter()
        if began < self._next and not force:
            return
        header, arrays = _pack(run)
        header |= {"version": VERSION, "settings": self._settings}
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        temporary = self.path.with_suffix(".tmp.npz")
        with temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)
        ended = time.perf_counter()
        self._next = ended + (ended - began) / WRITING_SHARE

    def load(self, dual_state_like: Any) -> Run:
        """The saved run; `dual_state_like` is any state of the rule in use."""
        try:
            with self.path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            header = json.loads(arrays["header"].tobytes())
        except FileNotFoundError:
            raise InvalidInput(f"there is no checkpoint '{self.path}' to resume from") from None
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise InvalidInput(f"checkpoint '{self.path}' is damaged ({type(error).__name__}); start anew") from None
        if header["settings"] != self._settings:
            changed = sorted(k for k, v in self._settings.items() if header["settings"].get(k) != v)
            raise InvalidInput(
                f"checkpoint '{self.path}' belongs to a run with other settings ({', '.join(changed)}); "
                "resume with the same ones"
            )
        return _unpack(header, arrays, dual_state_like)


def _fingerprint(settings: Settings) -> dict[str, Any]:
    """The settings that a resumed run must share; limits may differ."""
    limits = {"time_limit", "max_rounds", "gap", "node_seconds"}
    return {k: json.loads(json.dumps(v)) for k, v in asdict(settings).items() if k not in limits}


# ---------------------------------------------------------------------- run ↔ header and arrays


def _pack(run: Run) -> tuple[dict[str, Any], Arrays]:
    certificate = run.certificate
    header: dict[str, Any] = {
        "nodes": list(certificate.nodes),
        "n_clusters": certificate.n_clusters,
        "lower": certificate.lower,
        "upper": certificate.upper,
        "rule": run.symmetry.rule,
        "certificate_rule": certificate.symmetry.rule,
        "dual_value": run.dual_value,
        "phase": run.phase,
        "stop_reason": run.stop_reason,
        "elapsed": run.elapsed,
        "round": run.round,
        "bytes": [run.bytes_up, run.bytes_down],
        "trace": [asdict(record) for record in run.trace.records],
    }
    arrays: Arrays = {"domain": np.stack([certificate.domain.lower, certificate.domain.upper])}
    optional = {
        "references": run.symmetry.references,
        "certificate_references": certificate.symmetry.references,
        "centroids": certificate.centroids,
        "node_costs": certificate.node_costs,
        "candidates": run.candidates,
        "anchors": run.anchors,
        "incumbent_counts": run.incumbent_counts,
        "incumbent_offsets": run.incumbent_offsets,
    }
    arrays |= {name: array for name, array in optional.items() if array is not None}
    arrays |= _prefixed("leaf", _pack_leaves(certificate.leaves))
    if run.dual_state is not None:
        arrays |= _prefixed("dual", to_arrays(run.dual_state))
    if run.evaluation is not None:
        arrays |= _prefixed("evaluation", to_arrays(run.evaluation))
    if run.tree is not None:
        header["tree"] = {"n_evaluated": run.tree.n_evaluated, "serial": run.tree.next_serial}
        arrays |= _prefixed("closed", _pack_leaves(run.tree.closed))
        arrays |= _prefixed("open", _pack_boxes(run.tree))
    return header, arrays


def _unpack(header: dict[str, Any], arrays: Arrays, dual_state_like: Any) -> Run:
    certificate = Certificate(
        nodes=tuple(header["nodes"]),
        domain=Domain(*arrays["domain"]),
        n_clusters=header["n_clusters"],
        symmetry=Symmetry(header["certificate_rule"], arrays.get("certificate_references")),
        leaves=_unpack_leaves(_stripped("leaf", arrays)),
        centroids=arrays.get("centroids"),
        node_costs=arrays.get("node_costs"),
        lower=header["lower"],
        upper=header["upper"],
    )
    run = Run(certificate, symmetry=Symmetry(header["rule"], arrays.get("references")))
    run.candidates, run.anchors = arrays.get("candidates"), arrays.get("anchors")
    run.incumbent_counts, run.incumbent_offsets = arrays.get("incumbent_counts"), arrays.get("incumbent_offsets")
    for name in ("dual_value", "phase", "stop_reason", "elapsed", "round"):
        setattr(run, name, header[name])
    run.bytes_up, run.bytes_down = header["bytes"]
    run.trace = Trace([RoundRecord(**record) for record in header["trace"]])
    if stored := _stripped("dual", arrays):
        run.dual_state = from_arrays(dual_state_like, stored)
    if stored := _stripped("evaluation", arrays):
        stored |= {name: float(stored[name]) for name in ("value", "bound")}  # type: ignore[misc]
        run.evaluation = DualEvaluation(**stored)  # type: ignore[arg-type]
    if "tree" in header:
        run.tree = Tree.restored(
            symmetry=run.symmetry,
            closed=_unpack_leaves(_stripped("closed", arrays)),
            entries=_unpack_boxes(_stripped("open", arrays)),
            **header["tree"],
        )
    return run


def _pack_leaves(leaves: list[Leaf]) -> Arrays:
    if not leaves:
        return {}
    priced = np.array([leaf.prices is not None for leaf in leaves])
    return {
        "boxes": np.array([leaf.boxes for leaf in leaves]),
        "priced": priced,
        "prices": np.array([leaf.prices for leaf in leaves if leaf.prices is not None]),
        "node_bounds": np.array([leaf.node_bounds for leaf in leaves if leaf.node_bounds is not None]),
    }


def _unpack_leaves(stored: Arrays) -> list[Leaf]:
    if not stored:
        return []
    proofs = iter(zip(stored["prices"], stored["node_bounds"], strict=True))
    return [
        Leaf(boxes, *next(proofs)) if priced else Leaf(boxes, None, None)
        for boxes, priced in zip(stored["boxes"], stored["priced"], strict=True)
    ]


def _pack_boxes(tree: Tree) -> Arrays:
    entries = tree.entries
    if not entries:
        return {}
    boxes = [box for _, _, box in entries]
    return {
        "serial": np.array([serial for _, serial, _ in entries]),
        "boxes": np.array([box.boxes for box in boxes]),
        "pricings": np.array([box.pricings for box in boxes]),
        "counted": np.array([box.counted for box in boxes]),
        "proof_boxes": np.array([box.proof.boxes for box in boxes]),
        "proof_prices": np.array([box.proof.prices for box in boxes]),
        "node_bounds": np.array([box.proof.node_bounds for box in boxes]),
        "n_trials": np.array([len(box.trials) for box in boxes]),
        "trials": np.concatenate([box.trials for box in boxes]),
        "n_cuts": np.array([len(box.cuts.node) for box in boxes]),
        "cut_node": np.concatenate([box.cuts.node for box in boxes]),
        "cut_cost": np.concatenate([box.cuts.cost for box in boxes]),
        "cut_point": np.concatenate([box.cuts.point for box in boxes]),
    }


def _unpack_boxes(stored: Arrays) -> list[tuple[int, Box]]:
    if not stored:
        return []
    proofs = map(Leaf, stored["proof_boxes"], stored["proof_prices"], stored["node_bounds"])
    trials = np.split(stored["trials"], np.cumsum(stored["n_trials"])[:-1])
    ends = np.cumsum(stored["n_cuts"])[:-1]
    cuts = map(Cuts, *(np.split(stored[name], ends) for name in ("cut_node", "cut_cost", "cut_point")))
    rest = (stored["serial"], stored["boxes"], proofs, trials, cuts, stored["pricings"], stored["counted"])
    return [
        (int(serial), Box(boxes, proof, prices, known, int(pricings), bool(counted)))
        for serial, boxes, proof, prices, known, pricings, counted in zip(*rest, strict=True)
    ]


def _prefixed(prefix: str, arrays: Arrays) -> Arrays:
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def _stripped(prefix: str, arrays: Arrays) -> Arrays:
    start = prefix + "."
    return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
