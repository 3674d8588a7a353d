"""A run ends with what it has proven before sites refuse to answer, whatever their policies allow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from consentroid.core.errors import NodeFailed
from consentroid.core.problem import NodeData, Problem
from consentroid.core.result import FitResult, StopReason
from consentroid.fitting import run
from consentroid.protocol.messages import Describe, Request, Response
from consentroid.rowprices.allowance import Allowance
from consentroid.site.policy import Meter, Policy
from consentroid.site.worker import SiteWorker
from consentroid.transport.inprocess import InProcessTransport
from consentroid.verify import verify

FREE = {"masks": "never", "require_domain": False, "most_questions": 10**9, "most_boxes": 10**9, "most_points": 10**9}


class LimitedWorker(SiteWorker):
    """Answers as its policy allows, and says so unless it is `silent`."""

    def __init__(self, data: NodeData, policy: Policy, price_file: Path | None, silent: bool = False) -> None:
        super().__init__(data, price_file=price_file)
        self.meter, self.silent = Meter(policy), silent

    def answer(self, request: Request) -> Response:
        self.meter.admit(request, 1, masked=False)
        response = super().answer(request)
        if isinstance(request, Describe) and not self.silent:
            return replace(response, allowed=self.meter.left())
        return response


def limited_run(folder: Path, silent: bool = False, *, blur: float = 1.0, **limits: int) -> FitResult:
    rng, clusters = np.random.default_rng(3), 3
    x = 3.0 * rng.normal(size=(clusters, 6))[rng.integers(clusters, size=150)] + blur * rng.normal(size=(150, 6))
    problem = Problem.checked({f"s{i}": x[i::2] for i in range(2)}, clusters)
    policy = Policy.checked(FREE | limits)
    workers = [LimitedWorker(node, policy, folder / f"{node.name}.npz", silent) for node in problem.nodes]
    result = run(InProcessTransport(workers, 1), clusters, gap=1e-5, time_limit=600.0)
    rows = {node.name: node.points for node in problem.nodes}
    report = verify(result.certificate, rows, {name: folder / f"{name}.npz" for name in rows})
    assert report.verified
    return result


LIMITS = [
    ("most_boxes", 40), ("most_boxes", 1_000), ("most_boxes", 20_000),
    ("most_questions", 150), ("most_questions", 400), ("most_points", 20_000),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "most"), LIMITS)
def test_it_ends_with_a_proven_bound_before_sites_refuse(rule: str, most: int, tmp_path: Path) -> None:
    result = limited_run(tmp_path, blur=6.0, **{rule: most})
    assert result.stop_reason is StopReason.POLICY
    assert 0.0 < result.lower_bound < result.upper_bound


def test_without_being_told_it_would_be_refused(tmp_path: Path) -> None:
    with pytest.raises(NodeFailed, match="most_boxes"):
        limited_run(tmp_path, silent=True, blur=6.0, most_boxes=1_000)


def test_what_is_plenty_changes_nothing(tmp_path: Path) -> None:
    free = limited_run(tmp_path, blur=0.5)
    assert free.stop_reason is StopReason.GAP
    enough = limited_run(tmp_path, blur=0.5, most_questions=5_000, most_boxes=1_000_000, most_points=1_000_000)
    assert enough.stop_reason is StopReason.GAP
    assert enough.lower_bound == free.lower_bound
    assert np.array_equal(enough.centroids, free.centroids)


def test_the_scarcest_counts() -> None:
    asked = np.array([40.0, 3.0, 9.0])
    allowance = Allowance(np.array([100.0, 100.0, 100.0]), lambda: asked)
    assert allowance.used == pytest.approx(0.5)
    asked[1] = 60.0
    assert allowance.used == pytest.approx(2.0)
    assert Allowance.unlimited().used == 0.0
    assert Allowance(np.zeros(3), lambda: asked).used >= 1.0
