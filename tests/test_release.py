"""What is released works where nothing else is: sdist and wheel are built, the wheel is installed into a fresh
environment that holds exactly the packages it declares, and commands run there.

Nothing is fetched: the declared packages, and what they declare, are linked from the environment of the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import consentroid

ROOT = Path(__file__).parents[1]
NAME = f"consentroid-{consentroid.__version__}"


def called(*command: object, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    told = {"capture_output": True, "text": True, "timeout": 300, "check": False, "env": environment, **options}
    return subprocess.run([str(part) for part in command], **told)


def done(*command: object, accept: tuple[int, ...] = (0,), **options: Any) -> str:
    outcome = called(*command, **options)
    assert outcome.returncode in accept, outcome.stdout + outcome.stderr
    return outcome.stdout


def requirements(of: Distribution, extras: set[str]) -> list[Requirement]:
    told = map(Requirement, of.requires or ())
    return [one for one in told if one.marker is None or any(one.marker.evaluate({"extra": e}) for e in {"", *extras})]


def declared(wanted: list[Requirement]) -> dict[str, Distribution]:
    """Everything that pip would install for these."""
    found: dict[str, Distribution] = {}
    while wanted:
        one = wanted.pop()
        if one.name not in found:
            found[one.name] = distribution(one.name)
            wanted += requirements(found[one.name], one.extras)
    return found


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sdist")
    done(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", out, cwd=ROOT)
    return out / f"{NAME}.tar.gz"


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist alone, as an installer without a wheel would."""
    out = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(out, filter="data")
    done(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out, cwd=out / NAME)
    return out / f"{NAME}-py3-none-any.whl"


def installed(wheel: Path, folder: Path, *extras: str) -> Path:
    """A fresh environment with the wheel and what it declares; the folder of its commands."""
    done(sys.executable, "-m", "venv", "--without-pip", folder)
    scripts = folder / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / "python"
    done(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel)
    packages = Path(done(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    own = Distribution.at(packages / f"{NAME}.dist-info")
    for package in declared(requirements(own, set(extras))).values():
        for top in {file.parts[0] for file in package.files or () if file.parts[0] not in ("..", "__pycache__")}:
            link = packages / top
            if not link.exists():
                link.symlink_to(Path(str(package.locate_file(top))))
    return scripts


def test_the_sdist_holds_what_is_needed_and_nothing_made(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.removeprefix(f"{NAME}/") for name in archive.getnames()}
    for needed in ("README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "Makefile", "pyproject.toml", "mkdocs.yml"):
        assert needed in names
    for folder in ("tests/helpers", "docs/images", "docs/notebooks", "examples"):
        assert any(name.startswith(f"{folder}/") for name in names), folder
    made = [name for name in names if "__pycache__" in name or name.endswith((".pyc", ".nbi", ".nbc", ".jld2"))]
    assert made == []


def test_the_wheel_holds_the_package_and_no_more(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.startswith(f"{NAME}.dist-info/")}
    package = ROOT / "src" / "consentroid"
    files = {path.relative_to(package.parent).as_posix() for path in package.rglob("*") if path.is_file()}
    assert names == {file for file in files if "__pycache__" not in file}


def test_the_demo_runs_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    commands = installed(wheel, tmp_path / "env", "plots")
    where = done(commands / "python", "-c", "import consentroid; print(consentroid.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(tmp_path / "env")
    assert done(commands / "consentroid", "--version", cwd=tmp_path).split() == ["consentroid", consentroid.__version__]
    told = done(commands / "consentroid", "demo", "--out", "demo", cwd=tmp_path)
    assert "Certified: no other 3 centroids can save more than" in told
    assert (tmp_path / "demo" / "clusters.png").stat().st_size > 0
    sites = done(commands / "consentroid", "verify", "demo/certificate.json", "--json", cwd=tmp_path, accept=(4,))
    assert json.loads(sites)["outcome"] == "incomplete"  # no rows were given; reading and judging work
    # What is not declared is not there, and the sentence says how to get it.
    missing = called(commands / "python", "-c", "from consentroid import FederatedKMeans", cwd=tmp_path)
    assert "this needs sklearn; install it with: pip install 'consentroid[sklearn]'" in missing.stderr
    compared = called(commands / "consentroid", "compare", "--node", "a=a.csv", "-k", 2, cwd=tmp_path)
    assert compared.returncode == 2
    assert compared.stderr.startswith("error: this needs")
