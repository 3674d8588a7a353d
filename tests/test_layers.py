"""Which room may import which: the architecture, read from the imports, also those inside functions.

A room is a folder of the package; `root` is the front door. Everything may import what stands below it, nothing
imports upwards, and no room imports, through others, itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import consentroid

PACKAGE = Path(consentroid.__file__).parent
NAME = PACKAGE.name

ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "protocol": {"core"},
    "site": {"core", "protocol"},
    "certificate": {"core"},
    "verify": {"core", "certificate"},  # of the core only words: see SHARED_WITH_VERIFY
    "data": {"core"},
    "transport": {"core", "protocol", "site"},
    "rowprices": {"core", "protocol", "certificate"},
    "parts": {"core", "protocol", "site", "data", "rowprices"},  # of the engine only how sums are rounded
    "paper": {"core", "protocol", "site", "transport"},  # its worker is a site; its loop speaks through a channel
    "evaluation": {"core", "protocol", "transport"},
    "report": {"core", "certificate"},
}
BELOW = set(ALLOWED)
ALLOWED |= {
    "root": BELOW,
    "federation": BELOW | {"root"},
    "bench": BELOW | {"root", "federation"},
    "cli": BELOW | {"root", "federation", "bench"},
}
# What the independent checker may know of the core: the name of a type and the errors, nothing that computes.
SHARED_WITH_VERIFY = {"core.arrays.Array", "core.errors"}
# Imports of our own inside a function, each with its reason.
LATE = {
    "certificate.document → certificate.reading": "a document reads itself, and reading needs its classes",
    "data.tables → data.databases": "a table can come from a database, and databases make tables",
}
# Commands, benches and the front door load what they need when it is called, so that `--help` is quick.
LAZY = {"cli", "bench", "root"}


@dataclass(frozen=True)
class Import:
    importer: str  # module
    line: int
    imported: str  # module
    inside: bool  # a function
    name: str = ""  # taken from the module

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"

    @property
    def pair(self) -> str:
        return f"{self.importer} → {self.imported}".replace(f"{NAME}.", "")


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (PACKAGE / parts[1]).is_dir() else "root"


def imports_of(path: Path) -> Iterator[Import]:
    module = module_of(path)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    tree = ast.parse(path.read_text())
    inside = {
        node
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == NAME:
                    yield Import(module, node.lineno, alias.name, node in inside)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            source = ".".join(part for part in (base, node.module or "") if part)
            if source.split(".")[0] == NAME:
                for alias in node.names:
                    inner = f"{source}.{alias.name}"
                    path_of = PACKAGE.parent.joinpath(*inner.split("."))
                    exists = path_of.is_dir() or path_of.with_suffix(".py").exists()
                    yield Import(module, node.lineno, inner if exists else source, node in inside, alias.name)


IMPORTS = [one for path in sorted(PACKAGE.rglob("*.py")) for one in imports_of(path)]


def between_rooms() -> Iterator[tuple[str, str, Import]]:
    for one in IMPORTS:
        importer, imported = room_of(one.importer), room_of(one.imported)
        if importer != imported:
            yield importer, imported, one


def test_every_room_is_in_the_table() -> None:
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms | {"root"} == set(ALLOWED)


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_a_room_imports_only_what_stands_below_it(room: str) -> None:
    forbidden = [
        str(one)
        for importer, imported, one in between_rooms()
        if importer == room and imported not in ALLOWED[room] and one.importer != f"{NAME}.__main__"
    ]
    assert forbidden == []


def test_the_table_has_no_cycle() -> None:
    remaining = {room: set(below) for room, below in ALLOWED.items()}
    while remaining:
        lowest = {room for room, below in remaining.items() if not below & set(remaining)}
        assert lowest, f"these rooms import each other: {sorted(remaining)}"
        for room in lowest:
            del remaining[room]


def test_no_two_modules_import_each_other() -> None:
    below: dict[str, set[str]] = {}
    for one in IMPORTS:
        if one.imported != one.importer and not one.importer.startswith(f"{one.imported}.") and one.pair not in LATE:
            below.setdefault(one.importer, set()).add(one.imported)
    modules = {module for pair in below.items() for module in (pair[0], *pair[1])}
    while modules:
        lowest = {module for module in modules if not below.get(module, set()) & modules}
        assert lowest, f"these modules import each other: {sorted(modules)}"
        modules -= lowest


def test_imports_inside_functions_are_for_packages_of_others() -> None:
    """What is ours is imported at the top of a file, where it can be seen."""
    late = [one for one in IMPORTS if one.inside and room_of(one.importer) not in LAZY]
    assert [str(one) for one in late if one.pair not in LATE] == []
    assert set(LATE) <= {one.pair for one in late}, "a reason without its import"


def test_the_checker_shares_no_arithmetic_with_the_engine() -> None:
    taken = {
        f"{one.imported}.{one.name}".removeprefix(f"{NAME}.")
        for importer, imported, one in between_rooms()
        if (importer, imported) == ("verify", "core")
    }
    assert {name for name in taken if not name.startswith(tuple(SHARED_WITH_VERIFY))} == set()


def test_a_class_has_its_name_alone() -> None:
    """One name, one thing: a reader who searches for a class finds one."""
    defined: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                defined.setdefault(node.name, []).append(f"{module_of(path)}:{node.lineno}")
    assert {name: places for name, places in defined.items() if len(places) > 1} == {}
