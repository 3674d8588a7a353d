"""How kernels are compiled: once, kept on disk, without the interpreter's lock, every operation rounded as written.

Every room with kernels takes its decorators from here: `kernel`, `bare` and `inlined` for what other kernels call,
`entry` for what Python calls. Never fastmath: margins assume that every operation rounds once, in the order written.

Integers that one kernel hands to another are written np.int64(…) where they are constants: numba takes a plain one for
a type of its own and compiles the called kernel once more.

Two things of numba that it does not promise are used; without either, all results are the same:

- the option `_nrt` (reference counts of arrays). A kernel that makes no arrays needs none, and counting them would take
  a third of the time of one that runs at every search node. A called kernel inherits the option from its first caller,
  so it is written out everywhere. Gone: all kernels count references.
- the event of a compilation, at which vectorising of loops is turned off for our kernels but those that are written for
  it. Gone: numba's own choice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numba
from numba import njit

PACKAGE = __package__.rpartition(".")[0]
OURS = tuple(f"{PACKAGE}.{room}." for room in ("paper.node", "paper.nearest", "site.kernels", "rowprices", "verify"))
# many sums side by side, which grow at once; all pairs of rows
WIDE = tuple(f"{PACKAGE}.site.kernels.{name}" for name in ("cuts", "pairs"))


def _counting(references: bool) -> dict[str, bool]:
    """The option that turns reference counts on or off, where this numba knows it."""
    try:
        from numba.core.cpu import CPUTargetOptions
    except ImportError:
        return {}
    return {"_nrt": references} if hasattr(CPUTargetOptions, "_nrt") else {}


kernel: Callable = njit(cache=True, nogil=True, error_model="numpy", **_counting(True))  # type: ignore[call-overload]
# for kernels that make no arrays and run at every search node
bare: Callable = njit(cache=True, nogil=True, error_model="numpy", **_counting(False))  # type: ignore[call-overload]
# compiled into the caller: a call would copy every array's description, which takes longer than many kernels do
inlined: Callable = njit(inline="always", error_model="numpy", **_counting(False))  # type: ignore[call-overload]

entry_points: list = []


def entry(function: Callable) -> Callable:
    """A kernel that Python calls."""
    entry_points.append(kernel(function))
    return entry_points[-1]


def _keep_short_loops() -> None:
    """Loops over clusters and features are short: vectorised, they take longer to prepare than to run.

    numba knows this choice for the whole process only, so it is made while our kernels compile, and taken back.
    """
    from numba.core import event

    settings: Any = numba.config  # its fields are set as the module is loaded
    before: list[Any] = []

    class ShortLoops(event.Listener):
        def on_start(self, event: Any) -> None:
            before.append(settings.LOOP_VECTORIZE)
            function = getattr(event.data.get("dispatcher"), "py_func", None)
            module = getattr(function, "__module__", None) or ""
            if module.startswith(OURS):
                settings.LOOP_VECTORIZE = before[0] if module in WIDE else 0  # one compilation can begin within another

        def on_end(self, event: Any) -> None:
            settings.LOOP_VECTORIZE = before.pop()

    if hasattr(settings, "LOOP_VECTORIZE"):
        event.register("numba:compile", ShortLoops())


with contextlib.suppress(ImportError, AttributeError):
    _keep_short_loops()
