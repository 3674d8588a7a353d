"""A masked run with its certificate and the sites' statements, made once for all tests of verification."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # the helpers need FLARE
    from consentroid.certificate.document import Certificate
    from consentroid.certificate.statements import Statements
    from verified_run import KeepingWire


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> tuple[KeepingWire, Certificate, Statements]:
    from verified_run import KeepingWire, problem_of
    from wire import SECURE

    line = KeepingWire(problem_of(), tmp_path_factory.mktemp("kept"), SECURE, {})
    certificate = line.fit(secure=True)
    return line, certificate, line.verify(certificate)


@pytest.fixture
def finished(masked: tuple[KeepingWire, Certificate, Statements], tmp_path: Path) -> tuple[KeepingWire, Certificate]:
    """The same run with files that a test may spoil."""
    from verified_run import KeepingWire
    from wire import NODES, SECURE

    line = KeepingWire(masked[0].problem, tmp_path, SECURE, {})
    for name in NODES:
        for path in masked[0].kept(name).iterdir():
            (line.kept(name) / path.name).write_bytes(path.read_bytes())
    return line, masked[1]
