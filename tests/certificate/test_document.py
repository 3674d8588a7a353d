"""The certificate's document: written and read back the same; everything else is refused with its place."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consentroid.certificate.document import Certificate, fingerprint_of, price_digest
from consentroid.core.errors import CertificateInvalid, InvalidInput
from small_problems import random_problem


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return random_problem(5).certificate.to_json()


def same(one: Any, other: Any) -> bool:
    if is_dataclass(one):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other))
    if isinstance(one, tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other))
    return bool(one == other)


def test_read_back_the_same(document: dict[str, Any], tmp_path: Path) -> None:
    certificate = Certificate.from_json(document)
    certificate.write(tmp_path / "certificate.json")
    again = Certificate.read(tmp_path / "certificate.json")
    assert same(certificate, again)
    assert again.to_json() == document
    assert again.fingerprint == document["fingerprint"]


def test_text_is_plain_json(document: dict[str, Any], tmp_path: Path) -> None:
    Certificate.from_json(document).write(tmp_path / "c.json")
    text = (tmp_path / "c.json").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    assert list(json.loads(text)) == list(document)


def test_price_digest_knows_the_shape() -> None:
    assert price_digest(np.zeros((2, 3))) != price_digest(np.zeros((3, 2)))
    assert price_digest(np.zeros((2, 3))) == price_digest(np.asfortranarray(np.zeros((2, 3))))


def refused(document: Any, match: str) -> None:
    if isinstance(document, dict):
        document["fingerprint"] = fingerprint_of(document)
    with pytest.raises(CertificateInvalid, match=match):
        Certificate.from_json(document)


def test_version_1_is_refused_with_a_sentence() -> None:
    refused({"format": "consentroid-certificate", "version": 1}, r"version 1; .* run the fit again")


@pytest.mark.parametrize("version", [1, 2, 3, 5, True, "4", None, 4.0])
def test_other_versions(document: dict[str, Any], version: Any) -> None:
    refused({**document, "consentroid_certificate": version}, "version 4")


@pytest.mark.parametrize("what", [None, [], "x", 3, {}])
def test_not_a_certificate(what: Any) -> None:
    with pytest.raises(CertificateInvalid, match="not a certificate"):
        Certificate.from_json(what)


def test_altered_is_found(document: dict[str, Any]) -> None:
    with pytest.raises(CertificateInvalid, match="altered"):
        Certificate.from_json({**document, "upper": document["upper"] * 2})


def test_every_field_is_due_and_no_other(document: dict[str, Any]) -> None:
    for name in document:
        if name in ("fingerprint", "consentroid_certificate"):
            continue
        less = {key: value for key, value in document.items() if key != name}
        refused(less, f"'{name}' is missing")
    refused({**document, "more": 1}, "unknown field")


BAD = (None, True, "1", [], {}, float("nan"), float("inf"), 1e301, 10**400, -1e301, [[[[]]]])


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where numbers stand, outside of packed arrays."""
    if isinstance(value, dict):
        return [p for key, part in value.items() if key != "shape" for p in places(part, (*path, key))]
    if isinstance(value, list):
        return [p for i, part in enumerate(value) for p in places(part, (*path, i))]
    return [path] if type(value) in (int, float) else []


def put(document: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    result = copy.deepcopy(document)
    at: Any = result
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return result


def test_no_number_may_be_anything_else(document: dict[str, Any]) -> None:
    tried = 0
    for path in places(document):
        if path[0] == "consentroid_certificate":
            continue
        for bad in BAD:
            forged = put(document, path, bad)
            with suppress(ValueError):  # NaN cannot even be sealed
                forged["fingerprint"] = fingerprint_of(forged)
            with pytest.raises(CertificateInvalid):
                Certificate.from_json(forged)
            tried += 1
    assert tried > 300


@pytest.mark.parametrize(
    "name", ["a\nVerified: b", "x[/b]", "\x1b[31m", "", " a", "a" * 101, "a/b", "..", None, 3, "a‮b", "ａ\x00"]
)
def test_names_of_sites(document: dict[str, Any], name: Any) -> None:
    forged = copy.deepcopy(document)
    forged["sites"][0] = name
    forged["price_files"] = dict(zip([str(n) for n in forged["sites"]], document["price_files"].values()))
    forged["fingerprint"] = fingerprint_of(forged)
    with pytest.raises(CertificateInvalid) as error:
        Certificate.from_json(forged)
    assert str(error.value).isprintable()


def test_names_of_features(document: dict[str, Any]) -> None:
    for name in ("a\nb", "\x1b", "", "a" * 101, "[bold]"):
        forged = copy.deepcopy(document)
        forged["features"][0] = name
        refused(forged, "features")
    forged = copy.deepcopy(document)
    forged["features"][0] = "sepal length (cm)"
    forged["fingerprint"] = fingerprint_of(forged)
    assert Certificate.from_json(forged).features[0] == "sepal length (cm)"


def proof_of(document: dict[str, Any]) -> dict[str, Any]:
    return next(cell["proof"] for leaf in document["leaves"] for cell in leaf["cells"] if cell["proof"])


@pytest.mark.parametrize("array", ["kind", "axis", "side", "value", "mu", "claims"])
def test_packed_arrays(document: dict[str, Any], array: str) -> None:
    kind = "f8" if array in ("value", "mu", "claims") else "i4"
    spoils = [
        ("shape", [2**40] * (3 if array == "claims" else 1)),  # memory: refused before anything is allocated
        ("shape", [-1] * (3 if array == "claims" else 1)),
        ("shape", [1.0]),
        ("shape", []),
        ("shape", None),
        (kind, "!!!!"),
        (kind, ""),
        (kind, 3),
        (kind, proof_of(document)[array][kind][:-4]),
    ]
    for key, value in spoils:
        forged = copy.deepcopy(document)
        proof_of(forged)[array][key] = value
        refused(forged, "leaf 0")
    forged = copy.deepcopy(document)
    other = "i4" if kind == "f8" else "f8"
    proof_of(forged)[array][other] = proof_of(forged)[array].pop(kind)
    refused(forged, "is missing")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        '{"a": 1, "a": 2}',
        '{"a": NaN}',
        '{"a": Infinity}',
        "9" * 5000,
        "\udcff",
        "null",
        "1e400",
    ],
)
def test_odd_files(text: str, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(CertificateInvalid):
        Certificate.read(path)


def test_literals_beyond_doubles(document: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    for literal in ("1e400", "-1e400", "1" + "0" * 400):
        path.write_text(json.dumps({**document, "lower": "HERE"}).replace('"HERE"', literal))
        with pytest.raises(CertificateInvalid, match="lower"):
            Certificate.read(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot read"):
        Certificate.read(tmp_path / "none.json")
