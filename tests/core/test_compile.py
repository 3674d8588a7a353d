"""Which kernels numba may vectorise, also where one compilation begins within another."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import numba
from numba.core import event

from consentroid.core import compile as ours


@contextmanager
def compiling(module):
    data = {"dispatcher": SimpleNamespace(py_func=SimpleNamespace(__module__=module))}
    event.start_event("numba:compile", data)
    try:
        yield numba.config.LOOP_VECTORIZE
    finally:
        event.end_event("numba:compile", data)


def test_only_sums_side_by_side_are_vectorised(monkeypatch):
    monkeypatch.setattr(numba.config, "LOOP_VECTORIZE", 1)
    (wide,) = ours.WIDE
    with compiling("consentroid.site.kernels.boxes") as boxes:
        with compiling(wide) as sums:  # as boxes need them
            with compiling("consentroid.site.kernels.in_sums") as further:
                assert (boxes, sums, further) == (0, 1, 0)
            assert numba.config.LOOP_VECTORIZE == 1
        assert numba.config.LOOP_VECTORIZE == 0
    assert numba.config.LOOP_VECTORIZE == 1


def test_the_choice_of_others_is_left_alone(monkeypatch):
    monkeypatch.setattr(numba.config, "LOOP_VECTORIZE", 1)
    with compiling("somebody.else") as theirs:
        assert theirs == 1
    monkeypatch.setattr(numba.config, "LOOP_VECTORIZE", 0)
    with compiling(ours.WIDE[0]) as sums:
        assert sums == 0
