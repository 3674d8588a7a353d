"""A thread of the coordinator's own, for work that asks the sites nothing."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from .pivoting import BLAS


class NoLongerWanted(Exception):
    """The run is over; what the helper was working on is of no use."""


class Helper:
    def __init__(self) -> None:
        self.threads, self._over = ThreadPoolExecutor(1, "helper"), False

    def check(self) -> None:
        """Ends the work in hand when the run is over."""
        if self._over:
            raise NoLongerWanted

    @classmethod
    @contextmanager
    def or_none(cls, wanted: bool) -> Iterator[Helper | None]:
        """BLAS has one thread beside it: two that limit its threads at once would not put them back."""
        if not wanted:
            yield None
            return
        helper = cls()
        with BLAS.limit(limits=1):
            try:
                yield helper
            finally:
                helper._over = True
                helper.threads.shutdown(cancel_futures=True)
