"""Certificate, version 4, as dataclasses: written by the engine, read strictly, free of numerics.

`docs/certificate.md` explains every field and why it proves the bound; `certificate/reading.py` holds the checks of a
file from elsewhere. D features, K clusters, N sites.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array

VERSION = 4

# kinds of the records of a tree of boxes
SPLIT = 0  # (axis, value): two children, the lower one first
STATIONARY_CUT = 1  # (axis, side, value, mu): no minimiser beyond the value
COST_CUT = 2  # (axis, side, value): the minorant is at least the target beyond the value
CLOSED = 3  # the minorant's least value over the box counts
CLOSED_BY_CUT = 4  # (axis, side, mu): a stationarity cut at the box's own side
SHRUNK = 5  # ends a run of cuts; the record that follows is about what is left of the box

Integers = NDArray[np.int32]


@dataclass(frozen=True)
class BoxTree:
    """Why f ≥ target in one cell: a tree of boxes, its records in preorder."""

    kind: Integers  # (n,)
    axis: Integers  # (n,)
    side: Integers  # (n,) 0: what lies above the value is removed, 1: what lies below
    value: Array  # (n,)
    mu: Array  # (n,)
    claims: Array | None  # (boxes, N, 2(D+2) + M) per box and site: minorant, in-rows' quadratic, M stationarity sums


@dataclass(frozen=True)
class CellProof:
    lower: Array  # (D,)
    upper: Array  # (D,)
    count: int  # centroids in this cell
    target: float  # t ≤ 0
    proof: BoxTree | None  # None where the count is 0


@dataclass(frozen=True)
class LeafProof:
    """A leaf of the tree of cells: how many centroids lie in each cell, and a bound on the cost of all such."""

    path: tuple[tuple[int, int, float, int], ...]  # (cell, axis, value, centroids below) from the root
    prices: int  # row of the sites' price files
    totals: Array | None  # (N,) Σ w λ of each site, rounded down
    total: float
    bound: float  # total + Σ count · target, in the searched coordinates
    cells: tuple[CellProof, ...]


@dataclass(frozen=True)
class RestProof:
    """What the searched coordinates leave out, bounded by the moments of all rows (`verify/spectrum.py`)."""

    bound: float
    moments: Array | None  # (N, 1 + D + D²) of each site about the origin: Σ w, Σ w (x − o), Σ w (x − o)(x − o)ᵀ


@dataclass(frozen=True)
class PairsProof:
    """In place of leaves: what prices on pairs of each site's own rows prove about these alone (`verify/pairs.py`)."""

    bound: float  # of all sites together, in the rows' own units
    bounds: Array | None  # (N,) of each site


@dataclass(frozen=True)
class Certificate:
    n_clusters: int
    sites: tuple[str, ...]
    features: tuple[str, ...]
    domain: Array  # (2, D)
    origin: Array  # (D,)
    basis: Array  # (D, D) columns are orthogonal and no longer than 1
    scale: float
    root: Array  # (2, D)
    shift: float
    centroids: Array  # (K, D)
    site_costs: Array | None  # (N,)
    scatter_errors: Array | None  # (N,)
    total_scatter_error: float
    leaves: tuple[LeafProof, ...]  # none where pairs prove the bound
    price_files: dict[str, str]  # digest of every site's price file
    lower: float
    upper: float
    gap: float
    rest: RestProof | None = None
    pairs: PairsProof | None = None

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(self._body())

    def to_json(self) -> dict[str, Any]:
        """The certificate as a JSON object, sealed with its fingerprint."""
        body = self._body()
        return {**body, "fingerprint": fingerprint_of(body)}

    def write(self, path: Path | str) -> None:
        Path(path).write_text(json.dumps(self.to_json(), allow_nan=False), encoding="utf-8")

    @staticmethod
    def from_json(document: Any) -> Certificate:
        """Read strictly; raises `CertificateInvalid` that names the place."""
        from .reading import certificate_from

        return certificate_from(document)

    @staticmethod
    def read(path: Path | str) -> Certificate:
        from .reading import certificate_from, read_json

        return certificate_from(read_json(path))

    def _body(self) -> dict[str, Any]:
        return {
            "consentroid_certificate": VERSION,
            "n_clusters": int(self.n_clusters),
            "sites": list(self.sites),
            "features": list(self.features),
            "domain": _box(self.domain),
            "coordinates": {"origin": _listed(self.origin), "basis": _listed(self.basis), "scale": float(self.scale)},
            "root": _box(self.root),
            "shift": float(self.shift),
            "centroids": _listed(self.centroids),
            "site_costs": _listed(self.site_costs),
            "scatter_errors": _listed(self.scatter_errors),
            "total_scatter_error": float(self.total_scatter_error),
            "leaves": [_leaf(leaf) for leaf in self.leaves],
            "rest": None if self.rest is None else _rest(self.rest),
            "pairs": None if self.pairs is None else _pairs(self.pairs),
            "price_files": dict(self.price_files),
            "lower": float(self.lower),
            "upper": float(self.upper),
            "gap": float(self.gap),
        }


