"""The documentation is true: its code runs, its commands exist, its links lead somewhere, its names and numbers are
those of the code, its notebooks print what they show, and its site is built without a warning."""

from __future__ import annotations

import ast
import doctest
import importlib.util
import inspect
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import consentroid
from consentroid.estimator import FederatedKMeans
from consentroid.protocol import messages

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path.stem for path in DOCS.glob("*.md"))
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
TEXTS = [*(DOCS / f"{page}.md" for page in PAGES), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
CALLED = ("get-started", "paper")  # pages whose commands are called; elsewhere they must exist, with their options
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.M | re.S)
LINK = re.compile(r"(?<!`)\]\(([^)\s]+)\)")


def blocks(path: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(path.read_text(encoding="utf-8"))


# ---------------------------------------------------------------------- code and commands


def has_code(page: str) -> bool:
    return any(language == "python" or page in CALLED for language, _ in blocks(DOCS / f"{page}.md"))


@pytest.mark.parametrize("page", [page for page in PAGES if has_code(page)])
def test_code_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of a page, in order, in one namespace and one folder; what follows >>> must print what is shown."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for number, (language, text) in enumerate(blocks(DOCS / f"{page}.md")):
        if language == "console" and page in CALLED:
            for command in commands_in(text):
                call(command, tmp_path)
        elif language == "python" and ">>>" in text:
            test = doctest.DocTestParser().get_doctest(text, names, f"{page} {number}", f"{page}.md", 0)
            runner.run(test, clear_globs=False)
            names.update(test.globs)
        elif language == "python":
            exec(compile(text, f"{page}.md", "exec"), names)
    assert runner.summarize(verbose=False).failed == 0


def commands_in(text: str) -> Iterator[list[str]]:
    """The arguments of every line that calls consentroid; a backslash goes on with the next line."""
    for line in text.replace("\\\n", " ").splitlines():
        found = re.match(r"(?:\$ )?consentroid (.*)", line.strip())
        if found:
            yield shlex.split(found[1], comments=True)


def call(arguments: list[str], folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "consentroid", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "COLUMNS": "120"},
    )
    assert done.returncode == 0, f"consentroid {shlex.join(arguments)}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_commands_exist(path: Path) -> None:
    """Every command in a block or in code style, with its options; placeholders such as ... and DIR are let be."""
    import typer

    from consentroid.cli.main import app

    root: Any = typer.main.get_command(app)
    text = path.read_text(encoding="utf-8")
    told = [command for _, block in blocks(path) for command in commands_in(block)]
    told += [command for code in re.findall(r"(?<!`)`(consentroid [^`]+)`(?!`)", text) for command in commands_in(code)]
    for arguments in told:
        command, rest = root, [argument for argument in arguments if argument not in ("…", "...")]
        while rest and hasattr(command, "commands") and not rest[0].startswith("-"):
            name = rest.pop(0).rstrip(",.")
            found = command.get_command(None, name)
            assert found is not None, f"{path.name}: there is no command {shlex.join(arguments)}"
            command = found
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        known |= {"--help", "-h", "--version", "--install-completion"}
        for argument in rest:
            if argument.startswith("-") and not re.match(r"-\d", argument):
                assert argument.split("=")[0] in known, f"{path.name}: {shlex.join(arguments)} has no {argument}"


# ---------------------------------------------------------------------- links and names


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_links_lead_somewhere(path: Path) -> None:
    text = BLOCK.sub("", path.read_text(encoding="utf-8"))
    made = {f"notebooks/{notebook.stem}.md" for notebook in NOTEBOOKS}  # pages that the site makes
    for target in LINK.findall(text):
        if target.startswith("http") or target in made:
            continue
        file, _, anchor = target.partition("#")
        there = path.parent / file if file else path
        assert there.exists(), f"{path.name} refers to {file}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), re.M)
            assert anchor in {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}, target


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_what_is_named_is_in_the_code(path: Path) -> None:
    """`rowprices/engine.py: Engine.run` and `rowprices/master.py`: the file exists and defines the name."""
    text = path.read_text(encoding="utf-8").replace("\n", " ")
    for code in re.findall(r"`([\w/.]+\.py(?:: [\w.,\s]+)?)`", text):
        name, _, defined = code.partition(": ")
        bases = (ROOT, ROOT / "src/consentroid", ROOT / "src")
        file = next((base / name for base in bases if (base / name).is_file()), None)
        if file is None and "/" not in name:
            continue  # a file of the folder that the sentence is about
        assert file is not None, f"{path.name} names {name}"
        for one in re.split(r",\s*", defined) if defined else []:
            assert one.strip() in defined_in(file), f"{path.name} names {one} in {name}"


