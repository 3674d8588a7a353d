"""The coordinator's own thread."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from consentroid.fitting import fit
from consentroid.rowprices.helper import Helper, NoLongerWanted


def blas_threads() -> list[int]:
    return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]


def test_the_end_of_a_run_ends_what_the_helper_does_and_gives_blas_its_threads_back() -> None:
    before, begun = blas_threads(), threading.Event()

    def work(helper: Helper) -> None:
        while True:
            begun.set()
            helper.check()

    with Helper.or_none(True) as helper:
        assert helper is not None
        assert set(blas_threads()) <= {1}
        under_way, waiting = helper.threads.submit(work, helper), helper.threads.submit(work, helper)
        assert begun.wait(10.0)
    assert isinstance(under_way.exception(10.0), NoLongerWanted)
    assert waiting.cancelled()
    assert blas_threads() == before


def test_few_clusters_need_none() -> None:
    with Helper.or_none(False) as helper:
        assert helper is None


def test_a_run_with_many_clusters_can_be_repeated() -> None:
    """What the thread draws is used at a step of the prices, not at a time."""
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(45, 2))[rng.integers(45, size=600)] + 0.08 * rng.normal(size=(600, 2))
    first, second = (fit({"a": rows}, 45, gap=1e-4, time_limit=60.0) for _ in range(2))
    assert first.certified
    assert (first.upper_bound, first.lower_bound, first.rounds) == (
        second.upper_bound, second.lower_bound, second.rounds,
    )  # fmt: skip
    assert np.array_equal(first.centroids, second.centroids)
    assert {step.phase for step in first.trace} >= {"prices", "search"}


@pytest.mark.parametrize("many", [True, False])
def test_an_error_in_a_run_ends_the_helper(many: bool) -> None:
    with pytest.raises(KeyboardInterrupt), Helper.or_none(many):
        raise KeyboardInterrupt
    assert not any(thread.name.startswith("helper") for thread in threading.enumerate())
