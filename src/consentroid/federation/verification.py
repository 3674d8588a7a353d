"""Verification without pooling, at the coordinator: ask every site about a certificate, gather what each signs.

A job of its own. Its server's part has the certificate as a file; the coordinator agrees on masks, as for a run, and
sends the certificate to all sites. What they sign (`attesting.py`) is not for the coordinator to judge:
`verifying.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..certificate.document import Certificate
from ..certificate.reading import certificate_from, parse_json
from ..certificate.signatures import Checker
from ..certificate.statements import Statements
from ..core.errors import CertificateInvalid, InvalidInput, NodeFailed
from ..core.problem import Domain
from .job import checked_limits, checked_names
from .kit import check_node_names
from .protocol import LONGEST_SOLVE
from .secure import SecureTransport, told_failure
from .signing import RUN, VERIFY
from .transport import FlareTransport

CERTIFICATE_FILE = "certificate.json"  # in the configuration of the server's part of the job


@dataclass(frozen=True)
class VerifyArguments:
    """All that such a job may say; `run` names it in the sites' logs."""

    run: str
    nodes: tuple[str, ...]
    limits: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {"verify": asdict(self)}

    @classmethod
    def checked(cls, raw: Any) -> VerifyArguments:
        """From untrusted JSON."""
        told = raw.get("verify") if isinstance(raw, Mapping) and set(raw) == {"verify"} else None
        if not isinstance(told, Mapping) or set(told) != {"run", "nodes", "limits"}:
            raise InvalidInput("a job that verifies has run, nodes and limits, and nothing else")
        if not isinstance(told["run"], str) or not RUN.fullmatch(told["run"]):
            raise InvalidInput("job argument 'run' must be up to 63 lower-case letters, digits and '-'")
        nodes = check_node_names(checked_names("nodes", told["nodes"]))
        return cls(told["run"], nodes, checked_limits(told["limits"]))


def is_verification(raw: Any) -> bool:
    return isinstance(raw, Mapping) and "verify" in raw


def gather(sites: FlareTransport, text: bytes, check: Checker | None = None) -> Statements:
    """The statements of all sites over one certificate; `NodeFailed` names the site that gave none, and why."""
    certificate = _read(text)
    if tuple(sites.nodes) != certificate.sites:
        raise InvalidInput("the job's nodes are not the certificate's sites")
    if len(sites.nodes) > 1:
        masks = SecureTransport(sites, Domain(certificate.domain[0], certificate.domain[1]), check=check)
        failed = masks.agree()
        if failed is not None:
            culprit = masks.culprit or failed
            raise NodeFailed(culprit.node, culprit.reason)
    n_sites = len(sites.nodes)
    answers = sites.ask(VERIFY, [text] * n_sites, budgets=[LONGEST_SOLVE] * n_sites)
    told: list[Statements] = []
    failures: list[NodeFailed] = []
    for node, answer in zip(sites.nodes, answers, strict=True):
        failure = told_failure(node, answer)
        try:
            if failure is not None or not isinstance(answer, bytes):
                raise NodeFailed(node, failure.reason if failure is not None else "sent no statement")
            told.append(_statement(node, answer))
        except NodeFailed as error:
            failures.append(error)
    if failures:
        others = ", ".join(one.of_sites[0].site for one in told)
        held = f"; {others} found their own numbers to hold" if told else ""
        raise NodeFailed(failures[0].node, f"{failures[0].reason}{held}")
    for node, one in zip(sites.nodes, told, strict=True):
        if one.subject != told[0].subject:
            raise NodeFailed(node, f"signed something else than '{sites.nodes[0]}'")
    return Statements(told[0].subject, tuple(one.of_sites[0] for one in told))


def write_statements(path: Path, statements: Statements) -> None:
    """Whole or not at all."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(json.dumps(statements.to_json()) + "\n")
    os.replace(fresh, path)


def _read(text: bytes) -> Certificate:
    try:
        return certificate_from(parse_json(text.decode("utf-8"), "the certificate"))
    except (CertificateInvalid, UnicodeDecodeError) as error:
        raise InvalidInput(f"what is to be verified is not a certificate: {error}") from None


def _statement(node: str, answer: bytes) -> Statements:
    try:
        statements = Statements.from_json(json.loads(answer))
    except (CertificateInvalid, ValueError, RecursionError):
        raise NodeFailed(node, "sent no statement") from None
    if [statement.site for statement in statements.of_sites] != [node]:
        raise NodeFailed(node, "sent a statement of another site")
    return statements
