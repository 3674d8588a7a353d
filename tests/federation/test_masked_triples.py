"""Triples under masks: found where the rows are, added up with everything else, verified by the sites."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nvflare")

from consentroid.core.problem import Domain, Problem
from consentroid.verify import verify
from row_problems import half_integral
from verified_run import KeepingWire, judged
from wire import OPEN, RUN


def test_a_masked_run_with_fees_is_verified_by_its_sites(tmp_path: Path) -> None:
    rows, k = half_integral(134, ("north", "south", "west"))
    problem = Problem.checked(rows, k, domain=Domain(np.full(2, -8.0), np.full(2, 8.0)))
    line = KeepingWire(problem, tmp_path, replace(OPEN, masks="always"), {})
    certificate = line.fit(True, n_clusters=k, gap=1e-5)
    files = {name: line.kept(name) / f"{RUN}.npz" for name in rows}
    assert any("fees" in np.load(file) for file in files.values())
    assert len(certificate.leaves) == 1
    assert certificate.gap <= 1e-5
    pooled = verify(certificate, rows, files)
    assert pooled.verified
    report = judged(certificate, line.verify(certificate))
    assert report.verified
    assert report.lower_bound == pytest.approx(pooled.lower_bound, rel=1e-9)
