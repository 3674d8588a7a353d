"""The published instances to 1e-6, against their proven optima."""

from __future__ import annotations

from pathlib import Path

import pytest

from consentroid.fitting import fit
from consentroid.paper.instances import load_folder

pytestmark = pytest.mark.instances


def test_all_published_instances_to_a_millionth(instances_dir: Path, optima: dict[str, float]) -> None:
    instances = load_folder(instances_dir)
    assert len(instances) == len(optima) == 24
    for instance in instances:
        problem, optimum = instance.problem, optima[instance.name]
        rows = {node.name: node.points for node in problem.nodes}
        weights = {node.name: node.weights for node in problem.nodes}
        result = fit(rows, problem.n_clusters, weights=weights, domain=problem.domain, gap=1e-6, regions=False)
        assert result.certified, instance.name
        assert result.lower_bound <= optimum * (1 + 1e-9), instance.name
        assert result.upper_bound >= optimum * (1 - 1e-9), instance.name
        assert result.upper_bound == pytest.approx(optimum, rel=1.1e-6), instance.name
