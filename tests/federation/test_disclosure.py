"""The attacks of the disclosure benchmark find what is there to be found: the benchmark itself has teeth."""

from __future__ import annotations

import numpy as np

from consentroid.bench.disclosure import ordinary_run, recovered, sweep
from consentroid.core.problem import Problem


def problem(n_rows: int = 8) -> Problem:
    rng = np.random.default_rng(0)
    return Problem.checked({name: rng.normal(size=(n_rows, 2)) for name in ("a", "b", "c")}, 2)


def test_rows_count_as_recovered_only_if_they_are_met() -> None:
    rows = problem().pooled.points
    assert recovered(rows, iter([rows[:3] + 1e-6])) == 3
    assert recovered(rows, iter([rows[:3] + 0.1, np.empty((0, 2))])) == 0


def test_without_guard_and_masks_small_sites_are_read_off() -> None:
    found, result = ordinary_run(problem(), least=1, masked=False, gap=1e-2, seconds=20.0)
    assert result.certified
    assert found > 12
    assert sweep(problem(), least=1, masked=False) > 12


def test_a_guard_and_masks_leave_less() -> None:
    guarded = sweep(problem(30), least=10, masked=True)
    assert guarded < sweep(problem(30), least=1, masked=False)
