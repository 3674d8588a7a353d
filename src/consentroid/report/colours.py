"""One colour per cluster, the same in every picture; readable on light and on dark ground."""

from __future__ import annotations

PALETTE = (
    "#3b76d6", "#dd6331", "#2c9c69", "#a45bc0", "#b8941f", "#1d9fb5", "#d0508f", "#8a7160", "#6f8f2e", "#7a7fe0",
    "#c0392b", "#5f7d8c",
)  # fmt: skip
COST, BOUND, ASKED = "#dd6331", "#3b76d6", "#2c9c69"


def cluster_colour(k: int) -> str:
    """More clusters than colours share them; their numbers are written beside."""
    return PALETTE[k % len(PALETTE)]
