"""What people see of a result: the same for local and federated runs, and what is left out is said to be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from consentroid.core.problem import NodeData
from consentroid.fitting import run
from consentroid.report.files import result_as_dict, to_json
from consentroid.report.terminal import show_result
from consentroid.site.guard import Guard
from consentroid.site.worker import SiteWorker
from consentroid.transport.inprocess import InProcessTransport


def shown(least: int) -> tuple[dict[str, object], str]:
    """Two sites with twenty rows in each of two clusters, but the second has three in the second."""
    rng = np.random.default_rng(0)
    first = np.concatenate([rng.normal(size=(20, 2)), rng.normal(9.0, 1.0, size=(20, 2))])
    rows = {"north": first, "south": first[:23] + 0.1}
    workers = [SiteWorker(NodeData.checked(name, x), (), None, Guard(least)) for name, x in rows.items()]
    document = json.loads(to_json(result_as_dict(run(InProcessTransport(workers), 2, gap=0.95))))
    console = Console(record=True, width=120)
    show_result(document, Path("run"), console)
    return document, console.export_text()


@pytest.mark.parametrize("least", [1, 5])
def test_small_cells_are_suppressed_and_said_to_be(least: int) -> None:
    document, text = shown(least)
    counts = [site["counts"] for site in document["sites"]]  # type: ignore[attr-defined]
    if least == 1:
        assert counts == [[20.0, 20.0], [20.0, 3.0]]
        assert document["withheld"] == 0.0
        assert "Suppressed" not in text
        assert "≥" not in text
    else:
        assert counts[0] == [20.0, 20.0]
        assert 3.0 not in counts[1]
        assert document["withheld"] == 23.0 - sum(counts[1])
        assert document["withheld"] >= 5, "so few that they are told would tell"
        assert f"Suppressed: rows of weight {document['withheld']:g} are in groups too small to be reported" in text
        assert "≥ 20" in text
        assert "·" in text
