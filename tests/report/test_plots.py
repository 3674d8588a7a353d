"""Pictures: drawn for any number of features, labelled, with one colour per cluster and no legend of absent things."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consentroid.core.errors import InvalidInput
from consentroid.report import plots
from consentroid.report.colours import PALETTE, cluster_colour
from consentroid.report.files import plain, result_as_dict, step_as_dict
from made_results import FEATURES, made_result, made_rows

TRACE = [plain(step_as_dict(step)) for step in made_result().trace]


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that were saved."""
    figures: list[Any] = []
    save = plots._save
    monkeypatch.setattr(plots, "_save", lambda figure, path: figures.append(figure) or save(figure, path))
    return figures


def document(**changes: Any) -> dict[str, Any]:
    return dict(plain(result_as_dict(made_result(**changes))))


def is_picture(path: Path) -> bool:
    return path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and path.stat().st_size > 5000


@pytest.mark.parametrize("n_features", [1, 2, 4])
def test_the_pictures_of_a_run(n_features: int, tmp_path: Path, saved: list[Any]) -> None:
    drawn = plots.draw_run(tmp_path, document(n_features=n_features), TRACE, made_rows(n_features))
    assert [path.name for path in drawn] == ["clusters.png", "bounds.png", "gap.png"]
    assert all(map(is_picture, drawn))
    axes = saved[0].axes[0]
    assert FEATURES[0] in axes.get_xlabel() or "principal axis" in axes.get_xlabel()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "Biscoe", "Dream", "São Torgersen", "certified region", "centroid",
    ]  # fmt: skip


def test_what_is_not_drawn_is_not_in_the_legend(tmp_path: Path, saved: list[Any]) -> None:
    plots.draw_run(tmp_path, document(regions=None), TRACE[:1])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clusters.png"]
    assert [text.get_text() for text in saved[0].axes[0].get_legend().get_texts()] == ["centroid"]


def test_a_comparison_shows_every_method_above_the_bound(tmp_path: Path, saved: list[Any]) -> None:
    lines = [
        {"method": "consentroid", "cost": 10.0, "proves": True, "rows_leave": False},
        {"method": "pooled", "cost": 12.0, "proves": False, "rows_leave": True},
    ]
    assert is_picture(plots.comparison({"lower_bound": 10.0, "methods": lines}, tmp_path / "compare.png"))
    axes = saved[0].axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["consentroid", "pooled (rows leave)"]
    assert [text.get_text() for text in axes.texts] == ["10", "12  (+20.00 %)"]


def test_colours_are_distinct_and_repeat_only_after_all_are_used() -> None:
    assert len(set(PALETTE)) == len(PALETTE)
    assert cluster_colour(0) == cluster_colour(len(PALETTE))


def test_without_matplotlib_the_command_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InvalidInput, match=r"drawing needs matplotlib; .*pip install 'consentroid\[plots\]'"):
        plots.clusters(document(), tmp_path / "x.png")


def test_rows_are_coloured_by_the_distance_that_was_clustered(tmp_path: Path, saved: list[Any]) -> None:
    result = document(n_features=2) | {
        "scaling": {"scale": "standard", "offset": [0, 0], "factor": [1000.0, 1.0], "fill": None}
    }
    result["centroids"] = [[0.0, 0.0], [0.0, 10.0], [0.0, 20.0]]
    result["regions"] = None
    plots.clusters(result, tmp_path / "x.png", {"a": np.array([[4000.0, 9.0]])})
    from matplotlib.colors import to_hex

    assert to_hex(saved[0].axes[0].collections[0].get_facecolors()[0]) == cluster_colour(1)
