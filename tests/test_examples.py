"""Every example runs from start to picture. Seconds are few where a proof may stay open: what is proven by then is
printed as it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(script: str, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / script), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def is_picture(path: Path) -> bool:
    return path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and path.stat().st_size > 5000


@pytest.mark.parametrize(
    ("script", "seconds", "said"),
    [
        ("penguins_by_island.py", 20, "proven lower bound"),
        ("lung_by_institution.py", 2, "best silhouette"),
        ("rand_hie_by_site.py", 2, "k-fed"),
        ("certify_iris.py", 60, "6 sites"),
        ("firms_check_their_part.py", 60, "with all books: verified True"),
        ("states_by_region.py", 60, "states are in their cluster in every best clustering"),
    ],
)
def test_example(script: str, seconds: int, said: str, tmp_path: Path) -> None:
    told = run(script, tmp_path, "--seconds", str(seconds), "--out", "picture.png")
    assert said in told
    assert "Drawn: picture.png" in told
    assert is_picture(tmp_path / "picture.png")


def test_sizes(tmp_path: Path) -> None:
    told = run("sizes.py", tmp_path, "--seconds", "2", "--only", "iris")
    assert "| iris | 150 × 4 | 3 | 3 |" in told


def test_pictures_of_the_method(tmp_path: Path) -> None:
    run("method_in_pictures.py", tmp_path, "--out", "images")
    drawn = sorted((tmp_path / "images").iterdir())
    shown = sorted((EXAMPLES.parent / "docs" / "images").glob("method-*.png"))
    assert [path.name for path in drawn] == [path.name for path in shown]
    assert all(map(is_picture, drawn))


def test_no_example_is_forgotten() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert all(path.name in text for path in EXAMPLES.glob("*.py"))
