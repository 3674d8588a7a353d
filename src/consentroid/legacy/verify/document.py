"""Reads a certificate file strictly: every field, every shape, every number finite; see `docs/certificate.md`."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...core.arrays import Array
from ...core.errors import CertificateInvalid, InvalidInput
from .digests import check_digests

FORMAT = "consentroid-certificate"
VERSION = 1
FIELDS = (
    "format", "version", "nodes", "n_clusters", "n_features", "domain", "symmetry", "incumbent", "upper_bound",
    "lower_bound", "gap", "leaves", "digests",
)  # fmt: skip


@dataclass(frozen=True)
class Leaf:
    boxes: Array  # (2, K, D)
    prices: Array | None  # (N, K, D), None where the order rule excludes the whole leaf
    node_bounds: Array | None  # (N,)
    bound: float


@dataclass(frozen=True)
class Document:
    """What the certificate claims, as arrays."""

    fingerprint: str
    nodes: tuple[str, ...]
    n_clusters: int
    n_features: int
    domain: Array  # (2, D)
    references: Array | None  # (K, D); None: no order rule
    centroids: Array  # (K, D)
    node_costs: Array  # (N,)
    upper_bound: float
    lower_bound: float
    gap: float
    leaves: tuple[Leaf, ...]


def read_document(path: Path | str) -> dict[str, Any]:
    """The file as JSON; numbers that are not finite and fields given twice are refused."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot read '{path}' ({error.strerror})") from None
    except UnicodeDecodeError:
        raise CertificateInvalid(f"'{path}' is not text in UTF-8") from None
    try:
        document = json.loads(text, object_pairs_hook=_distinct_fields, parse_constant=_not_a_number)
    except ValueError as error:
        raise CertificateInvalid(f"'{path}' is not JSON: {error}") from None
    except RecursionError:
        raise CertificateInvalid(f"'{path}' is nested too deeply for a certificate") from None
    if not isinstance(document, dict):
        raise CertificateInvalid(f"'{path}' must hold one JSON object")
    return document


def parsed(document: dict[str, Any]) -> Document:
    """Check the digests, then the structure."""
    _fields(document, FIELDS, "the certificate")
    if document["format"] != FORMAT:
        raise CertificateInvalid(f"format: {document['format']!r} is not '{FORMAT}'")
    if document["version"] != VERSION or isinstance(document["version"], bool):
        raise CertificateInvalid(f"version: {document['version']!r}; this program reads version {VERSION}")
    if not isinstance(document["leaves"], list):
        raise CertificateInvalid("leaves: must be a list")
    check_digests(document)
    nodes = document["nodes"]
    if not (isinstance(nodes, list) and nodes and all(isinstance(name, str) and name for name in nodes)):
        raise CertificateInvalid("nodes: must be a list of names")
    if len(set(nodes)) < len(nodes):
        raise CertificateInvalid(f"nodes: a name occurs twice in {', '.join(nodes)}")
    n, k, d = len(nodes), _count(document, "n_clusters"), _count(document, "n_features")
    _fields(document["domain"], ("lower", "upper"), "domain")
    domain = np.stack([_numbers(document["domain"][side], (d,), f"domain.{side}") for side in ("lower", "upper")])
    _not_empty(domain, "domain")
    incumbent = document["incumbent"]
    _fields(incumbent, ("centroids", "node_costs"), "incumbent")
    return Document(
        fingerprint=document["digests"]["all"],
        nodes=tuple(nodes),
        n_clusters=k,
        n_features=d,
        domain=domain,
        references=_references(document["symmetry"], k, d),
        centroids=_numbers(incumbent["centroids"], (k, d), "incumbent.centroids"),
        node_costs=_numbers(incumbent["node_costs"], (n,), "incumbent.node_costs"),
        upper_bound=_number(document["upper_bound"], "upper_bound"),
        lower_bound=_number(document["lower_bound"], "lower_bound"),
        gap=_number(document["gap"], "gap"),
        leaves=tuple(_leaf(leaf, i, n, k, d) for i, leaf in enumerate(document["leaves"])),
    )


def _leaf(leaf: Any, i: int, n: int, k: int, d: int) -> Leaf:
    place = f"leaf {i}"
    excluded = isinstance(leaf, dict) and "excluded_by" in leaf
    _fields(leaf, ("boxes", "excluded_by") if excluded else ("boxes", "prices", "node_bounds", "bound"), place)
    boxes = _numbers(leaf["boxes"], (2, k, d), f"{place}, boxes")
    _not_empty(boxes, f"{place}, boxes")
    if excluded:
        if leaf["excluded_by"] != "order":
            raise CertificateInvalid(f"{place}, excluded_by: {leaf['excluded_by']!r} is not 'order'")
        return Leaf(boxes, None, None, math.inf)
    return Leaf(
        boxes,
        _numbers(leaf["prices"], (n, k, d), f"{place}, prices"),
        _numbers(leaf["node_bounds"], (n,), f"{place}, node_bounds"),
        _number(leaf["bound"], f"{place}, bound"),
    )


def _references(symmetry: Any, k: int, d: int) -> Array | None:
    _fields(symmetry, ("rule", "references"), "symmetry")
    rule, references = symmetry["rule"], symmetry["references"]
    if rule == "order":
        return _numbers(references, (k, d), "symmetry.references")
    if rule != "none":
        raise CertificateInvalid(f"symmetry.rule: {rule!r} proves nothing; only 'order' and 'none' keep the optimum")
    if references is not None:
        raise CertificateInvalid("symmetry.references: must be null under the rule 'none'")
    return None


def _fields(section: Any, names: tuple[str, ...], place: str) -> None:
    if not isinstance(section, dict):
        raise CertificateInvalid(f"{place}: must be an object with {', '.join(names)}")
    for name in names:
        if name not in section:
            raise CertificateInvalid(f"{place}: the field '{name}' is missing")
    for name in section:
        if name not in names:
            raise CertificateInvalid(f"{place}: unknown field '{name}'")


def _count(document: dict[str, Any], name: str) -> int:
    value = document[name]
    if type(value) is not int or value < 1:
        raise CertificateInvalid(f"{name}: {value!r} is not a positive integer")
    return value


def _number(value: Any, place: str) -> float:
    if type(value) not in (int, float):
        raise CertificateInvalid(f"{place}: {value!r} is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise CertificateInvalid(f"{place}: {str(value)[:20]} is not a finite number")
    return number


def _numbers(value: Any, shape: tuple[int, ...], place: str) -> Array:
    """Nested lists of exactly this shape."""

    def flat(part: Any, at: str, level: int) -> list[float]:
        if level == len(shape):
            return [_number(part, at)]
        if not isinstance(part, list) or len(part) != shape[level]:
            found = f"{len(part)} entries" if isinstance(part, list) else repr(part)[:20]
            raise CertificateInvalid(f"{at}: {found}, where a list of {shape[level]} is due (shape {shape})")
        return [x for i, entry in enumerate(part) for x in flat(entry, f"{at}[{i}]", level + 1)]

    return np.array(flat(value, place, 0)).reshape(shape)


def _not_empty(box: Array, place: str) -> None:
    if np.any(box[0] > box[1]):
        at = tuple(int(i[0]) for i in np.nonzero(box[0] > box[1]))
        raise CertificateInvalid(f"{place}: lower {box[0][at]!r} exceeds upper {box[1][at]!r} at {list(at)}")


def _distinct_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the field '{next(n for n in names if names.count(n) > 1)}' is given twice")
    return result


def _not_a_number(text: str) -> float:
    raise ValueError(f"{text} is not a finite number")
