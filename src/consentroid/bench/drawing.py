"""Empty figures for benchmarks, drawn without a display (matplotlib, from the extra `plots`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.extras import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def blank(width: float, height: float, n_rows: int = 1, n_columns: int = 1, **options: Any) -> tuple[Figure, Any]:
    """A figure and its axes, as `subplots` returns them."""
    figure: Figure = require("matplotlib.figure", "plots", "drawing").Figure(
        figsize=(width, height), layout="constrained"
    )
    require("matplotlib.backends.backend_agg", "plots", "drawing").FigureCanvasAgg(figure)
    axes = figure.subplots(n_rows, n_columns, squeeze=False, **options)
    for one in axes.flat:
        one.grid(alpha=0.25)
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save(figure: Figure, path: Path) -> Path:
    figure.savefig(path, dpi=130)
    return path
