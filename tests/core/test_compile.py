"""Which kernels numba may vectorise, also where one compilation begins within another."""

from __future__ import annotations

import subprocess
import sys
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
    wide, _ = ours.WIDE
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


def test_warming_up_compiles_every_kernel_of_a_proof_once() -> None:
    """In a process of its own: here other tests have called them."""
    script = (
        "from consentroid.warmup import prepare_all_proofs; prepare_all_proofs()\n"
        "from consentroid.core.compile import entry_points\n"
        "for one in entry_points:\n"
        "    module = one.py_func.__module__\n"
        "    if '.paper.' not in module:\n"
        "        print(module, one.py_func.__name__, len(one.signatures))\n"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    counts = {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in told.splitlines()}
    assert len(counts) > 12
    assert any("triples" in name for name in counts)
    assert {name for name, count in counts.items() if count != 1} == set()
