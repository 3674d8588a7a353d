"""The documentation is true: its code runs, its commands succeed, its links and pictures exist."""

from __future__ import annotations

import doctest
import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import consentroid
from consentroid.estimator import FederatedKMeans
from consentroid.protocol import messages

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
OURS = (
    "get-started",
    "method",
    "choosing-a-method",
    "what-certified-means",
    "disclosure",
    "differences-from-the-paper",
    "reference",
)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)


def blocks(page: str) -> list[tuple[str, str]]:
    return BLOCK.findall((DOCS / f"{page}.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", OURS)
def test_code_and_commands_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of a page, in order, in one namespace and one folder; what follows >>> must print what is shown."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for number, (language, text) in enumerate(blocks(page)):
        if language == "console":
            for line in text.splitlines():
                if line.startswith("$ consentroid "):
                    run_command(line.removeprefix("$ consentroid "), tmp_path)
        elif language == "python" and ">>>" in text:
            test = doctest.DocTestParser().get_doctest(text, names, f"{page} {number}", f"{page}.md", 0)
            runner.run(test, clear_globs=False)
            names.update(test.globs)
        elif language == "python":
            exec(compile(text, f"{page}.md", "exec"), names)
    assert runner.summarize(verbose=False).failed == 0


def run_command(arguments: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "consentroid", *shlex.split(arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "COLUMNS": "120"},
    )
    assert done.returncode == 0, f"consentroid {arguments}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", OURS)
def test_links_and_pictures_exist(page: str) -> None:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if not target.startswith("http"):
            assert (DOCS / target).is_file(), f"{page}.md refers to {target}"
    for file, anchor in re.findall(r"\]\(([^)#]*)#([^)]+)\)", text):
        headings = re.findall(r"^#+ (.+)$", (DOCS / (file or f"{page}.md")).read_text(encoding="utf-8"), re.M)
        assert anchor in {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def test_every_field_that_leaves_a_node_is_disclosed() -> None:
    text = (DOCS / "disclosure.md").read_text(encoding="utf-8")
    for kind in (messages.Description, messages.Solved, messages.Evaluated):
        assert kind.__name__ in text
        for field in inspect.signature(kind).parameters:
            assert field == "node" or f"`{field}`" in text or f"{kind.__name__}.{field}`" in text, field


def test_the_reference_names_every_export_and_parameter() -> None:
    text = (DOCS / "reference.md").read_text(encoding="utf-8")
    for name in set(consentroid.__all__) - {"Domain"}:
        assert name in text, name
        assert getattr(consentroid, name).__name__ == name
    for parameter in FederatedKMeans().get_params():
        assert f"{parameter}=" in text


def test_docstrings_run() -> None:
    import consentroid.estimator
    import consentroid.fitting

    for module in (consentroid.fitting, consentroid.estimator):
        outcome = doctest.testmod(module)
        assert outcome.attempted > 0
        assert outcome.failed == 0
