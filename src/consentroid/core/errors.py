"""Every error a user can meet: one sentence with the values and the remedy."""

from __future__ import annotations


class ConsentroidError(Exception):
    """Base of all errors raised on purpose; the command line prints it without a traceback."""


class InvalidInput(ConsentroidError, ValueError):
    """The data or the settings cannot be clustered as asked."""


class NodeRefused(ConsentroidError):
    """A node declined to take part (rows outside the domain, wrong columns, ...)."""


class NodeFailed(ConsentroidError):
    """A node did not deliver a usable reply; carries the node's name and the reason."""

    def __init__(self, node: str, reason: str) -> None:
        super().__init__(f"node '{node}': {reason}")
        self.node = node
        self.reason = reason


class SolverUnavailable(ConsentroidError, ImportError):
    """An optional solver (or its licence) is missing; the message names the remedy."""


class CertificateInvalid(ConsentroidError):
    """A certificate does not prove what it claims; the message names the place."""


class MalformedMessage(ConsentroidError):
    """Bytes that are not a message of the protocol; the message names the field."""


class FederationFailed(ConsentroidError):
    """The federation's server or a job on it failed; the message names the remedy."""