def fingerprint_of(document: dict[str, Any]) -> str:
    """SHA-256 of the canonical text (sorted keys, no spaces, shortest decimals) without the fingerprint itself."""
    body = {name: value for name, value in document.items() if name != "fingerprint"}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def price_digest(prices: Array, triples: NDArray[np.int64] | None = None, fees: Array | None = None) -> str:
    """SHA-256 of a site's prices (price vectors, rows): the shape as two int64, then little-endian doubles; and, if
    there are any, the same of triples (as int64) and of their fees."""
    tables: list[tuple[Any, str]] = [(prices, "<f8")]
    if triples is not None and len(triples) > 0:
        tables += [(triples, "<i8"), (fees, "<f8")]
    text = b""
    for table, kind in tables:
        numbers = np.ascontiguousarray(table, dtype=kind)
        text += np.array(numbers.shape, dtype="<i8").tobytes() + numbers.tobytes()
    return hashlib.sha256(text).hexdigest()


def pairs_digest(arrays: Sequence[NDArray[Any]]) -> str:
    """SHA-256 of prices on pairs: of each array its shape as int64, then its numbers, little-endian; of no array where
    a site has none."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.array(array.shape, dtype="<i8").tobytes())
        digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


def packed(array: NDArray[Any]) -> dict[str, Any]:
    """A bulky array as {"shape", "f8" or "i4"}."""
    array = np.asarray(array)
    name = "i4" if array.dtype.kind in "iu" else "f8"
    raw = np.ascontiguousarray(array, dtype=f"<{name}").tobytes()
    return {"shape": list(array.shape), name: base64.b64encode(raw).decode("ascii")}


def _leaf(leaf: LeafProof) -> dict[str, Any]:
    return {
        "path": [[int(cell), int(axis), float(value), int(below)] for cell, axis, value, below in leaf.path],
        "prices": int(leaf.prices),
        "totals": _listed(leaf.totals),
        "total": float(leaf.total),
        "bound": float(leaf.bound),
        "cells": [_cell(cell) for cell in leaf.cells],
    }


def _rest(rest: RestProof) -> dict[str, Any]:
    moments = None if rest.moments is None else packed(np.asarray(rest.moments, dtype=float))
    return {"bound": float(rest.bound), "moments": moments}


def _pairs(pairs: PairsProof) -> dict[str, Any]:
    return {"bound": float(pairs.bound), "bounds": _listed(pairs.bounds)}


def _cell(cell: CellProof) -> dict[str, Any]:
    return {
        "lower": _listed(cell.lower),
        "upper": _listed(cell.upper),
        "count": int(cell.count),
        "target": float(cell.target),
        "proof": None if cell.proof is None else _tree(cell.proof),
    }


def _tree(tree: BoxTree) -> dict[str, Any]:
    return {
        "kind": packed(np.asarray(tree.kind, dtype=np.int32)),
        "axis": packed(np.asarray(tree.axis, dtype=np.int32)),
        "side": packed(np.asarray(tree.side, dtype=np.int32)),
        "value": packed(np.asarray(tree.value, dtype=float)),
        "mu": packed(np.asarray(tree.mu, dtype=float)),
        "claims": None if tree.claims is None else packed(np.asarray(tree.claims, dtype=float)),
    }


def _box(box: Array) -> dict[str, Any]:
    return {"lower": _listed(box[0]), "upper": _listed(box[1])}


def _listed(array: Array | None) -> Any:
    return None if array is None else np.asarray(array, dtype=float).tolist()
