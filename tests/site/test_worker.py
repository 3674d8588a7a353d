"""A site answers for its rows; the paper's node problems are not its business."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from consentroid.core.errors import NodeRefused
from consentroid.core.problem import Domain, NodeData
from consentroid.paper.worker import PaperWorker
from consentroid.protocol.messages import Describe, Evaluate, Query, Reply, Solve
from consentroid.site.worker import SiteWorker

ROWS = np.array([[0.0, 0.0], [1.0, 0.5], [4.0, 4.0], [5.0, 4.5]])
BOXES = Domain(ROWS.min(axis=0), ROWS.max(axis=0)).boxes(2)[None]
DATA = NodeData.checked("north", ROWS)


def test_a_site_describes_and_evaluates_as_the_papers_worker_does() -> None:
    query = Query(1, evaluate=Evaluate(ROWS[None, [0, 3]]))
    ours, theirs = SiteWorker(DATA).answer(query), PaperWorker(DATA).answer(query)
    assert isinstance(ours, Reply)
    assert isinstance(theirs, Reply)
    assert ours.evaluated is not None
    assert theirs.evaluated is not None
    assert ours.evaluated.costs.tolist() == theirs.evaluated.costs.tolist()
    assert repr(SiteWorker(DATA).answer(Describe(2))) == repr(PaperWorker(DATA).answer(Describe(2)))


def test_a_site_refuses_node_problems() -> None:
    query = Query(1, solve=Solve(BOXES, np.zeros((1, 2, 2))))
    with pytest.raises(NodeRefused, match="node problems"):
        SiteWorker(DATA).answer(query)


def test_a_site_needs_no_solver() -> None:
    program = (
        "import sys, consentroid.site.worker; print([m for m in sys.modules if m.startswith('consentroid.paper')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
