"""How kernels are compiled: once, kept on disk, without the interpreter's lock, every operation rounded as written.

Integers that one kernel hands to another are written np.int64(…) where they are constants: numba takes a plain one for
a type of its own and compiles the called kernel once more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import config as numba_config
from numba import njit
from numba.core import event

# no fastmath: margins assume that every operation rounds once, in the order written
kernel: Callable = njit(cache=True, nogil=True, error_model="numpy", _nrt=True)  # type: ignore[call-overload]
# for kernels that make no arrays and run at every search node: counting references would take a third of their time
bare: Callable = njit(cache=True, nogil=True, error_model="numpy", _nrt=False)  # type: ignore[call-overload]
# compiled into the caller: a call would copy every array's description, which takes longer than many kernels do
inlined: Callable = njit(inline="always", error_model="numpy", _nrt=False)  # type: ignore[call-overload]

settings: Any = numba_config  # its fields are set as the module is loaded
entry_points: list = []
OURS = (f"{__package__}.", f"{__package__.rpartition('.')[0]}.nearest.")  # packages of kernels


def entry(function):
    """A kernel that Python calls."""
    entry_points.append(kernel(function))
    return entry_points[-1]


class _ShortLoops(event.Listener):
    """Loops over clusters and features are short: vectorised, they take longer to prepare than to run.

    numba knows this choice for the whole process only, so it is made while our kernels compile, and taken back.
    """

    def __init__(self) -> None:
        self._before: list[Any] = []

    def on_start(self, event: Any) -> None:
        self._before.append(settings.LOOP_VECTORIZE)
        function = getattr(event.data.get("dispatcher"), "py_func", None)
        if (getattr(function, "__module__", None) or "").startswith(OURS):
            settings.LOOP_VECTORIZE = 0

    def on_end(self, event: Any) -> None:
        settings.LOOP_VECTORIZE = self._before.pop()


event.register("numba:compile", _ShortLoops())