def defined_in(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
            names |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def test_the_architecture_page_has_the_table_that_is_tested() -> None:
    from test_layers import ALLOWED, BELOW

    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    for room in BELOW:
        told = re.search(rf"^\| `{room}` \| ([^|(]*)", text, re.M)
        assert told, f"architecture.md has no line for {room}"
        listed = {name.strip() for name in told[1].split(",")} - {"–"}
        assert listed == ALLOWED[room], room
    for room in set(ALLOWED) - {"root"}:
        assert f"**`{room}/`**" in text, room


@pytest.mark.parametrize("path", [*TEXTS, *NOTEBOOKS, *(ROOT / "examples").glob("*.py")], ids=lambda path: path.stem)
def test_nothing_gone_is_told(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for gone in ("virtual node", "virtual_nodes", "most_rows", "most-rows", "split_nodes", "legacy", "checkpoint.npz"):
        assert gone not in text, gone


# Everything of which a reply can consist; what it is made of is read from its own annotations.
PARTS = {
    kind
    for reply in (messages.PriceReply, messages.Reply)
    for hint in get_type_hints(reply).values()
    for kind in get_args(hint)
    if is_dataclass(kind)
}


@pytest.mark.parametrize("kind", [messages.Description, *sorted(PARTS, key=lambda kind: kind.__name__)])
def test_every_field_that_leaves_a_site_is_disclosed(kind: type) -> None:
    text = (DOCS / "disclosure.md").read_text(encoding="utf-8")
    assert kind.__name__ in text
    for field in inspect.signature(kind).parameters:
        assert field == "node" or f"`{field}`" in text or f"{kind.__name__}.{field}`" in text, field


def test_the_reference_names_every_export_and_parameter() -> None:
    text = (DOCS / "reference.md").read_text(encoding="utf-8")
    for name in consentroid.__all__:
        assert name in text, name
        assert getattr(consentroid, name).__name__ == name
    for parameter in FederatedKMeans().get_params():
        assert f"{parameter}=" in text
    for attribute in ("centroid_regions_", "certain_", "verdict_"):
        assert attribute in text


def test_one_version_everywhere() -> None:
    released = re.search(r"^## \[(\d[^\]]*)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert released is not None
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {released[1]}\n" in citation
    assert f"\ndate-released: {released[2]}\n" in citation
    assert consentroid.__version__.startswith(released[1])


def test_the_readme_shows_what_the_demo_prints(tmp_path: Path) -> None:
    """All that does not depend on the machine: the table, cost and verdict; the bound to six digits."""
    shown = next(text for _, text in blocks(ROOT / "README.md") if text.startswith("Three islands"))
    done = subprocess.run(
        [sys.executable, "-m", "consentroid", "demo", "--out", "demo"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    same = [line for line in shown.splitlines() if line.startswith(("│", "cost", "Certified", "Three", "Written"))]
    assert len(same) == 8
    for line in same:
        assert line in done.stdout.splitlines(), line
    bounds = [re.search(r"proven lower bound +([\d.]+)", text) for text in (shown, done.stdout)]
    stated, now = (float(found[1]) for found in bounds if found)
    assert stated == pytest.approx(now, rel=1e-6)


def test_the_gallery_counts_right() -> None:
    from consentroid.data.datasets import grunfeld, lung, penguins, rand_hie, states

    text = (DOCS / "gallery.md").read_text(encoding="utf-8")
    for sites in (penguins(), rand_hie(("xage", "disea"), year=1), lung(), grunfeld(), states()[0]):
        assert f"{sum(table.n_rows for table in sites.tables.values()):,}" in text
    shown = set(re.findall(r"examples/(\w+\.py)", text))
    assert all((ROOT / "examples" / script).is_file() for script in shown - {"NAME.py"})


# ---------------------------------------------------------------------- docstrings, notebooks, site


def test_docstrings_run() -> None:
    import consentroid.estimator
    import consentroid.fitting

    for module in (consentroid.fitting, consentroid.estimator):
        outcome = doctest.testmod(module)
        assert outcome.attempted > 0
        assert outcome.failed == 0


@pytest.mark.filterwarnings("default")  # of the kernel's own machinery
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_print_what_they_show(path: Path, tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="notebooks need the test extra")
    nbclient = pytest.importorskip("nbclient", reason="notebooks need the test extra")
    shown = nbformat.read(path, as_version=4)
    run = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(run, timeout=300, kernel_name="python3", coalesce_streams=True).execute(cwd=str(tmp_path))
    for before, now in zip(shown.cells, run.cells, strict=True):
        assert printed(now) == printed(before), before.source


def printed(cell: Any) -> list[str]:
    return [output.text for output in cell.get("outputs", []) if output.output_type == "stream"]


def test_the_site_is_built_without_a_warning_and_without_a_network(tmp_path: Path) -> None:
    if not all(importlib.util.find_spec(name) for name in ("mkdocs", "material", "mkdocstrings")):
        pytest.skip("MkDocs is not installed; pip install 'consentroid[docs]'")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": "default"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for page in PAGES:
        built = (tmp_path / "site" / f"{page}.html").read_text(encoding="utf-8")
        assert not re.search(r"""<(?:script|link|img|iframe)[^>]+(?:src|href)=["']?(?:https?:)?//""", built), page


def test_every_page_is_in_the_navigation() -> None:
    told = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in (*PAGES, *(f"notebooks/{notebook.stem}" for notebook in NOTEBOOKS)):
        assert f"{page}.md" in told, page
