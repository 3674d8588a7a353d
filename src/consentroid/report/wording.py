"""One wording for terminal and files: why a run ended, the gap in per cent, the verdict."""

from __future__ import annotations

from ..fitting import FitResult

REASONS = {
    "gap": "the gap asked for is proven",
    "residual": "the nodes agree (consensus residual below tolerance)",
    "max_rounds": "the limit of rounds was reached",
    "time_limit": "the time limit was reached",
    "dual_optimal": "no prices give a better bound",
    "dual_stalled": "further prices promise little",
    "interrupted": "interrupted by the user",
}


def percent(gap: float) -> str:
    """A gap for people: enough digits to tell it from zero."""
    if gap <= 0:
        return "0 %"
    return f"{100 * gap:.2f} %" if gap >= 1e-3 else f"{100 * gap:.1g} %"


def verdict(result: FitResult) -> str:
    """The gap in words."""
    if result.settings.symmetry == "nearest":
        return "The rule 'nearest' can exclude the optimum: nothing is proven beyond the first round."
    if result.gap <= 1e-9:
        return "Proven optimal: no clustering of these rows costs less."
    text = f"Proven: no clustering of these rows costs less than {result.lower_bound:.8g}; "
    text += f"this one is within {percent(result.gap)} of that"
    return text + (", as asked." if result.certified else f" ({REASONS[result.stop_reason]}).")
