"""SHA-256 digests of the sections of a certificate: whatever is altered after writing is found, and named.

A digest is taken of a section's canonical text: JSON with sorted keys, no spaces, and the shortest decimal that reads
back as the same number. Digests are no proof (a forger recomputes them); the mathematics stands without them. They find
the alterations that leave the mathematics true, such as a weaker bound, and `all` names a certificate in 64 digits.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ...core.errors import CertificateInvalid

SECTIONS = ("domain", "symmetry", "incumbent")


def digest(section: Any) -> str:
    text = json.dumps(section, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def digests_of(document: dict[str, Any]) -> dict[str, Any]:
    """The `digests` section that belongs to a document."""
    apart = (*SECTIONS, "leaves", "digests")
    result: dict[str, Any] = {name: digest(document.get(name)) for name in SECTIONS}
    result["summary"] = digest({name: value for name, value in document.items() if name not in apart})
    result["leaves"] = [digest(leaf) for leaf in document.get("leaves", [])]
    result["all"] = digest(result)
    return result


def check_digests(document: dict[str, Any]) -> None:
    """Raise an error that names the first section that was altered."""
    stated = document["digests"]
    computed = digests_of(document)
    if not isinstance(stated, dict) or stated.keys() != computed.keys() or not isinstance(stated["leaves"], list):
        raise CertificateInvalid(f"digests: must be {', '.join(computed)}")
    for name in (*SECTIONS, "summary"):
        if stated[name] != computed[name]:
            raise CertificateInvalid(f"{name}: altered after writing, its digest does not match")
    if len(stated["leaves"]) != len(computed["leaves"]):
        raise CertificateInvalid(
            f"leaves: {len(computed['leaves'])} in the file, {len(stated['leaves'])} when it was written"
        )
    for i, (one, other) in enumerate(zip(stated["leaves"], computed["leaves"], strict=True)):
        if one != other:
            raise CertificateInvalid(f"leaf {i}: altered after writing, its digest does not match")
    if stated["all"] != computed["all"]:
        raise CertificateInvalid("digests.all: altered after writing")
